//! Which set-up records no replay needs: what made, used and destroyed objects that are gone.
//!
//! An object (a stream, event, module or library, or an allocation) is *gone* when its creation and its destruction
//! succeeded. Its records may be left out only together, and only if nothing that stays needs them: a record stays
//! unless all it does is done to objects that are gone, and whatever stays keeps every object that it names, and so on.
//! A launch may follow pointers that nobody sees, so one that stays keeps all memory that was allocated at its time.
//!
//! Leaving an allocation and its free out does not move others: a replay puts each allocation at its recorded address
//! (`alloc_at`), which less memory in use can only make easier, and the allocator's later answers depend on the set of
//! live allocations alone (`backend/suballocator.rs`).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Call, Class, OpCode, OwnedRequest, Rule, Stage, decode, decode_absent};
use crate::agent::recorded_value;
use crate::handle::{HandleKind, VirtualHandle};
use crate::journal::{Outcome, Record, Sequence, Snapshot};

/// Kinds whose objects a device holds by itself.
const KINDS: [HandleKind; 5] =
    [HandleKind::Stream, HandleKind::Event, HandleKind::Module, HandleKind::Function, HandleKind::Library];

/// Index of an object in `Objects`.
type Object = usize;

/// What one successful record does.
struct Entry {
    sequence: Sequence,
    request: OwnedRequest,
    /// It may be left out as far as the journal is concerned.
    is_ours: bool,
    /// Objects that its effect is confined to; empty: its effect reaches further.
    effect: Vec<Object>,
    /// Every object that it names, and memory that it may reach.
    names: Vec<Object>,
    creates: Option<Object>,
    destroys: Option<Object>,
}

#[derive(Default)]
struct Objects {
    count: usize,
    handles: HashMap<VirtualHandle, Object>,
    /// Memory that is allocated at this point: base to end and object.
    memory: BTreeMap<u64, (u64, Object)>,
}

impl Objects {
    fn new_object(&mut self) -> Object {
        self.count += 1;
        self.count - 1
    }

    fn handle(&mut self, handle: VirtualHandle) -> Object {
        if let Some(known) = self.handles.get(&handle) {
            return *known;
        }
        let object = self.new_object();
        self.handles.insert(handle, object);
        object
    }

    /// The allocation that holds `address`.
    fn at(&self, address: u64) -> Option<Object> {
        let (_, (end, object)) = self.memory.range(..=address).next_back()?;
        (address < *end).then_some(*object)
    }

    /// The allocation that holds the whole range.
    fn around(&self, address: u64, bytes: u64) -> Option<Object> {
        let (_, (end, object)) = self.memory.range(..=address).next_back()?;
        address.checked_add(bytes).filter(|last| last <= end).map(|_| *object)
    }
}

/// Set-up records of `slot` that a replay of the set-up does as well without.
pub fn unneeded(snapshot: &Snapshot, slot: u16) -> HashSet<Sequence> {
    let mut objects = Objects::default();
    let mut entries = Vec::new();
    for record in &snapshot.setup {
        let succeeded = matches!(record.result.map(recorded_value), Some(Ok(_)));
        let decoded = match record.outcome {
            Outcome::Committed => decode(record.kind, &record.payload).ok().map(|request| (request, 0)),
            Outcome::Absent => decode_absent(record.kind, &record.payload).ok().map(|absent| (absent.head, absent.bytes)),
            _ => None,
        };
        // What it names is not known.
        let Some((request, absent)) = decoded else { return HashSet::new() };
        if succeeded {
            let is_ours = record.slot == slot && record.sequence < snapshot.boundary.sequence;
            entries.push(entry(&mut objects, record, request, absent, is_ours));
        }
    }
    leave_out(&entries, objects.count)
}

