//! `leasehold up`.

use crate::{Failure, places};
use clap::Args;
use fuse::{Mount, Options};
use node::{GroupSettings, Machine};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// See the command's help.
#[derive(Debug, Args)]
pub struct Up {
    /// Where this machine keeps its part: server state, shares, keys. Made on the first run.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the file system appears. Made if it does not exist.
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// MiB that the server keeps its rows in, however many files there are.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..1 << 20))]
    server_memory: u32,
}

impl Up {
    /// Brings the machine up and waits for a signal.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let data = self.data.unwrap_or_else(places::data);
        let dir = self.mount.unwrap_or_else(places::mount);
        // Before anything is started, so that an early Ctrl-C ends in order too.
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let began = Instant::now();
        let settings =
            GroupSettings { memory_bytes: (self.server_memory as usize) << 20, ..GroupSettings::default() };
        let purpose = format!("leasehold up, mounted on {}", dir.display());
        let machine = Machine::start(&data, &purpose, settings)?;
        if machine.data().is_new() {
            say(format_args!("made a new file system in {}", data.display()));
        } else {
            say(format_args!(
                "opened the file system in {} ({} ms)",
                data.display(),
                began.elapsed().as_millis()
            ));
        }
        let mount = Arc::new(Mount::start(machine.door(), &dir, &Options::default())?);
        say(format_args!("mounted on {}", dir.display()));
        say(format_args!(
            "try: git clone SOME-REPOSITORY {}/work   leasehold status   leasehold fsck",
            dir.display()
        ));
        say(format_args!("Ctrl-C unmounts and makes everything durable"));
        // Somebody else may unmount it (umount, fusermount3 -u): then this command has nothing left to do either.
        let (mounted, handle) = (Arc::clone(&mount), signals.handle());
        std::thread::spawn(move || {
            if let Err(error) = mounted.wait() {
                tracing::error!(%error, "the mount failed");
            }
            handle.close();
        });
        let signal = signals.forever().next();
        if let Some(signal) = signal {
            say(format_args!(
                "unmounting ({})",
                signal_hook::low_level::signal_name(signal).unwrap_or("signal")
            ));
        } else {
            say(format_args!("unmounted by somebody else"));
        }
        let began = Instant::now();
        mount.unmount()?;
        machine.stop()?;
        say(format_args!("everything is durable ({} ms)", began.elapsed().as_millis()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Tells whoever started this. That nobody reads it any more is no reason to stop.
fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}
