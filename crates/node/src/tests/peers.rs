//! Faulty and hostile peers: the server refuses each by name, and its state does not change.

use super::backups::ask;
use crate::receipts::Receipts;
use crate::salvage::SalvageStore;
use crate::{Listen, Machine, MachineSettings};
use admin::{Change, Existing, Invitation};
use ident::{FileId, ServerId};
use lease::{Field, Kind, Label, Released, SessionId};
use namespace::{AttributeChange, Cred, FileKind, FileSpec, Operation, RenameMode, Timestamp, operation};
use net::call::{self, End, Stream};
use net::frames::{self, Frames};
use net::{Authority, Caller, CredentialStore, Credentials, Reception, Token, join};
use raft::{Keeping, Member};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use wire::{
    AskMode, GreetingError, LogEntry, MachineId, Purpose, Receipt, Start, ToClient, ToServer, Version,
    Versions, Welcome,
};

mod renewal;
mod upgrade;

/// A server, and the credentials of a machine that has joined it.
struct TestCluster {
    server: Machine,
    address: String,
    dirs: Vec<TempDir>,
}

impl TestCluster {
    fn new() -> TestCluster {
        TestCluster::that_knows(Versions::KNOWN)
    }

    fn that_knows(knows: Versions) -> TestCluster {
        let dir = tempfile::tempdir().unwrap();
        let settings = MachineSettings {
            listen: Listen::At("127.0.0.1:0".parse().unwrap()),
            knows,
            ..MachineSettings::default()
        };
        let server = Machine::start(dir.path(), "a test", settings).unwrap();
        let address = server.listens().unwrap().to_string();
        // The server hangs up once it has found how much room it has. These peers do not call
        // again.
        let is_weighed = |member: &Member| matches!(member.host.keeping, Keeping::Weighs(_));
        while !server.server().unwrap().group().standing().members.iter().all(is_weighed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        TestCluster { server, address, dirs: vec![dir] }
    }

    fn token(&self) -> Token {
        let invitation = Invitation {
            path: "/".into(),
            read_only: false,
            squash: None,
            good_for_s: 60,
            addresses: vec![self.address.clone()],
        };
        admin::invite(self.dirs[0].path(), invitation).unwrap().token.parse().unwrap()
    }

    fn join(&mut self, name: &str) -> Caller {
        let dir = tempfile::tempdir().unwrap();
        join(dir.path(), &self.token(), name).unwrap();
        let config = config_in(dir.path());
        self.dirs.push(dir);
        config
    }

    /// Checks that no peer has harmed the server: a machine joins, has a session, and gets answers.
    fn is_unharmed(&mut self, name: &str) {
        let config = self.join(name);
        let address = self.address.clone();
        run(async move {
            let (mut frames, _) = session(&address, &config).await;
            frames::send(&mut frames, wire::encode(&ToServer::Renew)).await.unwrap();
            let answer = told(&mut frames).await;
            assert!(matches!(answer, Some(ToClient::Renewed { .. })), "{answer:?}");
        });
    }
}

/// The purpose of a machine that begins a session, or goes on with one.
fn began(incarnation: u64, session: Option<SessionId>) -> Purpose {
    let start = Start { incarnation, drawn: 7, before: Vec::new(), greeting: 0 };
    Purpose::Session { server: ServerId::ROOT, start, session, receipt: None }
}

fn config_in(dir: &Path) -> Caller {
    CredentialStore::open(dir, Versions::KNOWN).unwrap().caller()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(300), work).await.expect("hangs") })
}

async fn greeted(address: &str, config: &Caller, purpose: &Purpose) -> Result<Welcome, End> {
    let mut frames = frames::greetings(call::call(address, config).await?);
    call::greet(&mut frames, config, purpose).await
}

