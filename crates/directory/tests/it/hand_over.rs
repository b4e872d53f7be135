//! Regions that pass from server to server, while clients work and messages go astray.

use crate::servers::Servers;
use crate::support::*;
use directory::{DelegateError, Input, Misdeed};
use ident::{FileId, ServerId};
use lease::{Field, Kind, SessionId};
use namespace::{Effect, FileKind};
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, HandOver, HandOverStep, ToClient, ToServer};

pub const ROOT: FileId = FileId::root();
const SERVERS: u16 = 3;

/// Three servers, and a session of one machine at each.
struct Cluster {
    servers: Servers,
    sessions: Vec<SessionId>,
    /// All directories, and the names that were acknowledged in each, with their files.
    dirs: BTreeMap<FileId, BTreeMap<String, FileId>>,
    /// Files that the machine has open, and the server where it said so.
    open: BTreeMap<FileId, usize>,
    creates: u64,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let mut servers = Servers::new(SERVERS, 1, seed);
        let sessions = servers.iter_mut().map(|world| world.open(1, 1)).collect();
        let dirs = BTreeMap::from([(ROOT, BTreeMap::new())]);
        let mut cluster = Cluster { servers, sessions, dirs, open: BTreeMap::new(), creates: 0 };
        for _ in 0..6 {
            let dir = cluster.some_dir();
            cluster.create(&dir, FileKind::Directory);
        }
        cluster
    }

    fn draw(&mut self, below: usize) -> usize {
        self.servers.draw(below)
    }

    fn some_dir(&mut self) -> FileId {
        let at = self.draw(self.dirs.len());
        self.dirs.keys().nth(at).unwrap().clone()
    }

    fn some_file(&mut self) -> Option<FileId> {
        let files: Vec<FileId> = self.dirs.values().flat_map(|names| names.values().cloned()).collect();
        let at = self.draw(files.len().max(1));
        files.get(at).cloned()
    }

    /// Has a file made, wherever its directory is. Nothing is said if the request waits.
    fn create(&mut self, dir: &FileId, kind: FileKind) {
        let Some(at) = self.servers.follow(dir, &self.sessions) else { return };
        self.creates += 1;
        let (session, name) = (self.sessions[at], format!("{}", self.creates));
        let operation = self.servers[at].create(session, dir, &name, kind, 1);
        self.servers[at].ask(session, operation, Vec::new(), AskMode::Ship);
        self.hear(at);
    }

    /// Has the session of a server answer what it is told there.
    fn hear(&mut self, at: usize) {
        for _ in 0..4 {
            let session = self.sessions[at];
            for message in self.servers[at].told(session) {
                match message {
                    ToClient::Shipped { result: Ok((_, effects)), .. } => self.made(&effects),
                    ToClient::Recall { leases, .. } => {
                        let entries = leases.into_iter().map(|released| {
                            let open = self.open.get(&released.file) == Some(&at);
                            match released.field.is_black_box() {
                                true => returning(released.clone(), open && released.field == Field::Handles),
                                false => releasing(vec![released]).remove(0),
                            }
                        });
                        let entries = entries.collect();
                        self.servers[at].send_log(session, entries, false);
                        assert_eq!(self.servers[at].server.misdeeds(), []);
                    }
                    _ => {}
                }
            }
        }
    }

    fn made(&mut self, effects: &[Effect]) {
        let bound = effects.iter().find_map(|effect| match effect {
            Effect::Bind { dir, label, entry } => Some((dir.clone(), label.to_string(), entry.clone())),
            _ => None,
        });
        let Some((dir, name, entry)) = bound else { return };
        if entry.kind == FileKind::Directory {
            self.dirs.entry(entry.file.clone()).or_default();
        }
        let twice = self.dirs.get_mut(&dir).unwrap().insert(name, entry.file);
        assert_eq!(twice, None);
    }

    /// Takes a lease on anything of a file, or opens or closes it.
    fn holds(&mut self, file: &FileId) {
        let Some(at) = self.servers.follow(file, &self.sessions) else { return };
        let session = self.sessions[at];
        let (field, kind) = match self.draw(4) {
            0 => (Field::Attributes, Kind::Write),
            1 => (Field::Content, Kind::Read),
            2 => (Field::Xattrs, Kind::Read),
            _ => (Field::Handles, Kind::Touch),
        };
        self.servers[at].ask(session, stat(file), vec![want(file, field.clone(), kind)], AskMode::Lease);
        let world = &mut self.servers[at];
        let told = world
            .inbox
            .get(&session)
            .is_some_and(|told| told.iter().any(|message| matches!(message, ToClient::Granted { .. })));
        if field == Field::Handles && told && world.holds(1, file, &Field::Handles).is_some() {
            self.open.insert(file.clone(), at);
        }
        self.hear(at);
    }

    fn closes(&mut self) {
        let Some((file, at)) = self.open.pop_first() else { return };
        let (session, world) = (self.sessions[at], &mut self.servers[at]);
        let still = world.server.leases(world.now, &world.store, &file);
        if still.iter().any(|report| report.field == Field::Handles) {
            self.open.insert(file.clone(), at);
            world.ask(session, stat(&file), vec![want(&file, Field::Handles, Kind::Touch)], AskMode::Lease);
            self.open.remove(&file);
            self.hear(at);
        } else {
            // It said TRUE and holds nothing: it asks for the lease to say otherwise.
            world.ask(session, stat(&file), vec![want(&file, Field::Handles, Kind::Touch)], AskMode::Lease);
            self.hear(at);
            if self.servers[at].holds(1, &file, &Field::Handles).is_some() {
                let entry = returning(released(&file, Field::Handles, None), false);
                self.servers[at].send_log(session, vec![entry], false);
            } else {
                self.open.insert(file, at);
            }
        }
    }

    fn step(&mut self) {
        match self.draw(14) {
            0..=2 => {
                let dir = self.some_dir();
                let kind = if self.draw(3) == 0 { FileKind::Directory } else { FileKind::Regular };
                self.create(&dir, kind);
            }
            3 => {
                if let Some(file) = self.some_file() {
                    self.holds(&file);
                }
            }
            4 => self.closes(),
            5 => {
                let (at, region) = (self.draw(self.servers.len()), self.some_dir());
                let to = ServerId(self.draw(self.servers.len()) as u16);
                self.servers[at].input_unchecked(Input::Delegate { region, to });
            }
            6 if self.draw(3) == 0 => {
                let (at, region) = (self.draw(self.servers.len()), self.some_dir());
                self.servers[at].input_unchecked(Input::Keep { region });
            }
            7 if self.draw(3) == 0 => {
                let at = self.draw(self.servers.len());
                self.servers.restart(at);
                self.hear(at);
            }
            8 | 9 => {
                let at = self.draw(self.servers.len());
                self.servers[at].now = self.servers[at].now.after_ms(100);
                self.servers[at].input_unchecked(Input::Tick);
                self.hear(at);
            }
            _ => self.delivers(),
        }
        self.servers.collects(true);
        self.nobody_shares_authority();
    }

    fn delivers(&mut self) {
        if let Some(said) = self.servers.draws_said() {
            let at = self.servers.deliver(said);
            self.hear(at);
        }
    }

    /// No file has two servers, and each that has none is between two.
    fn nobody_shares_authority(&self) {
        let files = self.dirs.iter().flat_map(|(dir, names)| names.values().chain([dir]));
        for file in files {
            let managers = self.servers.iter().filter(|world| world.server.manages(file)).count();
            assert!(managers <= 1, "{file} has {managers} servers");
        }
    }

    /// Everything goes on until nothing is left to do, and then everything is right.
    fn settles(&mut self) {
        while !self.open.is_empty() {
            let before = self.open.len();
            self.closes();
            if self.open.len() == before {
                self.ticks();
            }
        }
        for _ in 0..400 {
            self.ticks();
        }
        let mut files = 0;
        for (at, world) in self.servers.iter_mut().enumerate() {
            assert!(!world.server.anybody_waits(), "server {at} is not done: {:?}", world.server);
            world.check();
            files += world.server.status(world.now).files;
        }
        let made: usize = self.dirs.values().map(BTreeMap::len).sum();
        assert_eq!(files, made as u64 + 1, "no file is lost, and none counts twice");
        for (dir, names) in &self.dirs {
            let at: Vec<&World> = self.servers.iter().filter(|world| world.server.manages(dir)).collect();
            let [world] = at[..] else { panic!("{dir} has {} servers", at.len()) };
            let entries = world.server.entries(&world.store, dir, 0, usize::MAX).unwrap();
            let found: BTreeMap<String, FileId> =
                entries.into_iter().map(|(label, entry)| (label.to_string(), entry.file)).collect();
            assert_eq!(found, *names, "names in {dir}");
        }
        // No server has rows of what another manages.
        let ids: BTreeSet<&FileId> = self.dirs.values().flat_map(BTreeMap::values).collect();
        for world in self.servers.iter() {
            for id in ids.iter().filter(|id| !world.server.manages(id)) {
                let key = [id.as_bytes(), &[1]].concat();
                assert!(!world.store.rows.contains_key(&key), "{id} is left where it was");
            }
        }
    }

    fn ticks(&mut self) {
        for at in 0..self.servers.len() {
            self.servers[at].now = self.servers[at].now.after_ms(100);
            self.servers[at].input_unchecked(Input::Tick);
            self.hear(at);
        }
        self.servers.collects(false);
        for said in self.servers.takes_all() {
            let at = self.servers.deliver(said);
            self.hear(at);
        }
        self.nobody_shares_authority();
    }
}

