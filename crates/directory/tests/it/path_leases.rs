//! Single cases of path leases: what recalls them and what does not, down the chain, with regions,
//! and messages that are forged, lost or late.

use crate::joint::renames;
use crate::servers::{Said, Servers, Word};
use crate::support::*;
use directory::Input;
use ident::{FileId, ServerId};
use lease::{Field, Kind, SessionId};
use namespace::{Effect, Error, FileKind, Operation, RenameMode, operation};
use wire::{AskMode, PathLease, PathStep, Rights, ToClient, ToServer};

const ROOT: FileId = FileId::root();

/// Some servers, each with a session of the one machine, and directories at any of them.
pub struct Tree {
    pub servers: Servers,
    pub sessions: Vec<SessionId>,
}

impl Tree {
    pub fn new(count: u16) -> Tree {
        let mut servers = Servers::new(count, 1, 1);
        let sessions = servers.iter_mut().map(|world| world.open(1, 1)).collect();
        Tree { servers, sessions }
    }

    /// A new file in a directory, at this server.
    pub fn make(&mut self, dir: &FileId, label: &str, kind: FileKind, server: u16) -> FileId {
        let at = self.servers.managers(dir)[0];
        let operation = self.servers[at].create(self.sessions[at], dir, label, kind, 1);
        let born = self.ships(at, operation).unwrap().into_iter().find_map(|effect| match effect {
            Effect::Birth { file, .. } => Some(file),
            _ => None,
        });
        let file = born.unwrap();
        self.moves(&file, server);
        file
    }

    pub fn dir(&mut self, dir: &FileId, label: &str, server: u16) -> FileId {
        self.make(dir, label, FileKind::Directory, server)
    }

    /// Has the region go to a server.
    pub fn moves(&mut self, region: &FileId, server: u16) {
        let at = self.servers.managers(region)[0];
        if at != usize::from(server) {
            self.servers[at].input(Input::Delegate { region: region.clone(), to: ServerId(server) });
            self.carries();
        }
        assert_eq!(self.servers.managers(region), [usize::from(server)]);
        self.servers.said.clear();
    }

    /// Asks a server to do an operation.
    pub fn asks(&mut self, at: usize, operation: Operation) {
        self.servers[at].ask(self.sessions[at], operation, Vec::new(), AskMode::Ship);
    }

    /// The effects of an operation that is told to be done, or why it was not.
    pub fn result(&mut self, at: usize) -> Option<Result<Vec<Effect>, Error>> {
        let told = self.servers[at].told(self.sessions[at]);
        told.into_iter().find_map(|message| match message {
            ToClient::Shipped { result, .. } => Some(result.map(|(_, effects)| effects)),
            _ => None,
        })
    }

    /// Has an operation done, with all messages.
    pub fn ships(&mut self, at: usize, operation: Operation) -> Result<Vec<Effect>, Error> {
        self.asks(at, operation);
        self.arrives();
        self.result(at).expect("no result")
    }

    /// Has a rename done by the server that has its destination.
    pub fn renames(&mut self, from: (&FileId, &str), to: (&FileId, &str)) -> Result<Vec<Effect>, Error> {
        let at = self.servers.managers(to.0)[0];
        self.ships(at, renames(from.0, from.1, to.0, to.1, RenameMode::Replace))
    }

    /// All messages between the servers arrive, in order, and the answers to them. Counts them.
    pub fn arrives(&mut self) -> usize {
        let mut count = 0;
        loop {
            self.servers.collects(false);
            let all = self.servers.takes_all();
            if all.is_empty() {
                return count;
            }
            count += all.len();
            for said in all {
                self.servers.deliver(said);
                self.servers.path_leases_are_right();
            }
        }
    }

    pub fn ticks(&mut self) {
        for world in self.servers.iter_mut() {
            world.now = world.now.after_ms(100);
            world.input(Input::Tick);
        }
    }

    pub fn carries(&mut self) {
        for _ in 0..20 {
            self.ticks();
            self.arrives();
        }
    }

