//! Where things are unless the command line says otherwise (XDG base directories).

use crate::Failure;
use std::env;
use std::path::PathBuf;

/// The data directory: `$LEASEHOLD_DATA`, `$XDG_DATA_HOME/leasehold`, or `~/.local/share/leasehold`.
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
