//! Write-through mode, for a small file that other machines look at after each change
//! (`wire::LogEntry::WritesThrough`). Their requests then wait for the server alone.
//!
//! In this mode the server has the whole content that counts. The client sends each change at once.
//! Its caller is answered when the server has confirmed the change, and no program here sees the
//! change before. Until then other machines may still read the old content.
//!
//! All other changes take the lease in write-back mode, which ends write-through mode. So does a
//! handle that reads. The kernel shows its pages to every reader, even during a write, and a
//! program changes mapped pages without any message.

use super::file_io::Write;
use super::{Progress, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::knowledge::{KnownContent, Writes};
use crate::server::{ServerId, ServerSession};
use crate::{Now, Output, Reply};
use content::LAZY_BYTES_MAX;
use ident::FileId;
use lease::{Field, Kind, Lease, Mode};
use namespace::INLINE_BYTES_MAX;
use wire::LogEntry;

impl Client {
    /// Whether the server has all of the content of `file` that counts, and programs here can
    /// change or see it only by calls.
    fn may_write_through(&self, file: &FileId) -> bool {
        let Some(known) = self.files.get(file) else { return false };
        let is_at_rest = match &known.content {
            KnownContent::Open(content) => content.is_settled() && !content.is_dirty(),
            KnownContent::Head(..) => true,
            KnownContent::Unknown => false,
        };
        let is_small = known.content.head().is_some_and(|head| head.size <= INLINE_BYTES_MAX as u64);
        let is_held = known.held.covers(&Field::Content, Kind::Write);
        is_at_rest && is_small && is_held && !known.own().has_mode(Mode::AccessRead)
    }

    /// Puts `file` into write-through mode, if that is allowed.
    ///
    /// It is not allowed while the server owes an answer that may end this mode. Such an end rests
    /// on what the server had seen before (seeds 1095 and 1106 of the simulator's weather
    /// `PING_PONG`).
    pub(crate) fn begin_write_through(&mut self, file: &FileId) -> bool {
        let is_unheard = self.files.get(file).is_some_and(|known| known.writes == Writes::Unheard);
        let begins =
            !is_unheard && !self.session_of(file).requests.want(file) && self.may_write_through(file);
        if begins {
            self.set_writes(file, Writes::WriteThrough);
        }
        begins
    }

    /// Whether this write is a write-through one.
    pub(crate) fn is_write_through(&self, file: &FileId, write: &Write) -> bool {
        let Some(known) = self.files.get(file).filter(|known| known.writes == Writes::WriteThrough) else {
            return false;
        };
        let end = |size: u64| write.end(size).map(|end| end.max(size));
        let end = known.content.head().and_then(|head| end(head.size));
        end.is_some_and(|end| end <= INLINE_BYTES_MAX as u64) && self.may_write_through(file)
    }

    /// Writes, and waits until the server has confirmed the write.
    pub(crate) fn write_through(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        file: &FileId,
        write: Write,
        out: &mut Vec<Output>,
    ) -> Result<Reply, Stop> {
        // The write is tried in write-back mode. No program sees it before the file is marked as
        // unheard, a few lines on.
        self.set_writes(file, Writes::WriteBack);
        let written = self.write_back(now, waiting, file, write, out);
        let Ok(Reply::Written(bytes)) = written else {
            self.set_writes(file, Writes::WriteThrough);
            return written;
        };
        // The content is in the log now: it is small, and the rest of the file is published
        // (`may_write_through`).
        self.publish(now, file, LAZY_BYTES_MAX, out);
        self.set_writes(file, Writes::Unheard);
        waiting.progress = Progress::Written(bytes);
        let id = self.server_of(file);
        let server = self.servers.get_mut(id);
        let sequence = server.log.push(LogEntry::Wrote { file: file.clone() }, 16);
        server.unheard.push(sequence, file.clone());
        server.send_log_first(out);
        Err(Stop::until(WaitingFor::Heard(id, sequence)))
    }

    /// Takes the server's confirmation of write-through changes up to this entry.
    pub(crate) fn on_heard(&mut self, server: ServerId, file: &FileId, up_to: u64, goes_on: bool) {
        let unheard = &mut self.servers.get_mut(server).unheard;
        while let Some((_, heard)) = unheard.pop(up_to) {
            if let Some(known) = self.files.get_mut(&heard).filter(|known| known.writes == Writes::Unheard) {
                let may_write = known.held.covers(&Field::Content, Kind::Write);
                known.writes = if may_write { Writes::WriteThrough } else { Writes::WriteBack };
            }
        }
        if !goes_on {
            self.set_writes(file, Writes::WriteBack);
        }
    }

    /// Returns all files of this server to write-back mode. Over a new connection the server asks
    /// again for everything that is written.
    pub(crate) fn write_all_back(&mut self, server: ServerId) {
        self.servers.get_mut(server).unheard.clear();
        for (_, known) in self.files.all.iter_mut().filter(|(_, known)| known.server == server) {
            known.writes = Writes::WriteBack;
        }
    }

    /// The entry that a server must confirm before a call that needs these leases can be answered.
    pub(crate) fn unheard_of(&self, wants: &[Lease]) -> Option<(ServerId, u64)> {
        let of = |file: &FileId| {
            wants.iter().any(|want| want.field == Field::Content && want.file == *file)
                && self.files.get(file).is_some_and(|known| known.writes == Writes::Unheard)
        };
        let first = |(server, session): (ServerId, &ServerSession)| {
            let (sequence, _) = session.unheard.iter().find(|(_, file)| of(file))?;
            Some((server, *sequence))
        };
        self.servers.iter().find_map(first)
    }

    fn set_writes(&mut self, file: &FileId, writes: Writes) {
        if let Some(known) = self.files.get_mut(file) {
            known.writes = writes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, empty, opened};
    use crate::{Call, Input, Outcome, Settings, Ticket, call};
    use lease::OpenModes;
    use namespace::{Attributes, ContentHead, Cred, Error, FileKind};
    use wire::{FileGrant, Space, ToClient, ToServer, Values, Version};

    /// A client that holds all of a file of three bytes, and has it open to write.
    fn holder() -> (Client, FileId) {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        let file = FileId::root().child(2);
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        let mut session = opened();
        if let ToClient::Opened { allowance, .. } = &mut session {
            *allowance = (1 << 20, 100);
        }
        client.handle(at(0), Input::Message(ServerId::ROOT, session), &mut out);
        let empty = empty(&file);
        let attributes =
            empty.values.attributes.map(|it| Attributes { kind: FileKind::Regular, mode: 0o644, ..it });
        let (key, nonce) = ([1; 32], [2; 12]);
        let content = Some(ContentHead { size: 3, version: 1, key: Some(key), ..ContentHead::default() });
        let inline = Some([nonce.to_vec(), content::seal(&key, &nonce, b"old").0].concat());
        let values = Values { attributes, content, inline, ..Values::default() };
        let grant = FileGrant { whole: true, fields: Vec::new(), values, ..empty };
        let granted = ToClient::Granted { number: 1, grants: vec![grant], gone: Vec::new() };
        client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
        opens(&mut client, &file, OpenModes::posix(false, true));
        (client, file)
    }

    fn opens(client: &mut Client, file: &FileId, open: OpenModes) {
        let call = Call::OpenFile(call::OpenFile { file: file.clone(), open, mask: 0 });
        let called = client.call(at(1), &Cred::default(), call, &mut Vec::new());
        assert!(matches!(called, Outcome::Done(Ok(_))), "{called:?}");
    }

    /// The client's answer to a request for write-through mode.
    fn asked_to(client: &mut Client, file: &FileId) -> LogEntry {
        let (ask, mut out) = (ToClient::WriteThrough { number: 7, file: file.clone() }, Vec::new());
        client.handle(at(2), Input::Message(ServerId::ROOT, ask), &mut out);
        below_is_gone(client, &mut out);
        match logged(&out).as_slice() {
            [entry] => entry.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Does all the revocations in `out`.
    fn below_is_gone(client: &mut Client, out: &mut Vec<Output>) {
        let number =
            |output: &Output| if let Output::Revoke { number, .. } = output { Some(*number) } else { None };
        let numbers: Vec<u64> = out.iter().filter_map(number).collect();
        numbers.into_iter().for_each(|number| {
            client.handle(at(4), Input::Revoked { number, kept: Default::default() }, out)
        });
    }

    fn logged(out: &[Output]) -> Vec<LogEntry> {
        let entries = |output: &Output| match output {
            Output::Send(_, ToServer::Log { entries, .. }) => entries.clone(),
            _ => Vec::new(),
        };
        out.iter().flat_map(entries).collect()
    }

    fn asks(out: &[Output]) -> bool {
        out.iter().any(|output| matches!(output, Output::Send(_, ToServer::Ask { .. })))
    }

    fn calls(client: &mut Client, call: Call, out: &mut Vec<Output>) -> Ticket {
        match client.call(at(3), &Cred::default(), call, out) {
            Outcome::Waiting(ticket) => ticket,
            done => panic!("{done:?}"),
        }
    }

    fn write(file: &FileId, offset: u64) -> Call {
        Call::Write(call::Write { file: file.clone(), offset, data: "new".into(), append: false })
    }

    fn answer(out: &[Output], ticket: Ticket) -> Option<Result<Reply, Error>> {
        out.iter().find_map(|output| match output {
            Output::Answer { ticket: of, result } if *of == ticket => Some(result.clone()),
            _ => None,
        })
    }

    /// A client in write-through mode with a write under way.
    fn unheard() -> (Client, FileId, Ticket) {
        let (mut client, file) = holder();
        assert_eq!(asked_to(&mut client, &file), LogEntry::WritesThrough { number: 7, file: file.clone() });
        let mut out = Vec::new();
        let ticket = calls(&mut client, write(&file, 0), &mut out);
        let sent = logged(&out);
        assert!(
            matches!(sent.as_slice(), [LogEntry::Update { .. }, LogEntry::Wrote { file: of }] if *of == file),
            "{sent:?}"
        );
        assert!(answer(&out, ticket).is_none());
        (client, file, ticket)
    }

    #[test]
    fn a_change_counts_when_the_server_has_heard_of_it_and_nobody_sees_it_before() {
        let (mut client, file, written) = unheard();
        let mut out = Vec::new();
        let read = calls(
            &mut client,
            Call::Read(call::Read { file: file.clone(), offset: 0, length: 3, kept: false, quietly: false }),
            &mut out,
        );
        // The server may learn by this answer to its second request that the mode has ended.
        assert_eq!(asked_to(&mut client, &file), LogEntry::Flushed { number: 7 });
        let stat = calls(&mut client, Call::Stat(call::Stat { file: file.clone() }), &mut out);
        let again = calls(&mut client, write(&file, 3), &mut out);
        assert!(!asks(&out) && logged(&out).is_empty(), "they wait for no more than that: {out:?}");
        let up_to = client.server().log.last();
        let heard = ToClient::Heard { file: file.clone(), up_to, goes_on: true };
        client.handle(at(4), Input::Message(ServerId::ROOT, heard.clone()), &mut out);
        assert!(matches!(answer(&out, written), Some(Ok(Reply::Written(3)))));
        // The other write came after the reader's answer. It is on its way now.
        assert!(answer(&out, again).is_none());
        assert_eq!(logged(&out).last(), Some(&LogEntry::Wrote { file: file.clone() }));
        assert!(matches!(answer(&out, read), Some(Ok(Reply::Data(_)))));
        assert!(matches!(answer(&out, stat), Some(Ok(Reply::Stat(stat))) if stat.size == 3));
        let heard = ToClient::Heard { file, up_to: client.server().log.last(), goes_on: true };
        client.handle(at(5), Input::Message(ServerId::ROOT, heard), &mut out);
        assert!(matches!(answer(&out, again), Some(Ok(Reply::Written(3)))));
    }

    #[test]
    fn what_the_server_asks_for_again_counts_at_once() {
        let (mut client, file, written) = unheard();
        let (up_to, mut out) = (client.server().log.last(), Vec::new());
        let heard = ToClient::Heard { file: file.clone(), up_to, goes_on: false };
        client.handle(at(4), Input::Message(ServerId::ROOT, heard), &mut out);
        assert!(matches!(answer(&out, written), Some(Ok(Reply::Written(3)))));
        let called = client.call(at(5), &Cred::default(), write(&file, 0), &mut out);
        assert!(matches!(called, Outcome::Done(Ok(Reply::Written(3)))), "{called:?}");
    }

    /// The release stands behind the write in the log. But before the server has confirmed the
    /// write, it may answer with the old content (weather `PING_PONG` of the simulator, seed 3).
    #[test]
    fn a_change_that_is_unheard_of_does_not_count_when_its_lease_is_let_go() {
        for keep in [None, Some(Kind::Read)] {
            let (mut client, file, written) = unheard();
            let (up_to, mut out) = (client.server().log.last(), Vec::new());
            let leases = vec![lease::Released { file: file.clone(), field: Field::Content, keep }];
            client.handle(
                at(4),
                Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead: Vec::new() }),
                &mut out,
            );
            below_is_gone(&mut client, &mut out);
            assert!(matches!(logged(&out).as_slice(), [LogEntry::Release(_)]));
            let read = Call::Read(call::Read {
                file: file.clone(),
                offset: 0,
                length: 3,
                kept: false,
                quietly: false,
            });
            let read = calls(&mut client, read, &mut out);
            assert!(answer(&out, written).is_none(), "{keep:?}");
            let heard = ToClient::Heard { file: file.clone(), up_to, goes_on: true };
            client.handle(at(5), Input::Message(ServerId::ROOT, heard), &mut out);
            assert!(matches!(answer(&out, written), Some(Ok(Reply::Written(3)))));
            assert_eq!(matches!(answer(&out, read), Some(Ok(Reply::Data(_)))), keep.is_some());
            assert!(!client.is_write_through(&file, &Write { offset: 0, data: "x".into(), append: false }));
        }
    }

    #[test]
    fn over_a_new_connection_nothing_is_written_through() {
        let (mut client, file, written) = unheard();
        let mut out = Vec::new();
        client.handle(at(4), Input::Greeting(ServerId::ROOT), &mut out);
        assert!(answer(&out, written).is_none());
        let (up_to, rejected, space, version) = (0, Vec::new(), Space::default(), Version::NEWEST);
        let resumed = ToClient::Resumed { up_to, rejected, forgotten: 0, space, term_ms: 30_000, version };
        client.handle(at(4), Input::Message(ServerId::ROOT, resumed), &mut out);
        assert!(matches!(answer(&out, written), Some(Ok(Reply::Written(3)))));
        let sent = logged(&out);
        assert!(
            matches!(
                sent.as_slice(),
                [LogEntry::Flushed { number: 0 }, LogEntry::Update { .. }, LogEntry::Wrote { .. }]
            ),
            "{sent:?}"
        );
        let called = client.call(at(5), &Cred::default(), write(&file, 0), &mut out);
        assert!(matches!(called, Outcome::Done(Ok(Reply::Written(3)))), "{called:?}");
    }

    #[test]
    fn all_but_small_writes_take_the_lease_as_it_is_otherwise() {
        let times = namespace::AttributeChange {
            mtime: Some(namespace::SetTime::Now),
            ..namespace::AttributeChange::default()
        };
        let of = |file: &FileId| {
            let file = file.clone();
            [
                write(&file, INLINE_BYTES_MAX as u64),
                Call::SetAttributes(call::SetAttributes {
                    file: file.clone(),
                    change: namespace::AttributeChange::default(),
                    size: Some(0),
                    through_handle: true,
                }),
                Call::SetAttributes(call::SetAttributes {
                    file: file.clone(),
                    change: times,
                    size: None,
                    through_handle: false,
                }),
                Call::OpenFile(call::OpenFile { file, open: OpenModes::posix(true, false), mask: 0 }),
            ]
        };
        for which in 0..4 {
            let (mut client, file) = holder();
            asked_to(&mut client, &file);
            let (call, mut out) = (of(&file)[which].clone(), Vec::new());
            let name = call.name();
            let ticket = calls(&mut client, call, &mut out);
            assert!(asks(&out) && logged(&out).is_empty(), "{name}: {out:?}");
            assert_eq!(asked_to(&mut client, &file), LogEntry::Flushed { number: 7 }, "{name}");
            let number = client.number() - 1;
            let heard = ToClient::Heard { file, up_to: 0, goes_on: false };
            client.handle(at(4), Input::Message(ServerId::ROOT, heard), &mut out);
            let granted = ToClient::Granted { number, grants: Vec::new(), gone: Vec::new() };
            client.handle(at(4), Input::Message(ServerId::ROOT, granted), &mut out);
            assert!(matches!(answer(&out, ticket), Some(Ok(_))), "{name}: {:?}", answer(&out, ticket));
        }
    }

    #[test]
    fn what_a_program_may_read_is_not_written_through() {
        let (mut client, file) = holder();
        opens(&mut client, &file, OpenModes::posix(true, false));
        assert_eq!(asked_to(&mut client, &file), LogEntry::Flushed { number: 7 });
        let called = client.call(at(3), &Cred::default(), write(&file, 0), &mut Vec::new());
        assert!(matches!(called, Outcome::Done(_)), "{called:?}");
    }
}
