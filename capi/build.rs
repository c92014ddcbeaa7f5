//! The soname, and no unloading: threads of a session may run in this library's code.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librejoin.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
