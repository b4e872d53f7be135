//! One try at a call: every operation on names and attributes, decided on what the client knows.

use super::file_io::Write;
use super::{Caller, Need, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::knowledge::KnownContent;
use crate::server::ServerId;
use crate::{Call, Listed, Now, Output, Reply, Upto, call};
use ident::FileId;
use lease::{Field, Kind, Label, Lease};
use namespace::{
    Answer, AttributeChange, Cred, Entry, Error, Knowledge, Known, NewFile, Operation, RenameMode, Verdict,
    Whiteout, operation,
};
use std::ops::Bound::{Excluded, Included};
use wire::cost;

type Tried = Result<Reply, Stop>;

impl Client {
    pub(crate) fn attempt(&mut self, now: Now, waiting: &mut Waiting, out: &mut Vec<Output>) -> Tried {
        if !self.takes_last_write(&waiting.call) {
            self.require_session(now, &waiting.call)?;
        }
        if let Caller::Reopening(file) = &waiting.caller {
            return self.reopen(now, file);
        }
        let rights = self.rights();
        if rights.squash.is_some() {
            waiting.cred = rights.cred(&waiting.cred);
        }
        if rights.read_only && waiting.call.writes() {
            return Err(Stop::Error(Error::ReadOnly));
        }
        if !waiting.is_shipped() && self.is_in_doubt(&waiting.call) {
            return Err(Stop::until(WaitingFor::Quiet));
        }
        let cred = waiting.cred.clone();
        match waiting.call.clone() {
            Call::Lookup(call::Lookup { dir, label }) => self.lookup(now, waiting, dir, label),
            Call::Find(call::Find { dir, label }) => self.find(now, cred, dir, label),
            Call::Spellings(call::Spellings { dir, label }) => self.spellings(now, &dir, label, cred),
            Call::Parent(call::Parent { dir }) => self.parent(now, &dir),
            Call::Links(call::Links { file }) => self.links(&file),
            Call::Stat(call::Stat { file }) => Ok(Reply::Stat(self.stat(now, &file)?)),
            Call::Peek(call::Peek { file }) => self.peek(now, waiting, &file),
            Call::Glance(call::Glance { file }) => self.glance(&file),
            Call::Access(call::Access { file, mask }) => {
                self.decide(now, operation::Access { file, mask, cred }.into())?;
                Ok(Reply::Nothing)
            }
            Call::ReadLink(call::ReadLink { file }) => self.read_link(now, file),
            Call::Create(create) => self.create(now, waiting, create, out),
            Call::Link(link) => self.link(now, waiting, link, out),
            Call::Unlink(unlink) => self.unlink(now, cred, unlink),
            Call::Rename(rename) => self.rename(now, waiting, rename, out),
            Call::SetAttributes(set) => self.set_attributes(now, waiting, set),
            Call::OpenFile(open) => self.open(now, cred, open),
            Call::Cover(call::Cover { file, write, empties, xattr: None }) => {
                self.cover(waiting, &file, (write, empties))
            }
            Call::Cover(call::Cover { file, write, xattr: Some(name), .. }) => {
                self.cover_xattr(&file, name, write)
            }
            // Another machine uses the file, and no caller waits for this.
            Call::Accessed { .. } if waiting.keeps_losing() => Ok(Reply::Nothing),
            Call::Accessed(call::Accessed { file }) => self.access(now, &file),
            Call::SetDisposition(call::SetDisposition { file, link }) => {
                self.set_disposition(now, cred, file, link)
            }
            Call::Close(call::Close { file, open }) => self.close_handle(now, waiting, &file, open, out),
            Call::Read(call::Read { file, offset, length, kept, quietly }) => {
                let data = self.read(now, &file, (offset, length), kept)?;
                if !quietly {
                    self.accessed(now, &file);
                }
                Ok(data)
            }
            Call::Write(call::Write { file, offset, data, append }) => {
                self.write(now, waiting, &file, Write { offset, data, append }, out)
            }
            Call::Allocate(allocate) => self.allocate(now, waiting, &allocate),
            Call::Seek(call::Seek { file, offset, hole }) => self.seek(now, &file, offset, hole),
            // The kernel does not pass `syncfs` on to a FUSE file system. `sync MOUNTPOINT` arrives
            // here.
            Call::Sync(call::Sync { file }) if file == *self.root() => self.sync(now, waiting, None, out),
            Call::Sync(call::Sync { file }) => self.sync(now, waiting, Some(&file), out),
            Call::SyncAll => self.sync(now, waiting, None, out),
            Call::List(list) => self.list(now, &list),
            // Trap: no attribute is known of a file that is gone. Its absence says nothing.
            Call::GetXattr(call::GetXattr { file, .. })
                if self.files.get(&file).is_some_and(|known| known.gone) =>
            {
                Err(Stop::Error(Error::Stale))
            }
            Call::GetXattr(call::GetXattr { file, name }) => {
                self.answer(now, operation::GetXattr { file, name, cred }.into())
            }
            Call::ListXattrs(call::ListXattrs { file }) => {
                self.answer(now, operation::ListXattrs { file }.into())
            }
            Call::SetXattr(call::SetXattr { file, name, value, mode }) => {
                self.require_quiet()?;
                let operation = Operation::SetXattr(operation::SetXattr {
                    file,
                    name,
                    value,
                    mode,
                    cred,
                    time: now.wall,
                });
                self.decide_charged(now, waiting, operation)?;
                Ok(Reply::Nothing)
            }
            Call::RemoveXattr(call::RemoveXattr { file, name }) => {
                self.require_quiet()?;
                self.answer(now, operation::RemoveXattr { file, name, cred, time: now.wall }.into())
            }
            Call::Space => self.space(now, waiting),
            Call::Lock(call::Lock { file, change, wait }) => self.lock(file, change, wait),
            Call::GetLock(call::GetLock { file, owner, space, range, kind }) => {
                self.answer(now, operation::GetLock { file, owner, space, range, kind }.into())
            }
        }
    }

    /// Makes updates wait while a server does one for this client, and while a log has no room.
    pub(crate) fn require_quiet(&self) -> Result<(), Stop> {
        if self.servers.any_shipped() {
            return Err(Stop::until(WaitingFor::Quiet));
        }
        match self.servers.iter().find(|(_, session)| session.log.is_full()) {
            Some((server, session)) => Err(Stop::Need(Need::Applied(server, session.log.applied() + 1))),
            None => Ok(()),
        }
    }

    pub(crate) fn answer(&mut self, now: Now, operation: Operation) -> Tried {
        match self.decide(now, operation)? {
            Answer::Nothing => Ok(Reply::Nothing),
            Answer::Bytes(bytes) => Ok(Reply::Bytes(bytes)),
            Answer::Names(names) => Ok(Reply::Names(names)),
            Answer::Stat(stat) => Ok(Reply::Stat(stat)),
            Answer::Lock(conflict) => Ok(Reply::Lock(conflict)),
            Answer::Entry(entry) => self.node(now, entry),
            Answer::Found(entry, attributes) => Ok(Reply::Found(entry, attributes)),
        }
    }

    /// Checks whether an update could be done now.
    ///
    /// A call asks this before its first step if it has several steps, or if its reply needs more
    /// knowledge than the update. A call that stops is tried again from its beginning, so it must
    /// have done nothing.
    fn would_do(&self, operation: &Operation) -> Result<(), Stop> {
        match namespace::decide(operation, &self.files) {
            Verdict::Done { .. } => Ok(()),
            Verdict::Refused { error, .. } => Err(Stop::Error(error)),
            Verdict::Unknown { wants } => {
                Err(Stop::Need(Need::Leases { operation: Box::new(operation.clone()), wants }))
            }
        }
    }

    /// Decides an update that uses up space. A refused update costs nothing.
    fn decide_charged(&mut self, now: Now, waiting: &Waiting, operation: Operation) -> Result<Answer, Stop> {
        let (server, (bytes, files)) = (self.leader_of(&operation), cost(&operation));
        self.charge(now, server, waiting, (bytes, files))?;
        let decided = self.decide(now, operation);
        if decided.is_err() {
            self.servers.get_mut(server).allowance.add(bytes, files);
        }
        decided
    }

    fn lookup(&mut self, now: Now, waiting: &Waiting, dir: FileId, label: Label) -> Tried {
        self.used(&dir);
        let operation = Operation::Lookup(operation::Lookup { dir, label, cred: waiting.cred.clone() });
        let Answer::Entry(entry) = self.decide(now, operation.clone())? else {
            unreachable!("a lookup answers with an entry")
        };
        // The call asks for the rest of its reply by the name, in one request. By then the name may
        // stand for another file.
        let mut wants = Vec::new();
        let stat = match self.stat(now, &entry.file) {
            Err(Stop::Need(Need::Leases { wants: missing, .. })) => {
                wants = missing;
                None
            }
            stat => Some(stat?),
        };
        wants.extend(self.look_up(now, &entry));
        match stat.filter(|_| wants.is_empty()) {
            Some(stat) => Ok(Reply::Node(entry, stat)),
            None => Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants })),
        }
    }

    fn peek(&mut self, now: Now, waiting: &mut Waiting, file: &FileId) -> Tried {
        waiting.spares = true;
        Ok(Reply::Stat(self.stat(now, file)?))
    }

    fn find(&mut self, now: Now, cred: Cred, dir: FileId, label: Label) -> Tried {
        self.used(&dir);
        self.answer(now, operation::Find { dir, label, cred }.into())
    }

    fn spellings(&mut self, now: Now, dir: &FileId, label: Label, cred: Cred) -> Tried {
        self.used(dir);
        let folded = namespace::fold(&label);
        let lookup = Operation::Find(operation::Find { dir: dir.clone(), label, cred });
        match self.decide(now, lookup.clone()) {
            Ok(_) | Err(Stop::Error(Error::NotFound)) => {}
            Err(stop) => return Err(stop),
        }
        let children = self.files.get(dir).and_then(|known| known.children.as_ref());
        match children.and_then(|children| children.spellings(&folded)) {
            Some(names) => Ok(Reply::Names(names)),
            // The exact label is known, and others may differ from it in case.
            None => Err(self.want(lookup, dir, Field::Child(folded))),
        }
    }

    fn parent(&mut self, now: Now, dir: &FileId) -> Tried {
        let parent = match self.files.links(dir, Kind::Read) {
            // This machine sees nothing above its root.
            _ if dir == self.root() => dir.clone(),
            Known::Used(links) => links.first().map_or_else(FileId::root, |link| link.dir.clone()),
            Known::Unused => return Err(Stop::Error(Error::Stale)),
            Known::Unknown => {
                return Err(self.want(operation::Stat { file: dir.clone() }.into(), dir, Field::Parent));
            }
        };
        let stat = self.stat(now, &parent)?;
        let kind = stat.attributes.kind;
        Ok(Reply::Node(Entry { file: parent, kind, ino: stat.attributes.ino, position: 0 }, stat))
    }

    fn links(&self, file: &FileId) -> Tried {
        match self.files.links(file, Kind::Read) {
            Known::Used(links) => Ok(Reply::Links(links)),
            Known::Unused => Err(Stop::Error(Error::Stale)),
            Known::Unknown => {
                Err(self.want(operation::Stat { file: file.clone() }.into(), file, Field::Parent))
            }
        }
    }

    /// Wants one field to read, on behalf of `operation`.
    pub(crate) fn want(&self, operation: Operation, file: &FileId, field: Field) -> Stop {
        let wants = vec![Lease::new(file.clone(), field, Kind::Read)];
        Stop::Need(Need::Leases { operation: Box::new(operation), wants })
    }

    fn read_link(&mut self, now: Now, file: FileId) -> Tried {
        // The head may be known while the target is still at the server. Then a value is missing,
        // and no lease.
        if let Some(known) = self.files.get(&file)
            && let KnownContent::Head(head, None) = &known.content
            && head.size > 0
        {
            return Err(Stop::Need(Need::Extents { file, from: 0 }));
        }
        let target = self.answer(now, operation::ReadLink { file: file.clone() }.into())?;
        self.accessed(now, &file);
        Ok(target)
    }

    fn create(
        &mut self,
        now: Now,
        waiting: &Waiting,
        call::Create { dir, label, spec, open }: call::Create,
        out: &mut Vec<Output>,
    ) -> Tried {
        self.require_quiet()?;
        self.used(&dir);
        let ino = self.inode(&dir)?;
        let integer = self.integer(&dir);
        // Without integers at hand the request for leases goes first, and its grant brings some
        // along. The server decides with any number.
        let position = integer.unwrap_or(1);
        let file = FileId::for_child(&dir, position, ino);
        let new = NewFile { file: file.clone(), ino, spec };
        let cred = waiting.cred.clone();
        let operation = Operation::Create(operation::Create {
            dir: dir.clone(),
            label,
            position,
            new,
            cred,
            time: now.wall,
        });
        if integer.is_none() {
            return Err(self.without_integer(operation, dir));
        }
        let Answer::Entry(entry) = self.decide_charged(now, waiting, operation)? else {
            unreachable!("a create answers with an entry")
        };
        self.take_inode(&dir);
        self.take_integer(&dir, out);
        if let Some((open, known)) = open.zip(self.files.get_mut(&file)) {
            known.add_handle(open);
        }
        self.node(now, entry)
    }

    /// Finds where an operation stops that needs an integer of `dir` when none is at hand. A known
    /// refusal comes first, then missing leases, then the integer itself.
    fn without_integer(&self, operation: Operation, dir: FileId) -> Stop {
        match namespace::decide(&operation, &self.files) {
            Verdict::Done { .. } => Stop::Need(Need::Integers(dir)),
            Verdict::Refused { error, .. } => Stop::Error(error),
            Verdict::Unknown { wants } => {
                let only_server = wants.iter().any(|want| want.field == Field::Path);
                if only_server && self.files.holds(&dir, &Field::Children, Kind::Write) {
                    return Stop::Need(Need::Integers(dir));
                }
                let mut wants = wants;
                if only_server {
                    wants = vec![Lease::new(dir, Field::Children, Kind::Write)];
                }
                Stop::Need(Need::Leases { operation: Box::new(operation), wants })
            }
        }
    }

    fn link(
        &mut self,
        now: Now,
        waiting: &Waiting,
        call::Link { file, dir, label, replaced }: call::Link,
        out: &mut Vec<Output>,
    ) -> Tried {
        self.require_quiet()?;
        let integer = self.integer(&dir);
        let position = integer.unwrap_or(1);
        let cred = waiting.cred.clone();
        let time = now.wall;
        let open = replaced.as_ref().is_some_and(|replaced| self.has_open(&dir, &replaced.label));
        if replaced.is_some() {
            // As for a rename that replaces a file.
            self.publish_before(now, &file, out)?;
        }
        let operation = Operation::Link(operation::Link {
            file: file.clone(),
            dir: dir.clone(),
            label,
            replaced,
            position,
            open,
            cred,
            time,
        });
        if integer.is_none() {
            return Err(self.without_integer(operation, dir));
        }
        self.would_do(&operation)?;
        self.stat(now, &file)?;
        let Answer::Entry(entry) = self.decide_charged(now, waiting, operation)? else {
            unreachable!("a link answers with an entry")
        };
        self.take_integer(&dir, out);
        self.node(now, entry)
    }

    /// Whether this machine has the file open that `label` names. The answer is false if the name
    /// is not known: then nothing is decided yet.
    fn has_open(&self, dir: &FileId, label: &Label) -> bool {
        match self.files.child(dir, label, Kind::Read) {
            Known::Used(entry) => !self.own(&entry.file).is_closed(),
            Known::Unused | Known::Unknown => false,
        }
    }

    fn unlink(&mut self, now: Now, cred: Cred, unlink: call::Unlink) -> Tried {
        self.require_quiet()?;
        let call::Unlink { dir, label, pending, directory } = unlink;
        let lingers = self.would_linger(&self.files.child(&dir, &label, Kind::Read));
        let open = lingers.is_some() || self.has_open(&dir, &label);
        let server = self.server_of(&dir);
        let time = now.wall;
        let unlink = operation::Unlink { dir, label, pending, directory, open, cred, time };
        let reply = self.answer(now, unlink.into())?;
        Ok(self.removed(server, lingers, reply))
    }

    /// The reply of an operation that is done, by the last entry of this server's log, and has
    /// taken the last name of a file that lingers.
    fn removed(&mut self, server: ServerId, lingers: Option<FileId>, reply: Reply) -> Reply {
        let Some(file) = lingers else { return reply };
        self.lingers(server, &file);
        Reply::Lingers(file)
    }

    fn rename(
        &mut self,
        now: Now,
        waiting: &Waiting,
        call::Rename { from_dir, from, source, to_dir, to, mode, replaced: taken, whiteout }: call::Rename,
        out: &mut Vec<Output>,
    ) -> Tried {
        self.require_quiet()?;
        let moved = self.files.child(&from_dir, &from, Kind::Read);
        let lost = taken.as_ref().map_or(&to, |taken| &taken.label);
        let replaced = self.files.child(&to_dir, lost, Kind::Read);
        if let (Known::Used(moved), Known::Used(replaced)) = (&moved, &replaced) {
            // The moved file's content is published before the rename. So a crash leaves the old
            // file or the new one, never an empty one. For a rename that the server does, see
            // `Client::wait`.
            self.publish_before(now, &moved.file, out)?;
            if mode == RenameMode::Exchange {
                self.publish_before(now, &replaced.file, out)?;
            }
        }
        let lingers = self.would_linger(&replaced).filter(|file| {
            mode == RenameMode::Replace && !matches!(&moved, Known::Used(moved) if moved.file == *file)
        });
        let open = lingers.is_some() || self.has_open(&to_dir, lost);
        if whiteout && from_dir == to_dir && self.has_one_integer(&to_dir) {
            // The rename needs two integers in a row, and this block has only one left. It takes
            // them from the next block.
            self.take_integer(&to_dir, out);
        }
        let integer = self.integer(&to_dir);
        let position = integer.unwrap_or(1);
        let left = match (whiteout, from_dir == to_dir) {
            (false, _) => None,
            (true, true) => Some((position + 1, self.inode(&from_dir)?)),
            (true, false) => Some((self.integer(&from_dir).unwrap_or(1), self.inode(&from_dir)?)),
        };
        let operation = Operation::Rename(operation::Rename {
            from_dir: from_dir.clone(),
            from,
            source,
            to_dir: to_dir.clone(),
            to,
            mode,
            replaced: taken,
            position,
            whiteout: left.map(|(integer, ino)| Whiteout { integer, ino }),
            open,
            cred: waiting.cred.clone(),
            time: now.wall,
        });
        if integer.is_none() {
            return Err(self.without_integer(operation, to_dir));
        }
        if whiteout && self.integer(&from_dir).is_none() {
            return Err(self.without_integer(operation, from_dir));
        }
        let server = self.leader_of(&operation);
        let reply = self.decide_charged(now, waiting, operation.clone());
        if let Err(Stop::Need(Need::Leases { wants, .. })) = &reply
            && wants.iter().any(|want| want.field == Field::Path)
        {
            self.take_integer(&to_dir, out);
            if whiteout {
                self.take_inode(&from_dir);
                self.take_integer(&from_dir, out);
            }
            return Err(Stop::Need(Need::Ship { operation: Box::new(operation) }));
        }
        reply?;
        self.take_integer(&to_dir, out);
        if whiteout {
            self.take_inode(&from_dir);
            self.take_integer(&from_dir, out);
        }
        Ok(self.removed(server, lingers, Reply::Nothing))
    }

    fn has_one_integer(&self, dir: &FileId) -> bool {
        let children = self.files.get(dir).and_then(|known| known.children.as_ref());
        children.is_some_and(|children| children.integers.left() == 1)
    }

    fn set_attributes(&mut self, now: Now, waiting: &Waiting, set: call::SetAttributes) -> Tried {
        self.require_quiet()?;
        let call::SetAttributes { file, change, size, through_handle } = set;
        self.used(&file);
        let (cred, time) = (waiting.cred.clone(), now.wall);
        let operation = (change != AttributeChange::default()).then(|| {
            Operation::SetAttributes(operation::SetAttributes { file: file.clone(), change, cred, time })
        });
        if let Some(operation) = &operation {
            self.would_do(operation)?;
        }
        if size.is_some() && through_handle {
            // A machine that changes the content now loses it at once, and not first to a reader.
            self.content(&file, Kind::Write)?;
        }
        self.stat(now, &file)?;
        if let Some(size) = size {
            self.truncate(now, waiting, &file, size, through_handle)?;
        }
        if let Some(operation) = operation {
            self.decide(now, operation)?;
        }
        Ok(Reply::Stat(self.stat(now, &file)?))
    }

    fn list(&mut self, now: Now, &call::List { ref dir, after, upto, limit, stat }: &call::List) -> Tried {
        self.used(dir);
        let Some(known) = self.files.get(dir) else { return Err(page(dir, 0)) };
        if known.gone {
            return Ok(Reply::Listing { entries: Vec::new(), upto: Upto::default(), end: true });
        }
        let Some(children) = &known.children else { return Err(page(dir, 0)) };
        if !known.held.covers(&Field::Children, Kind::Read) {
            return Err(page(dir, 0));
        }
        let upto = upto.unwrap_or_else(|| children.upto());
        // Entries that are not known yet, and entries made since the listing began, stand at later
        // positions.
        let known = children.up_to.min(upto.last);
        if after >= known && known < upto.last {
            return Err(page(dir, children.up_to));
        }
        let found: Vec<(Label, Entry)> = children
            .by_position
            .range((Excluded(after.min(known)), Included(known)))
            .filter(|(position, _)| upto.has(**position))
            .map(|(_, bound)| bound.clone())
            .take(limit)
            .collect();
        if found.is_empty() && known < upto.last {
            return Err(page(dir, children.up_to));
        }
        let end = found.len() < limit && known == upto.last;
        if stat {
            self.files.warm(found.iter().map(|(_, entry)| &entry.file));
        }
        let entries = found
            .into_iter()
            .map(|(label, entry)| {
                let stat = stat && !self.is_changing(&entry.file);
                let stat = if stat { self.stat(now, &entry.file).ok() } else { None };
                Listed { label, entry, stat, uncached: false }
            })
            .collect();
        if after == 0 {
            self.accessed(now, dir);
        }
        Ok(Reply::Listing { entries, upto, end })
    }

    /// Marks `file` as used, so that the eviction hand passes it once.
    pub(crate) fn used(&mut self, file: &FileId) {
        if let Some(known) = self.files.get_mut(file) {
            known.recent = true;
        }
    }
}

