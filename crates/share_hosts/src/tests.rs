//! Several hosts of shares in one process, over real sockets: copies made, found, lost, repaired
//! and moved.

mod accounts;
mod coded;
mod uploads;

use crate::copies::Copies;
use crate::hosts::ListedHost;
use crate::peers::Peers;
use crate::references::ReferenceIndex;
use crate::serving::serve_shares;
use crate::share_host::ShareHost;
use crate::shares_server::ShareSettings;
use bytes::Bytes;
use content::TAG_BYTES;
use content::Upload;
use lease::SessionId;
use namespace::{Error, ShareId, Spread};
use net::frames;
use net::listener::Movable;
use net::{Authority, Caller, CredentialStore, NetThread, Reception, Unanswered};
use parking_lot::Mutex;
use shares::{AccountId, Health, Holds, NewShare};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wire::{MachineId, Purpose, ShareCall, ShareWork, Welcome};

const CLIENT: MachineId = MachineId(99);
const SESSION: SessionId = SessionId(7);
/// Bytes in a share's file that precede its body.
const HEADER: u64 = 128;

/// An event that changes the state.
type Meanwhile = Box<dyn FnOnce(&ReplicaState) + Send>;

/// The state that all replicas share.
#[derive(Default)]
struct ReplicaState {
    /// Shares that files refer to, with the machine whose update referred to them first.
    referenced: Mutex<BTreeMap<ShareId, MachineId>>,
    settled: Mutex<Vec<ShareWork>>,
    /// Whether the state is too old for hosts to rely on.
    old: AtomicBool,
    /// Sessions that are over.
    over: Mutex<BTreeSet<(MachineId, SessionId)>>,
    /// Sessions that have not begun, as far as hosts know.
    unknown: Mutex<BTreeSet<SessionId>>,
    /// Machines that may not upload, at all or any more.
    readers: Mutex<BTreeSet<MachineId>>,
    /// Runs before the next time that a host asks whether a machine may upload.
    storing: Mutex<Option<Meanwhile>>,
    /// Runs before the next time that a host asks what files refer to.
    meanwhile: Mutex<Option<Meanwhile>>,
}

impl ReferenceIndex for ReplicaState {
    fn shares_after(&self, after: Option<&ShareId>, limit: usize) -> (Vec<ShareId>, Option<ShareId>) {
        let referenced = self.referenced.lock();
        let shares: Vec<ShareId> =
            referenced.keys().filter(|share| after < Some(share)).take(limit).copied().collect();
        let last = shares.last().copied().filter(|_| shares.len() == limit);
        (shares.iter().flat_map(ShareId::kept_as).collect(), last)
    }

    fn refers_to(&self, shares: &[ShareId]) -> Vec<bool> {
        if let Some(meanwhile) = self.meanwhile.lock().take() {
            meanwhile(self);
        }
        let referenced = self.referenced.lock();
        shares.iter().map(|share| referenced.contains_key(&share.whole())).collect()
    }

    fn publishers(&self, shares: &[ShareId]) -> Vec<Option<MachineId>> {
        let referenced = self.referenced.lock();
        shares.iter().map(|share| referenced.get(&share.whole()).copied()).collect()
    }

    fn are_over(&self, sessions: &[(MachineId, SessionId)]) -> Vec<bool> {
        let over = self.over.lock();
        sessions.iter().map(|session| over.contains(session)).collect()
    }

    fn has_begun(&self, session: SessionId) -> bool {
        !self.unknown.lock().contains(&session)
    }

    fn may_upload(&self, machine: MachineId) -> bool {
        let meanwhile = self.storing.lock().take();
        meanwhile.into_iter().for_each(|meanwhile| meanwhile(self));
        !self.readers.lock().contains(&machine)
    }

    fn is_current(&self) -> bool {
        !self.old.load(Ordering::SeqCst)
    }

    fn settled(&self, work: Vec<ShareWork>) {
        self.settled.lock().extend(work);
    }
}

