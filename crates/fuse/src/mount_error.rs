//! The reasons for which there is no mount, or no unmount.

use std::io;
use std::path::{Path, PathBuf};

use crate::mountpoint;

/// The reasons for which there is no mount, or no unmount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The directory cannot be used.
    #[error("cannot use {} to mount on: it must be a directory that you may enter, or be made; choose another", dir.display())]
    Mountpoint {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Leasehold is already mounted there.
    #[error("{} is mounted already: leasehold down ends what is, or choose another directory to mount on", dir.display())]
    Taken {
        /// The directory.
        dir: PathBuf,
    },
    /// The kernel, or fusermount3, refused.
    #[error("cannot mount on {}{}", dir.display(), advice(source))]
    Refused {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No file system of Leasehold is mounted there.
    #[error("no file system of leasehold is mounted on {}", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },
    /// The mount is in use.
    #[error("cannot unmount {}, which {} uses", dir.display(), users(dir))]
    Busy {
        /// The directory.
        dir: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Only root may mount for other users, unless the machine's settings let everybody.
    #[error(
        "only root may mount for other users: have root put the line user_allow_other into {FUSE_CONF}, or mount without --allow-other"
    )]
    NotForOthers,
    /// No thread could be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// The machine's setting whether users may mount for others.
const FUSE_CONF: &str = "/etc/fuse.conf";

fn users(dir: &Path) -> String {
    let users = mountpoint::users(dir).join(", ");
    if users.is_empty() { "something".to_owned() } else { users }
}

/// Advice for a mount that was refused.
fn advice(error: &io::Error) -> &'static str {
    let device = Path::new("/dev/fuse");
    match error.kind() {
        _ if !device.exists() => {
            ": there is no /dev/fuse; root loads the kernel's module (modprobe fuse), a container is given the device"
        }
        io::ErrorKind::NotFound => {
            ": fusermount3 is not installed, by which users mount who are not root (Debian: fuse3)"
        }
        io::ErrorKind::PermissionDenied => {
            ": /dev/fuse may not be opened, or fusermount3 may not mount; root may, or whoever /dev/fuse and the directory let"
        }
        _ => "",
    }
}

/// Checks that this process may mount for other users. A user other than root may only with
/// `user_allow_other`.
pub fn may_mount_for_others() -> Result<(), MountError> {
    let allows = |text: String| text.lines().any(|line| line.trim() == "user_allow_other");
    let allowed =
        rustix::process::geteuid().is_root() || std::fs::read_to_string(FUSE_CONF).is_ok_and(allows);
    if allowed { Ok(()) } else { Err(MountError::NotForOthers) }
}
