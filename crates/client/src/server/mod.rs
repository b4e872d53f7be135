//! The server boundary: everything that belongs to one server, and which server has a file.
//!
//! Servers say which of them has a region ([`Servers::learn`]); the client asks nobody for a map.
//! Code that acts on a file finds its server by [`crate::Client::server_of`]. Code about a
//! connection goes by the server's number. The host connects to the root server only, until
//! machines have the groups of several servers.

mod ack_queue;
mod allowance;
mod log;
mod promised;
mod publications;
mod requests;
mod term;

pub(crate) use ident::ServerId;

pub(crate) use allowance::{Allowance, AllowanceRequest};
pub(crate) use log::{OperationLog, Refusals};
pub(crate) use publications::Publication;

use crate::Output;
use crate::knowledge::NumberBlocks;
use ack_queue::{AckQueue, UnackedFiles};
use ident::{FileId, FileMap};
use lease::Time;
use namespace::{Error, Operation, ShareId, Timestamp};
use promised::Promised;
use publications::Publications;
use requests::Requests;
use std::collections::BTreeMap;
use std::ops::Range;
use term::Term;
use wire::{Rights, Space, ToServer, Version};

/// The servers that this client has to do with.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The server that manages each file.
    map: FileMap<ServerId>,
    /// The epoch in which each region of `map` came to its server; the root's began with it.
    epochs: BTreeMap<FileId, u64>,
    /// Each server that is in `map`.
    sessions: BTreeMap<ServerId, ServerSession>,
}

impl Servers {
    /// The one server, without a session.
    pub fn new() -> Servers {
        let sessions = BTreeMap::from([(ServerId::ROOT, ServerSession::new(ServerId::ROOT))]);
        Servers { map: FileMap::new(ServerId::ROOT), epochs: BTreeMap::new(), sessions }
    }

    /// Learns that `server` manages `region` since this epoch, unless a later one is known, of the
    /// region or of one around it. Parts of the region that were elsewhere in an earlier epoch have
    /// come home since, and moved with the region.
    ///
    /// Returns whether that is news.
    pub fn learn(&mut self, region: FileId, epoch: u64, server: ServerId) -> bool {
        let is_later = |(of, known): (&FileId, &u64)| {
            *of == region && *known >= epoch || of.is_prefix_of(&region) && *known > epoch
        };
        if self.epochs.iter().any(is_later) {
            return false;
        }
        let is_past = |of: &FileId, known: &u64| region.is_prefix_of(of) && *known < epoch;
        for (part, _) in self.epochs.extract_if(.., |of, known| is_past(of, known)) {
            self.map.remove(&part);
        }
        self.epochs.insert(region.clone(), epoch);
        self.map.insert(region, server);
        self.sessions.entry(server).or_insert_with(|| ServerSession::new(server));
        true
    }

    /// Whether there is only the root server.
    pub fn is_one(&self) -> bool {
        self.sessions.len() == 1
    }

    /// The server that manages `file`, by the last that any server said.
    pub fn id_of(&self, file: &FileId) -> ServerId {
        *self.map.lookup(file)
    }

    /// The session with `server`.
    pub fn get(&self, server: ServerId) -> &ServerSession {
        self.sessions.get(&server).expect("each numbered server is here")
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, server: ServerId) -> &mut ServerSession {
        self.sessions.get_mut(&server).expect("each numbered server is here")
    }

    /// All servers, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ServerId, &ServerSession)> {
        self.sessions.iter().map(|(server, session)| (*server, session))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ServerSession> {
        self.sessions.values_mut()
    }

    /// The session with the server that has yet to answer the request `number`.
    pub fn asked_mut(&mut self, number: u64) -> Option<&mut ServerSession> {
        self.sessions.values_mut().find(|session| session.requests.has(number))
    }

    /// The same, to be looked at.
    pub fn asked(&self, number: u64) -> Option<ServerId> {
        self.iter().find(|(_, session)| session.requests.has(number)).map(|(server, _)| server)
    }

