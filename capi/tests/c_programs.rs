//! C programs that use a journal, rightly and wrongly, with and without the sanitizers: each checks what it gets, and
//! nothing leaks.

mod support;

use std::process::Command;
use support::{Scratch, compile, root, succeed};

fn run(name: &str) {
    let scratch = Scratch::create(name);
    let source = root().join("capi/tests/c").join(name).with_extension("c");
    for options in ["-fsanitize=address,undefined", "-O2"] {
        let binary = scratch.0.join(name);
        compile(&["gcc", "-std=c11", options], &source, &binary, true);
        let mut command = Command::new(&binary);
        command.env_remove("REJOIN_JOB").env_remove("REJOIN_BACKEND").env("UBSAN_OPTIONS", "halt_on_error=1");
        assert_eq!(succeed(&mut command), "ok\n", "{options}");
    }
}

#[test]
fn wrong_use_of_a_journal_is_a_status() {
    run("abuse");
}

#[test]
fn a_follower_is_told_every_number_once_and_who_is_waited_for() {
    run("follow");
}

#[test]
fn a_full_journal_does_what_its_policy_says() {
    run("policies");
}

#[test]
fn a_reader_can_tell_all_that_a_journal_holds() {
    run("reader");
}