/// Opens a session. As every machine does, it calls again if the connection ends before.
async fn session(address: &str, config: &Caller) -> (Frames<Stream>, ToClient) {
    loop {
        let Ok(stream) = call::call(address, config).await else { continue };
        let mut frames = frames::greetings(stream);
        match call::greet(&mut frames, config, &began(1, None)).await {
            Ok(Welcome::Session { .. }) => {}
            Err(End::Io(_) | End::Silence(_)) => continue,
            other => panic!("{other:?}"),
        }
        frames::messages(&mut frames);
        if let Some(opened) = told(&mut frames).await {
            return (frames, opened);
        }
    }
}

/// The server's next message in the session, but for receipts: these come at any time.
async fn told(frames: &mut Frames<Stream>) -> Option<ToClient> {
    loop {
        match heard(frames).await {
            Some(ToClient::Receipt(_)) => {}
            heard => return heard,
        }
    }
}

async fn heard(frames: &mut Frames<Stream>) -> Option<ToClient> {
    frames::receive(frames).await.ok().map(|frame| wire::decode(&frame).unwrap())
}

/// Sends `message` in a session and checks that the session is fenced and the connection over.
fn is_fenced(office: &mut TestCluster, name: &str, message: &ToServer) {
    let (config, address) = (office.join(name), office.address.clone());
    run(async {
        let (mut frames, _) = session(&address, &config).await;
        frames::send(&mut frames, wire::encode(message)).await.unwrap();
        let mut last = None;
        while let Some(message) = told(&mut frames).await {
            last = Some(message);
        }
        assert!(matches!(last, Some(ToClient::Fenced)), "{name}: {last:?}");
    });
    office.is_unharmed(&format!("{name}-after"));
}

#[test]
fn another_version_is_told_so() {
    let mut office = TestCluster::new();
    let (config, address) = (office.join("later"), office.address.clone());
    run(async {
        let mut frames = frames::greetings(call::call(&address, &config).await.unwrap());
        let ours = Versions { oldest: Version(9), newest: Version(9) };
        frames::send(&mut frames, wire::greeting(ours, &Purpose::Content)).await.unwrap();
        let answer = wire::read_answer(ours, &frames::receive(&mut frames).await.unwrap());
        assert_eq!(answer, Err(GreetingError::Version { ours, theirs: Versions::KNOWN }));
    });
    office.is_unharmed("after");
}

#[test]
fn a_clock_that_shows_a_time_before_all_certificates_is_said_to_be_wrong() {
    #[derive(Debug)]
    struct Unset;
    impl rustls::time_provider::TimeProvider for Unset {
        fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
            Some(rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(86_400)))
        }
    }
    let mut office = TestCluster::new();
    let (joined, address) = (office.join("unset"), office.address.clone());
    run(async {
        for caller in [Caller::stranger(office.token().authority).unwrap(), joined] {
            let authority = caller.authority();
            let mut tls = caller.tls();
            Arc::make_mut(&mut tls).time_provider = Arc::new(Unset);
            let refused = greeted(&address, &Caller::by(tls, authority), &Purpose::Content).await;
            assert!(matches!(refused, Err(End::Clock)), "{refused:?}");
        }
    });
    office.is_unharmed("after");
}

#[test]
fn who_has_no_certificate_or_a_forged_one_gets_nowhere() {
    let mut office = TestCluster::new();
    let authority = office.token().authority;
    let (address, forger) = (office.address.clone(), tempfile::tempdir().unwrap());
    run(async {
        let nobody = Caller::stranger(authority).unwrap();
        for purpose in [began(1, None), Purpose::Content] {
            let refused = greeted(&address, &nobody, &purpose).await;
            assert!(matches!(refused, Err(End::Refused(why)) if why.contains("must join")));
        }
        // A joining machine refuses a server whose authority is not the token's.
        assert!(greeted(&address, &Caller::stranger([7; 32]).unwrap(), &Purpose::Content).await.is_err());
        // The certificate is another authority's, for machine 1. It trusts the true server, so the
        // refusal is the server's.
        let other = Authority::found(forger.path()).unwrap();
        let mut forged = other.credentials(forger.path(), MachineId(1)).unwrap();
        forged.authority = Credentials::open(office.dirs[0].path()).unwrap().authority;
        let config = CredentialStore::of(forger.path(), forged).unwrap().caller();
        let purpose = began(99, None);
        let refused = greeted(&address, &config, &purpose).await;
        // TLS' name for a signature that is not the authority's.
        let named = |why: &std::io::Error| format!("{why:?}").contains("DecryptError");
        assert!(matches!(&refused, Err(End::Io(why)) if named(why)), "{refused:?}");
    });
    office.is_unharmed("after");
}

