//! Tests of the group over real files. The inputs open sessions, and each makes an output with its
//! number.

mod figures;
mod grants;
mod several;

use super::*;
use crate::FOUNDER;
use crate::Wire;
use crate::alarm::DiskAlarm;
use crate::stop::stop;
use crate::store::StoreSettings;
use crate::{Conversation, GroupFiles, GroupHost};
use directory::Output;
use std::fs::File;
use std::path::Path;
use std::sync::Weak;
use std::time::Instant;

const ROWS: StoreSettings = StoreSettings { cache_bytes: 1 << 20, overlay_bytes: 1 << 20 };
/// Size of the log's segments by default.
const SEGMENT_BYTES: u64 = 8 << 20;

pub(crate) fn root() -> Attributes {
    let now = namespace::Timestamp::default();
    let kind = namespace::FileKind::Directory;
    Attributes {
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: now,
        btime: now,
        atime: now,
    }
}

type Delivered = Arc<Mutex<Vec<Output>>>;

fn open(dir: &Path, settings: GroupSettings) -> (Group, Delivered) {
    let delivered = Delivered::default();
    let into = delivered.clone();
    std::fs::create_dir_all(dir).unwrap();
    let deliver: Deliver = Box::new(move |event| {
        if let Event::Outputs(outputs) = event {
            into.lock().extend(outputs);
        }
    });
    (open_alone(dir, settings, deliver), delivered)
}

pub(crate) fn open_alone(dir: &Path, settings: GroupSettings, deliver: Deliver) -> Group {
    let host = GroupHost::open(files(dir), settings).unwrap_or_else(|e| stop(&e));
    let group = host.group(GroupId::FIRST, root(), alone("first"), Arc::new(Nobody), deliver);
    let group = group.unwrap_or_else(|e| stop(&e));
    group.begin();
    group
}

pub(crate) fn files(dir: &Path) -> GroupFiles {
    GroupFiles { dir: dir.to_owned(), mark: None, moved: false }
}

pub(crate) fn alone(name: &str) -> MemberPlace {
    MemberPlace {
        member: FOUNDER,
        host: Host { name: name.to_owned(), ..Host::default() },
        founds: true,
        knows: Versions::KNOWN,
    }
}

/// There are no other members.
pub(crate) struct Nobody;

impl Wires for Nobody {
    fn to(&self, _: u64) -> Box<dyn Wire> {
        unreachable!("a lone voter calls nobody")
    }

    fn speaks(&self, _: u64) -> Option<Version> {
        None
    }
}

pub(crate) fn input(incarnation: u64) -> Input {
    Input::Open {
        machine: directory::FOUNDER,
        incarnation,
        greeting: wire::GreetingNumber::default(),
        session: None,
        connection: 0,
        version: Version::NEWEST,
    }
}

/// Returns the incarnations whose sessions were reported as begun, in order.
fn begun(delivered: &Delivered) -> Vec<u64> {
    let begun = |output: &Output| match output {
        Output::Opened { incarnation, .. } => Some(*incarnation),
        _ => None,
    };
    delivered.lock().iter().filter_map(begun).collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(300), "hangs: waiting for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the keys of a checkpoint of the present state.
fn keys(group: &Group) -> Vec<Vec<u8>> {
    group.checkpoint();
    let rows = group.query(|_, store| store.scan(&[], &[0xff; 64], usize::MAX));
    rows.into_iter().map(|row| row.0).collect()
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let (file, to) = (file.unwrap().path(), to.to_owned());
        let into = to.join(file.file_name().unwrap());
        if into.extension().is_some_and(|kind| kind == "reserve") {
            continue;
        }
        if file.is_dir() { copy_dir(&file, &into) } else { drop(std::fs::copy(file, into)) }
    }
}

