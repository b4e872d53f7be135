//! A disk on the local one that counts its steps, fails at a chosen one or loses power there, and then loses what was not synced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use super::Random;
use crate::{
    DiskError, ShareId,
    disk::{Dirty, Disk, LocalDisk, Temporary},
    share::file_name,
};

/// What happens at the chosen step.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The step, and everything after it, does not happen.
    Cut,
    /// The step fails, once.
    Fail(io::ErrorKind),
}

#[derive(Debug)]
pub struct CutDisk {
    local: LocalDisk,
    dir: PathBuf,
    limbo: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    steps: Vec<&'static str>,
    fault: Option<(usize, Fault)>,
    dead: bool,
    /// Files whose bytes were not synced, by the name that they were written under, and where they are now.
    unsynced: BTreeMap<String, PathBuf>,
    /// Changes of entries that were not synced, in order.
    entries: BTreeMap<u8, Vec<Change>>,
    limbo_names: usize,
}

#[derive(Debug)]
struct Change {
    share: ShareId,
    /// What the name stood for before: a link in limbo.
    before: Option<PathBuf>,
}

impl CutDisk {
    pub fn new(local: LocalDisk, dir: &Path, limbo: &Path, fault: Option<(usize, Fault)>) -> CutDisk {
        let state = State { fault, ..State::default() };
        CutDisk { local, dir: dir.to_owned(), limbo: limbo.to_owned(), state: Mutex::new(state) }
    }

    /// From now on, `fault` happens `after` so many more steps.
    pub fn set_fault(&self, after: usize, fault: Fault) {
        let mut state = self.state.lock();
        state.fault = Some((state.steps.len() + after, fault));
    }

    pub fn clear_fault(&self) {
        self.state.lock().fault = None;
    }

    pub fn steps(&self) -> Vec<&'static str> {
        self.state.lock().steps.clone()
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    fn step(&self, what: &'static str) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        let error = |kind: io::ErrorKind| Err(DiskError::new(what, "the disk of the tests", kind.into()));
        if state.dead {
            return error(io::ErrorKind::BrokenPipe);
        }
        let number = state.steps.len();
        state.steps.push(what);
        match state.fault {
            Some((at, Fault::Cut)) if at == number => {
                state.dead = true;
                error(io::ErrorKind::BrokenPipe)
            }
            // SQLite takes a failed commit back: there is no failure after one.
            Some((at, Fault::Fail(kind))) if at == number && what != "committed" => error(kind),
            _ => Ok(()),
        }
    }

    fn share(&self, share: &ShareId) -> PathBuf {
        self.dir.join(format!("shares/{:02x}", share.0[0])).join(file_name(share))
    }

    fn note_change(&self, share: &ShareId) {
        let mut state = self.state.lock();
        state.limbo_names += 1;
        let kept = self.limbo.join(format!("{}", state.limbo_names));
        let _ = fs::remove_file(&kept);
        let before = fs::hard_link(self.share(share), &kept).ok().map(|()| kept);
        state.entries.entry(share.0[0]).or_default().push(Change { share: *share, before });
    }

    /// Of what was not synced, keeps what `seed` says: any part of the bytes, any set of the changes to names, though for each name what came
    /// later only if what came before it is kept.
    pub fn lose(&self, seed: u64) {
        let random = &mut Random(seed);
        let mut state = self.state.lock();
        for path in std::mem::take(&mut state.unsynced).into_values() {
            if let Ok(bytes) = fs::read(&path) {
                let keep = usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap();
                fs::write(&path, &bytes[..keep]).unwrap();
            }
        }
        for changes in std::mem::take(&mut state.entries).into_values() {
            let mut kept = BTreeSet::new();
            for change in changes.iter().rev() {
                if kept.contains(&change.share) || random.chance(50) {
                    kept.insert(change.share);
                    continue;
                }
                let path = self.share(&change.share);
                let _ = fs::remove_file(&path);
                if let Some(before) = &change.before {
                    fs::hard_link(before, &path).unwrap();
                }
            }
        }
        for file in fs::read_dir(&self.limbo).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

impl Disk for CutDisk {
    fn write(&self, name: String, parts: &[&[u8]]) -> Result<Temporary, DiskError> {
        let path = self.dir.join("tmp").join(&name);
        if let Err(error) = self.step("write") {
            if self.is_dead() {
                // Torn.
                let _ = fs::write(&path, parts[0]);
                self.state.lock().unsynced.insert(name, path);
            }
            return Err(error);
        }
        let temporary = self.local.write(name, parts)?;
        self.state.lock().unsynced.insert(temporary.name.clone(), path);
        Ok(temporary)
    }

    fn sync(&self, dirty: &[Dirty]) -> Result<(), DiskError> {
        for each in dirty {
            self.step("sync")?;
            let mut state = self.state.lock();
            match each {
                Dirty::File(temporary) => drop(state.unsynced.remove(&temporary.name)),
                Dirty::Prefix(prefix) => drop(state.entries.remove(prefix)),
            }
        }
        Ok(())
    }

    fn put_in_place(&self, temporary: &str, share: &ShareId) -> Result<(), DiskError> {
        self.step("rename")?;
        self.note_change(share);
        if let Some(path) = self.state.lock().unsynced.get_mut(temporary) {
            *path = self.share(share);
        }
        self.local.put_in_place(temporary, share)
    }

    fn discard(&self, temporary: &str) -> Result<(), DiskError> {
        self.step("discard")?;
        self.state.lock().unsynced.remove(temporary);
        self.local.discard(temporary)
    }

    fn unlink(&self, share: &ShareId) -> Result<(), DiskError> {
        self.step("unlink")?;
        self.note_change(share);
        self.local.unlink(share)
    }

    fn open(&self, share: &ShareId) -> Result<File, DiskError> {
        self.local.open(share)
    }

    fn read_ahead(&self, share: &ShareId) {
        self.local.read_ahead(share);
    }

    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError> {
        self.local.list(prefix)
    }

    fn before_commit(&self) -> Result<(), DiskError> {
        self.step("commit")
    }

    fn after_commit(&self) -> Result<(), DiskError> {
        self.step("committed")
    }
}