/// A host that is up.
struct RunningReplica {
    share_host: Arc<ShareHost>,
    peers: Arc<Peers>,
    keeping: JoinHandle<()>,
    _listening: NetThread,
}

/// The caller of a machine that the authority certifies.
fn caller(authority: &Authority, dir: &Path, machine: MachineId) -> Caller {
    let credentials = authority.credentials(dir, machine).unwrap();
    CredentialStore::of(dir, credentials).unwrap().caller()
}

/// A cluster's hosts, and one client.
struct TestGroup {
    dirs: Vec<TempDir>,
    authority: Authority,
    state: Arc<ReplicaState>,
    addresses: Vec<SocketAddr>,
    hosts: Vec<Option<RunningReplica>>,
    client: Arc<Peers>,
    /// By host: whether it is to keep shares, as all replicas know it.
    keeps: Vec<bool>,
    /// By host: whether it takes calls without answering.
    frozen: Vec<Arc<AtomicBool>>,
    /// The clock of all hosts, UTC seconds.
    now: Arc<AtomicU64>,
}

impl TestGroup {
    fn new(count: usize) -> TestGroup {
        let dirs: Vec<TempDir> = (0..=count).map(|_| tempfile::tempdir().unwrap()).collect();
        let authority = Authority::found(dirs[0].path()).unwrap();
        let client = Peers::new(CLIENT);
        client.know(caller(&authority, dirs[0].path(), CLIENT));
        let mut group = TestGroup {
            dirs,
            authority,
            state: Arc::default(),
            addresses: Vec::new(),
            hosts: Vec::new(),
            client,
            keeps: vec![true; count],
            frozen: (0..count).map(|_| Arc::default()).collect(),
            now: Arc::new(AtomicU64::new(1_000_000_000)),
        };
        for at in 0..count {
            group.addresses.push("127.0.0.1:0".parse().unwrap());
            group.hosts.push(None);
            group.start(at);
        }
        group.tell();
        group
    }

    fn machine(at: usize) -> MachineId {
        MachineId(at as u64 + 1)
    }

    fn dir(&self, at: usize) -> &Path {
        self.dirs[at + 1].path()
    }

