//! stub
use super::evidence::Exit; use super::supervisor::Standing; use crate::report::RecoveryLine;
pub struct JobSegment; pub struct Admission { pub incarnation: u32, pub token: String }
pub fn free_name() -> String { String::new() }
impl JobSegment {
    pub fn create(_job: &str, _n: u32, _f: u32) -> anyhow::Result<Self> { Ok(Self) }
    pub fn next_incarnation(&self) -> u32 { 0 }
    pub fn admit(&self, _r: u32) -> anyhow::Result<Admission> { anyhow::bail!("") }
    pub fn end(&self, r: &str) -> String { r.to_owned() }
    pub fn open_step(&self) -> Option<u32> { None }
    pub fn record_exit(&self, _r: u32, _e: Exit) -> Standing { Standing{left:false,joined:false,setup_complete:false,ended:false,step:0} }
    pub fn reports_after(&self, _n: usize) -> Vec<RecoveryLine> { vec![] }
}