#[test]
fn regions_move_while_clients_work_and_messages_go_astray() {
    let (mut moved, mut refused) = (0, BTreeSet::new());
    for seed in 0..60 {
        let mut cluster = Cluster::new(seed);
        for _ in 0..400 {
            cluster.step();
        }
        cluster.settles();
        let away = |file: &&FileId| !cluster.servers[0].server.manages(file);
        moved += cluster.dirs.keys().filter(away).count();
        let results = cluster.servers.iter().flat_map(|world| &world.delegated);
        refused.extend(results.filter_map(|result| result.err()).map(|error| error.to_string()));
    }
    assert!(moved > 60, "{moved} directories are elsewhere in the end");
    assert_eq!(refused.len(), 7, "{refused:#?}");
}

/// A tree at the root server: a directory, and a file in it with content in shares.
pub fn tree() -> (World, SessionId, FileId, FileId) {
    let mut root = World::new();
    let session = root.open(1, 1);
    let n = root.take_root(session);
    let operation = root.create(session, &ROOT, "dir", FileKind::Directory, n);
    let dir = made(&operation);
    assert_eq!(root.update(session, operation), Ok(()));
    let operation = root.create(session, &dir, "file", FileKind::Regular, 1);
    let file = made(&operation);
    assert_eq!(root.update(session, operation), Ok(()));
    let put = (0..1500).map(|i| extent(i * 16, 16, share((i % 7) as u8))).collect();
    assert_eq!(root.update(session, publish(&file, 1, 1500 * 16, extents(put, true))), Ok(()));
    (root, session, dir, file)
}

