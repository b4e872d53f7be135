//! The server of a machine: its member of the group with the directory, its share server, and,
//! while it leads, the connections of all clients.

use crate::clock;
use crate::error::MachineError;
use crate::receipts::Receipts;
use crate::routes::{Down, HERE, LocalClient, Routes};
use crate::scrub::Scrub;
use crate::space::Measured;
use crate::traffic::Traffic;
use crate::waits::{LONG_MS, LongWaits};
use data_dir::DataError;
use directory::{Input, Output};
use lease::SessionId;
use namespace::Attributes;
use net::CredentialStore;
use parking_lot::{Condvar, Mutex};
use raft::{Event, Group, GroupSettings, Keeping, Member, MemberPlace, Standing, Wires};
use share_hosts::ShareHost;
use share_hosts::Shares;
use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use wire::{
    ExpelError, InviteError, MachineId, Receipt, RevokeError, ServerAt, Space, Start, ToClient, ToServer,
    Version, Versions,
};

/// How often the server checks whether the holders that pending requests wait for have lapsed.
const TICK: Duration = Duration::from_millis(500);

/// The server of a machine.
pub(crate) struct Server {
    group: OnceLock<Group>,
    share_host: Arc<ShareHost>,
    routes: Mutex<Routes>,
    traffic: Traffic,
    /// The client of this very machine.
    here: OnceLock<Weak<dyn LocalClient>>,
    waiting: Mutex<WaitingAnswers>,
    /// Machines that are to become servers, and their numbers in the group. Only in the leader's
    /// memory: after a change of leader the command asks again.
    chosen: Mutex<BTreeMap<MachineId, u64>>,
    /// The last news to clients: whether this member leads, and which servers there are.
    told: Mutex<(bool, Vec<ServerAt>)>,
    standing: Standings,
    damaged: Damaged,
    scrub: Scrub,
    /// The free space that was proposed last.
    measured: Mutex<Measured>,
    /// The room that each server has reported. Only in the leader's memory.
    rooms: Mutex<BTreeMap<MachineId, Space>>,
    stopping: AtomicBool,
    /// Whether this server raises the cluster's version when it can.
    raises: bool,
    receipts: Receipts,
    credentials: Arc<CredentialStore>,
    /// The machines that are known to have the latest authority's key, and the authority's number.
    holders: Mutex<(Vec<MachineId>, u64)>,
    /// Whether there is a newer authority than machines have heard of, and who waits for that.
    renewed: (Mutex<bool>, Condvar),
    dir: PathBuf,
}

/// Receives the standing of the group, on the group's thread. It must not block.
pub(crate) type Standings = Box<dyn Fn(&Standing) + Send + Sync>;

/// Receives the reason why this server can serve no more, on any thread. It must not block.
pub(crate) type Damaged = Box<dyn Fn(String) + Send + Sync>;

/// Commands of people that wait for results of the directory.
#[derive(Default)]
pub(crate) struct WaitingAnswers {
    pub invited: BTreeMap<[u8; 32], SyncSender<Result<(), InviteError>>>,
    pub revoked: BTreeMap<[u8; 32], SyncSender<Result<(), RevokeError>>>,
    pub expelled: BTreeMap<MachineId, SyncSender<Result<(), ExpelError>>>,
    pub authorized: BTreeMap<u64, SyncSender<bool>>,
}

impl Server {
    /// Makes the server of the machine in `dir`. [`Server::serve`] adds its group.
    pub(crate) fn new(
        dir: &Path,
        share_host: Arc<ShareHost>,
        raises: bool,
        (receipts, credentials): (Receipts, Arc<CredentialStore>),
        standing: Standings,
        damaged: Damaged,
    ) -> Arc<Server> {
        Arc::new(Server {
            group: OnceLock::new(),
            share_host,
            routes: Mutex::default(),
            traffic: Traffic::default(),
            here: OnceLock::new(),
            waiting: Mutex::default(),
            chosen: Mutex::default(),
            told: Mutex::default(),
            standing,
            damaged,
            scrub: Scrub::of(dir),
            measured: Mutex::default(),
            rooms: Mutex::default(),
            stopping: AtomicBool::new(false),
            raises,
            receipts,
            credentials,
            holders: Mutex::default(),
            renewed: (Mutex::new(false), Condvar::new()),
            dir: dir.to_path_buf(),
        })
    }

