//! A server in memory, its sessions, and the messages to them. After every input the whole state is
//! checked.

use directory::{
    DelegateError, Directory, FoundError, Input, Inspector, MemoryStore, Misdeed, Output, Policy, ShareWork,
    Violation,
};
use ident::{FileId, ServerId};
use lease::{Field, Kind, Label, Lease, OpenModes, Released, SessionId, Time};
use namespace::{
    Answer, Attributes, ContentChange, Cred, Effect, Extent, FileKind, FileSpec, INLINE_SEAL_BYTES, NewFile,
    Operation, Piece, Place, RenameMode, ShareId, Timestamp, operation,
};
use std::collections::BTreeMap;
use wire::{
    AskMode, EnrolError, ExpelError, FileGrant, GreetingNumber, HandOver, InviteError, Joint, LogEntry,
    MachineId, PathLease, Refusal, Rights, Space, ToClient, ToServer, Version, Versions,
};

pub const GIB: u64 = 1 << 30;

/// The result of an operation.
pub type Outcome = Result<(Answer, Vec<Effect>), namespace::Error>;

pub struct World {
    pub now: Time,
    pub server: Directory,
    /// The versions that its program knows from its next start on.
    pub knows: Versions,
    pub store: MemoryStore,
    /// The unread messages to each session.
    pub inbox: BTreeMap<SessionId, Vec<ToClient>>,
    pub shares: Vec<ShareWork>,
    /// Whether background work is left.
    pub again: bool,
    /// The number of times that the server asked for its work to be made durable, for the next
    /// report.
    pub syncs: u32,
    /// Off for runs so long that checking the whole state each time would take most of the time.
    pub checks: bool,
    /// Machines that got no session, and why.
    pub refused: Vec<Refusal>,
    pub raised: Vec<Version>,
    pub authorized: Vec<(u64, bool)>,
    pub invited: Vec<Result<(), InviteError>>,
    pub revoked: Vec<Result<(), wire::RevokeError>>,
    pub enrolled: Vec<Result<(MachineId, Rights), EnrolError>>,
    pub expelled: Vec<Result<(), ExpelError>>,
    /// The results of operations in the order in which they were done: the request's number, and
    /// what was told.
    pub shipped: Vec<(u64, Outcome)>,
    /// Messages to other servers.
    pub handed: Vec<(ServerId, HandOver)>,
    /// The same about joint operations.
    pub jointly: Vec<(ServerId, Joint)>,
    /// The same about path leases.
    pub paths: Vec<(ServerId, PathLease)>,
    pub delegated: Vec<Result<(), DelegateError>>,
    pub founded: Vec<Result<ServerId, FoundError>>,
    /// Messages in both directions so far.
    pub messages: usize,
    next_entry: BTreeMap<SessionId, u64>,
    next_number: u64,
    inodes: BTreeMap<SessionId, u64>,
}

impl World {
    pub fn new() -> World {
        World::with_policy(Policy::default())
    }

    pub fn with_policy(policy: Policy) -> World {
        let (mut store, knows) = (MemoryStore::default(), Versions::KNOWN);
        let server = Directory::create(&mut store, root(), "first", knows).with_policy(policy);
        World::of(server, store, knows)
    }

    /// Another server beside the root server, with the same machines.
    pub fn beside(root: &World, server: ServerId) -> World {
        let (mut store, knows) = (MemoryStore::default(), Versions::KNOWN);
        let registry = root.server.registry(0, &root.store);
        let server = Directory::create_beside(&mut store, server, (&registry, 0), knows).unwrap();
        World::of(server, store, knows)
    }

