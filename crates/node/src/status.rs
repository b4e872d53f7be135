//! What `leasehold status` tells.

use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a machine is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Always true of who answers.
    pub up: bool,
    /// The program's version.
    pub version: String,
    /// The data directory.
    pub data: String,
    /// The process.
    pub process: u32,
    /// Since when, in seconds.
    pub uptime_s: u64,
    /// Files in the file system.
    pub files: u64,
    /// Sessions of clients at this server, and how many of them have lapsed.
    pub sessions: usize,
    /// Lapsed ones: they keep their leases until somebody needs them.
    pub sessions_lapsed: usize,
    /// Requests for leases that wait.
    pub requests_waiting: usize,
    /// Bytes of the disk, and what can still be set aside of it.
    pub space_total: u64,
    /// Free bytes.
    pub space_free: u64,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// Log that a start would replay, bytes.
    pub log_bytes: u64,
    /// Proposed and not applied yet, bytes.
    pub backlog_bytes: usize,
    /// Rows of the server on disk, bytes.
    pub store_bytes: u64,
    /// Stored shares.
    pub shares: u64,
    /// Their bytes.
    pub share_bytes: u64,
    /// Files that this machine's client knows something of.
    pub files_known: usize,
    /// Content that is not stored yet, bytes.
    pub dirty_bytes: usize,
}

impl StatusReport {
    /// As of now.
    pub(crate) fn of(engine: &Engine) -> StatusReport {
        let group = engine.group().status();
        let server = engine.group().query(|directory, _| directory.status(group.time));
        let (files_known, dirty_bytes) = engine.client_figures();
        let stored = engine.shares().server().stored().unwrap_or_default();
        StatusReport {
            up: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data: engine.dir().display().to_string(),
            process: std::process::id(),
            uptime_s: engine.uptime().as_secs(),
            files: server.files,
            sessions: server.sessions,
            sessions_lapsed: server.lapsed,
            requests_waiting: server.waiting,
            space_total: server.space.total,
            space_free: server.space.free,
            applied: group.applied,
            log_bytes: group.log_bytes,
            backlog_bytes: group.backlog_bytes,
            store_bytes: group.store.file_bytes,
            shares: stored.shares,
            share_bytes: stored.bytes,
            files_known,
            dirty_bytes,
        }
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "up since {} s, process {}, data in {}", self.uptime_s, self.process, self.data)?;
        writeln!(f, "files      {} ({} known to this machine's client)", self.files, self.files_known)?;
        writeln!(f, "space      {:.0} MiB free of {:.0} MiB", mib(self.space_free), mib(self.space_total))?;
        writeln!(f, "content    {} shares, {:.1} MiB", self.shares, mib(self.share_bytes))?;
        writeln!(f, "unsaved    {:.1} MiB of content", mib(self.dirty_bytes as u64))?;
        writeln!(
            f,
            "server     {} sessions ({} lapsed), {} requests waiting",
            self.sessions, self.sessions_lapsed, self.requests_waiting
        )?;
        writeln!(
            f,
            "log        entry {}, {:.1} MiB to replay; store {:.1} MiB",
            self.applied,
            mib(self.log_bytes),
            mib(self.store_bytes)
        )
    }
}
