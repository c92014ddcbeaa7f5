use super::argument::UNIQUE_ID_BYTES;
use super::*;
use crate::backend::DevicePtr;
use crate::handle::{HandleKind, VirtualHandle};
use proptest::prelude::*;

const RECORD_HEADER: usize = 32;

fn an_all_reduce() -> Request<'static> {
    all_reduce(DevicePtr(0x4000_0000_0100), DevicePtr(0x4000_0000_0200), 2410, 7, 0.into(), VirtualHandle(0x81 << 56 | 5), VirtualHandle(0))
}

/// A request of any row with all words 1, and bytes that fit each type.
fn sample(op: OpCode, fill: &[u8]) -> Request<'_> {
    let mut request = Request::empty(op);
    for arg in op.row().args {
        match arg.slot {
            Slot::Word(n) => request.push_word(u64::from(n) + 1),
            Slot::Bytes(_) if arg.ty == ArgType::UniqueId => request.push_bytes(&fill[..UNIQUE_ID_BYTES]),
            Slot::Bytes(n) => request.push_bytes(&fill[..4 * (usize::from(n) + 1)]),
            Slot::Result => {}
        }
    }
    request.with_lengths()
}

#[test]
fn an_all_reduce_record_fits_in_128_bytes() {
    assert!(RECORD_HEADER + an_all_reduce().encoded_len() <= 128, "{}", an_all_reduce().encoded_len());
}

#[test]
fn every_row_survives_encode_and_decode() {
    let fill = [b'a'; 256];
    for op in OpCode::ALL {
        let request = sample(*op, &fill);
        let payload = request.to_vec();
        assert_eq!(payload.len(), request.encoded_len(), "{op:?}");
        let read = decode(request.code(), &payload).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        assert_eq!(read.as_request(), request, "{op:?}");
        assert_eq!(read.call().to_request(), request, "{op:?}");
    }
}

#[test]
fn numbers_are_unique_and_sorted_and_map_back() {
    assert!(OpCode::ALL.len() >= 50);
    assert!(OpCode::ALL.windows(2).all(|pair| (pair[0] as u16) < pair[1] as u16));
    for op in OpCode::ALL {
        assert_eq!(OpCode::from_code(*op as u16), Some(*op));
    }
    assert_eq!(OpCode::from_code(0), None);
}

#[test]
fn names_and_c_names_are_unique() {
    let mut names: Vec<_> = OpCode::ALL.iter().flat_map(|op| [op.row().name.to_owned(), c_name(op.row())]).collect();
    let before = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), before);
    assert!(c_constants().contains("#define REJOIN_REQUEST_ALL_REDUCE 0x0801\n"));
}

#[test]
fn communicator_positions_are_those_of_nccl() {
    for (op, position) in [
        (OpCode::Bcast, 4),
        (OpCode::AllReduce, 5),
        (OpCode::Broadcast, 5),
        (OpCode::AllGather, 4),
        (OpCode::AllToAll, 4),
        (OpCode::Gather, 5),
        (OpCode::Scatter, 5),
        (OpCode::ReduceScatter, 5),
        (OpCode::Reduce, 6),
        (OpCode::Send, 4),
        (OpCode::Recv, 4),
        (OpCode::PutSignal, 9),
        (OpCode::Signal, 4),
        (OpCode::WaitSignal, 2),
        (OpCode::RedOpCreatePreMulSum, 4),
        (OpCode::RedOpDestroy, 1),
        (OpCode::CommSplit, 0),
        (OpCode::CommShrink, 0),
        (OpCode::CommGrow, 0),
        (OpCode::CommDestroy, 0),
        (OpCode::CommAbort, 0),
        (OpCode::CommFinalize, 0),
        (OpCode::CommGetAsyncError, 0),
    ] {
        assert_eq!(op.row().communicator(), Some(position), "{op:?}");
    }
    for op in [OpCode::CommInitRankConfig, OpCode::CommInitNewRank, OpCode::GroupStart, OpCode::MemAlloc] {
        assert_eq!(op.row().communicator(), None, "{op:?}");
    }
}

