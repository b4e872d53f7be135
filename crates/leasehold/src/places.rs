//! Where things are unless the command line says otherwise (XDG base directories).

use std::env;
use std::path::PathBuf;

/// The data directory: `$XDG_DATA_HOME/leasehold`, or `~/.local/share/leasehold`.
pub fn data() -> PathBuf {
    match env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(path) => path.join("leasehold"),
        None => home().join(".local/share/leasehold"),
    }
}

/// The mount point: `~/Leasehold`.
pub fn mount() -> PathBuf {
    home().join("Leasehold")
}

/// This host's name, up to the first dot; only what names of machines are made of.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = name.split('.').next().unwrap_or_default();
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = name.chars().filter(fits).take(64).collect();
    if name.is_empty() { "machine".to_owned() } else { name }
}

fn home() -> PathBuf {
    env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}
