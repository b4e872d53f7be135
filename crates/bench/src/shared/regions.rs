//! Large directories and regions between two servers of the directory: renames across them, and
//! the delay of programs in a region that goes from one to the other.

use super::groups::{delegate, found};
use super::row::SharedRow;
use crate::target::{Target, TargetKind};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files below the directory that is renamed.
const RENAMED: usize = 1_000_000;
/// Files of the region that goes.
const MOVED: usize = 100_000;
/// Files of one directory.
const OF_DIRECTORY: usize = 1_000;
/// Renames that are timed, there and back.
const RENAMES: usize = 200;
/// How long 99 of 100 renames may take.
const RENAME_MAX: Duration = Duration::from_millis(10);
/// How long 99 of 100 operations, and each, may take while their region goes.
const DELAY_MAX: [(usize, Duration); 2] = [(99, Duration::from_millis(50)), (100, Duration::from_secs(1))];
/// Tries to hand a region over that is in use at each look.
const TRIES: usize = 5;

pub(super) fn run(base: &Path, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    let mut rows = renames(base, tell)?;
    rows.extend(moves(base, tell)?);
    Ok(rows)
}

/// A large directory goes to a parent at another server and back, and so does an empty one.
fn renames(base: &Path, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    tell(&format!("a directory of {RENAMED} files between servers"));
    let machine = Target::start(TargetKind::Mount, &base.join("renames"))?;
    found(&machine, 1)?;
    let [one, other] = ["one", "other"].map(|name| machine.dir().join(name));
    fs::create_dir(&one)?;
    fs::create_dir(&other)?;
    delegate(&machine, "/other".to_owned(), Some(1))?;
    fill(&one.join("large"), RENAMED)?;
    fs::create_dir(one.join("empty"))?;
    machine.sync()?;
    let mut rows = Vec::new();
    for name in ["empty", "large"] {
        let mut times = Vec::new();
        for turn in 0..RENAMES {
            let (from, to) = if turn % 2 == 0 { (&one, &other) } else { (&other, &one) };
            let began = Instant::now();
            fs::rename(from.join(name), to.join(name))?;
            times.push(began.elapsed());
        }
        times.sort();
        let row =
            |share| SharedRow::time(format!("rename between servers, {name}: {share} %"), at(&times, share));
        rows.extend([row(50), row(99).time_bar(RENAME_MAX, "whatever its size")]);
    }
    Ok(rows)
}

/// A region goes to another server and back, while a program works in it and another one beside.
fn moves(base: &Path, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
    tell(&format!("a region of {MOVED} files goes to another server and back"));
    let machine = Target::start(TargetKind::Mount, &base.join("moves"))?;
    found(&machine, 1)?;
    let [region, beside] = ["region", "beside"].map(|name| machine.dir().join(name));
    fill(&region, MOVED)?;
    fs::create_dir_all(beside.join("0"))?;
    machine.sync()?;
    let done = AtomicBool::new(false);
    let (went, delays) = std::thread::scope(|scope| {
        let workers = [&region, &beside].map(|dir| scope.spawn(|| work(&dir.join("0"), &done)));
        let went: io::Result<Vec<Duration>> = [1, 0].into_iter().map(|to| go(&machine, to)).collect();
        done.store(true, Ordering::Relaxed);
        let failed = |_| Err(io::Error::other("a thread failed"));
        let delays: io::Result<Vec<_>> =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(failed)).collect();
        (went, delays)
    });
    let mut rows = Vec::new();
    for (way, took) in ["there", "back"].iter().zip(went?) {
        rows.push(SharedRow::time(format!("a region goes {way}"), took));
    }
    for (place, times) in ["in it", "beside it"].iter().zip(delays?) {
        for (share, most) in DELAY_MAX {
            let row =
                SharedRow::time(format!("  operations {place} meanwhile: {share} %"), at(&times, share));
            rows.push(row.time_bar(most, "for programs"));
        }
    }
    Ok(rows)
}

/// Makes so many empty files in directories below `dir`.
fn fill(dir: &Path, files: usize) -> io::Result<()> {
    for n in 0..files.div_ceil(OF_DIRECTORY) {
        let dir = dir.join(n.to_string());
        fs::create_dir_all(&dir)?;
        (0..OF_DIRECTORY).try_for_each(|n| File::create(dir.join(n.to_string())).map(drop))?;
    }
    Ok(())
}

/// Makes, looks at, renames and removes a file in `dir` until it is `done`. Returns the time of
/// each operation, in order of length.
fn work(dir: &Path, done: &AtomicBool) -> io::Result<Vec<Duration>> {
    let [made, renamed] = ["made", "renamed"].map(|name| dir.join(name));
    let mut times = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let mut timed = |operation: &dyn Fn() -> io::Result<()>| {
            let began = Instant::now();
            operation()?;
            times.push(began.elapsed());
            io::Result::Ok(())
        };
        timed(&|| fs::write(&made, "text"))?;
        timed(&|| fs::metadata(&made).map(drop))?;
        timed(&|| fs::rename(&made, &renamed))?;
        timed(&|| fs::remove_file(&renamed))?;
    }
    times.sort();
    Ok(times)
}

/// Has the region go to a server, and returns how long that takes.
fn go(machine: &Target, to: u16) -> io::Result<Duration> {
    let began = Instant::now();
    let mut tries = TRIES;
    while let Err(error) = delegate(machine, "/region".to_owned(), Some(to)) {
        tries -= 1;
        if tries == 0 {
            return Err(error);
        }
    }
    Ok(began.elapsed())
}

/// The time that so many of 100 did not exceed.
fn at(times: &[Duration], share: usize) -> Duration {
    let index = (times.len() * share).div_ceil(100).saturating_sub(1);
    times.get(index).copied().unwrap_or_default()
}
