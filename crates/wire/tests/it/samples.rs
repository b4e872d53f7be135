//! Samples of every message: each variant of it, and of all its parts, at least once.

use crate::parts::*;
use ident::FileId;
use lease::{Field, Kind, Lease, OpenModes, Released};
use namespace::*;
use wire::{
    AccountAnswer, AccountCall, AccountRefusal, AccountRequest, AskMode, FileGrant, JointAge, JointId,
    LogEntry, MachineId, PathLease, PathStep, Purpose, Rights, ServerAt, ShareCall, ShareReply, ShareRequest,
    ShareStanding, Space, Start, ToClient, ToServer, Values, Version, Versions, Welcome,
};

/// A message of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    ToServer(ToServer),
    ToClient(ToClient),
    Greeting(Purpose),
    Answer(Welcome),
    ShareRequest(ShareRequest),
    ShareReply(ShareReply),
    ShareStanding(ShareStanding),
    AccountCall(AccountCall),
    AccountAnswer(AccountAnswer),
    PathLease(PathLease),
}

impl Message {
    /// The first version that has the message.
    pub fn since(&self) -> Version {
        match self {
            Message::ShareRequest(request) => request.what.since(),
            _ => Version(1),
        }
    }

    /// Encodes it as sent between two machines that know `ours`.
    pub fn encode(&self, ours: Versions) -> Vec<u8> {
        match self {
            Message::ToServer(message) => wire::encode(message),
            Message::ToClient(message) => wire::encode(message),
            Message::Greeting(purpose) => wire::greeting(ours, purpose),
            Message::Answer(welcome) => wire::answer(ours.newest, welcome),
            Message::ShareRequest(request) => wire::encode(request),
            Message::ShareReply(reply) => wire::encode(reply),
            Message::ShareStanding(standing) => wire::encode(standing),
            Message::AccountCall(call) => wire::encode(call),
            Message::AccountAnswer(answer) => wire::encode(answer),
            Message::PathLease(message) => wire::encode(message),
        }
    }

    /// Everything that `bytes` may be taken for, without the body.
    pub fn decode_as_any(bytes: &[u8]) -> Vec<Message> {
        let any = [
            wire::decode(bytes).ok().map(Message::ToServer),
            wire::decode(bytes).ok().map(Message::ToClient),
            wire::read_greeting(Versions::KNOWN, bytes).ok().map(|(_, purpose)| Message::Greeting(purpose)),
            wire::read_answer(Versions::KNOWN, bytes).ok().map(|(_, welcome)| Message::Answer(welcome)),
            wire::decode_with_body(bytes).ok().map(|(request, _)| Message::ShareRequest(request)),
            wire::decode_with_body(bytes).ok().map(|(reply, _)| Message::ShareReply(reply)),
            wire::decode(bytes).ok().map(Message::ShareStanding),
            wire::decode(bytes).ok().map(Message::AccountCall),
            wire::decode(bytes).ok().map(Message::AccountAnswer),
            wire::decode(bytes).ok().map(Message::PathLease),
        ];
        any.into_iter().flatten().collect()
    }
}

