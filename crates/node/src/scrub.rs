//! The scrub: reads, slowly and now and then, all data of the server on this machine. Disks also
//! damage data that is never read.
//!
//! A pass goes through the small files, the rows and the log. It repairs damage as any other reader
//! does: a bit at once, a whole member by adding it anew. The share server has a pass of its own,
//! through its database and all shares. A damaged share is fetched from another host
//! (`share_hosts::repair`).

use crate::error::failed;
use crate::server::Server;
use admin::{ControlProgress, ControlRefusal, RequestWork, ScrubReport};
use data_dir::{DataError, read_file, replace_file};
use os::STOP_LOOK;
use os::utc_secs;
use parking_lot::Mutex;
use raft::Group;
use serde::{Deserialize, Serialize};
use shares::{DatabaseError, Process, ShareServer};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The rate of reading at most, bytes a second: machines have other work.
const RATE: f64 = (16 << 20) as f64;
/// Between two passes, from the end of one to the beginning of the next.
const EVERY_SECS: u64 = 7 * 24 * 3600;
/// The delay of the first pass: a machine that has just started has other work.
const AFTER_START: Duration = Duration::from_secs(600);
/// Rows that are read together.
const STEP: usize = 256;
const FILE: &str = "scrub.json";

/// The record of the passes on disk.
#[derive(Default, Serialize, Deserialize)]
struct ScrubRecord {
    ended: Option<u64>,
}

/// The scrub of one server.
pub(crate) struct Scrub {
    state: Mutex<ScrubState>,
    /// The next pass begins at once, and reads as fast as it can.
    hurry: AtomicBool,
}

#[derive(Default)]
struct ScrubState {
    ended: Option<u64>,
    bytes: Option<u64>,
    /// Why the last pass failed.
    failed: Option<ControlRefusal>,
}

impl Scrub {
    /// Makes the scrub of the machine in `dir`.
    pub(crate) fn of(dir: &Path) -> Scrub {
        // An unreadable record costs one more pass.
        let noted = read_file(dir, FILE).ok().flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let ScrubRecord { ended } = noted.unwrap_or_default();
        Scrub {
            state: Mutex::new(ScrubState { ended, ..ScrubState::default() }),
            hurry: AtomicBool::new(false),
        }
    }

    /// Returns how the passes stand, here and in `shares`.
    pub(crate) fn report(&self, shares: &ShareServer) -> Result<ScrubReport, DatabaseError> {
        let (ended, bytes) = {
            let state = self.state.lock();
            (state.ended, state.bytes)
        };
        let mut passes = shares.passes()?;
        passes.retain(|pass| pass.process == Process::Scrub);
        let last = passes.first();
        Ok(ScrubReport {
            ended,
            bytes,
            shares_ended: passes.iter().find_map(|pass| pass.ended_at),
            shares_examined: last.filter(|pass| pass.ended_at.is_none()).map(|pass| pass.examined),
            found: last.map_or(0, |pass| pass.acted),
            damaged: shares.damaged()?,
        })
    }

    /// Reads everything at once, from the beginning. Returns when the pass has ended.
    pub(crate) fn run_now(
        &self,
        server: &Server,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<ScrubReport, ControlRefusal> {
        let shares = server.shares().server();
        let may_go_on = || match server.is_stopping() || server.group().is_damaged() {
            true => Err(ControlRefusal::ServerEnded),
            false => Ok(()),
        };
        self.hurry.store(true, SeqCst);
        while self.hurry.load(SeqCst) {
            std::thread::sleep(STOP_LOOK);
            may_go_on()?;
            let bytes = self.state.lock().bytes.unwrap_or_default();
            progress(&ControlProgress::ScrubbedRows { bytes });
        }
        if let Some(why) = self.state.lock().failed.take() {
            return Err(why);
        }
        let scrubbed = shares.scrub_now(|pass| {
            progress(&ControlProgress::ScrubbedShares { shares: pass.examined, damaged: pass.acted });
            if may_go_on().is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        scrubbed.and_then(|()| self.report(shares)).map_err(|error| failed(RequestWork::Scrubbing, &error))
    }

    /// Runs a pass now and then, until the server stops.
    pub(crate) fn run(&self, server: &Server, dir: &Path) {
        let started = Instant::now();
        while !server.is_stopping() {
            std::thread::sleep(STOP_LOOK);
            let young = self.state.lock().ended.is_some_and(|at| utc_secs().saturating_sub(at) < EVERY_SECS);
            let hurry = self.hurry.load(SeqCst);
            if !hurry && (young || started.elapsed() < AFTER_START) {
                continue;
            }
            let mut passing = ScrubPass { scrub: self, server, dir, bytes: 0 };
            let passed = passing.run();
            self.state.lock().bytes = None;
            if let Err(error) = &passed {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "not everything could be read; it is tried again"
                );
                self.state.lock().failed = Some(failed(RequestWork::Scrubbing, error));
            }
            if hurry {
                self.hurry.store(false, SeqCst);
            }
            if passed.is_err() {
                server.sleep(AFTER_START);
            }
        }
    }
}

/// A pass under way.
struct ScrubPass<'a> {
    scrub: &'a Scrub,
    server: &'a Server,
    dir: &'a Path,
    bytes: u64,
}

impl ScrubPass<'_> {
    /// Goes through all data, unless the server stops.
    fn run(&mut self) -> Result<(), DataError> {
        data_dir::read_small(self.dir)?;
        let rows = self.server.all_hosted().iter().all(|hosted| self.rows(hosted.group()));
        if !rows || !self.log() {
            return Ok(());
        }
        tracing::info!(bytes = self.bytes, "small files, rows and log were read");
        let ended = Some(utc_secs());
        self.scrub.state.lock().ended = ended;
        replace_file(
            self.dir,
            FILE,
            &serde_json::to_vec(&ScrubRecord { ended }).expect("numbers and text are JSON"),
        )
    }

    fn rows(&mut self, group: &Group) -> bool {
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

    /// The log is that of all groups.
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

    /// Waits as long as reading so many bytes should have taken since `begun`. Returns whether to
    /// go on.
    fn pace(&mut self, bytes: usize, begun: Instant) -> bool {
        self.bytes += bytes as u64;
        self.scrub.state.lock().bytes = Some(self.bytes);
        if !self.scrub.hurry.load(SeqCst) {
            let least = Duration::from_secs_f64(bytes as f64 / RATE);
            std::thread::sleep(least.saturating_sub(begun.elapsed()));
        }
        !self.server.is_stopping()
    }
}
