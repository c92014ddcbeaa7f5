//! Checks by name, and the table of what came of them.

use journal_core::backend::DeviceResult;
use std::time::Instant;

/// What a check says of itself when it is well: numbers, mostly.
pub type Checked = anyhow::Result<Verdict>;

/// How a check ended, if it did not fail.
pub enum Verdict {
    /// As expected.
    Fine(String),
    /// Something it needs is not there.
    Skipped(String),
}

/// Its words for a check that is well.
pub fn fine(text: impl Into<String>) -> Checked {
    Ok(Verdict::Fine(text.into()))
}

/// The table so far.
#[derive(Default)]
pub struct Table {
    rows: Vec<(String, &'static str, f64, String)>,
}

impl Table {
    /// Runs one check and keeps its row.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Checked) {
        let start = Instant::now();
        let (word, text) = match check() {
            Ok(Verdict::Fine(text)) => ("ok", text),
            Ok(Verdict::Skipped(text)) => ("skipped", text),
            Err(error) => ("FAILED", format!("{error:#}")),
        };
        let ms = start.elapsed().as_secs_f64() * 1e3;
        eprintln!("{word} {name} ({ms:.1} ms) {text}");
        self.rows.push((name.to_owned(), word, ms, text));
    }

    /// Prints it; true when nothing failed.
    pub fn print(&self) -> bool {
        println!("| check | result | ms | |\n|---|---|---:|---|");
        for (name, word, ms, text) in &self.rows {
            println!("| {name} | {word} | {ms:.1} | {} |", text.replace('\n', " "));
        }
        let failed = self.rows.iter().filter(|row| row.1 == "FAILED").count();
        println!("\n{} checks, {failed} failed", self.rows.len());
        failed == 0 && !self.rows.is_empty()
    }
}

/// The error that a call must give.
pub fn refused<T: core::fmt::Debug>(what: &str, result: DeviceResult<T>) -> anyhow::Result<journal_core::backend::DeviceError> {
    result.err().ok_or_else(|| anyhow::anyhow!("{what} succeeded, an error was expected"))
}