/// `absent`: bytes of the request that were not recorded.
fn entry(objects: &mut Objects, record: &Record, request: OwnedRequest, absent: u64, is_ours: bool) -> Entry {
    let value = record.result.and_then(|result| recorded_value(result).ok()).unwrap_or(0);
    let borrowed = request.as_request();
    let row = borrowed.row();
    let mut names = Vec::new();
    for (position, arg) in row.args.iter().enumerate() {
        let Some(word) = borrowed.word(position).filter(|word| *word != 0) else { continue };
        match arg.ty {
            super::ArgType::Handle { kind, .. } if KINDS.contains(&kind) && !borrowed.is_foreign(position) => {
                names.push(objects.handle(VirtualHandle(word)));
            }
            super::ArgType::DevicePtr => names.extend(objects.at(word)),
            _ => {}
        }
    }
    let handle_at = |objects: &mut Objects, (position, kind): (usize, HandleKind)| {
        let word = borrowed.word(position).filter(|word| *word != 0 && KINDS.contains(&kind))?;
        Some(objects.handle(VirtualHandle(word)))
    };
    // A function is a part of its module: it comes from it and goes with it.
    if let Call::ModuleGetFunction { function, module: whole, .. } | Call::LibraryGetKernel { function, library: whole, .. } = request.call() {
        let object = objects.handle(whole);
        objects.handles.insert(function, object);
        return Entry { sequence: record.sequence, request, is_ours, effect: vec![object], names: vec![object], creates: None, destroys: None };
    }
    let mut creates = row.creates().next().and_then(|made| handle_at(objects, made));
    let mut destroys = row.destroys().next().and_then(|gone| handle_at(objects, gone));
    let mut effect: Vec<Object> = creates.into_iter().chain(destroys).collect();
    match request.call() {
        Call::MemAlloc { bytes } | Call::NcclMemAlloc { bytes } => {
            let object = objects.new_object();
            objects.memory.insert(value, (value.saturating_add(bytes), object));
            creates = Some(object);
            names.push(object);
            effect = vec![object];
        }
        Call::MemFree { address } | Call::NcclMemFree { address } => {
            destroys = objects.memory.remove(&address.0).map(|(_, object)| object);
            effect = destroys.into_iter().collect();
        }
        Call::MemcpyHtoD { dst, data } | Call::MemcpyHtoDAsync { dst, data, .. } => {
            effect.extend(objects.around(dst.0, absent + data.len() as u64));
        }
        Call::MemcpyDtoD { dst, bytes, .. }
        | Call::MemcpyDtoDAsync { dst, bytes, .. }
        | Call::Memset { dst, bytes, .. }
        | Call::MemsetAsync { dst, bytes, .. } => effect.extend(objects.around(dst.0, bytes)),
        Call::EventRecord { event, .. } | Call::EventSynchronize { event } => effect.push(objects.handle(event)),
        Call::StreamWaitEvent { stream, .. } | Call::StreamSynchronize { stream } if stream.0 != 0 => {
            effect.push(objects.handle(stream));
        }
        Call::LaunchKernel { .. } | Call::LaunchCooperative { .. } => {
            names.extend(objects.memory.values().map(|(_, object)| *object));
        }
        _ => {}
    }
    Entry { sequence: record.sequence, request, is_ours, effect, names, creates, destroys }
}

/// What stage 1 does not execute holds nothing, except where it says what an address or a handle means.
fn is_ignored(entry: &Entry) -> bool {
    let request = entry.request.as_request();
    matches!(request.rule(Stage::Setup), Rule::Skip | Rule::Rebuild) && request.op() != OpCode::StateRegister
}

/// An ignored one goes with any object that it names, unless it is about a communicator or the session.
fn goes_along(entry: &Entry) -> bool {
    matches!(entry.request.as_request().row().class, Class::Step | Class::Collective | Class::PointToPoint)
}

fn leave_out(entries: &[Entry], count: usize) -> HashSet<Sequence> {
    let mut ends = vec![(false, false); count];
    for entry in entries.iter().filter(|entry| !is_ignored(entry)) {
        entry.creates.into_iter().for_each(|object| ends[object].0 = true);
        entry.destroys.into_iter().for_each(|object| ends[object].1 = true);
    }
    let mut gone: Vec<bool> = ends.into_iter().map(|(made, destroyed)| made && destroyed).collect();
    let goes = |entry: &Entry, gone: &[bool]| {
        let refused = matches!(entry.request.as_request().rule(Stage::Setup), Rule::Refuse(_));
        entry.is_ours && !refused && !entry.effect.is_empty() && entry.effect.iter().all(|object| gone[*object])
    };
    loop {
        let mut changed = false;
        for entry in entries.iter().filter(|entry| !is_ignored(entry)) {
            if goes(entry, &gone) {
                continue;
            }
            for object in &entry.names {
                changed |= std::mem::replace(&mut gone[*object], false);
            }
        }
        if !changed {
            break;
        }
    }
    let is_out = |entry: &&Entry| match is_ignored(entry) {
        true => entry.is_ours && goes_along(entry) && entry.names.iter().any(|object| gone[*object]),
        false => goes(entry, &gone),
    };
    entries.iter().filter(is_out).map(|entry| entry.sequence).collect()
}