    fn start(&mut self, at: usize) {
        let me = TestGroup::machine(at);
        let credentials = self.authority.credentials(self.dir(at), me).unwrap();
        let peers = Peers::new(me);
        peers.know(caller(&self.authority, self.dir(at), me));
        peers.hosts().set(self.list(), self.needed());
        let deadline = Instant::now() + Duration::from_secs(120);
        let (share_host, chores) = loop {
            // The last connection's work may still be under way.
            let now = self.now.clone();
            let clock = Arc::new(move || now.load(Ordering::SeqCst));
            match ShareHost::open(
                &self.dir(at).join("shares"),
                ShareSettings::default(),
                clock,
                peers.clone(),
            ) {
                Ok(opened) => break opened,
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let (runs, references): (_, Arc<dyn ReferenceIndex>) = (share_host.clone(), self.state.clone());
        let keeping = std::thread::spawn(move || runs.run(&chores, &references));
        let socket = std::net::TcpListener::bind(self.addresses[at]).unwrap();
        socket.set_nonblocking(true).unwrap();
        self.addresses[at] = socket.local_addr().unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Reception::new(&credentials, &[], &[]).unwrap().tls);
        let references: Arc<dyn ReferenceIndex> = self.state.clone();
        let (serves, frozen) = ((share_host.clone(), references), self.frozen[at].clone());
        let listening = NetThread::spawn("listen", move || accept(serves, acceptor, socket, frozen)).unwrap();
        self.hosts[at] = Some(RunningReplica { share_host, peers, keeping, _listening: listening });
        self.tell();
    }

    fn stop(&mut self, at: usize) {
        let RunningReplica { share_host, peers, keeping, _listening } = self.hosts[at].take().unwrap();
        drop(_listening);
        peers.stop();
        share_host.stop();
        keeping.join().unwrap();
    }

    fn list(&self) -> Vec<ListedHost> {
        let hosts = self.addresses.iter().zip(&self.keeps).enumerate();
        let host = |(at, (address, keeps)): (usize, (&SocketAddr, &bool))| ListedHost {
            machine: TestGroup::machine(at),
            addresses: vec![address.to_string()],
            weight: u32::from(*keeps),
        };
        hosts.map(host).collect()
    }

    fn needed(&self) -> usize {
        self.addresses.len().div_ceil(2)
    }

    /// Tells all replicas who the hosts are.
    fn tell(&self) {
        for peers in self.hosts.iter().flatten().map(|host| &host.peers).chain([&self.client]) {
            peers.hosts().set(self.list(), self.needed());
        }
    }

    fn share_host(&self, at: usize) -> &ShareHost {
        &self.hosts[at].as_ref().unwrap().share_host
    }

    fn client(&self) -> Copies {
        Copies::new(self.client.clone())
    }

    /// The client of the machine that the host `at` runs on.
    fn client_of(&self, at: usize) -> Copies {
        let host = self.hosts[at].as_ref().unwrap();
        let copies = Copies::new(host.peers.clone());
        copies.set_here(Some(host.share_host.clone()));
        copies
    }

    /// Publishes these shares in the client's name: every host does what the log entry demands.
    fn publish(&self, shares: &[ShareId]) {
        self.publish_by(CLIENT, shares);
    }

    /// Publishes shares in the name of another machine, which has uploaded them.
    fn publish_by(&self, machine: MachineId, shares: &[ShareId]) {
        self.state.referenced.lock().extend(shares.iter().map(|share| (*share, machine)));
        let work: Vec<ShareWork> = shares.iter().map(|share| ShareWork::Adopt(*share)).collect();
        self.hosts.iter().flatten().for_each(|host| host.share_host.work(work.clone()));
    }

    /// The hosts with a sound copy that the group has leased.
    fn keeping(&self, share: &ShareId) -> Vec<usize> {
        let keeps = |share_host: &ShareHost| {
            share_host.shares().server().holds(share_host.shares().group, &[*share]).unwrap()
                == [Holds::Leased]
        };
        (0..self.hosts.len())
            .filter(|at| self.hosts[*at].as_ref().is_some_and(|h| keeps(&h.share_host)))
            .collect()
    }

    fn placed(&self, share: &ShareId) -> Vec<usize> {
        self.client.hosts().now().placed(share).iter().map(|machine| machine.0 as usize - 1).collect()
    }

    /// The file of a copy.
    fn file(&self, at: usize, share: &ShareId) -> PathBuf {
        let name: String = share.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let shares = self.dir(at).join("shares");
        let mut dirs = vec![shares];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                if entry.path().is_dir() {
                    dirs.push(entry.path());
                } else if entry.file_name().to_string_lossy() == name {
                    return entry.path();
                }
            }
        }
        panic!("{name} has no file at host {at}");
    }

    fn all_complete(&self) -> bool {
        let fingerprint = self.client.hosts().now().fingerprint();
        let mut standings = self.hosts.iter().flatten().map(|host| host.share_host.standing().unwrap());
        standings.all(|standing| standing.complete && standing.hosts == fingerprint)
    }
}

async fn accept(
    serves: (Arc<ShareHost>, Arc<dyn ReferenceIndex>),
    acceptor: tokio_rustls::TlsAcceptor,
    socket: std::net::TcpListener,
    frozen: Arc<AtomicBool>,
) {
    let listener = tokio::net::TcpListener::from_std(socket).unwrap();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let ((share_host, references), acceptor, frozen) = (serves.clone(), acceptor.clone(), frozen.clone());
        tokio::task::spawn_local(async move {
            let Ok(stream) = acceptor.accept(Movable::Here(tcp)).await else { return };
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let machine = certificate.and_then(net::machine_of).unwrap();
            let mut frames = frames::greetings(stream);
            let Ok(greeting) = frames::receive(&mut frames).await else { return };
            let (version, purpose) = wire::read_greeting(wire::Versions::KNOWN, &greeting).unwrap();
            assert_eq!(purpose, Purpose::Content);
            frames::send(&mut frames, wire::answer(version, &Welcome::Content)).await.unwrap();
            frames::messages(&mut frames);
            while frozen.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let _ = serve_shares(frames, &share_host, &references, machine, || None).await;
        });
    }
}

