//! The committed header: fresh, complete, and accepted by every compiler that is installed.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use support::{Scratch, built, compile, header, is_installed, root, succeed};

/// Sources in the order of the header.
const SOURCES: [&str; 24] = [
    "version", "status", "policy", "session", "communicator", "state", "foreign", "step", "recovery", "event", "memory", "generated_requests",
    "request", "journal", "append", "prepared", "compaction", "snapshot", "lane", "obstacle", "reader_info", "follower", "handle",
    "handle_entry",
];

/// Enums that parameters take as plain numbers, so that any number of C is a valid argument.
const ENUMS: [&str; 18] = [
    "rejoin_status", "rejoin_backend", "rejoin_state_kind", "rejoin_data_type", "rejoin_reduce_op", "rejoin_handle_kind",
    "rejoin_region", "rejoin_outcome", "rejoin_cause", "rejoin_strategy", "rejoin_recovery_outcome", "rejoin_event_kind", "rejoin_handle",
    "rejoin_journal_policy", "rejoin_unregistered", "rejoin_append_mode", "rejoin_lane_owner", "rejoin_reason",
];

fn generate() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(folder.join("header").join(name)).expect("part of the header");
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(read("opening.h").trim_end().to_owned()),
        include_guard: Some("REJOIN_H".to_owned()),
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        after_includes: Some(format!("\n{}", read("macros.h").trim_end())),
        cpp_compat: true,
        usize_is_size_t: true,
        style: cbindgen::Style::Both,
        documentation_style: cbindgen::DocumentationStyle::C,
        line_length: 110,
        tab_width: 4,
        ..cbindgen::Config::default()
    };
    config.enumeration.rename_variants = cbindgen::RenameRule::QualifiedScreamingSnakeCase;
    config.export.include = ENUMS.map(str::to_owned).to_vec();
    config.export.exclude = vec!["ALL".to_owned()];
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(folder.join("src").join(name).with_extension("rs"));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources parse").write(&mut text);
    polished(&String::from_utf8(text).expect("UTF-8"))
}

/// What cbindgen has no setting for: comments that tools recognise, short ones on one line; numbers of requests
/// in hex, as in docs/requests.md, and in one block.
fn polished(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        if line.trim() == "/*" {
            let body: Vec<&str> = rest.by_ref().take_while(|line| line.trim() != "*/").collect();
            let comments = body.iter().map(|line| line.trim().trim_start_matches('*'));
            match &body[..] {
                [one] if !one.trim().starts_with('*') => lines.push(format!("{indent}/** {} */", one.trim())),
                _ => {
                    lines.push(format!("{indent}/**"));
                    let spaced = comments.map(|line| match line {
                        "" => String::new(),
                        line => format!(" {}", line.strip_prefix(' ').unwrap_or(line)),
                    });
                    lines.extend(spaced.map(|line| format!("{indent} *{line}")));
                    lines.push(format!("{indent} */"));
                }
            }
        } else if let Some((name, number)) = line.strip_prefix("#define REJOIN_REQUEST_").and_then(|l| l.split_once(' ')) {
            let number: u16 = number.parse().expect("a number");
            let follows = lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|line| line.starts_with("#define REJOIN_REQUEST_"));
            while follows && lines.last().is_some_and(String::is_empty) {
                lines.pop();
            }
            lines.push(format!("#define REJOIN_REQUEST_{name} {number:#06x}"));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

/// Functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '('));
    words.filter_map(|word| word.split_once('(').map(|(name, _)| name)).filter(|name| name.starts_with("rejoin_")).map(str::to_owned).collect()
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut code = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        code += before;
        rest = after.split_once("*/").expect("closed").1;
    }
    code + rest
}

#[test]
fn the_header_is_fresh() {
    let path = root().join("include/rejoin.h");
    let fresh = generate();
    if std::env::var_os("REJOIN_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("written");
    }
    assert!(header() == fresh, "run REJOIN_BLESS=1 cargo test -p rejoin-capi --test header");
}

#[test]
fn the_header_declares_exactly_what_the_library_exports() {
    let symbols = succeed(Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(built("librejoin.so")));
    let exported: BTreeSet<String> = symbols.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(exported.len() > 130, "{exported:?}");
    assert_eq!(declared(&without_comments(&header())), exported);
}

