//! One file out of a zip archive.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use engine::kind::{StageCtx, StageError};
use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};

/// Bytes copied between two looks at the stop flag.
const CHUNK: u64 = 1 << 22;

/// Writes the file that the archive calls `member` to `to`, and removes the archive. The size and
/// the checksum that the archive keeps of it must hold.
pub fn take(ctx: &StageCtx, archive: &Path, member: &str, to: &Path) -> Result<(), StageError> {
    let file = File::open(archive).map_err(|error| StageError::io(archive, error))?;
    let wrong = |error: rawzip::Error| StageError::input(format!("the source is no zip archive: {error}"));
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let zip = ZipArchive::from_file(file, &mut buffer).map_err(wrong)?;
    let (mut found, mut names) = (None, Vec::new());
    let mut entries = zip.entries(&mut buffer);
    while let Some(entry) = entries.next_entry().map_err(wrong)? {
        let path = entry.file_path();
        let name: &[u8] = path.as_ref();
        if name == member.as_bytes() {
            found = Some((entry.wayfinder(), entry.compression_method()));
            break;
        }
        names.push(String::from_utf8_lossy(name).into_owned());
    }
    let Some((place, compression)) = found else {
        let more = if names.len() > 8 { " …" } else { "" };
        names.truncate(8);
        return Err(StageError::input(format!("the archive has no file `{member}`"))
            .with_help(format!("it has {}{more}", names.join(", "))));
    };
    let entry = zip.get_entry(place).map_err(wrong)?;
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(|error| StageError::io(parent, error))?;
    }
    match compression {
        CompressionMethod::STORE => copy(ctx, entry.verifying_reader(entry.reader()), member, to)?,
        CompressionMethod::DEFLATE => {
            copy(ctx, entry.verifying_reader(DeflateDecoder::new(entry.reader())), member, to)?;
        }
        other => {
            return Err(StageError::input(format!("`{member}` is packed in an unusual way ({other:?})"))
                .with_help("unpack the archive yourself, and give the folder as a mirror"));
        }
    }
    fs::remove_file(archive).map_err(|error| StageError::io(archive, error))
}

fn copy(ctx: &StageCtx, mut from: impl Read, member: &str, to: &Path) -> Result<(), StageError> {
    let mut out = File::create(to).map_err(|error| StageError::io(to, error))?;
    loop {
        if ctx.stopping() {
            return Err(StageError::stopped());
        }
        let copied = io::copy(&mut from.by_ref().take(CHUNK), &mut out)
            .map_err(|error| StageError::input(format!("`{member}` in the archive: {error}")))?;
        if copied == 0 {
            return out.flush().map_err(|error| StageError::io(to, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Bytes of which none stands for another.
    fn model() -> Vec<u8> {
        (0..9_000_000u64).map(|i| (i * i / 7) as u8).collect()
    }

    /// A large file and an empty one.
    fn archive(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("a.zip");
        let mut zip = rawzip::ZipArchiveWriter::new(File::create(&path).unwrap());
        for (name, bytes) in [("pkg/model.gguf", model()), ("pkg/LICENSE", vec![])] {
            let (mut entry, config) =
                zip.new_file(name).compression_method(CompressionMethod::DEFLATE).start().unwrap();
            let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
            let mut writer = config.wrap(encoder);
            writer.write_all(&bytes).unwrap();
            let (encoder, descriptor) = writer.finish().unwrap();
            encoder.finish().unwrap();
            entry.finish(descriptor).unwrap();
        }
        zip.finish().unwrap();
        path
    }

    #[test]
    fn one_file_is_taken_and_the_archive_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let ctx = StageCtx::detached(dir.path(), dir.path(), BTreeMap::new());
        let (path, to) = (archive(dir.path()), dir.path().join("sub/model.gguf"));
        take(&ctx, &path, "pkg/model.gguf", &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), model());
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_there_or_damaged_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let ctx = StageCtx::detached(dir.path(), dir.path(), BTreeMap::new());
        let (path, to) = (archive(dir.path()), dir.path().join("out"));
        let error = take(&ctx, &path, "model.gguf", &to).unwrap_err();
        assert!(error.message.contains("no file `model.gguf`"), "{error}");
        assert!(error.help.unwrap().contains("pkg/LICENSE"));
        let mut bytes = fs::read(&path).unwrap();
        bytes[100] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(take(&ctx, &path, "pkg/model.gguf", &to).is_err());
        fs::write(&path, "no zip").unwrap();
        let error = take(&ctx, &path, "pkg/model.gguf", &to).unwrap_err();
        assert!(error.message.contains("no zip archive"), "{error}");
    }
}
