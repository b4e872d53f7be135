//! What a machine that serves has: the group with the directory, the share server, and the connections of all clients.

use crate::clock;
use crate::data::DataError;
use crate::engine::Engine;
use crate::group::{Group, GroupSettings};
use crate::keeper::Keeper;
use crate::machine::MachineError;
use crate::routes::{Down, HERE, Routes};
use crate::shares_server::Shares;
use crate::traffic::Traffic;
use crate::waits::{LONG_MS, LongWaits};
use directory::{Input, Output};
use lease::SessionId;
use namespace::Attributes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use wire::{ExpelError, InviteError, MachineId, ToClient, ToServer};

/// How often the server looks at requests that wait: whether those they wait for have lapsed.
const TICK: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct Server {
    group: OnceLock<Group>,
    keeper: Arc<Keeper>,
    routes: Mutex<Routes>,
    traffic: Traffic,
    /// The client of this very machine.
    here: OnceLock<Weak<Engine>>,
    waiting: Mutex<Waiting>,
    stopping: AtomicBool,
    dir: PathBuf,
}

/// Who waits for what the directory comes to: people at the command line.
#[derive(Default)]
pub(crate) struct Waiting {
    pub invited: BTreeMap<[u8; 32], SyncSender<Result<(), InviteError>>>,
    pub expelled: BTreeMap<MachineId, SyncSender<Result<(), ExpelError>>>,
}

impl Server {
    /// Of the machine in `dir`. Its group comes by [`Server::serve`].
    pub(crate) fn new(dir: &Path, keeper: Arc<Keeper>) -> Arc<Server> {
        Arc::new(Server {
            group: OnceLock::new(),
            keeper,
            routes: Mutex::default(),
            traffic: Traffic::default(),
            here: OnceLock::new(),
            waiting: Mutex::default(),
            stopping: AtomicBool::new(false),
            dir: dir.to_path_buf(),
        })
    }

    /// Opens the group and takes the lead. Once, before any thread is started.
    pub(crate) fn serve(
        self: &Arc<Self>,
        here: &Arc<Engine>,
        settings: GroupSettings,
    ) -> Result<(), MachineError> {
        let _ = self.here.set(Arc::downgrade(here));
        let dir = self.dir.join("server");
        std::fs::create_dir_all(&dir).map_err(|source| DataError::Io {
            verb: "make",
            file: dir.clone(),
            source,
        })?;
        let deliver = Arc::downgrade(self);
        let deliver = Box::new(move |outputs| {
            if let Some(server) = deliver.upgrade() {
                server.deliver(outputs);
            }
        });
        let group = Group::open(&dir, settings, root(), deliver)
            .map_err(|source| MachineError::Group { dir, source })?;
        let _ = self.group.set(group);
        self.group().propose(Input::Lead);
        self.measure_space(&mut None);
        Ok(())
    }

    pub(crate) fn group(&self) -> &Group {
        #[expect(clippy::expect_used, reason = "set before any thread that can come here is started")]
        self.group.get().expect("the group is open")
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    pub(crate) fn shares(&self) -> &Shares {
        self.keeper.shares()
    }

    pub(crate) fn routes(&self) -> &Mutex<Routes> {
        &self.routes
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub(crate) fn waiting(&self) -> &Mutex<Waiting> {
        &self.waiting
    }

    /// Threads end when they next look.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.keeper.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// What a session says. Never blocks.
    pub(crate) fn hear(&self, session: SessionId, message: ToServer) {
        self.traffic.hear();
        self.group().propose(Input::Message { session, message });
    }

    /// Answers what a session asks and what changes no state.
    pub(crate) fn answer(&self, session: SessionId, message: &ToServer) -> Option<ToClient> {
        self.traffic.hear();
        let answer = self.group().answer(session, message)?;
        self.traffic.tell(&answer);
        Some(answer)
    }

    /// Outputs of applied log entries, on the group's thread.
    fn deliver(&self, outputs: Vec<Output>) {
        let mut here = Vec::new();
        let engine = self.here.get().and_then(Weak::upgrade);
        let mut its_session = engine.as_ref().and_then(|engine| engine.session());
        let mut opened = None;
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
                        self.keeper.begin(machine, session);
                    }
                    if its_session == Some(session) {
                        here.push(Down::Message(message));
                    } else {
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
                // Whoever asked may not wait any more.
                Output::Invited { token, result } => {
                    let told = self.waiting.lock().invited.remove(&token);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Expelled { machine, result } => {
                    let told = self.waiting.lock().expelled.remove(&machine);
                    told.map(|tell| tell.try_send(result));
                }
                Output::Shares(work) => self.keeper.work(work),
                Output::Again => self.group().propose(Input::Tick),
            }
        }
        drop(routes);
        if let Some(engine) = engine.filter(|_| !here.is_empty()) {
            engine.deliver(here);
        }
    }

    /// Looks after time and space until the machine stops.
    pub(crate) fn tick(&self) {
        let (mut measured, mut said) = (None, LongWaits::default());
        while !self.is_stopping() {
            std::thread::sleep(TICK);
            self.measure_space(&mut measured);
            let waits = self.group().query(|directory, _| directory.anybody_waits());
            if waits {
                self.group().propose(Input::Tick);
                self.say_who_waits(&mut said);
            }
        }
    }

    /// Names in the log whom requests wait for. Whoever asked is not told (BlackBox §3.3).
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
                "a request waits; unanswered: who was told to let go and has not"
            );
        }
    }

    /// Tells the directory what is free, when that has changed by what matters.
    fn measure_space(&self, last: &mut Option<u64>) {
        let Ok(space) = crate::space::measure(&self.dir) else { return };
        let changed = last.is_none_or(|last: u64| last.abs_diff(space.free) > (space.free / 32).max(1 << 20));
        if changed {
            *last = Some(space.free);
            self.group().propose(Input::Space(space));
        }
    }
}

/// The root of a new cluster: anybody may enter, and who made the cluster may write.
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
