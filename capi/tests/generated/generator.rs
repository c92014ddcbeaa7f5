//! Writes `src/generated_requests.rs`: one function for each row of the request table that C calls by itself.
//! cbindgen does not see what macros make, so the text is committed and compared.

use std::fmt::Write;

use journal_core::request::{Arg, ArgType, Class, Direction, OpCode, Row, Slot, c_name};

/// Rows whose function is written by hand, with its name.
pub const BY_HAND: &[(&str, &str)] = &[
    ("get_unique_id", "rejoin_get_unique_id"),
    ("comm_init_rank", "rejoin_comm_init_rank"),
    ("comm_init_rank_config", "rejoin_comm_init_rank_config"),
    ("comm_split", "rejoin_comm_split"),
    ("memcpy_htod", "rejoin_memcpy_htod"),
    ("memcpy_htod_async", "rejoin_memcpy_htod_async"),
    // What the two above record inside a step.
    ("memcpy_htod_digest", "rejoin_memcpy_htod"),
    ("memcpy_htod_async_digest", "rejoin_memcpy_htod_async"),
    ("exchange", "rejoin_exchange_publish"),
    ("state_register", "rejoin_state_register"),
    // Its pointer is a promise of the application, so it is documented by hand.
    ("stream_adopt", "rejoin_stream_adopt"),
    ("setup_done", "rejoin_setup_done"),
    ("step_begin", "rejoin_step_begin"),
    ("step_end", "rejoin_step_end"),
    ("step_commit", "rejoin_step_commit"),
    ("user_opaque", "rejoin_user_request"),
    // Its id goes to whom grow adds: recovery makes and hands over ids of its own.
    ("comm_get_unique_id", "rejoin_get_unique_id"),
];

/// Rows that no backend executes. `tests/c/every_request.c` has the same list, and finds out whether it is true.
pub const RECORDED_ONLY: &[&str] = &[
    "device_reset",
    "device_count",
    "context_current",
    "context_state",
    "device_attribute",
    "context_set_limit",
    "host_alloc",
    "host_free",
    "mem_alloc_async",
    "mem_free_async",
    "stream_get_priority",
    "module_get_global",
    "function_set_attribute",
    "library_open",
    "library_load",
    "library_unload",
    "library_get_kernel",
    "launch_cooperative",
    "comm_init_rank_scalable",
    "comm_init_all",
    "comm_shrink",
    "comm_get_unique_id",
    "comm_grow",
    "comm_finalize",
    "comm_destroy",
    "comm_abort",
    "comm_revoke",
    "comm_suspend",
    "comm_resume",
    "comm_mem_stats",
    "get_last_error",
    "comm_window_register",
    "comm_window_deregister",
    "win_get_user_ptr",
    "comm_init_new_rank",
    "comm_add_new_rank",
    "comm_setup_new_rank",
    "put_signal",
    "signal",
    "wait_signal",
    "group_simulate_end",
    "host_callback",
    "stream_callback",
    "capture_begin",
    "capture_end",
    "graph_instantiate",
    "graph_launch",
    "graph_exec_destroy",
    "ipc_get_mem_handle",
    "ipc_open_mem_handle",
    "ipc_close_mem_handle",
    "ipc_open_event_handle",
    "mem_import_handle",
    "external_memory_import",
    "unknown_call",
];

/// What the name of a call does not say, on a line of its own.
const NOTES: &[(&str, &str)] = &[
    ("group_start", "\n * Collectives of this thread are issued together by its rejoin_group_end()."),
    ("group_end", "\n * Issues what this thread has collected since rejoin_group_start()."),
    ("mem_alloc", "\n * The address is the same in every incarnation with the same set-up."),
    ("mem_info", "\n * The most that rejoin_mem_alloc() can still give."),
    ("module_load", "\n * On the host backend the image is a shared object, see rejoin_kernel.h."),
    ("stream_synchronize", "\n * Waits, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO."),
    ("event_synchronize", "\n * Waits, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO."),
    ("device_synchronize", "\n * Waits for all streams, at most options.peer_timeout_ms; a failure elsewhere ends the wait with REJOIN_STATUS_REDO."),
];

const HEAD: &str = "//! One function for each row of the request table. Generated from it by `tests/generated.rs`
//! (`REJOIN_BLESS=1 cargo test -p rejoin-capi --test generated`); do not edit.
#![allow(missing_docs, clippy::too_many_arguments)]

use core::ffi::{c_char, c_void};

use journal_core::backend::DevicePtr;
use journal_core::handle::{HandleKind, VirtualHandle};
use journal_core::request;