    fn of(server: Directory, store: MemoryStore, knows: Versions) -> World {
        let mut world = World {
            now: Time(1000),
            server,
            knows,
            store,
            inbox: BTreeMap::new(),
            shares: Vec::new(),
            again: false,
            syncs: 0,
            checks: true,
            refused: Vec::new(),
            raised: Vec::new(),
            authorized: Vec::new(),
            invited: Vec::new(),
            revoked: Vec::new(),
            enrolled: Vec::new(),
            expelled: Vec::new(),
            shipped: Vec::new(),
            handed: Vec::new(),
            jointly: Vec::new(),
            paths: Vec::new(),
            delegated: Vec::new(),
            founded: Vec::new(),
            messages: 0,
            next_entry: BTreeMap::new(),
            next_number: 0,
            inodes: BTreeMap::new(),
        };
        world.input(Input::Space(Space {
            total: 100 * GIB,
            free: 64 * GIB,
            files: 0,
            lends: 0,
            elsewhere: 0,
        }));
        world
    }

    pub fn input(&mut self, input: Input) {
        self.input_unchecked(input);
        if !self.checks {
            return;
        }
        let mut violations = Vec::new();
        self.server.check(&self.store, &mut violations);
        assert!(violations.is_empty(), "{violations:#?}");
    }

    pub fn check(&self) {
        let violations = violations(&self.server, &self.store);
        assert!(violations.is_empty(), "{violations:#?}");
    }

    pub fn input_unchecked(&mut self, input: Input) {
        let mut out = Vec::new();
        self.server.handle(self.now, input, &mut self.store, &mut out).unwrap();
        for output in out {
            match output {
                Output::Opened { session, .. } => {
                    self.inbox.insert(session, Vec::new());
                }
                Output::Send { session, message } => {
                    let bytes = wire::encode(&message).len();
                    assert!(bytes <= wire::FRAME_BYTES_MAX, "a message of {bytes} bytes");
                    self.messages += 1;
                    if let ToClient::Shipped { number, result } = &message {
                        self.shipped.push((*number, result.clone()));
                    }
                    self.inbox.entry(session).or_default().push(message);
                }
                Output::Shares(work) => self.shares.extend(work),
                Output::Again => self.again = true,
                Output::Sync => self.syncs += 1,
                Output::Raised { version } => self.raised.push(version),
                Output::Authorized { number, done } => self.authorized.push((number, done)),
                Output::Refused { why, .. } => self.refused.push(why),
                Output::Invited { result, .. } => self.invited.push(result),
                Output::Revoked { result, .. } => self.revoked.push(result),
                Output::Enrolled { result, .. } => self.enrolled.push(result),
                Output::Expelled { result, .. } => self.expelled.push(result),
                Output::Delegated { result, .. } => self.delegated.push(result),
                Output::HandOver { to, message } => self.handed.push((to, message)),
                Output::Joint { to, message } => self.jointly.push((to, *message)),
                Output::PathLease { to, message } => self.paths.push((to, message)),
                Output::Founded { result, .. } => self.founded.push(result),
            }
        }
    }

    /// Enrols machines, with all rights, until this one has joined.
    pub fn enrol_up_to(&mut self, machine: u64) {
        while self.server.machines(self.now, &self.store).last().is_none_or(|last| last.machine.0 < machine) {
            self.enrol(Rights::FULL).unwrap();
        }
    }

    /// Enrols a machine with these rights, under a name and a token of its own.
    pub fn enrol(&mut self, rights: Rights) -> Result<MachineId, EnrolError> {
        let number = self.server.machines(self.now, &self.store).len() as u64 + 1;
        let mut token = [7; 32];
        token[..8].copy_from_slice(&number.to_be_bytes());
        self.input_unchecked(Input::Invite { token, rights, at: 0, until: 1 });
        let (name, key) = (format!("machine-{number}"), [0; 32]);
        self.input_unchecked(Input::Enrol { token, name, key, at: 0, connection: number });
        let enrolled = self.enrolled.pop().expect("no answer");
        enrolled.map(|(machine, _)| machine)
    }

    /// Opens a session of `machine`.
    pub fn open(&mut self, machine: u64, incarnation: u64) -> SessionId {
        self.opened(machine, incarnation, Version::NEWEST).0
    }

