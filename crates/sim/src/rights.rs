//! Machines with less than all rights: their clients' answers, and their requests.

use bytes::Bytes;
use client::{Call, Client, Now, Outcome, Output, Reply, Settings, call};
use directory::{Directory, Input, MemoryStore};
use ident::FileId;
use lease::{Label, Open, SessionId, Time};
use namespace::{AttributeChange, Attributes, Cred, Error, FileKind, FileSpec, Timestamp};
use std::collections::VecDeque;
use wire::{GreetingNumber, MachineId, Rights, Space, ToClient, ToServer, Version};

const NOW: Now = Now { time: Time(1_000), wall: Timestamp { secs: 1_700_000_000, nanos: 0 } };
const ROOT: FileId = FileId::root();
const READING: Open = Open::posix(true, false);

/// A server and its clients. Nothing takes time.
pub(crate) struct RightsWorld {
    directory: Directory,
    store: MemoryStore,
    pub(crate) now: Now,
    clients: Vec<(Client, Option<SessionId>)>,
    to_server: VecDeque<Input>,
    answers: VecDeque<(client::Ticket, Result<Reply, Error>)>,
    /// Messages that clients have sent.
    sent: Vec<ToServer>,
    refused_updates: usize,
}

impl RightsWorld {
    pub(crate) fn new() -> RightsWorld {
        let mut store = MemoryStore::default();
        let root = Attributes {
            kind: FileKind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            links: 1,
            ino: 1,
            rdev: 0,
            ctime: NOW.wall,
            btime: NOW.wall,
            atime: NOW.wall,
        };
        let directory = Directory::create(&mut store, root, "machine-1", wire::Versions::KNOWN);
        let (clients, to_server, answers, sent) = Default::default();
        let now = NOW;
        let mut lab =
            RightsWorld { directory, store, now, clients, to_server, answers, sent, refused_updates: 0 };
        lab.to_server.push_back(Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0 }));
        lab.greet();
        lab
    }

    /// Enrols a machine with these rights; returns its place.
    pub(crate) fn join(&mut self, rights: Rights) -> usize {
        let mut token = [1; 32];
        token[0] = self.clients.len() as u8;
        let name = format!("machine-{}", self.clients.len() + 1);
        self.to_server.push_back(Input::Invite { token, rights, at: 0, until: 1 });
        self.to_server.push_back(Input::Enrol { token, name, key: [0; 32], at: 0, connection: 0 });
        self.greet();
        self.clients.len() - 1
    }

    fn greet(&mut self) {
        let at = self.clients.len();
        self.clients.push((Client::new(Settings::new([at as u8; 32])), None));
        self.input(at, client::Input::Greeting);
        let machine = MachineId(at as u64 + 1);
        let connection = at as u64;
        let (incarnation, greeting, session) = (1, GreetingNumber::default(), None);
        let version = Version::NEWEST;
        self.to_server.push_back(Input::Open {
            machine,
            incarnation,
            greeting,
            session,
            connection,
            version,
        });
        self.run();
    }

    fn input(&mut self, at: usize, input: client::Input) {
        let mut out = Vec::new();
        self.clients[at].0.handle(self.now, input, &mut out);
        self.carry_out(at, out);
    }

    fn carry_out(&mut self, at: usize, out: Vec<Output>) {
        let mut yielded = Vec::new();
        for output in out {
            match output {
                Output::Send(message) => {
                    self.sent.push(message.clone());
                    let session = self.clients[at].1.unwrap();
                    self.to_server.push_back(Input::Message { session, message });
                }
                Output::Answer { ticket, result } => self.answers.push_back((ticket, result)),
                Output::Salvage(salvage) => self.refused_updates += salvage.items.len(),
                Output::Yield { number, .. } => yielded.push(number),
                Output::Store(_) | Output::Unneeded(_) | Output::Settled(_) | Output::Invalidate(_) => {}
            }
        }
        // No front door has anything cached.
        yielded.into_iter().for_each(|number| self.input(at, client::Input::Yielded { number }));
    }

    /// Runs until no message is under way.
    fn run(&mut self) {
        while let Some(input) = self.to_server.pop_front() {
            let mut out = Vec::new();
            self.directory.handle(self.now.time, input, &mut self.store, &mut out).unwrap();
            assert_eq!(self.directory.misdeeds(), []);
            for output in out {
                match output {
                    directory::Output::Opened { session, connection, .. } => {
                        self.clients[connection as usize].1 = Some(session);
                    }
                    directory::Output::Send { session, message } => self.deliver(session, message),
                    directory::Output::Again => self.to_server.push_back(Input::Tick),
                    _ => {}
                }
            }
        }
    }

    fn deliver(&mut self, session: SessionId, message: ToClient) {
        let to = self.clients.iter().position(|(_, its)| *its == Some(session)).unwrap();
        self.input(to, client::Input::Message(message));
    }

    fn call_as(&mut self, at: usize, cred: &Cred, call: Call) -> Result<Reply, Error> {
        let mut out = Vec::new();
        let outcome = self.clients[at].0.call(self.now, cred, call, &mut out);
        self.carry_out(at, out);
        self.run();
        match outcome {
            Outcome::Done(result) => result,
            Outcome::Waiting(ticket) => {
                let (of, result) = self.answers.pop_front().expect("no answer");
                assert_eq!(of, ticket);
                result
            }
        }
    }

    pub(crate) fn call(&mut self, at: usize, call: Call) -> Result<Reply, Error> {
        self.call_as(at, &Cred::default(), call)
    }

    pub(crate) fn make(
        &mut self,
        at: usize,
        dir: &FileId,
        name: &str,
        kind: FileKind,
    ) -> Result<FileId, Error> {
        let (dir, label, spec) = (dir.clone(), label(name), FileSpec::new(kind, 0o755, 0));
        let call = Call::Create(call::Create { dir, label, spec, open: None });
        match self.call(at, call)? {
            Reply::Node(entry, _) => Ok(entry.file),
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, at: usize, file: &FileId, data: &'static [u8]) -> Result<Reply, Error> {
        let data = Bytes::from_static(data);
        self.call(at, Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false }))?;
        self.call(at, Call::Sync(call::Sync { file: file.clone() }))
    }

    fn read(&mut self, at: usize, file: &FileId) -> Result<bool, Error> {
        let read =
            Call::Read(call::Read { file: file.clone(), offset: 0, length: 100, kept: true, quietly: false });
        self.call(at, read).map(|reply| matches!(reply, Reply::Data(_)))
    }

    fn stat(&mut self, at: usize, file: &FileId) -> Result<Attributes, Error> {
        match self.call(at, Call::Stat(call::Stat { file: file.clone() }))? {
            Reply::Stat(stat) => Ok(stat.attributes),
            other => panic!("{other:?}"),
        }
    }

    fn chmod(&mut self, at: usize, file: &FileId, mode: u16) {
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        let call = Call::SetAttributes(call::SetAttributes {
            file: file.clone(),
            change,
            size: None,
            through_handle: false,
        });
        self.call(at, call).unwrap();
    }
}

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

