//! Single cases of operations over the files of two servers: fields that are lent, the end of a
//! file, time, and messages that are forged or replayed.

use crate::joint::link;
use crate::servers::Servers;
use crate::support::*;
use directory::Input;
use ident::{FileId, ServerId};
use lease::{Field, Kind, SessionId};
use namespace::{Cred, Effect, Error, FileKind, Operation, operation};
use wire::{AskMode, Joint, JointStep, ToClient, ToServer};

const ROOT: FileId = FileId::root();

/// The root server and another one, a session of one machine at each, and a directory with a file
/// in it, both at the other server.
struct Pair {
    servers: Servers,
    sessions: [SessionId; 2],
    dir: FileId,
    file: FileId,
}

impl Pair {
    fn new() -> Pair {
        let mut servers = Servers::new(2, 2, 1);
        let sessions = [servers[0].open(1, 1), servers[1].open(1, 1)];
        let mut pair = Pair { servers, sessions, dir: ROOT, file: ROOT };
        for (label, kind) in [("dir", FileKind::Directory), ("file", FileKind::Regular)] {
            let operation = pair.servers[0].create(sessions[0], &pair.dir, label, kind, 1);
            pair.servers[0].ask(sessions[0], operation, Vec::new(), AskMode::Ship);
            let born = pair.result(0).unwrap().into_iter().find_map(|effect| match effect {
                Effect::Birth { file, .. } => Some(file),
                _ => None,
            });
            (pair.dir, pair.file) = match kind {
                FileKind::Directory => (born.unwrap(), ROOT),
                _ => (pair.dir, born.unwrap()),
            };
        }
        pair.servers[0].input(Input::Delegate { region: pair.dir.clone(), to: ServerId(1) });
        pair.carries();
        assert_eq!(pair.servers.managers(&pair.file), [1]);
        pair.servers.said.clear();
        pair
    }

    fn ship(&mut self, at: usize, operation: Operation) {
        self.servers[at].ask(self.sessions[at], operation, Vec::new(), AskMode::Ship);
    }

    /// The effects of the operation that a server has just done, or why it did not.
    fn result(&mut self, at: usize) -> Result<Vec<Effect>, Error> {
        let told = self.servers[at].told(self.sessions[at]);
        let results = told.into_iter().filter_map(|message| match message {
            ToClient::Shipped { result, .. } => Some(result.map(|(_, effects)| effects)),
            _ => None,
        });
        let results: Vec<_> = results.collect();
        let [result] = &results[..] else { panic!("{results:?}") };
        result.clone()
    }

    fn carries(&mut self) {
        for _ in 0..20 {
            for at in 0..2 {
                self.servers[at].now = self.servers[at].now.after_ms(100);
                self.servers[at].input(Input::Tick);
            }
            self.arrives();
        }
    }

    /// All messages between the servers arrive, and the answers to them.
    fn arrives(&mut self) {
        for _ in 0..8 {
            self.servers.collects(false);
            for said in self.servers.takes_all() {
                self.servers.deliver(said);
            }
        }
    }

    /// The messages that a server has sent since, which nobody gets.
    fn says(&mut self, at: usize) -> Vec<Joint> {
        std::mem::take(&mut self.servers[at].jointly).into_iter().map(|(_, message)| message).collect()
    }

    fn hears(&mut self, at: usize, from: u16, message: Joint) {
        self.servers[at].input(Input::Joint { from: ServerId(from), message: Box::new(message) });
    }

    fn names(&self, at: usize, dir: &FileId) -> Vec<String> {
        let entries = self.servers[at].server.entries(&self.servers[at].store, dir, 0, 99).unwrap();
        entries.into_iter().map(|(label, _)| label.to_string()).collect()
    }

    fn digests(&self) -> [u64; 2] {
        [0, 1].map(|at| self.servers[at].server.digest())
    }

    /// Ends what is under way; everything is in order then.
    fn ends(&mut self) {
        self.carries();
        for at in 0..2 {
            assert!(!self.servers[at].server.has_joint_operations());
            self.servers[at].check();
        }
    }
}