    /// Whether a request declares `file` to be in doubt until it is answered.
    pub fn is_doubted(&self, file: &FileId) -> bool {
        self.sessions.values().any(|session| session.requests.is_doubted(file))
    }

    /// Whether a server is doing operations for this client.
    pub fn any_shipped(&self) -> bool {
        self.sessions.values().any(|session| session.requests.any_shipped())
    }

    /// The operations that servers are doing for this client.
    pub fn shipped(&self) -> impl Iterator<Item = &Operation> {
        self.sessions.values().flat_map(|session| session.requests.shipped())
    }
}

/// The parts of a server's answer with which a session begins.
#[derive(Debug)]
pub(crate) struct Opening {
    pub term_ms: u64,
    /// The first block of inode numbers.
    pub inodes: Range<u64>,
    pub allowance: Allowance,
}

/// One server, as this client has to do with it: the session there, and everything that counts in
/// that session only.
#[derive(Debug)]
pub(crate) struct ServerSession {
    id: ServerId,
    /// Whether the host was asked to connect ([`Output::Connect`]).
    is_wanted: bool,
    /// The term of the session, and its connection.
    pub term: Term,
    /// Updates and releases for the server.
    pub log: OperationLog,
    /// Requests that the server has not answered.
    pub requests: Requests,
    /// Numbers for new inodes.
    pub inodes: NumberBlocks,
    /// Space for updates that the server does not know yet.
    pub allowance: Allowance,
    /// The part of the allowance that is promised to ranges of files.
    pub promised: Promised,
    /// How much space there is, by the server's last report.
    pub space: Space,
    /// When the server reported it.
    pub space_told: Time,
    /// Files with a release in the log that is not acknowledged yet.
    releasing: UnackedFiles,
    /// Files with a write-through change that the server has not confirmed yet.
    pub unheard: AckQueue<FileId>,
    /// Files that were deleted here. A tombstone goes when the server has acknowledged the
    /// deletion.
    pub tombstones: AckQueue<FileId>,
    /// Touches of directories whose times were not known here, until the server acknowledges them.
    pub touches: AckQueue<(FileId, Timestamp)>,
    /// Publications in the log that are not acknowledged yet.
    pub publications: Publications,
    /// The rights of this machine, as last reported by the server.
    pub rights: Rights,
    /// The version that decides operations, as last reported by the server.
    pub version: Version,
}

impl ServerSession {
    fn new(id: ServerId) -> ServerSession {
        ServerSession {
            id,
            is_wanted: id == ServerId::ROOT,
            term: Term::default(),
            log: OperationLog::new(),
            requests: Requests::default(),
            inodes: NumberBlocks::default(),
            allowance: Allowance::default(),
            promised: Promised::default(),
            space: Space::default(),
            space_told: Time::default(),
            releasing: UnackedFiles::default(),
            unheard: AckQueue::default(),
            tombstones: AckQueue::default(),
            touches: AckQueue::default(),
            publications: Publications::default(),
            rights: Rights::FULL,
            version: Version::NEWEST,
        }
    }

    /// Begins a session, whose greeting was sent at `greeted`.
    pub fn begin(&mut self, greeted: Time, opening: Opening) {
        self.term.begin(greeted, opening.term_ms);
        self.inodes = NumberBlocks::new(opening.inodes);
        self.allowance = opening.allowance;
    }

    /// Forgets everything that counted in the session only. Returns the shares of its publications
    /// that the server has not acknowledged.
    pub fn forget(&mut self) -> Vec<ShareId> {
        let ServerSession {
            id, is_wanted, term, space, space_told, rights, version, mut publications, ..
        } = std::mem::replace(self, ServerSession::new(self.id));
        (self.id, self.is_wanted, self.term) = (id, is_wanted, term);
        (self.space, self.space_told) = (space, space_told);
        (self.rights, self.version) = (rights, version);
        let unacknowledged = std::iter::from_fn(|| publications.acknowledge(u64::MAX));
        unacknowledged.flat_map(|publication| publication.shares).collect()
    }

