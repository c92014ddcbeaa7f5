//! Texts that are generated from the table: the page of the documentation, the constants of the C header.

use super::row::{Direction, Row, Rule, Slot};
use super::{OpCode, argument::ArgType};
use core::fmt::Write;

const FAMILIES: [(u16, &str); 13] = [
    (0x01, "Device"),
    (0x02, "Memory"),
    (0x03, "Stream"),
    (0x04, "Event"),
    (0x05, "Module, function, library"),
    (0x06, "Launch"),
    (0x07, "Communicator"),
    (0x08, "Collectives"),
    (0x09, "Point-to-point"),
    (0x0A, "Group"),
    (0x0B, "Recorded, never replayed"),
    (0x0C, "Session"),
    (0x80, "User"),
];

const LEAD: &str = "# Requests

Generated from the table in `journal-core/src/request/opcode.rs` by its own test
(`REJOIN_BLESS=1 cargo test -p journal-core request`); do not edit.

A record's kind is the number of its request. *Comm* is the position of the communicator argument.
An argument marked `out` is reserved before the call and recorded; one after `→` is known only after
the call and is the record's result. `†` uses the handle up, `~` may differ when a replacement's call
is matched to a recorded one.

Stage 1 replays the set-up on a reset device, stage 2 the open step: *execute* again (stage 2 makes and
ends only objects that the step has ended), *skip* (no effect, or restored), *rebuild* (recovery makes the
object anew and binds it), *refuse* (the reason is in the record; `rejoin verify` names it beforehand).
";

/// The page `docs/requests.md`.
pub fn markdown() -> String {
    let mut page = String::from(LEAD);
    for (family, title) in FAMILIES {
        let _ = write!(
            page,
            "\n## {title}\n\n| number | name | arguments | comm | class | stage 1 | stage 2 |\n|---|---|---|---|---|---|---|\n"
        );
        for row in OpCode::ALL.iter().filter(|op| **op as u16 >> 8 == family).map(|op| op.row()) {
            let comm = row.communicator().map_or_else(String::new, |position| position.to_string());
            let _ = writeln!(
                page,
                "| {:#06x} | `{}` | {} | {comm} | {} | {} | {} |",
                row.opcode as u16,
                row.name,
                arguments(row),
                format!("{:?}", row.class).to_lowercase(),
                rule(row.replay.0),
                rule(row.replay.1),
            );
        }
    }
    page
}

fn rule(rule: Rule) -> String {
    match rule {
        Rule::Refuse(reason) => format!("refuse: {reason:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn arguments(row: &Row) -> String {
    let mut text = String::new();
    for (n, arg) in row.args.iter().enumerate() {
        text += match arg.slot {
            Slot::Result => " → ",
            _ if n > 0 => ", ",
            _ => "",
        };
        if arg.direction == Direction::Out && arg.slot != Slot::Result {
            text += "out ";
        }
        let ignored = arg.direction == Direction::In && arg.matching == super::row::Matching::Ignore;
        let marks = (if arg.consumed { "†" } else { "" }, if ignored { "~" } else { "" });
        let ty = match arg.ty {
            ArgType::Handle { nullable: true, kind: crate::handle::HandleKind::Stream } => "stream".to_owned(),
            ty => ty.to_string(),
        };
        let _ = write!(text, "{}{}{}: {ty}", arg.name, marks.0, marks.1);
    }
    text
}

/// `#define` lines of a C header: `REJOIN_REQUEST_ALL_REDUCE` and so on.
pub fn c_constants() -> String {
    let mut text = String::new();
    for row in OpCode::ALL.iter().map(|op| op.row()) {
        let _ = writeln!(text, "#define {} {:#06x}", c_name(row), row.opcode as u16);
    }
    text
}

/// Name of a row's C constant.
pub fn c_name(row: &Row) -> String {
    format!("REJOIN_REQUEST_{}", row.constructor.to_uppercase())
}
