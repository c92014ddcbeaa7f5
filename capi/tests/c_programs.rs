//! Programs of C and C++ that use a journal, rightly and wrongly, with and without the sanitizers: each checks what it gets, and
//! nothing leaks.

mod support;

use std::process::Command;
use support::{Scratch, compile, root, succeed};

const C: [&str; 2] = ["gcc", "-std=c11"];

fn run(compiler: [&str; 2], source: &str) {
    let source = root().join("capi/tests").join(source);
    let name = source.file_stem().and_then(|name| name.to_str()).expect("a name");
    let scratch = Scratch::create(name);
    for options in ["-fsanitize=address,undefined", "-O2"] {
        let binary = scratch.0.join(name);
        compile(&[compiler[0], compiler[1], options], &source, &binary, true);
        let mut command = Command::new(&binary);
        command.env_remove("REJOIN_JOB").env_remove("REJOIN_BACKEND").env("UBSAN_OPTIONS", "halt_on_error=1");
        assert_eq!(succeed(&mut command), "ok\n", "{options}");
    }
}

#[test]
fn wrong_use_of_a_journal_is_a_status() {
    run(C, "c/abuse.c");
}

#[test]
fn a_follower_is_told_every_number_once_and_who_is_waited_for() {
    run(C, "c/follow.c");
}

#[test]
fn a_full_journal_does_what_its_policy_says() {
    run(C, "c/policies.c");
}

#[test]
fn a_reader_can_tell_all_that_a_journal_holds() {
    run(C, "c/reader.c");
}

#[test]
fn the_owners_of_cpp_do_what_the_functions_of_c_do() {
    run(["g++", "-std=c++11"], "cpp/journal.cpp");
}
