//! The group's thread: it proposes waiting inputs, one entry at a time, and begins checkpoints.
//!
//! One entry at a time costs nothing. While it is written to the disk, later inputs gather for the
//! next entry.

use super::batch::Batch;
use super::life::Life;
use super::log::RaftLog;
use super::machine::{Event, Raft, StateMachine};
use super::peers::{Peers, introduce, voting};
use super::queue::{End, ProposalQueue, Work};
use super::runtime::Runtime;
use super::standing::{Member, Standing};
use super::storage::LogStorage;
use super::{GroupError, GroupSettings, MemberPlace};
use crate::alarm::Alarm;
use directory::Input;
use lease::Time;
use openraft::async_runtime::AsyncRuntime;
use openraft::async_runtime::instant::Instant as _;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::error::RaftError;
use openraft::raft::ReadPolicy;
use openraft::{Config, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How long to wait for a checkpoint before asking openraft again. openraft ignores the request
/// while it writes another one.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How often a member of several looks at its standing.
const LOOK: Duration = Duration::from_millis(250);
/// A leader without answers from a majority for this long may have been deposed without knowing it.
/// It hangs up on its clients, so that they look for another.
const QUORUM_LOST: Duration = Duration::from_millis(1500);
/// How long a leader that hands over waits for its successor to stand. After that the others miss
/// the leader, as after a crash.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(1);
/// openraft's times, ms. A leader is missed after its lease (the longer time-out) and one more
/// time-out. Shorter pauses of a disk or a scheduler do no harm.
const HEARTBEAT_MS: u64 = 150;
const ELECTION_MIN_MS: u64 = 600;
const ELECTION_MAX_MS: u64 = 900;
/// How long a leader answers without asking the members that have answered it. They vote for no
/// other in that time. A member that starts again does not know whom it has answered, and waits as
/// long.
pub(super) const LEASE: Duration = Duration::from_millis(ELECTION_MAX_MS);
/// The longest time for sending a snapshot, ms.
const SNAPSHOT_MS: u64 = 3_600_000;

/// The parts that the group's thread works with.
pub(super) struct Proposer {
    pub(super) queue: Arc<ProposalQueue>,
    pub(super) log: Arc<RaftLog>,
    pub(super) state: StateMachine,
    pub(super) settings: GroupSettings,
    pub(super) clock: Arc<Mutex<Option<Clock>>>,
    pub(super) standing: Arc<Mutex<Standing>>,
    pub(super) alone: Arc<AtomicBool>,
    pub(super) place: MemberPlace,
    pub(super) peers: Peers,
    pub(super) alarm: Alarm,
    pub(super) started: Instant,
}

impl Proposer {
    /// Starts openraft. When it returns, a lone voter leads, and has applied everything that it
    /// ever promised. A member of several has begun to look for the others.
    pub(super) async fn start(&self) -> Result<Raft, GroupError> {
        let config = Config {
            cluster_name: "leasehold".to_owned(),
            // A lone voter needs no heartbeats and waits for none. It is elected on request, and
            // idles without a wake-up.
            enable_tick: false,
            // The commit index is not stored. A leader that starts again learns it only by an
            // election. If openraft restored its leadership, it would lead at once, with a state
            // older than its own answers (found by the drill, kill-all).
            enable_leader_restore: Some(Life::leads_unelected()),
            // Entries are sent before they are durable here.
            broadcast_submitted_on_append: Some(true),
            // A member that was cut off and comes back disturbs no leader.
            enable_pre_vote: Some(true),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: ELECTION_MIN_MS,
            election_timeout_max: ELECTION_MAX_MS,
            install_snapshot_timeout: SNAPSHOT_MS,
            snapshot_policy: SnapshotPolicy::Never,
            // A member that falls behind the log gets the checkpoint.
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let config = config.validate().map_err(|e| GroupError::raft("configuring", e))?;
        let storage = LogStorage::new(
            self.log.clone(),
            self.alone.clone(),
            self.standing.clone(),
            self.queue.clone(),
            self.alarm.clone(),
        );
        let (member, peers) = (self.place.member, self.peers.clone());
        let raft = Raft::new(member, Arc::new(config), peers, storage, self.state.clone()).await;
        let raft = raft.map_err(|e| GroupError::raft("starting", e))?;
        // This also waits until openraft knows the members of its log.
        let initialized = raft.is_initialized().await.map_err(|e| GroupError::raft("starting", e))?;
        if self.place.founds && !initialized {
            let voters = BTreeMap::from([(self.place.member, self.place.host.clone())]);
            raft.initialize(voters).await.map_err(|e| GroupError::raft("founding", e))?;
        }
        if self.is_alone(&raft) {
            raft.trigger().elect(false).await.map_err(|e| GroupError::raft("electing", e))?;
            let leader = raft.wait(None).state(ServerState::Leader, "elected").await;
            leader.map_err(|e| GroupError::raft("electing", e))?;
            // It is applied behind everything that an earlier run has left.
            raft.write_blank().await.map_err(|e| GroupError::raft("replaying", e))?;
        }
        self.introduce_to_all(&raft);
        self.look(&raft).await;
        Ok(raft)
    }

    /// Introduces this start to all other members, which answer with what they know of earlier
    /// ones. Some are not in this member's log: others have told of them.
    fn introduce_to_all(&self, raft: &Raft) {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let nodes = membership.nodes().map(|(id, host)| (*id, host.clone()));
        for (id, host) in self.peers.trust.not_asked(nodes) {
            drop(Runtime::spawn(introduce(self.peers.peer(id, &host), self.queue.clone())));
        }
    }

    /// Works until the end of the queue.
    pub(super) async fn work(&self, raft: Raft) {
        let mut members = raft.server_metrics();
        let (mut changed_at, mut looked_at): (Option<Instant>, _) = (None, Instant::now());
        let mut timer = pin!(tokio::time::sleep(LOOK));
        loop {
            let is_timed = match self.due(looked_at, changed_at) {
                Some(due) => {
                    // The timer is reused: a new one that is due before all others wakes the
                    // runtime by a system call.
                    if timer.deadline() != due {
                        timer.as_mut().reset(due);
                    }
                    true
                }
                None => false,
            };
            let Work { batch, batch_bytes, checkpoints, hands_over, end } = tokio::select! {
                biased;
                // It ends with openraft, and the next proposal reports that.
                changed = members.changed() => match changed {
                    Ok(()) => Work::default(),
                    Err(_) => return,
                },
                turn = self.queue.next() => turn,
                () = timer.as_mut(), if is_timed => Work::default(),
            };
            if batch.is_empty() || looked_at.elapsed() >= LOOK {
                self.look(&raft).await;
                looked_at = Instant::now();
            }
            if !batch.is_empty() {
                let (digest, version) = {
                    let machine = self.state.machine.read();
                    (machine.directory.digest(), machine.directory.version())
                };
                let batch = Batch::new(self.now(), digest, version, batch);
                self.write(&raft, batch, timer.as_mut()).await;
                self.queue.applied(batch_bytes);
            }
            if let Some(tell) = hands_over {
                self.hand_over(&raft).await;
                // The waiter may have left.
                let _ = tell.send(());
            }
            let is_clean = self.state.machine.read().store.is_clean();
            changed_at = if is_clean { None } else { changed_at.or_else(|| Some(Instant::now())) };
            if !checkpoints.is_empty() || end == Some(End::Orderly) {
                if self.finish_checkpoint(&raft).await {
                    changed_at = None;
                    // A waiter may have left.
                    checkpoints.into_iter().for_each(|tell| tell.send(()).unwrap_or_default());
                }
            } else if self.is_checkpoint_due(changed_at) {
                raft.trigger().snapshot().await.unwrap_or_else(|error| self.stop(&error));
                changed_at = None;
            }
            if end.is_some() {
                self.state.machine.read().store.give_up_waiting();
                raft.shutdown().await.unwrap_or_else(|error| self.stop(&error));
                return;
            }
        }
    }

    /// Returns when work is due without any input: a member of several looks at its standing, or a
    /// checkpoint is due.
    fn due(&self, looked_at: Instant, changed_at: Option<Instant>) -> Option<Instant> {
        let next_look = looked_at + LOOK;
        let leads_alone = self.alone.load(SeqCst) && self.standing.lock().leads;
        let checkpoint = changed_at.map(|at| at + self.settings.checkpoint_after);
        // While one is under way none is begun, and it may wait for room.
        let under_way = || self.state.machine.read().store.is_checkpointing();
        let checkpoint = checkpoint.map(|at| if under_way() { at.max(next_look) } else { at });
        checkpoint.into_iter().chain((!leads_alone).then_some(next_look)).min()
    }

    /// Returns when `batch` is applied, or when another member leads and the outcome is open:
    /// clients then ask that leader. `timer` says when a member of several looks at its standing.
    async fn write(&self, raft: &Raft, batch: Batch, mut timer: Pin<&mut Sleep>) {
        let mut writing = pin!(raft.client_write(batch));
        loop {
            tokio::select! {
                biased;
                written = &mut writing => match written {
                    Ok(_) => return,
                    Err(RaftError::APIError(_)) => {
                        self.hang_up();
                        return self.look(raft).await;
                    }
                    Err(error) => return self.stop(&error),
                },
                // Without a majority it may take for ever.
                () = timer.as_mut(), if !self.alone.load(SeqCst) => {
                    timer.as_mut().reset(Instant::now() + LOOK);
                    self.look(raft).await;
                    if self.queue.is_ending() {
                        return;
                    }
                }
            }
        }
    }

    /// Handles a failure of openraft: this member ends, and if the disk has failed, the process
    /// stops. An end that gave up waiting for room is no failure.
    fn stop(&self, error: &dyn std::error::Error) {
        match self.log.broken() {
            _ if self.queue.is_ending() && self.state.lacks_room() => {}
            Some(broken) => self.alarm.disk_failed(&broken, broken.is_damage()),
            None => self.alarm.fail(error),
        }
    }

    /// Ends this leadership for clients. A proposal was refused, as openraft does after a leader
    /// loses its majority for a moment. A client whose connection went on would believe that its
    /// message was heard. So for clients this leadership is over, even if openraft goes on.
    fn hang_up(&self) {
        self.queue.close();
        self.standing.lock().leads = false;
        (self.state.deliver)(Event::Standing);
    }

    /// Makes another member lead, if one can. This member answers nothing from the moment at which
    /// it asks the others, since they no longer heed its lease.
    async fn hand_over(&self, raft: &Raft) {
        self.look(raft).await;
        let Some(since) = Instant::now().into_std().checked_sub(QUORUM_LOST) else { return };
        let Some(successor) = self.standing.lock().successor(self.place.member, since) else { return };
        self.hang_up();
        raft.trigger().transfer_leader(successor).await.unwrap_or_else(|error| self.stop(&error));
        let asked = raft.wait(Some(HANDED_OVER_WITHIN));
        let asked = asked.metrics(|metrics| metrics.state != ServerState::Leader, "the successor stands");
        if asked.await.is_err() {
            tracing::warn!("no other server takes over yet");
        }
        self.look(raft).await;
    }

    /// Returns the time of a proposal made now.
    fn now(&self) -> Time {
        self.clock.lock().as_ref().map_or_else(|| self.state.machine.read().position.time, Clock::now)
    }

    fn is_alone(&self, raft: &Raft) -> bool {
        let metrics = raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let mut members = metrics.membership_config.membership().nodes();
        members.next().is_some_and(|(id, _)| *id == self.place.member) && members.next().is_none()
    }

    /// Looks up the leader and the members, and begins or ends to lead.
    async fn look(&self, raft: &Raft) {
        let only = self.is_alone(raft);
        let is_leader = raft.metrics().borrow_watched().state == ServerState::Leader;
        // A removed leader leads on for a moment. An entry that the only voter accepts from it is
        // thereby committed. So the last member counts as alone only once it leads itself.
        let alone = only && is_leader;
        self.alone.store(alone, SeqCst);
        // A leader whose disk is full falls silent until there is room, so that another leads.
        let stuck = self.state.is_stuck();
        let trusted = self.peers.trust.look(voting(raft));
        if !trusted {
            self.introduce_to_all(raft);
        }
        raft.runtime_config().elect(only || self.started.elapsed() >= LEASE && !stuck && trusted);
        raft.runtime_config().heartbeat(!stuck);
        raft.runtime_config().tick(!alone);
        let (members, leader, leads) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            let membership = metrics.membership_config.membership();
            let voters: Vec<u64> = membership.voter_ids().collect();
            let reached = |id: &u64| Some(metrics.replication.as_ref()?.get(id)?.as_ref()?.index);
            let now = Instant::now().into_std();
            let heard = |id: &u64| now.checked_sub(metrics.heartbeat.as_ref()?.get(id)?.as_ref()?.elapsed());
            let members = membership.nodes().map(|(id, host)| Member {
                id: *id,
                host: host.clone(),
                votes: voters.contains(id),
                reached: reached(id),
                heard: heard(id),
            });
            // The only voter is its own majority.
            let lost = voters != [self.place.member]
                && metrics.last_quorum_acked.as_ref().is_some_and(|at| at.elapsed() > QUORUM_LOST);
            let leads = is_leader && (alone || !lost && !stuck);
            (members.collect(), metrics.current_leader, leads)
        };
        // The leader has left, and the last member waits for no one.
        if only && !is_leader {
            raft.trigger().elect(true).await.unwrap_or_else(|error| self.stop(&error));
        }
        let led = self.standing.lock().leads;
        if leads && !led && !self.begin_to_lead(raft).await {
            return;
        }
        if !leads && led {
            self.queue.close();
        }
        let mut standing = self.standing.lock();
        let before = std::mem::replace(&mut *standing, Standing { members, leader, leads, alone });
        let changed = !before.tells_the_same(&standing);
        drop(standing);
        if changed {
            self.note_addresses(&before.members);
            (self.state.deliver)(Event::Standing);
        }
    }

    /// Notes the addresses of members that are new or changed in the membership. Unchanged ones are
    /// skipped: the member itself may have said a newer address since.
    fn note_addresses(&self, before: &[Member]) {
        let said = |member: &&Member| before.iter().any(|it| (it.id, &it.host) == (member.id, &member.host));
        let standing = self.standing.lock();
        let told = standing.members.iter().filter(|member| !said(member));
        told.for_each(|member| self.peers.known.know(member.id, &member.host.addresses));
    }

    /// Applies everything that was committed before, and continues from its time. Returns false if
    /// another member leads after all.
    async fn begin_to_lead(&self, raft: &Raft) -> bool {
        let confirmed =
            tokio::time::timeout(QUORUM_LOST, raft.ensure_linearizable(ReadPolicy::ReadIndex)).await;
        if !matches!(confirmed, Ok(Ok(_))) {
            return false;
        }
        let last = self.state.machine.read().position.time;
        *self.clock.lock() = Some(Clock::after(last));
        self.queue.open(Input::Lead);
        true
    }

    fn is_checkpoint_due(&self, changed_at: Option<Instant>) -> bool {
        let machine = self.state.machine.read();
        let is_due = machine.store.is_full()
            || self.log.is_due(self.settings.log_bytes)
            || changed_at.is_some_and(|at| at.elapsed() >= self.settings.checkpoint_after);
        is_due && !machine.store.is_checkpointing()
    }

    /// Returns true when everything applied by now is in a checkpoint. Returns false if the disk is
    /// full, and it is only in the log.
    async fn finish_checkpoint(&self, raft: &Raft) -> bool {
        let applied = self.state.machine.read().position.applied;
        loop {
            raft.trigger().snapshot().await.unwrap_or_else(|error| self.stop(&error));
            let done = raft
                .wait(Some(ASK_AGAIN))
                .metrics(|metrics| metrics.snapshot >= applied, "checkpointed")
                .await;
            if done.is_ok() {
                return true;
            }
            if self.state.lacks_room() {
                return false;
            }
        }
    }
}

/// The time for entries. It continues from the last entry at the pace of the clock that runs during
/// suspend. The wall clock does not affect it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: Time,
    started_ms: u64,
}

impl Clock {
    fn after(zero: Time) -> Clock {
        Clock { zero, started_ms: boot_ms() }
    }

    pub(super) fn now(&self) -> Time {
        self.zero.after_ms(boot_ms().saturating_sub(self.started_ms))
    }
}

fn boot_ms() -> u64 {
    if let Some(life) = Life::current() {
        return life.clock_ms();
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