use crate::argument::{self, Out};
use crate::boundary::boundary;
use crate::communicator::{self, rejoin_comm_config, rejoin_unique_id};
use crate::handle::rejoin_handle;
use crate::memory::rejoin_device_ptr;
use crate::session::{enter, rejoin_session};
use crate::status::rejoin_status;
";

pub fn source() -> String {
    let mut text = String::from(HEAD);
    text += "\n";
    for row in rows() {
        let _ = writeln!(text, "pub const {}: u16 = {};", c_name(row), row.opcode as u16);
    }
    for row in rows().filter(|row| BY_HAND.iter().all(|(name, _)| *name != row.constructor)) {
        function(&mut text, row);
    }
    text
}

pub fn rows() -> impl Iterator<Item = &'static Row> {
    OpCode::ALL.iter().map(|op| op.row())
}

/// A parameter of C: name, type in Rust, documentation.
struct Parameter(String, &'static str, String);

struct Function {
    parameters: Vec<Parameter>,
    /// Statements before the session is entered.
    prepare: Vec<String>,
    /// Arguments of the request's constructor.
    given: Vec<String>,
    /// Handle that is created: its kind.
    creates: Option<String>,
    /// The value that `out` gets of the request's `value`.
    result: Option<&'static str>,
}

fn function(text: &mut String, row: &Row) {
    let mut f = Function { parameters: Vec::new(), prepare: Vec::new(), given: Vec::new(), creates: None, result: None };
    for arg in row.args {
        f.argument(arg);
    }
    if row.class == Class::Query && f.result.is_none() && row.constructor.ends_with("_query") {
        f.output("out_done", "u32", "set on OK: 1 when everything has completed, else 0".to_owned());
        f.result = Some("u32::from(value == 1)");
    }
    document(text, row, &f);
    let _ = write!(text, "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn rejoin_{}(\n", row.constructor);
    text.push_str("    session: *const rejoin_session,\n");
    for Parameter(name, ty, _) in &f.parameters {
        let _ = writeln!(text, "    {name}: {ty},");
    }
    text.push_str(") -> rejoin_status {\n    boundary(|| {\n");
    for line in &f.prepare {
        if line.contains("unsafe {") {
            text.push_str("        // SAFETY: pointers of C, as the header says.\n");
        }
        let _ = writeln!(text, "        {line}");
    }
    text.push_str("        // SAFETY: a pointer of C, as the header says.\n");
    text.push_str("        let object = unsafe { enter(session) }?;\n");
    let call = format!("request::{}({})", row.constructor, f.given.join(", "));
    match (&f.creates, f.result) {
        (Some(kind), _) => {
            let _ = writeln!(text, "        let made = object.session.create(HandleKind::{kind}, |made| {call})?;\n        out.set(made.0);");
        }
        (None, Some(result)) => {
            let _ = writeln!(text, "        let value = object.session.send(&{call})?;\n        out.set({result});");
        }
        (None, None) => {
            let _ = writeln!(text, "        object.session.send(&{call})?;");
        }
    }
    text.push_str("        Ok(())\n    })\n}\n");
}

fn document(text: &mut String, row: &Row, f: &Function) {
    let names: Vec<&str> = ["session"].into_iter().chain(f.parameters.iter().map(|p| p.0.as_str())).collect();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let what = if RECORDED_ONLY.contains(&row.constructor) { "recorded only, no backend executes it" } else { "recorded, then executed" };
    let note = NOTES.iter().find(|(name, _)| *name == row.constructor).map_or("", |(_, note)| note);
    let _ = write!(text, "\n/**\n * {}: {what}.{note}\n *\n", row.name);
    let _ = writeln!(text, " * @param {:width$}  open", "session");
    for Parameter(name, _, what) in &f.parameters {
        let _ = writeln!(text, " * @param {name:width$}  {what}");
    }
    text.push_str(" * @return see \"What requests return\"\n * Threads: any, concurrently.\n */\n");
}

impl Function {
    fn input(&mut self, name: &str, ty: &'static str, what: &str) {
        self.parameters.push(Parameter(name.to_owned(), ty, what.to_owned()));
    }

    fn output(&mut self, name: &str, ty: &'static str, what: String) {
        let pointer = match ty {
            "u32" => "*mut u32",
            "i32" => "*mut i32",
            "u64" => "*mut u64",
            "f32" => "*mut f32",
            "rejoin_handle" => "*mut rejoin_handle",
            "rejoin_device_ptr" => "*mut rejoin_device_ptr",
            "*mut c_void" => "*mut *mut c_void",
            other => panic!("no output of type {other}"),
        };
        self.prepare.insert(0, format!("let out = unsafe {{ Out::new({name}, \"{name}\") }}?;"));
        self.parameters.push(Parameter(name.to_owned(), pointer, what));
    }

    fn argument(&mut self, arg: &Arg) {
        let name = arg.name;
        if arg.slot == Slot::Result {
            let (ty, result) = match arg.ty {
                ArgType::I32 => ("i32", "value as u32 as i32"),
                ArgType::U64 => ("u64", "value"),
                ArgType::F32 => ("f32", "f32::from_bits(value as u32)"),
                ArgType::DevicePtr => ("rejoin_device_ptr", "value"),
                ArgType::HostPtr => ("*mut c_void", "value as usize as *mut c_void"),
                other => panic!("no result of type {other}"),
            };
            self.output(&format!("out_{name}"), ty, "set on OK".to_owned());
            self.result = Some(result);
            return;
        }
        if arg.direction == Direction::Out {
            let ArgType::Handle { kind, .. } = arg.ty else { panic!("{name} is no handle") };
            self.output(&format!("out_{name}"), "rejoin_handle", "set on OK: a virtual handle".to_owned());
            self.creates = Some(format!("{kind:?}"));
            self.given.push("made".to_owned());
            return;
        }
        match arg.ty {
            ArgType::U32 => self.plain(name, "u32", "by value"),
            ArgType::Flags => self.plain(name, "u32", "as in CUDA or NCCL"),
            ArgType::I32 => self.plain(name, "i32", "by value"),
            ArgType::U64 => self.plain(name, "u64", "by value"),
            ArgType::F32 => self.plain(name, "f32", "by value"),
            ArgType::DataType => self.plain(name, "i32", "a rejoin_data_type"),
            ArgType::ReduceOperator => {
                self.input(name, "u64", "a rejoin_reduce_op, or the handle of one of the application's own");
                self.given.push(format!("argument::operator({name})"));
            }
            ArgType::Handle { kind, nullable } => {
                let what = match (nullable, arg.consumed) {
                    (true, false) if format!("{kind:?}") == "Stream" => "handle; 0: the default stream",
                    (true, false) => "handle; may be 0",
                    (_, true) => "handle; stale afterwards",
                    (false, false) => "handle",
                };
                self.input(name, "rejoin_handle", what);
                self.given.push(format!("VirtualHandle({name})"));
            }
            ArgType::DevicePtr => {
                self.input(name, "rejoin_device_ptr", "in a live allocation");
                self.given.push(format!("DevicePtr({name})"));
            }
            ArgType::HostPtr => {
                self.input(name, "*mut c_void", "host memory, not NULL; stays until the call's work is done");
                self.prepare.push(format!("let {name} = argument::pointer({name}, \"{name}\")?;"));
                self.given.push(name.to_owned());
            }
            ArgType::Data | ArgType::Params => {
                let what = if arg.ty == ArgType::Params { "parameters one after the other, packed; copied" } else { "copied" };
                self.input(name, "*const c_void", what);
                self.length(&format!("{name}_bytes"), "its length");
                self.prepare.push(format!("let {name} = unsafe {{ argument::bytes({name}, {name}_bytes, \"{name}\") }}?;"));
                self.given.push(name.to_owned());
            }
            ArgType::Text => {
                self.input(name, "*const c_char", "UTF-8");
                self.prepare.push(format!("let {name} = unsafe {{ argument::text({name}, \"{name}\") }}?;"));
                self.given.push(name.to_owned());
            }
            ArgType::UniqueId => {
                self.input(name, "*const rejoin_unique_id", "copied");
                self.length(&format!("{name}_len"), "how many");
                self.prepare.push(format!("let {name} = unsafe {{ argument::unique_ids({name}, {name}_len, \"{name}\") }}?;"));
                self.given.push(name.to_owned());
            }
            ArgType::Config => {
                self.input(name, "*const rejoin_comm_config", "copied; NULL: the default");
                self.prepare.push(format!("let {name} = unsafe {{ communicator::config({name}) }}?.to_bytes();"));
                self.given.push(format!("&{name}"));
            }
            ArgType::Ranks => {
                self.input(name, "*const i32", "copied");
                self.length(&format!("{name}_len"), "how many");
                self.prepare.push(format!("let {name} = unsafe {{ argument::ranks({name}, {name}_len, \"{name}\") }}?;"));
                self.given.push(format!("&{name}"));
            }
        }
    }

    fn plain(&mut self, name: &str, ty: &'static str, what: &str) {
        self.input(name, ty, what);
        self.given.push(name.to_owned());
    }

    fn length(&mut self, name: &str, what: &str) {
        self.input(name, "usize", what);
    }
}
