//! Several hosts of shares in one process, over real sockets: copies made, found, lost, repaired
//! and moved.

mod accounts;
mod coded;
mod copies;
mod releases;
mod uploads;

use crate::copies::Copies;
use crate::hosts::ListedHost;
use crate::peers::Peers;
use crate::references::{Arrangement, ReferenceIndex};
use crate::serving::serve_shares;
use crate::share_host::ShareHost;
use crate::shares_server::ShareSettings;
use bytes::Bytes;
use content::TAG_BYTES;
use content::Upload;
use ident::ServerId;
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
    /// Counts moves of regions between servers.
    moves: AtomicU64,
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

    fn arrangement(&self) -> Option<Arrangement> {
        let moves = self.moves.load(Ordering::SeqCst);
        (!self.old.load(Ordering::SeqCst)).then(|| Arrangement(vec![(ServerId::ROOT, moves)]))
    }

    fn settled(&self, _: ServerId, work: Vec<ShareWork>) {
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
        let now = self.now.clone();
        let clock = Arc::new(move || now.load(Ordering::SeqCst));
        let (dir, settings) = (self.dir(at).join("shares"), ShareSettings::default());
        let (share_host, chores) = ShareHost::open(&dir, settings, clock, peers.clone()).unwrap();
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
        self.hosts.iter().flatten().for_each(|host| host.share_host.work(ServerId::ROOT, work.clone()));
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