    /// The messages about path leases that a server has sent since, which nobody gets.
    fn says(&mut self, at: usize) -> Vec<(ServerId, PathLease)> {
        std::mem::take(&mut self.servers[at].paths)
    }

    fn hears(&mut self, at: usize, from: u16, message: PathLease) {
        self.servers[at].input(Input::PathLease { from: ServerId(from), message });
    }

    /// The directories on which a server holds path leases.
    fn holds(&self, at: usize) -> Vec<FileId> {
        self.servers[at].server.path_leases().map(|(dir, _)| dir.clone()).collect()
    }

    /// How often this was said.
    fn count(&self, is: impl Fn(&PathStep) -> bool) -> usize {
        let steps = self.servers.said.iter().filter_map(|said| match &said.what {
            Word::Path(PathLease { step, .. }) => Some(step),
            _ => None,
        });
        steps.filter(|step| is(step)).count()
    }

    /// Ends what is under way; everything is in order then.
    pub fn ends(&mut self) {
        self.carries();
        for world in self.servers.iter() {
            assert!(!world.server.anybody_waits());
            world.check();
        }
    }
}

fn remove_dir(dir: &FileId, label: &str) -> Operation {
    match unlink(dir, label, false) {
        Operation::Unlink(unlink) => Operation::Unlink(operation::Unlink { directory: true, ..unlink }),
        other => other,
    }
}

/// A chain of directories at one server after the other, and a path lease from each to the next.
struct Chain {
    tree: Tree,
    /// Below the root, the one in the other.
    dirs: Vec<FileId>,
}

impl Chain {
    fn new(count: u16) -> Chain {
        let mut tree = Tree::new(count);
        let mut dirs = vec![ROOT];
        for server in 1..count {
            let dir = tree.dir(&dirs[dirs.len() - 1].clone(), "down", server);
            dirs.push(dir);
        }
        // The last server has to know the way up: a directory comes from the root into its own.
        tree.dir(&ROOT, "other", 0);
        let last = dirs[dirs.len() - 1].clone();
        assert!(tree.renames((&ROOT, "other"), (&last, "other")).is_ok());
        tree.servers.said.clear();
        Chain { tree, dirs: dirs.split_off(1) }
    }
}

/// Each server has its lease of the one above it, and the root server deals with one of them only.
#[test]
fn path_leases_are_recursive() {
    let Chain { tree, dirs } = Chain::new(4);
    assert_eq!(tree.holds(0), []);
    assert_eq!(
        [1, 2, 3].map(|at| tree.holds(at)),
        [vec![ROOT], vec![dirs[0].clone()], vec![dirs[1].clone()]]
    );
}

/// A path lease is on identifiers, so no change of a name within its directory recalls any. Data
/// files are above nothing.
#[test]
fn renames_that_change_no_directorys_parent_recall_nothing() {
    let Chain { mut tree, dirs } = Chain::new(4);
    let file = tree.make(&dirs[0], "file", FileKind::Regular, 1);
    for (from, to) in [((&ROOT, "down"), (&ROOT, "new")), ((&dirs[0], "down"), (&dirs[0], "New"))] {
        assert!(tree.renames(from, to).is_ok());
    }
    for (from, to) in [((&dirs[0], "file"), (&dirs[2], "file")), ((&dirs[2], "file"), (&ROOT, "File"))] {
        assert!(tree.renames(from, to).is_ok());
    }
    // A directory under which nobody has a lease may go anywhere.
    tree.dir(&ROOT, "leaf", 0);
    assert!(tree.renames((&ROOT, "leaf"), (&dirs[1], "leaf")).is_ok());
    assert!(tree.renames((&dirs[1], "leaf"), (&ROOT, "leaf")).is_ok());
    assert_eq!(tree.servers.managers(&file), [1]);
    assert_eq!(tree.count(|step| matches!(step, PathStep::Recall)), 0);
    assert_eq!([1, 2, 3].map(|at| tree.holds(at).len()), [1, 1, 1]);
    tree.ends();
}

