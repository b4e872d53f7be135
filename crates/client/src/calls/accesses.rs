//! Reports of access times to the server ([`Accesses`](crate::knowledge::Accesses)).

use super::{Caller, Stop, Waiting};
use crate::client::Client;
use crate::server::ServerId;
use crate::{Call, Now, Output, Reply, call};
use ident::FileId;
use lease::Kind;
use namespace::{Attributes, Knowledge, Known, operation};

impl Client {
    /// Reports the accesses that are old enough.
    pub(crate) fn tell_accesses(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.is_connected(ServerId::ROOT) {
            return;
        }
        while let Some(file) = self.accesses.next_due(now.time) {
            let waiting = Waiting::own(now, Caller::Client, Call::Accessed(call::Accessed { file }));
            self.accesses.asking += 1;
            let ticket = self.calls.ticket();
            self.go_on(now, ticket, waiting, out);
        }
    }

    /// Moves the access time at the server, unless another machine has changed the file meanwhile.
    pub(crate) fn access(&mut self, now: Now, file: &FileId) -> Result<Reply, Stop> {
        let Some(access) = self.accesses.by_file.get(file).copied() else { return Ok(Reply::Nothing) };
        let counts =
            |attributes: &Attributes| attributes.ctime == access.ctime && attributes.atime < access.time;
        match self.files.attributes(file, Kind::Read) {
            Known::Used(attributes) if !counts(&attributes) => Ok(Reply::Nothing),
            Known::Used(_) | Known::Unused | Known::Unknown => {
                self.answer(now, operation::Accessed { file: file.clone(), time: access.time }.into())
            }
        }
    }

    /// Drops an access that was reported or does not count any more.
    pub(crate) fn access_told(&mut self, file: &FileId) {
        self.accesses.asking = self.accesses.asking.saturating_sub(1);
        self.accesses.by_file.remove(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::accesses::AFTER_MS;
    use crate::tests::{empty, opened};
    use crate::{Input, Outcome, Settings};
    use lease::{Field, Time};
    use namespace::{Cred, FileKind, Operation, Timestamp};
    use wire::{FileGrant, LogEntry, ToClient, ToServer};

    fn at(ms: u64) -> Now {
        let wall = Timestamp { secs: (ms / 1000).cast_signed(), nanos: 0 };
        Now { wall, ..crate::tests::at(ms) }
    }

    /// A client that may read `file`. The file changed at 5 s and was not read since.
    fn client(file: &FileId) -> Client {
        let mut client = Client::new(Settings::new([0; 32]));
        let mut out = Vec::new();
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let fields = vec![(Field::Attributes, Kind::Read), (Field::Content, Kind::Read)];
        let mut grant = FileGrant { whole: false, fields, ..empty(file) };
        let attributes = grant.values.attributes.as_mut().unwrap();
        attributes.kind = FileKind::Regular;
        attributes.ctime = Timestamp { secs: 5, nanos: 0 };
        attributes.atime = Timestamp { secs: 4, nanos: 0 };
        grant.values.content = Some(namespace::ContentHead::default());
        grant.values.inline = Some(Vec::new());
        client.handle(
            at(1),
            Input::Message(
                ServerId::ROOT,
                ToClient::Granted { number: 0, grants: vec![grant], gone: Vec::new() },
            ),
            &mut out,
        );
        client
    }

    fn call(client: &mut Client, ms: u64, call: Call) -> Outcome {
        client.call(at(ms), &Cred::default(), call, &mut Vec::new())
    }

    fn reads(client: &mut Client, ms: u64, file: &FileId) {
        let read =
            Call::Read(call::Read { file: file.clone(), offset: 0, length: 9, kept: true, quietly: false });
        let outcome = call(client, ms, read);
        assert!(matches!(outcome, Outcome::Done(Ok(_))), "{outcome:?}");
    }

    fn atime(client: &mut Client, ms: u64, file: &FileId) -> Timestamp {
        let outcome = call(client, ms, Call::Stat(call::Stat { file: file.clone() }));
        let Outcome::Done(Ok(Reply::Stat(stat))) = outcome else { panic!("{outcome:?}") };
        stat.attributes.atime
    }

    /// Makes the content of `file` ping-pong: it is recalled again and again.
    fn ping_pong(client: &mut Client, file: &FileId) {
        (0..8).for_each(|_| client.ping_pong.note(Time(9_000), file, 1));
        assert!(client.ping_pong.has(Time(10_000), file));
    }

    fn logged(out: &[Output]) -> usize {
        let entries = out.iter().filter_map(|output| match output {
            Output::Send(_, ToServer::Log { entries, .. }) => Some(entries),
            _ => None,
        });
        let is_access = |entry: &&LogEntry| {
            matches!(entry, LogEntry::Update { operation: Operation::Accessed { .. }, .. })
        };
        entries.flatten().filter(is_access).count()
    }

    /// The client's output at that time.
    fn later(client: &mut Client, ms: u64) -> Vec<Output> {
        let mut out = Vec::new();
        client.handle(at(ms), Input::Tick, &mut out);
        client.flush_logs(&mut out);
        out
    }

    #[test]
    fn of_what_passes_the_access_is_seen_here_at_once_and_told_later() {
        let file = FileId::root().child(7);
        let mut client = client(&file);
        ping_pong(&mut client, &file);
        assert_eq!(atime(&mut client, 5_000, &file).secs, 4);
        reads(&mut client, 10_000, &file);
        assert_eq!(logged(&later(&mut client, 10_001)), 0);
        assert!(atime(&mut client, 10_001, &file).secs > 5);
        assert!(client.deadline().unwrap() <= Time(10_000 + AFTER_MS));
        assert_eq!(logged(&later(&mut client, 10_000 + AFTER_MS)), 1);
        assert_eq!(logged(&later(&mut client, 10_001 + 2 * AFTER_MS)), 0, "once");
        assert!(atime(&mut client, 12_001, &file).secs > 5);
        assert!(client.accesses.by_file.is_empty() && client.accesses.asking == 0);
    }

    #[test]
    fn what_does_not_pass_is_logged_at_once() {
        let file = FileId::root().child(7);
        let mut client = client(&file);
        reads(&mut client, 10_000, &file);
        assert_eq!(logged(&later(&mut client, 10_001)), 1);
        assert!(client.accesses.by_file.is_empty());
    }

    /// Another machine that set the times since has the last word.
    #[test]
    fn what_others_change_meanwhile_stays_as_they_have_it() {
        let file = FileId::root().child(7);
        let mut client = client(&file);
        ping_pong(&mut client, &file);
        reads(&mut client, 10_000, &file);
        client.files.get_mut(&file).unwrap().attributes.as_mut().unwrap().ctime.secs = 9;
        assert_eq!(atime(&mut client, 10_001, &file).secs, 4);
        assert_eq!(logged(&later(&mut client, 10_000 + AFTER_MS)), 0);
        assert!(client.accesses.by_file.is_empty());
    }
}
