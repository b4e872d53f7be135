//! Changes of this machine that could not be applied. They are kept with their content until a
//! person decides (ARCHITECTURE, invariant 14).
//!
//! ```text
//! salvage/NUMBER/about.json   what it is
//! salvage/NUMBER/content-K    what was written to a file, at its offsets; between them are holes
//! ```
//!
//! The unsent changes of a machine that ended in order are kept here, too. Beside them lies what
//! its next start needs to go on with them ([`crate::unsent`]).

use crate::change::{digest, path, salvaged};
use crate::unsent::{self, Unsent, Whose, Writing};
use admin::{Salvaged, SalvagedContent, SalvagedItem};
use bytes::Bytes;
use client::{Lost, LostWhat, Salvage};
use content::ReadPart;
use data_dir::{DataError, read_file, replace_file, sync_dir};
use namespace::{Error, Operation, ShareId, operation};
use os::private;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use os::utc_secs;
use wire::LogEntry;

/// The extension of a salvage's directory from the moment in which the salvage is dropped.
const DROPPED: &str = "dropped";

/// The directory in which a machine keeps its salvage.
#[derive(Debug)]
pub struct SalvageStore {
    dir: PathBuf,
    next: AtomicU64,
    /// How often something was to be salvaged, and how often that failed.
    tried: AtomicU64,
    failed: AtomicU64,
}

/// The rest of a session's log: its owner, the number of the first entry, and the entries.
pub(crate) struct LeftBehind {
    pub whose: Whose,
    pub first: u64,
    pub entries: Vec<LogEntry>,
}

/// One salvage while it is being written.
pub(crate) struct NewSalvage {
    number: u64,
    unsent: Result<Writing, DataError>,
}

impl NewSalvage {
    /// The number of the salvage.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Keeps a share for the next start.
    pub(crate) fn share(&mut self, share: ShareId, bytes: &[u8]) {
        if let Ok(writing) = &mut self.unsent
            && let Err(error) = writing.share(share, bytes)
        {
            self.unsent = Err(error);
        }
    }
}

impl SalvageStore {
    /// Opens the salvage of the data directory `data`.
    pub fn open(data: &Path) -> Result<SalvageStore, DataError> {
        let dir = data.join("salvage");
        let next = numbers(&dir)?.last().map_or(1, |last| last + 1);
        let (tried, failed) = (Default::default(), Default::default());
        Ok(SalvageStore { dir, next: AtomicU64::new(next), tried, failed })
    }

    /// The data directory that the salvage belongs to.
    pub(crate) fn data(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }

    /// Returns the number of salvages.
    pub fn count(&self) -> usize {
        numbers(&self.dir).map_or(0, |numbers| numbers.len())
    }

    /// Returns all salvages, the oldest first.
    pub fn list(&self) -> Result<Vec<Salvaged>, DataError> {
        numbers(&self.dir)?.into_iter().map(|number| self.get(number)).collect()
    }

    /// Returns one salvage.
    pub fn get(&self, number: u64) -> Result<Salvaged, DataError> {
        let file = self.of(number).join("about.json");
        let missing = || DataError::NoSalvage { number };
        let bytes = read_file(&self.of(number), "about.json")?.ok_or_else(missing)?;
        serde_json::from_slice(&bytes).map_err(|error| DataError::Damaged { file, why: error.to_string() })
    }

    /// Writes the content of `number` below `to`, each file by its path. A file that is not whole
    /// becomes `NAME.partial`, with the parts that were written. An existing file is refused, and
    /// stays.
    pub fn restore(&self, number: u64, to: &Path) -> Result<Vec<PathBuf>, DataError> {
        let mut restored = Vec::new();
        for item in self.get(number)?.items {
            let Some(content) = item.content else { continue };
            // No path leads out of `to`.
            let names = item.path.split('/').filter(|name| !matches!(*name, "" | "." | ".."));
            let mut file = names.fold(to.to_path_buf(), |path, name| path.join(name));
            if !content.is_whole() {
                file.as_mut_os_string().push(".partial");
            }
            if let Some(parent) = file.parent() {
                private::make_dir(parent).map_err(io("make", parent))?;
            }
            let kept = self.of(number).join(&content.name);
            let hash = hash(&kept).map_err(io("read", &kept))?;
            if content.hash != hash {
                return Err(DataError::Damaged { file: kept, why: "it is not what was kept".to_owned() });
            }
            let mut from = File::open(&kept).map_err(io("open", &kept))?;
            let out = private::options().write(true).create_new(true).open(&file);
            let mut out = out.map_err(|source| match source.kind() {
                std::io::ErrorKind::AlreadyExists => DataError::Exists { file: file.clone() },
                _ => io("make", &file)(source),
            })?;
            std::io::copy(&mut from, &mut out).and_then(|_| out.sync_all()).map_err(io("write", &file))?;
            restored.push(file);
        }
        Ok(restored)
    }

