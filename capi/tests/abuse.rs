//! A C program that does everything wrong, with and without the sanitizers.

mod support;

use std::process::Command;
use support::{Scratch, compile, root, succeed};

#[test]
fn wrong_use_of_a_journal_is_a_status_and_nothing_leaks() {
    let scratch = Scratch::create("abuse");
    let source = root().join("capi/tests/c/abuse.c");
    for options in ["-fsanitize=address,undefined", "-O2"] {
        let binary = scratch.0.join("abuse");
        compile(&["gcc", "-std=c11", options], &source, &binary, true);
        let mut command = Command::new(&binary);
        command.env_remove("REJOIN_JOB").env_remove("REJOIN_BACKEND").env("UBSAN_OPTIONS", "halt_on_error=1");
        assert_eq!(succeed(&mut command), "ok\n", "{options}");
    }
}
