//! Programs that were compiled before keep working: what `abi.txt` lists stays, until the soname changes.

mod support;
#[path = "support/declarations.rs"]
mod declarations;

use declarations::functions;
use rejoin::version::REJOIN_ABI_VERSION;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use support::{Scratch, compile, header, succeed};

const BLESS: &str = "REJOIN_BLESS=1 cargo test -p rejoin-capi --test abi";

/// Names behind `prefix` at the start of a line, up to the next character that is no part of a name.
fn names<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(prefix)?;
        rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()
    })
}

/// Sizes and offsets as the C compiler sees them, and the values of all constants.
fn layouts(header: &str) -> String {
    let mut program = "#include <rejoin.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for block in header.split("typedef struct ").skip(1) {
        let Some((name, body)) = block.split_once(" {\n") else { continue };
        let Some((fields, _)) = body.split_once("\n} ") else { continue };
        if name.contains(';') {
            continue;
        }
        let _ = writeln!(program, "printf(\"struct {name} %zu bytes\\n\", sizeof({name}));");
        for field in fields.lines().filter_map(|line| line.trim().strip_suffix(';')) {
            let field = field.rsplit([' ', '*']).next().expect("a name");
            let field = field.split('[').next().expect("a name");
            let _ = writeln!(program, "printf(\"field {name}.{field} at %zu, %zu bytes\\n\", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));");
        }
    }
    let constants = names(header, "    REJOIN_").map(|name| format!("REJOIN_{name}"));
    let requests = names(header, "#define REJOIN_REQUEST_").map(|name| format!("REJOIN_REQUEST_{name}"));
    for name in constants.chain(requests) {
        let _ = writeln!(program, "printf(\"constant {name} %lld\\n\", (long long){name});");
    }
    program += "return 0;\n}\n";
    let scratch = Scratch::create("abi");
    let (source, binary) = (scratch.0.join("abi.c"), scratch.0.join("abi"));
    std::fs::write(&source, program).expect("written");
    compile(&["gcc", "-std=c11"], &source, &binary, true);
    succeed(&mut Command::new(&binary))
}

#[test]
fn what_compiled_programs_rely_on_stays() {
    let header = header();
    let mut fresh = format!("abi {REJOIN_ABI_VERSION}\n");
    for function in functions(&header) {
        let _ = writeln!(fresh, "function {}", function.text());
    }
    fresh += &layouts(&header);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi.txt");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let same_abi = committed.lines().next() == fresh.lines().next();
    let gone: Vec<&str> = committed.lines().filter(|line| !fresh.lines().any(|other| other == *line)).collect();
    // A struct that grows at its end, or a parameter's new name, is compatible: such a line is changed by hand.
    assert!(!same_abi || gone.is_empty(), "changed or gone: {gone:#?}\nraise REJOIN_ABI_VERSION and the soname in capi/build.rs, then {BLESS}");
    if std::env::var_os("REJOIN_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("written");
        return;
    }
    assert!(committed == fresh, "the ABI has grown: {BLESS}");
}

#[test]
fn the_soname_is_the_abi_version() {
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(support::built("librejoin.so")));
    assert!(dynamic.contains(&format!("[librejoin.so.{REJOIN_ABI_VERSION}]")), "{dynamic}");
}
