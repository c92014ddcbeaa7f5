//! `ncclConfig_t`: read by its own size and version, as NCCL does.

use core::ffi::c_void;
use std::ffi::{CStr, c_char};

use crate::error::{Error, Result};

const MAGIC: u32 = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
pub const UNDEFINED: i32 = i32::MIN;
/// The first struct, of NCCL 2.14.3.
const SMALLEST_BYTES: usize = 24;

/// The struct of 2.30.7, 96 bytes. A larger one of a newer caller is accepted, and what is new is dropped.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NcclConfig {
    /// Bytes of the caller's struct.
    pub size: usize,
    /// 0xcafebeef.
    pub magic: u32,
    /// NCCL_VERSION_CODE of the caller's header.
    pub version: u32,
    /// 0 or 1.
    pub blocking: i32,
    /// Not used here, but checked.
    pub cga_cluster_size: i32,
    /// Not used here, but checked.
    pub min_ctas: i32,
    /// Not used here, but checked.
    pub max_ctas: i32,
    /// Not used here.
    pub net_name: *const c_char,
    /// 0 or 1; nothing is shared here.
    pub split_share: i32,
    /// Not used here.
    pub traffic_class: i32,
    /// Shown in messages; copied.
    pub comm_name: *const c_char,
    /// Not used here.
    pub collnet_enable: i32,
    /// Not used here.
    pub cta_policy: i32,
    /// 0 or 1; nothing is shared here.
    pub shrink_share: i32,
    /// Not used here.
    pub nvls_ctas: i32,
    /// Not used here.
    pub n_channels_per_net_peer: i32,
    /// Not used here.
    pub nvlink_centric_sched: i32,
    /// Not used here.
    pub graph_usage_mode: i32,
    /// Not used here.
    pub num_rma_ctx: i32,
    /// Not used here.
    pub max_p2p_peers: i32,
    /// Not used here.
    pub graph_stream_ordering: i32,
}

const _: () = assert!(size_of::<NcclConfig>() == 96);
const _: () = assert!(core::mem::offset_of!(NcclConfig, comm_name) == 48);

/// What this library takes from a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// False: calls return before they are done, and the caller polls.
    pub blocking: bool,
    /// For messages.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { blocking: true, name: String::new() }.with_environment()
    }
}

impl Config {
    /// NCCL's variable wins over the struct.
    fn with_environment(mut self) -> Self {
        match std::env::var("NCCL_COMM_BLOCKING").as_deref() {
            Ok("0") => self.blocking = false,
            Ok("1") => self.blocking = true,
            _ => {}
        }
        self
    }

    /// Reads the caller's struct; NULL gives `default`.
    ///
    /// # Safety
    /// `config` is NULL or points to a config as long as its first field says.
    pub unsafe fn from_pointer(config: *const c_void, default: &Self) -> Result<Self> {
        if config.is_null() {
            return Ok(default.clone().with_environment());
        }
        if !config.cast::<u64>().is_aligned() {
            return Err(Error::argument("the config is not aligned"));
        }
        // SAFETY: the caller's promise; the first field stands in every version.
        let size = unsafe { config.cast::<usize>().read() };
        if !(SMALLEST_BYTES..=64 * 1024).contains(&size) {
            return Err(Error::argument(format!("the config has a size of {size}: use NCCL_CONFIG_INITIALIZER")));
        }
        let mut read = UNDEFINED_CONFIG;
        let bytes = size.min(size_of::<NcclConfig>());
        // SAFETY: `bytes` are readable by the caller's promise and fit; every bit pattern is a valid field.
        unsafe { core::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut read).cast::<u8>(), bytes) };
        if read.magic != MAGIC {
            return Err(Error::argument("the config is not initialized: use NCCL_CONFIG_INITIALIZER"));
        }
        // Fields that the caller's header did not have are padding there.
        let has_name = read.version >= 22_703;
        check_flag("blocking", read.blocking)?;
        check_flag("splitShare", if read.version >= 21_801 { read.split_share } else { UNDEFINED })?;
        check_flag("shrinkShare", if has_name { read.shrink_share } else { UNDEFINED })?;
        if read.version >= 21_701 {
            check_ctas(&read)?;
        }
        let blocking = if read.blocking == UNDEFINED { true } else { read.blocking == 1 };
        let name = if has_name && !read.comm_name.is_null() {
            // SAFETY: a name is a C string that lives as long as the communicator; it is copied here.
            unsafe { CStr::from_ptr(read.comm_name) }.to_string_lossy().into_owned()
        } else {
            String::new()
        };
        Ok(Self { blocking, name }.with_environment())
    }
}

