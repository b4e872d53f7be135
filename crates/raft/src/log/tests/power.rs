//! Losses of power against a model: a group has what it was promised, and no group has anything of
//! another.

use super::*;
use crate::disk::{Disk, DiskFile};
use crate::store::{RowFile, RowStoreError, StoreSettings};
use parking_lot::MutexGuard;
use std::time::Duration;

const SECTOR: usize = 512;
const SMALL: u64 = 4 << 10;
const DIR: &str = "/log";
const MARK: &str = "/log.mark";

/// A disk in memory, which forgets what was not synced.
#[derive(Clone, Default)]
pub(super) struct Forgetful(Arc<Mutex<Platter>>);

#[derive(Default)]
struct Platter {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    renamed: Vec<Renamed>,
    /// After so many writes and syncs the power goes.
    left: Option<u64>,
    full: bool,
    /// Whether syncs wait, and how many do.
    held: bool,
    waiting: u64,
}

/// A change of names: an old one goes, a new one comes.
#[derive(Default)]
struct Renamed {
    from: Option<PathBuf>,
    to: Option<(PathBuf, usize)>,
}

impl Renamed {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        let gone = self.from.as_ref().map(|from| names.remove(from).is_none());
        // The file has another name: a change before this one is lost.
        if gone == Some(true) {
            return;
        }
        names.extend(self.to.clone());
    }
}

#[derive(Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Bytes for which there is room.
    room: usize,
}

impl Platter {
    fn takes(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => Err(io::ErrorKind::BrokenPipe.into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn room(&mut self, file: usize, bytes: usize) -> io::Result<()> {
        if self.full && bytes > self.files[file].room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.files[file].room = self.files[file].room.max(bytes);
        Ok(())
    }

    fn renames(&mut self, renamed: Renamed) {
        renamed.apply(&mut self.names);
        self.renamed.push(renamed);
    }
}

impl Forgetful {
    /// Lets syncs wait, or go on.
    pub(super) fn holds(&self, held: bool) {
        self.0.lock().held = held;
    }

    /// Returns how many syncs wait.
    pub(super) fn waiting(&self) -> u64 {
        self.0.lock().waiting
    }

    /// The power goes and comes back. `keeps` says of each change that was not synced whether it is
    /// there.
    fn loses_power(&self, mut keeps: impl FnMut() -> bool) {
        let mut platter = self.0.lock();
        let mut names = std::mem::take(&mut platter.durable);
        let renamed = std::mem::take(&mut platter.renamed);
        renamed.iter().filter(|_| keeps()).for_each(|renamed| renamed.apply(&mut names));
        (platter.names, platter.durable) = (names.clone(), names);
        for file in &mut platter.files {
            if file.now.len() != file.durable.len() && keeps() {
                file.durable.resize(file.now.len(), 0);
            }
            file.now.resize(file.durable.len(), 0);
            for (old, new) in file.durable.chunks_mut(SECTOR).zip(file.now.chunks(SECTOR)) {
                if old != new && keeps() {
                    old.copy_from_slice(new);
                }
            }
            file.now = file.durable.clone();
        }
        (platter.left, platter.full) = (None, false);
    }
}

impl Disk for Forgetful {
    fn open(&self, path: &Path, make: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut platter = self.0.lock();
        let file = match platter.names.get(path) {
            Some(file) => *file,
            None if make => {
                platter.files.push(Content::default());
                let file = platter.files.len() - 1;
                platter.renames(Renamed { from: None, to: Some((path.to_owned(), file)) });
                file
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(OpenFile { disk: self.clone(), file }))
    }

    fn make_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let platter = self.0.lock();
        // A directory has no order.
        let within = platter.names.keys().rev().filter_map(|path| path.strip_prefix(dir).ok());
        Ok(within.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut platter = self.0.lock();
        platter.takes()?;
        let file = *platter.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        platter.renames(Renamed { from: Some(from.to_owned()), to: Some((to.to_owned(), file)) });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut platter = self.0.lock();
        platter.takes()?;
        platter.renames(Renamed { from: Some(path.to_owned()), to: None });
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut platter = self.0.lock();
        platter.takes()?;
        platter.durable = platter.names.clone();
        platter.renamed.clear();
        Ok(())
    }

    fn open_rows(&self, _: &Path, _: StoreSettings) -> Result<Arc<RowFile>, RowStoreError> {
        unreachable!("a log has no rows")
    }
}

struct OpenFile {
    disk: Forgetful,
    file: usize,
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {}", self.file)
    }
}

impl DiskFile for OpenFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.file].now.len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut platter = self.disk.0.lock();
        platter.takes()?;
        platter.files[self.file].now.resize(bytes as usize, 0);
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut platter = self.disk.0.lock();
        platter.takes()?;
        platter.room(self.file, bytes as usize)
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let platter = self.disk.0.lock();
        let found = platter.files[self.file].now.get(at as usize..at as usize + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, data: &[u8], at: u64) -> io::Result<()> {
        let mut platter = self.disk.0.lock();
        platter.takes()?;
        let (at, end) = (at as usize, at as usize + data.len());
        platter.room(self.file, end)?;
        let content = &mut platter.files[self.file].now;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[at..end].copy_from_slice(data);
        Ok(())
    }

