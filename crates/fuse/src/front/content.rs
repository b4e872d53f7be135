//! Handles and content.

use bytes::Bytes;
use client::{AllocateMode, call};
use file_service::{Observed, OpenedHandle};
use lease::{Mode, Open};
use namespace::{AttributeChange, CAPABILITY_LABEL, Cred, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Drop, Front, Outcome, or_reply};
use crate::errno::Errno;
use crate::groups::Asker;
use crate::nodes::ROOT;
use crate::syscall;

/// Bytes of the kernel's smallest page. A request that is no multiple of that fills no page.
const PAGE: u64 = 4096;

/// `FMODE_EXEC`, which the kernel leaves in the flags of an open for execve.
const FOR_EXEC: i32 = 0x20;

/// The handle that the kernel brings back with each use of an open file. It has all that we need,
/// so there is no table of handles. The lowest byte is how the file was opened. The next bit is
/// whether reads are kept in pages. The rest tells handles apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u64);

/// The bit of a [`Handle`] for reads that are kept in pages.
const PAGED: u64 = 1 << 8;

/// Tells handles apart.
#[derive(Default)]
pub(crate) struct Handles(AtomicU64);

impl Handles {
    /// A new handle for a file opened with `flags`. A file that `passes`, which is in ping-pong, is
    /// read and written past the kernel's pages, since they would be dropped before each use. So is
    /// a file opened to append. Trap: the kernel writes through pages that it has not read one at a
    /// time, and between the two requests of one append another machine appends.
    pub(crate) fn next(&self, flags: i32, passes: bool) -> Handle {
        let open = opening(flags).0;
        let appends = flags & libc::O_APPEND != 0 && open.has_mode(Mode::AccessWrite);
        let paged = if passes || appends { 0 } else { PAGED };
        Handle(self.0.fetch_add(1, Relaxed) << 9 | paged | u64::from(open.bits()))
    }
}

/// The way of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Through the kernel's pages, which keep the data as well.
    Paged,
    /// With O_DIRECT.
    Direct,
    /// At the file's end, wherever that is.
    Append,
    /// Data that a program has changed in a page.
    Back,
}

/// An open file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: Handle,
    /// Pages of this file in the kernel are still right.
    pub(crate) keep_pages: bool,
}

impl Handle {
    /// How the file was opened. An unknown handle counts as one without modes.
    fn open(self) -> Open {
        Open::try_from(self.0 as u8).unwrap_or(Open::with([]))
    }

    /// Whether the file is read and written through the kernel's pages. Mappings are in any case.
    pub(crate) fn is_paged(self) -> bool {
        self.0 & PAGED != 0
    }
}

/// How a file is opened, and the permissions that takes. Access mode 3 is Linux' "neither, but
/// ioctl".
pub(crate) fn opening(flags: i32) -> (Open, u8) {
    let read = matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR);
    let write = matches!(flags & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR);
    // Executing reads the file and needs no read permission; the kernel has checked the one to
    // execute.
    let mask = 4 * u8::from(read && flags & FOR_EXEC == 0) + 2 * u8::from(write);
    (Open::posix(read, write), mask)
}

