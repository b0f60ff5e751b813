//! NVIDIA's libraries, opened at run time from wherever they are installed.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Where a folder with NVIDIA's libraries can be named, before every other place.
pub const FOLDER_VARIABLE: &str = "PIPELINE_CUDA_LIBRARIES";

/// Opens the first of `names` (such as `libcublas.so.13`) that the system's loader or one of the usual
/// folders has. Its symbols are visible to libraries opened later.
pub fn open(names: &[&str]) -> Option<Library> {
    let named = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let mut places: Vec<PathBuf> = Vec::new();
    for name in names {
        places.extend(named.iter().map(|folder| folder.join(name)));
        places.push(PathBuf::from(name));
    }
    let folders = folders();
    places.extend(names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))));
    places.iter().filter(|path| !path.is_absolute() || path.exists()).find_map(|path| {
        // SAFETY: the initialisers of NVIDIA's libraries have no preconditions.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.ok()
    })
}

/// Folders where a CUDA toolkit or Python packages put such libraries.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let toolkits = std::env::var_os("CUDA_PATH").map(PathBuf::from);
    for toolkit in toolkits.into_iter().chain(["/usr/local/cuda".into(), "/opt/cuda".into()]) {
        folders.extend([toolkit.join("lib64"), toolkit.join("lib")]);
    }
    for prefix in python_prefixes() {
        for python in below(&prefix.join("lib"), "python3") {
            folders
                .extend(below(&python.join("site-packages/nvidia"), "").into_iter().map(|p| p.join("lib")));
        }
    }
    folders
}

/// Environments of Python: the active one, and those of every `python3` on the path.
fn python_prefixes() -> Vec<PathBuf> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|folder| folder.join("python3").exists());
    active.chain(on_path.filter_map(|folder| folder.parent().map(Path::to_owned))).collect()
}

/// Entries of `folder` whose names begin with `start`, in order.
fn below(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let matches = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start));
    let mut found: Vec<PathBuf> = entries.filter(matches).collect();
    found.sort();
    found
}
