//! Mounts another file system in the same way as ours, to measure the cost of FUSE itself.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::mount_error::MountError;
use crate::options::Options;
use crate::transport::call::REQUEST_BYTES_MAX;
use crate::{mountpoint, transport};

pub use crate::errno::Errno;
pub use crate::groups::Asker;
pub use transport::{
    Attr, Call, EntryReply, Forget, KernelLock, KernelReply, KernelRequest, Lines, Pages, Serve, SetAttr,
    Totals,
};

/// Unmounts such a file system.
pub struct Unmount(transport::Unmounter);

impl Unmount {
    /// Unmounts.
    pub fn now(&self) -> io::Result<()> {
        self.0.unmount()
    }
}

/// Mounts `filesystem` on `dir`, calls `ready`, and serves until it is unmounted.
pub fn serve(
    filesystem: impl Serve,
    dir: &Path,
    options: &Options,
    ready: impl FnOnce(Unmount),
) -> Result<(), MountError> {
    let dir = mountpoint::prepare(dir)?;
    let failed = |source| MountError::Refused { dir: dir.clone(), source };
    let mut unserved = transport::mount_any(Arc::new(filesystem), &dir, options).map_err(failed)?;
    mountpoint::set_readahead(&dir, REQUEST_BYTES_MAX);
    ready(Unmount(unserved.unmounter()));
    unserved.serve().map_err(failed)
}