impl Front {
    /// Opens a file. A truncation comes before, as a request of its own.
    ///
    /// Trap: MAP_SHARED writes reach us late. While a file is open for writing the client serves
    /// its reads under the content write lease only.
    pub(crate) fn open(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        flags: i32,
        reply: impl FnOnce(Outcome<Opened>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let (open, mask) = opening(flags);
        self.ask(node, asker, call::OpenFile { file, open, mask }, move |front, told| {
            let opened = match told {
                Ok(OpenedHandle { keep_pages, passing }) => {
                    Opened { handle: front.handles.next(flags, passing), keep_pages }
                }
                Err(error) => return reply(Err(error.into())),
            };
            // From here on a mapping may fill the file's holes.
            if front.mapped.opened(node, open) && front.nodes.is_sparse(node) {
                front.after_dropping(node, Drop::Attributes, move |_| reply(Ok(opened)));
            } else {
                reply(Ok(opened));
            }
        });
    }

    pub(crate) fn release(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        handle: Handle,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        self.unlock_handle(asker, node, handle, move |front| {
            front.mapped.closed(node, handle.open());
            let call = call::Close { file, open: handle.open() };
            front.call(node, asker, call, move |_, told| reply(told.map_err(Errno::from)));
        });
    }

    pub(crate) fn read(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        handle: Handle,
        (offset, length): (u64, u32),
        flags: i32,
        reply: impl FnOnce(Outcome<Vec<Bytes>>) + Send + 'static,
    ) {
        // Trap: mapped content is kept in pages however the file was opened, and is read in
        // requests of whole pages.
        let whole_pages = offset % PAGE == 0 && u64::from(length) % PAGE == 0;
        let kept = handle.is_paged() || (whole_pages && !syscall::reads(asker.pid, node));
        if kept {
            self.mapped.paged(node);
        }
        if kept && flags & libc::O_DIRECT == 0 {
            self.beside.paged(node);
        }
        let quietly = flags & libc::O_NOATIME != 0;
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let call = call::Read { file, offset, length, kept, quietly };
        self.call(node, asker, call, move |_, told| reply(told.map_err(Errno::from)));
    }

    /// Writes `data`. For an append, `offset` is only the kernel's opinion. Trap: with O_APPEND the
    /// data goes to the authoritative end of the file.
    pub(crate) fn write(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        (offset, data): (u64, Bytes),
        how: Writes,
        reply: impl FnOnce(Outcome<u32>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let length = data.len() as u64;
        if how == Writes::Paged {
            self.mapped.paged(node);
            self.beside.paged(node);
        }
        let call = call::Write { file, offset, data, append: how == Writes::Append };
        let front = Arc::clone(self);
        let write = move || front.put(asker, node, call, (offset, length), how, reply);
        if how == Writes::Append { self.appends.come(node, asker.pid, length, write) } else { write() }
    }

    fn put(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        call: call::Write,
        (offset, length): (u64, u64),
        how: Writes,
        reply: impl FnOnce(Outcome<u32>) + Send + 'static,
    ) {
        self.after_taking_privileges(asker, node, how, move |front| {
            front.call(node, asker, call, move |front, told| {
                let written = told.map_err(Errno::from);
                if how == Writes::Append {
                    front.appends.done(node, asker.pid, written.is_err());
                }
                let due = match how {
                    Writes::Direct => front.beside.written(node, offset, length),
                    Writes::Paged | Writes::Append | Writes::Back => None,
                };
                match due {
                    Some(pages) => front.after_dropping(node, pages, move |_| reply(written)),
                    None => reply(written),
                }
            });
        });
    }

    /// fsync and fsyncdir. On the mount's root it makes everything durable, for users to ask for
    /// that. The kernel sends syncfs to file systems on block devices only.
    pub(crate) fn sync(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let then = move |front: &Arc<Front>, told: Result<(), Error>| {
            // A directory that is gone has nothing left to be made durable.
            let is_gone = matches!(told, Err(Error::Stale)) && front.nodes.removed_directory(node).is_some();
            reply(if is_gone { Ok(()) } else { told.map_err(Errno::from) });
        };
        match node {
            ROOT => self.call(node, asker, call::SyncAll, then),
            _ => self.call(node, asker, call::Sync { file }, then),
        }
    }

    pub(crate) fn allocate(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        range: (u64, u64),
        what: AllocateMode,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let call = call::Allocate { file, offset: range.0, length: range.1, what };
        // The kernel does not say so for this request.
        let asker = Asker { keeps_set_ids: asker.uid == 0, ..asker };
        self.after_clearing_setid(asker, node, move |front| {
            front.call(node, asker, call, move |_, told| reply(told.map_err(Errno::from)));
        });
    }

    pub(crate) fn seek(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        offset: u64,
        hole: bool,
        reply: impl FnOnce(Outcome<u64>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        self.after_writing_back(node, move |front| {
            front.call(node, asker, call::Seek { file, offset, hole }, move |_, told| {
                reply(match told {
                    Err(Error::NotFound) => Err(Errno(libc::ENXIO)),
                    told => told.map_err(Errno::from),
                });
            });
        });
    }

    /// Removes a program's capabilities before a write, whoever writes. For writes through its
    /// pages the kernel removes them itself, and for no others.
    fn after_taking_privileges(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        how: Writes,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        let file = match (how, self.nodes.file(node)) {
            (Writes::Direct | Writes::Append, Ok(file)) if self.nodes.may_run(node) => file,
            _ => return self.after_clearing_setid(asker, node, then),
        };
        let call = call::RemoveXattr { file, name: CAPABILITY_LABEL.clone() };
        // Few programs have any.
        self.call(node, Asker::KERNEL, call, move |front, _| front.after_clearing_setid(asker, node, then));
    }

    /// Clears a file's set-id bits before a user without privilege changes its content
    /// ([`namespace::Attributes::mode_after_write`]). We do it (`FUSE_HANDLE_KILLPRIV_V2`), since
    /// otherwise the kernel asks for `security.capability` before each write. The machine clears
    /// them and not the user, who need not be the owner.
    pub(super) fn after_clearing_setid(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        if asker.keeps_set_ids || !self.nodes.may_have_setid(node) {
            return then(self);
        }
        let Ok(file) = self.nodes.file(node) else { return then(self) };
        self.call(node, Asker::KERNEL, call::Glance { file: file.clone() }, move |front, told| {
            let Ok(Observed { value: stat, .. }) = told else { return then(front) };
            front.nodes.see(node, &stat);
            let mode = stat.attributes.mode;
            // Decided by the capabilities that can be seen: root may be without them.
            let writer = Cred { uid: u32::MAX, ..asker.known().cred };
            let cleared = stat.attributes.mode_after_write(&writer);
            if cleared == mode {
                return then(front);
            }
            let change = AttributeChange { mode: Some(cleared), ..AttributeChange::default() };
            let call = call::SetAttributes { file, change, size: None, through_handle: false };
            front.call(node, Asker::KERNEL, call, move |front, _| then(front));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes() {
        let rows = [
            (libc::O_RDONLY, (true, false), 4),
            (libc::O_WRONLY | libc::O_APPEND, (false, true), 2),
            (libc::O_RDWR, (true, true), 6),
            (libc::O_RDONLY | FOR_EXEC, (true, false), 0),
            (libc::O_ACCMODE, (false, false), 0),
        ];
        for (flags, (read, write), mask) in rows {
            assert_eq!(opening(flags), (Open::posix(read, write), mask), "{flags:o}");
            let handles = Handles::default();
            let (first, second) = (handles.next(flags, false), handles.next(flags, true));
            assert_ne!(first, second);
            assert_eq!((first.is_paged(), second.is_paged()), (flags & libc::O_APPEND == 0, false));
            assert_eq!((first.open(), second.open()), (Open::posix(read, write), Open::posix(read, write)));
        }
        assert_eq!(Handle(u64::MAX).open(), Open::with([]));
    }
}