#[test]
fn a_machine_cannot_pass_for_the_server() {
    let mut office = TestCluster::new();
    let dir = tempfile::tempdir().unwrap();
    join(dir.path(), &office.token(), "ambitious").unwrap();
    let its = Credentials::open(dir.path()).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Reception::new(&its, &[], &[]).unwrap().tls);
    let config = office.join("victim");
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (called, _) = tokio::join!(call::call(&address, &config), async {
            let (tcp, _) = listener.accept().await.unwrap();
            acceptor.accept(tcp).await.map(drop)
        });
        assert!(called.is_err());
    });
}

#[test]
fn a_token_is_good_once() {
    let mut office = TestCluster::new();
    let token = office.token();
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    join(first.path(), &token, "first").unwrap();
    let refused = join(second.path(), &token, "second").unwrap_err();
    assert!(refused.to_string().contains("was used"), "{refused}");
    let unknown = Token { secret: [1; 16], ..token };
    let refused = join(second.path(), &unknown, "second").unwrap_err();
    assert!(refused.to_string().contains("of no invitation"), "{refused}");
    office.is_unharmed("after");
}

#[test]
fn an_answer_to_joining_that_is_lost_costs_no_token() {
    let mut office = TestCluster::new();
    let (token, address) = (office.token(), office.address.clone());
    let (dir, thief) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = Credentials::key_to_join(dir.path()).unwrap();
    let told = run(async {
        let stranger = Caller::stranger(token.authority).unwrap();
        let purpose = Purpose::Join { secret: token.secret, name: "unlucky".to_owned(), key };
        greeted(&address, &stranger, &purpose).await.unwrap()
    });
    let Welcome::Joined { machine, certificates } = told else { panic!("{told:?}") };
    let refused = join(thief.path(), &token, "unlucky").unwrap_err();
    assert!(refused.to_string().contains("was used"), "{refused}");
    assert_eq!(join(dir.path(), &token, "unlucky").unwrap(), machine);
    assert_eq!(Credentials::open(dir.path()).unwrap().certificate.as_ref(), certificates.0);
    office.is_unharmed("after");
}

/// The server writes a few entries by itself meanwhile.
#[test]
fn strangers_and_the_expelled_write_nothing_into_the_log() {
    const CALLS: u64 = 60;
    let mut office = TestCluster::new();
    let (token, address) = (office.token(), office.address.clone());
    let expelled = office.join("expelled");
    admin::expel(office.dirs[0].path(), "expelled").unwrap();
    let entries = |office: &TestCluster| office.server.server().unwrap().group().applied().unwrap_or(0);
    let before = entries(&office);
    run(async {
        let stranger = Caller::stranger(token.authority).unwrap();
        for call in 0..CALLS {
            let secret = [call as u8; 16];
            let (name, key) = ("anybody".to_owned(), [1; 32]);
            let joined = greeted(&address, &stranger, &Purpose::Join { secret, name, key }).await;
            assert!(matches!(&joined, Err(End::Refused(why)) if why.contains("no invitation")), "{joined:?}");
            let (secret, name) = (token.secret, "no name".to_owned());
            let joined = greeted(&address, &stranger, &Purpose::Join { secret, name, key }).await;
            assert!(matches!(&joined, Err(End::Refused(why)) if why.contains("--name")), "{joined:?}");
            let opened = greeted(&address, &expelled, &began(1, None)).await;
            assert!(matches!(&opened, Err(End::Refused(why)) if why.contains("expelled")), "{opened:?}");
        }
    });
    let written = entries(&office) - before;
    assert!(written < CALLS, "{written} entries");
    office.is_unharmed("after");
}

