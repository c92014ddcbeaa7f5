//! A C program that is made from the header: NULL in every pointer argument of every function, one at a time, and an
//! object of another kind in every place of one. Each must be a status with a message, never a crash.

mod support;
#[path = "support/declarations.rs"]
mod declarations;

use declarations::{Function, Parameter, functions};
use std::fmt::Write;
use std::process::Command;
use support::{Scratch, compile, header, succeed};

/// NULL means something there.
const MAY_BE_NULL: [(&str, &str); 7] = [
    // All from the environment, of which this test has none.
    ("rejoin_session_open", "options"),
    ("rejoin_comm_init_rank_config", "config"),
    ("rejoin_comm_split", "config"),
    ("rejoin_comm_init_rank_scalable", "config"),
    ("rejoin_comm_shrink", "config"),
    ("rejoin_comm_grow", "config"),
    ("rejoin_session_on_event", "user"),
];

const HEAD: &str = r#"
#include <rejoin.h>
#include <stdio.h>
#include <string.h>

static int failures;
static unsigned char room[256];

static void expect(const char *what, rejoin_status found, rejoin_status wanted) {
    if (found != wanted || (wanted != REJOIN_STATUS_OK && rejoin_last_error()[0] == 0)) {
        printf("%s: %s (%s), expected %s\n", what, rejoin_status_string(found), rejoin_last_error(), rejoin_status_string(wanted));
        failures++;
    }
}

int main(void) {
    rejoin_request *of_requests = NULL;
    rejoin_snapshot *snapshot = NULL;
    rejoin_journal *of_journals = NULL;
    rejoin_journal_options options = REJOIN_JOURNAL_OPTIONS_INIT;
    options.job = JOB;
    if (rejoin_request_create(REJOIN_REQUEST_GROUP_START, &of_requests) != REJOIN_STATUS_OK) return 1;
    if (rejoin_journal_create(&options, &of_journals) != REJOIN_STATUS_OK) return 1;
    if (rejoin_journal_snapshot(of_journals, 0, &snapshot) != REJOIN_STATUS_OK) return 1;
    /* Room that begins like an initialised struct, and is a string. */
    memset(room, 0, sizeof room);
    room[0] = 16;
    room[4] = 1;
"#;

const TAIL: &str = r#"
    rejoin_snapshot_close(snapshot);
    rejoin_request_close(of_requests);
    rejoin_journal_unlink(of_journals);
    rejoin_journal_close(of_journals);
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
"#;

/// An argument that is not what is wrong.
fn plausible(parameter: &Parameter) -> String {
    match parameter.object() {
        // Of another kind: what is wrong must be found before, or this is.
        Some("rejoin_request") => format!("({})of_journals", parameter.ty),
        Some(_) => format!("({})of_requests", parameter.ty),
        None if parameter.is_pointer() => format!("({})(void *)room", parameter.ty),
        None if parameter.ty == "rejoin_event_function" => "NULL".to_owned(),
        // Lengths, so that NULL beside them is one.
        None => "1".to_owned(),
    }
}

fn call(function: &Function, wrong: usize) -> String {
    let arguments: Vec<String> = function
        .parameters
        .iter()
        .enumerate()
        .map(|(n, parameter)| if n == wrong { "NULL".to_owned() } else { plausible(parameter) })
        .collect();
    format!("{}({})", function.name, arguments.join(", "))
}

#[test]
fn null_and_objects_of_another_kind_are_a_status_in_every_argument() {
    let mut program = String::from(HEAD);
    let mut calls = 0;
    for function in functions(&header()) {
        if function.returns != "rejoin_status" {
            continue;
        }
        for (n, parameter) in function.parameters.iter().enumerate().filter(|(_, p)| p.is_pointer()) {
            if MAY_BE_NULL.contains(&(function.name.as_str(), parameter.name.as_str())) {
                continue;
            }
            let wanted = if function.name.ends_with("_close") { "REJOIN_STATUS_OK" } else { "REJOIN_STATUS_NULL_ARGUMENT" };
            let what = format!("{} without {}", function.name, parameter.name);
            let _ = writeln!(program, "    expect(\"{what}\", {}, {wanted});", call(&function, n));
            calls += 1;
        }
        // The object comes last in the checks: everything else must be in order for it to be what is refused.
        if function.parameters.first().is_some_and(|p| p.object().is_some()) && function.parameters.iter().filter(|p| p.is_pointer()).count() == 1 {
            let what = format!("{} of another kind", function.name);
            let _ = writeln!(program, "    expect(\"{what}\", {}, REJOIN_STATUS_INVALID_ARGUMENT);", call(&function, usize::MAX));
            calls += 1;
        }
    }
    assert!(calls > 250, "{calls} calls");
    program += TAIL;
    let scratch = Scratch::create("null");
    let source = scratch.0.join("null.c");
    std::fs::write(&source, program).expect("written");
    let job = format!("-DJOB=\"null-{}\"", std::process::id());
    for sanitize in ["-fsanitize=address,undefined", "-O1"] {
        let binary = scratch.0.join("null");
        compile(&["gcc", "-std=c11", "-Wno-cast-qual", &job, sanitize], &source, &binary, true);
        assert_eq!(succeed(&mut Command::new(&binary)), "ok\n");
    }
}