    /// Deletes `number`, all of it or nothing, durably.
    pub fn drop_one(&self, number: u64) -> Result<(), DataError> {
        let dropped = self.set_dropped(number)?;
        fs::remove_dir_all(&dropped).map_err(io("remove", &dropped))
    }

    /// Takes `number` out of the list at once, durably, and returns its directory's name from then
    /// on. A machine killed in the middle of removing a directory would leave a description without
    /// the log that belongs to it, and the next start would take applied changes for lost.
    fn set_dropped(&self, number: u64) -> Result<PathBuf, DataError> {
        let dir = self.of(number);
        let dropped = dir.with_extension(DROPPED);
        fs::rename(&dir, &dropped).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => DataError::NoSalvage { number },
            _ => io("remove", &dir)(error),
        })?;
        sync_dir(&self.dir)?;
        Ok(dropped)
    }

    /// Keeps a salvage durably. The log says whether that worked. `gather` fetches content that is
    /// in shares.
    pub(crate) fn keep(&self, salvage: Salvage, gather: impl Fn(Vec<ReadPart>) -> Result<Vec<Bytes>, Error>) {
        let count = salvage.items.len();
        if count == 0 {
            return;
        }
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let kept = self.write(number, salvage, gather).and_then(|about| self.describe(&about));
        self.tried.fetch_add(1, Ordering::SeqCst);
        match kept {
            Ok(()) => tracing::error!(
                count,
                number,
                "what was done here could not be applied; it is kept: leasehold salvage list"
            ),
            Err(error) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    count,
                    "what was done here could not be applied, and cannot be kept either"
                );
            }
        }
    }

    /// Returns how often something was to be salvaged since the start, and how often that failed.
    pub(crate) fn tried(&self) -> (u64, u64) {
        (self.tried.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }

    /// Begins the salvage of what the machine's end leaves.
    pub(crate) fn begin(&self) -> NewSalvage {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let dir = self.of(number);
        let made = fresh(&dir).map(|()| Writing::begin(&dir));
        NewSalvage { number, unsent: made }
    }

    /// Keeps what the machine's end leaves: `items` for people, and `left` for the next start. All
    /// of it is read back. Returns its number, and whether a start can go on with it.
    pub(crate) fn finish(
        &self,
        keeping: NewSalvage,
        items: Vec<Lost>,
        left: Option<&LeftBehind>,
        gather: impl Fn(Vec<ReadPart>) -> Result<Vec<Bytes>, Error>,
    ) -> Result<(u64, bool), DataError> {
        let NewSalvage { number, unsent } = keeping;
        let unsent = unsent.and_then(|writing| match left {
            Some(LeftBehind { whose, first, entries }) => {
                writing.finish(*whose, *first, entries).map(|()| true)
            }
            None => Ok(false),
        });
        let goes_on = unsent.unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "what is left cannot be kept so that the next start goes on with it");
            // The disk may have no room.
            let _ = unsent::discard(&self.of(number));
            false
        });
        let salvage = Salvage { cut_off: true, items };
        match self.write(number, salvage, gather) {
            Ok(about) => self.describe(&Salvaged { goes_on, ..about })?,
            // The next start needs only the log.
            Err(error) if goes_on => {
                tracing::error!(error = &error as &dyn std::error::Error, "what is left cannot be shown");
                let (when, items) = (utc_secs(), Vec::new());
                self.describe(&Salvaged { number, when, cut_off: true, goes_on, items })?;
            }
            Err(error) => return Err(error),
        }
        Ok((number, goes_on))
    }

    /// Returns what a start is to go on with, and its number. Of several the last counts: the
    /// sessions of the others are over. Remains of a drop that was cut short go.
    pub(crate) fn unsent(&self) -> Result<Option<(u64, Unsent)>, DataError> {
        entries(&self.dir)?
            .into_iter()
            .filter(|entry| entry.extension().is_some_and(|is| is == DROPPED))
            .try_for_each(|entry| fs::remove_dir_all(&entry).map_err(io("remove", &entry)))?;
        let mut all = self.list()?;
        all.retain(|one| one.goes_on);
        let Some(last) = all.pop() else { return Ok(None) };
        all.iter().try_for_each(|one| self.stays(one.number))?;
        match Unsent::read(&self.of(last.number)) {
            Ok(unsent) => Ok(Some((last.number, unsent))),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "what the last end has left cannot go on; it stays as it is kept");
                self.stays(last.number).map(|()| None)
            }
        }
    }

    /// Ends `number`, whose operations the server has applied. Only the refused ones stay.
    pub(crate) fn applied(&self, number: u64, refused: &[(Operation, Error)]) -> Result<(), DataError> {
        if refused.is_empty() {
            return self.drop_one(number);
        }
        let mut about = self.get(number)?;
        let why: BTreeMap<String, Error> =
            refused.iter().map(|(operation, why)| (digest(operation), *why)).collect();
        let published = refused.iter().filter_map(|(operation, _)| match operation {
            Operation::Publish(operation::Publish { file, .. }) => Some(file.to_string()),
            _ => None,
        });
        let published: BTreeSet<String> = published.collect();
        about.items.retain_mut(|item| {
            let Some(change) = &mut item.change else { return published.contains(&item.file) };
            let Some(why) = why.get(&change.operation) else { return false };
            change.why = *why;
            true
        });
        self.describe(&Salvaged { cut_off: false, goes_on: false, ..about })?;
        unsent::discard(&self.of(number))
    }

    /// Marks that nothing of `number` will be applied any more.
    pub(crate) fn stays(&self, number: u64) -> Result<(), DataError> {
        self.describe(&Salvaged { goes_on: false, ..self.get(number)? })?;
        unsent::discard(&self.of(number))
    }

    fn write(
        &self,
        number: u64,
        salvage: Salvage,
        gather: impl Fn(Vec<ReadPart>) -> Result<Vec<Bytes>, Error>,
    ) -> Result<Salvaged, DataError> {
        let dir = self.of(number);
        private::make_dir(&dir).map_err(io("make", &dir))?;
        let mut items = Vec::with_capacity(salvage.items.len());
        for (index, lost) in salvage.items.into_iter().enumerate() {
            let (change, content) = match lost.what {
                LostWhat::Operation { operation, error } => {
                    (Some(salvaged(&operation, lost.from.as_ref(), error)), None)
                }
                LostWhat::Content { size, ranges } => {
                    let name = format!("content-{index}");
                    (None, Some(write_content(&dir.join(&name), name, size, ranges, &gather)?))
                }
            };
            items.push(SalvagedItem { path: path(&lost.path), file: lost.file.to_string(), change, content });
        }
        Ok(Salvaged { number, when: utc_secs(), cut_off: salvage.cut_off, goes_on: false, items })
    }

    /// Writes the description, which makes the salvage whole. It is read back.
    fn describe(&self, about: &Salvaged) -> Result<(), DataError> {
        let (dir, text) =
            (self.of(about.number), serde_json::to_vec_pretty(about).expect("numbers and text are JSON"));
        replace_file(&dir, "about.json", &text)?;
        sync_dir(&self.dir)?;
        if read_file(&dir, "about.json")?.as_ref() == Some(&text) {
            return Ok(());
        }
        let (file, why) = (dir.join("about.json"), "what is read back is not what was written".to_owned());
        Err(DataError::Damaged { file, why })
    }

    fn of(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }
}