fn share(number: u64) -> ShareId {
    ShareId(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes())
}

fn plain(number: u64) -> Bytes {
    Bytes::from(vec![number as u8; 10_000 + number as usize])
}

fn store(client: &Copies, numbers: std::ops::Range<u64>) -> Vec<ShareId> {
    store_all(client, numbers.map(|number| (share(number), plain(number))))
}

fn store_all(client: &Copies, shares: impl Iterator<Item = (ShareId, Bytes)>) -> Vec<ShareId> {
    let uploads: Vec<Upload> = (0..).zip(shares).map(|(n, (share, plain))| upload(n, share, plain)).collect();
    let names = uploads.iter().map(|upload| upload.share).collect();
    for (number, result) in client.store(SESSION, uploads) {
        assert!(result.is_ok(), "{number}: {result:?}");
    }
    names
}

/// A client's upload: a share that holds one piece.
fn upload(upload: u64, share: ShareId, plain: Bytes) -> Upload {
    Upload { upload, share, key: [1; 32], pieces: vec![([2; 12], plain)] }
}

fn read(client: &Copies, number: u64) -> Result<Vec<u8>, Error> {
    read_all(client, share(number), &plain(number))
}

/// Reads and opens a whole share that holds `plain`.
fn read_all(client: &Copies, share: ShareId, plain: &Bytes) -> Result<Vec<u8>, Error> {
    let length = plain.len() as u32 + TAG_BYTES as u32;
    let (_, hashes) = content::seal_share(&[1; 32], [([2; 12], plain)].into_iter());
    let open = |_, bytes| content::open(&[1; 32], &[2; 12], &hashes[0], bytes).map_err(|_| Error::Damaged);
    client.read(&[(share, 0, length)], open).remove(0)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < deadline, "hangs: not so for 300 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_share_is_stored_where_it_is_to_be_and_read_from_anywhere() {
    let group = TestGroup::new(4);
    let shares = store(&group.client(), 0..20);
    for share in &shares {
        let has = |at: &usize| group.share_host(*at).shares().server().share(share).unwrap().is_some();
        let mut placed = group.placed(share);
        placed.sort_unstable();
        assert_eq!((0..4).filter(has).collect::<Vec<_>>(), placed);
    }
    group.publish(&shares);
    for (number, share) in (0..).zip(&shares) {
        until("adopted", || group.keeping(share).len() == 3);
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
        assert_eq!(read(&group.client_of(0), number).unwrap(), plain(number));
    }
    // The reader does not wait for a share that no host has.
    assert_eq!(read(&group.client(), 1_000), Err(Error::Damaged));
    // A share that a client does not need is released everywhere.
    let unneeded = store(&group.client(), 100..101);
    group.client().release(&unneeded);
    until("let go", || {
        (0..4).all(|at| group.share_host(at).shares().server().share(&unneeded[0]).unwrap().is_none())
    });
}