    /// The same for a machine that speaks `version`; also the version by which it is to decide.
    pub fn opened(&mut self, machine: u64, incarnation: u64, version: Version) -> (SessionId, Version) {
        self.enrol_up_to(machine);
        let before: Vec<SessionId> = self.inbox.keys().copied().collect();
        let machine = MachineId(machine);
        let greeting = GreetingNumber::default();
        self.input(Input::Open { machine, incarnation, greeting, session: None, connection: 0, version });
        let session = *self.inbox.keys().find(|session| !before.contains(session)).expect("no session");
        let Some(&ToClient::Opened { inodes, version, .. }) =
            self.inbox.get(&session).and_then(|inbox| inbox.last())
        else {
            panic!("not opened: {:?}", self.inbox)
        };
        self.inodes.insert(session, inodes.0);
        self.next_entry.insert(session, 1);
        self.inbox.insert(session, Vec::new());
        (session, version)
    }

    pub fn send(&mut self, session: SessionId, message: ToServer) {
        self.messages += 1;
        self.input(Input::Message { session, message });
    }

    /// Everything that `session` was sent since it last looked.
    pub fn told(&mut self, session: SessionId) -> Vec<ToClient> {
        self.inbox.insert(session, Vec::new()).unwrap_or_default()
    }

    /// The number of the next request.
    pub fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Asks; returns the number of the request.
    pub fn ask(&mut self, session: SessionId, operation: Operation, wants: Vec<Lease>, mode: AskMode) -> u64 {
        let number = self.next_number();
        self.send(session, ToServer::Ask { number, operation, wants, mode });
        number
    }

    /// Asks and is granted at once.
    pub fn granted(&mut self, session: SessionId, operation: Operation, mode: AskMode) -> Vec<FileGrant> {
        let number = self.ask(session, operation, Vec::new(), mode);
        self.grants(session, number).expect("not granted at once")
    }

    /// The answer to a request for leases, if it has come.
    pub fn grants(&mut self, session: SessionId, number: u64) -> Option<Vec<FileGrant>> {
        let inbox = self.inbox.get_mut(&session)?;
        let at =
            inbox.iter().position(|m| matches!(m, ToClient::Granted { number: n, .. } if *n == number))?;
        match inbox.remove(at) {
            ToClient::Granted { grants, .. } => Some(grants),
            _ => None,
        }
    }

    /// The leases recalled from `session`, as one list.
    pub fn recalled(&mut self, session: SessionId) -> Vec<Released> {
        let mut recalled = Vec::new();
        for message in self.told(session) {
            match message {
                ToClient::Recall { leases, .. } => recalled.extend(leases),
                other => panic!("{other:?} beside recalls"),
            }
        }
        recalled
    }

    /// The lease that a machine holds on a field, as far as the server knows.
    pub fn holds(&self, machine: u64, file: &FileId, field: &Field) -> Option<Kind> {
        let leases = self.server.leases(self.now, &self.store, file);
        leases.into_iter().find_map(|it| match it.standing {
            directory::Standing::Holds { kind, .. } if it.machine.0 == machine && it.field == *field => {
                Some(kind)
            }
            _ => None,
        })
    }

    /// Logs entries; returns the refusals.
    pub fn log(&mut self, session: SessionId, entries: Vec<LogEntry>) -> Vec<(u64, namespace::Error)> {
        self.send_log(session, entries, true);
        self.applied(session)
    }

    /// Logs entries, to be acknowledged at once or later.
    pub fn send_log(&mut self, session: SessionId, entries: Vec<LogEntry>, answer: bool) {
        let first = *self.next_entry.get(&session).unwrap();
        self.next_entry.insert(session, first + entries.len() as u64);
        self.send(session, ToServer::Log { answer, first, entries });
    }

