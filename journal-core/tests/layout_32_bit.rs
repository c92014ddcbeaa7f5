//! A 32-bit build of the layout: its fields stand where ours do, and its journals are told apart from ours all the same.
#![cfg(not(loom))]

use std::path::Path;
use std::process::Command;

const TARGET: &str = "i686-unknown-linux-gnu";

/// As glibc has it for this target.
const LIBC: &str = "#[allow(non_camel_case_types)] #[repr(C)] pub struct pthread_mutex_t([u32; 6]);";

/// The layout with what it takes from the rest of the crate, checked at compile time.
fn source(journal: &Path) -> String {
    let module = |name: &str| format!("#[path = {:?}]\npub mod {name};\n", journal.join(name).with_extension("rs"));
    let our_hash = journal_core::journal::layout::LAYOUT_HASH;
    format!(
        "#![allow(dead_code)]
        mod sync {{ pub mod robust {{ pub const ROBUST_MUTEX_BYTES: u64 = 64; }} }}
        pub mod journal {{ {} {} }}
        // Its locks are others, so it refuses our segments, and we refuse its.
        const _: () = assert!(journal::layout::LAYOUT_HASH != {our_hash} && size_of::<usize>() == 4);\n",
        module("layout"),
        module("format_1"),
    )
}

#[test]
fn a_32_bit_build_has_the_same_offsets_and_another_hash() {
    let journal = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/journal");
    let dir = tempfile::tempdir().unwrap();
    let rustc = || Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let libraries = rustc().args(["--print", "target-libdir", "--target", TARGET]).output().unwrap();
    if !Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).exists() {
        eprintln!("skipped: {TARGET} is not installed (rustup target add {TARGET})");
        return;
    }
    let compile = |name: &str, text: &str| {
        let file = dir.path().join(name).with_extension("rs");
        std::fs::write(&file, text).unwrap();
        let mut command = rustc();
        command.args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--target", TARGET]);
        if name != "libc" {
            command.arg("--extern").arg(format!("libc={}", dir.path().join("liblibc.rmeta").display()));
        }
        let done = command.arg("--out-dir").arg(dir.path()).arg(&file).output().unwrap();
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    };
    compile("libc", LIBC);
    compile("layout_32_bit", &source(&journal));
}
