//! Farsite's Figure 1, exhaustively, on the shipped code: two renames that are legal each by itself
//! and make a loop together. Messages between the servers arrive in every order, and some a second
//! time. After every step each server is started anew from its rows.

use crate::joint::renames;
use crate::path_leases::Tree;
use crate::support::*;
use directory::{Directory, Input, MemoryStore, Output};
use ident::{FileId, ServerId};
use lease::{SessionId, Time};
use namespace::{Operation, RenameMode};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{AskMode, ToClient, ToServer, Versions};

const ROOT: FileId = FileId::root();

/// The results that were told, by the asking session.
type Results = BTreeMap<SessionId, String>;

/// A message to a server that is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    to: u16,
    from: u16,
    bytes: Vec<u8>,
    /// Whether the message is about a path lease; otherwise it is about an operation.
    is_of_path: bool,
}

/// All that there is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    servers: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    under_way: BTreeSet<UnderWay>,
    /// How often a message may still come a second time.
    repeats: u32,
    now: u64,
    results: Results,
}

impl Moment {
    /// A server takes an input, and is started anew.
    fn takes(&mut self, at: u16, input: Input) {
        let rows = std::mem::take(&mut self.servers[usize::from(at)]);
        let (mut store, mut out) = (MemoryStore { rows }, Vec::new());
        let mut server = Directory::open(&store, Versions::KNOWN).unwrap();
        server.handle(Time(self.now), input, &mut store, &mut out).unwrap();
        server.checkpoint(&mut store);
        self.servers[usize::from(at)] = store.rows;
        for output in out {
            let (to, bytes, is_of_path) = match output {
                Output::Joint { to, message } => (to, wire::encode(&*message), false),
                Output::PathLease { to, message } => (to, wire::encode(&message), true),
                Output::Send { session, message: ToClient::Shipped { result, .. } } => {
                    let result = result.map_or_else(|error| format!("{error:?}"), |_| "done".to_owned());
                    let before = self.results.insert(session, result);
                    assert_eq!(before, None, "two results");
                    continue;
                }
                _ => continue,
            };
            self.under_way.insert(UnderWay { to: to.0, from: at, bytes, is_of_path });
        }
    }

    fn hears(&mut self, message: &UnderWay) {
        let from = ServerId(message.from);
        let input = match message.is_of_path {
            true => Input::PathLease { from, message: wire::decode(&message.bytes).unwrap() },
            false => Input::Joint { from, message: Box::new(wire::decode(&message.bytes).unwrap()) },
        };
        self.takes(message.to, input);
    }

    fn opened(&self) -> Vec<(Directory, MemoryStore)> {
        let stores = self.servers.iter().map(|rows| MemoryStore { rows: rows.clone() });
        stores.map(|store| (Directory::open(&store, Versions::KNOWN).unwrap(), store)).collect()
    }

    /// Everything that may happen next. Time passes only when nothing else does.
    fn next(&self) -> Vec<Moment> {
        let mut all = Vec::new();
        for message in &self.under_way {
            let mut next = self.clone();
            next.under_way.remove(message);
            next.hears(message);
            all.push(next);
            if self.repeats > 0 {
                let mut next = Moment { repeats: self.repeats - 1, ..self.clone() };
                next.hears(message);
                all.push(next);
            }
        }
        if self.under_way.is_empty() {
            let mut next = Moment { now: self.now + 100, ..self.clone() };
            (0..self.servers.len() as u16).for_each(|at| next.takes(at, Input::Tick));
            all.push(next);
        }
        all
    }

    /// The directory above, by the state of the server that has `dir`.
    fn above(opened: &[(Directory, MemoryStore)], dir: &FileId) -> Option<FileId> {
        let (server, store) = opened.iter().find(|(server, _)| server.manages(dir)).unwrap();
        server.links(store, dir).unwrap()?.first().map(|link| link.dir.clone())
    }