#[test]
fn updates_and_releases_without_leases_end_the_session() {
    let mut office = TestCluster::new();
    let change = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
    let (cred, time) = (Cred::default(), Timestamp::default());
    let operation =
        Operation::SetAttributes(operation::SetAttributes { file: FileId::root(), change, cred, time });
    let update = LogEntry::Update { version: Version::NEWEST, operation };
    is_fenced(&mut office, "forger", &ToServer::Log { answer: true, first: 1, entries: vec![update] });
    // A directory has no content, so no client can hold a lease on it.
    let released = Released { file: FileId::root(), field: Field::Path, keep: Some(Kind::Read) };
    let release = LogEntry::Release(vec![released]);
    is_fenced(&mut office, "releaser", &ToServer::Log { answer: true, first: 1, entries: vec![release] });
    is_fenced(&mut office, "skipper", &ToServer::Log { answer: true, first: 7, entries: Vec::new() });
}

/// Whether the machine's next greeting can go on with a session whose connection has ended.
async fn goes_on(address: &str, config: &Caller, session: SessionId) -> bool {
    let purpose = began(1, Some(session));
    match greeted(address, config, &purpose).await {
        Ok(Welcome::Session { session: now, .. }) => now == session,
        other => panic!("{other:?}"),
    }
}

/// Sends these bytes in a new session, then ends the stream in order if `ends`. Returns the
/// session.
async fn sends(address: &str, config: &Caller, bytes: &[u8], ends: bool) -> SessionId {
    let mut frames = frames::greetings(call::call(address, config).await.unwrap());
    let purpose = began(1, None);
    let welcome = call::greet(&mut frames, config, &purpose).await.unwrap();
    let Welcome::Session { session, .. } = welcome else { panic!("{welcome:?}") };
    frames::messages(&mut frames);
    assert!(matches!(told(&mut frames).await, Some(ToClient::Opened { .. })));
    frames.get_mut().write_all(bytes).await.unwrap();
    frames.get_mut().flush().await.unwrap();
    if ends {
        frames.get_mut().shutdown().await.unwrap();
    }
    while told(&mut frames).await.is_some() {}
    session
}

#[test]
fn frames_that_are_none_end_the_session() {
    let mut office = TestCluster::new();
    let (config, address) = (office.join("peer"), office.address.clone());
    run(async {
        // In this order: a frame without a message, a message cut short in a whole frame, a frame
        // that is too long, and a frame cut short.
        let no_message = [&[0, 0, 0, 40][..], &[0xff; 40]].concat();
        let short_message = [0, 0, 0, 2, 2, 1];
        for (bytes, ends) in [
            (no_message.as_slice(), false),
            (short_message.as_slice(), false),
            (u32::MAX.to_be_bytes().as_slice(), false),
            ([0, 0, 1, 0, 7, 7].as_slice(), true),
        ] {
            let session = sends(&address, &config, bytes, ends).await;
            assert!(!goes_on(&address, &config, session).await, "{bytes:?}");
        }
        // A connection that breaks within a frame is not a misdeed.
        let mut frames = frames::greetings(call::call(&address, &config).await.unwrap());
        let purpose = began(1, None);
        let Ok(Welcome::Session { session, .. }) = call::greet(&mut frames, &config, &purpose).await else {
            panic!()
        };
        frames.get_mut().write_all(&[0, 0, 1, 0, 7, 7]).await.unwrap();
        frames.get_mut().flush().await.unwrap();
        drop(frames);
        assert!(goes_on(&address, &config, session).await);
        // First a greeting that is too long, then bytes that are not TLS.
        let mut frames = frames::greetings(call::call(&address, &config).await.unwrap());
        frames.get_mut().write_all(&(1u32 << 20).to_be_bytes()).await.unwrap();
        assert!(frames::receive(&mut frames).await.is_err());
    });
    let mut plain = std::net::TcpStream::connect(&office.address).unwrap();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    office.is_unharmed("after");
}

