//! What ranks are told through their environment.

use journal_core::backend::cuda::probe;
use crate::cli::Backend;
use crate::companion;
use anyhow::{Context, bail};
use std::ffi::OsString;

/// Variables of a rank.
pub type Environment = Vec<(String, OsString)>;

/// File name of NCCL's stand-in for the host backend.
const HOST_NCCL: &str = "librejoin_host_nccl.so";

/// From the option, else from `REJOIN_BACKEND`, else CUDA: the host backend is used only when asked for by name.
pub fn backend(option: Option<Backend>) -> anyhow::Result<Backend> {
    let backend = match (option, std::env::var("REJOIN_BACKEND").as_deref()) {
        (Some(backend), _) => backend,
        (None, Ok("host")) => Backend::Host,
        (None, Ok("cuda") | Err(_)) => Backend::Cuda,
        (None, Ok(other)) => bail!("REJOIN_BACKEND is `{other}`; expected cuda or host"),
    };
    if backend == Backend::Cuda {
        probe().context("the cuda backend cannot be used here; say --backend host (CPU memory) to go without a GPU")?;
    }
    Ok(backend)
}

/// What is the same for every rank of a job. How the job recovers stands in its members segment.
pub fn of_backend(backend: Backend) -> anyhow::Result<Environment> {
    let mut environment = vec![("REJOIN_BACKEND".to_owned(), backend.name().into())];
    if backend == Backend::Host && std::env::var_os("REJOIN_NCCL").is_none() {
        environment.push(("REJOIN_NCCL".to_owned(), companion::locate(HOST_NCCL)?.into()));
    }
    Ok(environment)
}

/// What replacements are told: another device than that of the rank that died.
pub fn of_replacement(device: Option<u32>) -> Environment {
    device.map(|ordinal| ("REJOIN_DEVICE".to_owned(), ordinal.to_string().into())).into_iter().collect()
}

/// NVLink multicast objects of a dead rank have poisoned contexts and blocked restores (NVIDIA/nccl#2117, #2340).
pub fn multicast_warning(backend: Backend) -> Option<&'static str> {
    let off = std::env::var("NCCL_NVLS_ENABLE").is_ok_and(|value| value == "0");
    (backend == Backend::Cuda && !off)
        .then_some("NCCL may use NVLink multicast, which a recovery cannot rely on: set NCCL_NVLS_ENABLE=0")
}

/// What differs between ranks and incarnations.
pub fn of_rank(job: &str, rank: u32, nranks: u32, incarnation: u32, token: u64) -> Environment {
    let rank = rank.to_string();
    let variables = [
        ("REJOIN_JOB", job.to_owned()),
        ("REJOIN_RANK", rank.clone()),
        ("REJOIN_NRANKS", nranks.to_string()),
        ("REJOIN_INCARNATION", incarnation.to_string()),
        ("REJOIN_TOKEN", token.to_string()),
        ("RANK", rank.clone()),
        ("LOCAL_RANK", rank),
        ("WORLD_SIZE", nranks.to_string()),
    ];
    variables.map(|(key, value)| (key.to_owned(), value.into())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_told_another_device_only_on_request() {
        assert!(of_replacement(None).is_empty());
        assert_eq!(of_replacement(Some(3)), [("REJOIN_DEVICE".to_owned(), "3".into())]);
    }

    #[test]
    fn a_rank_learns_its_place_in_both_conventions() {
        let environment = of_rank("job", 2, 4, 1, 7);
        let value = |key: &str| environment.iter().find(|(name, _)| name == key).map(|(_, value)| value.to_str().expect("text"));
        assert_eq!(value("REJOIN_RANK"), Some("2"));
        assert_eq!(value("RANK"), value("LOCAL_RANK"));
        assert_eq!(value("WORLD_SIZE"), Some("4"));
        assert_eq!(value("REJOIN_INCARNATION"), Some("1"));
    }
}
