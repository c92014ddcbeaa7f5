//! Shared objects that belong to this binary: beside it, in its `deps` folder, then in `../lib`.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// Finds a shared object that was built or installed together with this binary.
pub fn locate(file_name: &str) -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find the path of this program")?;
    let folder = exe.parent().unwrap_or(Path::new("/"));
    locate_from(folder, file_name)
}

fn locate_from(folder: &Path, file_name: &str) -> anyhow::Result<PathBuf> {
    let places = [folder.to_path_buf(), folder.join("deps"), folder.join("../lib")];
    for place in &places {
        let path = place.join(file_name);
        if path.is_file() {
            return Ok(path.canonicalize().unwrap_or(path));
        }
    }
    let places = places.map(|place| place.display().to_string()).join(", ");
    bail!("{file_name} was not found in {places}; it is built with the workspace (cargo build) or installed to ../lib")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_companion_is_looked_for_beside_then_in_deps_then_in_lib() {
        let root = tempfile::tempdir().expect("temporary folder");
        let bin = root.path().join("bin");
        let (deps, lib) = (bin.join("deps"), root.path().join("lib"));
        for folder in [&bin, &deps, &lib] {
            std::fs::create_dir_all(folder).expect("folder");
        }
        let missing = locate_from(&bin, "libx.so").expect_err("nothing there");
        assert!(missing.to_string().contains("libx.so") && missing.to_string().contains("deps"), "{missing}");
        for folder in [&lib, &deps, &bin] {
            let path = folder.join("libx.so");
            std::fs::write(&path, b"").expect("file");
            assert_eq!(locate_from(&bin, "libx.so").expect("found"), path.canonicalize().expect("path"));
        }
    }
}
