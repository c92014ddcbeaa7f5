//! Where data goes: stdout, as text or as JSON Lines. A reader that closed the pipe is no error.

use clap::ValueEnum;
use std::io::{self, Write};

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// True if the error, at its root, is a closed pipe.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// Prints one line of data.
pub fn line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Prints one JSON object as a line.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// A table with columns as wide as their widest cell, without trailing blanks.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let render = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(render).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["job".to_owned(), "rank".to_owned()], vec!["a-long-name".to_owned(), "3".to_owned()]];
        assert_eq!(table(&rows), "job          rank\na-long-name  3");
    }

    #[test]
    fn only_a_closed_pipe_counts_as_one() {
        let closed = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_broken_pipe(&closed));
        assert!(!is_broken_pipe(&anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound))));
    }
}