    /// Opens the group's member. Called once, before any thread is started.
    pub(crate) fn serve(
        self: &Arc<Self>,
        here: Weak<dyn LocalClient>,
        settings: GroupSettings,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
    ) -> Result<(), MachineError> {
        let _ = self.here.set(here);
        let dir = self.dir.join("server");
        os::private::make_dir(&dir).map_err(|source| DataError::Io {
            verb: "make",
            file: dir.clone(),
            source,
        })?;
        let deliver = Arc::downgrade(self);
        let deliver = Box::new(move |event| {
            if let Some(server) = deliver.upgrade() {
                server.deliver(event);
            }
        });
        let group = Group::open(&dir, settings, root(), place, wires, deliver)
            .map_err(|source| MachineError::Group { dir, source })?;
        let _ = self.group.set(group);
        self.group().begin();
        self.look();
        Ok(())
    }

    /// Acts on a change of the leader or of the members. It disconnects the clients: their next
    /// greeting finds the leader and all servers.
    fn look(&self) {
        // The group cannot be asked while it is being opened. It is looked at afterwards.
        let Some(group) = self.group.get() else { return };
        let standing = group.standing();
        let now = (standing.leads, servers(&standing));
        let before = mem::replace(&mut *self.told.lock(), now.clone());
        // A chosen machine stays chosen until it is a member: a machine that is neither gives up
        // the data of its server.
        let is_member = |member: u64| standing.members.iter().any(|known| known.id == member);
        self.chosen.lock().retain(|_, member| !is_member(*member));
        if before.0 && !now.0 || before.1 != now.1 && !before.1.is_empty() {
            self.routes.lock().hang_up();
        }
        if !now.0 {
            self.chosen.lock().clear();
        } else if !before.0 {
            *self.measured.lock() = Measured::default();
            self.measure_at_first();
            self.renewed.1.notify_all();
        }
        (self.standing)(&standing);
    }

    /// Returns all servers, as clients know them.
    pub(crate) fn servers(&self) -> Vec<ServerAt> {
        self.told.lock().1.clone()
    }

    /// The machine's data directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The certificates and the key that this machine shows others.
    pub(crate) fn credentials(&self) -> &Arc<CredentialStore> {
        &self.credentials
    }

    pub(crate) fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    pub(crate) fn holders(&self) -> &Mutex<(Vec<MachineId>, u64)> {
        &self.holders
    }

    pub(crate) fn rooms(&self) -> &Mutex<BTreeMap<MachineId, Space>> {
        &self.rooms
    }

    pub(crate) fn chosen(&self) -> &Mutex<BTreeMap<MachineId, u64>> {
        &self.chosen
    }

    pub(crate) fn group(&self) -> &Group {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.group.get().expect("the group is open")
    }

    pub(crate) fn share_host(&self) -> &Arc<ShareHost> {
        &self.share_host
    }

    pub(crate) fn shares(&self) -> &Shares {
        self.share_host.shares()
    }

    /// The scrub of this server.
    pub(crate) fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    /// Sleeps for at most this long, or until the server stops.
    pub(crate) fn sleep(&self, at_most: Duration) {
        let begun = Instant::now();
        while !self.is_stopping() && begun.elapsed() < at_most {
            std::thread::sleep(TICK);
        }
    }

    /// Scrubs now and then, until the server stops.
    pub(crate) fn run_scrub(&self) {
        self.scrub.run(self, &self.dir);
    }