/// Carries messages between two servers until there are none.
pub fn carry(root: &mut World, other: &mut World) {
    for _ in 0..20 {
        root.input_unchecked(Input::Tick);
        other.input_unchecked(Input::Tick);
        while root.handed.len() + other.handed.len() > 0 {
            for (_, message) in std::mem::take(&mut root.handed) {
                other.input_unchecked(Input::HandOver { from: ServerId::ROOT, message });
            }
            for (_, message) in std::mem::take(&mut other.handed) {
                root.input_unchecked(Input::HandOver { from: ServerId(1), message });
            }
        }
    }
}

#[test]
fn a_file_moves_with_its_content_and_its_shares() {
    let (mut root, session, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    let before = root.server.extents(&root.store, &file, 0, usize::MAX).unwrap();
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    carry(&mut root, &mut other);
    assert!(root.server.manages(&file), "a session holds everything of it");
    let recalled = root.recalled(session);
    let (boxes, fields): (Vec<_>, Vec<_>) = recalled.into_iter().partition(|it| it.field.is_black_box());
    let boxes = boxes.into_iter().map(|released| returning(released, false));
    assert!(root.log(session, releasing(fields).into_iter().chain(boxes).collect()).is_empty());
    carry(&mut root, &mut other);
    assert!(!root.server.manages(&file) && other.server.manages(&file));
    assert_eq!(other.server.extents(&other.store, &file, 0, usize::MAX).unwrap(), before);
    root.check();
    other.check();
    assert_eq!(root.server.status(root.now).files + other.server.status(other.now).files, 3);
    // The name stays where its directory is.
    assert_eq!(root.server.entries(&root.store, &ROOT, 0, 9).unwrap().len(), 1);
}

/// Where a file is not, nobody hears that the file is gone, whatever is asked or told.
#[test]
fn what_is_elsewhere_is_never_said_to_be_gone() {
    let (mut root, session, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    root.send(session, ToServer::Goodbye);
    root.input(Input::Tick);
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    carry(&mut root, &mut other);
    assert!(other.server.manages(&file));
    let session = root.open(1, 2);
    let elsewhere = |told: Vec<ToClient>, number: u64| {
        let expected = ToClient::Elsewhere { number, region: dir.clone(), epoch: 1, server: ServerId(1) };
        assert_eq!(told, [expected]);
    };
    let modes = [
        AskMode::Lease,
        AskMode::Ship,
        AskMode::Report,
        AskMode::LeaseOrReport,
        AskMode::Values,
        AskMode::Page { after: 0 },
    ];
    for mode in modes {
        for operation in [stat(&file), list(&dir), lookup(&dir, "file"), unlink(&dir, "file", false)] {
            let number = root.ask(session, operation, Vec::new(), mode);
            elsewhere(root.told(session), number);
        }
    }
    let number = 77;
    root.send(session, ToServer::Extents { number, file: file.clone(), from: 0 });
    elsewhere(root.told(session), number);
    // A lookup of the directory itself is answered, without what is elsewhere.
    let number = root.ask(session, lookup(&ROOT, "dir"), Vec::new(), AskMode::Lease);
    let told = root.told(session);
    let [ToClient::Granted { number: answered, grants, gone }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*answered, &gone[..]), (number, &[][..]));
    assert!(grants.iter().all(|grant| grant.file == ROOT), "{grants:?}");
    assert_eq!(grants[0].values.children.len(), 1);
    // An operation over both has to wait for both.
    root.ask(session, rename(&ROOT, "dir", &ROOT, "new", 9), Vec::new(), AskMode::Ship);
    let told = root.told(session);
    assert!(!told.iter().any(|message| matches!(message, ToClient::Shipped { .. })), "{told:?}");
    assert!(root.server.has_joint_operations());
    // An update that comes to the server before is no refusal, since nothing is lost by one. No
    // honest client has a lease for it.
    let entries = vec![update(publish(&file, 2, 5, inline(b"hello")))];
    root.send(session, ToServer::Log { first: 1, entries, answer: true });
    assert_eq!(root.server.misdeeds(), [(session, Misdeed::NotHere)]);
}

/// An open file or a machine that is away keeps a region. Those who ask for something of it
/// meanwhile wait for a moment, and no longer.
#[test]
fn a_region_in_use_stays() {
    for open in [true, false] {
        let (mut root, session, dir, file) = tree();
        let mut other = World::beside(&root, ServerId(1));
        let second = root.open(2, 1);
        let session = if open { session } else { second };
        root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
        carry(&mut root, &mut other);
        let number = root.ask(session, stat(&file), Vec::new(), AskMode::Report);
        let told: Vec<ToClient> = root.told(session);
        let is_answer =
            |message: &ToClient| matches!(message, ToClient::Reported { number: of, .. } if *of == number);
        assert!(!told.iter().any(is_answer), "it waits");
        if open {
            let leases = told.into_iter().flat_map(|message| match message {
                ToClient::Recall { leases, .. } => leases,
                _ => Vec::new(),
            });
            let entries = leases.map(|released| match released.field.is_black_box() {
                true => {
                    returning(released.clone(), released.field == Field::Handles && released.file == file)
                }
                false => releasing(vec![released]).remove(0),
            });
            let entries = entries.collect();
            root.send_log(session, entries, false);
        } else {
            root.now = root.now.after_ms(6_000);
        }
        carry(&mut root, &mut other);
        assert_eq!(root.delegated, [Err(DelegateError::InUse)]);
        assert!(root.server.manages(&file) && !other.server.manages(&file));
        assert!(!root.server.anybody_waits() || !open);
        let told = root.told(session);
        assert!(told.iter().any(is_answer) || !open, "{told:?}");
    }
}

/// Requests that wait when the region leaves are told where it is.
#[test]
fn a_request_that_waits_is_told_where_its_file_has_gone() {
    let (mut root, session, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    root.send(session, ToServer::Goodbye);
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    let session = root.open(1, 2);
    let numbers = [stat(&file), list(&dir), lookup(&dir, "file")]
        .map(|operation| root.ask(session, operation, Vec::new(), AskMode::LeaseOrReport));
    assert_eq!(root.told(session), []);
    carry(&mut root, &mut other);
    let told: Vec<u64> = root
        .told(session)
        .into_iter()
        .filter_map(|message| match message {
            ToClient::Elsewhere { number, server: ServerId(1), .. } => Some(number),
            _ => None,
        })
        .collect();
    assert_eq!(told, numbers);
}

#[test]
fn a_hand_over_that_is_cancelled_leaves_everything_as_it_was() {
    let (mut root, session, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    root.send(session, ToServer::Goodbye);
    root.input(Input::Tick);
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    while root.handed.is_empty() {
        root.input(Input::Tick);
    }
    let late = std::mem::take(&mut root.handed);
    assert!(matches!(&late[..], [(_, HandOver { step: HandOverStep::Rows { page: 0, .. }, .. })]));
    for (_, message) in late.clone() {
        other.input_unchecked(Input::HandOver { from: ServerId::ROOT, message });
    }
    root.input(Input::Keep { region: dir.clone() });
    carry(&mut root, &mut other);
    assert!(root.server.manages(&file) && !other.server.manages(&file));
    other.check();
    assert!(!other.store.rows.contains_key(&[file.as_bytes(), &[1]].concat()));
    // A late message changes nothing.
    for (_, message) in late {
        other.input_unchecked(Input::HandOver { from: ServerId::ROOT, message });
    }
    carry(&mut root, &mut other);
    assert!(root.server.manages(&file) && !other.server.anybody_waits());
    // Another try succeeds.
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    carry(&mut root, &mut other);
    assert!(other.server.manages(&file));
    other.check();
}

/// A region goes to a second and on to a third server. Then everything is said once more that was
/// said on its first way, in the same order, and later on.
#[test]
fn what_was_said_in_an_earlier_epoch_changes_nothing() {
    let (mut root, session, dir, file) = tree();
    root.send(session, ToServer::Goodbye);
    root.input(Input::Tick);
    let mut servers = [World::beside(&root, ServerId(1)), World::beside(&root, ServerId(2)), root];
    servers.rotate_right(1);
    let mut said: Vec<(usize, usize, HandOver)> = Vec::new();
    let mut moves = |servers: &mut [World; 3], from: usize, to: u16| {
        servers[from].input(Input::Delegate { region: dir.clone(), to: ServerId(to) });
        for _ in 0..20 {
            for at in 0..3 {
                servers[at].input_unchecked(Input::Tick);
                for (to, message) in std::mem::take(&mut servers[at].handed) {
                    said.push((at, usize::from(to.0), message.clone()));
                    let from = ServerId(at as u16);
                    servers[usize::from(to.0)].input_unchecked(Input::HandOver { from, message });
                }
            }
        }
        assert!(servers[usize::from(to)].server.manages(&file));
        said.clone()
    };
    let first = moves(&mut servers, 0, 1);
    let both = moves(&mut servers, 1, 2);
    for said in [&first, &both] {
        for (from, to, message) in said.clone() {
            let from = ServerId(from as u16);
            servers[to].input_unchecked(Input::HandOver { from, message });
            let managers: Vec<bool> = servers.iter().map(|world| world.server.manages(&file)).collect();
            assert_eq!(managers, [false, false, true]);
        }
    }
    // And back to where the region began, in a later epoch.
    moves(&mut servers, 2, 0);
    servers.iter().for_each(World::check);
}

/// A server claims a region that is not its own, or sends rows that are not of the region.
#[test]
fn a_forged_hand_over_is_declined() {
    let (mut root, _, dir, file) = tree();
    let mut other = World::beside(&root, ServerId(1));
    let rows = |region: &FileId, epoch: u64, key: Vec<u8>| HandOver {
        region: region.clone(),
        epoch,
        step: HandOverStep::Rows { page: 0, rows: vec![(key, b"forged".to_vec())] },
    };
    let record = [file.as_bytes(), &[1]].concat();
    for (region, epoch) in [(&dir, 1), (&dir, 7), (&ROOT, 9), (&file, 3)] {
        let message = rows(region, epoch, record.clone());
        root.input(Input::HandOver { from: ServerId(2), message });
        let answer = root.handed.pop().map(|(to, message)| (to, message.step));
        assert_eq!(answer, Some((ServerId(2), HandOverStep::Declined)), "{region} {epoch}");
        let message = HandOver { region: region.clone(), epoch, step: HandOverStep::TakeOver { files: 1 } };
        root.input(Input::HandOver { from: ServerId(2), message });
        assert_eq!(root.handed, []);
        assert!(root.server.manages(&file));
    }
    // The next server says that it has pages which it was never sent.
    let second = root.open(1, 2);
    root.send(second, ToServer::Goodbye);
    root.input(Input::Delegate { region: dir.clone(), to: ServerId(1) });
    while root.handed.is_empty() {
        root.input(Input::Tick);
    }
    for page in [9, 99, 999, u64::MAX] {
        let message = HandOver { region: dir.clone(), epoch: 1, step: HandOverStep::HasRows { page } };
        root.input(Input::HandOver { from: ServerId(1), message });
        assert!(root.server.manages(&file), "pages are missing there");
    }
    // Rows of another region, and of the server's own tables.
    let elsewhere = [ROOT.child(9).as_bytes(), &[1]].concat();
    for key in [elsewhere, vec![0xff; 9], vec![0, 0x15], vec![0, 0x17], Vec::new()] {
        other.input_unchecked(Input::HandOver { from: ServerId::ROOT, message: rows(&dir, 1, key.clone()) });
        let said: Vec<HandOverStep> = other.handed.drain(..).map(|(_, message)| message.step).collect();
        assert_eq!(said, [HandOverStep::Declined], "{key:?}");
        for _ in 0..3 {
            other.input_unchecked(Input::Tick);
        }
        other.check();
        // The next try is in a later epoch, since this one was offered.
        other = World::beside(&root, ServerId(1));
    }
}

#[test]
fn what_cannot_be_delegated_is_refused_with_the_reason() {
    let (mut root, _, dir, file) = tree();
    let mut refusal = |region: &FileId, to: u16| {
        root.input(Input::Delegate { region: region.clone(), to: ServerId(to) });
        root.delegated.pop().unwrap()
    };
    assert_eq!(refusal(&ROOT, 1), Err(DelegateError::Root));
    assert_eq!(refusal(&ROOT.child(1), 1), Err(DelegateError::Root));
    assert_eq!(refusal(&dir, 0), Err(DelegateError::SameServer));
    assert_eq!(refusal(&ServerId(4).overflow(), 1), Err(DelegateError::NotHere));
    assert_eq!(refusal(&dir.child(99), 1), Err(DelegateError::NoFile));
    root.input(Input::Delegate { region: file.clone(), to: ServerId(1) });
    assert_eq!(root.delegated, [], "it has begun");
    let mut refusal = |region: &FileId, to: u16| {
        root.input(Input::Delegate { region: region.clone(), to: ServerId(to) });
        root.delegated.pop().unwrap()
    };
    assert_eq!(refusal(&file, 2), Err(DelegateError::Moves));
    assert_eq!(refusal(&dir, 1), Err(DelegateError::HasRegions));
}

/// Sessions and inodes of different servers have different numbers, and a file with a long
/// identifier is at the server of its directory.
#[test]
fn numbers_of_servers_are_their_own() {
    let root = World::new();
    let mut others: Vec<World> = (1..4).map(|n| World::beside(&root, ServerId(n))).collect();
    let sessions: BTreeSet<SessionId> = others.iter_mut().map(|world| world.open(1, 1)).collect();
    assert_eq!(sessions.len(), 3);
    for (other, number) in others.iter().zip(1..) {
        let below = ServerId(number).overflow().child(7);
        assert!(other.server.manages(&below) && !root.server.manages(&below));
        assert!(!other.server.manages(&ROOT) && !other.server.manages(&ROOT.child(2)));
    }
    assert!(root.server.manages(&ServerId::ROOT.overflow().child(7)));
}