#[test]
fn what_sessions_say_and_are_told_is_counted() {
    let mut office = TestCluster::new();
    let figures = |office: &TestCluster| {
        let report = admin::ask_status(office.dirs[0].path()).unwrap().unwrap();
        report.server.map(|server| (server.traffic, server.log_flushes)).unwrap()
    };
    let (before, flushes) = figures(&office);
    assert_eq!(before.recalls, 0);
    let (one, other, address) = (office.join("one"), office.join("other"), office.address.clone());
    let change = AttributeChange { mode: Some(0o777), ..AttributeChange::default() };
    let (cred, time) = (Cred::default(), Timestamp::default());
    let operation =
        Operation::SetAttributes(operation::SetAttributes { file: FileId::root(), change, cred, time });
    let ask = ToServer::Ask { number: 1, operation, wants: Vec::new(), mode: AskMode::Lease };
    run(async {
        let (mut one, _) = session(&address, &one).await;
        frames::send(&mut one, wire::encode(&ask)).await.unwrap();
        assert!(matches!(told(&mut one).await, Some(ToClient::Granted { .. })));
        let (mut other, _) = session(&address, &other).await;
        frames::send(&mut other, wire::encode(&ask)).await.unwrap();
        assert!(matches!(told(&mut one).await, Some(ToClient::Recall { .. })));
    });
    let (after, flushes_after) = figures(&office);
    assert_eq!(after.recalls, 1);
    // The counts: two questions, two sessions opened, one grant and one recall. This machine's own
    // client may have renewed meanwhile.
    assert!(after.messages_heard >= before.messages_heard + 2, "{before:?} {after:?}");
    assert!(after.messages_told >= before.messages_told + 4, "{before:?} {after:?}");
    assert!(flushes_after > flushes);
}

#[test]
fn an_expelled_machine_is_out_at_once() {
    let mut office = TestCluster::new();
    let (config, address) = (office.join("fired"), office.address.clone());
    run(async {
        let (mut frames, _) = session(&address, &config).await;
        admin::expel(office.dirs[0].path(), "fired").unwrap();
        let mut last = None;
        while let Some(message) = told(&mut frames).await {
            last = Some(message);
        }
        assert!(matches!(last, Some(ToClient::Fenced)), "{last:?}");
        for purpose in [began(2, None), Purpose::Content] {
            let refused = greeted(&address, &config, &purpose).await;
            assert!(matches!(&refused, Err(End::Refused(why)) if why.contains("expelled")), "{refused:?}");
        }
    });
    office.is_unharmed("after");
    drop(office.server);
}