    fn forget(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut platter = self.disk.0.lock();
        platter.waiting += 1;
        while platter.held {
            MutexGuard::unlocked(&mut platter, || std::thread::sleep(Duration::from_millis(1)));
        }
        platter.waiting -= 1;
        platter.takes()?;
        let content = &mut platter.files[self.file];
        content.durable = content.now.clone();
        Ok(())
    }
}

/// A group's log as it should be.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    vote: Option<Vote>,
    purged: Option<u64>,
    /// The entries behind the purged ones, by what is in them.
    entries: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Change {
    Append(Vec<u64>),
    /// Keeps so many entries.
    Truncate(usize),
    /// Purges so many entries.
    Purge(usize),
    Vote(Vote),
}

impl Model {
    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged + 1)
    }

    fn next(&self) -> u64 {
        self.first() + self.entries.len() as u64
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Append(stamps) => self.entries.extend(stamps),
            Change::Truncate(keep) => self.entries.truncate(*keep),
            Change::Purge(0) => {}
            Change::Purge(count) => {
                self.purged = Some(self.first() + *count as u64 - 1);
                self.entries.drain(..count);
            }
            Change::Vote(vote) => self.vote = Some(*vote),
        }
    }

    fn of(log: &RaftLog) -> Model {
        Model { vote: log.vote(), purged: log.purged().map(|it| it.index), entries: read_all(log) }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Truncate(usize),
    Purge(usize),
    Vote,
    Sync,
    /// The power goes after so many writes and syncs, or at the end of the run.
    Power(u64),
    /// The disk is full, until the power goes or the second next time.
    Full,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (1usize..4).prop_map(Step::Append),
        2 => (0usize..4).prop_map(Step::Truncate),
        4 => (0usize..4).prop_map(Step::Purge),
        2 => Just(Step::Vote),
        10 => Just(Step::Sync),
        3 => (0u64..12).prop_map(Step::Power),
        1 => Just(Step::Full),
        1 => Just(Step::Reopen),
    ]
}

/// The first groups write most: others become idle.
fn which() -> impl Strategy<Value = usize> {
    prop_oneof![12 => Just(0usize), 5 => Just(1usize), 1 => Just(2usize), 1 => Just(3usize), 1 => Just(4usize)]
}

struct Run {
    disk: Forgetful,
    logs: Vec<RaftLog>,
    /// The entries that every group was promised, and those that were put since.
    promised: Vec<Model>,
    put: Vec<(usize, Change)>,
    now: Vec<Model>,
    stamp: u64,
    chance: u64,
}

impl Run {
    fn open(disk: &Forgetful, groups: usize) -> Result<Vec<RaftLog>, LogError> {
        let mark = Some(Path::new(MARK));
        let device = LogDevice::open(Arc::new(disk.clone()), Path::new(DIR), SMALL, 3 * SMALL, mark)?;
        Ok((0..groups as u64).map(|group| device.group(GroupId(group))).collect())
    }