    /// Asks the host to connect, once. The session then begins by itself.
    pub fn connect(&mut self, out: &mut Vec<Output>) {
        if !std::mem::replace(&mut self.is_wanted, true) {
            out.push(Output::Connect(self.id));
        }
    }

    /// Whether messages can be sent.
    pub fn is_connected(&self) -> bool {
        self.term.is_connected()
    }

    /// Sends a message if there is a connection. Otherwise it goes over the next one.
    pub fn send(&self, message: ToServer, out: &mut Vec<Output>) {
        if self.is_connected() {
            out.push(Output::Send(self.id, message));
        }
    }

    /// Logs an update of a change made at `since`. Returns its sequence number.
    pub fn push_update(&mut self, since: Time, operation: Operation) -> u64 {
        self.log.age_from(since);
        self.log.push_update(self.version, operation)
    }

    /// Sends all of the log and asks for an acknowledgment at once, for callers that wait for
    /// durability.
    pub fn flush_log(&mut self, out: &mut Vec<Output>) {
        self.send_log(true, out);
    }

    /// Sends all of the log ahead of another message. No caller here waits for the acknowledgment.
    pub fn send_log_first(&mut self, out: &mut Vec<Output>) {
        self.send_log(false, out);
    }

    fn send_log(&mut self, answer: bool, out: &mut Vec<Output>) {
        if self.is_connected() {
            out.extend(
                std::iter::from_fn(|| self.log.next_message(answer))
                    .map(|message| Output::Send(self.id, message)),
            );
        }
    }

    /// Sends the messages of the log that are full, or all of it if many bytes wait for that.
    pub fn send_what_is_due(&mut self, out: &mut Vec<Output>) {
        if self.publications.are_many() && self.log.has_unsent() {
            self.flush_log(out);
        }
        if self.log.hurries() {
            self.send_log_first(out);
        }
        while self.log.is_due()
            && let Some(message) = self.log.next_message(true)
        {
            out.push(Output::Send(self.id, message));
        }
    }

    /// Notes that the server has the log up to the entry `through`. Returns the updates that it
    /// refused.
    pub fn acknowledge(&mut self, up_to: u64, refusals: Refusals<'_>) -> Vec<(Operation, Error)> {
        self.releasing.acknowledge(up_to);
        while self.touches.pop(up_to).is_some() {}
        self.log.acknowledge(up_to, refusals)
    }

    /// Renews the session when that is due.
    pub fn renew(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.term.renewal_due().is_some_and(|due| now >= due) {
            self.term.begin_renewal(now);
            self.send(ToServer::Renew, out);
        }
    }

    /// Notes that the last entry of the log releases leases on these files.
    pub fn released(&mut self, files: &[FileId]) {
        let sequence = self.log.last();
        files.iter().for_each(|file| self.releasing.push(sequence, file));
    }