#[test]
fn a_host_that_is_down_is_passed_over_and_fetches_what_it_missed() {
    let mut group = TestGroup::new(3);
    let before = store(&group.client(), 0..5);
    group.publish(&before);
    until("adopted", || before.iter().all(|share| group.keeping(share).len() == 3));
    group.stop(1);
    let shares = store(&group.client(), 5..10);
    group.publish(&shares);
    for number in 10..30 {
        group.publish(&store(&group.client(), number..number + 1));
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
    // One share is gone by the time that the host is back.
    let gone = share(7);
    group.state.referenced.lock().remove(&gone);
    for at in [0, 2] {
        group.share_host(at).work(vec![ShareWork::Drop(gone)]);
    }
    group.start(1);
    until("complete", || group.all_complete());
    for number in 0..30 {
        let copies = group.keeping(&share(number)).len();
        assert_eq!(copies, if share(number) == gone { 0 } else { 3 }, "{number}");
    }
    // This host alone has all that the others have.
    let client = group.client_of(1);
    group.stop(0);
    group.stop(2);
    assert_eq!(read(&client, 20).unwrap(), plain(20));
}

#[test]
fn the_next_host_in_order_takes_the_place_of_one_that_is_down_and_gives_it_up_again() {
    let mut group = TestGroup::new(4);
    let number = (0..).find(|number| group.placed(&share(*number)).contains(&2)).unwrap();
    let (placed, share) = (group.placed(&share(number)), share(number));
    let stands_in = (0..4).find(|at| !placed.contains(at)).unwrap();
    group.stop(2);
    group.publish(&store(&group.client(), number..number + 1));
    until("taken", || group.keeping(&share).len() == 3);
    assert!(group.keeping(&share).contains(&stands_in));
    group.start(2);
    until("moved", || {
        let mut keeping = group.keeping(&share);
        keeping.sort_by_key(|at| placed.iter().position(|placed| placed == at));
        keeping == placed
    });
    assert_eq!(read(&group.client(), number).unwrap(), plain(number));
}

#[test]
fn a_lone_host_whose_lease_database_is_lost_leases_all_that_files_refer_to() {
    let mut group = TestGroup::new(1);
    let shares = store(&group.client(), 0..20);
    group.publish(&shares[..15]);
    until("adopted", || shares[..15].iter().all(|share| group.keeping(share) == [0]));
    group.stop(0);
    std::fs::remove_file(group.dir(0).join("shares/leases.sqlite")).unwrap();
    group.start(0);
    until("leased anew", || shares[..15].iter().all(|share| group.keeping(share) == [0]));
    let server = group.share_host(0).shares().server();
    until("known", || server.suspended().unwrap().is_none());
    let starter = AccountId::STARTER;
    let found = |share: &ShareId| server.leases_of(share).unwrap()[0].account == starter;
    assert!(shares[15..].iter().all(found), "nothing refers to these: they stay for a while");
    assert_eq!(server.usage(starter).unwrap().shares, 5);
    for number in 0..20 {
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
}

#[test]
fn a_host_that_says_nothing_costs_one_wait() {
    let group = TestGroup::new(3);
    let shares = store(&group.client(), 0..5);
    group.publish(&shares);
    let other = Peers::new(CLIENT);
    other.know(caller(&group.authority, group.dirs[0].path(), CLIENT));
    other.hosts().set(group.list(), 2);
    let client = Copies::new(other.clone());
    let is_down = || {
        let hosts = other.hosts().now();
        other.call(&hosts, hosts.all()[1].machine, ShareCall::Standing, Vec::new()).is_none()
    };
    group.frozen[1].store(true, Ordering::SeqCst);
    store(&client, 5..6);
    assert!(is_down(), "nobody waits for it again");
    store(&client, 6..20);
    for number in 0..20 {
        assert_eq!(read(&client, number).unwrap(), plain(number));
    }
    assert!(is_down());
    // The host takes what it was sent, and is asked again.
    group.frozen[1].store(false, Ordering::SeqCst);
    until("heard of", || group.share_host(1).shares().server().share(&share(5)).unwrap().is_some());
    until("asked again", || {
        let at = store(&client, 20..21).remove(0);
        group.share_host(1).shares().server().share(&at).unwrap().is_some()
    });
}

/// There is no other host, so the callers are ready to wait.
#[test]
fn no_call_waits_for_ever_for_a_host_that_is_up_and_answers_nothing() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..1);
    group.publish(&shares);
    group.frozen[0].store(true, Ordering::SeqCst);
    let other = Peers::answered_within(CLIENT, Duration::from_secs(2));
    other.know(caller(&group.authority, group.dirs[0].path(), CLIENT));
    other.hosts().set(group.list(), 1);
    let (hosts, began) = (other.hosts().now(), Instant::now());
    let ask = || other.call(&hosts, TestGroup::machine(0), ShareCall::Standing, Vec::new());
    assert_eq!(ask().unwrap().wait(None).err(), Some(Unanswered::Unreachable));
    assert!((2..60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // A reader and a writer ask again and again, until the host answers.
    let client = Copies::new(other.clone());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&client, 0));
        let writing = scope.spawn(|| store(&client, 1..2));
        std::thread::sleep(Duration::from_secs(5));
        assert!(!reading.is_finished() && !writing.is_finished());
        group.frozen[0].store(false, Ordering::SeqCst);
        assert_eq!(reading.join().unwrap().unwrap(), plain(0));
        writing.join().unwrap();
    });
}

