//! Whether this member is what it was, and may vote, stand, follow and lead: after a start the
//! others are asked, who know what it has promised ([`super::starts`]). One that has forgotten
//! raises the alarm, and is added anew by another number. Before the others have said so, a member
//! only listens.
//!
//! All others that vote are asked, and waited for a while; then as many are enough as make a
//! majority with this one, or a group could not go on after a start when one of it is dead. But
//! where the disk's files are not those of the last start (they were copied, or put back), as many
//! must say so that no majority of which this member was one is without them: they cannot all have
//! been cut off from a copy of it that works on.

use super::log::Log;
use super::queue::Queue;
use super::starts::{Forgotten, Introduction, Start, Starts};
use super::storage::when_there_is_room;
use super::types::LogId;
use crate::alarm::Alarm;
use crate::life::Life;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long those that do not answer are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// A member that was heard of so lately is up.
const UP: Duration = Duration::from_secs(3);
/// For so long another one by the same number may be one that has just ended.
const TWIN: Duration = Duration::from_secs(10);
/// How often people are told what is waited for.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Trust {
    member: u64,
    /// The files are not those of the last start.
    moved: bool,
    log: Arc<Mutex<Log>>,
    starts: Arc<Mutex<Starts>>,
    own: Start,
    started: Instant,
    state: Mutex<State>,
    alarm: Alarm,
}

/// Who votes, as far as a member knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Voting {
    /// The entry of the log by which they do.
    pub(super) at: Option<LogId>,
    pub(super) voters: BTreeSet<u64>,
}

#[derive(Default)]
struct State {
    /// Who has said that this start follows the one that it knew.
    confirmed: BTreeSet<u64>,
    /// Who votes by this member's log.
    own: Voting,
    /// The latest of what those said of it who have confirmed: this member's log may be behind, and
    /// whom it would ask be gone for good.
    told: Voting,
    trusted: bool,
    said: Option<Instant>,
    /// When others were heard, in the starts of theirs that are known.
    heard: BTreeMap<u64, Instant>,
    /// Since when others say that one by this number is up.
    twin_since: Option<Instant>,
}

/// Why a member is not listened to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Refusal {
    /// It does not know what it has promised: why that is known.
    Forgot(String),
    /// Another one by that number is up.
    Twin,
    /// Who is asked has no room to note it.
    NotNow,
}

/// Two processes are the same member.
#[derive(Debug, thiserror::Error)]
#[error(
    "another process is up with a copy of this server's data directory, and the other servers work with that one: this one ends. Remove this copy; to have this machine serve as well, join it \
     anew with another data directory"
)]
struct Twin;

/// What this member has promised is not known to it any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);

impl Trust {
    /// Of the member of that number, which starts now: the log says so from now on. A member whose
    /// disk is full starts when there is room, unless `queue` ends.
    pub(super) async fn begin(
        member: u64,
        moved: bool,
        log: Arc<Mutex<Log>>,
        queue: &Queue,
        alarm: Alarm,
    ) -> Result<Trust, super::LogError> {
        let starts = log.lock().starts();
        starts.lock().begin(drawn());
        when_there_is_room(&log, queue, Log::save_starts).await?;
        let own = starts.lock().own();
        let (started, state) = (Instant::now(), Mutex::default());
        Ok(Trust { member, moved, log, starts, own, started, state, alarm })
    }

    /// This start.
    pub(super) fn own(&self) -> Start {
        self.own
    }

    /// Whether a start of this member has drawn that.
    pub(super) fn remembers(&self, drawn: u64) -> bool {
        self.starts.lock().remembers(drawn)
    }

    /// What this member says of itself.
    pub(super) fn introduction(&self) -> Introduction {
        let log = self.log.lock();
        let (last, vote) = (log.durable(), log.vote());
        self.starts.lock().introduce(self.member, last, vote)
    }

    /// Whether it may do what members do.
    pub(super) fn is_trusted(&self) -> bool {
        self.state.lock().trusted
    }

    /// Whether what is said in that start of the other member is to be believed.
    pub(super) fn knows(&self, member: u64, start: Start) -> bool {
        let known = Life::believes_members() || self.starts.lock().is_known(member, start);
        if known {
            self.state.lock().heard.insert(member, Instant::now());
        }
        known
    }