    /// Whether a release of a lease on `file` is not acknowledged yet.
    ///
    /// The server made a grant that arrives before then without knowledge of the release. The
    /// release then ends the granted lease too. So the client ignores such a grant, and the call
    /// that wanted it asks again.
    pub fn is_releasing(&self, file: &FileId) -> bool {
        self.releasing.has(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, empty, opened};
    use crate::{Call, Client, Input, Invalidation, Outcome, Settings, call};
    use lease::{Field, Label, Released};
    use namespace::{Cred, FileKind, FileSpec, RenameMode};
    use wire::{AskMode, LogEntry, ToClient};

    /// A client that holds two empty directories. A second server manages the second of them.
    fn two_servers() -> (Client, [(ServerId, FileId); 2]) {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let (second, dirs) = (ServerId(1), [2, 3].map(|n| FileId::root().child(n)));
        client.servers.map.insert(dirs[1].clone(), second);
        client.servers.sessions.insert(second, ServerSession::new(second));
        for server in client.servers.iter_mut() {
            let allowance = Allowance { bytes: 1 << 20, files: 100, asking: None };
            server.begin(Time(0), Opening { term_ms: 30_000, inodes: 2..9, allowance });
        }
        for (server, dir) in [ServerId::ROOT, second].into_iter().zip(&dirs) {
            let mut grant = wire::FileGrant { whole: true, ..empty(dir) };
            grant.values.reservation = Some((1, 9));
            grant.values.times = Some(namespace::Times::default());
            let granted = ToClient::Granted { number: 1, grants: vec![grant], gone: Vec::new() };
            client.handle(at(1), Input::Message(server, granted), &mut out);
        }
        let [one, other] = dirs;
        (client, [(ServerId::ROOT, one), (second, other)])
    }

    fn logged(client: &Client) -> Vec<usize> {
        client.servers.iter().map(|(_, session)| session.log.len()).collect()
    }

    #[test]
    fn an_update_is_in_the_log_of_the_server_that_manages_its_file() {
        let (mut client, dirs) = two_servers();
        for ((server, dir), expected) in dirs.iter().zip([[1, 0], [1, 1]]) {
            let create = Call::Create(call::Create {
                dir: dir.clone(),
                label: Label::new(b"x").unwrap(),
                spec: FileSpec::new(FileKind::Regular, 0o644, 0),
                open: None,
            });
            let called = client.call(at(2), &Cred::default(), create, &mut Vec::new());
            assert!(matches!(called, Outcome::Done(Ok(_))), "{called:?}");
            assert_eq!(logged(&client), expected);
            let session = client.servers.get(*server);
            assert_eq!((session.inodes.first(), session.allowance.files), (Some(3), 99));
        }
        // One acknowledges, and the other may never have had it.
        client.servers.iter_mut().for_each(|session| session.flush_log(&mut Vec::new()));
        let applied = ToClient::Applied { up_to: 1, rejected: Vec::new(), forgotten: 0 };
        client.handle(at(3), Input::Message(ServerId::ROOT, applied), &mut Vec::new());
        assert_eq!(logged(&client), [0, 1]);
    }

    /// Each server takes the names back from this client, too. Meanwhile the program that renames
    /// keeps the directories locked in the kernel.
    #[test]
    fn names_go_from_the_kernel_before_several_servers_are_asked() {
        let (mut client, dirs) = two_servers();
        let [(_, from_dir), (_, to_dir)] = dirs;
        let label = |name: &[u8]| Label::new(name).unwrap();
        let spec = FileSpec::new(FileKind::Regular, 0o644, 0);
        let create = call::Create { dir: from_dir.clone(), label: label(b"x"), spec, open: None };
        let created = client.call(at(2), &Cred::default(), Call::Create(create), &mut Vec::new());
        assert!(matches!(created, Outcome::Done(Ok(_))), "{created:?}");
        let rename = |to_dir: &FileId| {
            Call::Rename(call::Rename {
                from_dir: from_dir.clone(),
                from: label(b"x"),
                source: None,
                to_dir: to_dir.clone(),
                to: label(b"y"),
                mode: RenameMode::Replace,
                replaced: None,
                whiteout: false,
            })
        };
        let mut out = Vec::new();
        let called = client.call(at(3), &Cred::default(), rename(&to_dir), &mut out);
        assert!(matches!(called, Outcome::Waiting(_)), "{called:?}");
        let entries = [&from_dir, &to_dir].map(|dir| Invalidation::Entries(dir.clone()));
        let applied = ToClient::Applied { up_to: 1, rejected: Vec::new(), forgotten: 0 };
        client.handle(at(4), Input::Message(ServerId::ROOT, applied), &mut out);
        let revoked = out.iter().find_map(|output| match output {
            Output::Revoke { number, what, .. } => Some((*number, what.clone())),
            _ => None,
        });
        let Some((number, what)) = revoked else { panic!("{out:?}") };
        assert!(entries.iter().all(|entries| what.contains(entries)), "{what:?}");
        let asks =
            |output: &Output| matches!(output, Output::Send(_, ToServer::Ask { mode: AskMode::Ship, .. }));
        assert!(!out.iter().any(asks), "{out:?}");
        out.clear();
        client.handle(at(5), Input::Revoked { number, kept: Default::default() }, &mut out);
        assert!(out.iter().any(asks), "{out:?}");
    }

    /// The call goes on at the other server. The file is not gone.
    #[test]
    fn a_call_follows_its_file_to_another_server() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let (region, next) = (FileId::root().child(7), ServerId(3));
        let file = region.child(2);
        let stat = Call::Stat(call::Stat { file: file.clone() });
        let Outcome::Waiting(ticket) = client.call(at(1), &Cred::default(), stat, &mut out) else { panic!() };
        let numbers: Vec<u64> = out
            .iter()
            .filter_map(|output| match output {
                Output::Send(_, ToServer::Ask { number, .. }) => Some(*number),
                _ => None,
            })
            .collect();
        let [number] = numbers[..] else { panic!("{out:?}") };
        out.clear();
        let elsewhere = |epoch, server| ToClient::Elsewhere { number, region: region.clone(), epoch, server };
        client.handle(at(2), Input::Message(ServerId::ROOT, elsewhere(2, next)), &mut out);
        assert!(!out.iter().any(|output| matches!(output, Output::Answer { .. })), "{out:?}");
        assert!(client.calls.iter().any(|(waiting, _)| waiting == ticket));
        assert_eq!(client.servers.id_of(&file), next);
        assert!(matches!(out[..], [Output::Connect(server)] if server == next), "{out:?}");
        client.handle(at(2), Input::Greeting(next), &mut out);
        client.handle(at(2), Input::Message(next, opened()), &mut out);
        let asks = |client: &Client, server| client.servers.get(server).requests.want(&file);
        assert!(asks(&client, next) && !asks(&client, ServerId::ROOT));
        // An earlier epoch is late news.
        client.handle(at(3), Input::Message(ServerId::ROOT, elsewhere(1, ServerId(2))), &mut out);
        assert_eq!(client.servers.id_of(&file), next);
        assert_eq!(client.servers.id_of(&FileId::root().child(8)), ServerId::ROOT);
    }

