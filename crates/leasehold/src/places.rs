//! Default places of files (XDG base directories).

use crate::Failure;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Mounts that a message names, at most.
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

/// The name of a machine on this host, unless the command line says another.
pub fn host_name() -> String {
    machine_name(&rustix::system::uname().nodename().to_string_lossy())
}

/// Makes a machine's name of a host's: the part up to the first dot, of allowed characters only.
fn machine_name(host: &str) -> String {
    let fits = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = host.chars().take_while(|c| *c != '.').filter(fits).take(64).collect();
    match name.bytes().all(|byte| byte.is_ascii_digit()) {
        true if name.is_empty() => "machine".to_owned(),
        // A bare number would name a machine by its number.
        true => format!("machine-{name}").chars().take(64).collect(),
        false => name,
    }
}

/// Returns a directory below the home. A service has no home: then there is no default, and not the
/// root directory.
fn home(instead: &str) -> Result<PathBuf, Failure> {
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| format!("HOME is not set: say where, with {instead}").into())
}

/// Returns `path` without symbolic links, as far as it exists.
pub fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let existing = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let Some((above, real)) = existing else { return Ok(path) };
    let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
    // A join with nothing would add a slash.
    Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
}

/// Fails if backups in `to` would be kept on the file system mounted at `mount`, whose content they
/// are.
pub fn is_beside(to: &Path, mount: &Path) -> Result<(), Failure> {
    if !resolved(to)?.starts_with(resolved(mount)?) {
        return Ok(());
    }
    let text = format!(
        "{} is on the file system itself, mounted on {}, which a backup is to outlive: keep backups on another disk",
        to.display(),
        mount.display()
    );
    Err(text.into())
}

/// Returns a path from the root of the file system. `path` may also be one below the mount of the
/// machine on `data`.
pub fn below_root(data: &Path, path: String) -> String {
    let mounted_on = admin::ask_status(data).ok().flatten().and_then(|status| status.mounted_on);
    let (Some(dir), Ok(absolute)) = (mounted_on, std::path::absolute(&path)) else { return path };
    let below = absolute.strip_prefix(&dir).ok().and_then(Path::to_str);
    below.map_or_else(|| path.clone(), |below| format!("/{below}"))
}

/// Returns where file systems of leasehold are mounted on this machine.
pub fn mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_, dir, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "fuse.leasehold").then(|| dir.to_owned())
    });
    ours.collect()
}

/// Returns a hint where no machine is up: it may be another user's, or have another data directory.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_as_far_as_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        fs::create_dir(real.join("there")).unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        for (path, is) in [("link", "there"), ("link/a/b", "there/a/b"), ("there", "there"), ("none", "none")]
        {
            assert_eq!(resolved(&real.join(path)).unwrap(), real.join(is));
        }
        let (mount, link) = (real.join("there"), real.join("link"));
        assert!(is_beside(&real.join("backups"), &mount).is_ok());
        assert!(is_beside(&real.join("there-too"), &mount).is_ok());
        for within in [mount.clone(), mount.join("backups/daily"), link.join("new")] {
            assert!(is_beside(&within, &mount).is_err() && is_beside(&within, &link).is_err());
        }
    }

    #[test]
    fn a_machine_is_called_as_its_host_as_far_as_a_machine_can() {
        let long = "1".repeat(80);
        let hosts = ["first", "desk.lab.example", "b\u{fc}ro_2", "", ".", "42", "3f2a", &long];
        let names = ["first", "desk", "bro_2", "machine", "machine", "machine-42", "3f2a"];
        let found: Vec<String> = hosts.into_iter().map(machine_name).collect();
        assert_eq!(found[..names.len()], names);
        assert!(found.iter().all(|name| directory::is_machine_name(name)), "{found:?}");
    }
}
