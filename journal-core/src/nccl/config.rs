//! `ncclConfig_t` by version, always with `blocking = 0`.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

/// What an application may choose for a communicator. `None` is NCCL's default.
/// Recorded with the communicator, because a replacement must configure itself in the same way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommConfig {
    /// Thread blocks in a cluster.
    pub cga_cluster_size: Option<i32>,
    /// Fewest thread blocks.
    pub min_ctas: Option<i32>,
    /// Most thread blocks.
    pub max_ctas: Option<i32>,
    /// Network plugin by name.
    pub net_name: Option<String>,
    /// Name of the communicator in logs.
    pub comm_name: Option<String>,
}

const UNDEFINED: c_int = c_int::MIN;

/// The struct of NCCL 2.30, 96 bytes; older libraries copy only the part they know.
#[repr(C)]
struct RawConfig {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    comm_name: *const c_char,
    collnet_enable: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    n_channels_per_net_peer: c_int,
    nvlink_centric_sched: c_int,
    graph_usage_mode: c_int,
    num_rma_ctx: c_int,
    max_p2p_peers: c_int,
    graph_stream_ordering: c_int,
}
const _: () = assert!(size_of::<RawConfig>() == 96);

/// A filled `ncclConfig_t` with the strings it points to. Lives as long as the communicator, because
/// NCCL keeps the name's pointer.
pub(super) struct NativeConfig {
    raw: Box<RawConfig>,
    _net_name: Option<CString>,
    _comm_name: Option<CString>,
}

impl NativeConfig {
    pub(super) fn as_mut_ptr(&mut self) -> *mut c_void {
        core::ptr::from_mut(&mut *self.raw).cast()
    }
}

impl CommConfig {
    /// The struct for a library of `library_version`. Claims no newer version than the library's own,
    /// so that no field is read as something else.
    pub(super) fn to_native(&self, library_version: i32) -> NativeConfig {
        let text = |s: &Option<String>| s.as_ref().and_then(|s| CString::new(s.as_str()).ok());
        let (net_name, comm_name) = (text(&self.net_name), text(&self.comm_name));
        let pointer = |s: &Option<CString>| s.as_ref().map_or(core::ptr::null(), |s| s.as_ptr());
        let size = match library_version {
            ..21700 => 24,
            21700..21801 => 40,
            21801..22703 => 48,
            22703..22803 => 72,
            22803..22902 => 80,
            22902..23003 => 88,
            _ => 96,
        };
        let raw = Box::new(RawConfig {
            size,
            magic: 0xcafe_beef,
            version: u32::try_from(library_version.min(23007)).unwrap_or(0),
            blocking: 0,
            cga_cluster_size: self.cga_cluster_size.unwrap_or(UNDEFINED),
            min_ctas: self.min_ctas.unwrap_or(UNDEFINED),
            max_ctas: self.max_ctas.unwrap_or(UNDEFINED),
            net_name: pointer(&net_name),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            comm_name: pointer(&comm_name),
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
        });
        NativeConfig { raw, _net_name: net_name, _comm_name: comm_name }
    }

    /// Bytes for the journal and the clique table: four integers, two strings with their lengths.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48);
        for value in [self.cga_cluster_size, self.min_ctas, self.max_ctas] {
            out.extend_from_slice(&value.unwrap_or(UNDEFINED).to_le_bytes());
        }
        for text in [&self.net_name, &self.comm_name] {
            let bytes = text.as_ref().map_or(&[][..], |s| &s.as_bytes()[..s.len().min(64)]);
            out.push(bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
        out
    }

    /// The reverse; bytes that do not fit are the default configuration's.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let int = |at: usize| {
            let four = bytes.get(at..at + 4)?;
            let value = c_int::from_le_bytes(four.try_into().ok()?);
            (value != UNDEFINED).then_some(value)
        };
        let mut at = 12;
        let mut text = || {
            let length = usize::from(*bytes.get(at)?);
            let found = bytes.get(at + 1..at + 1 + length)?;
            at += 1 + length;
            (length > 0).then(|| String::from_utf8_lossy(found).into_owned())
        };
        let (net_name, comm_name) = (text(), text());
        Self { cga_cluster_size: int(0), min_ctas: int(4), max_ctas: int(8), net_name, comm_name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_its_bytes() {
        let config = CommConfig { max_ctas: Some(2), comm_name: Some("data".into()), ..CommConfig::default() };
        assert_eq!(CommConfig::from_bytes(&config.to_bytes()), config);
        assert_eq!(CommConfig::from_bytes(&[1, 2, 3]), CommConfig::default());
    }

    #[test]
    fn the_struct_never_claims_a_newer_version_than_the_library() {
        let native = CommConfig::default().to_native(22807);
        assert_eq!((native.raw.size, native.raw.version, native.raw.blocking), (80, 22807, 0));
    }
}
