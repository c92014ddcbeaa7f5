//! The committed functions of the request table are what the table says.

#[path = "generated/generator.rs"]
mod generator;

use std::path::Path;

#[test]
fn the_functions_of_the_request_table_are_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated_requests.rs");
    let fresh = generator::source();
    if std::env::var_os("REJOIN_BLESS").is_some() {
        std::fs::write(&path, &fresh).expect("written");
    }
    let committed = std::fs::read_to_string(&path).expect("committed");
    assert!(committed == fresh, "run REJOIN_BLESS=1 cargo test -p rejoin-capi --test generated, then --test header");
}

#[test]
fn every_row_has_a_function_in_the_header() {
    let header = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/rejoin.h")).expect("the header");
    for row in generator::rows() {
        let by_hand = generator::BY_HAND.iter().find(|(name, _)| *name == row.constructor).map(|(_, function)| *function);
        let function = by_hand.map_or_else(|| format!("rejoin_{}", row.constructor), str::to_owned);
        assert!(header.contains(&format!(" {function}(")), "{} has no function {function}", row.name);
    }
}

#[test]
fn the_test_of_every_request_has_the_list_of_those_that_nothing_executes() {
    let program = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/every_request.c")).expect("the program");
    let (_, list) = program.split_once("recorded_only[] = {").expect("a list");
    let (list, _) = list.split_once("};").expect("closed");
    let listed: Vec<&str> = list.lines().filter_map(|line| line.trim().strip_suffix(',')).collect();
    let expected = generator::rows().filter(|row| generator::RECORDED_ONLY.contains(&row.constructor)).map(journal_core::request::c_name);
    assert_eq!(listed, expected.collect::<Vec<_>>());
    assert_eq!(listed.len(), generator::RECORDED_ONLY.len(), "no row has that name");
}
