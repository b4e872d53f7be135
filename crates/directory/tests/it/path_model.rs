//! Farsite's Figure 1, exhaustively, on the shipped code: two renames that are legal each by itself
//! and make a loop together. Three servers have the directories in every placement. Messages arrive
//! in every order that keeps the order between each two servers. After every step the server is
//! started anew from its rows.

use crate::joint::renames;
use crate::path_leases::Tree;
use crate::support::*;
use directory::{Directory, Input, MemoryStore, Output};
use ident::{FileId, ServerId};
use lease::Time;
use namespace::RenameMode;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::{AskMode, ToClient, ToServer, Versions};

const ROOT: FileId = FileId::root();

/// The results that were told, by the number of the question.
type Results = BTreeMap<u64, String>;

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
    /// By sender and recipient, then as they were sent.
    under_way: Vec<UnderWay>,
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
                Output::Send { message: ToClient::Shipped { number, result }, .. } => {
                    let result = result.map_or_else(|error| format!("{error:?}"), |_| "done".to_owned());
                    let before = self.results.insert(number, result);
                    assert_eq!(before, None, "two results");
                    continue;
                }
                _ => continue,
            };
            self.under_way.push(UnderWay { to: to.0, from: at, bytes, is_of_path });
        }
        self.under_way.sort_by_key(|message| (message.from, message.to));
        // Said again before it arrived.
        self.under_way.dedup();
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
        for (at, message) in self.under_way.iter().enumerate() {
            let pair = |message: &UnderWay| (message.from, message.to);
            if self.under_way[..at].iter().any(|earlier| pair(earlier) == pair(message)) {
                continue;
            }
            let mut next = self.clone();
            next.under_way.remove(at);
            next.hears(message);
            all.push(next);
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
        assert!(moment.now < first.now + 2000, "does not end: {:?}", moment.results);
        for next in moment.next() {
            if known.insert(hash(&next)) {
                left.push_back(next);
            }
        }
    }
    (known.len(), ends)
}

/// The renames of `c` into `f/g`, and of `f` into `c/d`. The directories are at these servers, the
/// root at the first. Returns the numbers of moments and of ends.
fn figure_1([c, f, d, g]: [u16; 4]) -> (usize, usize) {
    let mut tree = Tree::new(3);
    let [c, f] = [("c", c), ("f", f)].map(|(label, server)| tree.dir(&ROOT, label, server));
    let [d, g] = [(&c, "d", d), (&f, "g", g)].map(|(above, label, server)| tree.dir(above, label, server));
    let now = tree.servers[0].now.0 + 100;
    let rows = |world: &mut World| {
        world.server.checkpoint(&mut world.store);
        world.store.rows.clone()
    };
    let servers = tree.servers.iter_mut().map(rows).collect();
    let (under_way, results) = Default::default();
    let mut first = Moment { servers, under_way, now, results };
    for (number, from, to) in [(901, "c", &g), (902, "f", &d)] {
        let operation = renames(&ROOT, from, to, from, RenameMode::Replace);
        let at = tree.servers.managers(to)[0];
        let (wants, mode) = (Vec::new(), AskMode::Ship);
        let message = ToServer::Ask { number, operation, wants, mode };
        first.takes(at as u16, Input::Message { session: tree.sessions[at], message });
    }
    let (moments, ends) = explore(first, &[c, d, f, g]);
    for end in &ends {
        let results: Vec<&str> = end.values().map(String::as_str).collect();
        assert!(matches!(results[..], ["done", "Invalid"] | ["Invalid", "done"]), "{end:?}");
    }
    (moments, ends.len())
}

#[test]
fn of_two_renames_that_would_make_a_loop_one_is_done() {
    let (mut all, mut most, mut either) = (0, 0, 0);
    for at in 0..3_u16.pow(4) {
        let (moments, ends) = figure_1([at % 3, at / 3 % 3, at / 9 % 3, at / 27]);
        (all, most) = (all + moments, most.max(moments));
        either += usize::from(ends == 2);
    }
    println!("{all} moments in all placements, {most} in one; in {either} either rename may be done");
    assert!(most > 300 && either > 20, "{most}, {either}");
}