/// While a field is lent, nobody is told of it or granted it, however long that takes: its value
/// may be another one already. The lender takes nothing back by itself.
#[test]
fn a_lent_field_is_leased_to_nobody() {
    let mut pair = Pair::new();
    let (dir, session) = (pair.dir.clone(), pair.sessions[1]);
    pair.ship(0, rename(&ROOT, "dir", &ROOT, "new", 1));
    for message in pair.says(0) {
        pair.hears(1, 0, message);
    }
    let [Joint { step: JointStep::Lent { .. }, .. }] = pair.says(1)[..] else { panic!("nothing is lent") };
    let wants = vec![want(&dir, Field::Attributes, Kind::Read)];
    pair.servers[1].ask(session, stat(&dir), wants, AskMode::Lease);
    pair.servers[1].ask(session, stat(&dir), Vec::new(), AskMode::Report);
    let second = pair.servers[1].open(2, 1);
    pair.servers[1].ask(second, stat(&dir), Vec::new(), AskMode::Values);
    for _ in 0..20 {
        pair.servers[1].now = pair.servers[1].now.after_ms(20_000);
        pair.servers[1].send(session, ToServer::Renew);
        pair.servers[1].send(second, ToServer::Renew);
        pair.servers[1].input(Input::Tick);
    }
    let answers = |told: Vec<ToClient>| {
        let is_answer = |message: &ToClient| {
            matches!(message, ToClient::Granted { .. } | ToClient::Reported { .. } | ToClient::Recall { .. })
        };
        told.into_iter().filter(is_answer).count()
    };
    assert_eq!((answers(pair.servers[1].told(session)), answers(pair.servers[1].told(second))), (0, 0));
    // A region with something lent stays.
    pair.servers[1].input(Input::Delegate { region: dir.clone(), to: ServerId::ROOT });
    pair.servers[1].input(Input::Tick);
    assert_eq!(pair.servers[1].delegated, [Err(directory::DelegateError::InUse)]);
    pair.arrives();
    pair.carries();
    assert!(pair.result(0).is_ok());
    assert_eq!(pair.names(0, &ROOT), ["new"]);
    assert_eq!(answers(pair.servers[1].told(session)), 2);
    let links = pair.servers[1].server.links(&pair.servers[1].store, &dir).unwrap().unwrap();
    assert_eq!(links[0].label, label("new"));
}

/// A deletion at the last close, of a name in a directory of another server.
#[test]
fn the_last_close_takes_a_name_elsewhere() {
    let mut pair = Pair::new();
    let file = pair.file.clone();
    pair.ship(0, link(&file, &ROOT, "Name"));
    pair.arrives();
    assert!(pair.result(0).is_ok());
    assert_eq!(pair.names(0, &ROOT), ["dir", "Name"]);
    let link = Some(namespace::Link { dir: ROOT, label: label("Name") });
    let own = lease::OpenModes::with([lease::Mode::AccessDelete]);
    let (cred, time) = (Cred::default(), at(26));
    let set = operation::SetDisposition { file: file.clone(), link, own, cred, time };
    pair.ship(1, Operation::SetDisposition(set));
    pair.arrives();
    assert!(pair.result(1).is_ok());
    pair.ends();
    assert_eq!(pair.names(0, &ROOT), ["dir"]);
    let links = pair.servers[1].server.links(&pair.servers[1].store, &file).unwrap().unwrap();
    assert_eq!(links.len(), 1, "the other name stays");
}

/// The check that a directory does not end up in itself needs all directories above its new parent.
#[test]
fn a_directory_goes_to_a_parent_whose_way_to_the_root_is_elsewhere() {
    let mut pair = Pair::new();
    let dir = pair.dir.clone();
    let operation = pair.servers[1].create(pair.sessions[1], &dir, "sub", FileKind::Directory, 1);
    pair.ship(1, operation);
    assert!(pair.result(1).is_ok());
    pair.ship(0, rename(&dir, "sub", &ROOT, "sub", 1));
    pair.arrives();
    assert!(pair.result(0).is_ok());
    assert_eq!(
        (pair.names(0, &ROOT), pair.names(1, &dir)),
        (vec!["dir".into(), "sub".into()], vec!["file".into()])
    );
    pair.ship(1, rename(&ROOT, "sub", &dir, "sub", 1));
    pair.arrives();
    assert!(pair.result(1).is_ok());
    assert_eq!(pair.servers[1].server.path_leases().collect::<Vec<_>>(), [(&ROOT, &[][..])]);
    pair.ends();
    assert_eq!(pair.names(0, &ROOT), ["dir"]);
    assert_eq!(pair.names(1, &dir), ["file", "sub"]);
}

/// The leader alone gives up what takes too long. Later messages find the operation over.
#[test]
fn an_operation_that_takes_too_long_is_given_up() {
    let mut pair = Pair::new();
    pair.ship(0, rename(&ROOT, "dir", &ROOT, "new", 1));
    let late = pair.says(0);
    pair.servers[0].now = pair.servers[0].now.after_ms(61_000);
    pair.servers[0].input(Input::Tick);
    assert_eq!(pair.result(0), Err(Error::CutOff));
    for message in late {
        pair.hears(1, 0, message);
    }
    assert!(pair.servers[1].server.has_joint_operations(), "it does not know yet");
    pair.ends();
    assert_eq!(pair.names(0, &ROOT), ["dir"]);
}