fn write_content(
    file: &Path,
    name: String,
    size: u64,
    ranges: Vec<(u64, ReadPart)>,
    gather: &impl Fn(Vec<ReadPart>) -> Result<Vec<Bytes>, Error>,
) -> Result<SalvagedContent, DataError> {
    let out = private::options().read(true).write(true).create(true).truncate(true).open(file);
    let mut out = out.map_err(io("make", file))?;
    let (mut kept, mut hashes, mut missing) = (Vec::with_capacity(ranges.len()), Vec::new(), Vec::new());
    for (at, part) in ranges {
        let length = part.length() as u64;
        // Content that cannot be fetched any more is a hole, and is not listed as kept.
        let Ok(bytes) = gather(vec![part]) else {
            missing.push((at, length));
            continue;
        };
        let bytes = bytes.concat();
        out.write_all_at(&bytes, at).map_err(io("write", file))?;
        kept.push((at, bytes.len() as u64));
        hashes.push(crypto::hash(&bytes));
    }
    out.set_len(size).and_then(|()| out.flush()).and_then(|()| out.sync_all()).map_err(io("write", file))?;
    for ((at, length), written) in kept.iter().zip(hashes) {
        let mut back = vec![0; *length as usize];
        out.read_exact_at(&mut back, *at).map_err(io("read", file))?;
        if crypto::hash(&back) != written {
            let (file, why) = (file.to_path_buf(), "what is read back is not what was written".to_owned());
            return Err(DataError::Damaged { file, why });
        }
    }
    let hash = hash(file).map_err(io("read", file))?;
    Ok(SalvagedContent { name, size, ranges: kept, missing, hash })
}