fn lookup(dir: &FileId, name: &str) -> Call {
    Call::Lookup(call::Lookup { dir: dir.clone(), label: label(name) })
}

/// A world with `/in/f` and `/out`, made by the founder.
fn lab() -> (RightsWorld, FileId, FileId, FileId) {
    let mut lab = RightsWorld::new();
    let inside = lab.make(0, &ROOT, "in", FileKind::Directory).unwrap();
    let outside = lab.make(0, &ROOT, "out", FileKind::Directory).unwrap();
    let f = lab.make(0, &inside, "f", FileKind::Regular).unwrap();
    lab.write(0, &f, b"hello").unwrap();
    (lab, inside, f, outside)
}

#[test]
fn a_machine_that_may_only_read_reads_and_is_refused_the_rest_without_a_message() {
    let (mut lab, inside, f, outside) = lab();
    let reader = lab.join(Rights { root: inside.clone(), read_only: true, squash: None });
    assert_eq!(lab.clients[reader].0.root(), &inside);
    lab.call(reader, lookup(&inside, "f")).unwrap();
    let open = Call::Open(call::Open { file: f.clone(), open: READING, mask: 4 });
    lab.call(reader, open).unwrap();
    assert_eq!(lab.read(reader, &f), Ok(true));
    assert!(matches!(
        lab.call(reader, Call::Parent(call::Parent { dir: inside.clone() })),
        Ok(Reply::Node(entry, _)) if entry.file == inside
    ));
    let before = lab.sent.len();
    assert_eq!(lab.make(reader, &inside, "new", FileKind::Regular), Err(Error::ReadOnly));
    assert_eq!(lab.write(reader, &f, b"x").err(), Some(Error::ReadOnly));
    let remove = Call::Unlink(call::Unlink { dir: inside.clone(), label: label("f"), directory: false });
    assert_eq!(lab.call(reader, remove.clone()).err(), Some(Error::ReadOnly));
    let open = Call::Open(call::Open { file: f.clone(), open: Open::posix(true, true), mask: 6 });
    assert_eq!(lab.call(reader, open).err(), Some(Error::ReadOnly));
    assert_eq!(lab.sent.len(), before);
    // The machine sees the changes of others.
    lab.write(0, &f, b"world").unwrap();
    let read = Call::Read(call::Read { file: f.clone(), offset: 0, length: 100, kept: true, quietly: false });
    let Ok(Reply::Data(parts)) = lab.call(reader, read) else { panic!() };
    assert!(format!("{parts:?}").contains("world"), "{parts:?}");
    // The machine keeps its open file, and the server finishes the deletion after the close.
    lab.call(0, remove).unwrap();
    assert_eq!(lab.read(reader, &f), Ok(true));
    lab.call(reader, Call::Close(call::Close { file: f.clone(), open: READING })).unwrap();
    lab.call(reader, Call::SyncAll).unwrap();
    assert_eq!(lab.directory.status(NOW.time).files, 3);
    // Elsewhere there is nothing for this machine.
    for file in [&ROOT, &outside] {
        assert_eq!(lab.stat(reader, file), Err(Error::Stale));
    }
}

