//! Access times of files that this client may only read. Others hold them too, and would all have to let go, so a reader does not wait for that: the time is shown here at once, and the
//! server hears of it a little later, if it still counts then.

use crate::client::Client;
use crate::waiting::{Stop, Waiting};
use crate::{Call, Now, Output, Reply};
use ident::FileId;
use lease::{Kind, Time};
use namespace::{Attributes, Cred, Knowledge, Known, Operation, Timestamp};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// For so long the server does not hear of an access, ms: what passes to and fro is somebody else's by then.
const AFTER_MS: u64 = 1_000;
/// So many are asked for at once.
const AT_ONCE: usize = 16;
/// So many are remembered; of more nobody hears.
const ACCESSES_MAX: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Accesses {
    by_file: FxHashMap<FileId, Access>,
    /// In the order in which they came.
    unsaid: VecDeque<(Time, FileId)>,
    asking: usize,
}

#[derive(Clone, Copy, Debug)]
struct Access {
    time: Timestamp,
    /// The file's change time then: whoever sets times since has the last word.
    ctime: Timestamp,
}

impl Accesses {
    /// The access time to show of a file with these attributes.
    pub fn shown(&self, file: &FileId, attributes: &Attributes) -> Timestamp {
        let of = self.by_file.get(file).filter(|access| access.ctime == attributes.ctime);
        of.map_or(attributes.atime, |access| access.time.max(attributes.atime))
    }

    /// `file` was read, at `time`.
    pub fn note(&mut self, now: Time, file: &FileId, time: Timestamp, ctime: Timestamp) {
        let is_said = self.by_file.contains_key(file);
        if is_said || self.by_file.len() < ACCESSES_MAX {
            self.by_file.insert(file.clone(), Access { time, ctime });
        }
        if !is_said && self.by_file.contains_key(file) {
            self.unsaid.push_back((now, file.clone()));
        }
    }

    /// When the first that nobody heard of is due.
    pub fn deadline(&self) -> Option<Time> {
        let first = self.unsaid.front().filter(|_| self.asking < AT_ONCE);
        first.map(|(since, _)| since.after_ms(AFTER_MS))
    }

    fn next_due(&mut self, now: Time) -> Option<FileId> {
        self.deadline().filter(|due| now >= *due)?;
        self.unsaid.pop_front().map(|(_, file)| file)
    }

    /// The session is over, and nothing is known of any file.
    pub fn forget(&mut self) {
        *self = Accesses::default();
    }
}

impl Client {
    /// Tells of what was read a while ago.
    pub(crate) fn tell_accesses(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.session.is_connected() {
            return;
        }
        while let Some(file) = self.accesses.next_due(now.time) {
            let mut waiting = Waiting::new(now, Cred::default(), Call::Accessed { file });
            waiting.is_own = true;
            self.accesses.asking += 1;
            let ticket = self.ticket();
            self.go_on(now, ticket, waiting, out);
        }
    }

    /// Moves the access time for everybody. What others have changed or taken meanwhile stays as they have it: nobody waits for this.
    pub(crate) fn access(&mut self, now: Now, file: &FileId) -> Result<Reply, Stop> {
        let Some(access) = self.accesses.by_file.get(file).copied() else { return Ok(Reply::Nothing) };
        let counts =
            |attributes: &Attributes| attributes.ctime == access.ctime && attributes.atime < access.time;
        match self.files.attributes(file, Kind::Read) {
            Known::Used(attributes) if counts(&attributes) => {
                self.answer(now, Operation::Accessed { file: file.clone(), time: access.time })
            }
            Known::Used(_) | Known::Unused | Known::Unknown => Ok(Reply::Nothing),
        }
    }

