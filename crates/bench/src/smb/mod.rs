//! `leasehold bench smb`: the SMB door beside Samba. The same client asks both, one after the
//! other in turns, over the loopback; the directories are on the same disk.
//!
//! Bars are on the CPU time that the server's process takes for each unit of work: other work
//! of this machine changes it little.

mod client;
mod idle;
mod listing;
mod logon;
mod protection;
mod row;
mod samba;
mod servers;
#[cfg(test)]
mod tests;
mod work;

pub use row::{SmbRow, text};

use crate::process::end_on_signals;
use protection::Way;
use servers::{Beside, Ours};
use std::io;
use std::path::Path;

/// A part of the measurements, which can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Opens and closes of one file.
    Open,
    /// Long writes and reads.
    Bulk,
    /// Many files of 4 KiB.
    Files,
    /// A listing of many entries, and another under a directory lease.
    List,
    /// Many connections that do nothing.
    Idle,
}

impl Section {
    /// All parts, in the order in which they run.
    pub const ALL: [Section; 5] =
        [Section::Open, Section::Bulk, Section::Files, Section::List, Section::Idle];

    /// The part's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Section::Open => "open",
            Section::Bulk => "bulk",
            Section::Files => "files",
            Section::List => "list",
            Section::Idle => "idle",
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parts to measure.
    pub parts: Vec<Section>,
    /// Times that each work is done, in turns. The median counts.
    pub rounds: usize,
    /// Opens of a round.
    pub opens: usize,
    /// MiB written and read in a round.
    pub mib: usize,
    /// Files made in a round.
    pub files: usize,
    /// Entries of the directory that is listed.
    pub entries: usize,
    /// Connections that do nothing.
    pub connections: usize,
}

/// The most memory that the server may take with many idle connections, MiB.
const IDLE_MIB_MAX: f64 = 512.0;

/// Measures in a new directory of `base`, which is on the disk that both servers use. `tell`
/// reports progress.
pub fn run(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SmbRow>> {
    end_on_signals()?;
    let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir_in(base)?;
    let mut rows = Vec::new();
    for part in Section::ALL.into_iter().filter(|part| settings.parts.contains(part)) {
        let base = base.path().join(part.name());
        std::fs::create_dir(&base)?;
        match part {
            Section::Open => {
                let beside = Beside::start(&base, settings.rounds, tell)?;
                let both = work::opens(&beside, settings.opens, tell)?;
                rows.extend(both.map(|row| row.cheaper_by(2.0)));
            }
            Section::Bulk => {
                let beside = Beside::start(&base, settings.rounds, tell)?;
                for way in [Way::Signed, Way::Encrypted] {
                    let both = work::transfers(&beside, way, settings.mib, tell)?;
                    rows.extend(both.map(|row| row.cheaper_by(1.5)));
                }
            }
            Section::Files => {
                let beside = Beside::start(&base, settings.rounds, tell)?;
                rows.push(work::files(&beside, settings.files, tell)?.cheaper_by(1.5));
            }
            Section::List => {
                let beside = Beside::start(&base, settings.rounds, tell)?;
                rows.push(listing::beside(&beside, settings.entries, tell)?);
                drop(beside);
                let messages = listing::messages(&base.join("office"), settings.entries, tell)?;
                let name = format!("messages for a second listing of {}", settings.entries);
                rows.push(SmbRow::at_most(name, messages as f64, 0.0, "messages"));
            }
            Section::Idle => {
                idle::allow_open_files(settings.connections)?;
                let ours = Ours::start(&base)?;
                let mib = idle::resident_mib(&ours, settings.connections, tell)?;
                let name = format!("resident with {} idle connections, MiB", settings.connections);
                rows.push(SmbRow::at_most(name, mib, IDLE_MIB_MAX, "MiB"));
            }
        }
    }
    Ok(rows)
}