#[test]
fn skip_set_holds_what_stage_one_must_not_execute() {
    let skipped: Vec<_> = skip_set().collect();
    for op in OpCode::ALL {
        let row = op.row();
        let must = matches!(row.class, Class::Collective | Class::PointToPoint | Class::Query)
            || row.creates().any(|(_, kind)| kind == HandleKind::Communicator)
            || matches!(op, OpCode::DeviceSet | OpCode::ContextState | OpCode::LibraryOpen);
        assert!(!must || skipped.contains(op), "{op:?} must be skipped");
    }
    for op in [OpCode::MemAlloc, OpCode::MemFree, OpCode::ModuleLoad, OpCode::LaunchKernel, OpCode::MemcpyHtoD, OpCode::StreamCreate] {
        assert!(!skipped.contains(&op), "{op:?} must be executed");
    }
}

#[test]
fn what_a_row_creates_uses_and_destroys_follows_from_its_arguments() {
    let split = OpCode::CommSplit.row();
    assert_eq!(split.creates().collect::<Vec<_>>(), [(3, HandleKind::Communicator)]);
    assert_eq!(split.uses().collect::<Vec<_>>(), [(0, HandleKind::Communicator, false)]);
    assert_eq!(OpCode::RedOpDestroy.row().destroys().collect::<Vec<_>>(), [(0, HandleKind::RedOp)]);
}

#[test]
fn making_and_ending_an_object_go_together_in_a_replay() {
    for op in OpCode::ALL.iter().filter(|op| matches!(op.row().class, Class::Teardown)) {
        let Some((_, kind)) = op.row().destroys().next() else { continue };
        let makers = OpCode::ALL.iter().filter(|op| op.row().creates().any(|(_, made)| made == kind));
        let executes = |stage: fn(&(Rule, Rule)) -> Rule, op: &OpCode| stage(&op.row().replay) == Rule::Execute;
        for stage in [|rules: &(Rule, Rule)| rules.0, |rules: &(Rule, Rule)| rules.1] {
            assert_eq!(executes(stage, op), makers.clone().any(|maker| executes(stage, maker)), "{op:?}");
        }
    }
}

#[test]
fn a_foreign_stream_marks_the_request_and_survives_the_record() {
    let request = an_all_reduce().foreign(6);
    let read = decode(request.code(), &request.to_vec()).unwrap();
    assert!(read.as_request().is_foreign(6) && !read.as_request().is_foreign(5));
    assert_eq!(read.as_request().obstacle(Stage::Step), Some(Reason::ForeignArgument));
    assert_eq!(read.as_request().obstacle(Stage::Setup), None, "skipped in set-up, foreign or not");
}

#[test]
fn an_argument_that_cannot_be_foreign_stays_as_it_is() {
    assert_eq!(an_all_reduce().foreign(2).foreign(40), an_all_reduce());
}

#[test]
fn reasons_are_recorded_and_named() {
    let request = memset(DevicePtr(1), 0, 8).with_reason(Reason::GraphCapture);
    let read = decode(request.code(), &request.to_vec()).unwrap();
    assert_eq!(read.as_request().obstacle(Stage::Step), Some(Reason::GraphCapture));
    assert_eq!(host_callback(VirtualHandle(0), 1).obstacle(Stage::Step), Some(Reason::HostCallback));
    for reason in Reason::ALL {
        assert_eq!(Reason::from_code(reason as u8), Some(reason));
    }
}

#[test]
fn user_requests_keep_their_number_and_bytes() {
    let request = Request::user(0x1234, b"opaque").unwrap();
    assert_eq!(request.code(), 0x9234);
    let read = decode(request.code(), &request.to_vec()).unwrap();
    assert_eq!(read.as_request(), request);
    assert_eq!(read.as_request().user_number(), Some(0x1234));
    assert!(matches!(read.call(), Call::User { payload: b"opaque" }));
    assert!(Request::user(0x8000, b"").is_none());
}

#[test]
fn matching_ignores_outputs_and_host_addresses() {
    let id = [7u8; UNIQUE_ID_BYTES];
    let init = |handle, rank| comm_init_rank_config(VirtualHandle(handle), 4, &id, rank, &[]);
    assert!(init(1, 2).matches(&init(9, 2)));
    assert!(!init(1, 2).matches(&init(1, 3)));
    assert!(memcpy_dtoh(1, DevicePtr(5), 8).matches(&memcpy_dtoh(2, DevicePtr(5), 8)));
}

