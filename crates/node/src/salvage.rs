//! What this machine did and could not get applied: kept with its content until a person decides (design.md, "Contract to users").
//!
//! ```text
//! salvage/NUMBER/about.json   what it is
//! salvage/NUMBER/content-K    what was written to a file, at its offsets; between them are holes
//! ```

use crate::data::DataError;
use crate::small::{self, read_file, replace_file};
use bytes::Bytes;
use client::{KnownPath, Lost, LostWhat, Salvage};
use content::Part;
use namespace::Error;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shares_server::utc_secs;

/// Characters of an operation that are shown: what was written in it is kept beside.
const TEXT_MAX: usize = 400;

/// One time that something could not be applied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Salvaged {
    /// Names it.
    pub number: u64,
    /// When, UTC seconds.
    pub when: u64,
    /// Whether the machine was cut off and lost its leases; otherwise the server refused these.
    pub cut_off: bool,
    /// What was lost, in the order in which it was done.
    pub items: Vec<SalvagedItem>,
}

/// One thing that was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SalvagedItem {
    /// Of which file, as far as that was known.
    pub path: String,
    /// What was done.
    pub what: String,
    /// Its content, if that is what was lost.
    pub content: Option<SalvagedContent>,
}

/// Content that was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SalvagedContent {
    /// The name of the file that has it.
    pub name: String,
    /// The size of the file as it was.
    pub size: u64,
    /// Offsets and lengths of what was written; the rest had been applied before.
    pub ranges: Vec<(u64, u64)>,
    /// Its BLAKE3; earlier versions noted none.
    #[serde(default)]
    pub hash: Option<String>,
}

impl SalvagedContent {
    /// Whether all of the file is here.
    pub fn is_whole(&self) -> bool {
        let mut ranges = self.ranges.clone();
        ranges.sort_unstable();
        let covered =
            ranges.iter().fold(
                0,
                |end: u64, (at, length)| {
                    if *at <= end { end.max(at.saturating_add(*length)) } else { end }
                },
            );
        covered >= self.size
    }
}

/// Where a machine keeps what it salvages.
#[derive(Debug)]
pub struct SalvageStore {
    dir: PathBuf,
    next: AtomicU64,
}

impl SalvageStore {
    /// That of the data directory `data`.
    pub fn open(data: &Path) -> Result<SalvageStore, DataError> {
        let dir = data.join("salvage");
        let next = numbers(&dir)?.last().map_or(1, |last| last + 1);
        Ok(SalvageStore { dir, next: AtomicU64::new(next) })
    }