    /// An access was told, or does not count any more.
    pub(crate) fn access_told(&mut self, file: &FileId) {
        self.accesses.asking = self.accesses.asking.saturating_sub(1);
        self.accesses.by_file.remove(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{empty, opened};
    use crate::{Input, Outcome, Settings};
    use lease::{Field, Released};
    use namespace::FileKind;
    use wire::{AskMode, FileGrant, ToClient, ToServer};

    fn at(ms: u64) -> Now {
        let wall = Timestamp { secs: (ms / 1000).cast_signed(), nanos: 0 };
        Now { wall, ..crate::tests::at(ms) }
    }

    /// A client that may read `file`, of which nothing was read since it changed at 5 s.
    fn client(file: &FileId, kind: Kind) -> Client {
        let mut client = Client::new(Settings::new([0; 32]));
        let mut out = Vec::new();
        client.handle(at(0), Input::Greeting, &mut out);
        client.handle(at(0), Input::Message(opened()), &mut out);
        let fields = vec![(Field::Attributes, kind), (Field::Content, Kind::Read)];
        let mut grant = FileGrant { whole: false, fields, ..empty(file) };
        let attributes = grant.values.attributes.as_mut().unwrap();
        attributes.kind = FileKind::Regular;
        attributes.ctime = Timestamp { secs: 5, nanos: 0 };
        attributes.atime = Timestamp { secs: 4, nanos: 0 };
        grant.values.content = Some(namespace::ContentHead::default());
        grant.values.inline = Some(Vec::new());
        client.handle(
            at(1),
            Input::Message(ToClient::Granted { number: 0, grants: vec![grant], gone: Vec::new() }),
            &mut out,
        );
        client
    }

    fn call(client: &mut Client, ms: u64, call: Call) -> (Outcome, Vec<Output>) {
        let mut out = Vec::new();
        let outcome = client.call(at(ms), &Cred::default(), call, &mut out);
        (outcome, out)
    }

    fn reads(client: &mut Client, ms: u64, file: &FileId) -> Vec<Output> {
        let read = Call::Read { file: file.clone(), offset: 0, length: 9, kept: true, quietly: false };
        let (outcome, out) = call(client, ms, read);
        assert!(matches!(outcome, Outcome::Done(Ok(_))), "{outcome:?}");
        out
    }

    fn atime(client: &mut Client, ms: u64, file: &FileId) -> Timestamp {
        let (outcome, _) = call(client, ms, Call::Stat { file: file.clone() });
        let Outcome::Done(Ok(Reply::Stat(stat))) = outcome else { panic!("{outcome:?}") };
        stat.attributes.atime
    }

    fn asked(out: &[Output]) -> usize {
        let asks = |output: &&Output| {
            matches!(
                output,
                Output::Send(ToServer::Ask {
                    operation: Operation::Accessed { .. },
                    mode: AskMode::Lease,
                    ..
                })
            )
        };
        out.iter().filter(asks).count()
    }

    #[test]
    fn a_reader_sees_its_access_at_once_and_the_server_hears_of_it_later() {
        let file = FileId::root().child(7);
        let mut client = client(&file, Kind::Read);
        assert_eq!(atime(&mut client, 5_000, &file).secs, 4);
        let out = reads(&mut client, 10_000, &file);
        assert_eq!(asked(&out), 0, "nobody waits for it: {out:?}");
        assert!(atime(&mut client, 10_001, &file).secs > 5);
        assert!(client.deadline().unwrap() <= Time(10_000 + AFTER_MS));
        let mut out = Vec::new();
        client.handle(at(10_000 + AFTER_MS), Input::Tick, &mut out);
        assert_eq!(asked(&out), 1, "{out:?}");
        // Once.
        out.clear();
        client.handle(at(10_001 + AFTER_MS), Input::Tick, &mut out);
        assert_eq!(asked(&out), 0, "{out:?}");
    }

    #[test]
    fn what_others_take_or_change_meanwhile_is_not_asked_for() {
        let file = FileId::root().child(7);
        let mut client = client(&file, Kind::Read);
        reads(&mut client, 10_000, &file);
        let leases = vec![Released { file: file.clone(), field: Field::Attributes, keep: None }];
        client.handle(at(10_010), Input::Message(ToClient::Recall { leases }), &mut Vec::new());
        let mut out = Vec::new();
        client.handle(at(10_000 + AFTER_MS), Input::Tick, &mut out);
        assert_eq!(asked(&out), 0, "{out:?}");
        assert!(client.accesses.by_file.is_empty() && client.accesses.asking == 0);
    }

    #[test]
    fn where_the_lease_is_at_hand_it_is_done_at_once() {
        let file = FileId::root().child(7);
        let mut client = client(&file, Kind::Write);
        reads(&mut client, 10_000, &file);
        assert!(atime(&mut client, 10_001, &file).secs > 5);
        assert!(client.accesses.by_file.is_empty());
    }
}