const UNDEFINED_CONFIG: NcclConfig = NcclConfig {
    size: size_of::<NcclConfig>(),
    magic: 0,
    version: 0,
    blocking: UNDEFINED,
    cga_cluster_size: UNDEFINED,
    min_ctas: UNDEFINED,
    max_ctas: UNDEFINED,
    net_name: core::ptr::null(),
    split_share: UNDEFINED,
    traffic_class: UNDEFINED,
    comm_name: core::ptr::null(),
    collnet_enable: UNDEFINED,
    cta_policy: UNDEFINED,
    shrink_share: UNDEFINED,
    nvls_ctas: UNDEFINED,
    n_channels_per_net_peer: UNDEFINED,
    nvlink_centric_sched: UNDEFINED,
    graph_usage_mode: UNDEFINED,
    num_rma_ctx: UNDEFINED,
    max_p2p_peers: UNDEFINED,
    graph_stream_ordering: UNDEFINED,
};

fn check_flag(name: &str, value: i32) -> Result<()> {
    if matches!(value, UNDEFINED | 0 | 1) {
        return Ok(());
    }
    Err(Error::argument(format!("config.{name} is {value}, not 0 or 1")))
}

fn check_ctas(config: &NcclConfig) -> Result<()> {
    let bad = |value: i32, least: i32| value != UNDEFINED && value < least;
    if bad(config.cga_cluster_size, 0) || bad(config.min_ctas, 1) || bad(config.max_ctas, 1) {
        return Err(Error::argument("config: cgaClusterSize, minCTAs or maxCTAs is out of range"));
    }
    if config.min_ctas != UNDEFINED && config.max_ctas != UNDEFINED && config.min_ctas > config.max_ctas {
        return Err(Error::argument("config: minCTAs is larger than maxCTAs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> NcclConfig {
        NcclConfig { magic: MAGIC, version: 23_007, ..UNDEFINED_CONFIG }
    }

    fn read(config: &NcclConfig) -> Result<Config> {
        // SAFETY: a whole struct with its own size.
        unsafe { Config::from_pointer((&raw const *config).cast(), &Config { blocking: true, name: String::new() }) }
    }

    #[test]
    fn a_config_is_read_by_its_size_and_version() {
        let name = c"tensor";
        assert!(read(&sample()).unwrap().blocking);
        assert!(!read(&NcclConfig { blocking: 0, ..sample() }).unwrap().blocking);
        let named = NcclConfig { comm_name: name.as_ptr(), ..sample() };
        assert_eq!(read(&named).unwrap().name, "tensor");
        assert_eq!(read(&NcclConfig { version: 22_000, ..named }).unwrap().name, "");
        assert_eq!(read(&NcclConfig { size: 48, ..named }).unwrap().name, "");
        assert!(read(&NcclConfig { size: 120, ..sample() }).is_ok(), "a newer caller is accepted");
    }

    #[test]
    fn bad_configs_are_refused() {
        for bad in [
            NcclConfig { magic: 1, ..sample() },
            NcclConfig { size: 8, ..sample() },
            NcclConfig { blocking: 2, ..sample() },
            NcclConfig { min_ctas: 4, max_ctas: 2, ..sample() },
            NcclConfig { max_ctas: 0, ..sample() },
            NcclConfig { split_share: -5, ..sample() },
        ] {
            assert!(matches!(read(&bad), Err(Error::InvalidArgument(_))), "{bad:?}");
        }
    }
}