#[test]
fn all_users_of_a_machine_count_as_one() {
    let (mut lab, inside, f, _) = lab();
    lab.chmod(0, &inside, 0o777);
    let guest = lab.join(Rights { root: inside.clone(), read_only: false, squash: Some(1000) });
    let new = lab.make(guest, &inside, "new", FileKind::Regular).unwrap();
    lab.write(guest, &new, b"mine").unwrap();
    let attributes = lab.stat(0, &new).unwrap();
    assert_eq!((attributes.uid, attributes.gid), (1000, 1000));
    // The machine's root user has no special rights.
    let secret = lab.make(0, &inside, "secret", FileKind::Regular).unwrap();
    lab.write(0, &secret, b"mine").unwrap();
    lab.chmod(0, &secret, 0o600);
    assert_eq!(lab.stat(guest, &secret).map(|it| it.mode), Ok(0o600));
    let open = Call::Open(call::Open { file: secret.clone(), open: READING, mask: 4 });
    assert_eq!(lab.call(guest, open).err(), Some(Error::AccessDenied));
    // The same holds for calls without a permission check before.
    assert_eq!(lab.read(guest, &secret), Err(Error::AccessDenied));
    assert_eq!(lab.write(guest, &secret, b"x").err(), Some(Error::AccessDenied));
    assert_eq!(lab.read(guest, &f), Ok(true));
    assert_eq!(lab.write(guest, &f, b"x").err(), Some(Error::AccessDenied));
    let someone = Cred { uid: 7, gid: 7, ..Cred::default() };
    let remove = Call::Unlink(call::Unlink { dir: inside.clone(), label: label("new"), directory: false });
    assert!(lab.call_as(guest, &someone, remove).is_ok());
    lab.call(guest, Call::SyncAll).unwrap();
    assert_eq!(lab.refused_updates, 0);
}

