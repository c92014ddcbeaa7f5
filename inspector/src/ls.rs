//! stub
pub fn command(_: &crate::cli::LsOptions) -> anyhow::Result<crate::exit_code::ExitCode> { todo!() }
