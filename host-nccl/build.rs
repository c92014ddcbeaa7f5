//! Threads of the library may sit in a stuck collective for ever: unloading it must not unmap their code.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
