//! Reads, slowly and now and then, all that the server on this machine has: a disk damages also what nobody reads.
//!
//! A pass goes through the small files, the rows, the log and the shares. What is found is put right as when anybody comes upon it: a bit in rows, log or small files at once, a share
//! from another host, a whole member by being added anew. How far the shares are outlasts a restart.

use crate::data::{self, DataError};
use crate::machine::STOP_LOOK;
use crate::server::Server;
use crate::shares_server::utc_secs;
use crate::small::{read_file, replace_file};
use namespace::ShareId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shares::DatabaseError;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// What is read, bytes a second at most: machines have other work.
const RATE: f64 = (16 << 20) as f64;
/// Between two passes, from the end of one to the beginning of the next.
const EVERY_SECS: u64 = 7 * 24 * 3600;
/// A machine that has just started has other work.
const AFTER_START: Duration = Duration::from_secs(600);
/// Rows and shares that are read together.
const STEP: usize = 256;
/// Between two notes of how far it is.
const NOTE_EVERY: Duration = Duration::from_secs(60);
const FILE: &str = "scrub.json";

/// How the passes through everything stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// When the last whole pass ended, UTC seconds.
    pub ended: Option<u64>,
    /// Shares that it found damaged, or missing.
    pub damaged: u64,
    /// The pass that is under way.
    pub pass: Option<ScrubPass>,
}

/// A pass under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPass {
    /// Bytes read, of rows, log and shares.
    pub bytes: u64,
    /// Shares found damaged, or missing.
    pub damaged: u64,
    /// All up to this share were read, and what comes before the shares.
    pub after: Option<[u8; 16]>,
}

/// See the module.
pub(crate) struct Scrub {
    report: Mutex<ScrubReport>,
    /// The next pass begins now, and reads as fast as it can.
    hurry: AtomicBool,
}

/// A pass could not go on.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Shares(#[from] DatabaseError),
    #[error(transparent)]
    Data(#[from] DataError),
}

impl Scrub {
    /// Of the machine in `dir`.
    pub(crate) fn of(dir: &Path) -> Scrub {
        // What cannot be read any more costs a pass more.
        let noted = read_file(dir, FILE).ok().flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Scrub { report: Mutex::new(noted.unwrap_or_default()), hurry: AtomicBool::new(false) }
    }

    /// How it stands.
    pub(crate) fn report(&self) -> ScrubReport {
        self.report.lock().clone()
    }

    /// Has everything read now, from the beginning. Returns when that has ended.
    pub(crate) fn run_now(
        &self,
        server: &Server,
        progress: &mut dyn FnMut(&str),
    ) -> Result<ScrubReport, String> {
        self.hurry.store(true, SeqCst);
        while self.hurry.load(SeqCst) {
            std::thread::sleep(STOP_LOOK);
            if server.is_stopping() || server.group().is_damaged() {
                return Err("this server has ended; its log says why".to_owned());
            }
            if let Some(pass) = self.report().pass {
                progress(&format!("{} MiB read", pass.bytes >> 20));
            }
        }
        Ok(self.report())
    }

    /// Until the server stops.
    pub(crate) fn run(&self, server: &Server, dir: &Path) {
        let started = Instant::now();
        while !server.is_stopping() {
            std::thread::sleep(STOP_LOOK);
            let ScrubReport { ended, pass, .. } = self.report();
            let young = ended.is_some_and(|at| utc_secs().saturating_sub(at) < EVERY_SECS);
            let hurry = self.hurry.load(SeqCst);
            if !hurry && (started.elapsed() < AFTER_START || young && pass.is_none()) {
                continue;
            }
            let pass = pass.filter(|pass| !hurry && pass.after.is_some()).unwrap_or_default();
            let mut passing = Passing { scrub: self, server, dir, pass, noted: Instant::now() };
            match passing.run() {
                Ok(true) => self.hurry.store(false, SeqCst),
                Ok(false) => {}
                Err(error) => {
                    self.hurry.store(false, SeqCst);
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "not everything could be read; it is tried again"
                    );
                    server.sleep(AFTER_START);
                }
            }
        }
    }
}

