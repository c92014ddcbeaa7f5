//! The image is recorded in every rank's journal: keep symbols and debug information out of it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-all");
    println!("cargo::rerun-if-changed=build.rs");
}