#[test]
fn printing_names_arguments_types_and_operators() {
    assert_eq!(
        an_all_reduce().to_string(),
        "ncclAllReduce(sendbuff=0x400000000100, recvbuff=0x400000000200, count=2410, datatype=float32, op=sum, \
         comm=communicator:0x8100000000000005, stream=null)"
    );
    assert_eq!(mem_alloc(64).result_text(0x4000_0000_0000).as_deref(), Some("address=0x400000000000"));
    let ranks = [2i32.to_le_bytes(), 3i32.to_le_bytes()].concat();
    let shrink = comm_shrink(VirtualHandle(1), &ranks, 2, VirtualHandle(2), &[], 1);
    assert!(shrink.to_string().contains("excluded=[2, 3]"), "{shrink}");
}

#[test]
fn wrong_payloads_are_named_errors() {
    let good = an_all_reduce().to_vec();
    assert!(matches!(decode(0x07FF, &good), Err(DecodeError::UnknownOpCode { code: 0x07FF })));
    assert!(matches!(decode(0x0801, &good[..20]), Err(DecodeError::Short { len: 20, .. })));
    assert!(matches!(decode(0x0801, &[&good[..], &[0]].concat()), Err(DecodeError::Trailing { extra: 1, .. })));
    assert!(matches!(decode(0x0804, &good), Err(DecodeError::Shape { .. })));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decode(0x0801, &bytes)
    };
    assert!(matches!(with(5, 2), Err(DecodeError::Version { found: 2, .. })));
    assert!(matches!(with(4, 200), Err(DecodeError::Lead { .. })));
    assert!(matches!(with(0, 0b100), Err(DecodeError::Lead { .. })), "a count cannot be foreign");
    assert!(matches!(with(8 + 3 * 8 + 4, 1), Err(DecodeError::Argument { argument: "datatype", offset: 32, .. })));
    let mut text = library_open("abc").to_vec();
    *text.last_mut().unwrap() = 0xFF;
    assert!(matches!(decode(0x0506, &text), Err(DecodeError::Argument { argument: "path", .. })));
}

#[test]
fn the_page_of_the_documentation_is_up_to_date() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/requests.md");
    if std::env::var_os("REJOIN_BLESS").is_some() {
        std::fs::write(&path, markdown()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == markdown(), "docs/requests.md is stale: REJOIN_BLESS=1 cargo test -p journal-core request");
    assert_eq!(found.lines().filter(|line| line.starts_with("| 0x")).count(), OpCode::ALL.len());
}

proptest! {
    #[test]
    fn any_bytes_decode_to_a_request_that_encodes_back_or_to_an_error(
        row in 0..OpCode::ALL.len(), code in any::<u16>(), known in any::<bool>(),
        mut payload in proptest::collection::vec(any::<u8>(), 0..200), plausible in any::<bool>(),
    ) {
        let op = OpCode::ALL[row];
        let code = if known { op as u16 } else { code };
        if plausible && payload.len() >= 8 {
            payload[2] = op.row().words() as u8;
            payload[3] = op.row().byte_runs() as u8;
            payload[4..8].copy_from_slice(&[0, ENCODING_VERSION, 0, 0]);
        }
        if let Ok(request) = decode(code, &payload) {
            prop_assert_eq!(request.as_request().to_vec(), payload);
            let _ = (request.to_string(), request.call());
        }
    }

    #[test]
    fn a_damaged_record_never_panics(
        row in 0..OpCode::ALL.len(), at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<prop::sample::Index>(),
    ) {
        let fill = [b'z'; 256];
        let request = sample(OpCode::ALL[row], &fill);
        let mut payload = request.to_vec();
        let at = at.index(payload.len());
        payload[at] ^= 1 << bit;
        let cut = cut.index(payload.len() + 1);
        for bytes in [&payload[..], &payload[..cut]] {
            if let Ok(read) = decode(request.code(), bytes) {
                prop_assert_eq!(read.as_request().to_vec(), bytes);
                let _ = read.to_string();
            }
        }
    }
}
