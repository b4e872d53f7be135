//! Two machines take turns in one directory: they make files, and they open one.

use super::repeat::again_and_again;
use super::row::SharedRow;
use super::{Dirs, Pair, wrong};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The rate of the best coherent peer on this machine (reference/measured-limits.md: MooseFS).
const PEER_OPENS: f64 = 12_300.0;

impl Pair {
    /// Measures creates. Names are distinct, so neither machine needs what the other has.
    pub(super) fn creates(&self, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
        let (measured, floor) = self.measure("create", tell, |_| Ok(()), |dirs| creates(dirs, time))?;
        // The listing comes after the measurement, since a listing has recalls of its own.
        for machine in self.testbed.machines() {
            let (seen, made) =
                (fs::read_dir(machine.dir().join("create"))?.count() as u64, measured.operations);
            if seen != made {
                return Err(wrong(format!(
                    "{made} files were made, and {seen} are in {}",
                    machine.dir().display()
                )));
            }
        }
        Ok(vec![SharedRow::between("create, two machines in turns", &measured).beside(floor).recall_bar(1.0)])
    }

    /// Measures opens of one file, to read and write.
    pub(super) fn opens(&self, time: Duration, tell: &mut dyn FnMut(&str)) -> io::Result<Vec<SharedRow>> {
        let (measured, floor) = self.measure("open", tell, |_| Ok(()), |dirs| opens(dirs, time))?;
        let row = SharedRow::between("open+close, two machines in turns", &measured);
        Ok(vec![row.beside(floor).rate_bar(PEER_OPENS, "MooseFS")])
    }
}

fn creates(dirs: &Dirs, time: Duration) -> io::Result<u64> {
    let create = |dir: &Path, name: String| {
        OpenOptions::new().write(true).create_new(true).open(dir.join(name)).map(drop)
    };
    let turns = again_and_again(time, |turn| {
        create(&dirs.one, format!("one-{turn}"))?;
        create(&dirs.other, format!("other-{turn}"))
    })?;
    Ok(2 * turns)
}

fn opens(dirs: &Dirs, time: Duration) -> io::Result<u64> {
    let files = [dirs.one.join("file"), dirs.other.join("file")];
    for file in &files {
        OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    }
    let turns = again_and_again(time, |_| {
        files.iter().try_for_each(|file| OpenOptions::new().read(true).write(true).open(file).map(drop))
    })?;
    Ok(2 * turns)
}
