//! The group's thread: proposes what waits, one entry at a time, and begins checkpoints.
//!
//! One entry at a time costs nothing: while it is on its way to the disk, what comes next gathers for the entry behind it.

use super::batch::Batch;
use super::log::Log;
use super::machine::StateMachine;
use super::queue::{End, Queue, Turn};
use super::raft::{Alone, Raft};
use super::storage::LogStorage;
use super::{GroupError, GroupSettings};
use crate::store::stop;
use lease::Time;
use openraft::{BasicNode, Config, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The one voter. More of them will have the numbers of their machines.
const VOTER: u64 = 1;
/// How long to wait for a checkpoint before asking openraft again: it ignores who asks while another is being written.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What the group's thread works with.
pub(super) struct Proposer {
    pub(super) queue: Arc<Queue>,
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) state: StateMachine,
    pub(super) settings: GroupSettings,
    pub(super) clock: Arc<OnceLock<Clock>>,
}

impl Proposer {
    /// Starts openraft; when it returns all that was committed before is applied.
    pub(super) async fn start(&self) -> Result<Raft, GroupError> {
        let config = Config {
            cluster_name: "leasehold".to_owned(),
            // A lone voter needs no heartbeats and waits for nobody's: it is elected when asked, and idles without a wake-up.
            enable_tick: false,
            snapshot_policy: SnapshotPolicy::Never,
            // Whoever falls behind the log gets the checkpoint.
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let config = config.validate().map_err(|e| GroupError::raft("configuring", e))?;
        let storage = LogStorage { log: self.log.clone() };
        let raft = Raft::new(VOTER, Arc::new(config), Alone, storage, self.state.clone()).await;
        let raft = raft.map_err(|e| GroupError::raft("starting", e))?;
        if !raft.is_initialized().await.map_err(|e| GroupError::raft("starting", e))? {
            let voters = BTreeMap::from([(VOTER, BasicNode::default())]);
            raft.initialize(voters).await.map_err(|e| GroupError::raft("founding", e))?;
        }
        raft.trigger().elect(false).await.map_err(|e| GroupError::raft("electing", e))?;
        let leader = raft.wait(None).state(ServerState::Leader, "elected").await;
        leader.map_err(|e| GroupError::raft("electing", e))?;
        // Applied behind everything that an earlier run has left.
        raft.write_blank().await.map_err(|e| GroupError::raft("replaying", e))?;
        Ok(raft)
    }

    /// Works until told to end. An error of the disk stops the process.
    pub(super) async fn work(&self, raft: Raft) {
        let clock = *self.clock.get_or_init(|| Clock::after(self.state.machine.read().position.time));
        let mut changed_at: Option<Instant> = None;
        loop {
            let at_most = changed_at.map(|at| self.settings.checkpoint_after.saturating_sub(at.elapsed()));
            let Turn { batch, batch_bytes, checkpoints, end } = self.queue.next(at_most).await;
            if !batch.is_empty() {
                let batch = Batch::new(clock.now(), batch);
                raft.client_write(batch).await.unwrap_or_else(|error| stop(&error));
                self.queue.applied(batch_bytes);
                changed_at.get_or_insert_with(Instant::now);
            }
            if !checkpoints.is_empty() || end == Some(End::Orderly) {
                self.finish_checkpoint(&raft).await;
                changed_at = None;
                // Who does not wait any more is not told.
                checkpoints.iter().for_each(|tell| tell.send(()).unwrap_or_default());
            } else if self.is_checkpoint_due(changed_at) {
                raft.trigger().snapshot().await.unwrap_or_else(|error| stop(&error));
                changed_at = None;
            }
            if end.is_some() {
                raft.shutdown().await.unwrap_or_else(|error| stop(&error));
                return;
            }
        }
    }

    fn is_checkpoint_due(&self, changed_at: Option<Instant>) -> bool {
        let machine = self.state.machine.read();
        let is_due = machine.store.is_full()
            || self.log.lock().bytes() >= self.settings.log_bytes
            || changed_at.is_some_and(|at| at.elapsed() >= self.settings.checkpoint_after);
        is_due && !machine.store.is_checkpointing()
    }

    /// Returns when all that is applied now is in a checkpoint.
    async fn finish_checkpoint(&self, raft: &Raft) {
        let applied = self.state.machine.read().position.applied;
        loop {
            raft.trigger().snapshot().await.unwrap_or_else(|error| stop(&error));
            let done = raft
                .wait(Some(ASK_AGAIN))
                .metrics(|metrics| metrics.snapshot >= applied, "checkpointed")
                .await;
            if done.is_ok() {
                return;
            }
        }
    }
}

/// Time for entries: goes on from that of the last entry, at the pace of the clock that runs during suspend, whatever the wall clock does.
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
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