#[test]
fn every_documented_parameter_is_one_and_every_parameter_is_documented() {
    let text = header();
    let mut functions = 0;
    for (at, _) in text.match_indices("\n */\n") {
        let declaration = &text[at + 5..];
        if !declaration.starts_with("rejoin_status rejoin_") && !declaration.starts_with("const char *rejoin_") {
            continue;
        }
        let declaration = &declaration[..declaration.find(";\n").expect("ends")];
        let (_, parameters) = declaration.split_once('(').expect("a function");
        let comment = &text[text[..at].rfind("/**").expect("begins")..at];
        let documented: Vec<&str> =
            comment.lines().filter_map(|line| line.trim().strip_prefix("* @param ")?.split_whitespace().next()).collect();
        let names: Vec<&str> = parameters
            .trim_end_matches(')')
            .split(',')
            .filter_map(|parameter| parameter.split([' ', '*']).next_back().filter(|name| *name != "void"))
            .collect();
        assert_eq!(documented, names, "{declaration}");
        assert!(comment.contains("@return") && comment.contains("Threads:"), "{comment}");
        functions += 1;
    }
    assert_eq!(functions, declared(&without_comments(&text)).len());
}

#[test]
fn the_headers_compile_alone_in_every_language_version() {
    let scratch = Scratch::create("alone");
    let uses = "rejoin_session_options a = REJOIN_SESSION_OPTIONS_INIT; rejoin_session_info b = REJOIN_SESSION_INFO_INIT;\n\
                rejoin_comm_config c = REJOIN_COMM_CONFIG_INIT; rejoin_journal_options d = REJOIN_JOURNAL_OPTIONS_INIT;\n\
                rejoin_record e = REJOIN_RECORD_INIT; rejoin_snapshot_info f = REJOIN_SNAPSHOT_INFO_INIT;\n\
                rejoin_recovery_report g = REJOIN_RECOVERY_REPORT_INIT; rejoin_failed_rank h = REJOIN_FAILED_RANK_INIT;\n\
                rejoin_append_options i = REJOIN_APPEND_OPTIONS_INIT; rejoin_lane j = REJOIN_LANE_INIT;\n\
                rejoin_obstacle k = REJOIN_OBSTACLE_INIT; rejoin_reader_info l = REJOIN_READER_INFO_INIT;\n";
    for (c, cxx) in [("gcc", "g++"), ("clang", "clang++")] {
        if !is_installed(c) || !is_installed(cxx) {
            let needed = c == "gcc" || ["CI", "REJOIN_CI"].iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
            assert!(!needed, "{c} and {cxx} are needed for this test: install them");
            eprintln!("skipped: {c} is not installed");
            continue;
        }
        for (compiler, standard, file) in [
            (c, "-std=c11", "alone.c"),
            (c, "-std=c17", "alone.c"),
            (cxx, "-std=c++11", "alone.cc"),
            (cxx, "-std=c++17", "alone.cc"),
            (cxx, "-std=c++20", "alone.cc"),
        ] {
            let source = scratch.0.join(file);
            std::fs::write(&source, format!("#include <rejoin.h>\n{uses}")).expect("written");
            compile(&[compiler, standard], &source, &scratch.0.join("alone.o"), false);
        }
        // The header of C++, with exceptions and without.
        let source = scratch.0.join("owners.cc");
        let uses = "#include <rejoin.hpp>\nrejoin::Session open_it() { return rejoin::Session::open().value(); }\n\
                    rejoin::Position where(rejoin::Session &session) { return session.resume().value(); }\n";
        std::fs::write(&source, uses).expect("written");
        for standard in ["-std=c++11", "-std=c++17", "-std=c++20"] {
            for exceptions in ["-fexceptions", "-fno-exceptions"] {
                compile(&[cxx, standard, exceptions], &source, &scratch.0.join("owners.o"), false);
            }
        }
    }
}

/// Files of C and C++ below a folder.
fn sources_of_c(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources_of_c(&path, found);
        } else if path.extension().is_some_and(|end| ["c", "cc", "cpp", "h"].iter().any(|known| end == *known)) {
            *found += &std::fs::read_to_string(&path).expect("readable");
        }
    }
}

/// Those of the request table have one body, and `null_arguments` calls each; the others need a program that uses them.
#[test]
fn every_function_written_by_hand_is_used_by_an_example_or_a_test_of_c() {
    let generated = std::fs::read_to_string(root().join("capi/src/generated_requests.rs")).expect("committed");
    let mut sources = String::new();
    sources_of_c(&root().join("examples"), &mut sources);
    sources_of_c(&root().join("capi/tests"), &mut sources);
    let unused: Vec<String> = declared(&without_comments(&header()))
        .into_iter()
        .filter(|name| !generated.contains(&format!(" fn {name}(")) && !sources.contains(&format!("{name}(")))
        .collect();
    assert!(unused.is_empty(), "without an example or a test: {unused:?}");
}

#[test]
fn every_status_of_the_header_has_a_text() {
    let text = header();
    let in_header: Vec<i32> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("REJOIN_STATUS_")?.split_once(" = ")?.1.strip_suffix(',')?.parse().ok())
        .collect();
    let with_text: Vec<i32> = rejoin::status::ALL.iter().map(|(status, _)| *status as i32).collect();
    assert_eq!(in_header, with_text);
}
