//! Handles and content.

use bytes::Bytes;
use client::{AllocateMode, call};
use file_service::{Observed, OpenedHandle};
use namespace::{AttributeChange, CAPABILITY_LABEL, Cred, Error};
use std::sync::Arc;

use super::handle::opening;
use super::{Drop, Front, Handle, Opened, Outcome, ReadRequest, Writes, or_reply};
use crate::errno::Errno;
use crate::groups::Asker;
use crate::nodes::ROOT;
use crate::syscall;

/// Bytes of the kernel's smallest page. A request that is no multiple of that fills no page.
const PAGE: u64 = 4096;

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
                Ok(OpenedHandle { keep_pages, uncached }) => {
                    Opened { handle: front.handles.next(flags, uncached), keep_pages }
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
        ReadRequest { handle, offset, length, flags }: ReadRequest,
        reply: impl FnOnce(Outcome<Vec<Bytes>>) + Send + 'static,
    ) {
        // Trap: mapped content is kept in pages however the file was opened, and is read in
        // requests of whole pages.
        let whole_pages = offset % PAGE == 0 && u64::from(length) % PAGE == 0;
        let kept = handle.is_paged() || (whole_pages && !syscall::reads(asker.pid, node));
        if kept {
            self.nodes.page(node);
            self.mapped.paged(node);
        }
        if kept && flags & libc::O_DIRECT == 0 {
            self.beside.paged(node);
        }
        let quietly = flags & libc::O_NOATIME != 0;
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        let call = call::Read { file, offset, length, kept, quietly };
        self.call(node, asker, call, move |front, told| {
            // The kernel takes the end of a short answer for the file's, if it knows of another.
            let is_short = |parts: &Vec<Bytes>| parts.iter().map(Bytes::len).sum::<usize>() < length as usize;
            if told.as_ref().is_ok_and(is_short) && !front.nodes.has_attributes(node) {
                front.intake.tells(node, asker.pid);
            }
            reply(told.map_err(Errno::from));
        });
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
        if how != Writes::Direct {
            self.nodes.page(node);
        }
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
                    Writes::Paged | Writes::Append | Writes::WriteBack => None,
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