    pub(crate) fn routes(&self) -> &Mutex<Routes> {
        &self.routes
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub(crate) fn waiting(&self) -> &Mutex<WaitingAnswers> {
        &self.waiting
    }

    /// Stops the server. Its threads end when they next look.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.share_host.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The versions that this program knows.
    pub(crate) fn knows(&self) -> Versions {
        self.group().knows()
    }

    /// Notes a connection for the session of a machine, and the version that the machine speaks.
    /// Never blocks.
    pub(crate) fn open(
        &self,
        (machine, version): (MachineId, Version),
        start: &Start,
        session: Option<SessionId>,
        connection: u64,
    ) {
        let (incarnation, greeting) = (start.incarnation, start.number());
        let open = Input::Open { machine, incarnation, greeting, session, connection, version };
        self.group().propose(open);
    }

    /// Whether it raises the cluster's version when it can.
    pub(crate) fn raises(&self) -> bool {
        self.raises
    }

    /// Takes a message of a session. Never blocks.
    pub(crate) fn hear(&self, session: SessionId, message: ToServer) {
        self.traffic.hear();
        self.group().propose(Input::Message { session, message });
    }

    /// Answers a request of a session that changes no state.
    pub(crate) fn answer(&self, session: SessionId, message: &ToServer) -> Option<ToClient> {
        self.traffic.hear();
        let answer = self.group().answer(session, message)?;
        self.traffic.tell(&answer);
        Some(answer)
    }

    /// Handles an event, on the group's thread.
    fn deliver(&self, event: Event) {
        match event {
            Event::Outputs(outputs) => self.carry_out(outputs),
            Event::Applied(outputs) => self.follow(outputs),
            Event::Replaced => self.share_host.compare(),
            Event::Standing => self.look(),
            Event::Damaged(why) => (self.damaged)(why),
        }
    }

    /// Carries out the outputs of another leader's entry that concern this replica: each has shares
    /// of its own.
    fn follow(&self, outputs: Vec<Output>) {
        // A lone server has done before what it replays at its start. The rest it receives again
        // when it leads.
        if self.group.get().is_none() {
            return;
        }
        let mut opened = None;
        for output in outputs {
            match output {
                Output::Shares(work) => self.share_host.work(work),
                Output::Opened { machine, session, .. } => opened = Some((session, machine)),
                Output::Expelled { machine, result: Ok(()) } => self.share_host.expelled(machine),
                Output::Authorized { done: true, .. } => self.is_renewed(),
                Output::Send { session, message: ToClient::Opened { .. } } => {
                    if let Some((_, machine)) = opened.filter(|(opened, _)| *opened == session) {
                        self.share_host.begin(machine, session);
                    }
                }
                _ => {}
            }
        }
    }

    fn carry_out(&self, outputs: Vec<Output>) {
        let mut here = Vec::new();
        // The client here calls over the network once there are several servers.
        let client = self.here.get().and_then(Weak::upgrade).filter(|client| !client.is_remote());
        let mut its_session = client.as_ref().and_then(|client| client.session());
        let (mut opened, mut raised) = (None, None);
        let mut routes = self.routes.lock();
        for output in outputs {
            match output {
                Output::Opened { machine, session, connection, .. } => {
                    opened = Some((session, machine));
                    if connection == HERE {
                        its_session = Some(session);
                        here.push(Down::Opened(session));
                    } else {
                        routes.open(session, connection);
                    }
                }
                Output::Send { session, message } => {
                    self.traffic.tell(&message);
                    let new = matches!(message, ToClient::Opened { .. });
                    if let Some((_, machine)) = opened.filter(|(opened, _)| new && *opened == session) {
                        self.share_host.begin(machine, session);
                    }
                    if its_session == Some(session) {
                        here.push(Down::Message(message));
                    } else {
                        self.receipts.note(session, &message);
                        routes.send(session, message);
                    }
                }
                Output::Refused { connection, why } => {
                    routes.answer(connection, Down::Refused(why.to_string()));
                }
                Output::Enrolled { connection, result: Ok((machine, _)) } => {
                    routes.answer(connection, Down::Enrolled(machine));
                }
                Output::Enrolled { connection, result: Err(why) } => {
                    routes.answer(connection, Down::Refused(why.to_string()));
                }
                // The asker may not wait any more.
                Output::Invited { token, result } => {
                    let told = self.waiting.lock().invited.remove(&token);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Revoked { token, result } => {
                    let told = self.waiting.lock().revoked.remove(&token);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Expelled { machine, result } => {
                    if result.is_ok() {
                        self.share_host.expelled(machine);
                    }
                    let told = self.waiting.lock().expelled.remove(&machine);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Shares(work) => self.share_host.work(work),
                Output::Again => self.group().propose(Input::Tick),
                Output::Sync => {}
                // No host proposes it yet, since a machine has the group of one server.
                Output::Delegated { .. }
                | Output::HandOver { .. }
                | Output::Joint { .. }
                | Output::PathLease { .. } => {
                    debug_assert!(false, "nothing goes from the one server to another: {output:?}");
                }
                Output::Raised { version } => raised = Some(version),
                Output::Authorized { number, done } => {
                    let told = self.waiting.lock().authorized.remove(&number);
                    told.map(|tell| tell.try_send(done));
                    self.is_renewed();
                }
            }
        }
        if let Some(version) = raised {
            // The answers to their next greetings inform the machines of the version by which they
            // decide.
            tracing::info!(%version, "the cluster's version is raised");
            routes.hang_up();
        }
        drop(routes);
        let Some(client) = client else { return };
        if !here.is_empty() {
            client.deliver(here);
        }
        if raised.is_some() {
            client.open_again();
        }
    }

    /// Tends time, space and members until the machine stops.
    pub(crate) fn tick(&self) {
        let mut said = LongWaits::default();
        while !self.is_stopping() {
            self.tend_certificates();
            if self.waits_for_renewal() {
                self.tend_certificates();
                // The answers to their next greetings give the machines certificates.
                self.routes.lock().hang_up();
            }
            if !self.group().leads() {
                continue;
            }
            self.give_receipts();
            self.measure_space();
            self.tend_members();
            self.tend_version();
            let waits = self.group().query(|directory, _| directory.anybody_waits());
            if waits {
                self.group().propose(Input::Tick);
                self.say_who_waits(&mut said);
            }
        }
    }

    /// Notes that there is another authority. Never blocks.
    fn is_renewed(&self) {
        *self.renewed.0.lock() = true;
        self.renewed.1.notify_all();
    }

    /// Waits for one tick at most. Returns whether there is another authority.
    fn waits_for_renewal(&self) -> bool {
        let mut renewed = self.renewed.0.lock();
        if !*renewed {
            self.renewed.1.wait_for(&mut renewed, TICK);
        }
        mem::take(&mut *renewed)
    }

    /// Sends the receipts that are due. With them machines can prove how far their logs have come.
    fn give_receipts(&self) {
        let own = (self.group().member(), self.group().drawn());
        let mut routes = self.routes.lock();
        for receipt in self.receipts.due(own) {
            routes.send(receipt.session, ToClient::Receipt(receipt));
        }
    }

    /// Returns what this server has forgotten of its acknowledgements, if the receipt proves that.
    pub(crate) fn has_forgotten(&self, receipt: &Receipt) -> Option<&'static str> {
        if !self.receipts.are_of(receipt) {
            return None;
        }
        let (begun, up_to) = self.group().query(|directory, _| {
            (directory.has_begun(receipt.session), directory.has_through(receipt.session))
        });
        let (member, drawn) = receipt.server;
        match up_to {
            None if !begun => Some("a machine has a session that this server does not know to have begun"),
            Some(up_to) if up_to < receipt.up_to => {
                Some("a machine was told that more of its log is durable than this server has")
            }
            Some(_) if member == self.group().member() && !self.group().remembers(drawn) => {
                Some("a machine was told something in a start of this server that its disk does not know")
            }
            _ => None,
        }
    }

    /// Names in the log the machines that requests wait for. The asker does not learn them
    /// (BlackBox §3.3).
    fn say_who_waits(&self, said: &mut LongWaits) {
        let now = self.group().now();
        let waits = self.group().query(|directory, store| directory.waits(now, store, LONG_MS));
        for wait in said.due(waits, |wait| (wait.arrival, wait.for_ms)) {
            let seconds = |ms: u64| ms as f64 / 1e3;
            let unanswered = wait.unanswered.iter();
            let unanswered = unanswered.map(|(name, ms)| format!("{name} for {:.1} s", seconds(*ms)));
            tracing::warn!(
                machine = wait.by.as_deref().unwrap_or("the server itself"),
                operation = wait.operation,
                path = wait.path,
                seconds = seconds(wait.for_ms),
                unanswered = unanswered.collect::<Vec<_>>().join(", "),
                "a request waits; unanswered: the holders that were recalled and have not released"
            );
        }
    }

    /// Reports the free space of a new leader's own disk before anything else. The room on other
    /// disks comes later.
    fn measure_at_first(&self) {
        if let Ok(here) = share_hosts::measure(&self.dir) {
            let hosts = self.share_host.peers().hosts().now();
            self.group().propose(Input::Space(share_hosts::cluster(&hosts, &self.rooms.lock(), here)));
        }
    }

    /// Reports free space to the directory, when it has changed enough.
    fn measure_space(&self) {
        let Ok(here) = share_hosts::measure(&self.dir) else { return };
        let used_up = self.group().query(|directory, _| directory.used_up());
        let space = self.room(here);
        if self.measured.lock().is_due(Instant::now(), space.free + space.lends, used_up) {
            self.group().propose(Input::Space(space));
        }
    }
}

/// Returns the servers of a group, as clients know them. A machine that has lost its member has a
/// later one.
pub(crate) fn servers(standing: &Standing) -> Vec<ServerAt> {
    let latest: BTreeMap<u64, &Member> =
        standing.members.iter().map(|member| (member.host.machine, member)).collect();
    let known = latest.values().filter_map(|member| match member.host.keeping {
        Keeping::Weighs(weight) => Some(u64::from(weight)),
        _ => None,
    });
    let (sum, count) = known.fold((0, 0), |(sum, count), weight| (sum + weight, count + 1));
    let average = sum.checked_div(count).map_or(1, |average| average.max(1) as u32);
    let told = latest.into_values().map(|member| ServerAt {
        machine: MachineId(member.host.machine),
        addresses: member.host.addresses.clone(),
        votes: member.votes,
        weight: match member.host.keeping {
            Keeping::Keeps => average,
            Keeping::Weighs(weight) => weight.max(1),
            Keeping::Away | Keeping::Drains => 0,
        },
    });
    told.collect()
}

/// The root of a new cluster. Everybody may enter, and the user who made the cluster may write.
fn root() -> Attributes {
    let wall = clock::now().wall;
    Attributes {
        kind: namespace::FileKind::Directory,
        mode: 0o755,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: wall,
        btime: wall,
        atime: wall,
    }
}
