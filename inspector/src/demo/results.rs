//! What ranks of the demo hand back: a slot each in a file in memory, which vanishes with the demo however it ends.

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a rank's slot.
const SLOT_BYTES: u64 = 512;

/// What one rank ended with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankResult {
    /// Of all bytes of the final weights.
    pub weights_sha256: String,
    /// Test images classified as labelled.
    pub correct: u32,
    /// Test images.
    pub tested: u32,
}

/// What all ranks ended with.
pub type JobResult = RankResult;

impl JobResult {
    /// Share of the test images that are classified as labelled.
    pub fn accuracy(&self) -> f64 {
        f64::from(self.correct) / f64::from(self.tested.max(1))
    }
}

/// The file, in the demo's own process.
pub struct Results {
    file: OwnedFd,
    nranks: u32,
}

impl Results {
    /// Empty slots.
    pub fn create(nranks: u32) -> anyhow::Result<Self> {
        let file = memfd_create("rejoin-demo-results", MemfdFlags::CLOEXEC).context("cannot create a file in memory")?;
        ftruncate(&file, SLOT_BYTES * u64::from(nranks))?;
        Ok(Self { file, nranks })
    }

    /// Where ranks open it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// After the job: what the ranks agree on.
    pub fn collect(self) -> anyhow::Result<JobResult> {
        let file = std::fs::File::from(self.file);
        let mut results = Vec::new();
        for rank in 0..self.nranks {
            let mut slot = vec![0; SLOT_BYTES as usize];
            file.read_exact_at(&mut slot, SLOT_BYTES * u64::from(rank))?;
            let text = slot.split(|&byte| byte == 0).next().unwrap_or_default();
            ensure!(!text.is_empty(), "rank {rank} ended without a result");
            results.push(serde_json::from_slice::<RankResult>(text).with_context(|| format!("the result of rank {rank}"))?);
        }
        let first = results.first().context("a job has ranks")?.clone();
        if let Some(rank) = results.iter().position(|result| *result != first) {
            anyhow::bail!("ranks ended with different weights: rank 0 has {first:?}, rank {rank} has {:?}", results[rank]);
        }
        Ok(first)
    }
}

/// In a rank: writes its slot.
pub fn write(path: &Path, rank: u32, result: &RankResult) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).open(path).context("cannot open the demo's result file")?;
    let mut slot = serde_json::to_vec(result)?;
    ensure!(slot.len() < SLOT_BYTES as usize, "a result of {} bytes does not fit", slot.len());
    slot.resize(SLOT_BYTES as usize, 0);
    file.write_all_at(&slot, SLOT_BYTES * u64::from(rank))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(weights: &str) -> RankResult {
        RankResult { weights_sha256: weights.to_owned(), correct: 285, tested: 299 }
    }

    #[test]
    fn ranks_that_agree_give_one_result() {
        let results = Results::create(2).expect("file");
        for rank in 0..2 {
            write(&results.path(), rank, &result("aa")).expect("written");
        }
        let all = results.collect().expect("agreed");
        assert_eq!(all, result("aa"));
        assert!((all.accuracy() - 0.9532).abs() < 1e-4);
    }

    #[test]
    fn a_rank_without_a_result_and_ranks_that_differ_are_named() {
        let results = Results::create(2).expect("file");
        write(&results.path(), 0, &result("aa")).expect("written");
        assert!(results.collect().expect_err("missing").to_string().contains("rank 1 ended without"));
        let results = Results::create(2).expect("file");
        write(&results.path(), 0, &result("aa")).expect("written");
        write(&results.path(), 1, &result("bb")).expect("written");
        assert!(results.collect().expect_err("differ").to_string().contains("different weights"));
    }
}