/// Servers that have no part in an operation, and messages about other operations, fields or files
/// than those that were asked for.
#[test]
fn forged_messages_change_nothing() {
    let mut pair = Pair::new();
    let (dir, file) = (pair.dir.clone(), pair.file.clone());
    pair.ship(0, rename(&ROOT, "dir", &ROOT, "new", 1));
    let borrows = pair.says(0);
    let [Joint { op, step: borrow @ JointStep::Borrow { age, operation, open_from, .. } }] = &borrows[..]
    else {
        panic!("{borrows:?}")
    };
    let (op, other) = (*op, wire::JointId(op.0 + 1));
    let death = vec![Effect::Death { file: file.clone() }];
    let wrong_field = JointStep::Borrow {
        age: *age,
        operation: operation.clone(),
        file: dir.clone(),
        wants: vec![(Field::Path, Kind::Read)],
        open_from: *open_from,
    };
    let before = pair.digests();
    let to_lender = [
        (2, op, borrow.clone()),
        (1, op, borrow.clone()),
        (0, wire::JointId(op.0 | 1 << 63), borrow.clone()),
        (0, op, wrong_field),
        (0, op, JointStep::Settle { effects: death.clone(), open_from: *open_from }),
        (2, op, JointStep::Settle { effects: Vec::new(), open_from: *open_from }),
        (0, op, JointStep::Settle { effects: Vec::new(), open_from: other }),
        (0, op, JointStep::Settled),
        (0, op, JointStep::Wounded),
    ];
    for (from, op, step) in to_lender {
        pair.hears(1, from, Joint { op, step: step.clone() });
        assert_eq!((pair.says(1), pair.digests()), (Vec::new(), before), "{step:?} of {from}");
        assert!(!pair.servers[1].server.has_joint_operations());
    }
    pair.hears(1, 0, Joint { op, step: borrow.clone() });
    let lent = pair.says(1);
    let [Joint { step: JointStep::Lent { grant }, .. }] = &lent[..] else { panic!("{lent:?}") };
    // More than is lent.
    pair.hears(1, 0, Joint { op, step: JointStep::Settle { effects: death, open_from: *open_from } });
    assert_eq!(pair.says(1), []);
    assert!(pair.servers[1].server.has_joint_operations() && pair.servers[1].server.manages(&file));
    let fewer = wire::FileGrant { fields: grant.fields[1..].to_vec(), ..grant.clone() };
    let another = wire::FileGrant { file: file.clone(), ..grant.clone() };
    let before = pair.digests();
    let to_leader = [
        (2, op, JointStep::Lent { grant: grant.clone() }),
        (1, other, JointStep::Lent { grant: grant.clone() }),
        (1, op, JointStep::Lent { grant: fewer }),
        (1, op, JointStep::Lent { grant: another }),
        (2, op, JointStep::Gone { file: dir.clone() }),
        (1, op, JointStep::Gone { file: ROOT }),
        (2, op, JointStep::NotHere { file: dir.clone(), server: ServerId(2) }),
        (2, op, JointStep::Wounded),
        (1, op, JointStep::Settled),
        (1, op, borrow.clone()),
        (1, op, JointStep::Settle { effects: Vec::new(), open_from: op }),
    ];
    for (from, op, step) in to_leader {
        pair.hears(0, from, Joint { op, step: step.clone() });
        assert_eq!((pair.says(0), pair.digests()), (Vec::new(), before), "{step:?} of {from}");
    }
    pair.hears(0, 1, lent[0].clone());
    assert!(pair.result(0).is_ok());
    let settles = pair.says(0);
    pair.hears(0, 2, Joint { op, step: JointStep::Settled });
    assert!(pair.servers[0].server.has_joint_operations(), "the lender has not said so");
    for message in settles {
        pair.hears(1, 0, message);
    }
    pair.ends();
    assert_eq!(pair.names(0, &ROOT), ["new"]);
}

/// Once an operation is over, all that was said about it is said again, in order and backwards.
#[test]
fn replayed_messages_change_nothing() {
    let mut pair = Pair::new();
    let dir = pair.dir.clone();
    for (from, to) in [("file", "File"), ("File", "file"), ("file", "c")] {
        pair.ship(0, link(&pair.file.clone(), &ROOT, to));
        pair.ship(1, rename(&dir, from, &dir, to, 1));
        pair.arrives();
        pair.ship(0, unlink(&ROOT, to, false));
        pair.ends();
    }
    let (before, said) = (pair.digests(), pair.servers.said.clone());
    assert!(said.len() > 12, "{said:?}");
    for said in said.iter().chain(said.iter().rev()) {
        pair.servers.deliver(said.clone());
        assert_eq!(pair.digests(), before, "{said:?}");
    }
    pair.ends();
    assert_eq!((pair.names(0, &ROOT), pair.names(1, &dir)), (vec!["dir".into()], vec!["c".into()]));
}