    fn way(opened: &[(Directory, MemoryStore)], dir: &FileId) -> Vec<FileId> {
        let way = std::iter::successors(Moment::above(opened, dir), |dir| Moment::above(opened, dir));
        let way: Vec<FileId> = way.take(100).collect();
        assert!(way.len() < 100, "{dir} is in a loop");
        way
    }

    /// Every path lease is right, and no directory is in a loop. Whether all is over.
    fn check(&self, dirs: &[FileId]) -> bool {
        let opened = self.opened();
        for (server, _) in &opened {
            for (dir, known) in server.path_leases() {
                assert_eq!(Moment::way(&opened, dir), known, "the way up from {dir}");
            }
        }
        for dir in dirs {
            assert_eq!(Moment::way(&opened, dir).last(), Some(&ROOT), "{dir} is cut off");
        }
        self.under_way.is_empty() && !opened.iter().any(|(server, _)| server.anybody_waits())
    }
}

/// Goes through all moments. Returns their number, and the results at the ends.
fn explore(first: Moment, dirs: &[FileId]) -> (usize, BTreeSet<Results>) {
    let (mut known, mut ends) = (BTreeSet::new(), BTreeSet::new());
    let mut left = VecDeque::from([first.clone()]);
    let hash = |moment: &Moment| twox_hash::XxHash3_64::oneshot(format!("{moment:?}").as_bytes());
    known.insert(hash(&first));
    while let Some(moment) = left.pop_front() {
        if moment.check(dirs) {
            ends.insert(moment.results);
            continue;
        }
        if known.len() > 40_000 {
            println!("TOO MANY {} {}", known.len(), left.len());
            break;
        }
        assert!(moment.now < first.now + 2000, "does not end: {:?}", moment.results);
        for next in moment.next() {
            if known.insert(hash(&next)) {
                left.push_back(next);
            }
        }
    }
    (known.len(), ends)
}

/// The two renames, asked for at servers 1 and 2, with the tree's directories and sessions.
fn figure_1(apart_ms: [u64; 2], repeats: u32) -> (usize, BTreeSet<Results>) {
    let mut tree = Tree::new(2);
    let c = tree.dir(&ROOT, "c", 0);
    let f = tree.dir(&ROOT, "f", 1);
    let d = tree.dir(&c, "d", 1);
    let g = tree.dir(&f, "g", 0);
    let now = tree.servers[0].now.0;
    let rows = |world: &mut World| {
        world.server.checkpoint(&mut world.store);
        world.store.rows.clone()
    };
    let servers = tree.servers.iter_mut().map(rows).collect();
    let mut first = Moment { servers, under_way: BTreeSet::new(), repeats, now, results: BTreeMap::new() };
    let asks =
        |operation: Operation| ToServer::Ask { number: 900, operation, wants: vec![], mode: AskMode::Ship };
    let one = renames(&ROOT, "c", &g, "c", RenameMode::Replace);
    let other = renames(&ROOT, "f", &d, "f", RenameMode::Replace);
    for (at, operation) in [(0, one), (1, other)] {
        first.now = now + apart_ms[at];
        first.takes(at as u16, Input::Message { session: tree.sessions[at], message: asks(operation) });
    }
    first.now = now + 100;
    explore(first, &[c, d, f, g])
}

#[test]
fn of_two_renames_that_would_make_a_loop_one_is_done() {
    for (apart_ms, repeats) in [([0, 0], 0), ([1, 0], 0)] {
        let (moments, ends) = figure_1(apart_ms, repeats);
        println!("{moments} moments, {} ends", ends.len());
        assert!(moments > 100);
        for end in &ends {
            let results: Vec<&str> = end.values().map(String::as_str).collect();
            assert!(matches!(results[..], ["done", "Invalid"] | ["Invalid", "done"]), "{end:?}");
        }
        assert_eq!(ends.len(), 2, "either may be the one that is done");
    }
}
