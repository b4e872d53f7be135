//! A small file that goes from one machine to another: one writes it, the other reads it, and sees what was written.

use super::row::Row;
use super::{Dirs, Pair, SETTLED, again_and_again, wrong};
use crate::bulk;
use rustix::fs::{Advice, fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the best coherent peer does here (reference/measured-limits.md: MooseFS).
const PEER_PAIRS: f64 = 980.0;
/// The reader asks the server, which asks the writer: there and back, each.
const MESSAGES: u32 = 4;
/// Bytes of the file: inline by far.
const BYTES: usize = 64;

/// How programs go about it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Both keep the file open.
    Keep,
    /// Both open it each time.
    Open,
    /// The writer truncates it, too: what `fs::write` does.
    Truncate,
}

impl Habit {
    fn name(self) -> &'static str {
        match self {
            Habit::Keep => "hand-over, kept open",
            Habit::Open => "hand-over, opened each time",
            Habit::Truncate => "hand-over, opened and truncated",
        }
    }
}

impl Pair {
    /// In pairs of a write and a read.
    pub(super) fn handovers(
        &self,
        base: &Path,
        time: Duration,
        tell: &mut dyn FnMut(&str),
    ) -> io::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for habit in [Habit::Keep, Habit::Open, Habit::Truncate] {
            // Before and after: the machine's pace changes.
            tell("a flush, a hop");
            let before = Pace::measure(base, time / 4)?;
            let (measured, floor) =
                self.measure(habit.name(), tell, prepare, |dirs| handovers(dirs, habit, time))?;
            let pace = before.and(Pace::measure(base, time / 4)?);
            let mut row = Row::between(habit.name(), &measured).beside(floor);
            if habit != Habit::Truncate {
                let most = Duration::from_secs_f64(1.5 * (pace.flush + f64::from(MESSAGES) * pace.hop));
                row = row
                    .message_bar(f64::from(MESSAGES))
                    .flush_bar(1.0)
                    .time_bar(most, "1.5 of a flush and 4 hops")
                    .rate_bar(PEER_PAIRS, "MooseFS");
            }
            rows.push(row);
            rows.push(Row::of("  a flush of the disk meanwhile", 1.0 / pace.flush));
            rows.push(Row::of("  a message over TCP meanwhile", 1.0 / pace.hop));
        }
        Ok(rows)
    }
}

/// What nothing that is durable and far away can do without, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    /// A page that is appended, and fdatasync.
    pub(super) flush: f64,
    /// A message from one thread to another.
    pub(super) hop: f64,
}

impl Pace {
    /// For `time` each, on the disk of `base`.
    pub(super) fn measure(base: &Path, time: Duration) -> io::Result<Pace> {
        let began = Instant::now();
        let flushes = bulk::disk_syncs(&base.join("flushes"), time)?;
        Ok(Pace { flush: began.elapsed().as_secs_f64() / flushes as f64, hop: hop(time)? })
    }

    /// The mean of both.
    pub(super) fn and(self, other: Pace) -> Pace {
        Pace { flush: (self.flush + other.flush) / 2.0, hop: (self.hop + other.hop) / 2.0 }
    }
}

fn prepare(dirs: &Dirs) -> io::Result<()> {
    File::create(dirs.one.join("file"))?.write_all(&text(0))?;
    if dirs.shared {
        File::open(dirs.other.join("file"))?;
        std::thread::sleep(SETTLED);
        Ok(())
    } else {
        File::create(dirs.other.join("file"))?.write_all(&text(0))
    }
}

fn handovers(dirs: &Dirs, habit: Habit, time: Duration) -> io::Result<u64> {
    let (written, read) = (dirs.one.join("file"), dirs.other.join("file"));
    let (writer, reader) = (OpenOptions::new().write(true).open(&written)?, File::open(&read)?);
    let kept = (habit == Habit::Keep).then_some((writer, reader));
    again_and_again(time, |turn| {
        let text = text(turn);
        let mut seen = [0; BYTES];
        match &kept {
            Some((writer, reader)) => {
                writer.write_all_at(&text, 0)?;
                look(reader, dirs, |reader| reader.read_exact_at(&mut seen, 0))?;
            }
            None => {
                let truncate = habit == Habit::Truncate;
                OpenOptions::new().write(true).truncate(truncate).open(&written)?.write_all(&text)?;
                look(&File::open(&read)?, dirs, |mut reader| reader.read_exact(&mut seen))?;
            }
        }
        if dirs.shared && seen != text {
            return Err(wrong(format!("write {turn} was not seen, but {}", String::from_utf8_lossy(&seen))));
        }
        Ok(())
    })
}

/// Reads. Where nobody else writes the kernel would not ask for what it has.
fn look(file: &File, dirs: &Dirs, read: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    if !dirs.shared {
        fadvise(file, 0, None, Advice::DontNeed)?;
    }
    read(file)
}

fn text(turn: u64) -> [u8; BYTES] {
    let mut text = [b'.'; BYTES];
    text[..20].copy_from_slice(format!("{turn:020}").as_bytes());
    text
}

/// How long a message takes between two threads that answer each other over TCP, seconds.
fn hop(time: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut caller = TcpStream::connect(listener.local_addr()?)?;
    let (mut called, _) = listener.accept()?;
    caller.set_nodelay(true)?;
    called.set_nodelay(true)?;
    let answering = std::thread::spawn(move || {
        let mut message = [0; BYTES];
        while called.read_exact(&mut message).and_then(|()| called.write_all(&message)).is_ok() {}
    });
    let began = Instant::now();
    let mut message = [0; BYTES];
    let rounds = again_and_again(time, |_| {
        caller.write_all(&message)?;
        caller.read_exact(&mut message)
    })?;
    let took = began.elapsed().as_secs_f64() / (2.0 * rounds as f64);
    drop(caller);
    answering.join().map_err(|_| io::Error::other("a thread failed"))?;
    Ok(took)
}
