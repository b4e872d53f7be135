//! A disk on top of the local one. It counts its steps, fails or loses power at a chosen one, and
//! then loses the data that was not synced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    Random,
    trouble::{StepResult, Trouble},
};
use crate::{
    DiskError, ShareId,
    disk::{Dirty, LocalDisk, ShareDisk, Temporary},
    share::file_name,
};

#[derive(Debug)]
pub struct CutDisk {
    local: LocalDisk,
    dir: PathBuf,
    limbo: PathBuf,
    trouble: Arc<Trouble>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Files with unsynced bytes: the name under which they were written, and their present place.
    unsynced: BTreeMap<String, PathBuf>,
    /// Unsynced changes of entries, in order.
    entries: BTreeMap<u8, Vec<Change>>,
    limbo_names: usize,
}

#[derive(Debug)]
struct Change {
    share: ShareId,
    /// The previous target of the name: a link in limbo.
    before: Option<PathBuf>,
}

impl CutDisk {
    pub fn new(local: LocalDisk, dir: &Path, limbo: &Path, trouble: Arc<Trouble>) -> CutDisk {
        CutDisk { local, dir: dir.to_owned(), limbo: limbo.to_owned(), trouble, state: Mutex::default() }
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

    /// Loses unsynced data. `seed` chooses what is kept: any part of the bytes, and any set of the
    /// changes to names. For each name a later change is kept only with the earlier ones.
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

fn error(cause: io::Error) -> DiskError {
    DiskError::new("trying", "the disk of the tests", cause)
}

fn told(step: StepResult) -> Result<(), DiskError> {
    step.told().map_err(error)
}

impl ShareDisk for CutDisk {
    fn write(&self, name: String, parts: &[&[u8]]) -> Result<Temporary, DiskError> {
        let path = self.dir.join("tmp").join(&name);
        let step = match self.trouble.step("write") {
            Ok(step) => step,
            Err(cause) => {
                if self.trouble.is_dead() {
                    // Torn.
                    let _ = fs::write(&path, parts[0]);
                    self.state.lock().unsynced.insert(name, path);
                }
                return Err(error(cause));
            }
        };
        let temporary = self.local.write(name, parts)?;
        self.state.lock().unsynced.insert(temporary.name.clone(), path);
        told(step).map(|()| temporary)
    }

    fn sync(&self, dirty: &[Dirty]) -> Result<(), DiskError> {
        for each in dirty {
            let step = self.trouble.step("sync").map_err(error)?;
            let mut state = self.state.lock();
            match each {
                Dirty::File(temporary) => drop(state.unsynced.remove(&temporary.name)),
                Dirty::Prefix(prefix) => drop(state.entries.remove(prefix)),
            }
            told(step)?;
        }
        Ok(())
    }

    fn put_in_place(&self, temporary: &str, share: &ShareId) -> Result<(), DiskError> {
        let step = self.trouble.step("rename").map_err(error)?;
        self.note_change(share);
        if let Some(path) = self.state.lock().unsynced.get_mut(temporary) {
            *path = self.share(share);
        }
        self.local.put_in_place(temporary, share)?;
        told(step)
    }

    fn discard(&self, temporary: &str) -> Result<(), DiskError> {
        let step = self.trouble.step("discard").map_err(error)?;
        self.state.lock().unsynced.remove(temporary);
        self.local.discard(temporary)?;
        told(step)
    }

    fn unlink(&self, share: &ShareId) -> Result<(), DiskError> {
        let step = self.trouble.step("unlink").map_err(error)?;
        self.note_change(share);
        self.local.unlink(share)?;
        told(step)
    }

    fn open(&self, share: &ShareId) -> Result<File, DiskError> {
        self.local.open(share)
    }

    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError> {
        self.local.list(prefix)
    }
}
