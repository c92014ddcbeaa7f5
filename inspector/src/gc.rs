//! `rejoin gc`: removes segments of which the kernel says that no process has them open for writing.

use crate::cli::GcOptions;
use crate::exit_code::ExitCode;
use crate::lease::{Writers, writers};
use crate::output::{self, Format};
use anyhow::Context;
use journal_core::journal::SegmentName;
use serde::Serialize;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// What was done with one file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    name: String,
    job: String,
    bytes: u64,
    /// removed, removable (with --dry-run), in_use, or not_provable.
    action: &'static str,
}

/// Removes what is provably nobody's.
pub fn command(options: &GcOptions) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    let entries = std::fs::read_dir(&options.dir).with_context(|| format!("cannot list {}", options.dir.display()))?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        rows.extend(examine(&options.dir, &name, options.dry_run)?);
    }
    match options.format {
        Format::Json => rows.iter().try_for_each(output::json)?,
        Format::Text => output::line(&text(&rows, options.dry_run))?,
    }
    Ok(ExitCode::FINE)
}

/// None for what is no segment, or is gone by now.
fn examine(dir: &Path, name: &str, dry_run: bool) -> anyhow::Result<Option<Row>> {
    let parsed = SegmentName::parse_temporary(name).map(|(name, _)| name).or_else(|| SegmentName::parse(name).ok());
    let Some(segment) = parsed else { return Ok(None) };
    let path = dir.join(name);
    let row = |bytes, action| Some(Row { name: name.to_owned(), job: segment.job().to_owned(), bytes, action });
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(_) => return Ok(row(0, "not_provable")),
    };
    let data = file.metadata().with_context(|| format!("cannot look at {}", path.display()))?;
    if !data.is_file() {
        return Ok(None);
    }
    // Writers map a growth segment when they need it: it is in use for as long as its journal is.
    let holders = match segment.base().map(|base| File::open(dir.join(base.as_str()))) {
        Some(Ok(base)) => match writers(&base) {
            Writers::None => writers(&file),
            others => others,
        },
        _ => writers(&file),
    };
    Ok(match holders {
        Writers::Some => row(data.len(), "in_use"),
        Writers::Unknown => row(data.len(), "not_provable"),
        Writers::None if dry_run => row(data.len(), "removable"),
        Writers::None => {
            journal_core::journal::remove_growth(dir, &segment);
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            row(data.len(), "removed")
        }
    })
}

fn text(rows: &[Row], dry_run: bool) -> String {
    let mut lines: Vec<String> = rows.iter().map(|row| format!("{:<12}  {}  ({} bytes)", row.action, row.name, row.bytes)).collect();
    let ours = rows.iter().filter(|row| matches!(row.action, "removed" | "removable"));
    let (count, bytes) = ours.fold((0, 0), |(count, bytes), row| (count + 1, bytes + row.bytes));
    let done = if dry_run { "would be removed" } else { "removed" };
    lines.push(format!("{count} segments {done}, {bytes} bytes; {} kept", rows.len() - count));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segments_that_nobody_writes_are_removed() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("temporary folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["rejoin.a.members", ".rejoin.a.r0.0.77", "other"] {
            std::fs::write(at(name), b"12345678").expect("file");
        }
        let _writer = File::create(at("rejoin.a.r0.0")).expect("file");
        std::fs::write(at("rejoin.a.r0.0.s1"), b"12345678").expect("file");
        let action = |name: &str, dry_run| examine(folder.path(), name, dry_run).expect("examined").map(|row| row.action);
        assert_eq!(action("rejoin.a.members", true), Some("removable"));
        assert_eq!(action("rejoin.a.members", false), Some("removed"));
        assert_eq!(action("rejoin.a.members", false), None, "it is gone");
        assert_eq!(action(".rejoin.a.r0.0.77", false), Some("removed"));
        assert_eq!(action("rejoin.a.r0.0", false), Some("in_use"));
        assert_eq!(action("rejoin.a.r0.0.s1", false), Some("in_use"), "its journal's writer may map it at any time");
        assert_eq!(action("other", false), None);
        assert!(at("other").exists() && at("rejoin.a.r0.0").exists());
    }

    #[test]
    fn the_text_counts_what_was_removed() {
        let row = |action| Row { name: "n".to_owned(), job: "a".to_owned(), bytes: 8, action };
        assert!(text(&[row("removed"), row("in_use")], false).ends_with("1 segments removed, 8 bytes; 1 kept"));
    }
}