#[test]
fn damage_is_found_by_the_reader_repaired_from_another_host_and_never_served() {
    let group = TestGroup::new(3);
    let shares = store(&group.client(), 0..6);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 3));
    let (flipped, cut, missing, head) = (share(0), share(1), share(2), share(3));
    let change = |share: &ShareId, at: u64| {
        let file = OpenOptions::new().write(true).open(group.file(0, share)).unwrap();
        file.write_at(&[0xff, 0x5a, 0xff, 0x5a, 0x77], at).unwrap();
        file
    };
    change(&flipped, HEADER + 1_000);
    change(&cut, 0).set_len(500).unwrap();
    std::fs::remove_file(group.file(0, &missing)).unwrap();
    change(&head, 3);
    // The host reads its own copies first.
    let client = group.client_of(0);
    for number in 0..6 {
        assert_eq!(read(&client, number).unwrap(), plain(number), "{number}");
        assert_eq!(read(&group.client(), number).unwrap(), plain(number), "{number}");
    }
    for share in &shares {
        let server = group.share_host(0).shares().server();
        until("repaired", || server.share(share).unwrap().is_some_and(|row| row.health == Health::Ok));
        assert!(server.verify(share).is_ok());
    }
    until("complete", || group.all_complete());
}

#[test]
fn a_host_is_drained_and_comes_back() {
    let mut group = TestGroup::new(4);
    let shares = store(&group.client(), 0..40);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 3));
    group.keeps[3] = false;
    group.tell();
    until("drained", || group.all_complete() && group.share_host(3).standing().unwrap().kept == 0);
    assert!(shares.iter().all(|share| group.keeping(share) == [0, 1, 2]));
    group.keeps = vec![true; 4];
    group.tell();
    until("back", || group.all_complete());
    for (number, share) in (0..).zip(&shares) {
        let mut placed = group.placed(share);
        placed.sort_unstable();
        until("moved", || group.keeping(share) == placed);
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
}

#[test]
fn a_second_host_gets_a_copy_of_all_that_there_is() {
    let mut group = TestGroup::new(2);
    group.stop(1);
    let lone = group.client_of(0);
    let peers = &group.hosts[0].as_ref().unwrap().peers;
    peers.hosts().set(vec![group.list().remove(0)], 1);
    let shares = store(&lone, 0..300);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    assert!(group.share_host(0).standing().unwrap().complete);
    group.start(1);
    until("complete", || group.all_complete());
    assert!(shares.iter().all(|share| group.keeping(share) == [0, 1]));
}

#[test]
fn nothing_is_released_by_a_state_that_is_too_old() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 2));
    group.state.old.store(true, Ordering::SeqCst);
    for at in [0, 1] {
        group.stop(at);
    }
    // The state is as of before the publications: it is unknown yet whether the log is committed.
    let later = std::mem::take(&mut *group.state.referenced.lock());
    for at in [0, 1] {
        group.start(at);
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(shares.iter().all(|share| group.keeping(share).len() == 2));
    *group.state.referenced.lock() = later.into_iter().take(2).collect();
    group.state.old.store(false, Ordering::SeqCst);
    until("complete", || group.all_complete());
    let copies: usize = shares.iter().map(|share| group.keeping(share).len()).sum();
    assert_eq!(copies, 4);
}

