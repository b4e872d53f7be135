//! Where things are: unless the command line says otherwise (XDG base directories).

use crate::Failure;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Mounts that are told of.
const MOUNTS_TOLD: usize = 3;

/// The data directory: `$LEASEHOLD_DATA`, `$XDG_DATA_HOME/leasehold`, or
/// `~/.local/share/leasehold`.
pub fn data() -> Result<PathBuf, Failure> {
    let said = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (said("LEASEHOLD_DATA"), said("XDG_DATA_HOME")) {
        (Some(path), _) => Ok(path),
        (None, Some(path)) => Ok(path.join("leasehold")),
        (None, None) => Ok(home("--data DIR")?.join(".local/share/leasehold")),
    }
}

/// The mount point: `~/Leasehold`.
pub fn mount() -> Result<PathBuf, Failure> {
    Ok(home("--mount DIR")?.join("Leasehold"))
}

/// This host's name, up to the first dot; only what names of machines are made of.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = name.split('.').next().unwrap_or_default();
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name.chars().filter(fits).take(64).collect();
    if name.is_empty() { "machine".to_owned() } else { name }
}

/// A service has none: its files are nowhere by default, and not in the root directory.
fn home(instead: &str) -> Result<PathBuf, Failure> {
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| format!("HOME is not set: say where, with {instead}").into())
}

/// A path from the root of the file system, where people may say one below the mount of the machine
/// on `data`.
pub fn below_root(data: &Path, path: String) -> String {
    let mounted_on = node::ask_status(data).ok().flatten().and_then(|status| status.mounted_on);
    let (Some(dir), Ok(absolute)) = (mounted_on, std::path::absolute(&path)) else { return path };
    let below = absolute.strip_prefix(&dir).ok().and_then(Path::to_str);
    below.map_or_else(|| path.clone(), |below| format!("/{below}"))
}

/// Where file systems of leasehold are mounted on this machine.
pub fn mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_, dir, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "fuse.leasehold").then(|| dir.to_owned())
    });
    ours.collect()
}

/// What is said where no machine is up: it may be another user's, or have another data directory.
pub fn elsewhere() -> Option<String> {
    let mut mounts = mounts();
    if mounts.len() > MOUNTS_TOLD {
        let more = mounts.len() - MOUNTS_TOLD;
        mounts.truncate(MOUNTS_TOLD);
        mounts.push(format!("{more} other directories"));
    }
    (!mounts.is_empty()).then(|| {
        format!(
            "a machine is mounted on {}: its data directory is another (--data DIR), or another user's",
            mounts.join(", ")
        )
    })
}
