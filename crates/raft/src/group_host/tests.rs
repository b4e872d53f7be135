//! Eight groups of three members on three machines, each with one host. Machines stop, start again
//! and lose their disks, and every group keeps its history.

mod figures;

use super::*;
use crate::batch::Batch;
use crate::group::tests::{Nobody, alone, files, root};
use crate::stop::stop;
use crate::{AnswerFuture, Event, FOUNDER, Host, Wire, wait};
use bytes::Bytes;
use directory::{Input, Output};
use lease::Time;
use parking_lot::RwLock;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;
use tempfile::TempDir;
use wire::{Version, Versions};

const GROUPS: u64 = 8;
const MACHINES: u64 = 3;

/// The machines that are up.
#[derive(Default)]
struct Net(RwLock<BTreeMap<u64, GroupHost>>);

/// The wires of one machine's groups.
struct Wires3(Arc<Net>);

/// A wire to the machine, and the conversation there, if nothing has gone wrong since.
struct Wire3 {
    to: u64,
    net: Arc<Net>,
    heard_by: Option<(Weak<HostParts>, Conversation)>,
}

impl Wires for Wires3 {
    fn to(&self, machine: u64) -> Box<dyn Wire> {
        Box::new(Wire3 { to: machine, net: self.0.clone(), heard_by: None })
    }

    fn speaks(&self, _: u64) -> Option<Version> {
        Some(Version::NEWEST)
    }
}

impl Wire for Wire3 {
    fn stay(&mut self) {}

