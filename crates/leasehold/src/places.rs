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

fn home() -> PathBuf {
    env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}