#[test]
fn what_is_proposed_is_delivered_in_order_and_survives_without_a_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let (group, delivered) = open(dir.path(), GroupSettings::default());
    for machine in 1..=500 {
        group.propose(input(machine));
    }
    wait_until("delivery", || begun(&delivered).len() == 500);
    assert!(begun(&delivered).into_iter().eq(1..=500));
    wait_until("the backlog", || group.backlog_bytes() == 0);
    drop(group);

    let (again, delivered) = open(dir.path(), GroupSettings::default());
    assert!(begun(&delivered).is_empty(), "replayed outputs are not delivered");
    again.propose(input(501));
    wait_until("delivery", || begun(&delivered) == [501]);

    let one_go = tempfile::tempdir().unwrap();
    let (straight, delivered) = open(one_go.path(), GroupSettings::default());
    (1..=501).for_each(|machine| straight.propose(input(machine)));
    wait_until("delivery", || begun(&delivered).len() == 501);
    assert_eq!(keys(&again), keys(&straight));
    let sessions = |group: &Group| group.query(|directory, _| directory.status(Time(0)).sessions);
    // Each incarnation ends the one before.
    assert_eq!((sessions(&again), sessions(&straight)), (1, 1));
}

#[test]
fn after_an_orderly_end_nothing_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let (group, delivered) = open(dir.path(), GroupSettings::default());
    (1..=50).for_each(|machine| group.propose(input(machine)));
    group.shutdown();
    drop(group);
    assert_eq!(begun(&delivered).len(), 50, "an orderly end takes along what was proposed");
    let store = RowStore::open(&dir.path().join("rows"), ROWS).unwrap();
    let position = Position::decode(&store.position().unwrap()).unwrap();
    drop(store);
    let log = RaftLog::open(&dir.path().join("log"), SEGMENT_BYTES, 0).unwrap();
    assert_eq!(log.last(), position.applied);
    assert!(log.indices().is_empty(), "{:?}", log.indices());
    drop(log);
    let (group, _) = open(dir.path(), GroupSettings::default());
    assert!(group.status().applied > position.applied.unwrap().index);
}

/// A group that has ended without a checkpoint never purges its log.
#[test]
fn a_group_that_has_ended_adds_no_member() {
    let dir = tempfile::tempdir().unwrap();
    let (group, _) = open(dir.path(), GroupSettings::default());
    group.join(End::Abrupt);
    assert!(group.log.purged().is_none(), "nothing waits for a checkpoint");
    let added = wait(async {
        let add = group.set_member(2, Host::default());
        tokio::time::timeout(Duration::from_secs(30), add).await.expect("hangs")
    });
    assert!(matches!(added, Err(MembersError::Ended)), "{added:?}");
}

#[test]
fn checkpoints_purge_the_log_and_keep_memory_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let settings = GroupSettings { memory_bytes: 8 << 20, log_bytes: 1 << 20, ..GroupSettings::default() };
    let (group, delivered) = open(dir.path(), settings);
    for machine in 1..=3000u64 {
        group.propose(figures::message(10_000));
        if machine % 100 == 0 {
            wait_until("the backlog", || group.backlog_bytes() == 0);
            // A fast disk takes more than a checkpoint under way lets go of. Entries with an output
            // begin the next one, unasked, and their flush retires segments.
            wait_until("the log to be purged", || {
                let is_purged = group.status().log_bytes < 24 << 20;
                if !is_purged {
                    group.propose(input(machine));
                }
                is_purged
            });
        }
    }
    drop(delivered);
    group.checkpoint();
    let status = group.status();
    assert!(status.log_bytes <= 2 * SEGMENT_BYTES, "{status:?}");
    assert!(status.store.file_bytes > 0 && status.applied > 0);
    drop(group);
    let (group, _) = open(dir.path(), settings);
    assert!(group.status().applied > status.applied);
}

/// Copies of the files at any moment hold everything that was delivered before the copy began.
#[test]
fn what_was_delivered_is_in_a_copy_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    // No checkpoint runs while copying: a copy made while redb writes is a state that no crash
    // leaves. The store's own tests cut those.
    let (group, delivered) = open(&live, GroupSettings { log_bytes: 64 << 20, ..GroupSettings::default() });
    let mut copies: Vec<(PathBuf, usize)> = Vec::new();
    for round in 0..12u64 {
        (0..200).for_each(|n| group.propose(input(1 + round * 200 + n)));
        std::thread::sleep(Duration::from_micros(300 * round));
        let before = begun(&delivered).len();
        let copy = dir.path().join(format!("copy-{round}"));
        copy_dir(&live, &copy);
        copies.push((copy, before));
    }
    wait_until("delivery", || begun(&delivered).len() == 2400);
    drop(group);
    for (copy, before) in copies {
        let (group, delivered) = open(&copy, GroupSettings::default());
        // The session numbers continue behind those that were delivered.
        group.propose(input(9999));
        wait_until("delivery", || begun(&delivered) == [9999]);
        let session = delivered.lock().iter().find_map(|output| match output {
            Output::Opened { session, .. } => Some(session.0),
            _ => None,
        });
        assert!(session.unwrap() > before as u64, "{session:?} after {before}");
    }
}

