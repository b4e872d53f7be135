//! The cost of a second copy of content: CPU time of all machines, and bytes on their disks.

use super::row::SharedRow;
use super::settings::Settings;
use super::testbed::Testbed;
use crate::bulk;
use crate::cost::{bytes_written, process_cpu};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Files that one machine writes, and that another reads which has none of them.
const FILES: usize = 16;
const FILE_BYTES: u64 = 16 << 20;

/// The cost of some work to all machines together.
#[derive(Clone, Copy, Debug)]
struct Spent {
    cpu: Duration,
    written: u64,
}

pub(super) fn run(
    base: &Path,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    let offices =
        [Testbed::with_servers(&base.join("one"), 2, 1)?, Testbed::with_servers(&base.join("two"), 2, 2)?];
    // In turns, and the sum of all rounds: other work of this machine falls on both.
    let mut spent: [Vec<[Spent; 2]>; 2] = Default::default();
    for round in 0..settings.rounds {
        for (copies, (testbed, spent)) in offices.iter().zip(&mut spent).enumerate() {
            tell(&format!("content with {} copies, round {}", copies + 1, round + 1));
            spent.push(write_and_read(testbed, &format!("round-{round}"))?);
        }
    }
    let [one, two] = spent.map(|rounds| {
        let sum =
            |what: usize| rounds.iter().filter_map(|round| round.get(what)).copied().reduce(Spent::plus);
        [sum(0), sum(1)].map(|spent| spent.unwrap_or(Spent { cpu: Duration::ZERO, written: 0 }))
    });
    let bytes = (settings.rounds * FILES) as u64 * FILE_BYTES;
    let cpu =
        |name: &str, at: usize| SharedRow::cost(name, two[at].cpu.as_secs_f64(), one[at].cpu.as_secs_f64());
    let on_disk = |spent: &Spent| spent.written as f64 / bytes as f64;
    Ok(vec![
        cpu("two copies: CPU of writing", 0).cost_bar(2.2),
        SharedRow::cost("two copies: bytes written to disks", on_disk(&two[0]), on_disk(&one[0]))
            .cost_bar(2.1),
        cpu("two copies: CPU of reading", 1).cost_bar(1.1),
    ])
}

/// The cost of one machine's writing the files, and of another's reading them.
fn write_and_read(testbed: &Testbed, name: &str) -> io::Result<[Spent; 2]> {
    let [writer, reader] = [0, 1].map(|n| testbed.machines()[n].dir().join(name));
    std::fs::create_dir(&writer)?;
    let files = || (0..FILES).map(|n| format!("file-{n}"));
    let began = Spent::by(testbed)?;
    files().try_for_each(|file| bulk::write(&writer.join(file), FILE_BYTES))?;
    let written = Spent::by(testbed)?;
    files().try_for_each(|file| bulk::read(&reader.join(file)))?;
    Ok([written.since(began), Spent::by(testbed)?.since(written)])
}

impl Spent {
    /// The cost to all machines since they were started.
    fn by(testbed: &Testbed) -> io::Result<Spent> {
        let mut spent = Spent { cpu: Duration::ZERO, written: 0 };
        for process in testbed.processes() {
            spent = spent.plus(Spent { cpu: process_cpu(process)?, written: bytes_written(process)? });
        }
        Ok(spent)
    }

    fn plus(self, more: Spent) -> Spent {
        Spent { cpu: self.cpu + more.cpu, written: self.written + more.written }
    }

    fn since(self, before: Spent) -> Spent {
        Spent {
            cpu: self.cpu.saturating_sub(before.cpu),
            written: self.written.saturating_sub(before.written),
        }
    }
}