    /// The refusals in the answer to a log.
    fn applied(&mut self, session: SessionId) -> Vec<(u64, namespace::Error)> {
        let inbox = self.inbox.get_mut(&session).unwrap();
        let at = inbox.iter().position(|m| matches!(m, ToClient::Applied { .. })).expect("not applied");
        match inbox.remove(at) {
            ToClient::Applied { rejected, .. } => rejected,
            _ => unreachable!(),
        }
    }

    /// Logs an update. An update that the session has no leases for is a misdeed, which ends the
    /// session.
    pub fn update(&mut self, session: SessionId, operation: Operation) -> Result<(), namespace::Error> {
        let first = self.next_entry.get_mut(&session).unwrap();
        *first += 1;
        let first = *first - 1;
        self.send(session, ToServer::Log { answer: true, first, entries: vec![update(operation)] });
        if self.server.misdeeds() == [(session, Misdeed::NoLease)] {
            return Err(namespace::Error::CutOff);
        }
        self.applied(session).first().map_or(Ok(()), |(_, error)| Err(*error))
    }

    pub fn release(&mut self, session: SessionId, released: Vec<Released>) {
        assert!(self.log(session, releasing(released)).is_empty());
    }

    /// Releases handles down to `keep`, and says whether the session has the file open.
    pub fn returns(&mut self, session: SessionId, file: &FileId, keep: Option<Kind>, open: bool) {
        let entry = returning(released(file, Field::Handles, keep), open);
        assert!(self.log(session, vec![entry]).is_empty());
    }

    /// The server stops and starts again from its checkpoint.
    pub fn restart(&mut self) {
        self.server.checkpoint(&mut self.store);
        self.server = Directory::open(&self.store, self.knows).unwrap();
        self.input(Input::Lead);
    }

    /// Answers all recalls of `session` as asked.
    pub fn yields(&mut self, session: SessionId) -> usize {
        let recalled = self.recalled(session);
        let count = recalled.len();
        if count > 0 {
            self.release(session, recalled);
        }
        count
    }

    /// A create with the session's next inode number.
    pub fn create(
        &mut self,
        session: SessionId,
        dir: &FileId,
        label: &str,
        kind: FileKind,
        position: u64,
    ) -> Operation {
        let ino = *self.inodes.get(&session).unwrap();
        self.inodes.insert(session, ino + 1);
        create(dir, label, kind, position, ino)
    }

    /// The session's inode numbers go on from here.
    pub fn next_inode(&mut self, session: SessionId, ino: u64) {
        self.inodes.insert(session, ino);
    }

    /// Gives everything of the root to `session`, with a block of its integers.
    pub fn take_root(&mut self, session: SessionId) -> u64 {
        let operation = lookup(&FileId::root(), "none");
        let grants = self.granted(session, operation, AskMode::Lease);
        grants.first().and_then(|grant| grant.values.reservation).expect("no integers").0
    }

    /// Does background work until none is left; returns the number of steps.
    pub fn settle(&mut self) -> usize {
        let mut steps = 0;
        while std::mem::take(&mut self.again) {
            self.input(Input::Tick);
            steps += 1;
        }
        steps
    }
}

/// Releases a lease; no handle is open. For one black box this is a return, with the own value.
pub fn returning(released: Released, value: bool) -> LogEntry {
    let Released { file, field, keep } = released;
    let mut own = OpenModes::CLOSED;
    own.set(&field, value);
    LogEntry::Return { file, fields: vec![(field, keep)], own }
}

pub fn releasing(released: Vec<Released>) -> Vec<LogEntry> {
    let (returned, released): (Vec<_>, Vec<_>) =
        released.into_iter().partition(|released| released.field.is_black_box());
    let returned = returned.into_iter().map(|released| returning(released, false));
    returned.chain((!released.is_empty()).then_some(LogEntry::Release(released))).collect()
}

/// The violations in the whole state.
pub fn violations(server: &Directory, store: &MemoryStore) -> Vec<Violation> {
    struct Found(Vec<Violation>);
    impl Inspector for Found {
        fn violation(&mut self, violation: Violation) {
            self.0.push(violation);
        }
    }
    let mut found = Found(Vec::new());
    server.check(store, &mut found);
    found.0
}

