//! The patches of `scripts/mutants`, which no test of every day runs, still meet the code that they weaken.
#![cfg(not(loom))]

use std::path::Path;

/// The text that a hunk replaces.
fn old_text(hunk: &str) -> String {
    let lines = hunk.lines().skip(1).filter(|line| !line.starts_with('+'));
    lines.map(|line| format!("{}\n", line.get(1..).unwrap_or(""))).collect()
}

#[test]
fn every_mutant_finds_the_code_that_it_weakens_and_names_what_catches_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut patches = 0;
    for tests in ["single_step", "compaction"] {
        for entry in std::fs::read_dir(root.join("tests").join(tests).join("mutants")).unwrap() {
            let path = entry.unwrap().path();
            let patch = std::fs::read_to_string(&path).unwrap();
            let (head, hunks) = patch.split_once("\n@@").expect("a patch");
            assert!(head.starts_with("caught by"), "{}", path.display());
            let file = head.lines().find_map(|line| line.strip_prefix("+++ b/")).expect("a file");
            let text = std::fs::read_to_string(root.join("..").join(file)).unwrap();
            for hunk in hunks.split("\n@@") {
                let old = old_text(hunk);
                assert!(text.contains(&old), "{} is out of date: {file} has no\n{old}", path.display());
            }
            patches += 1;
        }
    }
    assert!(patches > 10, "{patches}");
}
