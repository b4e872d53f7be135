//! Locks. A process loses its fcntl locks whenever it closes the file. flock's locks and those of
//! open files (F_OFD_SETLK) go with the last descriptor.
//!
//! The kernel names the handle by which a lock was made, and its owner: a number for the process'
//! table of descriptors, or for the open file. It reports every close (flush) with the former, and
//! the last close (release) with the latter if flock was called on the file. For the locks of open
//! files it reports nothing at the end. So the front door remembers which owners have locked by
//! which handle. The owners that are left when the handle goes are those of open files.

use client::call;
use namespace::{Conflict, LockChange, LockRange, LockSpace};
use std::sync::Arc;

use super::lockers::Locker;
use super::{Front, Handle, LockRequest, Outcome, or_reply};
use crate::errno::Errno;
use crate::groups::Asker;

impl Front {
    /// Locks or unlocks.
    pub(crate) fn set_lock(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        request: LockRequest,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let LockRequest { handle, owner, pid, space, range, kind, wait } = request;
        if kind.is_some() {
            self.lockers.remember(node, Locker { owner, space, handle });
        }
        let change = LockChange { owner, pid, space, range, kind };
        self.call(node, asker, call::Lock { file, change, wait }, move |_, told| {
            reply(told.map_err(Errno::from))
        });
    }

    /// Answers `fcntl(F_GETLK)`: the lock that is in the way.
    pub(crate) fn get_lock(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        request: LockRequest,
        reply: impl FnOnce(Outcome<Option<Conflict>>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let LockRequest { owner, range, kind, .. } = request;
        let Some(kind) = kind else { return reply(Ok(None)) };
        let call = call::GetLock { file, owner, space: LockSpace::Posix, range, kind };
        self.call(node, asker, call, move |_, told| reply(told.map_err(Errno::from)));
    }

    /// A descriptor was closed: its process loses all fcntl locks on the file. Trap: with
    /// FOPEN_NOFLUSH this would not come.
    pub(crate) fn flush(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        owner: u64,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let lost = |locker: &Locker| locker.owner == owner && locker.space == LockSpace::Posix;
        let lost = self.lockers.forget(node, lost);
        self.unlock_all(asker, node, lost, move |_| reply(Ok(())));
    }

    /// The last descriptor was closed: all locks made by this handle that are left go with it.
    pub(super) fn unlock_handle(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        handle: Handle,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        let lost = self.lockers.forget(node, |locker| locker.handle == handle);
        self.unlock_all(asker, node, lost, then);
    }

    /// Unlocks all locks of these owners, one after the other.
    fn unlock_all(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        mut lockers: Vec<Locker>,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        let (Some(Locker { owner, space, .. }), Ok(file)) = (lockers.pop(), self.nodes.file(node)) else {
            return then(self);
        };
        let change = LockChange { owner, pid: asker.pid, space, range: LockRange::WHOLE, kind: None };
        // Any answer will do: a file that is gone has no locks, and the locks of a machine that was
        // cut off went with its session.
        let call = call::Lock { file, change, wait: false };
        let then = Box::new(then) as Box<dyn FnOnce(&Arc<Front>) + Send>;
        self.call(node, Asker::KERNEL, call, move |front, _| front.unlock_all(asker, node, lockers, then));
    }
}