    fn ask<'a>(&'a mut self, _: &'a [String], call: Bytes) -> AnswerFuture<'a> {
        Box::pin(async move {
            let host = self.net.0.read().get(&self.to).cloned().ok_or(io::ErrorKind::ConnectionRefused)?;
            let held = self.heard_by.take().filter(|(with, _)| with.ptr_eq(&Arc::downgrade(&host.0)));
            let mut conversation = held.map_or_else(|| host.listen(), |(_, conversation)| conversation);
            let (tell, told) = oneshot::channel();
            // It hears on its own thread.
            host.spawn(async move {
                let answer = conversation.hear(&call).await;
                drop(tell.send((answer, conversation)));
            });
            let (answer, conversation) = told.await.map_err(|_| io::ErrorKind::ConnectionReset)?;
            self.heard_by = Some((Arc::downgrade(&host.0), conversation));
            Ok(answer)
        })
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(300), "hangs: waiting for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The history of a group: the sessions that were delivered, each with its incarnation.
type History = BTreeMap<u64, u64>;
/// This machine's members, by group.
type Members = BTreeMap<u64, (u64, Arc<Group>)>;

struct Building {
    net: Arc<Net>,
    dirs: BTreeMap<u64, TempDir>,
    up: RwLock<BTreeMap<u64, Members>>,
    /// The number of each machine's member of each group.
    numbers: Mutex<BTreeMap<(u64, u64), u64>>,
    histories: Vec<Arc<Mutex<History>>>,
    ended: Arc<Mutex<Vec<String>>>,
}

fn open_session(incarnation: u64) -> Input {
    Input::Open {
        machine: directory::FOUNDER,
        incarnation,
        greeting: wire::GreetingNumber::default(),
        session: None,
        connection: 0,
        version: Version::NEWEST,
    }
}

impl Building {
    fn new() -> Building {
        let dirs = (1..=MACHINES).map(|machine| (machine, tempfile::tempdir().unwrap())).collect();
        let histories = (0..GROUPS).map(|_| Arc::default()).collect();
        let (net, up, numbers, ended) = Default::default();
        let building = Building { net, dirs, up, numbers, histories, ended };
        (1..=MACHINES).for_each(|machine| building.start_host(machine));
        std::thread::scope(|scope| {
            for group in 0..GROUPS {
                let building = &building;
                scope.spawn(move || building.found(group));
            }
        });
        building
    }

    fn start_host(&self, machine: u64) {
        let settings =
            GroupSettings { memory_bytes: 16 << 20, log_bytes: 1 << 20, ..GroupSettings::default() };
        let open = || GroupHost::open(files(self.dirs[&machine].path()), settings);
        // Calls under way hold the files of the former one a little longer.
        let (mut host, begun) = (open(), Instant::now());
        while host.is_err() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
            host = open();
        }
        let host = host.unwrap_or_else(|e| stop(&e));
        self.up.write().insert(machine, Members::new());
        self.net.0.write().insert(machine, host);
    }

    /// Opens the machine's member of the group, whose number is `member`.
    fn start_member(&self, machine: u64, group: u64, member: u64, founds: bool) {
        let (history, ended) = (self.histories[group as usize].clone(), self.ended.clone());
        let deliver: Deliver = Box::new(move |event| match event {
            Event::Outputs(outputs) => {
                for output in outputs {
                    if let Output::Opened { session, incarnation, .. } = output {
                        let before = history.lock().insert(session.0, incarnation);
                        assert!(before.is_none_or(|it| it == incarnation), "two have session {session:?}");
                    }
                }
            }
            Event::Ended(why) => ended.lock().push(format!("group {group} of machine {machine}: {why}")),
            _ => {}
        });
        let host = self.net.0.read()[&machine].clone();
        let name = format!("machine-{machine}");
        let place = MemberPlace {
            member,
            host: Host { machine, name, ..Host::default() },
            founds,
            knows: Versions::KNOWN,
        };
        let wires = Arc::new(Wires3(self.net.clone()));
        let opened = host.group(GroupId(group), root(), place, wires, deliver).unwrap_or_else(|e| stop(&e));
        opened.begin();
        assert_eq!(opened.id(), GroupId(group));
        self.numbers.lock().insert((machine, group), member);
        self.up.write().entry(machine).or_default().insert(group, (member, Arc::new(opened)));
    }

    fn found(&self, group: u64) {
        let founder = group % MACHINES + 1;
        self.start_member(founder, group, FOUNDER, true);
        self.opens(group, 1);
        (1..=MACHINES).filter(|machine| *machine != founder).for_each(|it| self.joins(it, group));
        self.is_whole(group);
    }

    /// Adds a member of the group on that machine, in the place of the one that it had.
    fn joins(&self, machine: u64, group: u64) {
        let member = self.leader(group).next_member();
        self.start_member(machine, group, member, false);
        wait_until("a newcomer", || {
            wait(self.leader(group).set_member(member, Host { machine, ..Host::default() })).is_ok()
        });
    }

    /// Waits until the members on the three machines are those of the group, and vote. The leader's
    /// standing may still be that from before a change.
    fn is_whole(&self, group: u64) {
        let numbers = self.numbers.lock().clone();
        let its = numbers.into_iter().filter(|((_, of), _)| *of == group);
        let all: BTreeSet<(u64, bool)> = its.map(|(_, member)| (member, true)).collect();
        wait_until("three to vote", || {
            let leader = self.leader(group);
            let settled = wait(leader.settle_voters());
            let members = leader.standing().members;
            settled.is_ok() && all == members.iter().map(|member| (member.id, member.votes)).collect()
        });
    }

    fn leader(&self, group: u64) -> Arc<Group> {
        let mut found = None;
        wait_until(&format!("a leader of group {group}"), || {
            let up = self.up.read();
            let members = up.values().filter_map(|members| members.get(&group));
            found = members.map(|(_, group)| group).find(|group| group.leads()).cloned();
            found.is_some()
        });
        found.unwrap()
    }

    /// Opens the session of that incarnation, whoever leads. The number has the group in it.
    fn opens(&self, group: u64, number: u64) {
        let incarnation = group * 1_000_000 + number;
        let history = &self.histories[group as usize];
        wait_until(&format!("entry {number} of group {group}"), || {
            self.leader(group).propose(open_session(incarnation));
            let proposed = Instant::now();
            while proposed.elapsed() < Duration::from_millis(500) {
                if history.lock().last_key_value().is_some_and(|(_, last)| *last >= incarnation) {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        });
    }

    /// Ends the machine's process, as a crash does or in order.
    fn ends(&self, machine: u64, in_order: bool) {
        let members = self.up.write().remove(&machine).unwrap();
        if in_order {
            members.values().for_each(|(_, group)| group.shutdown());
        }
        let host = self.net.0.write().remove(&machine).unwrap();
        host.end();
        drop(host);
        // Those who wait for one of its groups hold the files a little longer.
        for (_, mut group) in members.into_values() {
            while let Err(still) = Arc::try_unwrap(group) {
                group = still;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn starts(&self, machine: u64) {
        self.start_host(machine);
        let numbers = self.numbers.lock().clone();
        std::thread::scope(|scope| {
            for ((_, group), member) in numbers.into_iter().filter(|((at, _), _)| *at == machine) {
                scope.spawn(move || self.start_member(machine, group, member, member == FOUNDER));
            }
        });
    }

    /// The machine comes back with an empty disk. Its members are other ones.
    fn starts_empty(&self, machine: u64) {
        let dir = self.dirs[&machine].path();
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            removed.unwrap();
        }
        self.start_host(machine);
        std::thread::scope(|scope| {
            for group in 0..GROUPS {
                scope.spawn(move || {
                    self.joins(machine, group);
                    self.is_whole(group);
                });
            }
        });
    }

    /// Every member of every group has what was ever delivered, and nothing of another group.
    fn check(&self) {
        assert_eq!(*self.ended.lock(), Vec::<String>::new());
        for group in 0..GROUPS {
            let of_group = || -> Vec<Arc<Group>> {
                self.up.read().values().filter_map(|members| Some(members.get(&group)?.1.clone())).collect()
            };
            let digests = || {
                let digest = |it: &Arc<Group>| (it.applied(), it.query(|directory, _| directory.digest()));
                of_group().iter().map(digest).collect::<BTreeSet<_>>()
            };
            wait_until("agreement", || digests().len() == 1);
            let history = self.histories[group as usize].lock().clone();
            assert!(history.values().all(|incarnation| incarnation / 1_000_000 == group), "{history:?}");
            for member in of_group() {
                member.query(|directory, _| {
                    let has = |session: u64| directory.has_begun(lease::SessionId(session));
                    assert!(history.keys().all(|session| has(*session)), "group {group}");
                    // Sessions are numbered one after the other. No other group's are here.
                    let last = history.keys().max().unwrap();
                    assert!(!has(last + 1_000), "group {group}");
                });
            }
        }
    }
}

/// Runs `what` while clients write to all groups. Returns how much each has written meanwhile.
fn while_clients_write(building: &Building, written: &[AtomicU64], what: impl FnOnce()) -> Vec<u64> {
    let done = AtomicBool::new(false);
    let before: Vec<u64> = written.iter().map(|number| number.load(SeqCst)).collect();
    std::thread::scope(|scope| {
        for group in 0..GROUPS {
            let (done, written) = (&done, &written[group as usize]);
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    building.opens(group, written.fetch_add(1, SeqCst) + 1);
                }
            });
        }
        let what = catch_unwind(AssertUnwindSafe(what));
        done.store(true, SeqCst);
        what.unwrap_or_else(|panic| resume_unwind(panic));
    });
    written.iter().zip(before).map(|(number, before)| number.load(SeqCst) - before).collect()
}

#[test]
fn eight_groups_keep_their_histories_while_machines_stop_and_lose_disks() {
    let building = Building::new();
    let written: Vec<AtomicU64> = (0..GROUPS).map(|_| AtomicU64::new(1)).collect();
    let mut chance = ChaCha12Rng::seed_from_u64(28);
    let mut below = |bound: u64| chance.next_u64() % bound;
    for round in 0..6 {
        let machine = below(MACHINES) + 1;
        let rounds = while_clients_write(&building, &written, || match round {
            0 | 3 => {
                building.ends(machine, false);
                std::thread::sleep(Duration::from_millis(200 + below(1500)));
                building.starts(machine);
            }
            1 => {
                building.ends(machine, true);
                building.starts(machine);
            }
            2 | 5 => {
                building.ends(machine, false);
                building.starts_empty(machine);
            }
            _ => {
                (1..=MACHINES).for_each(|machine| building.ends(machine, false));
                std::thread::scope(|scope| {
                    for machine in 1..=MACHINES {
                        let building = &building;
                        scope.spawn(move || building.starts(machine));
                    }
                });
            }
        });
        assert!(rounds.iter().all(|rounds| *rounds > 0), "{rounds:?}");
        building.check();
    }
}

/// One group has no majority, and waits for ever. The members of all others are on the same
/// threads. Then its members are opened again beside the others.
#[test]
fn a_group_that_is_stuck_keeps_no_other_waiting() {
    let building = Building::new();
    let written: Vec<AtomicU64> = (0..GROUPS).map(|_| AtomicU64::new(1)).collect();
    let leader = building.leader(0);
    let mut gone = Vec::new();
    for (machine, members) in building.up.write().iter_mut() {
        if let Some((member, group)) = members.remove(&0) {
            match group.member() == leader.member() {
                true => drop(members.insert(0, (member, group))),
                false => gone.push((*machine, member, group)),
            }
        }
    }
    let stopped = gone.iter().map(|(machine, member, group)| {
        group.shutdown();
        (*machine, *member)
    });
    let stopped: Vec<(u64, u64)> = stopped.collect();
    drop(gone);
    leader.propose(open_session(2));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for group in 1..GROUPS {
            let (building, written) = (&building, &written[group as usize]);
            scope.spawn(move || {
                (0..40).for_each(|_| building.opens(group, written.fetch_add(1, SeqCst) + 1));
            });
        }
    });
    println!("40 entries of each of seven groups beside a stuck one: {:?}", begun.elapsed());
    assert!(building.histories[0].lock().values().all(|incarnation| *incarnation < 2));
    drop(leader);
    stopped
        .iter()
        .for_each(|(machine, member)| building.start_member(*machine, 0, *member, *member == FOUNDER));
    building.opens(0, 3);
    building.check();
}