/// Before a directory gets another parent, everybody below gives back what they know, the lowest
/// first. Each step survives a change of leader, and a restart.
#[test]
fn path_leases_are_recalled_down_the_chain_before_it_changes() {
    let Chain { mut tree, dirs } = Chain::new(4);
    tree.dir(&ROOT, "other", 0);
    tree.asks(0, renames(&ROOT, "down", &ROOT, "kept", RenameMode::Replace));
    tree.arrives();
    assert!(tree.result(0).unwrap().is_ok());
    let other = tree.servers[0].server.resolve(&tree.servers[0].store, b"other").unwrap();
    tree.asks(0, renames(&ROOT, "kept", &other, "kept", RenameMode::Replace));
    let mut order = Vec::new();
    for _ in 0..40 {
        tree.servers.collects(false);
        for said in tree.servers.takes_all() {
            if let Said { from, what: Word::Path(PathLease { step: PathStep::Released, .. }), .. } = &said {
                let below = &[1, 2, 3][usize::from(from.0)..];
                assert!(below.iter().all(|at| tree.holds(*at).is_empty()), "{from:?} was too early");
                order.push(from.0);
            }
            let at = tree.servers.deliver(said);
            tree.servers.path_leases_are_right();
            tree.servers.collects(false);
            tree.servers.restart(at);
        }
        if !order.contains(&2) {
            assert_eq!(tree.result(0), None, "the way changed before the lease on it was back");
        }
    }
    order.dedup();
    assert!(order.starts_with(&[3, 2]), "{order:?}");
    assert!(tree.result(0).unwrap().is_ok());
    tree.ends();
    // The root's own path is the same, so the server right below it keeps its lease.
    assert_eq!([1, 2, 3].map(|at| tree.holds(at)), [vec![ROOT], vec![], vec![]]);
    assert_eq!(tree.renames((&other, "kept"), (&dirs[2], "loop")), Err(Error::Invalid));
    assert_eq!([2, 3].map(|at| tree.holds(at)), [vec![dirs[0].clone()], vec![dirs[1].clone()]]);
}

/// The first directory goes below the last one: a loop over four servers.
#[test]
fn a_directory_does_not_go_into_itself_however_far_down() {
    let Chain { mut tree, dirs } = Chain::new(4);
    for (dir, label) in [(&ROOT, "down"), (&dirs[0], "down"), (&dirs[1], "down")] {
        assert_eq!(tree.renames((dir, label), (&dirs[2], "loop")), Err(Error::Invalid));
    }
    let exchange = renames(&dirs[2], "other", &ROOT, "down", RenameMode::Exchange);
    assert_eq!(tree.ships(0, exchange), Err(Error::Invalid));
    tree.ends();
}

/// Path leases are recalled before a directory on the way goes to another server, and asked for
/// anew there.
#[test]
fn a_region_leaves_without_path_leases() {
    let mut tree = Tree::new(4);
    let [above, below] = [("above", 1), ("below", 2)].map(|(label, at)| tree.dir(&ROOT, label, at));
    assert!(tree.renames((&ROOT, "below"), (&above, "below")).is_ok());
    tree.dir(&ROOT, "other", 0);
    assert!(tree.renames((&ROOT, "other"), (&below, "other")).is_ok());
    assert_eq!([1, 2].map(|at| tree.holds(at)), [vec![ROOT], vec![above.clone()]]);
    tree.moves(&above, 3);
    assert_eq!([1, 2, 3].map(|at| tree.holds(at)), [vec![ROOT], vec![], vec![]]);
    tree.dir(&ROOT, "other", 0);
    assert!(tree.renames((&ROOT, "other"), (&below, "more")).is_ok());
    assert_eq!([2, 3].map(|at| tree.holds(at)), [vec![above], vec![ROOT]]);
    tree.ends();
}