    fn put(&mut self, group: usize, change: Change) {
        let (log, model) = (&self.logs[group], &self.now[group]);
        match &change {
            Change::Append(stamps) => {
                let entries = (model.next()..).zip(stamps);
                log.append(entries.map(|(index, stamp)| stamped(index, *stamp, (stamp * 37 % 900) as usize)))
                    .unwrap();
            }
            Change::Truncate(keep) => {
                let end = model.first() + *keep as u64;
                log.truncate(end.checked_sub(1).map(log_id)).unwrap();
            }
            Change::Purge(0) => {}
            Change::Purge(count) => log.purge(log_id(model.first() + *count as u64 - 1)).unwrap(),
            Change::Vote(vote) => log.save_vote(*vote).unwrap(),
        }
        self.now[group].apply(&change);
        self.put.push((group, change));
    }

    /// Makes all durable. False if the power went.
    fn sync(&mut self, group: usize) -> bool {
        loop {
            match self.logs[group].sync() {
                Ok(()) => break,
                Err(error) if error.lacks_room() => self.disk.0.lock().full = false,
                Err(_) => return false,
            }
        }
        self.promised.clone_from(&self.now);
        self.put.clear();
        true
    }

    fn draw(&mut self) -> u64 {
        let chance = self.chance.wrapping_mul(6_364_136_223_846_793_005);
        self.chance = chance.wrapping_add(1_442_695_040_888_963_407);
        self.chance >> 40
    }

    /// The power goes and comes back. All that was not synced is gone, or nothing, or any part.
    fn lose_power(&mut self) {
        let (disk, mood) = (self.disk.clone(), self.draw() % 4);
        disk.loses_power(|| match mood {
            0 => false,
            1 => true,
            _ => self.draw().is_multiple_of(2),
        });
    }

    /// Opens the log again. Everything promised is there, and of what was put later all before
    /// some point. The power may go again meanwhile.
    fn reopen(&mut self, power: bool) {
        self.logs.clear();
        let mut lost = power;
        self.logs = loop {
            if lost {
                self.lose_power();
            }
            self.disk.0.lock().left = self.draw().is_multiple_of(3).then(|| self.draw() % 8);
            match Run::open(&self.disk, self.now.len()) {
                Ok(logs) => break logs,
                Err(error) => {
                    assert_eq!(self.disk.0.lock().left, Some(0), "{error}");
                    lost = true;
                }
            }
        };
        let found: Vec<Model> = self.logs.iter().map(Model::of).collect();
        let mut expected = self.promised.clone();
        for (group, change) in &self.put {
            if expected == found {
                break;
            }
            expected[*group].apply(change);
        }
        assert_eq!(found, expected, "promised were {:?}, put since {:?}", self.promised, self.put);
        (self.now, self.promised) = (found.clone(), found);
        self.put.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]
    #[test]
    fn each_group_has_what_it_was_promised(
        groups in 1usize..=5,
        chance in any::<u64>(),
        steps in prop::collection::vec((which(), step()), 1..160),
    ) {
        let disk = Forgetful::default();
        let logs = Run::open(&disk, groups).unwrap();
        let models = vec![Model::default(); groups];
        let mut run =
            Run { disk, logs, promised: models.clone(), put: Vec::new(), now: models, stamp: 0, chance };
        for (group, step) in steps {
            let group = group % groups;
            let there = run.now[group].entries.len();
            let mut on = true;
            match step {
                Step::Append(count) => {
                    let stamps = (run.stamp..run.stamp + count as u64).collect();
                    run.stamp += count as u64;
                    run.put(group, Change::Append(stamps));
                }
                Step::Truncate(back) => {
                    run.put(group, Change::Truncate(there.saturating_sub(back)));
                    // openraft waits for it.
                    on = run.sync(group);
                }
                Step::Purge(keep) => run.put(group, Change::Purge(there.saturating_sub(keep))),
                Step::Vote => {
                    let vote = Vote::new_committed(run.stamp, 1);
                    run.stamp += 1;
                    run.put(group, Change::Vote(vote));
                }
                Step::Sync => on = run.sync(group),
                Step::Power(after) => {
                    run.disk.0.lock().left.get_or_insert(after);
                }
                Step::Full => {
                    let mut platter = run.disk.0.lock();
                    platter.full = !platter.full;
                }
                Step::Reopen => {
                    on = run.disk.0.lock().left.is_none() && run.sync(group);
                    if on {
                        run.reopen(false);
                    }
                }
            }
            if !on {
                run.reopen(true);
            }
        }
        run.reopen(true);
    }
}
