//! One try at a call on content.

use super::{Need, Progress, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::knowledge::KnownContent;
use crate::{AllocateMode, Invalidation, Now, Output, Reply, call};
use bytes::Bytes;
use content::{FileContent, SYNCED_BYTES_MAX, Unreadable};
use ident::FileId;
use lease::{Field, Kind, Label, Lease, Mode, Released};
use namespace::{Cred, Error, FileKind, Knowledge, Known, Operation, Timestamp, Verdict, operation};
use std::ops::Range;

type Tried = Result<Reply, Stop>;

/// The age at which an access time moves although the file did not change.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// Permission bits, as in one digit of the mode.
const READ_OR_EXECUTE: [u8; 2] = [4, 1];

/// The modes of handles beside which nobody writes behind a cache.
const ACCESSES: [Mode; 3] = [Mode::AccessRead, Mode::AccessWrite, Mode::AccessDelete];

/// The largest size of a file. Offsets are signed at every front door.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The data of a write call.
pub(crate) struct Write {
    /// The caller's offset.
    pub offset: u64,
    pub data: Bytes,
    /// The data belongs at the end of the file, wherever that is.
    pub append: bool,
}

impl Write {
    fn begins(&self, size: u64) -> u64 {
        if self.append { size } else { self.offset }
    }

    /// The end of the written range, if a file of `size` bytes can have it.
    pub(crate) fn end(&self, size: u64) -> Option<u64> {
        self.begins(size).checked_add(self.data.len() as u64).filter(|end| *end <= SIZE_MAX)
    }
}

impl Client {
    /// The content of `file`, ready to read or write, if its lease and its extents are here.
    pub(crate) fn content(&mut self, file: &FileId, kind: Kind) -> Result<&mut FileContent, Stop> {
        let Some(known) = self.files.get_mut(file) else { return Err(want_content(file, kind)) };
        if known.gone {
            return Err(Stop::Error(Error::Stale));
        }
        if !known.covers(&Field::Content, kind) || matches!(known.content, KnownContent::Unknown) {
            return Err(want_content(file, kind));
        }
        known.recent = true;
        if let KnownContent::Head(head, inline) = &mut known.content {
            let content = if head.size == 0 {
                FileContent::empty(*head)
            } else if let Some(bytes) = inline.take() {
                FileContent::new(*head, Some(bytes.into_vec()), None)
            } else {
                return Err(Stop::Need(Need::Extents { file: file.clone(), from: 0 }));
            };
            known.content = KnownContent::Open(Box::new(content));
        }
        match &mut known.content {
            KnownContent::Open(content) => Ok(content),
            KnownContent::Head(..) | KnownContent::Unknown => Err(want_content(file, kind)),
        }
    }

    pub(crate) fn read(
        &mut self,
        now: Now,
        file: &FileId,
        (offset, length): (u64, u32),
        kept: bool,
    ) -> Tried {
        // Trap: the kernel may let a program change mapped pages, and report that late. So while
        // any handle here may write, a read needs the write lease.
        let kind = if self.may_be_mapped(file) { Kind::Write } else { Kind::Read };
        let content = self.content(file, kind)?;
        let mut parts = Vec::new();
        content.read(offset, length, &mut parts).map_err(|e| unreadable(file, e))?;
        if !kept {
            let head = content.head();
            self.ping_pong.note_read(now.time, file, &head);
        }
        Ok(Reply::Data(parts))
    }

    /// Moves the access time as Linux' relatime does: if the file changed since the last read, or a
    /// day later.
    ///
    /// The time moves only where the client can log it at once. No call waits for an access time,
    /// and no lease is recalled for one. For files that ping-pong, and for reported values, it
    /// moves later ([`crate::knowledge::Accesses`]). Reads that the kernel serves from its pages
    /// never arrive here, as with NFS.
    pub(crate) fn accessed(&mut self, now: Now, file: &FileId) {
        if self.rights().read_only {
            return;
        }
        let Some(known) = self.files.get(file) else { return };
        let Some(attributes) = known.attributes.filter(|_| known.held.covers(&Field::Attributes, Kind::Read))
        else {
            return;
        };
        let head = known.content.head().map(|head| head.mtime.max(head.ctime));
        let times = known.times.as_ref().map(|times| times.mtime.max(times.ctime));
        let changed = [head, times].into_iter().flatten().fold(attributes.ctime, Timestamp::max);
        let atime = self.accesses.shown(file, &attributes);
        let due = atime <= changed || now.wall.secs.saturating_sub(atime.secs) >= RELATIME_SECS;
        if !due || known.gone || !self.may_have_read(file, attributes.uid) {
            return;
        }
        // While the server does an operation for this client, nothing is logged either.
        if self.is_told || self.ping_pong.has(now.time, file) || self.require_quiet().is_err() {
            self.accesses.note(now.time, file, now.wall, attributes.ctime);
        } else {
            // A refusal means that the file is gone, and then its access time does not matter.
            let _ = self.decide(now, operation::Accessed { file: file.clone(), time: now.wall }.into());
        }
    }

    /// Whether this machine's squashed user may read or run `file` of `owner`. Otherwise the server
    /// would refuse the access time.
    fn may_have_read(&self, file: &FileId, owner: u32) -> bool {
        let Some(uid) = self.rights().squash.filter(|uid| *uid != 0) else { return true };
        let cred = self.rights().cred(&Cred { uid, ..Cred::default() });
        let may = |mask: &u8| {
            let operation =
                Operation::Access(operation::Access { file: file.clone(), mask: *mask, cred: cred.clone() });
            matches!(namespace::decide(&operation, &self.files), Verdict::Done { .. })
        };
        owner == uid || READ_OR_EXECUTE.iter().any(may)
    }

    /// Covers what clients of a front door cache. See [`call::Cover`]. To cover takes nothing from
    /// other machines that may cache, too, unless the caller empties the file.
    pub(crate) fn cover(
        &mut self,
        waiting: &mut Waiting,
        file: &FileId,
        (write, empties): (bool, bool),
    ) -> Tried {
        self.content(file, if empties { Kind::Write } else { Kind::Read })?;
        let has_written = !empties && self.files.holds(file, &Field::Content, Kind::Write);
        if write && !has_written {
            self.inquire(waiting, file)?;
        }
        let write = write && (self.is_alone_with(file) || has_written);
        let kind = if write { Kind::Write } else { Kind::Read };
        let version = self.content(file, kind)?.head().version;
        if !self.files.holds(file, &Field::Locks, kind) {
            let operation =
                Operation::Access(operation::Access { file: file.clone(), mask: 0, cred: Cred::default() });
            let wants = vec![Lease::new(file.clone(), Field::Locks, kind)];
            return Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }));
        }
        self.covered.insert(file, |file| self.files.get(file).is_some());
        let handles = self.files.get(file).and_then(|known| known.handles.as_ref());
        Ok(Reply::Covered { write, handles: handles.map_or(0, |handles| handles.count()), version })
    }

    /// Asks whether other machines have the file open to read, write or delete: for one mode after
    /// the other, and once. The question breaks no handle caching. A machine that has no such
    /// handle says so, and of one that has, nothing is heard.
    fn inquire(&mut self, waiting: &mut Waiting, file: &FileId) -> Result<(), Stop> {
        let mut asked = match waiting.progress {
            Progress::Inquired(asked) => asked,
            _ => lease::OpenModes::CLOSED,
        };
        if self.is_alone_with(file) {
            return Ok(());
        }
        for field in ACCESSES.map(Field::Mode) {
            match self.files.others(file, &field) {
                Known::Used(false) => {}
                Known::Unknown if !asked.has(&field) => {
                    asked.set(&field, true);
                    waiting.progress = Progress::Inquired(asked);
                    waiting.spares = true;
                    let access = operation::Access { file: file.clone(), mask: 0, cred: Cred::default() };
                    return Err(self.want(access.into(), file, field));
                }
                Known::Used(true) | Known::Unused | Known::Unknown => break,
            }
        }
        Ok(())
    }

    /// Whether it is known that no other machine has a handle that reads, writes or deletes.
    fn is_alone_with(&self, file: &FileId) -> bool {
        let is_known_not = |field| matches!(self.files.others(file, &field), Known::Used(false));
        is_known_not(Field::Handles) || ACCESSES.into_iter().all(|mode| is_known_not(Field::Mode(mode)))
    }

    /// Covers what clients of a front door cache of an extended attribute. See [`call::Cover`].
    pub(crate) fn cover_xattr(&mut self, file: &FileId, name: Label, write: bool) -> Tried {
        let is_alone = matches!(self.files.others(file, &Field::Handles), Known::Used(false));
        let field = Field::Xattr(name.clone());
        let write = write && (is_alone || self.files.holds(file, &field, Kind::Write));
        let kind = if write { Kind::Write } else { Kind::Read };
        if !self.files.holds(file, &field, kind) {
            let cred = Cred::default();
            let operation = operation::GetXattr { file: file.clone(), name, cred }.into();
            let wants = vec![Lease::new(file.clone(), field, kind)];
            return Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }));
        }
        self.covered.insert(file, |file| self.files.get(file).is_some());
        Ok(Reply::Covered { write, handles: 0, version: 0 })
    }

    pub(crate) fn seek(&mut self, _now: Now, file: &FileId, offset: u64, hole: bool) -> Tried {
        match self.content(file, Kind::Read)?.seek(offset, hole).map_err(|e| unreadable(file, e))? {
            Some(offset) => Ok(Reply::Offset(offset)),
            None => Err(Stop::Error(Error::NotFound)),
        }
    }

    pub(crate) fn write(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        file: &FileId,
        write: Write,
        out: &mut Vec<Output>,
    ) -> Tried {
        if let Progress::Written(written) = waiting.progress {
            return Ok(Reply::Written(written));
        }
        match self.is_write_through(file, &write) {
            true => self.write_through(now, waiting, file, write, out),
            false => self.write_back(now, waiting, file, write, out),
        }
    }

    pub(crate) fn write_back(
        &mut self,
        now: Now,
        waiting: &Waiting,
        file: &FileId,
        write: Write,
        out: &mut Vec<Output>,
    ) -> Tried {
        if !self.has_room() {
            self.publish_all(now, out);
            return Err(Stop::until(WaitingFor::Room));
        }
        self.may_change(file)?;
        let size = self.content(file, Kind::Write)?.size();
        if write.end(size).is_none() {
            return Err(Stop::Error(Error::TooBig));
        }
        let offset = write.begins(size);
        let Write { offset: opinion, data, .. } = write;
        let length = data.len() as u64;
        let range = offset..offset.saturating_add(length);
        self.charge_write(now, waiting, file, &range, wire::cost_of_write(size, length))?;
        let written = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.change_content(now, file, |content| content.write(offset, data, now.wall))?;
        self.session_of_mut(file).promised.take(file, &range);
        if offset != opinion {
            // The kernel has put the appended data where it took the end to be.
            out.push(Output::RevokeUncovered(Invalidation::Pages(file.clone())));
        }
        self.publish_early(now, file, out);
        Ok(Reply::Written(written))
    }

    pub(crate) fn truncate(
        &mut self,
        now: Now,
        waiting: &Waiting,
        file: &FileId,
        size: u64,
        through_handle: bool,
    ) -> Result<(), Stop> {
        if size > SIZE_MAX {
            return Err(Stop::Error(Error::TooBig));
        }
        if !through_handle {
            let cred = waiting.cred.clone();
            self.decide(now, operation::Access { file: file.clone(), mask: 2, cred }.into())?;
        }
        let before = self.content(file, Kind::Write)?.size();
        self.change_content(now, file, |content| content.truncate(size, now.wall))?;
        if size < before {
            self.freed = Some(now.time);
            self.session_of_mut(file).break_promise(file, size..u64::MAX);
        }
        Ok(())
    }

    /// Whether all of `range` has content.
    pub(crate) fn is_written(&mut self, file: &FileId, range: &Range<u64>) -> Result<bool, Stop> {
        let content = self.content(file, Kind::Write)?;
        Ok(range.end <= content.size() && content.holes_in(range.clone()).is_empty())
    }

    /// Promises space for the parts of `range` without content. The other parts have their space
    /// already.
    fn promise(&mut self, now: Now, waiting: &Waiting, file: &FileId, range: Range<u64>) -> Result<(), Stop> {
        let content = self.content(file, Kind::Write)?;
        let (size, holes) = (content.size(), content.holes_in(range));
        let server = self.server_of(file);
        let lacks = self.servers.get(server).promised.lacks(file, holes);
        let bytes: u64 = lacks.iter().map(|part| part.end - part.start).sum();
        self.charge(now, server, waiting, (wire::cost_of_write(size, bytes), 0))?;
        let promised = &mut self.servers.get_mut(server).promised;
        lacks.into_iter().for_each(|part| promised.add(file, part));
        Ok(())
    }

    pub(crate) fn allocate(
        &mut self,
        now: Now,
        waiting: &Waiting,
        &call::Allocate { ref file, offset, length, what }: &call::Allocate,
    ) -> Tried {
        let end =
            offset.checked_add(length).filter(|end| *end <= SIZE_MAX).ok_or(Stop::Error(Error::TooBig))?;
        let size = self.content(file, Kind::Write)?.size();
        match what {
            AllocateMode::Reserve { keep_size } => {
                self.may_change(file)?;
                self.promise(now, waiting, file, offset..end)?;
                if !keep_size && end > size {
                    self.change_content(now, file, |content| content.truncate(end, now.wall))?;
                }
            }
            AllocateMode::Punch => {
                self.change_content(now, file, |content| content.punch(offset, length, now.wall))?;
                self.freed = Some(now.time);
                self.session_of_mut(file).break_promise(file, offset..end);
            }
            AllocateMode::Zero { keep_size } => {
                self.change_content(now, file, |content| content.zero(offset, length, !keep_size, now.wall))?;
            }
        }
        Ok(Reply::Nothing)
    }

    /// Makes writers wait while a recall waits for their file's content to be published.
    fn may_change(&self, file: &FileId) -> Result<(), Stop> {
        if self.revocations.holds_up_writes(file) {
            return Err(Stop::until(WaitingFor::Revocation(file.clone())));
        }
        Ok(())
    }

    /// Changes content, and updates the account of dirty bytes.
    fn change_content(
        &mut self,
        now: Now,
        file: &FileId,
        change: impl FnOnce(&mut FileContent),
    ) -> Result<(), Stop> {
        self.may_change(file)?;
        let content = self.content(file, Kind::Write)?;
        change(content);
        let (held, dirty) = (content.held_bytes(), content.is_dirty());
        self.publishing.note(file, held, dirty, now.time);
        Ok(())
    }

    /// fsync of one file, or of everything: publish content, then flush the log. Waits until all of
    /// it is durable at the server.
    pub(crate) fn sync(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        file: Option<&FileId>,
        out: &mut Vec<Output>,
    ) -> Tried {
        let (barriers, mut up_to) = match (&waiting.progress, file) {
            (Progress::Syncing { barriers, up_to }, _) => (barriers.clone(), up_to.clone()),
            (_, Some(file)) => {
                let barrier = self.publish(now, file, SYNCED_BYTES_MAX, out);
                (barrier.into_iter().map(|barrier| (file.clone(), barrier)).collect(), Vec::new())
            }
            (_, None) => (self.publish_all(now, out), Vec::new()),
        };
        if !barriers.iter().all(|(file, barrier)| self.has_published(file, *barrier)) {
            waiting.progress = Progress::Syncing { barriers: barriers.clone(), up_to };
            return Err(Stop::until(WaitingFor::Published(barriers)));
        }
        if up_to.is_empty() {
            // One server has a file and its names: an operation over files of several is shipped,
            // and durable once it is answered.
            let only = file.map(|file| self.server_of(file));
            let logs = self.servers.iter().filter(|(server, _)| only.is_none_or(|only| only == *server));
            up_to.extend(logs.map(|(server, session)| (server, session.log.last())));
        }
        let left = up_to.iter().find(|(server, last)| self.servers.get(*server).log.applied() < *last);
        if let Some((server, last)) = left.copied() {
            waiting.progress = Progress::Syncing { barriers, up_to };
            return Err(Stop::Need(Need::Applied(server, last)));
        }
        // Everything that can be durable is. A loss since the last sync is reported once.
        if self.take_unsaved(file) { Err(Stop::Error(Error::CutOff)) } else { Ok(Reply::Nothing) }
    }

    /// Releases the lease on content that cannot be learned under the lease. The front doors revoke
    /// what they have of the content, as if the server had recalled the lease.
    fn release_content(&mut self, now: Now, file: &FileId, out: &mut Vec<Output>) {
        let released = Released { file: file.clone(), field: Field::Content, keep: None };
        self.revocations.recall(self.server_of(file), vec![released]);
        self.revoke_recalled(now, out);
    }

    /// Learns extents `from..to`, or inline content, from the server's answer to the question
    /// `number`.
    ///
    /// Questions for content overtake the log, and answers may be overtaken by grants. So an answer
    /// to a question from before the present lease says nothing. The call that waits for the answer
    /// asks again.
    pub(crate) fn learn_extents(
        &mut self,
        now: Now,
        (number, file): (u64, &FileId),
        (from, to): (u64, u64),
        (extents, inline): (Vec<namespace::Extent>, Option<Vec<u8>>),
        out: &mut Vec<Output>,
    ) {
        if self.files.get(file).is_none_or(|known| number <= known.content_since) {
            return;
        }
        if to == from && inline.is_none() {
            // The server does not know of the lease.
            if self.files.holds(file, &Field::Content, Kind::Read) {
                self.release_content(now, file, out);
            }
            return;
        }
        let squashes = self.rights().squash.is_some();
        let Some(known) = self.files.get_mut(file) else { return };
        let keyless = known.content.head().is_some_and(|head| head.key.is_none());
        // The target of a symbolic link is not sealed.
        let sealed = inline.is_some() && known.attributes.is_none_or(|its| its.kind == FileKind::Regular);
        if keyless && squashes && (sealed || !extents.is_empty()) {
            // This machine's user was not allowed to read the file when its lease was granted, and
            // may be now.
            return self.release_content(now, file, out);
        }
        match &mut known.content {
            KnownContent::Open(content) => content.learn(from, to, extents),
            KnownContent::Head(_, known @ None) if inline.is_some() => {
                *known = inline.map(Vec::into_boxed_slice)
            }
            KnownContent::Head(head, None) if from == 0 => {
                let content = FileContent::new(*head, None, Some((extents, to)));
                known.content = KnownContent::Open(Box::new(content));
            }
            KnownContent::Head(..) | KnownContent::Unknown => {}
        }
    }
}

/// The stop of a call that needs the lease on a file's content.
pub(crate) fn want_content(file: &FileId, kind: Kind) -> Stop {
    let operation =
        Operation::Access(operation::Access { file: file.clone(), mask: 0, cred: Cred::default() });
    let wants = vec![Lease::new(file.clone(), Field::Content, kind)];
    Stop::Need(Need::Leases { operation: Box::new(operation), wants })
}

fn unreadable(file: &FileId, why: Unreadable) -> Stop {
    match why {
        Unreadable::NeedExtents { from } => Stop::Need(Need::Extents { file: file.clone(), from }),
        Unreadable::Damaged(_) => Stop::Error(Error::Damaged),
    }
}

#[cfg(test)]
mod tests;