fn page(dir: &FileId, after: u64) -> Stop {
    Stop::Need(Need::Page { dir: dir.clone(), after })
}

#[cfg(test)]
mod tests {
    use crate::server::ServerId;
    use crate::tests::{at, writer};
    use crate::{Call, Input, Outcome, call};
    use lease::Label;
    use namespace::{Cred, Error};
    use wire::ToClient;

    /// A file that was moved out of what the machine may see is gone for it, and has its attributes
    /// all the same.
    #[test]
    fn a_file_that_is_gone_is_not_said_to_have_no_attributes() {
        for (is_gone, error) in [(false, Error::NoAttribute), (true, Error::Stale)] {
            let (mut client, file) = writer(0);
            let mut out = Vec::new();
            if is_gone {
                let gone = ToClient::Granted { number: 2, grants: Vec::new(), gone: vec![file.clone()] };
                client.handle(at(2), Input::Message(ServerId::ROOT, gone), &mut out);
            }
            for name in ["leasehold.policy", "security.capability", "trusted.x", "user.x"] {
                let call = Call::GetXattr(call::GetXattr {
                    file: file.clone(),
                    name: Label::new(name.as_bytes()).unwrap(),
                });
                let root = Cred { capabilities: namespace::Capabilities::EVERY, ..Cred::default() };
                let outcome = client.call(at(3), &root, call, &mut out);
                assert!(matches!(outcome, Outcome::Done(Err(told)) if told == error), "{name}: {outcome:?}");
            }
        }
    }
}