    /// A part of a region has been elsewhere, came home, and moved on with the region.
    #[test]
    fn what_has_come_home_is_where_its_region_is() {
        let (region, mut servers) = (FileId::root().child(7), Servers::new());
        let (part, other) = (region.child(2), region.child(3));
        let at = |servers: &Servers| [&region, &part, &other].map(|file| servers.id_of(file).0);
        assert!(servers.learn(region.clone(), 1, ServerId(1)));
        assert!(servers.learn(part.clone(), 2, ServerId(2)));
        assert!(servers.learn(other.clone(), 9, ServerId(3)));
        assert_eq!(at(&servers), [1, 2, 3]);
        assert!(servers.learn(region.clone(), 5, ServerId(4)));
        assert_eq!(at(&servers), [4, 4, 3], "the other part left in a later epoch");
        assert!(!servers.learn(part.clone(), 3, ServerId(1)), "late news");
        assert!(servers.learn(part.clone(), 6, ServerId(5)));
        assert_eq!(at(&servers), [4, 5, 3]);
    }

    #[test]
    fn a_lease_is_released_to_the_server_that_manages_its_file() {
        let (mut client, dirs) = two_servers();
        let release = |(_, dir): &(ServerId, FileId)| Released {
            file: dir.clone(),
            field: Field::Attributes,
            keep: None,
        };
        for (server, dir) in &dirs {
            let recall =
                ToClient::Recall { leases: vec![release(&(*server, dir.clone()))], ahead: Vec::new() };
            let mut out = Vec::new();
            client.handle(at(2), Input::Message(*server, recall), &mut out);
            let Some(Output::Revoke { number, .. }) = out.first() else { panic!("{out:?}") };
            let revoked = Input::Revoked { number: *number, kept: std::collections::BTreeSet::new() };
            client.handle(at(2), revoked, &mut Vec::new());
        }
        for (server, dir) in &dirs {
            let session = client.servers.get_mut(*server);
            assert!(session.is_releasing(dir));
            let (_, entries) = session.log.left();
            assert!(
                matches!(&entries[..], [LogEntry::Release(leases)] if leases.iter().all(|it| it.file == *dir)),
                "{entries:?}"
            );
        }
    }
}
