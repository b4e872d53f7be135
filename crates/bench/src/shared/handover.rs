//! A small file that goes from one machine to another. One machine writes the file; the other reads
//! it and checks the content.

use super::pace::{Load, Pace};
use super::repeat::again_and_again;
use super::row::SharedRow;
use super::{Dirs, Pair, SETTLED, wrong};
use rustix::fs::{Advice, fadvise};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// The rate of the best coherent peer on this machine (reference/measured-limits.md: MooseFS).
const PEER_PAIRS: f64 = 980.0;
/// Messages of a hand-over. The reader asks the server and the server asks the writer: there and
/// back, each.
const MESSAGES: u32 = 4;
/// Bytes of the file: inline by far.
const BYTES: usize = 64;

/// How the programs use the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Both keep the file open.
    Keep,
    /// Both open the file each time.
    Open,
    /// The writer truncates the file, too, as `fs::write` does.
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
    /// Measures hand-overs: pairs of a write and a read.
    pub(super) fn handovers(
        &self,
        base: &Path,
        time: Duration,
        tell: &mut dyn FnMut(&str),
    ) -> io::Result<Vec<SharedRow>> {
        let mut rows = Vec::new();
        for habit in [Habit::Keep, Habit::Open, Habit::Truncate] {
            // The pace is measured before and after: the machine's pace changes.
            tell("a flush, a hop");
            let before = Pace::measure(base, Load::LEAST, time / 4)?;
            let (measured, floor) =
                self.measure(habit.name(), tell, prepare, |dirs| handovers(dirs, habit, time))?;
            let pace = before.and(Pace::measure(base, Load::LEAST, time / 4)?);
            let mut row = SharedRow::between(habit.name(), &measured).beside(floor);
            if habit != Habit::Truncate {
                let most = Duration::from_secs_f64(1.5 * (pace.flush + f64::from(MESSAGES) * pace.hop));
                row = row
                    .message_bar(f64::from(MESSAGES))
                    .flush_bar(1.0)
                    .time_bar(most, "1.5 of a flush and 4 hops")
                    .rate_bar(PEER_PAIRS, "MooseFS");
            }
            rows.push(row);
            rows.push(SharedRow::of("  a flush of the disk meanwhile", 1.0 / pace.flush));
            rows.push(SharedRow::of("  a message over TCP meanwhile", 1.0 / pace.hop));
        }
        Ok(rows)
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

/// Reads the file. On a floor no other machine writes, so the kernel must first drop the pages that
/// it has.
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
