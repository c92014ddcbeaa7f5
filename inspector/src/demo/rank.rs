//! stub
pub fn command(_: crate::cli::DemoRankOptions) -> anyhow::Result<crate::exit_code::ExitCode> { todo!() }