#[test]
fn an_answer_that_rests_on_nothing_new_waits_for_no_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (group, delivered) = open(dir.path(), GroupSettings::default());
    group.propose(input(1));
    wait_until("the session", || begun(&delivered) == [1]);
    let opened = |output: &Output| match output {
        Output::Opened { session, .. } => Some(*session),
        _ => None,
    };
    let session = delivered.lock().iter().find_map(opened).unwrap();
    let ask = |number| {
        let operation =
            namespace::Operation::Stat(namespace::operation::Stat { file: ident::FileId::root() });
        let message = ToServer::Ask { number, operation, wants: Vec::new(), mode: wire::AskMode::Report };
        group.propose(Input::Message { session, message });
        let reported = |output: &Output| {
            let Output::Send { message: ToClient::Reported { number: told, .. }, .. } = output else {
                return false;
            };
            *told == number
        };
        wait_until("the report", || delivered.lock().iter().any(reported));
    };
    let flushes = || group.status().log_flushes;
    let before = flushes();
    ask(1);
    assert_eq!(flushes(), before);
    // After a lasting change it needs a flush.
    group.propose(Input::Invite { token: [1; 32], rights: wire::Rights::FULL, at: 0, until: 1 });
    ask(2);
    assert_eq!(flushes(), before + 1);
    ask(3);
    assert_eq!(flushes(), before + 1);
}

#[test]
fn time_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = Time(0);
    for machine in 1..4 {
        let (group, delivered) = open(dir.path(), GroupSettings::default());
        // The group's thread starts the clock in its own time.
        wait_until("the clock", || group.clock.lock().is_some());
        // This is longer than any of openraft's time-outs: a lone voter needs no heartbeat to stay
        // the leader.
        std::thread::sleep(Duration::from_millis(700));
        group.propose(input(machine));
        wait_until("delivery", || begun(&delivered) == [machine]);
        let now = group.machine.read().position.time;
        assert!(now.ms_since(last) >= 700, "{now:?} after {last:?}");
        last = now;
    }
}

#[test]
fn a_snapshot_carries_the_whole_state_to_another_group() {
    use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (group, delivered) = open(from.path(), GroupSettings::default());
    (1..=300).for_each(|machine| group.propose(input(machine)));
    wait_until("delivery", || begun(&delivered).len() == 300);
    let state = |machine: Arc<RwLock<Replica>>| StateMachine {
        machine,
        log: group.log.clone(),
        log_full: Arc::default(),
        alone: Arc::default(),
        deliver: Arc::new(Box::new(|_| {})),
        checkpointed: Arc::default(),
        queue: Arc::default(),
    };
    let other = Arc::new(RwLock::new(
        open_machine(
            RowStore::open(&to.path().join("rows"), ROWS).unwrap(),
            FirstState::Cluster(root()),
            "other",
            Versions::KNOWN,
            DiskAlarm::default().member(|why| panic!("{why}")),
        )
        .unwrap()
        .0,
    ));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut builder = state(group.machine.clone()).try_create_snapshot_builder(true).await.unwrap();
        let snapshot = builder.build_snapshot().await.unwrap();
        assert_eq!(snapshot.meta.last_log_id, group.machine.read().position.applied);
        state(other.clone()).install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
    });
    let (ours, theirs) = (group.machine.read(), other.read());
    let all = |store: &RowStore| store.scan(&[], &[0xff; 64], usize::MAX);
    assert_eq!(all(&ours.store), all(&theirs.store));
    assert_eq!((ours.position.applied, ours.position.time), (theirs.position.applied, theirs.position.time));
}
