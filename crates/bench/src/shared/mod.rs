//! `leasehold bench shared`: machines that share a file system, as processes with real sockets and
//! mounts. One run has them and all that they are compared with.
//!
//! The server counts the cost of machines to each other: messages, recalls, flushes of its log. The
//! rest is time. A time is compared with one machine alone, with the same calls on null FUSE file
//! systems, or with a disk flush and a TCP message.

mod coded;
mod copies;
mod handover;
mod pace;
mod private;
mod processor;
mod relay;
mod row;
mod saves;
mod servers;
mod testbed;
mod tree;
mod turns;

pub use row::{Bar, SharedRow, text};

use crate::target::{Target, TargetKind, end_on_signals, not_ended};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::{Measured, Testbed};

/// The delay added to each message between a machine and its server, either way.
const DELAY: Duration = Duration::from_millis(5);

/// A part of the measurements, which can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Work on names in a private directory, on a machine without a server.
    Private,
    /// The same over a slow link.
    Delayed,
    /// Two machines make files in one directory.
    Create,
    /// A small file goes from one machine to another.
    Handover,
    /// Two machines save files in one directory, as editors do.
    Save,
    /// Two machines open and close one file.
    Open,
    /// A machine walks a tree that another machine has made.
    Tree,
    /// Three servers instead of one.
    Servers,
    /// Two copies of content instead of one.
    Copies,
    /// Content in fragments.
    Coded,
}

impl Section {
    /// All parts, in the order in which they run.
    pub const ALL: [Section; 10] = [
        Section::Private,
        Section::Delayed,
        Section::Create,
        Section::Handover,
        Section::Save,
        Section::Open,
        Section::Tree,
        Section::Servers,
        Section::Copies,
        Section::Coded,
    ];

    /// The part's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Section::Private => "private",
            Section::Delayed => "delayed",
            Section::Create => "create",
            Section::Handover => "handover",
            Section::Save => "save",
            Section::Open => "open",
            Section::Tree => "tree",
            Section::Servers => "servers",
            Section::Copies => "copies",
            Section::Coded => "coded",
        }
    }

    fn run(self, base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
        let pair = || Pair::start(base);
        match self {
            Section::Private => private::run(base, Duration::ZERO, settings, tell),
            Section::Delayed => private::run(base, DELAY, settings, tell),
            Section::Create => pair()?.creates(settings.time, tell),
            Section::Handover => pair()?.handovers(base, settings.time, tell),
            Section::Save => pair()?.saves(settings.time, tell),
            Section::Open => pair()?.opens(settings.time, tell),
            Section::Tree => pair()?.trees(tell),
            Section::Servers => servers::run(base, settings, tell),
            Section::Copies => copies::run(base, settings, tell),
            Section::Coded => coded::run(base, settings, tell),
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Parts to measure.
    pub parts: Vec<Section>,
    /// Files in the work on names.
    pub files: usize,
    /// Times that each work on names is done, in turns.
    pub rounds: usize,
    /// Length of each other measurement.
    pub time: Duration,
}

/// Measures in a new directory of `base`, which is on the disk whose flushes count. `tell` reports
/// progress.
pub fn run(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    end_on_signals()?;
    let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir_in(base)?;
    let mut rows = Vec::new();
    for part in Section::ALL.into_iter().filter(|part| settings.parts.contains(part)) {
        let base = base.path().join(part.name());
        // After a failure the other parts still run.
        match part.run(&base, settings, tell) {
            Ok(measured) => rows.extend(measured),
            Err(error) => {
                not_ended()?;
                rows.push(SharedRow::failed(part.name(), &error));
            }
        }
    }
    Ok(rows)
}

/// Two machines that share a directory, and two null file systems that share nothing. On the latter
/// the same calls show the cost of FUSE alone.
struct Pair {
    testbed: Testbed,
    floors: [Target; 2],
}

impl Pair {
    fn start(base: &Path) -> io::Result<Pair> {
        let floor = |name: &str| Target::start(TargetKind::Floor, &base.join(name));
        Ok(Pair {
            testbed: Testbed::start(&base.join("office"), 2, Duration::ZERO)?,
            floors: [floor("floor-1")?, floor("floor-2")?],
        })
    }

    /// Does `work` in the directory `name` through both machines, and in a directory of each floor.
    /// `prepare` runs before each.
    fn measure(
        &self,
        name: &str,
        tell: &mut dyn FnMut(&str),
        prepare: impl Fn(&Dirs) -> io::Result<()>,
        mut work: impl FnMut(&Dirs) -> io::Result<u64>,
    ) -> io::Result<(Measured, f64)> {
        tell(&format!("{name}: FUSE alone"));
        let [one, other] = self.floors.each_ref().map(|floor| floor.dir().join(name));
        std::fs::create_dir(&one)?;
        std::fs::create_dir(&other)?;
        let dirs = Dirs { one, other, shared: false };
        prepare(&dirs)?;
        let began = Instant::now();
        let operations = work(&dirs)?;
        let floor = operations as f64 / began.elapsed().as_secs_f64();
        tell(&format!("{name}: two machines"));
        let [one, other] = [0, 1].map(|n| self.testbed.machines()[n].dir().join(name));
        std::fs::create_dir(&one)?;
        let dirs = Dirs { one, other, shared: true };
        prepare(&dirs)?;
        Ok((self.testbed.measure(|| work(&dirs))?, floor))
    }
}

/// The directories of two programs.
struct Dirs {
    one: PathBuf,
    other: PathBuf,
    /// Whether both are the same directory.
    shared: bool,
}

/// Calls `what` again and again for `time`, with the number of calls so far. Returns the number of
/// calls.
fn again_and_again(time: Duration, mut what: impl FnMut(u64) -> io::Result<()>) -> io::Result<u64> {
    let end = Instant::now() + time;
    let mut count = 0;
    while Instant::now() < end {
        what(count)?;
        count += 1;
    }
    Ok(count)
}

/// Longer than a directory with names from both machines counts as contended (10 s). Meanwhile the
/// kernel looks its names up again before each use. The measurement begins after that.
const SETTLED: Duration = Duration::from_secs(11);

/// A failed check: a program saw wrong content.
fn wrong(what: String) -> io::Error {
    io::Error::other(what)
}