every! { purposes -> Purpose {
    Join { secret: [1; 16], name: "hall".to_owned(), key: [2; 32] },
    Session {
        server: ident::ServerId(3),
        start: Start { incarnation: 300, drawn: 7, before: vec![8], greeting: 9 },
        session: Some(lease::SessionId(5)),
        receipt: Some(receipt()),
    },
    Content,
    Peer,
    Serve,
    Ready { member: 300, addresses: vec!["10.0.0.7:7777".to_owned()] },
    Control { request: "\"Machines\"".to_owned() },
    Leave {},
} }
every! { welcomes -> Welcome {
    Session {
        session: lease::SessionId(5),
        servers: vec![ServerAt {
            machine: MachineId(1),
            addresses: vec!["hall:7777".to_owned()],
            votes: true,
            weight: 931,
        }],
        serve: true,
    },
    Content,
    Joined { machine: MachineId(2), certificates: (b"its".to_vec(), b"the authority's".to_vec()) },
    Elsewhere { addresses: vec!["hall:7777".to_owned()] },
    Peer,
    Serve { member: 300, certificates: (b"its".to_vec(), b"authority".to_vec()) },
    Certified { certificates: (b"its".to_vec(), b"authority".to_vec()) },
    Done,
    Control,
    Refused { why: "no".to_owned() },
    Started { incarnation: 300 },
} }
every! { share_calls -> ShareCall {
    Store { session: lease::SessionId(5), shares: vec![(share(1), 300), (share(2), 0)] },
    Read { share: share(1), at: 300, length: 4096 },
    LetGo(vec![share(1)]),
    Fetch(share(1)),
    Keep(vec![share(1), share(2)]),
    Doubt(share(1)),
    Standing,
    Report,
    Which,
    Account(AccountRequest {
        key: [1; 32],
        nonce: 300,
        signature: ([2; 32], [3; 32]),
        call: wire::encode(&AccountCall::Usage),
    }),
    Space,
} }
every! { account_calls -> AccountCall {
    Store { shares: vec![(share(1), 300), (share(2), 0)], body: [4; 32] },
    Lease(vec![share(1)]),
    LetGo(vec![share(1), share(2)]),
    List(Some(share(1))),
    Usage,
} }
every! { account_answers -> AccountAnswer {
    Refused(AccountRefusal::Signature),
    Held { shares: vec![share(1)], until: 1_800_000_000 },
    Done,
    Leased(vec![share(1), share(2)]),
    Usage { usage: (3, 300), quota: Some((4, 400)) },
} }
every! { path_steps -> PathStep {
    Ask { age: Some(JointAge { since: lease::Time(300), first: JointId(1 << 47) }) },
    Issued { above: vec![dir(), FileId::root()] },
    Gone,
    NotHere { server: ident::ServerId(300) },
    Recall,
    Released,
} }
every! { account_refusals -> AccountRefusal {
    Signature, Unknown, Replayed, Malformed, Quota, Taken, Busy, NoSpace, Failed,
} }
every! { ask_modes -> AskMode { Lease, Page { after: 200 }, Ship, Report, LeaseOrReport, LeaseIfFree, Values } }
every! { log_entries -> LogEntry {
    Update { version: Version(300), operation: Operation::Dispose(operation::Dispose { file: file(), time: at(9) }) },
    Release(released()),
    Return { file: file(), fields: black_boxes(), own: OpenModes::posix(true, false) },
    Flushed { number: 300 },
    WritesThrough { number: 300, file: file() },
    Wrote { file: file() },
} }
every! { to_server -> ToServer {
    Renew,
    Ask { number: 7, operation: Operation::Stat(operation::Stat { file: file() }), wants: wants(), mode: AskMode::Lease },
    Log { first: 8, entries: values(log_entries()), answer: true },
    Reserve { dir: dir() },
    ReserveInodes { known: 8193 },
    Allow { held: (1, 2), want: (300, 4), replaces: 5 },
    Extents { number: 9, file: file(), from: 1 << 20 },
    Goodbye,
} }
every! { to_client -> ToClient {
    Opened { inodes: (2, 4098), allowance: (1 << 28, 65_536), space: space(), term_ms: 30_000, version: Version(1), rights: rights() },
    Renewed { space: space() },
    Granted { number: 7, grants: vec![grant(), whole_grant()], gone: vec![file()] },
    Shipped { number: 8, result: Ok((Answer::Nothing, values(effects()))) },
    Reported { number: 9, values: vec![grant()], gone: vec![FileId::root()] },
    Recall { leases: released(), ahead: released() },
    Flush { number: 10, file: file(), field: Field::Times },
    Applied { up_to: 300, rejected: rejected(), forgotten: 7 },
    Reserved { dir: dir(), first: 65, end: 129 },
    ReservedInodes { first: 4098, end: 8194 },
    Allowance { bytes: 1 << 28, files: 3, space: space() },
    Extents { number: 11, file: file(), from: 0, to: u64::MAX, extents: extents(), inline: Some(b"text".to_vec()) },
    Fenced,
    Resumed { up_to: 300, rejected: rejected(), forgotten: 7, space: space(), term_ms: 30_000, version: Version(1) },
    WriteThrough { number: 10, file: file() },
    Heard { file: file(), up_to: 300, goes_on: true },
    Receipt(receipt()),
    Elsewhere { number: 18, region: dir(), epoch: 3, server: ident::ServerId(2) },
} }