    /// Another member says this of itself. If it is what it was, its start is durably the one that
    /// is known.
    pub(super) fn judge(&self, it: &Introduction) -> Result<(), Refusal> {
        if Life::believes_members() {
            return Ok(());
        }
        let (before, judged) = {
            let mut starts = self.starts.lock();
            (starts.known.get(&it.member).copied(), starts.judge(it))
        };
        match judged {
            Ok(false) => Ok(()),
            Ok(true) => {
                let saved = self.log.lock().save_starts();
                saved.map_err(|error| {
                    if !error.lacks_room() {
                        self.alarm.stop(&error);
                    }
                    // It asks again: what is not durable here does not count.
                    let known = &mut self.starts.lock().known;
                    match before {
                        Some(before) => known.insert(it.member, before),
                        None => known.remove(&it.member),
                    };
                    Refusal::NotNow
                })
            }
            Err(Forgotten::Start) if self.is_up(it.member) => Err(Refusal::Twin),
            Err(forgotten) => Err(Refusal::Forgot(forgotten.to_string())),
        }
    }

    fn is_up(&self, member: u64) -> bool {
        self.state.lock().heard.get(&member).is_some_and(|heard| heard.elapsed() < UP)
    }

    /// Who votes by this member's log.
    pub(super) fn voting(&self) -> Voting {
        self.state.lock().own.clone()
    }

    /// Another member has judged this one, and says who votes. Does not come back if this one
    /// cannot go on.
    pub(super) fn was_judged(&self, by: u64, judged: Result<Voting, Refusal>) {
        let mut state = self.state.lock();
        match judged {
            Ok(voting) => {
                state.confirmed.insert(by);
                state.twin_since = None;
                if voting.at > state.told.at {
                    state.told = voting;
                }
            }
            Err(Refusal::NotNow) => {}
            Err(Refusal::Twin) => {
                let since = *state.twin_since.get_or_insert_with(Instant::now);
                drop(state);
                if since.elapsed() > TWIN {
                    self.alarm.stop(&Twin);
                }
            }
            Err(Refusal::Forgot(why)) => {
                drop(state);
                self.alarm.raise(&Lost(why))
            }
        }
    }

    /// Whether that member has said that this one is what it was.
    pub(super) fn is_confirmed_by(&self, member: u64) -> bool {
        self.state.lock().confirmed.contains(&member)
    }

    /// Looks whether enough of those have said so that vote, by this member's log or what it was
    /// told since.
    pub(super) fn look(&self, own: Voting) -> bool {
        let mut state = self.state.lock();
        state.own = own;
        if state.trusted {
            return true;
        }
        let voters = if state.told.at > state.own.at { &state.told.voters } else { &state.own.voters };
        let others: BTreeSet<u64> = voters.iter().copied().filter(|voter| *voter != self.member).collect();
        let missing: Vec<u64> = others.difference(&state.confirmed).copied().collect();
        let confirmed = others.len() - missing.len();
        let majority = others.len().div_ceil(2) + 1;
        let enough = match self.moved {
            true => confirmed > others.len() + 1 - majority,
            false => confirmed + 1 >= majority && self.started.elapsed() >= PATIENCE,
        };
        state.trusted = missing.is_empty() || enough || Life::believes_members();
        let due = state.said.map_or(self.started, |said| said) + SAY_EVERY;
        if !state.trusted && Instant::now() >= due {
            state.said = Some(Instant::now());
            tracing::warn!(
                waits_for = ?missing,
                copied = self.moved,
                "this server waits for others to say that it has all that it promised them before it takes part again (if they are gone for good, and this directory is the latest: \
                 start with --accept-older-state)"
            );
        }
        state.trusted
    }

    /// The member has said, in the start that is known, to have the log up to there.
    pub(super) fn reached(&self, member: u64, upto: Option<LogId>) {
        self.starts.lock().reached(member, upto);
    }

    /// The member has voted for this one in that term.
    pub(super) fn voted(&self, member: u64, term: u64) {
        self.starts.lock().voted(member, term);
    }
}

/// What a start draws.
fn drawn() -> u64 {
    if let Some(life) = Life::current() {
        return life.next_u64();
    }
    let mut bytes = [0; 8];
    let filled: io::Result<()> = os::fill_random(&mut bytes);
    // Without chance two copies are told apart by the time of their starts.
    let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    filled.map_or_else(|_| clock().map_or(0, |at| at.as_nanos() as u64), |()| u64::from_le_bytes(bytes))
}
