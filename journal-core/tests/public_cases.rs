//! docs/public-cases.md names tests that exist, and no row is empty.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::path::Path;

/// Names of all functions in Rust sources below `dir`.
fn functions(dir: &Path, found: &mut BTreeSet<String>) {
    let skipped = ["target", "build", ".git"];
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            if !skipped.contains(&entry.file_name().to_str().unwrap_or_default()) {
                functions(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_the_list_of_public_cases_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/public-cases.md")).unwrap();
    let mut known = BTreeSet::new();
    functions(root, &mut known);
    let mut rows = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| report")) {
        rows += 1;
        let cell = row.trim_end_matches('|').rsplit(" | ").next().unwrap();
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2).collect();
        assert!(!tests.is_empty() || cell.contains("not covered"), "neither a test nor a reason: {row}");
        for test in tests {
            assert!(known.contains(test), "no test `{test}` exists: {row}");
        }
    }
    assert!(rows > 40, "only {rows} rows were found");
}
