//! Shipped operations, which the server does for this client, and the replies to their calls.

use super::in_doubt::names;
use super::waiting::ShippedAnswer;
use super::{Progress, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::server::ServerId;
use crate::{Call, Invalidation, Now, Output, Reply, call};
use ident::FileId;
use lease::{Field, Kind, Label, Lease};
use namespace::{Answer, Attributes, Effect, Error, Knowledge, Known, Operation, Stat, fold, operation};
use wire::{AskMode, ToServer};

impl Client {
    /// Ships an operation to the server. From now on calls that ask for its files wait
    /// ([`Client::is_in_doubt`]), but the kernel would answer from its cache. So the client sends
    /// the request once front doors have revoked these files.
    pub(crate) fn ship(&mut self, operation: Operation, out: &mut Vec<Output>) -> WaitingFor {
        let server = self.leader_of(&operation);
        if let Some(session) = self.needs_session(server, out) {
            return session;
        }
        if self.servers.get(server).requests.ships_full() {
            return WaitingFor::Quiet;
        }
        let what = self.shared_below(&operation);
        let wants = self.doubts(&operation);
        let number = self.number();
        let session = self.servers.get_mut(server);
        session.hold(number, ToServer::Ask { number, operation, wants, mode: AskMode::Ship });
        if what.is_empty() {
            self.say_shipped(number, out);
        } else {
            let gone = self.number();
            self.revocations.shipping.insert(gone, number);
            out.push(Output::Revoke { number: gone, what, offered: Vec::new() });
        }
        WaitingFor::Number(number)
    }

    /// The files in doubt that `operation` does not name itself. The server need not recall them.
    /// It recalls names on which this client holds no lease.
    fn doubts(&self, operation: &Operation) -> Vec<Lease> {
        let doubted = |file| Lease::new(file, Field::Attributes, Kind::Read);
        self.found_by_name(operation).map(doubted).collect()
    }

    /// Ships the operation that waited for the revocation `gone`, if there is one.
    pub(crate) fn ship_revoked(&mut self, gone: u64, out: &mut Vec<Output>) {
        if let Some(number) = self.revocations.shipping.remove(&gone) {
            self.say_shipped(number, out);
        }
    }

    /// Gives up the request `number`. Returns false for an operation that the server may be doing:
    /// it cannot be undone.
    pub(crate) fn abandon(&mut self, number: u64) -> bool {
        let Some(server) = self.servers.asked_mut(number).filter(|it| it.requests.is_shipped(number)) else {
            return true;
        };
        let is_held = server.requests.is_held(number);
        if is_held {
            server.requests.answered(number);
            self.revocations.shipping.retain(|_, held| *held != number);
        }
        is_held
    }

    fn say_shipped(&mut self, number: u64, out: &mut Vec<Output>) {
        let Some(server) = self.servers.asked_mut(number) else { return };
        // The server decides on its own state, which must have everything that was decided here.
        server.send_log_first(out);
        server.say_held(number, out);
    }

    /// The cached items that `operation` changes and on which other clients may hold leases, too.
    ///
    /// The server recalls these leases from the others. After the operation it may answer others
    /// before this client has the result. Under a write lease, others get the new value only after
    /// this client has released.
    fn shared_below(&self, operation: &Operation) -> Vec<Invalidation> {
        let held =
            |file: &FileId, field: &Field| self.files.get(file).and_then(|known| known.held.kind(field));
        let shared = |file: &FileId, field: &Field| held(file, field) == Some(Kind::Read);
        let mut what = Vec::new();
        let written =
            |(dir, label): &(&FileId, &Label)| held(dir, &Field::Child(fold(label))) == Some(Kind::Write);
        // Trap: a program that makes, moves or removes a name holds the directory's lock in the
        // kernel until the answer. Meanwhile no cached item of that directory can be invalidated.
        // So all of them are revoked before. If every name is held to write, the operation waits
        // for no other client. But several servers take back all that it needs, from this client
        // as well.
        let is_done_here =
            !self.is_joint(operation) && names(operation).into_iter().flatten().all(|name| written(&name));
        if !is_done_here {
            for (dir, _) in names(operation).into_iter().flatten() {
                let entries = Invalidation::Entries(dir.clone());
                if !what.contains(&entries) {
                    what.push(entries);
                }
            }
        }
        for file in self.changes(operation) {
            let mut fields = vec![Field::Attributes, Field::Times];
            if let Operation::SetXattr(operation::SetXattr { name, .. })
            | Operation::RemoveXattr(operation::RemoveXattr { name, .. }) = operation
            {
                fields.push(Field::Xattr(name.clone()));
            }
            let attributes = Invalidation::Attributes(file.clone());
            if fields.iter().any(|field| shared(&file, field)) && !what.contains(&attributes) {
                what.push(attributes);
            }
        }
        what
    }

    /// Whether several servers manage the files of an operation, as far as is known here.
    fn is_joint(&self, operation: &Operation) -> bool {
        let leader = self.leader_of(operation);
        !self.servers.is_one() && self.changes(operation).any(|file| self.server_of(&file) != leader)
    }

    /// Whether the server is doing an operation that changes the field of this lease.
    pub(crate) fn is_lease_in_doubt(&self, file: &FileId, field: &Field) -> bool {
        match field {
            Field::Child(name) => self.is_name_in_doubt(file, name),
            Field::Children | Field::Attributes | Field::Times | Field::Xattr(_) | Field::Xattrs => {
                self.is_changing(file)
            }
            _ => false,
        }
    }

    /// Takes the result of the shipped operation `number`.
    pub(crate) fn on_shipped(
        &mut self,
        now: Now,
        server: ServerId,
        number: u64,
        result: Result<(Answer, Vec<Effect>), Error>,
    ) {
        let requests = &mut self.servers.get_mut(server).requests;
        let looked_at = match requests.operation(number) {
            Some(Operation::Stat(operation::Stat { file })) if result == Err(Error::Stale) => {
                Some(file.clone())
            }
            _ => None,
        };
        // Over a new connection the server repeats results. More may have happened since.
        if !requests.answered(number) {
            return;
        }
        let result = result.map(|(answer, effects)| {
            self.note_freed(now, &effects);
            for effect in &effects {
                self.files.apply(effect, false);
                if let Effect::Birth { file, .. } = effect
                    && let Some(known) = self.files.get_mut(file)
                {
                    known.server = server;
                }
            }
            let attributes = effects.iter().rev().find_map(|effect| match effect {
                Effect::Birth { attributes, .. } | Effect::Attributes { attributes, .. } => Some(*attributes),
                _ => None,
            });
            ShippedAnswer { answer, attributes, refused: None }
        });
        self.calls.answered(number, |waiting| {
            // The file found by a name is gone, or is where this machine may not look. If the name
            // is bound to another file by now, it is looked up again.
            if let (Call::Lookup(call::Lookup { dir, label }), Some(file)) = (&waiting.call, &looked_at)
                && !waiting.is_shipped()
                && dir != file
                && !matches!(self.files.child(dir, label, Kind::Read), Known::Used(entry) if entry.file == *file)
            {
                return;
            }
            match (&mut waiting.progress, &result) {
                // An operation that is done cannot be refused any more.
                (Progress::Shipped(Ok(done)), Err(error)) => done.refused = Some(*error),
                (progress, _) => *progress = Progress::Shipped(result.clone()),
            }
        });
    }

    /// The name that the server has bound for this call, unless it is known under a lease to be
    /// that file still. Otherwise no cache may keep the entry. Trap: the lease may have gone and
    /// come back while the call waited for the rest of its reply.
    pub(crate) fn bound_without_lease(&self, waiting: &Waiting) -> Option<Invalidation> {
        let (Call::Create(call::Create { dir, label, .. }) | Call::Link(call::Link { dir, label, .. })) =
            &waiting.call
        else {
            return None;
        };
        let Progress::Shipped(Ok(ShippedAnswer { answer: Answer::Entry(entry), .. })) = &waiting.progress
        else {
            return None;
        };
        let is_still = match self.files.child(dir, label, Kind::Read) {
            Known::Used(known) => known.file == entry.file,
            Known::Unused | Known::Unknown => false,
        };
        (!is_still).then(|| Invalidation::Entry(dir.clone(), fold(label)))
    }

    /// Builds the reply to a call whose operation the server has done. Parts beyond the answer are
    /// read under leases, and by then the file may be gone.
    pub(crate) fn reply_to_shipped(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        shipped: ShippedAnswer,
        out: &mut Vec<Output>,
    ) -> Result<Reply, Stop> {
        // The server's answer counts in any case. Additions from here count only while leases do.
        self.require_session(now, &waiting.call)?;
        let ShippedAnswer { answer, attributes, refused } = shipped;
        let entry = if let Answer::Entry(entry) = &answer { Some(entry.clone()) } else { None };
        let reply = match refused {
            Some(error) => Err(Stop::Error(error)),
            None => self.reply_from(now, waiting, answer),
        };
        match (reply, attributes, &waiting.call) {
            (Err(Stop::Error(Error::Stale)), _, Call::Lookup { .. } | Call::Parent { .. }) => {
                waiting.progress = Progress::Nothing;
                self.attempt(now, waiting, out)
            }
            (
                Err(Stop::Error(Error::Stale)),
                Some(attributes),
                Call::SetAttributes(call::SetAttributes { size: None, .. }),
            ) => Ok(Reply::Stat(last_seen(attributes))),
            (
                Err(Stop::Error(Error::Stale)),
                Some(attributes),
                Call::Create(call::Create { open: None, .. }) | Call::Link { .. },
            ) => match entry {
                Some(entry) => Ok(Reply::Node(entry, last_seen(attributes))),
                None => Err(Stop::Error(Error::Stale)),
            },
            (reply, ..) => reply,
        }
    }

    fn reply_from(&mut self, now: Now, waiting: &Waiting, answer: Answer) -> Result<Reply, Stop> {
        match answer {
            Answer::Found(entry, attributes) => Ok(Reply::Found(entry, attributes)),
            Answer::Stat(stat) => Ok(Reply::Stat(stat)),
            Answer::Bytes(bytes) => Ok(Reply::Bytes(bytes)),
            Answer::Names(names) => Ok(Reply::Names(names)),
            Answer::Lock(conflict) => Ok(Reply::Lock(conflict)),
            // If a call wants a stat or a handle as well, the client requests leases for them.
            Answer::Nothing
                if let Call::SetAttributes(call::SetAttributes { file, size, through_handle, .. }) =
                    &waiting.call =>
            {
                let size = size.map(|size| (size, *through_handle));
                self.set_size(now, waiting, file, size)
            }
            Answer::Entry(entry)
                if let Call::Create(call::Create { open: Some(open), .. }) = waiting.call =>
            {
                self.open_shipped(now, entry, open)
            }
            Answer::Entry(_) if matches!(waiting.call, Call::Rename { .. }) => Ok(Reply::Nothing),
            Answer::Entry(entry) => self.node(now, entry),
            Answer::Nothing => Ok(Reply::Nothing),
        }
    }

    /// Sets the size after the other attributes are set, and in one step, so that it is not done
    /// twice.
    fn set_size(
        &mut self,
        now: Now,
        waiting: &Waiting,
        file: &FileId,
        size: Option<(u64, bool)>,
    ) -> Result<Reply, Stop> {
        let stat = self.stat(now, file)?;
        let Some((size, through_handle)) = size else { return Ok(Reply::Stat(stat)) };
        self.truncate(now, waiting, file, size, through_handle)?;
        Ok(Reply::Stat(self.stat(now, file)?))
    }
}

/// Stat of a file that is gone by now.
fn last_seen(attributes: Attributes) -> Stat {
    Stat { attributes, size: 0, occupied: 0, mtime: attributes.ctime }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, empty, opened};
    use crate::{Input, Outcome, Settings};
    use lease::Released;
    use namespace::{Cred, Entry, FileKind, RenameMode};
    use wire::{FileGrant, ToClient};

    fn label() -> Label {
        Label::new(b"x").unwrap()
    }

    /// Two directories, and a third one that is in the first as `x`. Also a client that holds all
    /// names and all attributes by this kind of lease.
    fn client(kind: Kind) -> (Client, [FileId; 3]) {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let (from, to) = (FileId::root().child(2), FileId::root().child(3));
        let moved = from.child(4);
        let entry = Entry { file: moved.clone(), kind: FileKind::Directory, ino: 4, position: 4 };
        let names = [Field::Attributes, Field::Children].map(|field| (field, kind));
        let of = |dir: &FileId| {
            let mut grant = FileGrant { fields: names.to_vec(), ..empty(dir) };
            grant.fields.extend([(Field::Times, Kind::Touch), (Field::Disposition, Kind::Read)]);
            grant.values.reservation = Some((10, 20));
            grant
        };
        let mut grants = [&from, &to, &moved].map(of).to_vec();
        grants[0].values.children.push((label(), entry));
        client.handle(
            at(1),
            Input::Message(ServerId::ROOT, ToClient::Granted { number: 0, grants, gone: Vec::new() }),
            &mut out,
        );
        (client, [from, to, moved])
    }

    fn call(client: &mut Client, call: Call) -> (Outcome, Vec<Output>) {
        let mut out = Vec::new();
        (client.call(at(2), &Cred::default(), call, &mut out), out)
    }

    fn moves([from_dir, to_dir, _]: &[FileId; 3]) -> Call {
        let (from_dir, to_dir) = (from_dir.clone(), to_dir.clone());
        Call::Rename(call::Rename {
            from_dir,
            from: label(),
            to_dir,
            to: label(),
            mode: RenameMode::Replace,
            whiteout: false,
            source: None,
            replaced: None,
        })
    }

    fn taken_back(out: &[Output]) -> Option<(u64, Vec<Invalidation>)> {
        out.iter().find_map(|output| match output {
            Output::Revoke { number, what, .. } => Some((*number, what.clone())),
            _ => None,
        })
    }

    fn is_asked(out: &[Output]) -> bool {
        let ships =
            |output: &Output| matches!(output, Output::Send(_, ToServer::Ask { mode: AskMode::Ship, .. }));
        out.iter().any(ships)
    }

    /// Other clients may see the result before this one does. By then only the client may answer
    /// here, and it waits.
    #[test]
    fn the_server_is_asked_once_what_others_may_be_told_of_has_gone_from_below() {
        let (mut client, files) = client(Kind::Read);
        let [from, to, moved] = &files;
        let (outcome, mut out) = call(&mut client, moves(&files));
        assert!(matches!(outcome, Outcome::Waiting(_)));
        let (number, what) = taken_back(&out).expect("something is taken back");
        for gone in [
            Invalidation::Entries(from.clone()),
            Invalidation::Entries(to.clone()),
            Invalidation::Attributes(moved.clone()),
        ] {
            assert!(what.contains(&gone), "{gone:?} is not among {what:?}");
        }
        assert!(!is_asked(&out), "{out:?}");
        // From now on the kernel gets none of it.
        let looks = [from, to].map(|dir| Call::Lookup(call::Lookup { dir: dir.clone(), label: label() }));
        let asks = [
            Call::Stat(call::Stat { file: moved.clone() }),
            Call::Glance(call::Glance { file: moved.clone() }),
        ];
        for question in looks.into_iter().chain(asks) {
            let (outcome, _) = call(&mut client, question.clone());
            assert!(matches!(outcome, Outcome::Waiting(_)), "{question:?}: {outcome:?}");
        }
        // The client does not ship it over a new connection before that either.
        client.handle(at(3), Input::Greeting(ServerId::ROOT), &mut out);
        let (rejected, space, version) = (Vec::new(), wire::Space::default(), wire::Version::NEWEST);
        let resumed = ToClient::Resumed { up_to: 0, rejected, forgotten: 0, space, term_ms: 30_000, version };
        client.handle(at(3), Input::Message(ServerId::ROOT, resumed), &mut out);
        assert!(!is_asked(&out), "{out:?}");
        client.handle(at(4), Input::Revoked { number, kept: Default::default() }, &mut out);
        assert!(is_asked(&out), "{out:?}");
        // The server need not recall files in doubt.
        let doubts = out.iter().find_map(|output| match output {
            Output::Send(_, ToServer::Ask { wants, mode: AskMode::Ship, .. }) => Some(wants.as_slice()),
            _ => None,
        });
        assert_eq!(doubts, Some(&[Lease::new(moved.clone(), Field::Attributes, Kind::Read)][..]));
    }

    /// An operation that waits for a revocation is not done. One that was sent to the server may
    /// be.
    #[test]
    fn what_is_in_the_way_below_gives_way_while_nothing_of_it_is_done() {
        for said in [false, true] {
            let (mut client, files) = client(Kind::Read);
            let (outcome, out) = call(&mut client, moves(&files));
            let Outcome::Waiting(ticket) = outcome else { panic!("{outcome:?}") };
            let (number, _) = taken_back(&out).unwrap();
            if said {
                client.handle(at(3), Input::Revoked { number, kept: Default::default() }, &mut Vec::new());
            }
            let mut out = Vec::new();
            client.give_way(at(4), ticket, &mut out);
            let gave_way =
                |output: &Output| matches!(output, Output::Answer { result: Err(Error::Interrupted), .. });
            assert_eq!(out.iter().any(gave_way), !said, "{out:?}");
            client.handle(at(5), Input::Revoked { number, kept: Default::default() }, &mut out);
            assert!(!is_asked(&out), "{out:?}");
            let (outcome, _) =
                call(&mut client, Call::Access(call::Access { file: files[2].clone(), mask: 0 }));
            assert_eq!(matches!(outcome, Outcome::Done(Ok(_))), !said, "{outcome:?}");
        }
    }

    /// The server recalls no files that the request declared to be in doubt. So they stay in doubt,
    /// even when the name is recalled.
    #[test]
    fn what_is_in_doubt_stays_so_when_its_name_is_recalled() {
        let (mut client, files) = client(Kind::Read);
        let question = Call::Access(call::Access { file: files[2].clone(), mask: 0 });
        let (outcome, _) = call(&mut client, question.clone());
        assert!(matches!(outcome, Outcome::Done(Ok(_))), "{outcome:?}");
        let (_, mut out) = call(&mut client, moves(&files));
        let (number, _) = taken_back(&out).unwrap();
        client.handle(at(3), Input::Revoked { number, kept: Default::default() }, &mut out);
        let [from, ..] = files;
        let leases = vec![Released { file: from, field: Field::Child(label()), keep: None }];
        out.clear();
        client.handle(
            at(3),
            Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead: Vec::new() }),
            &mut out,
        );
        let (number, _) = taken_back(&out).unwrap();
        client.handle(at(3), Input::Revoked { number, kept: Default::default() }, &mut out);
        let (outcome, _) = call(&mut client, question);
        assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    }

    /// No other client has seen the server's new name yet. It may be removed before this client
    /// gets the answer, and the client may have a lease on all names again by then.
    #[test]
    fn a_name_that_the_server_has_bound_is_kept_below_under_a_lease_only() {
        for (leased, removed) in [(true, false), (false, false), (true, true)] {
            let (mut client, [dir, _, made]) = client(Kind::Read);
            let (file, label, mut out) = (made.clone(), Label::new(b"new").unwrap(), Vec::new());
            let call =
                Call::Link(call::Link { file, dir: dir.clone(), label: label.clone(), replaced: None });
            let mut waiting = Waiting::new(at(2), Cred::default(), call);
            let entry = Entry { file: made.clone(), kind: FileKind::Directory, ino: 4, position: 5 };
            waiting.progress = Progress::Shipped(Ok(ShippedAnswer {
                answer: Answer::Entry(entry.clone()),
                attributes: None,
                refused: None,
            }));
            waiting.on = WaitingFor::Answered;
            let values = wire::Values {
                times: Some(namespace::Times::default()),
                content: Some(namespace::ContentHead::default()),
                ..empty(&made).values
            };
            let whole = FileGrant { whole: true, values, ..empty(&made) };
            let granted = ToClient::Granted { number: 0, grants: vec![whole], gone: Vec::new() };
            client.handle(at(2), Input::Message(ServerId::ROOT, granted), &mut out);
            let known = client.files.get_mut(&dir).unwrap();
            let children = known.children.as_mut().unwrap();
            match removed {
                false => children.bind(&label, entry),
                true => children.up_to = u64::MAX,
            }
            if !leased {
                known.held.release(&Field::Children, None);
            }
            out.clear();
            client.go_on(at(3), crate::Ticket(1), waiting, &mut out);
            let entry = Invalidation::Entry(dir, label);
            let gone = |output: &Output| matches!(output, Output::RevokeUncovered(what) if *what == entry);
            assert!(out.iter().any(|output| matches!(output, Output::Answer { .. })), "{out:?}");
            assert_eq!(out.iter().any(gone), !leased || removed, "{out:?}");
        }
    }

    /// Other clients see no value of a write lease before this client has released it, if only down
    /// to reading. Then front doors revoke it, too, because the server may have done the operation.
    #[test]
    fn what_nobody_else_may_be_told_stays_below_until_it_is_recalled() {
        let (mut client, files) = client(Kind::Write);
        let (_, out) = call(&mut client, moves(&files));
        assert!(taken_back(&out).is_none() && is_asked(&out), "{out:?}");
        let [from, to, _] = files;
        for (file, name, goes) in [(from, label(), true), (to, Label::new(b"other").unwrap(), false)] {
            let mut out = Vec::new();
            let field = Field::Child(name.clone());
            let leases = vec![Released { file: file.clone(), field, keep: Some(Kind::Read) }];
            client.handle(
                at(3),
                Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead: Vec::new() }),
                &mut out,
            );
            let what = taken_back(&out).map(|(_, what)| what);
            assert_eq!(what, goes.then(|| vec![Invalidation::Entry(file, name)]), "{out:?}");
        }
    }
}
