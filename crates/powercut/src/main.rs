//! A disk that forgets: a block layer that drops, tears and reorders unsynced writes.
//!
//! The crate cannot reach any other of ours, since it judges them.
//!
//! `powercut record` serves a disk as a file, for use through a loop device, and records the writes
//! and flushes that reach it. `powercut cut` takes that record and makes the disk as a power
//! failure at some moment may leave it.

mod cut;
mod record;
mod recorder;

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use cut::Cut;
use record::RecordError;

/// A disk that forgets: drops, tears and reorders unsynced writes.
#[derive(Debug, Parser)]
#[command(version)]
enum PowercutCommand {
    /// Serve MOUNT/disk and record its writes and flushes, until MOUNT is unmounted. Other files
    /// made in MOUNT hold notes.
    Record {
        /// The disk's size.
        #[arg(long, value_name = "MIB")]
        size: u64,
        /// Where to record.
        #[arg(long, value_name = "FILE")]
        record: PathBuf,
        /// Holds the disk's present bytes.
        #[arg(long, value_name = "FILE")]
        backing: PathBuf,
        /// Where to mount.
        mount: PathBuf,
    },
    /// Write to IMAGE the disk after a cut, and to NOTES the notes made before it.
    Cut {
        /// The disk's size.
        #[arg(long, value_name = "MIB")]
        size: u64,
        /// The record to cut.
        #[arg(long, value_name = "FILE")]
        record: PathBuf,
        /// Chooses all cuts of a run.
        #[arg(long)]
        seed: u64,
        /// The cut's number among them.
        #[arg(long)]
        number: u64,
        /// The disk after the cut.
        image: PathBuf,
        /// The directory for the notes.
        notes: PathBuf,
    },
}

#[derive(Debug, thiserror::Error)]
enum RunFailure {
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
}

fn main() -> ExitCode {
    match run(PowercutCommand::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("powercut: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: PowercutCommand) -> Result<(), RunFailure> {
    let create = |path: &PathBuf| {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        options.open(path).map_err(|error| RunFailure::File(path.clone(), error))
    };
    let open = |path: &PathBuf| File::open(path).map_err(|error| RunFailure::File(path.clone(), error));
    match command {
        PowercutCommand::Record { size, record, backing, mount } => {
            recorder::serve(size << 20, create(&backing)?, create(&record)?, &mount)
                .map_err(|error| RunFailure::File(mount, error))
        }
        PowercutCommand::Cut { size, record, seed, number, image, notes } => {
            let disk = create(&image)?;
            disk.set_len(size << 20).map_err(|error| RunFailure::File(image, error))?;
            let moments = cut::moments(&mut BufReader::new(open(&record)?))?;
            let last = moments.end - 1;
            let fate = cut::make(&mut BufReader::new(open(&record)?), moments, &disk, Cut { seed, number })?;
            for (file, content) in &fate.notes {
                let path = notes.join(file);
                fs::write(&path, content).map_err(|error| RunFailure::File(path, error))?;
            }
            println!(
                "cut {number} of seed {seed}: after event {} of {last}; not synced: {} writes, {} kept, {} torn",
                fate.at, fate.pending, fate.kept, fate.torn
            );
            Ok(())
        }
    }
}
