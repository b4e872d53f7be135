//! Feeds of the registry as they may come: late, again, in any order, and some never.

use crate::support::*;
use directory::{Input, MachineCredential, Registry};
use ident::ServerId;
use lease::SessionId;
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::{GreetingNumber, MachineId, Rights, ToClient, ToServer, Version};

/// Machines as the root server knows them: whether each belongs, its latest start and its key.
type Said = BTreeMap<MachineId, (bool, u64, MachineCredential)>;

/// A root server, two others, and all that was ever said of the registry.
struct Feeds {
    root: World,
    others: Vec<World>,
    /// By the number of the last change.
    history: BTreeMap<u64, Said>,
    made: Vec<Registry>,
    starts: BTreeMap<MachineId, u64>,
    /// The sessions that each other server has begun, by machine and start.
    begun: Vec<BTreeMap<SessionId, (MachineId, u64)>>,
}

fn said(world: &World) -> Said {
    let known: BTreeMap<_, _> = world.server.all_known(&world.store).into_iter().collect();
    let machines = world.server.machines(world.now, &world.store).into_iter();
    let start = |machine| world.server.latest_start(machine, &world.store).unwrap_or(0);
    machines.map(|it| (it.machine, (it.expelled.is_none(), start(it.machine), known[&it.machine]))).collect()
}

impl Feeds {
    fn new() -> Feeds {
        let mut root = World::new();
        root.enrol_up_to(4);
        let others = vec![World::beside(&root, ServerId(1)), World::beside(&root, ServerId(2))];
        let begun = vec![BTreeMap::new(), BTreeMap::new()];
        let mut feeds = Feeds {
            root,
            others,
            history: BTreeMap::new(),
            made: Vec::new(),
            starts: BTreeMap::new(),
            begun,
        };
        feeds.notes();
        feeds
    }

    fn notes(&mut self) {
        self.history.insert(self.root.server.registered(), said(&self.root));
    }

    /// A machine that has joined.
    fn some_machine(&self, pick: usize) -> MachineId {
        MachineId(1 + pick as u64 % self.root.server.machines(self.root.now, &self.root.store).len() as u64)
    }

    fn greets(&mut self, at: Option<usize>, machine: MachineId, incarnation: u64) {
        let (greeting, version) = (GreetingNumber::default(), Version::NEWEST);
        let open = Input::Open { machine, incarnation, greeting, session: None, connection: 0, version };
        let Some(at) = at else { return self.root.input(open) };
        let other = &mut self.others[at];
        other.input(open);
        for (session, told) in &other.inbox {
            if matches!(told.first(), Some(ToClient::Opened { .. })) {
                self.begun[at].entry(*session).or_insert((machine, incarnation));
            }
        }
    }

    fn step(&mut self, (kind, pick, at): (u8, usize, usize)) {
        let machine = self.some_machine(pick);
        match kind {
            0 => _ = self.root.enrol(Rights::FULL),
            1 if pick.is_multiple_of(2) => self.root.input(Input::Expel { machine }),
            2 => {
                let known = MachineCredential { key: Some([0; 32]), certified: 0, holds: 0 };
                self.root.input(Input::Known { machine, known, itself: pick.is_multiple_of(3) });
            }
            3 => {
                *self.starts.entry(machine).or_insert(0) += 1;
                self.greets(None, machine, self.starts[&machine]);
            }
            4 | 5 => {
                let start = *self.starts.get(&machine).unwrap_or(&1);
                self.greets(Some(at), machine, start.saturating_sub(pick as u64 % 2).max(1));
            }
            6 => {
                let other = &mut self.others[at];
                let is_on = |session: &&SessionId| other.server.has_through(**session).is_some();
                let on: Vec<SessionId> = self.begun[at].keys().filter(is_on).copied().collect();
                if !on.is_empty() {
                    other.send(on[pick % on.len()], ToServer::Goodbye);
                }
            }
            7 => self.others[at].restart(),
            8 => self.root.restart(),
            // A host makes a feed of what its replicas know, which may both be behind.
            9 | 10 => {
                let since = self.others[at].server.registered().saturating_sub(pick as u64 % 3);
                self.made.push(self.root.server.registry(since, &self.root.store));
            }
            _ if self.made.is_empty() => {}
            _ => {
                let feed = self.made[pick % self.made.len()].clone();
                self.hears(at, feed);
            }
        }
        self.notes();
    }

    fn hears(&mut self, at: usize, feed: Registry) {
        let other = &mut self.others[at];
        let before = other.server.registered();
        let digest = other.server.digest();
        let takes = feed.since() <= before && before < feed.number();
        let number = feed.number();
        other.input(Input::Registry(feed));
        assert_eq!(other.server.registered(), if takes { number } else { before });
        assert!(takes || other.server.digest() == digest);
    }

    fn check(&mut self) {
        for (at, other) in self.others.iter_mut().enumerate() {
            let known = &self.history[&other.server.registered()];
            for (session, (machine, start)) in &self.begun[at] {
                let (belongs, latest, _) = known.get(machine).copied().unwrap_or_default();
                let has = other.server.has_through(*session).is_some();
                assert!(!has || belongs && *start >= latest, "{machine:?}'s {session:?} of start {start}");
                let fenced = other.inbox.get(session).into_iter().flatten();
                assert!(fenced.filter(|told| **told == ToClient::Fenced).count() <= 1);
            }
            for (machine, (belongs, _, known)) in known {
                assert_eq!(other.server.admits(*machine, &other.store).is_ok(), *belongs);
                assert_eq!(other.server.known(*machine, &other.store), Some(*known));
            }
            let machines = other.server.machines(other.now, &other.store).len();
            assert_eq!(machines, known.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// At any time another server has the registry as it was at one time, and has no session that
    /// the root server would have ended by then.
    #[test]
    fn a_copy_is_the_registry_of_some_time_and_never_an_earlier_one_again(
        steps in proptest::collection::vec((0..16u8, 0..24usize, 0..2usize), 1..80),
    ) {
        let mut feeds = Feeds::new();
        for step in steps {
            feeds.step(step);
            feeds.check();
        }
        for at in 0..2 {
            let feed = feeds.root.server.registry(feeds.others[at].server.registered(), &feeds.root.store);
            feeds.hears(at, feed);
        }
        feeds.check();
        let registered = feeds.root.server.registered();
        prop_assert!(feeds.others.iter().all(|other| other.server.registered() == registered));
    }
}