/// All samples, named.
pub fn samples() -> Vec<(String, Message)> {
    let mut all: Vec<(String, Message)> = Vec::new();
    let mut add = |kind: &str, name: &str, message| all.push((format!("{kind}.{name}"), message));
    for (name, purpose) in purposes() {
        add("Greeting", name, Message::Greeting(purpose));
    }
    for (name, welcome) in welcomes() {
        add("Answer", name, Message::Answer(welcome));
    }
    for (name, message) in to_server() {
        add("ToServer", name, Message::ToServer(message));
    }
    for (name, mode) in ask_modes() {
        let ask = ToServer::Ask {
            number: 7,
            operation: Operation::List(operation::List { dir: dir() }),
            wants: Vec::new(),
            mode,
        };
        add("ToServer.Ask", name, Message::ToServer(ask));
    }
    let operations = operations().into_iter().map(|(name, operation)| (name.to_owned(), operation));
    for (name, operation) in operations.chain(variations()) {
        let (within, message) = if operation.is_update() {
            let entries = vec![LogEntry::Update { version: Version(1), operation }];
            ("ToServer.Log.Update", ToServer::Log { answer: false, first: 1, entries })
        } else {
            ("ToServer.Ask", ToServer::Ask { number: 7, operation, wants: Vec::new(), mode: AskMode::Lease })
        };
        add(within, &name, Message::ToServer(message));
    }
    for (name, message) in to_client() {
        add("ToClient", name, Message::ToClient(message));
    }
    let results = answers().into_iter().map(|(name, answer)| (name, Ok((answer, Vec::new()))));
    for (name, result) in results.chain(errors().into_iter().map(|(name, error)| (name, Err(error)))) {
        add("ToClient.Shipped", name, Message::ToClient(ToClient::Shipped { number: 8, result }));
    }
    for (name, what) in share_calls() {
        add("ShareRequest", name, Message::ShareRequest(ShareRequest { number: 9, what }));
    }
    for (name, call) in account_calls() {
        add("AccountCall", name, Message::AccountCall(call));
    }
    for (name, answer) in account_answers() {
        add("AccountAnswer", name, Message::AccountAnswer(answer));
    }
    for (name, refusal) in account_refusals() {
        let answer = AccountAnswer::Refused(refusal);
        add("AccountAnswer.Refused", name, Message::AccountAnswer(answer));
    }
    let results = vec![Ok(()), Err(Error::Damaged)];
    add("ShareReply", "Results", Message::ShareReply(ShareReply { number: 9, results }));
    let (kept, bytes, missing, fetching, leaving) = (300, 1 << 30, 5, 2, 7);
    let standing = ShareStanding { kept, bytes, missing, fetching, leaving, hosts: u64::MAX, complete: true };
    add("ShareStanding", "All", Message::ShareStanding(standing));
    for (name, step) in path_steps() {
        add("PathLease", name, Message::PathLease(PathLease { dir: dir(), number: 300, step }));
    }
    all
}

