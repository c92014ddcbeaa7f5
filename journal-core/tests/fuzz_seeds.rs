//! The seeds of the fuzz targets, through the entries that the fuzzer calls. A seed is a start for the fuzzer, or an
//! input that once failed.
#![cfg(all(target_os = "linux", not(loom)))]

#[path = "../../fuzz/src/entries/mod.rs"]
mod entries;

use std::path::{Path, PathBuf};

use journal_core::request::{self, ArgType, ENCODING_VERSION, OpCode, Slot};

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target)
}

fn replay(target: &str) -> usize {
    let (_, entry) = entries::ALL.iter().find(|(name, _)| *name == target).expect("an entry");
    let dir = folder(target);
    let mut paths: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        println!("{}", path.display());
        let seed = std::fs::read(path).unwrap();
        entry(&seed);
        // Cut short and with a bit flipped, so that every seed stands for its neighbours too.
        (0..seed.len()).for_each(|len| entry(&seed[..len]));
        for bit in 0..8 * seed.len() {
            let mut near = seed.clone();
            near[bit / 8] ^= 1 << (bit % 8);
            entry(&near);
        }
    }
    paths.len()
}

/// A request of this row: words 1, 2, 3 and so on, runs of bytes that fit their type.
fn sample(op: OpCode) -> Vec<u8> {
    let row = op.row();
    let lead = (row.words() as u64) << 16 | (row.byte_runs() as u64) << 24 | u64::from(ENCODING_VERSION) << 40;
    let runs: Vec<u64> = row
        .args
        .iter()
        .filter(|arg| matches!(arg.slot, Slot::Bytes(_)))
        .map(|arg| if arg.ty == ArgType::UniqueId { 128 } else { 8 })
        .collect();
    let words = std::iter::once(lead).chain(1..=row.words() as u64).chain(runs.iter().copied());
    let mut bytes: Vec<u8> = (op as u16).to_le_bytes().to_vec();
    bytes.extend(words.flat_map(u64::to_le_bytes));
    bytes.resize(bytes.len() + runs.iter().sum::<u64>() as usize, b'a');
    bytes
}

/// `REJOIN_BLESS=1` writes the seeds of new rows.
#[test]
fn every_request_of_the_table_is_a_seed() {
    for op in OpCode::ALL {
        let path = folder("decode").join(op.row().constructor.to_lowercase());
        if std::env::var_os("REJOIN_BLESS").is_some() {
            std::fs::write(&path, sample(*op)).unwrap();
        }
        let seed = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run with REJOIN_BLESS=1", path.display()));
        assert_eq!(request::decode(*op as u16, &seed[2..]).expect("a seed that decodes").op(), *op);
    }
}

#[test]
fn seeds_of_requests_decode_or_are_refused() {
    assert!(replay("decode") >= 10);
}

#[test]
fn seeds_of_damaged_lanes_are_walked_to_an_end() {
    assert!(replay("scan") >= 5);
}

#[test]
fn seeds_of_damaged_journals_load_or_are_refused() {
    assert!(replay("load") >= 5);
}

#[test]
fn seeds_of_journals_damaged_under_a_follower_come_in_order() {
    assert!(replay("follow") >= 5);
}
