//! The quarantine: damaged data of servers on this machine, kept for people to look at. No code
//! here uses it again or removes it.
//!
//! ```text
//! server.damaged-SECONDS/       the former server/, UTC seconds
//! server.damaged-SECONDS/why    the damage that was found
//! ```

use crate::error::{DataError, io};
use crate::server_files::MARK;
use crate::small::sync_dir;
use os::private;
use os::utc_secs;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const PREFIX: &str = "server.damaged-";

/// Moves the server's data in `dir` into quarantine. Returns where it is.
pub fn put(dir: &Path, why: &str) -> Result<PathBuf, DataError> {
    let server = dir.join("server");
    let free = |at: &u64| !dir.join(format!("{PREFIX}{at}")).exists();
    let at = (utc_secs()..).find(free).unwrap_or_default();
    let quarantine = dir.join(format!("{PREFIX}{at}"));
    // The directory itself may be missing.
    private::make_dir(&server).map_err(io("make", &server))?;
    let note = server.join("why");
    // For people. Without it, the log has the reason.
    let file = private::options().write(true).create(true).truncate(true).open(&note);
    let _ = file.and_then(|mut file| writeln!(file, "{why}"));
    fs::rename(&server, &quarantine).map_err(io("put aside", &server))?;
    // If it stays it does no harm: it goes before there is another server.
    let _ = fs::rename(dir.join(MARK), quarantine.join(MARK));
    sync_dir(dir)?;
    Ok(quarantine)
}

/// Returns the quarantine directories of the machine in `dir`.
pub fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut quarantine: Vec<PathBuf> =
        entries.filter(|e| e.file_name().to_string_lossy().starts_with(PREFIX)).map(|e| e.path()).collect();
    quarantine.sort_unstable();
    quarantine
}