/// The lease on a directory that is removed goes, so that no server keeps it for ever.
#[test]
fn the_lease_on_a_removed_directory_is_let_go() {
    let Chain { mut tree, dirs } = Chain::new(3);
    let at = dirs[1].clone();
    assert!(tree.renames((&at, "other"), (&ROOT, "other")).is_ok());
    let gone = tree.dir(&dirs[1], "gone", 2);
    let inner = tree.dir(&gone, "inner", 1);
    tree.dir(&ROOT, "third", 0);
    assert!(tree.renames((&ROOT, "third"), (&inner, "third")).is_ok());
    assert_eq!(tree.holds(1), [ROOT, gone.clone()]);
    for (dir, label) in [(&inner, "third"), (&gone, "inner"), (&dirs[1], "gone")] {
        let at = tree.servers.managers(dir)[0];
        assert!(tree.ships(at, remove_dir(dir, label)).is_ok());
    }
    tree.ends();
    assert_eq!(tree.holds(1), [ROOT]);
}

/// Messages of servers that have no part in a lease, about other leases, late, and once more.
#[test]
fn forged_and_late_messages_give_nobody_a_lease() {
    let Chain { mut tree, dirs } = Chain::new(4);
    let lease = |dir: &FileId, number, step| PathLease { dir: dir.clone(), number, step };
    let digests = |tree: &Tree| [0, 1, 2, 3].map(|at| tree.holds(at));
    let before = digests(&tree);
    let above = [dirs[0].clone(), ROOT];
    for (from, number) in [(1, 1), (2, 7), (0, 1)] {
        // Nobody has asked for it: it goes back.
        tree.hears(3, from, lease(&dirs[1], number, PathStep::Issued { above: above[..1].to_vec() }));
        let back = lease(&dirs[1], number, PathStep::Released);
        assert_eq!(tree.says(3), [(ServerId(from), back)]);
    }
    // A recall by a server that has not issued the lease, or of another lease.
    for (from, number) in [(1, 1), (2, 7), (0, 1)] {
        tree.hears(3, from, lease(&dirs[1], number, PathStep::Recall));
        tree.says(3);
    }
    // Releases by servers that hold no such lease, and of an earlier one.
    for (from, number) in [(1, 1), (3, 0)] {
        tree.hears(2, from, lease(&dirs[1], number, PathStep::Released));
    }
    assert_eq!(digests(&tree), before);
    // All that was ever said comes again, in order and backwards, after the leases have gone.
    tree.dir(&ROOT, "other", 0);
    let other = tree.servers[0].server.resolve(&tree.servers[0].store, b"other").unwrap();
    tree.servers.said.clear();
    assert!(tree.renames((&ROOT, "down"), (&other, "down")).is_ok());
    assert_eq!(tree.renames((&other, "down"), (&dirs[2], "loop")), Err(Error::Invalid));
    assert!(tree.renames((&other, "down"), (&ROOT, "down")).is_ok());
    let said = tree.servers.said.clone();
    assert!(said.len() > 20);
    for said in said.iter().chain(said.iter().rev()) {
        tree.servers.deliver(said.clone());
        tree.servers.path_leases_are_right();
        tree.arrives();
    }
    tree.ends();
}

