#![no_main]

#[path = "../src/entries/mod.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entries::follow(data));
