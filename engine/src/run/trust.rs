//! Leave to run programs that a manifest names. It is the user's, not the project's: it lies in
//! the user's configuration folder, by the manifest's digest, so that an edited or foreign
//! manifest asks again.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

/// The file with one trusted manifest digest per line.
fn trust_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("pipeline").join("trusted"))
}

/// True if the user has trusted the manifest with this digest.
pub fn is_trusted(digest: &str) -> bool {
    let text = trust_file().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().any(|line| line.split_whitespace().next() == Some(digest))
}

/// Remembers that the user trusts the manifest with this digest.
pub fn trust(digest: &str, manifest: &str) -> io::Result<()> {
    let path = trust_file().ok_or_else(|| io::Error::other("neither XDG_CONFIG_HOME nor HOME is set"))?;
    if is_trusted(digest) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{digest} {}\n", manifest.replace('\n', " ")).as_bytes())
}
