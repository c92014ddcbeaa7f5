//! stub
pub fn command(_: &crate::cli::RecoveryOptions) -> anyhow::Result<crate::exit_code::ExitCode> { todo!() }