/// The connection may end before it reports that the session is over. Then the machine learns of
/// that by a refusal.
#[test]
fn a_machine_that_is_refused_keeps_what_it_could_not_get_applied() {
    let office = TestCluster::new();
    let dir = tempfile::tempdir().unwrap();
    join(dir.path(), &office.token(), "fired").unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    let root = machine.file_service().root();
    let label = |name: &str| Label::new(name.as_bytes()).unwrap();
    let spec = FileSpec::new(FileKind::Regular, 0o644, 0);
    let create = client::call::Create { dir: root.clone(), label: label("late"), spec, open: None };
    let (made, _) = ask(&machine, create).unwrap().value;
    // In the alphabet one of these names stands before `late`, and the other after it.
    for name in ["early", "later"] {
        let (file, dir) = (made.file.clone(), root.clone());
        ask(&machine, client::call::Link { file, dir, label: label(name), replaced: None }).unwrap();
    }
    let (mode, whiteout) = (RenameMode::Replace, false);
    let (from_dir, from, to_dir, to) = (root.clone(), label("later"), root, label("last"));
    ask(
        &machine,
        client::call::Rename { from_dir, from, to_dir, to, mode, whiteout, source: None, replaced: None },
    )
    .unwrap();
    machine.client_host().refuse();
    let salvage = SalvageStore::open(dir.path()).unwrap();
    // The first record is too early: the end is tried only after what follows it has begun.
    while machine.client_host().salvage().tried().0 == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let items = salvage.get(1).unwrap().items;
    let has = |path: &str, is: fn(&Change) -> bool| {
        let mut changes = items.iter().filter(|item| item.path == path).flat_map(|item| &item.change);
        assert!(changes.any(|change| change.user == Some(0) && is(&change.what)), "{items:?}");
    };
    has(
        "/late",
        |change| matches!(change, Change::Create { kind: FileKind::Regular, mode, .. } if mode == "0644"),
    );
    has("/early", |change| matches!(change, Change::Link { from: Some(from) } if from.starts_with("/la")));
    has("/last", |change| {
        *change == Change::Rename { from: Some("/later".to_owned()), existing: Existing::Replaced }
    });
    machine.stop().unwrap();
}

#[test]
fn who_says_nothing_keeps_nobody_out() {
    let mut office = TestCluster::new();
    let flapping = office.join("flapping");
    let address = office.address.clone();
    let idle = move |n: usize| -> Vec<std::net::TcpStream> {
        (0..n).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect()
    };
    let mut crowd = idle(1000);
    // More silent connections come than a queue of them could give up: whoever waited behind them
    // would wait for ever.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let more = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
            crowd.extend(idle(10));
        }
    });
    for _ in 0..5 {
        run(async {
            let (mut frames, _) = session(&office.address, &flapping).await;
            frames::send(&mut frames, wire::encode(&ToServer::Renew)).await.unwrap();
            let answer = told(&mut frames).await;
            assert!(matches!(answer, Some(ToClient::Renewed { .. })), "{answer:?}");
        });
    }
    office.join("newcomer");
    let dir = office.dirs.last().unwrap().path();
    let machine = Machine::start(dir, "a test", MachineSettings::default()).unwrap();
    ask(&machine, client::call::Space).unwrap();
    machine.stop().unwrap();
    drop(stop);
    more.join().unwrap();
}

/// The server hangs up on all callers when its room or its version is another. A machine that joins
/// at that moment asks again.
#[test]
fn a_machine_joins_though_the_server_hangs_up() {
    let mut office = TestCluster::new();
    let server = office.server.server().unwrap();
    for n in 0..4 {
        let (began, server) = (std::time::Instant::now(), server.clone());
        let hangs_up = std::thread::spawn(move || {
            while began.elapsed() < Duration::from_millis(50) {
                server.root().routes().lock().hang_up();
                std::thread::yield_now();
            }
        });
        office.join(&format!("newcomer-{n}"));
        hangs_up.join().unwrap();
    }
    office.is_unharmed("after");
}

/// A path to `server` with a latency of `delay` each way.
async fn long_way(server: String, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(&server).await.unwrap();
            let (near, far) = (near.into_split(), far.into_split());
            tokio::spawn(pass_on(near.0, far.1, delay));
            tokio::spawn(pass_on(far.0, near.1, delay));
        }
    });
    address
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (late, mut due) = mpsc::unbounded_channel();
    let take = async move {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut chunk).await {
            // Nothing is delivered to a peer that is gone.
            let _ = late.send((Instant::now() + delay, chunk[..read].to_vec()));
        }
    };
    let pass = async move {
        while let Some((at, bytes)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(take, pass);
}

#[test]
fn a_server_far_away_is_reached_though_it_has_several_addresses() {
    let office = TestCluster::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let way = || runtime.block_on(long_way(office.address.clone(), Duration::from_millis(600)));
    let token = Token { addresses: vec![way(), way()], ..office.token() };
    let dir = tempfile::tempdir().unwrap();
    join(dir.path(), &token, "far").unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let machine = Machine::start(dir.path(), "a test", MachineSettings::default());
        tell.send(machine.and_then(Machine::stop)).unwrap();
    });
    told.recv_timeout(Duration::from_secs(300)).expect("hangs: it does not get through").unwrap();
    // The tasks that pass its connections on still run.
    runtime.shutdown_background();
}

