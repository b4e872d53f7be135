//! The cost of three servers beside one. In a private directory the cost is nothing; for a file
//! made durable it is one more round trip.

use super::pace::{Load, Pace};
use super::private::{LEAST, compare};
use super::processor::OneProcessor;
use super::repeat::again_and_again;
use super::row::SharedRow;
use super::settings::Settings;
use super::testbed::Testbed;
use crate::target::Target;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// A file that is inline, and two whose content goes with the update all the same. One of the two
/// stays there; the other is the largest that is folded into shares later.
const SIZES: [(&str, usize, f64); 3] = [
    ("fsync of 100 bytes", 100, 2.0),
    ("fsync of 64 KiB", 64 << 10, 3.0),
    ("fsync of 256 KiB", 256 << 10, 3.0),
];

pub(super) fn run(
    base: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    tell("one server, and three");
    let offices = |base: &Path| -> io::Result<[Testbed; 2]> {
        Ok([
            Testbed::with_servers(&base.join("one"), 1, 1)?,
            Testbed::with_servers(&base.join("three"), 1, 3)?,
        ])
    };
    let mut rows = Vec::new();
    for apart in [true, false] {
        // As in all private work: the working side has one processor, or chance decides.
        let one_processor = OneProcessor::take()?;
        let way = if apart { "three servers" } else { "three servers, one processor for all" };
        let [one, three] = offices(&base.join(way))?;
        if apart {
            for server in one.servers().chain(three.servers()) {
                one_processor.leave(server)?;
            }
        }
        let names = compare(way, &[machine(&three)?, machine(&one)?], settings, tell)?;
        // Servers are machines of their own. The row with one processor for all shows the cost of
        // their work.
        rows.extend(names.into_iter().map(|row| if apart { row.ratio_bar(LEAST) } else { row }));
    }
    let [one, three] = offices(&base.join("content"))?;
    let (one, three) = (machine(&one)?, machine(&three)?);
    for (name, bytes, bar) in SIZES {
        tell(name);
        let before = Pace::measure(base, Load::LEAST, settings.time / 4)?;
        let beside = syncs(one, bytes, settings.time)?;
        let rate = syncs(three, bytes, settings.time)?;
        let pace = before.and(Pace::measure(base, Load::LEAST, settings.time / 4)?);
        // The least work of any three servers on one disk. No bar is of it.
        let all = Pace::measure(base, Load { bytes, disks: 3 }, settings.time / 4)?;
        // A round trip to the leader: two hops.
        let most = Duration::from_secs_f64(bar * (pace.flush + 2.0 * pace.hop));
        let row = SharedRow::of(format!("three servers: {name}"), rate).beside(beside);
        rows.push(row.time_bar(most, &format!("{bar} of a round trip and a flush")));
        rows.push(SharedRow::of("  a flush of the disk meanwhile", 1.0 / pace.flush));
        rows.push(SharedRow::of("  a message over TCP meanwhile", 1.0 / pace.hop));
        rows.push(SharedRow::of("  three flushes of as much at once", 1.0 / all.flush));
        rows.push(SharedRow::of("  a message over TCP, with as much or an answer", 1.0 / all.hop));
    }
    Ok(rows)
}

fn machine(testbed: &Testbed) -> io::Result<&Target> {
    testbed.machines().first().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Times a second that a file of so many bytes is overwritten and synced.
fn syncs(target: &Target, bytes: usize, time: Duration) -> io::Result<f64> {
    let file = File::create(target.dir().join(format!("synced-{bytes}")))?;
    let mut text = vec![0; bytes];
    let count = again_and_again(time, |turn| {
        text[..8].copy_from_slice(&turn.to_le_bytes());
        file.write_all_at(&text, 0)?;
        file.sync_all()
    })?;
    Ok(count as f64 / time.as_secs_f64())
}