/// A pass, as it goes on.
struct Passing<'a> {
    scrub: &'a Scrub,
    server: &'a Server,
    dir: &'a Path,
    pass: ScrubPass,
    noted: Instant,
}

impl Passing<'_> {
    /// Goes through all that is left of it; whether that was all.
    fn run(&mut self) -> Result<bool, PassError> {
        if self.pass.after.is_none() {
            data::read_small(self.dir)?;
            if !self.rows() || !self.log() {
                return Ok(false);
            }
        }
        if !self.shares()? {
            return Ok(false);
        }
        let ScrubPass { bytes, damaged, .. } = self.pass;
        tracing::info!(bytes, damaged, "all that is here was read");
        *self.scrub.report.lock() = ScrubReport { ended: Some(utc_secs()), damaged, pass: None };
        self.note()?;
        Ok(true)
    }

    fn rows(&mut self) -> bool {
        let group = self.server.group();
        let rows = group.rows().reread().unwrap_or_else(|error| group.lose(&error));
        let mut after = None::<Vec<u8>>;
        loop {
            let begun = Instant::now();
            let page = rows.page(after.as_deref(), STEP).unwrap_or_else(|error| group.lose(&error));
            let bytes = page.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            let Some((last, _)) = page.into_iter().next_back() else { return true };
            after = Some(last);
            if !self.pace(bytes, begun) {
                return false;
            }
        }
    }

    fn log(&mut self) -> bool {
        let mut after = None;
        loop {
            let begun = Instant::now();
            let Some((first, bytes)) = self.server.group().reread_log(after) else { return true };
            after = Some(first);
            if !self.pace(bytes, begun) {
                return false;
            }
        }
    }

    fn shares(&mut self) -> Result<bool, PassError> {
        let (keeper, mut after) = (self.server.keeper(), self.pass.after.map(ShareId));
        loop {
            let shares = keeper.shares().server().leased_by(keeper.shares().group, after.as_ref(), STEP)?;
            for share in &shares {
                let begun = Instant::now();
                let read = keeper.reread(*share)?;
                self.pass.damaged += u64::from(read.is_none());
                if !self.pace(read.unwrap_or_default(), begun) {
                    return Ok(false);
                }
                self.pass.after = Some(share.0);
                if self.noted.elapsed() >= NOTE_EVERY {
                    self.note()?;
                }
            }
            after = shares.last().copied();
            if shares.len() < STEP {
                return Ok(true);
            }
        }
    }

    /// So many bytes were read since `begun`: waits as long as that should have taken. Whether to go on.
    fn pace(&mut self, bytes: usize, begun: Instant) -> bool {
        self.pass.bytes += bytes as u64;
        self.scrub.report.lock().pass = Some(self.pass.clone());
        if !self.scrub.hurry.load(SeqCst) {
            let least = Duration::from_secs_f64(bytes as f64 / RATE);
            std::thread::sleep(least.saturating_sub(begun.elapsed()));
        }
        !self.server.is_stopping()
    }

    fn note(&mut self) -> Result<(), DataError> {
        self.noted = Instant::now();
        replace_file(self.dir, FILE, &serde_json::to_vec(&self.scrub.report()).unwrap_or_default())
    }
}

impl fmt::Display for ScrubReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            None => write!(f, "not all that is here was read yet")?,
            Some(ended) => {
                let hours = utc_secs().saturating_sub(ended) / 3600;
                write!(f, "all read {hours} hours ago, {} shares damaged", self.damaged)?;
            }
        }
        match &self.pass {
            Some(pass) => {
                write!(f, "; {} MiB read of the next pass, {} shares damaged", pass.bytes >> 20, pass.damaged)
            }
            None => Ok(()),
        }
    }
}
