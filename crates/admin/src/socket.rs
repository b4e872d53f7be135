//! The control socket as a file: its owner, and the users that may call. Two things guard it: its
//! own mode, independent of the umask and the directory's mode, and the caller's user as the kernel
//! reports it.

use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Uid, geteuid};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The number of callers that may wait to be accepted.
const BACKLOG: i32 = 64;

/// Listens at `socket`, where no other process listens.
pub fn bind(socket: &Path) -> Result<UnixListener> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        // This process holds the data directory's lock: the process that left a socket is dead.
        Ok(()) | Err(_) => {}
    }
    let (_dir, short) = at(socket)?;
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The mode is set before the socket has a name: binding gives the name the socket's own mode.
    fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(&short)?)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener.into())
}

/// Connects to the process that listens at `socket`.
pub fn connect(socket: &Path) -> Result<UnixStream> {
    let (_dir, short) = at(socket)?;
    UnixStream::connect(short)
}

/// Accepts the next caller. A caller that is neither root nor this process's user is an error.
pub fn accept(listener: &UnixListener) -> Result<UnixStream> {
    let (stream, _) = listener.accept()?;
    let caller = socket_peercred(&stream)?;
    if may_ask(caller.uid, geteuid()) {
        return Ok(stream);
    }
    tracing::warn!(user = caller.uid.as_raw(), "a user who may not asks at the control socket");
    Err(Error::from(ErrorKind::PermissionDenied))
}

fn may_ask(caller: Uid, owner: Uid) -> bool {
    caller.is_root() || caller == owner
}

/// A short path to `socket`, through a descriptor of its directory. Socket addresses hold 107
/// bytes, and data directories may be deeper.
fn at(socket: &Path) -> Result<(File, PathBuf)> {
    let dir = File::open(socket.parent().unwrap_or(Path::new(".")))?;
    let name = socket.file_name().unwrap_or_default();
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok((dir, short))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_else_gets_in_whatever_the_umask_is() {
        rustix::process::umask(Mode::empty());
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control");
        for _ in 0..2 {
            // This also works where the last process left a socket.
            let listener = bind(&socket).unwrap();
            assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
            let _caller = connect(&socket).unwrap();
            accept(&listener).unwrap();
        }
        let [root, owner, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert_eq!([root, owner, other].map(|caller| may_ask(caller, owner)), [true, true, false]);
        assert!(!may_ask(owner, root));
    }
}