    /// The data directory that it belongs to.
    pub(crate) fn data(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// How many times something is kept from.
    pub fn count(&self) -> usize {
        numbers(&self.dir).map_or(0, |numbers| numbers.len())
    }

    /// All that is kept, the oldest first.
    pub fn list(&self) -> Result<Vec<Salvaged>, DataError> {
        numbers(&self.dir)?.into_iter().map(|number| self.get(number)).collect()
    }

    /// One.
    pub fn get(&self, number: u64) -> Result<Salvaged, DataError> {
        let file = self.of(number).join("about.json");
        let missing = || io("read", &file)(std::io::ErrorKind::NotFound.into());
        let bytes = read_file(&self.of(number), "about.json")?.ok_or_else(missing)?;
        serde_json::from_slice(&bytes).map_err(|error| DataError::Damaged { file, why: error.to_string() })
    }

    /// Writes the content of `number` below `to`, each file by its path; of what is not whole, what was written, as `NAME.partial`. What is there already is
    /// left alone, and refused.
    pub fn restore(&self, number: u64, to: &Path) -> Result<Vec<PathBuf>, DataError> {
        let mut restored = Vec::new();
        for item in self.get(number)?.items {
            let Some(content) = item.content else { continue };
            // Nothing leads out of `to`, whatever the path was.
            let names = item.path.split('/').filter(|name| !matches!(*name, "" | "." | ".."));
            let mut file = names.fold(to.to_path_buf(), |path, name| path.join(name));
            if !content.is_whole() {
                file.as_mut_os_string().push(".partial");
            }
            if let Some(parent) = file.parent() {
                fs::create_dir_all(parent).map_err(io("make", parent))?;
            }
            let kept = self.of(number).join(&content.name);
            let hash = hash(&kept).map_err(io("read", &kept))?;
            if content.hash.is_some_and(|known| known != hash) {
                return Err(DataError::Damaged { file: kept, why: "it is not what was kept".to_owned() });
            }
            let mut from = File::open(&kept).map_err(io("open", &kept))?;
            let mut out = File::create_new(&file).map_err(io("make", &file))?;
            std::io::copy(&mut from, &mut out).and_then(|_| out.sync_all()).map_err(io("write", &file))?;
            restored.push(file);
        }
        Ok(restored)
    }

    /// Forgets `number`.
    pub fn drop_one(&self, number: u64) -> Result<(), DataError> {
        let dir = self.of(number);
        fs::remove_dir_all(&dir).map_err(io("remove", &dir))
    }

    /// Keeps it, durably; said in the log either way. `gather` fetches content that is in shares.
    pub(crate) fn keep(&self, salvage: Salvage, gather: impl Fn(Vec<Part>) -> Result<Vec<Bytes>, Error>) {
        if salvage.items.is_empty() {
            return;
        }
        let (number, count) = (self.next.fetch_add(1, Ordering::SeqCst), salvage.items.len());
        match self.write(number, salvage, gather) {
            Ok(()) => tracing::error!(
                count,
                number,
                "what was done here could not be applied; it is kept: leasehold salvage list"
            ),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                count,
                "what was done here could not be applied, and cannot be kept either"
            ),
        }
    }

    fn write(
        &self,
        number: u64,
        salvage: Salvage,
        gather: impl Fn(Vec<Part>) -> Result<Vec<Bytes>, Error>,
    ) -> Result<(), DataError> {
        let dir = self.of(number);
        fs::create_dir_all(&dir).map_err(io("make", &dir))?;
        let mut items = Vec::with_capacity(salvage.items.len());
        for (index, Lost { path, what, .. }) in salvage.items.into_iter().enumerate() {
            let (what, content) = match what {
                LostWhat::Operation { operation, error } => {
                    let mut text = format!("{operation:?}");
                    if let Some((end, _)) = text.char_indices().nth(TEXT_MAX) {
                        text.truncate(end);
                    }
                    (format!("{text}: {error}"), None)
                }
                LostWhat::Content { size, ranges } => {
                    let name = format!("content-{index}");
                    let content = write_content(&dir.join(&name), name, size, ranges, &gather)?;
                    ("content that was written".to_owned(), Some(content))
                }
            };
            items.push(SalvagedItem { path: text(&path), what, content });
        }
        let about = Salvaged { number, when: utc_secs(), cut_off: salvage.cut_off, items };
        replace_file(&dir, "about.json", &serde_json::to_vec_pretty(&about).unwrap_or_default())?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(io("sync", &self.dir))
    }

    fn of(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }
}

fn write_content(
    file: &Path,
    name: String,
    size: u64,
    ranges: Vec<(u64, Part)>,
    gather: &impl Fn(Vec<Part>) -> Result<Vec<Bytes>, Error>,
) -> Result<SalvagedContent, DataError> {
    let mut out = File::create(file).map_err(io("make", file))?;
    let mut kept = Vec::with_capacity(ranges.len());
    for (at, part) in ranges {
        // What cannot be fetched any more is a hole, and not among what is said to be here.
        let Ok(bytes) = gather(vec![part]) else { continue };
        let bytes = bytes.concat();
        out.write_all_at(&bytes, at).map_err(io("write", file))?;
        kept.push((at, bytes.len() as u64));
    }
    out.set_len(size).and_then(|()| out.flush()).and_then(|()| out.sync_all()).map_err(io("write", file))?;
    let hash = Some(hash(file).map_err(io("read", file))?);
    Ok(SalvagedContent { name, size, ranges: kept, hash })
}