pub fn root() -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: at(1),
        btime: at(1),
        atime: at(1),
    }
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

pub fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

/// The first start of a machine has a new connection.
pub fn connects(machine: u64, session: Option<SessionId>, connection: u64) -> Input {
    let (machine, incarnation, version) = (MachineId(machine), 1, Version::NEWEST);
    let greeting = GreetingNumber { drawn: 1, count: connection };
    Input::Open { machine, incarnation, greeting, session, connection, version }
}

pub fn update(operation: Operation) -> LogEntry {
    LogEntry::Update { version: Version::NEWEST, operation }
}

pub fn lookup(dir: &FileId, name: &str) -> Operation {
    Operation::Lookup(operation::Lookup { dir: dir.clone(), label: label(name), cred: Cred::default() })
}

pub fn stat(file: &FileId) -> Operation {
    Operation::Stat(operation::Stat { file: file.clone() })
}

pub fn list(dir: &FileId) -> Operation {
    Operation::List(operation::List { dir: dir.clone() })
}

pub fn create(dir: &FileId, name: &str, kind: FileKind, position: u64, ino: u64) -> Operation {
    let file = FileId::for_child(dir, position, ino);
    let new = NewFile { file, ino, spec: FileSpec::new(kind, 0o644, 0o022) };
    let (dir, label) = (dir.clone(), label(name));
    Operation::Create(operation::Create { dir, label, position, new, cred: Cred::default(), time: at(10) })
}

pub fn made(operation: &Operation) -> FileId {
    match operation {
        Operation::Create(operation::Create { new, .. }) => new.file.clone(),
        other => panic!("{other:?}"),
    }
}

pub fn unlink(dir: &FileId, name: &str, open: bool) -> Operation {
    let (dir, label) = (dir.clone(), label(name));
    Operation::Unlink(operation::Unlink {
        dir,
        label,
        directory: false,
        open,
        cred: Cred::default(),
        time: at(20),
        pending: None,
    })
}

pub fn rename(from_dir: &FileId, from: &str, to_dir: &FileId, to: &str, position: u64) -> Operation {
    Operation::Rename(operation::Rename {
        from_dir: from_dir.clone(),
        from: label(from),
        to_dir: to_dir.clone(),
        to: label(to),
        mode: RenameMode::Replace,
        position,
        whiteout: None,
        open: false,
        cred: Cred::default(),
        time: at(30),
        source: None,
        replaced: None,
    })
}

pub fn publish(file: &FileId, version: u64, size: u64, change: ContentChange) -> Operation {
    Operation::Publish(operation::Publish {
        file: file.clone(),
        version,
        size,
        mtime: at(40),
        ctime: at(40),
        change,
    })
}

pub fn extents(put: Vec<Extent>, first: bool) -> ContentChange {
    ContentChange::Extents { truncate_to: None, punch: Vec::new(), put, key: first.then_some([7; 32]) }
}

/// A stand-in for these bytes, sealed.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    [&[0xA5; INLINE_SEAL_BYTES], bytes].concat()
}

pub fn inline(bytes: &[u8]) -> ContentChange {
    ContentChange::Inline { sealed: sealed(bytes), key: Some([7; 32]) }
}

pub fn share(n: u8) -> ShareId {
    ShareId([n; 16])
}

/// `length` bytes at `offset`, in `share`.
pub fn extent(offset: u64, length: u32, share: ShareId) -> Extent {
    let place = Place::Share { share, at: 0 };
    Extent { offset, length, skip: 0, piece: Piece { length, nonce: [0; 12], hash: [0; 32], place } }
}

pub fn want(file: &FileId, field: Field, kind: Kind) -> Lease {
    Lease::new(file.clone(), field, kind)
}

pub fn released(file: &FileId, field: Field, keep: Option<Kind>) -> Released {
    Released { file: file.clone(), field, keep }
}
