//! What tests of the C ABI share: compilers, the library beside the test, a folder that goes with the test.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn header() -> String {
    std::fs::read_to_string(root().join("include/rejoin.h")).expect("the header")
}

/// A file that cargo built with this test, beside it in the deps folder.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test binary");
    let file = test.parent().expect("a folder").join(name);
    assert!(file.exists(), "{} is missing", file.display());
    file
}

pub fn is_installed(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs a command that must succeed; its standard output.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Compiles a program against the library that was built with this test, or (`-c`) a source alone.
#[track_caller]
pub fn compile(compiler: &[&str], source: &Path, output: &Path, link: bool) {
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("host-nccl/stream/include")).arg(source);
    if link {
        let library = built("librejoin.so");
        // Programs look for the soname, which is a link that the installation makes.
        let folder = output.parent().expect("a folder");
        let link = folder.join(format!("librejoin.so.{}", rejoin::version::REJOIN_ABI_VERSION));
        if !link.exists() {
            std::os::unix::fs::symlink(&library, link).expect("linked");
        }
        command.arg(&library).arg(format!("-Wl,-rpath,{}", folder.display())).arg("-pthread");
    } else {
        command.arg("-c");
    }
    succeed(command.arg("-o").arg(output));
}

/// A folder that goes with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn create(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rejoin-capi-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