#[test]
fn of_two_hosts_that_each_rely_on_the_other_none_lets_go() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 2));
    // Each host is told that it is the one to be drained.
    for at in [0, 1] {
        group.keeps = vec![at != 0, at != 1];
        group.hosts[at].as_ref().unwrap().peers.hosts().set(group.list(), 1);
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(shares.iter().all(|share| group.keeping(share).len() == 2));
    group.tell();
    until("drained", || shares.iter().all(|share| group.keeping(share) == [0]));
}

/// The first host is promised a share by the second. Then a list comes by which the second may go,
/// since the first keeps it; and then the list of before comes again.
#[test]
fn a_promise_counts_no_more_when_its_list_of_hosts_comes_again() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 2));
    // The repair of the first host must not act before the test does: by an older state it waits.
    group.state.old.store(true, Ordering::SeqCst);
    group.keeps = vec![false, true];
    group.tell();
    let first = group.hosts[0].as_ref().unwrap().peers.hosts().now();
    let keep = ShareCall::Keep(shares.clone());
    let (promised, _) = group.share_host(1).answer(TestGroup::machine(0), keep, Bytes::new(), &*group.state);
    assert_eq!(promised, [Ok(()); 3]);
    group.keeps = vec![true, false];
    group.tell();
    group.state.old.store(false, Ordering::SeqCst);
    until("left by the second", || shares.iter().all(|share| group.keeping(share) == [0]));
    group.state.old.store(true, Ordering::SeqCst);
    group.keeps = vec![false, true];
    group.tell();
    let again = group.hosts[0].as_ref().unwrap().peers.hosts().now();
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert!(!group.share_host(0).leave(&first, &shares).unwrap());
    group.state.old.store(false, Ordering::SeqCst);
    until("moved", || shares.iter().all(|share| group.keeping(share) == [1]));
    for number in 0..3 {
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
}

#[test]
fn a_host_that_is_another_machine_is_not_talked_to() {
    let group = TestGroup::new(2);
    let mut list = group.list();
    // Both addresses are the first host's.
    list[1].addresses = list[0].addresses.clone();
    let peers = Peers::new(CLIENT);
    peers.know(caller(&group.authority, group.dirs[0].path(), CLIENT));
    peers.hosts().set(list, 1);
    let (hosts, ask) = (peers.hosts().now(), |machine| {
        let hosts = peers.hosts().now();
        peers.call(&hosts, machine, ShareCall::Standing, Vec::new())
    });
    let second = hosts.all()[1].machine;
    assert!(ask(hosts.all()[0].machine).unwrap().wait(None).is_ok());
    assert!(ask(second).is_none_or(|pending| pending.wait(None).is_err()));
}

const DAY: u64 = 24 * 3600;

/// Leaves a share at a host that the group has leased and that nothing refers to, as another server
/// might.
fn leave_behind(group: &TestGroup, at: usize, number: u64) -> ShareId {
    let left = NewShare { id: share(number), parts: vec![plain(number)] };
    assert_eq!(group.share_host(at).shares().store_for_group(vec![left]), [Ok(())]);
    share(number)
}

#[test]
fn a_host_that_was_off_for_months_lets_go_of_nothing_that_is_referred_to_and_of_all_else() {
    for count in [1, 3] {
        let mut group = TestGroup::new(count);
        let shares = store(&group.client(), 0..5);
        group.publish(&shares);
        until("adopted", || shares.iter().all(|share| group.keeping(share).len() == count));
        let left = leave_behind(&group, 0, 9);
        group.stop(0);
        group.now.fetch_add(62 * DAY, Ordering::SeqCst);
        // It is unknown yet what is committed.
        group.state.old.store(true, Ordering::SeqCst);
        let referenced = std::mem::take(&mut *group.state.referenced.lock());
        group.start(0);
        let server = || group.share_host(0).shares().server();
        let all =
            || shares.iter().chain([&left]).filter(|share| server().share(share).unwrap().is_some()).count();
        std::thread::sleep(Duration::from_millis(300));
        server().confirm_clock().unwrap();
        server().expire().unwrap();
        group.now.fetch_add(2 * DAY, Ordering::SeqCst);
        server().confirm_clock().unwrap();
        server().expire().unwrap();
        server().reap().unwrap();
        assert_eq!((all(), server().vouched()), (6, None), "{count} hosts");
        *group.state.referenced.lock() = referenced;
        group.state.old.store(false, Ordering::SeqCst);
        until("vouched for", || server().vouched().is_some());
        server().expire().unwrap();
        server().reap().unwrap();
        until("gone", || server().share(&left).unwrap().is_none());
        assert_eq!(all(), 5);
        // All that files refer to is leased for another term.
        let end = server().lease_end();
        for share in &shares {
            let leases = server().leases_of(share).unwrap();
            assert_eq!(leases.iter().map(|lease| lease.expires_at).collect::<Vec<_>>(), [Some(end)]);
        }
    }
}

