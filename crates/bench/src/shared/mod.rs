//! `leasehold bench shared`: machines that share a file system, as processes with real sockets and
//! mounts. One run has them and all that they are compared with.
//!
//! The server counts the cost of machines to each other: messages, recalls, flushes of its log. The
//! rest is time. A time is compared with one machine alone, with the same calls on null FUSE file
//! systems, or with a disk flush and a TCP message.

mod coded;
mod copies;
mod groups;
mod handover;
mod pace;
mod private;
mod processor;
mod regions;
mod relay;
mod repeat;
mod row;
mod saves;
mod servers;
mod settings;
mod testbed;
mod tree;
mod turns;

pub use row::{Bar, SharedRow, text};
pub use settings::{Section, Settings};

use crate::process::{end_on_signals, not_ended};
use crate::target::{Target, TargetKind};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testbed::Measured;
pub(crate) use testbed::Testbed;

/// The delay added to each message between a machine and its server, either way.
const DELAY: Duration = Duration::from_millis(5);

/// Measures in a new directory of `base`, which is on the disk whose flushes count. `tell` reports
/// progress.
pub fn run(base: &Path, settings: &Settings, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    end_on_signals()?;
    let base = tempfile::Builder::new().prefix("leasehold-bench-").tempdir_in(base)?;
    let mut rows = Vec::new();
    for part in Section::ALL.into_iter().filter(|part| settings.parts.contains(part)) {
        let base = base.path().join(part.name());
        // After a failure the other parts still run.
        match run_part(part, &base, settings, tell) {
            Ok(measured) => rows.extend(measured),
            Err(error) => {
                not_ended()?;
                rows.push(SharedRow::failed(part.name(), &error));
            }
        }
    }
    Ok(rows)
}

fn run_part(
    part: Section,
    base: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    let pair = || Pair::start(base);
    match part {
        Section::Private => private::run(base, Duration::ZERO, settings, tell),
        Section::Delayed => private::run(base, DELAY, settings, tell),
        Section::Create => pair()?.creates(settings.time, tell),
        Section::Handover => pair()?.handovers(base, settings.time, tell),
        Section::Save => pair()?.saves(settings.time, tell),
        Section::Open => pair()?.opens(settings.time, tell),
        Section::Tree => pair()?.trees(settings.time, tell),
        Section::Servers => servers::run(base, settings, tell),
        Section::Groups => groups::run(base, settings, tell),
        Section::Copies => copies::run(base, settings, tell),
        Section::Coded => coded::run(base, settings, tell),
    }
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

/// Longer than a directory with names from both machines counts as contended (10 s). Meanwhile the
/// kernel looks its names up again before each use. The measurement begins after that.
const SETTLED: Duration = Duration::from_secs(11);

/// A failed check: a program saw wrong content.
fn wrong(what: String) -> io::Error {
    io::Error::other(what)
}
