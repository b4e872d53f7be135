//! A machine's identity: its number, its starts, and the parts that its directory has had.

use crate::error::{DataError, missing};
use crate::placed::Placed;
use crate::small::{read_file, replace_file};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::Path;
use wire::{FOUNDER, FOUNDER_MEMBER, Start};

/// The small files that every machine has after its first start.
const KEYS: [&str; 3] = ["machine.key", "machine.crt", "authority.crt"];
/// The number of latest starts that a directory remembers, to tell its own starts from those of its
/// copies.
pub(crate) const REMEMBERED: usize = 8;

/// A machine's number and starts, and the parts that its directory has had. A recorded part that is
/// missing was lost: its absence is never taken for a first start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The machine's number in the cluster.
    pub machine: u64,
    /// The count of its starts: its incarnation.
    pub starts: u64,
    /// The machine has made or joined a cluster: keys and certificates are there.
    pub made: bool,
    /// The member of the server group whose state is in `server/`.
    pub serves: Option<u64>,
    /// `shares/` has a share server's database.
    pub shares: bool,
    /// The shares are not in `shares/` as well, but in an object store.
    pub elsewhere: bool,
    /// The random numbers of its latest starts, this start's last. Copies of a directory count
    /// their starts alike, so only these numbers tell them apart.
    pub drawn: [u64; REMEMBERED],
    /// The state in `server/` was proven older than the server's acknowledgements.
    pub older: bool,
    /// The identity of the files in `server/` at the last start.
    pub placed: Option<Placed>,
}

/// Held during a change of an identity: a start changes it, and so does a change of the machine's
/// part.
static CHANGING: Mutex<()> = Mutex::new(());

impl Identity {
    /// Reads the identity of the machine in `dir`.
    pub fn of(dir: &Path) -> Result<Identity, DataError> {
        let bytes = read_file(dir, "machine.json")?.ok_or_else(|| missing(dir, "machine.json"))?;
        let damaged =
            |e: serde_json::Error| DataError::Damaged { file: dir.join("machine.json"), why: e.to_string() };
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// This start, as the machine reports it to servers.
    pub fn start(&self) -> Start {
        let (drawn, before) =
            self.drawn.split_last().map_or((0, Vec::new()), |(it, all)| (*it, all.to_vec()));
        Start {
            incarnation: self.starts,
            drawn,
            before: before.into_iter().filter(|it| *it != 0).collect(),
            greeting: 0,
        }
    }

    /// Changes the identity in `dir`, durably.
    pub fn change(dir: &Path, change: impl FnOnce(&mut Identity)) -> Result<Identity, DataError> {
        let _changing = CHANGING.lock();
        let before = Identity::of(dir)?;
        let mut now = before;
        change(&mut now);
        if now != before {
            now.keep(dir)?;
        }
        Ok(now)
    }

    pub(crate) fn keep(&self, dir: &Path) -> Result<(), DataError> {
        replace_file(dir, "machine.json", &serde_json::to_vec(self).expect("numbers and text are JSON"))
    }

    /// Checks the parts of the directory `dir` that every machine has, server or not. A missing
    /// part is an error.
    pub(crate) fn is_whole(&self, dir: &Path) -> Result<(), DataError> {
        if !self.made {
            return Ok(());
        }
        let has_cluster = || Ok::<_, DataError>(read_file(dir, "cluster.json")?.is_some());
        let mut lacks = Vec::new();
        for name in KEYS {
            if read_file(dir, name)?.is_none() {
                lacks.push(name);
            }
        }
        // The founder needs `cluster.json` only in a cluster with other machines.
        let founder = self.machine == FOUNDER.0 && self.serves == Some(FOUNDER_MEMBER);
        if !founder && !has_cluster()? {
            lacks.push("cluster.json");
        }
        if lacks.is_empty() { Ok(()) } else { Err(missing(dir, &lacks.join(", "))) }
    }
}
