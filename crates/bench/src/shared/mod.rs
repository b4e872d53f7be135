//! `leasehold bench shared`: machines that share a file system, as processes with real sockets and
//! mounts, in one run with what they are compared with.
//!
//! What machines cost each other is counted by their server (messages, recalls, flushes of its
//! log); what is left is time, which is compared with one machine alone, with the same calls on
//! null FUSE file systems, or with a flush of the disk and a message over TCP.

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
mod turns;

pub use row::{Bar, Row, text};

use crate::target::{Kind, Target, end_on_signals, not_ended};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::{Measured, Testbed};

/// What is added to the way between a machine and its server, either way.
const DELAY: Duration = Duration::from_millis(5);

/// A part of the measurements, which can be done by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Work on names in a directory of one's own, on a machine without a server.
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
    /// Three servers instead of one.
    Servers,
    /// Two copies of content instead of one.
    Copies,
    /// Content in fragments.
    Coded,
}

impl Section {
    /// All, in the order in which they are done.
    pub const ALL: [Section; 9] = [
        Section::Private,
        Section::Delayed,
        Section::Create,
        Section::Handover,
        Section::Save,
        Section::Open,
        Section::Servers,
        Section::Copies,
        Section::Coded,
    ];

    /// What the command line calls it.
    pub fn name(self) -> &'static str {
        match self {
            Section::Private => "private",
            Section::Delayed => "delayed",
            Section::Create => "create",
            Section::Handover => "handover",
            Section::Save => "save",
            Section::Open => "open",
            Section::Servers => "servers",
            Section::Copies => "copies",
            Section::Coded => "coded",
        }
    }

    fn run(self, base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
        let pair = || Pair::start(base);
        match self {
            Section::Private => private::run(base, Duration::ZERO, settings, tell),
            Section::Delayed => private::run(base, DELAY, settings, tell),
            Section::Create => pair()?.creates(settings.time, tell),
            Section::Handover => pair()?.handovers(base, settings.time, tell),
            Section::Save => pair()?.saves(settings.time, tell),
            Section::Open => pair()?.opens(settings.time, tell),
            Section::Servers => servers::run(base, settings, tell),
            Section::Copies => copies::run(base, settings, tell),
            Section::Coded => coded::run(base, settings, tell),
        }
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which parts.
    pub parts: Vec<Section>,
    /// Files in the work on names.
    pub files: usize,
    /// Times that each work on names is done, in turns.
    pub rounds: usize,
    /// How long each of the rest is done.
    pub time: Duration,
}

/// Measures below `base`, which is on the disk whose flushes count. `tell` hears of progress.
pub fn run(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<Row>> {
    end_on_signals()?;
    let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir_in(base)?;
    let mut rows = Vec::new();
    for part in Section::ALL.into_iter().filter(|part| settings.parts.contains(part)) {
        let base = base.path().join(part.name());
        // A fault in one is no reason to know nothing of the rest.
        match part.run(&base, settings, tell) {
            Ok(measured) => rows.extend(measured),
            Err(error) => {
                not_ended()?;
                rows.push(Row::failed(part.name(), &error));
            }
        }
    }
    Ok(rows)
}

/// Two machines that share a directory; and two null file systems that share nothing, on which the
/// same calls show what FUSE alone costs.
struct Pair {
    testbed: Testbed,
    floors: [Target; 2],
}

impl Pair {
    fn start(base: &Path) -> io::Result<Pair> {
        let floor = |name: &str| Target::start(Kind::Floor, &base.join(name));
        Ok(Pair {
            testbed: Testbed::start(&base.join("office"), 2, Duration::ZERO)?,
            floors: [floor("floor-1")?, floor("floor-2")?],
        })
    }

    /// Does `work` in the directory `name` through both machines, and in one of each floor, each
    /// time after `prepare`.
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

/// Where two programs work.
struct Dirs {
    one: PathBuf,
    other: PathBuf,
    /// It is the same directory.
    shared: bool,
}

/// Does something again and again for `time`, told how often it was done. How often that was.
fn again_and_again(time: Duration, mut what: impl FnMut(u64) -> io::Result<()>) -> io::Result<u64> {
    let end = Instant::now() + time;
    let mut count = 0;
    while Instant::now() < end {
        what(count)?;
        count += 1;
    }
    Ok(count)
}

/// A directory in which names were made through both machines counts as one that others work in for
/// 10 s, and the kernel looks its names up again before each use. What is measured is what comes
/// after that.
const SETTLED: Duration = Duration::from_secs(11);

/// What a program sees that it must not.
fn wrong(what: String) -> io::Error {
    io::Error::other(what)
}