/// Two processes have copies of a machine's data directory. The second is refused while the first
/// is up. It takes over once the first is gone, however often each has started.
#[test]
fn of_two_copies_of_a_machine_one_is_up() {
    let mut office = TestCluster::new();
    let (config, address) = (office.join("twin"), office.address.clone());
    let by = |incarnation, drawn, before: &[u64]| {
        let start = Start { incarnation, drawn, before: before.to_vec(), greeting: 0 };
        Purpose::Session { server: ServerId::ROOT, start, session: None, receipt: None }
    };
    run(async {
        let first = by(8, 5, &[4]);
        let mut frames = frames::greetings(call::call(&address, &config).await.unwrap());
        assert!(matches!(call::greet(&mut frames, &config, &first).await, Ok(Welcome::Session { .. })));
        // The twins have started as often as the first, more often, and less often.
        for twin in [by(8, 6, &[4]), by(9, 6, &[3, 4]), by(3, 6, &[])] {
            let refused = greeted(&address, &config, &twin).await;
            assert!(matches!(&refused, Err(End::Refused(why)) if why.contains("copy")), "{refused:?}");
        }
        drop(frames);
        // The first process is gone. A copy that was put back learns how often the machine has
        // started, and counts from there.
        let older = async || loop {
            match greeted(&address, &config, &by(3, 6, &[])).await {
                Err(End::Refused(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
                answer => return answer,
            }
        };
        assert!(matches!(older().await, Ok(Welcome::Started { incarnation: 8 })));
        let taken = greeted(&address, &config, &by(9, 6, &[])).await;
        assert!(matches!(taken, Ok(Welcome::Session { .. })), "{taken:?}");
    });
}

/// Only a receipt by the server proves that the server has forgotten acknowledged entries. A
/// machine's own claims prove nothing.
#[test]
fn a_server_that_has_forgotten_is_told_so() {
    let mut office = TestCluster::new();
    let (config, address) = (office.join("witness"), office.address.clone());
    let (session, receipt) = run(async {
        let (mut frames, _) = session(&address, &config).await;
        let receipt = loop {
            if let ToClient::Receipt(receipt) = heard(&mut frames).await.unwrap() {
                break receipt;
            }
        };
        (receipt.session, receipt)
    });
    let server = office.server.server().unwrap();
    assert_eq!(server.root().has_forgotten(&receipt), None);
    let forged = [
        Receipt { up_to: 9, ..receipt },
        Receipt { session: SessionId(session.0 + 100), ..receipt },
        Receipt { server: (receipt.server.0, receipt.server.1 ^ 1), ..receipt },
    ];
    assert!(forged.iter().all(|forged| server.root().has_forgotten(forged).is_none()));
    // These receipts are by a server that has the secret: this server at a later time.
    let later = Receipts::new(false);
    later.are_by(server.authority().unwrap().secret());
    let prove = |session, up_to, server: (u64, u64)| {
        later.note(session, &ToClient::Applied { up_to, rejected: Vec::new(), forgotten: 0 });
        later.due(server).remove(0)
    };
    for receipt in [
        prove(session, 9, receipt.server),
        prove(SessionId(session.0 + 100), 0, receipt.server),
        prove(session, 0, (receipt.server.0, receipt.server.1 ^ 1)),
    ] {
        assert!(server.root().has_forgotten(&receipt).is_some(), "{receipt:?}");
    }
}