/// Operations whose parts have variants of their own.
fn variations() -> Vec<(String, Operation)> {
    let mut all = Vec::new();
    for (name, mode) in rename_modes() {
        let (from_dir, from, to_dir, to) = (dir(), label(), dir(), label());
        let (source, replaced) = (None, None);
        let (position, whiteout, open, cred, time) = (9, None, false, cred(), at(9));
        let rename = Operation::Rename(operation::Rename {
            from_dir,
            from,
            source,
            to_dir,
            to,
            mode,
            replaced,
            position,
            whiteout,
            open,
            cred,
            time,
        });
        all.push((format!("Rename.{name}"), rename));
    }
    for (name, mode) in xattr_modes() {
        let (file, label, value, cred, time) = (file(), label(), Vec::new(), cred(), at(9));
        let set = Operation::SetXattr(operation::SetXattr { file, name: label, value, mode, cred, time });
        all.push((format!("SetXattr.{name}"), set));
    }
    for (name, time) in set_times() {
        let change = AttributeChange { atime: Some(time), ..AttributeChange::default() };
        let set = Operation::SetAttributes(operation::SetAttributes {
            file: file(),
            change,
            cred: cred(),
            time: at(9),
        });
        all.push((format!("SetAttributes.{name}"), set));
    }
    for (name, change) in content_changes() {
        let (file, version, size, mtime, ctime) = (file(), 10, 4, at(2), at(3));
        let publish = Operation::Publish(operation::Publish { file, version, size, mtime, ctime, change });
        all.push((format!("Publish.{name}"), publish));
    }
    for (name, space) in lock_spaces() {
        let change = LockChange { space, ..change(None) };
        all.push((format!("Lock.{name}"), Operation::Lock(operation::Lock { file: file(), change })));
    }
    for (name, kind) in lock_kinds() {
        let change = change(Some(kind));
        all.push((format!("Lock.{name}"), Operation::Lock(operation::Lock { file: file(), change })));
    }
    for (name, kind) in file_kinds() {
        let new = NewFile { file: file(), ino: 4097, spec: FileSpec::new(kind, 0o644, 0) };
        let (dir, label, position, cred, time) = (dir(), label(), 200, Cred::default(), at(9));
        all.push((
            format!("Create.{name}"),
            Operation::Create(operation::Create { dir, label, position, new, cred, time }),
        ));
    }
    all
}

fn space() -> Space {
    Space { total: 1 << 40, free: 1 << 39, files: 12, lends: 34, elsewhere: 0 }
}

fn rights() -> Rights {
    Rights { root: dir(), read_only: true, squash: Some(1000) }
}

fn rejected() -> Vec<(u64, Error)> {
    vec![(299, Error::Stale), (300, Error::Invalid)]
}

fn keeps() -> impl Iterator<Item = Option<Kind>> {
    [None].into_iter().chain(values(kinds()).into_iter().map(Some))
}

fn wants() -> Vec<Lease> {
    let kinds = values(kinds()).into_iter().cycle();
    values(fields()).into_iter().zip(kinds).map(|(field, kind)| Lease::new(file(), field, kind)).collect()
}

fn released() -> Vec<Released> {
    let keeps = keeps().collect::<Vec<_>>().into_iter().cycle();
    values(fields())
        .into_iter()
        .zip(keeps)
        .map(|(field, keep)| Released { file: file(), field, keep })
        .collect()
}

fn black_boxes() -> Vec<(Field, Option<Kind>)> {
    let keeps = keeps().collect::<Vec<_>>().into_iter().cycle();
    values(modes()).into_iter().map(Field::Mode).zip(keeps).collect()
}

fn whole_grant() -> FileGrant {
    let (fields, excluded, excluded_xattrs) = (Vec::new(), Vec::new(), Vec::new());
    FileGrant { file: file(), whole: true, fields, excluded, excluded_xattrs, values: Values::default() }
}

fn grant() -> FileGrant {
    let values = Values {
        attributes: Some(attributes(FileKind::Directory)),
        content: Some(head(Some([3; 32]))),
        inline: Some(b"text".to_vec()),
        extents: Some((extents(), u64::MAX)),
        times: Some(times()),
        links: Some([link()].into_iter().collect()),
        disposition: Some(Some(disposition())),
        locks: Some(locks()),
        others: others(),
        children: vec![(label(), entry())],
        told: vec![label()],
        children_up_to: Some(300),
        children_last: 301,
        xattrs: vec![(name(), b"value".to_vec())],
        reservation: Some((65, 129)),
    };
    let fields = wants().into_iter().map(|want| (want.field, want.kind)).collect();
    FileGrant {
        file: file(),
        whole: false,
        fields,
        excluded: vec![label()],
        excluded_xattrs: vec![name()],
        values,
    }
}