#[test]
fn below_its_root_a_machine_works_as_any() {
    let (mut lab, inside, f, outside) = lab();
    let other = lab.join(Rights { root: inside.clone(), ..Rights::FULL });
    let dir = lab.make(other, &inside, "dir", FileKind::Directory).unwrap();
    let rename = |from_dir: &FileId, from: &str, to_dir: &FileId, to: &str| {
        Call::Rename(call::Rename {
            from_dir: from_dir.clone(),
            from: label(from),
            to_dir: to_dir.clone(),
            to: label(to),
            mode: namespace::RenameMode::Replace,
            whiteout: false,
        })
    };
    lab.call(other, rename(&inside, "f", &dir, "g")).unwrap();
    let sub = lab.make(other, &inside, "sub", FileKind::Directory).unwrap();
    let deep = lab.make(other, &sub, "deep", FileKind::Directory).unwrap();
    // Only the server moves directories, for this machine too.
    lab.call(other, rename(&inside, "sub", &dir, "sub")).unwrap();
    assert_eq!(lab.call(other, rename(&dir, "sub", &outside, "sub")).err(), Some(Error::Stale));
    lab.call(other, Call::SyncAll).unwrap();
    assert!(matches!(lab.call(0, lookup(&dir, "g")), Ok(Reply::Node(entry, _)) if entry.file == f));
    // A machine goes on to work in a directory that was moved out of its root. Its update is
    // refused once sent, and nothing else suffers.
    lab.call(0, rename(&dir, "sub", &outside, "sub")).unwrap();
    assert_eq!(lab.make(other, &sub, "late", FileKind::Regular), Err(Error::Stale));
    assert!(lab.make(other, &deep, "late", FileKind::Regular).is_ok());
    assert!(lab.make(other, &dir, "fine", FileKind::Regular).is_ok());
    assert_eq!(lab.call(other, Call::SyncAll).err(), Some(Error::CutOff));
    assert_eq!(lab.refused_updates, 1);
    assert_eq!(lab.call(0, lookup(&deep, "late")).err(), Some(Error::NotFound));
    assert!(lab.call(0, lookup(&dir, "fine")).is_ok());
}

/// The server grants a directory's times without having seen a later change of the directory.
#[test]
fn times_that_are_granted_do_not_forget_what_was_done_meanwhile() {
    let (mut lab, dir, _, _) = lab();
    let other = lab.join(Rights::FULL);
    // Both may make files here, and neither knows the times.
    lab.make(other, &dir, "theirs", FileKind::Regular).unwrap();
    lab.make(0, &dir, "ours", FileKind::Regular).unwrap();
    lab.make(other, &dir, "theirs too", FileKind::Regular).unwrap();
    // The other machine asks for the times, and makes another change before the answer.
    let cred = Cred::default();
    let mut out = Vec::new();
    let asked = lab.clients[other].0.call(NOW, &cred, Call::Stat(call::Stat { file: dir.clone() }), &mut out);
    assert!(matches!(asked, Outcome::Waiting(_)), "it knew: {asked:?}");
    lab.carry_out(other, std::mem::take(&mut out));
    let later = Now { wall: Timestamp { secs: NOW.wall.secs + 9, nanos: 0 }, ..NOW };
    let call = Call::Unlink(call::Unlink { dir: dir.clone(), label: label("theirs too"), directory: false });
    let done = lab.clients[other].0.call(later, &cred, call, &mut out);
    assert!(matches!(done, Outcome::Done(Ok(_))), "{done:?}");
    lab.carry_out(other, out);
    lab.run();
    lab.answers.clear();
    let seen: Vec<_> = [other, 0]
        .map(|at| match lab.call(at, Call::Stat(call::Stat { file: dir.clone() })).map(Reply::told) {
            Ok(Reply::Stat(stat)) => stat.mtime,
            told => panic!("{told:?}"),
        })
        .into();
    assert_eq!(seen, [later.wall; 2]);
}