/// Farsite §8.3.2 counts 12 messages between servers for each conflicting rename, half of them
/// about path leases. There all files are at different servers and nothing is replaced, as here. A
/// fourth server, for a replaced directory, adds its four.
#[test]
fn the_worst_rename_takes_so_many_messages() {
    let count = |replaces: bool| {
        let mut tree = Tree::new(7);
        let (attic, hall) = (tree.dir(&ROOT, "attic", 0), tree.dir(&ROOT, "hall", 4));
        let source = tree.dir(&ROOT, "source", 1);
        let destination = tree.dir(&hall, "destination", 2);
        let moved = tree.dir(&source, "moved", 3);
        let below = tree.dir(&moved, "below", 5);
        tree.dir(&ROOT, "known", 0);
        // The servers have once found each other's files.
        assert!(tree.renames((&source, "moved"), (&destination, "new")).is_ok());
        assert!(tree.renames((&destination, "new"), (&source, "moved")).is_ok());
        assert!(tree.renames((&ROOT, "known"), (&below, "known")).is_ok());
        // The destination's server has lost its path lease, and another one below holds one.
        assert!(tree.renames((&ROOT, "hall"), (&attic, "hall")).is_ok());
        assert!(tree.renames((&attic, "hall"), (&ROOT, "hall")).is_ok());
        let rename = renames(&source, "moved", &destination, "moved", RenameMode::Replace);
        let mut counts = Vec::new();
        for _ in 0..2 {
            if replaces {
                tree.dir(&destination, "moved", 6);
            }
            tree.asks(2, rename.clone());
            counts.push(tree.arrives());
            assert!(tree.result(2).unwrap().is_ok());
            // Nobody below asks again, and what is above stays known.
            assert!(tree.renames((&destination, "moved"), (&source, "moved")).is_ok());
        }
        tree.ends();
        counts
    };
    let (three, four) = (count(false), count(true));
    println!("messages between servers for a rename over three servers: {three:?}, over four: {four:?}");
    assert_eq!((three, four), (vec![12, 8], vec![16, 12]));
}

/// Whether a file exists for a machine that was invited to a subtree follows from the same chain,
/// at a server that has neither the subtree's root nor anything above it.
#[test]
fn a_subtree_is_a_subtree_at_every_server() {
    let mut root = World::new();
    let session = root.open(1, 1);
    let n = root.take_root(session);
    let names = [("in", n), ("out", n + 1)];
    let [inside, outside] = names.map(|(label, position)| {
        let create = root.create(session, &ROOT, label, FileKind::Directory, position);
        root.update(session, create.clone()).unwrap();
        made(&create)
    });
    root.send(session, ToServer::Goodbye);
    let machine = root.enrol(Rights { root: inside.clone(), ..Rights::FULL }).unwrap();
    let mut servers = Servers::beside(root, 3, 1);
    let sessions = servers.iter_mut().map(|world| world.open(1, 2)).collect();
    let mut tree = Tree { servers, sessions };
    let middle = tree.dir(&inside, "middle", 1);
    let below = tree.dir(&middle, "below", 2);
    let secret = tree.dir(&outside, "secret", 2);
    let guest = tree.servers[2].open(machine.0, 1);
    let asks = |tree: &mut Tree, file: &FileId| {
        let wants = vec![want(file, Field::Attributes, Kind::Read)];
        let number = tree.servers[2].ask(guest, stat(file), wants, AskMode::Report);
        tree.ticks();
        tree.arrives();
        let told = tree.servers[2].told(guest);
        told.into_iter().find_map(|message| match message {
            ToClient::Reported { number: of, values, .. } if of == number => Some(Ok(values.len())),
            ToClient::Shipped { number: of, result } if of == number => Some(result.map(|_| 0)),
            _ => None,
        })
    };
    assert_eq!(asks(&mut tree, &below), Some(Ok(1)));
    assert_eq!(tree.holds(2), std::slice::from_ref(&middle));
    assert_eq!(asks(&mut tree, &secret), Some(Err(Error::Stale)));
    // The directory above moves out, at a server that the machine has no part of, and in again.
    assert!(tree.renames((&inside, "middle"), (&outside, "middle")).is_ok());
    assert_eq!(tree.holds(2), std::slice::from_ref(&outside));
    assert_eq!(asks(&mut tree, &below), Some(Err(Error::Stale)));
    assert!(tree.renames((&outside, "middle"), (&inside, "middle")).is_ok());
    assert_eq!(asks(&mut tree, &below), Some(Ok(1)));
    assert!(tree.renames((&outside, "secret"), (&below, "secret")).is_ok());
    assert_eq!(asks(&mut tree, &secret), Some(Ok(1)));
    tree.ends();
}
