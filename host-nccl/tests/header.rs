//! The header, and a C program that uses it.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

mod ranks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Name to number of arguments of everything that `start` introduces in `text` and a bracket follows.
fn functions(text: &str, is_start: impl Fn(&str) -> Option<usize>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, _) in text.char_indices().filter(|(at, _)| text.is_char_boundary(*at)) {
        let Some(skip) = is_start(&text[at..]) else { continue };
        let rest = &text[at + skip..];
        let Some(open) = rest.find('(') else { continue };
        let name = &rest[..open];
        if !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            continue;
        }
        let close = rest.find(')').expect("closed");
        let arguments = rest[open + 1..close].trim().trim_end_matches(',');
        let count = if arguments.is_empty() || arguments == "void" { 0 } else { arguments.split(',').count() };
        found.insert(name.to_owned(), count);
    }
    found
}

#[test]
fn the_header_declares_exactly_what_is_exported() {
    let header = std::fs::read_to_string(folder().join("include/rejoin_host_nccl.h")).expect("the header");
    let declared = functions(&header, |text| {
        ["\nncclResult_t ", "\nconst char *"].iter().find(|start| text.starts_with(**start)).map(|start| start.len())
    });
    let mut exported = BTreeMap::new();
    for file in std::fs::read_dir(folder().join("src/capi")).expect("the exported functions") {
        let source = std::fs::read_to_string(file.expect("readable").path()).expect("readable");
        let start = "extern \"C\" fn ";
        exported.extend(functions(&source, |text| text.starts_with(start).then_some(start.len())));
    }
    assert!(exported.len() > 45, "{exported:?}");
    assert_eq!(declared, exported);
}

#[test]
fn the_struct_of_a_stream_and_of_a_config_have_the_same_layout_in_c() {
    use rejoin_host_stream::HostStream;
    let checks = format!(
        "#include \"rejoin_host_nccl.h\"\n\
         _Static_assert(sizeof(ncclHostStream) == {}, \"size\");\n\
         _Static_assert(offsetof(ncclHostStream, enqueue) == {}, \"enqueue\");\n\
         _Static_assert(offsetof(ncclHostStream, query) == {}, \"query\");\n\
         _Static_assert(offsetof(ncclHostStream, owner) == {}, \"owner\");\n\
         _Static_assert(offsetof(ncclHostStream, enqueue_or_drop) == {}, \"enqueue_or_drop\");\n\
         _Static_assert(NCCL_HOST_STREAM_MAGIC == {}ull, \"magic\");\n\
         _Static_assert(NCCL_HOST_STREAM_ABI == {}, \"abi\");\n\
         _Static_assert(sizeof(ncclConfig_t) == {}, \"config\");\n\
         _Static_assert(offsetof(ncclConfig_t, graphStreamOrdering) == 92, \"config\");\n\
         ncclConfig_t config = NCCL_CONFIG_INITIALIZER;\n",
        size_of::<HostStream>(),
        core::mem::offset_of!(HostStream, enqueue),
        core::mem::offset_of!(HostStream, query),
        core::mem::offset_of!(HostStream, owner),
        core::mem::offset_of!(HostStream, enqueue_or_drop),
        rejoin_host_stream::HOST_STREAM_MAGIC,
        rejoin_host_stream::HOST_STREAM_ABI,
        size_of::<rejoin_host_nccl::config::NcclConfig>(),
    );
    let scratch = Scratch::create("layout");
    let file = scratch.0.join("layout.c");
    std::fs::write(&file, checks).expect("written");
    compile(&["cc", "-std=c11"], &[&file], &scratch.0.join("layout.o"), true);
}

#[test]
fn the_header_compiles_alone_as_c_and_as_cxx() {
    let scratch = Scratch::create("alone");
    let header = "#include \"rejoin_host_nccl.h\"\nncclConfig_t config = NCCL_CONFIG_INITIALIZER;\n";
    for (compiler, standard, name) in [
        ("cc", "-std=c11", "alone.c"),
        ("cc", "-std=c17", "alone.c"),
        ("c++", "-std=c++11", "alone.cc"),
        ("c++", "-std=c++20", "alone.cc"),
    ] {
        let file = scratch.0.join(name);
        std::fs::write(&file, header).expect("written");
        compile(&[compiler, standard], &[&file], &scratch.0.join("alone.o"), true);
    }
}

#[test]
fn a_c_program_survives_a_killed_rank_without_rejoin() {
    let library = library();
    let scratch = Scratch::create("plain");
    let program = scratch.0.join("plain");
    let source = folder().join("tests/c/plain.c");
    compile(&["cc", "-std=c11"], &[&source, &library], &program, false);
    let output = ranks::watched("the C program", || {
        let search = library.parent().expect("a folder");
        Command::new(&program).env("LD_LIBRARY_PATH", search).output().expect("the program runs")
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"ok\n");
}

/// The shared library that cargo built with this test, beside it in the deps folder.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test binary");
    let library = test.parent().expect("a folder").join("librejoin_host_nccl.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

fn compile(compiler: &[&str], inputs: &[&Path], output: &Path, only_compile: bool) {
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"]);
    command.arg("-I").arg(folder().join("include"));
    if only_compile {
        command.arg("-c");
    }
    let result = command.args(inputs).arg("-o").arg(output).output().expect("a C compiler");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
}

/// A folder that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn create(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rejoin-host-nccl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
