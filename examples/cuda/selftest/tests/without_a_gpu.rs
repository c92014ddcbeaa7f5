//! The program builds and says what is missing on machines without a GPU.

use journal_core::backend::cuda::probe;
use std::process::Command;

#[test]
fn it_skips_with_a_reason_where_there_is_no_gpu() {
    let output = Command::new(env!("CARGO_BIN_EXE_cuda-selftest")).arg("window").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match probe() {
        Ok(_) => assert!(output.status.success(), "{text}"),
        Err(error) => {
            assert_eq!(output.status.code(), Some(77), "{text}");
            assert_eq!(text.trim(), format!("skipped: {error}"));
        }
    }
}
