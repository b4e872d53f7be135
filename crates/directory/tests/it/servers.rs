//! Several servers in memory, and the messages between them. Some are lost, and any comes late, in
//! another order, and once more at any later time.

use crate::support::World;
use directory::Input;
use ident::{FileId, ServerId};
use lease::SessionId;
use std::ops::{Index, IndexMut};
use wire::{HandOver, Joint, PathLease, ToClient, ToServer};

/// A message from one server to another.
#[derive(Clone, Debug)]
pub struct Said {
    pub from: ServerId,
    pub to: ServerId,
    pub what: Word,
}

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test has few of them")]
pub enum Word {
    HandOver(HandOver),
    Joint(Joint),
    Path(PathLease),
}

pub struct Servers {
    worlds: Vec<World>,
    under_way: Vec<Said>,
    /// All that was ever said: any of it may come once more, however late.
    pub said: Vec<Said>,
    state: u64,
}

impl Servers {
    /// So many servers with the same machines; the first is the root server.
    pub fn new(count: u16, machines: u64, seed: u64) -> Servers {
        let mut root = World::new();
        root.enrol_up_to(machines);
        Servers::beside(root, count, seed)
    }

    /// So many servers with the machines of `root`, which is the first.
    pub fn beside(root: World, count: u16, seed: u64) -> Servers {
        let mut worlds: Vec<World> =
            (1..count).map(|number| World::beside(&root, ServerId(number))).collect();
        worlds.insert(0, root);
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Servers { worlds, under_way: Vec::new(), said: Vec::new(), state }
    }

    pub fn draw(&mut self, below: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % below
    }

    pub fn len(&self) -> usize {
        self.worlds.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &World> {
        self.worlds.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut World> {
        self.worlds.iter_mut()
    }

    /// The server that has `file`, as a client finds it that has these sessions: from any server
    /// on, by what each says. Nothing while the region is between two.
    pub fn follow(&mut self, file: &FileId, sessions: &[SessionId]) -> Option<usize> {
        let mut at = self.draw(self.len());
        for _ in 0..2 * self.len() {
            let message = ToServer::Extents { number: 1, file: file.clone(), from: 0 };
            match self[at].server.query(sessions[at], &message, &self[at].store) {
                Some(ToClient::Elsewhere { region, server, .. }) => {
                    assert!(region.is_prefix_of(file), "{region} has not {file}");
                    at = usize::from(server.0);
                }
                _ => return Some(at),
            }
        }
        None
    }

    /// The servers that decide about `file`.
    pub fn managers(&self, file: &FileId) -> Vec<usize> {
        (0..self.len()).filter(|at| self[*at].server.manages(file)).collect()
    }

    /// Every path lease is what a walk up over the states of all servers finds (Farsite §4.3). The
    /// lease on a directory that is gone is released afterwards. Returns the number of leases.
    pub fn path_leases_are_right(&self) -> usize {
        let above = |dir: &FileId| {
            let at = self.managers(dir);
            let [at] = at[..] else { panic!("{dir} has {} servers", at.len()) };
            self[at].server.links(&self[at].store, dir).unwrap()
        };
        let mut leases = 0;
        for (at, world) in self.iter().enumerate() {
            for (dir, known) in world.server.path_leases() {
                let is_gone = |links: Option<namespace::Links>| links.is_none_or(|it| it.is_empty());
                if *dir != FileId::root() && is_gone(above(dir)) {
                    continue;
                }
                let (mut way, mut last) = (Vec::new(), dir.clone());
                while let Some(link) = above(&last).and_then(|links| links.first().cloned()) {
                    assert!(way.len() < 1000, "{dir} is in a loop");
                    way.push(link.dir.clone());
                    last = link.dir;
                }
                assert_eq!(way, known, "server {at} knows another way up from {dir}");
                leases += 1;
            }
        }
        leases
    }

    /// Starts a server anew from its checkpoint: what it said last may never have been sent.
    pub fn restart(&mut self, at: usize) {
        let world = &mut self[at];
        (world.checks, world.handed) = (false, Vec::new());
        (world.jointly, world.paths) = (Vec::new(), Vec::new());
        world.restart();
    }

    /// Messages of servers go on their way. Of those that may be lost, some never arrive.
    pub fn collects(&mut self, may_be_lost: bool) {
        for at in 0..self.len() {
            let world = &mut self[at];
            let handed = std::mem::take(&mut world.handed).into_iter();
            let handed = handed.map(|(to, message)| (to, Word::HandOver(message)));
            let jointly = std::mem::take(&mut world.jointly).into_iter();
            let jointly = jointly.map(|(to, message)| (to, Word::Joint(message)));
            let paths = std::mem::take(&mut world.paths).into_iter();
            let paths = paths.map(|(to, message)| (to, Word::Path(message)));
            for (to, what) in handed.chain(jointly).chain(paths).collect::<Vec<_>>() {
                let said = Said { from: ServerId(at as u16), to, what };
                self.said.push(said.clone());
                if !may_be_lost || self.draw(8) > 0 {
                    self.under_way.push(said);
                }
            }
        }
    }

    /// The message that arrives next, early or late, and now and then once more.
    pub fn draws_said(&mut self) -> Option<Said> {
        if self.said.is_empty() {
            return None;
        }
        if self.draw(3) > 0 && !self.under_way.is_empty() {
            let at = self.draw(self.under_way.len());
            return Some(self.under_way.swap_remove(at));
        }
        // Half of late, half of any time.
        let count = self.said.len();
        let late = if self.draw(2) == 0 { count.min(12) } else { count };
        let back = self.draw(late);
        self.said.get(count - 1 - back).cloned()
    }

    /// Everything that is under way.
    pub fn takes_all(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.under_way)
    }

    /// Gives a message to its server; returns that server.
    pub fn deliver(&mut self, Said { from, to, what }: Said) -> usize {
        let at = usize::from(to.0);
        let input = match what {
            Word::HandOver(message) => Input::HandOver { from, message },
            Word::Joint(message) => Input::Joint { from, message: Box::new(message) },
            Word::Path(message) => Input::PathLease { from, message },
        };
        self[at].input_unchecked(input);
        at
    }
}

impl Index<usize> for Servers {
    type Output = World;

    fn index(&self, at: usize) -> &World {
        &self.worlds[at]
    }
}

impl IndexMut<usize> for Servers {
    fn index_mut(&mut self, at: usize) -> &mut World {
        &mut self.worlds[at]
    }
}
