//! Shared objects that belong to this binary: beside it, in its `deps` folder, then in `../lib`.

use anyhow::Context;
use journal_core::nccl::library::find_companion;
use std::path::PathBuf;

/// Finds a shared object that was built or installed together with this binary.
pub fn locate(file_name: &str) -> anyhow::Result<PathBuf> {
    find_companion(file_name).with_context(|| {
        format!("{file_name} was found neither beside this program nor in deps nor in ../lib: build the workspace, or install the file to ../lib")
    })
}