/// A group that fails or has lost its state takes no other along. Damage of the disk does.
#[test]
fn what_ends_one_group_and_what_ends_all_of_a_machine() {
    let building = Building::new();
    let (machine, fails, diverges) = (1, 2, 3);
    let members = building.up.read()[&machine].clone();
    let raise = |what: &dyn Fn()| {
        let raised = catch_unwind(AssertUnwindSafe(what));
        assert!(raised.is_err());
    };
    let ended = || std::mem::take(&mut *building.ended.lock());
    raise(&|| members[&fails].1.fails("a test"));
    assert_eq!(ended(), ["group 2 of machine 1: a test"]);
    // The other machines go on with the group, and this one with the others.
    (0..GROUPS).for_each(|group| building.opens(group, 2));
    // An entry was proposed upon a state that no member of the group has.
    let raft = building.leader(diverges).ear.raft.clone();
    let batch = Batch::new(Time(1), 77, Version::NEWEST, Vec::new());
    let host = building.net.0.read()[&machine].clone();
    host.spawn(async move { drop(raft.client_write(batch).await) });
    // The last of the three has no majority, and may not hear that the entry is committed.
    wait_until("two of three to notice", || building.ended.lock().len() >= 2);
    let others: Vec<u64> = (0..GROUPS).filter(|group| *group != diverges).collect();
    let damaged = |machine: u64, group: u64| building.up.read()[&machine][&group].1.is_damaged();
    let none = |machine: u64| others.iter().all(|group| !damaged(machine, *group));
    assert!((1..=MACHINES).all(none));
    others.iter().for_each(|group| building.opens(*group, 3));
    let of_it = |why: &String| why.starts_with("group 3 ") && why.contains("is not that of the others");
    let its = ended();
    assert!(its.iter().all(of_it), "{its:?}");
    for segment in std::fs::read_dir(building.dirs[&machine].path().join("log")).unwrap().flatten() {
        use std::os::unix::fs::FileExt;
        if segment.path().extension().is_some_and(|kind| kind == "log") {
            let file = std::fs::File::options().write(true).open(segment.path()).unwrap();
            file.write_all_at(&[0x5a; 64], 128).unwrap();
        }
    }
    raise(&|| {
        let _ = members[&5].1.reread_log(None);
    });
    assert!(members.iter().all(|(group, (_, member))| member.is_damaged() == (*group != fails)));
    assert!((1..=MACHINES).filter(|it| *it != machine).all(none));
    let of_disk = ended().iter().filter(|why| why.contains("is damaged at byte")).count();
    assert!(of_disk >= others.len() - 1, "{of_disk}");
    others.iter().for_each(|group| building.opens(*group, 4));
}

/// A call that is under way holds the rows and the log of a member that has ended.
#[test]
fn a_group_that_is_opened_again_waits_for_calls_of_its_former_member() {
    const HELD: Duration = Duration::from_millis(300);
    let dir = tempfile::tempdir().unwrap();
    let host = GroupHost::open(files(dir.path()), GroupSettings::default()).unwrap();
    let open = |group| {
        let opened = host.group(GroupId(group), root(), alone("first"), Arc::new(Nobody), Box::new(|_| ()));
        let opened = opened.unwrap();
        opened.begin();
        opened
    };
    let (former, beside) = (open(1), open(2));
    former.propose(open_session(1));
    former.shutdown();
    let held = (former.machine.clone(), former.ear.clone());
    drop(former);
    let ended = Instant::now();
    let again = std::thread::scope(|scope| {
        let again = scope.spawn(|| open(1));
        while ended.elapsed() < HELD {
            beside.propose(open_session(1));
            assert!(beside.checkpoint());
        }
        assert!(!again.is_finished());
        drop(held);
        again.join().unwrap()
    });
    again.query(|directory, _| assert!(directory.has_begun(lease::SessionId(1))));
}