/// Makes an empty directory.
fn fresh(dir: &Path) -> Result<(), DataError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io("clear", dir)(error)),
        Ok(()) | Err(_) => {}
    }
    private::make_dir(dir).map_err(io("make", dir))
}

fn hash(file: &Path) -> std::io::Result<String> {
    let mut hasher = crypto::Hasher::new();
    std::io::copy(&mut File::open(file)?, &mut hasher)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Returns the numbers of whole salvages. One without its description was being written when the
/// machine ended.
fn numbers(dir: &Path) -> Result<Vec<u64>, DataError> {
    let whole = entries(dir)?.into_iter().filter(|entry| entry.join("about.json").exists());
    let mut numbers: Vec<u64> = whole.filter_map(|entry| entry.file_name()?.to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
    match fs::read_dir(dir) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(DataError::Io { verb: "read", file: dir.to_path_buf(), source }),
    }
}

fn io<'a>(verb: &'static str, file: &'a Path) -> impl FnOnce(std::io::Error) -> DataError + 'a {
    move |source| DataError::Io { verb, file: file.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::KnownPath;
    use ident::FileId;
    use lease::Label;

    fn lost(path: &[&str], size: u64, ranges: &[(u64, &'static [u8])]) -> Lost {
        let labels = path.iter().map(|label| Label::new(label.as_bytes()).unwrap()).collect();
        let ranges =
            ranges.iter().map(|(at, bytes)| (*at, ReadPart::Bytes(Bytes::from_static(bytes)))).collect();
        Lost {
            file: FileId::root().child(9),
            path: KnownPath { from: FileId::root(), labels },
            from: None,
            what: LostWhat::Content { size, ranges },
        }
    }

    fn gather(parts: Vec<ReadPart>) -> Result<Vec<Bytes>, Error> {
        let bytes = parts.into_iter().map(|part| match part {
            ReadPart::Bytes(bytes) => bytes,
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
        // The next one does not get the number of the dropped one.
        store.keep(Salvage { cut_off: false, items: vec![lost(&["x"], 0, &[])] }, gather);
        assert_eq!(store.list().unwrap()[0].number, 2);
    }

    #[test]
    fn one_that_was_being_dropped_is_gone() {
        let data = tempfile::tempdir().unwrap();
        let store = SalvageStore::open(data.path()).unwrap();
        let (number, ..) = ended(&store);
        // The machine is killed before the files are removed, or among them.
        let dropped = store.set_dropped(number).unwrap();
        assert!(store.list().unwrap().is_empty());
        fs::remove_file(dropped.join("log")).unwrap();
        let store = SalvageStore::open(data.path()).unwrap();
        assert!(dropped.exists() && store.list().unwrap().is_empty());
        assert!(store.unsent().unwrap().is_none() && !dropped.exists());
        assert!(matches!(store.drop_one(number), Err(DataError::NoSalvage { .. })));
        assert_eq!(ended(&store).0, 1, "a number is free once its salvage is gone for good");
    }

    /// A salvage as an end leaves it: an operation on `a`, content of `b`.
    fn ended(store: &SalvageStore) -> (u64, Operation, Operation) {
        let mut keeping = store.begin();
        keeping.share(ShareId([1; 16]), b"sealed");
        let file = FileId::root().child(9);
        let time = namespace::Timestamp::default();
        let accessed = Operation::RemoveXattr(operation::RemoveXattr {
            file: FileId::root().child(8),
            name: Label::new(b"user.x").unwrap(),
            cred: namespace::Cred::default(),
            time,
        });
        let change = namespace::ContentChange::None;
        let publish = Operation::Publish(operation::Publish {
            file,
            version: 1,
            size: 3,
            mtime: time,
            ctime: time,
            change,
        });
        let what = LostWhat::Operation { operation: Box::new(accessed.clone()), error: Error::CutOff };
        let of_a = Lost { what, ..lost(&["a"], 0, &[]) };
        let entry = |operation: &Operation| LogEntry::Update {
            version: wire::Version::NEWEST,
            operation: operation.clone(),
        };
        let whose = Whose { machine: wire::MachineId(2), incarnation: 1, session: lease::SessionId(5) };
        let left = LeftBehind { whose, first: 4, entries: vec![entry(&accessed), entry(&publish)] };
        let items = vec![of_a, lost(&["b"], 3, &[(0, b"abc")])];
        let (number, goes_on) = store.finish(keeping, items, Some(&left), gather).unwrap();
        assert!(goes_on);
        (number, accessed, publish)
    }

    #[test]
    fn what_an_end_has_left_is_kept_until_it_is_applied() {
        let data = tempfile::tempdir().unwrap();
        let store = SalvageStore::open(data.path()).unwrap();
        let (number, ..) = ended(&store);
        let store = SalvageStore::open(data.path()).unwrap();
        assert!(store.get(number).unwrap().goes_on && store.count() == 1);
        let (found, unsent) = store.unsent().unwrap().unwrap();
        assert_eq!((found, unsent.first, unsent.entries.len()), (number, 4, 2));
        assert_eq!(unsent.share(ShareId([1; 16])).unwrap().unwrap(), "sealed");
        store.applied(number, &[]).unwrap();
        assert_eq!(store.count(), 0);
        assert!(store.unsent().unwrap().is_none());
    }

    #[test]
    fn what_is_refused_of_it_stays_and_nothing_else() {
        for which in [0, 1] {
            let data = tempfile::tempdir().unwrap();
            let store = SalvageStore::open(data.path()).unwrap();
            let (number, one, other) = ended(&store);
            let refused = [one, other][which].clone();
            store.applied(number, &[(refused, Error::NoSpace)]).unwrap();
            let kept = store.get(number).unwrap();
            assert!(!kept.goes_on && store.unsent().unwrap().is_none());
            assert!(
                kept.items.iter().all(|item| item.change.as_ref().is_none_or(|it| it.why == Error::NoSpace))
            );
            let paths: Vec<_> = kept.items.iter().map(|item| item.path.as_str()).collect();
            assert_eq!(paths, [["/a"], ["/b"]][which]);
        }
    }

    #[test]
    fn what_is_left_of_a_session_that_is_over_is_salvage() {
        let (data, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = SalvageStore::open(data.path()).unwrap();
        let (number, ..) = ended(&store);
        // With an unreadable log nothing goes on, and the changes kept for people stay.
        fs::write(store.of(number).join("log"), b"nothing").unwrap();
        assert!(store.unsent().unwrap().is_none());
        assert!(!store.get(number).unwrap().goes_on);
        assert_eq!(fs::read(&store.restore(number, to.path()).unwrap()[0]).unwrap(), b"abc");
    }

    /// Content that could not be fetched is not listed as kept.
    #[test]
    fn what_cannot_be_had_is_said_to_be_missing() {
        let data = tempfile::tempdir().unwrap();
        let store = SalvageStore::open(data.path()).unwrap();
        let items = vec![lost(&["x"], 8, &[(0, b"half"), (4, b"rest")])];
        let gather = |parts: Vec<ReadPart>| match &parts[0] {
            ReadPart::Bytes(bytes) if bytes == "rest" => Err(Error::Damaged),
            _ => gather(parts),
        };
        store.keep(Salvage { cut_off: true, items }, gather);
        let kept = store.list().unwrap();
        let item = &kept[0].items[0];
        let content = item.content.as_ref().unwrap();
        assert!(content.missing == [(4, 4)] && !content.is_whole());
    }

    #[test]
    fn nothing_lost_is_nothing_kept() {
        let data = tempfile::tempdir().unwrap();
        let store = SalvageStore::open(data.path()).unwrap();
        store.keep(Salvage { cut_off: true, items: Vec::new() }, gather);
        assert_eq!(store.count(), 0);
    }
}