#[test]
fn leases_are_renewed_when_they_are_due_and_not_while_somebody_copies_what_was_there() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    let server = group.share_host(0).shares().server();
    let renewed = |at: u64| server.leases_of(&share(at)).unwrap()[0].renewed_at;
    // The session that uploaded the shares has leases, too, until it is swept.
    let own = group.share_host(0).shares().group;
    until("leased by the group alone", || {
        (0..3)
            .all(|at| matches!(server.leases_of(&share(at)).as_deref(), Ok([lease]) if lease.account == own))
    });
    let begin = renewed(0);
    let look = |days: u64| {
        group.now.fetch_add(days * DAY, Ordering::SeqCst);
        server.confirm_clock().unwrap();
        group.share_host(0).compare();
        until("looked", || server.vouched() == Some(server.now()));
    };
    look(6);
    assert_eq!(renewed(0), begin);
    look(1);
    assert_eq!(renewed(0), begin + 7 * DAY);
    // A damaged share may be the last remainder of its data.
    std::fs::write(group.file(0, &share(1)), b"else").unwrap();
    assert!(server.verify(&share(1)).is_err());
    look(7);
    assert_eq!(renewed(1), begin + 14 * DAY);
    // A share that goes while it is being copied stays until the copy is done.
    let hold = group.hosts[0].as_ref().unwrap().share_host.hold();
    group.state.referenced.lock().remove(&share(2));
    group.share_host(0).work(vec![ShareWork::Drop(share(2))]);
    let vouched = server.vouched();
    for _ in 0..40 {
        group.now.fetch_add(DAY, Ordering::SeqCst);
        server.confirm_clock().unwrap();
    }
    group.share_host(0).compare();
    std::thread::sleep(Duration::from_millis(300));
    server.expire().unwrap();
    server.reap().unwrap();
    assert_eq!((server.vouched(), server.share(&share(2)).unwrap().is_some()), (vouched, true));
    drop(hold);
    until("let go", || server.share(&share(2)).unwrap().is_none());
    until("looked", || server.vouched() > vouched);
    assert!(server.now() - renewed(0) < 7 * DAY);
}

/// The copy begins while the host compares: after the check for copies, and before the query of
/// references.
#[test]
fn what_goes_after_somebody_has_begun_to_copy_it_stays_whatever_a_look_is_at() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..2);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    let (share_host, gone) = (group.hosts[0].as_ref().unwrap().share_host.clone(), shares[1]);
    let (holds, held) = std::sync::mpsc::channel();
    *group.state.meanwhile.lock() = Some(Box::new(move |state| {
        holds.send(share_host.hold()).unwrap();
        state.referenced.lock().remove(&gone);
    }));
    let server = group.share_host(0).shares().server();
    group.now.fetch_add(1, Ordering::SeqCst);
    group.share_host(0).compare();
    let hold = held.recv().unwrap();
    until("looked", || server.vouched() == Some(server.now()));
    assert_eq!(group.keeping(&gone), [0]);
    drop(hold);
    until("let go", || server.share(&gone).unwrap().is_none());
    assert_eq!(group.keeping(&shares[0]), [0]);
}
