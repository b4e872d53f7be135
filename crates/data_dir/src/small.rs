//! Small files of the data directory: the machine's identity, its keys, the addresses of servers.
//! Each is kept twice, with a checksum, so that a damaged one is repaired from the other.
//!
//! ```text
//! NAME, copies/NAME    content │ "\nchecksum " │ 32 hexadecimal digits of its BLAKE3 │ "\n"
//! ```

use crate::error::{DataError, io};
use os::private;
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The directory of the second copies.
pub const COPIES: &str = "copies";
const MARK: &str = "\nchecksum ";
const DIGITS: usize = 32;

/// Held while a small file is read or written. A reader that came between the two writes of a
/// change would else repair the second file with the old content of the first.
static USING: Mutex<()> = Mutex::new(());

/// Replaces a small file. A crash leaves the old content or the new one.
pub fn replace_file(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), DataError> {
    let _using = USING.lock();
    replace_both(dir, name, bytes)
}

fn replace_both(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), DataError> {
    let sealed = [bytes, MARK.as_bytes(), digits(bytes).as_bytes(), b"\n"].concat();
    replace_plain(dir, name, &sealed)?;
    let copies = dir.join(COPIES);
    private::make_dir(&copies).map_err(io("make", &copies))?;
    replace_plain(&copies, name, &sealed)
}

/// Returns the content of a small file, or nothing if there is none. A damaged file is repaired, if
/// its copy is sound.
pub fn read_file(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, DataError> {
    let _using = USING.lock();
    let Some((content, is_whole)) = find(dir, name)? else { return Ok(None) };
    if !is_whole {
        let file = dir.join(name);
        tracing::warn!(file = %file.display(), "a small file was damaged or is newer than its copy; it is written anew");
        replace_both(dir, name, &content)?;
    }
    Ok(Some(content))
}

/// Reads as [`read_file`] does, and repairs nothing. It is for a process that does not hold the
/// data directory: another one may be at its writing.
pub(crate) fn peek_file(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, DataError> {
    Ok(find(dir, name)?.map(|(content, _)| content))
}

/// The content of a small file, and whether both files have it.
fn find(dir: &Path, name: &str) -> Result<Option<(Vec<u8>, bool)>, DataError> {
    let (file, copy) = (dir.join(name), dir.join(COPIES).join(name));
    let (first, second) = (FoundCopy::at(&file)?, FoundCopy::at(&copy)?);
    let is_whole = first == second;
    match (first, second) {
        (FoundCopy::Nothing, FoundCopy::Nothing) => Ok(None),
        // The first file is written first, so it is the newer one.
        (FoundCopy::Sound(content), _) | (_, FoundCopy::Sound(content)) => Ok(Some((content, is_whole))),
        _ => Err(DataError::Changed { file }),
    }
}

/// Removes a small file.
pub fn remove_file(dir: &Path, name: &str) -> Result<(), DataError> {
    let _using = USING.lock();
    for file in [dir.join(COPIES).join(name), dir.join(name)] {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io("remove", &file)(error)),
            Ok(()) | Err(_) => {}
        }
    }
    sync_dir(dir)
}

#[derive(PartialEq, Eq)]
enum FoundCopy {
    Nothing,
    Sound(Vec<u8>),
    Changed(Vec<u8>),
}

impl FoundCopy {
    fn at(file: &PathBuf) -> Result<FoundCopy, DataError> {
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(FoundCopy::Nothing),
            // The other copy may be readable.
            Err(error) if os::is_lost(&error) => return Ok(FoundCopy::Changed(Vec::new())),
            Err(error) => return Err(io("read", file)(error)),
        };
        let content = bytes.split_last_chunk::<{ MARK.len() + DIGITS + 1 }>();
        Ok(match content {
            Some((content, seal)) if *seal == *[MARK, &digits(content), "\n"].concat().as_bytes() => {
                FoundCopy::Sound(content.to_vec())
            }
            _ => FoundCopy::Changed(bytes),
        })
    }
}

fn digits(bytes: &[u8]) -> String {
    crypto::hash(bytes).to_hex().chars().take(DIGITS).collect()
}

/// Replaces a file as [`replace_file`] does, and nothing more.
pub fn replace_plain(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), DataError> {
    let (new, file) = (dir.join(format!("{name}.new")), dir.join(name));
    let out = private::options().write(true).create(true).truncate(true).open(&new);
    let mut out = out.map_err(io("make", &new))?;
    out.write_all(bytes).and_then(|()| out.sync_all()).map_err(io("write", &new))?;
    drop(out);
    fs::rename(&new, &file).map_err(io("replace", &file))?;
    sync_dir(dir)
}

/// Makes changes of names in `dir` durable.
pub fn sync_dir(dir: &Path) -> Result<(), DataError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("sync", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_damaged_is_put_right_from_the_other() {
        let dir = tempfile::tempdir().unwrap();
        replace_file(dir.path(), "name", b"content").unwrap();
        let (file, copy) = (dir.path().join("name"), dir.path().join(COPIES).join("name"));
        let sound = fs::read(&file).unwrap();
        for damaged in [&file, &copy] {
            for bit in 0..sound.len() * 8 {
                let mut bytes = sound.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                fs::write(damaged, bytes).unwrap();
                assert_eq!(read_file(dir.path(), "name").unwrap().unwrap(), b"content", "bit {bit}");
                assert_eq!(fs::read(damaged).unwrap(), sound);
            }
            fs::remove_file(damaged).unwrap();
            assert_eq!(read_file(dir.path(), "name").unwrap().unwrap(), b"content");
        }
        fs::write(&file, b"other").unwrap();
        fs::write(&copy, b"other").unwrap();
        assert!(matches!(read_file(dir.path(), "name"), Err(DataError::Changed { .. })));
        assert_eq!(read_file(dir.path(), "no such").unwrap(), None);
    }

    #[test]
    fn the_first_is_the_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        replace_file(dir.path(), "name", b"old").unwrap();
        let old = fs::read(dir.path().join("name")).unwrap();
        replace_file(dir.path(), "name", b"new").unwrap();
        // A crash came between the two writes.
        fs::write(dir.path().join(COPIES).join("name"), old).unwrap();
        assert_eq!(read_file(dir.path(), "name").unwrap().unwrap(), b"new");
        fs::remove_file(dir.path().join("name")).unwrap();
        assert_eq!(read_file(dir.path(), "name").unwrap().unwrap(), b"new");
    }
}
