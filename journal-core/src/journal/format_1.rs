//! Format 1 as numbers: every field's place, checked when the crate is compiled. A build for which one of them differs
//! (another target, a changed struct) does not exist. A change here is a change of the format.

use core::mem::offset_of;

use super::layout::{
    AbsentDescriptor, ArenaDescriptor, BoundaryEntry, ChunkEntry, DirectoryEntry, HandleEntry, Header, Live, PreparedEntry,
    RecordHeader, Slot,
};

macro_rules! format_1 {
    ($($name:ident = $bytes:literal { $($field:ident $offset:literal)* })*) => {
        const _: () = {
            $(
                assert!(size_of::<$name>() == $bytes, concat!("size of ", stringify!($name)));
                $(assert!(offset_of!($name, $field) == $offset, concat!("place of ", stringify!($name), ".", stringify!($field)));)*
            )*
        };
    };
}

format_1! {
    Header = 0x200 {
        magic 0x0 version 0x8 layout_hash 0x10 total_len 0x18 header_len 0x20 chunk_bytes 0x28 max_slots 0x30
        max_segments 0x38 chunks 0x40 handles 0x48 job_uuid 0x50 boot_id 0x60 pid_namespace 0x70
        creator_pid 0x78 creator_start 0x80 writer 0x88 directory_at 0x90 slots_at 0x98 chunk_table_at 0xa0
        handles_at 0xa8 chunks_at 0xb0 overflow_policy 0xb8 overflow_limit 0xc0 segment_number 0xc8
        spill_directory 0xd0 reserved 0x1d0 checksum 0x1f8
    }
    Live = 0x300 {
        sequence 0x0 boundary 0x80 incomplete_from 0x88 dropped 0x90 doorbell 0x100 waiters 0x108 admin 0x180
        prepared 0x200 prepared_slots 0x208 finished 0x280 handle_epoch 0x288 segments 0x290
    }
    BoundaryEntry = 0x10 {
        sequence 0x0 next_step 0x8
    }
    PreparedEntry = 0x20 {
        run 0x0 len 0x8 checksum 0x10 step 0x18
    }
    DirectoryEntry = 0x20 {
        state 0x0 len 0x8 contents 0x10 place 0x18
    }
    Slot = 0x100 {
        lock 0x0 state 0x40 owner 0x48 owner_start 0x50 owner_namespace 0x58 heads 0x60 lost 0x70 deaths 0x78
        handle_hint 0x80 boundaries 0x88 compacted 0xa8
    }
    ChunkEntry = 0x40 {
        owner 0x0 class 0x8 open_seq 0x10 last_seq 0x18 next 0x20
    }
    RecordHeader = 0x20 {
        commit 0x0 shape 0x8 check 0x10 result 0x18
    }
    ArenaDescriptor = 0x20 {
        run 0x0 len 0x8 checksum 0x10 reserved 0x18
    }
    AbsentDescriptor = 0x10 {
        len 0x0 checksum 0x8
    }
    HandleEntry = 0x40 {
        state 0x0 real 0x8 create_seq 0x10 parent 0x18 block_owner 0x20
    }
}