fn hash(file: &Path) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut File::open(file)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Takes over descriptions that an earlier version has written in the data directory `data`.
pub(crate) fn take_over(data: &Path) -> Result<(), DataError> {
    let dir = data.join("salvage");
    numbers(&dir)?.iter().try_for_each(|number| small::take_over(&dir.join(number.to_string()), "about.json"))
}

/// A path as people write it; one that is not known from the root on begins with the file's identifier.
fn text(path: &KnownPath) -> String {
    let from = if path.from == ident::FileId::root() { String::new() } else { format!("[{}]", path.from) };
    path.labels.iter().fold(from, |text, label| text + "/" + &String::from_utf8_lossy(label.as_bytes()))
}

/// What is kept whole: without its description it was being written when the machine ended.
fn numbers(dir: &Path) -> Result<Vec<u64>, DataError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(DataError::Io { verb: "read", file: dir.to_path_buf(), source }),
    };
    let whole = entries.flatten().filter(|entry| entry.path().join("about.json").exists());
    let mut numbers: Vec<u64> = whole.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn io<'a>(verb: &'static str, file: &'a Path) -> impl FnOnce(std::io::Error) -> DataError + 'a {
    move |source| DataError::Io { verb, file: file.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ident::FileId;
    use lease::Label;

    fn lost(path: &[&str], size: u64, ranges: &[(u64, &'static [u8])]) -> Lost {
        let labels = path.iter().map(|label| Label::new(label.as_bytes()).unwrap()).collect();
        let ranges = ranges.iter().map(|(at, bytes)| (*at, Part::Bytes(Bytes::from_static(bytes)))).collect();
        Lost {
            file: FileId::root().child(9),
            path: KnownPath { from: FileId::root(), labels },
            what: LostWhat::Content { size, ranges },
        }
    }

    fn gather(parts: Vec<Part>) -> Result<Vec<Bytes>, Error> {
        let bytes = parts.into_iter().map(|part| match part {
            Part::Bytes(bytes) => bytes,
            other => panic!("{other:?}"),
        });
        Ok(bytes.collect())
    }

    #[test]
    fn what_is_kept_is_found_and_restored() {
        let (data, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = SalvageStore::open(data.path()).unwrap();
        let whole = lost(&["a", "report"], 5, &[(0, b"hel"), (3, b"lo")]);
        let part = lost(&["log"], 8, &[(4, b"tail")]);
        store.keep(Salvage { cut_off: true, items: vec![whole, part] }, gather);
        let store = SalvageStore::open(data.path()).unwrap();
        let kept = store.list().unwrap();
        assert_eq!((kept.len(), kept[0].items.len(), store.count()), (1, 2, 1));
        assert_eq!(kept[0].items[0].path, "/a/report");
        let restored = store.restore(kept[0].number, to.path()).unwrap();
        assert_eq!(restored, [to.path().join("a/report"), to.path().join("log.partial")]);
        assert_eq!(fs::read(&restored[0]).unwrap(), b"hello");
        assert_eq!(fs::read(&restored[1]).unwrap(), b"\0\0\0\0tail");
        assert!(store.restore(kept[0].number, to.path()).is_err(), "it would overwrite");
        store.drop_one(kept[0].number).unwrap();
        assert_eq!(store.count(), 0);
        // The next one is not taken for the dropped.
        store.keep(Salvage { cut_off: false, items: vec![lost(&["x"], 0, &[])] }, gather);
        assert_eq!(store.list().unwrap()[0].number, 2);
    }

    #[test]
    fn nothing_lost_is_nothing_kept() {
        let data = tempfile::tempdir().unwrap();
        let store = SalvageStore::open(data.path()).unwrap();
        store.keep(Salvage { cut_off: true, items: Vec::new() }, gather);
        assert_eq!(store.count(), 0);
    }
}
