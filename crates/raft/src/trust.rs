//! Decides whether this member remembers all its promises, and so may vote, stand, follow and lead.
//! After a start it asks the others, which know its promises ([`super::starts`]). A member that has
//! forgotten some raises the alarm, and is added anew by another number. Until the others have
//! confirmed it, a member only listens.
//!
//! It asks all other voters, and waits for them for a while. After that, a majority together with
//! itself is enough. Otherwise a group could not go on after a start with one dead member.
//!
//! If the files are not those of the last start (copied, or put back), more must confirm it. They
//! must be so many that every majority with this member contains one of them. Then they cannot all
//! be cut off from a copy of it that works on.

use super::log::RaftLog;
use super::queue::ProposalQueue;
use super::starts::{Forgotten, Introduction, KnownStart, Start, Starts};
use super::storage::when_there_is_room;
use super::types::{Host, LogId};
use crate::alarm::Alarm;
use crate::life::Life;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long it waits for members that do not answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A member heard from within this time is up.
const UP: Duration = Duration::from_secs(3);
/// Within this time, another process with the same number may be one that has just ended.
const TWIN: Duration = Duration::from_secs(10);
/// How often the log says what it waits for.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// The trust in this member's own promises.
pub(super) struct Trust {
    member: u64,
    /// Whether the files are not those of the last start.
    moved: bool,
    log: Arc<RaftLog>,
    starts: Arc<Mutex<Starts>>,
    own: Start,
    started: Instant,
    state: Mutex<TrustState>,
    alarm: Alarm,
}

/// The voters, as far as a member knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Voting {
    /// The log entry that made them voters.
    pub(super) at: Option<LogId>,
    pub(super) voters: BTreeMap<u64, Host>,
}

#[derive(Default)]
struct TrustState {
    /// Members that confirmed that this start follows the one they knew.
    confirmed: BTreeSet<u64>,
    /// The voters by this member's log.
    own: Voting,
    /// The latest voters that confirming members have reported. This member's log may be behind,
    /// and the voters in it may be gone for good.
    told: Voting,
    /// The members to which this one introduces itself.
    asked: BTreeSet<u64>,
    trusted: bool,
    said: Option<Instant>,
    /// Members whose start is being noted.
    noting: BTreeSet<u64>,
    /// When each other member was last heard from, in its known start.
    heard: BTreeMap<u64, Instant>,
    /// Since when others report that another process with this number is up.
    twin_since: Option<Instant>,
}

/// The reason why a member is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum VoteRefusal {
    /// It has forgotten a promise, with the evidence.
    Forgot(String),
    /// Another process with that number is up.
    Twin,
    /// The member asked has no room to note the start.
    NotNow,
}

/// Two processes are the same member.
#[derive(Debug, thiserror::Error)]
#[error(
    "another process is up with a copy of this server's data directory, and the other servers work with that one: this one ends. Remove this copy; to have this machine serve as well, join it \
     anew with another data directory"
)]
struct Twin;

/// This member has forgotten promises.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);

impl Trust {
    /// Begins for the member of that number, which starts now and notes that start in its log. With
    /// a full disk it waits for room, unless `queue` ends.
    pub(super) async fn begin(
        member: u64,
        moved: bool,
        log: Arc<RaftLog>,
        queue: &ProposalQueue,
        alarm: Alarm,
    ) -> Result<Trust, super::LogError> {
        let starts = log.starts();
        starts.lock().begin(drawn());
        log.save_starts();
        when_there_is_room(&log, queue).await?;
        let own = starts.lock().own();
        let (started, state) = (Instant::now(), Mutex::default());
        Ok(Trust { member, moved, log, starts, own, started, state, alarm })
    }

    /// Returns this start.
    pub(super) fn own(&self) -> Start {
        self.own
    }

    /// Returns whether a start of this member has drawn that number.
    pub(super) fn remembers(&self, drawn: u64) -> bool {
        self.starts.lock().remembers(drawn)
    }

    /// Returns this member's statement about itself.
    pub(super) fn introduction(&self) -> Introduction {
        let (last, vote) = (self.log.durable(), self.log.vote());
        self.starts.lock().introduce(self.member, last, vote)
    }

    /// Returns whether it may act as a member.
    pub(super) fn is_trusted(&self) -> bool {
        self.state.lock().trusted
    }

    /// Returns whether messages of that start of the other member are to be believed.
    pub(super) fn knows(&self, member: u64, start: Start) -> bool {
        let known = Life::believes_members() || self.starts.lock().is_known(member, start);
        let mut state = self.state.lock();
        let known = known && !state.noting.contains(&member);
        if known {
            state.heard.insert(member, Instant::now());
        }
        known
    }

    /// Judges another member by its introduction. If it remembers all its promises, its start is
    /// noted durably as the known one. Until then no message of that start is believed.
    pub(super) async fn judge(&self, it: &Introduction) -> Result<(), VoteRefusal> {
        if Life::believes_members() {
            return Ok(());
        }
        if self.state.lock().noting.contains(&it.member) {
            return Err(VoteRefusal::NotNow);
        }
        let (before, judged) = {
            let mut starts = self.starts.lock();
            (starts.known.get(&it.member).copied(), starts.judge(it))
        };
        match judged {
            Ok(false) => Ok(()),
            Ok(true) => {
                let mut noting = Noting::begin(self, it.member, before);
                self.log.save_starts();
                match self.log.flushed().await {
                    Ok(()) => {
                        noting.is_durable = true;
                        Ok(())
                    }
                    Err(error) if error.lacks_room() => Err(VoteRefusal::NotNow),
                    Err(error) => self.alarm.disk_failed(&error, error.is_damage()),
                }
            }
            Err(Forgotten::Start) if self.is_up(it.member) => Err(VoteRefusal::Twin),
            Err(forgotten) => Err(VoteRefusal::Forgot(forgotten.to_string())),
        }
    }

    /// Returns whether this member has ended: nothing that it says counts.
    pub(super) fn has_ended(&self) -> bool {
        self.alarm.why().is_some()
    }

    /// Ends this member, which cannot go on and has lost nothing.
    pub(super) fn fail(&self, error: &dyn std::error::Error) -> ! {
        self.alarm.fail(error)
    }

    fn is_up(&self, member: u64) -> bool {
        self.state.lock().heard.get(&member).is_some_and(|heard| heard.elapsed() < UP)
    }

    /// Returns the voters by this member's log.
    pub(super) fn voting(&self) -> Voting {
        self.state.lock().own.clone()
    }

    /// Takes the judgement of another member on this one, with the voters that it knows. Does not
    /// return if this member cannot go on.
    pub(super) fn was_judged(&self, by: u64, judged: Result<Voting, VoteRefusal>) {
        let mut state = self.state.lock();
        match judged {
            Ok(voting) => {
                state.confirmed.insert(by);
                state.twin_since = None;
                if voting.at > state.told.at {
                    state.told = voting;
                }
            }
            Err(VoteRefusal::NotNow) => {}
            Err(VoteRefusal::Twin) => {
                let since = *state.twin_since.get_or_insert_with(Instant::now);
                drop(state);
                if since.elapsed() > TWIN {
                    self.alarm.stop(&Twin);
                }
            }
            Err(VoteRefusal::Forgot(why)) => {
                drop(state);
                // An older disk is older for all groups.
                self.alarm.raise_disk(&Lost(why))
            }
        }
    }

    /// Returns those of `nodes`, and of the voters that others have reported, to which this member
    /// has yet to introduce itself. It does so now.
    ///
    /// A member whose log ends before others joined waits for these, and only the leader would call
    /// it.
    pub(super) fn not_asked(&self, nodes: impl Iterator<Item = (u64, Host)>) -> Vec<(u64, Host)> {
        let mut state = self.state.lock();
        let told: Vec<_> = state.told.voters.iter().map(|(id, host)| (*id, host.clone())).collect();
        let mut all: BTreeMap<u64, Host> = nodes.collect();
        all.extend(told);
        all.into_iter().filter(|(id, _)| *id != self.member && state.asked.insert(*id)).collect()
    }

    /// Returns whether that member has confirmed this one.
    pub(super) fn is_confirmed_by(&self, member: u64) -> bool {
        self.state.lock().confirmed.contains(&member)
    }

    /// Checks whether enough voters have confirmed this member. The voters are those of its own
    /// log, or newer ones that another member has reported. Returns whether this member is trusted.
    pub(super) fn look(&self, own: Voting) -> bool {
        let mut state = self.state.lock();
        state.own = own;
        if state.trusted {
            return true;
        }
        let voters = if state.told.at > state.own.at { &state.told.voters } else { &state.own.voters };
        let others: BTreeSet<u64> = voters.keys().copied().filter(|voter| *voter != self.member).collect();
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

    /// Notes that the member said, in its known start, to have the log up to that entry.
    pub(super) fn reached(&self, member: u64, upto: Option<LogId>) {
        self.starts.lock().reached(member, upto);
    }

    /// Notes that the member voted for this one in that term.
    pub(super) fn voted(&self, member: u64, term: u64) {
        self.starts.lock().voted(member, term);
    }
}

/// Stands for a start that is being noted. It ends with the caller, who may not wait any more. A
/// start that is not durable then does not count, and the member asks again.
struct Noting<'a> {
    trust: &'a Trust,
    member: u64,
    before: Option<KnownStart>,
    is_durable: bool,
}

impl Noting<'_> {
    fn begin(trust: &Trust, member: u64, before: Option<KnownStart>) -> Noting<'_> {
        trust.state.lock().noting.insert(member);
        Noting { trust, member, before, is_durable: false }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        if !self.is_durable {
            let known = &mut self.trust.starts.lock().known;
            match self.before {
                Some(before) => known.insert(self.member, before),
                None => known.remove(&self.member),
            };
        }
        self.trust.state.lock().noting.remove(&self.member);
    }
}

/// Draws the number of a start.
fn drawn() -> u64 {
    if let Some(life) = Life::current() {
        return life.next_u64();
    }
    let mut bytes = [0; 8];
    let filled: io::Result<()> = os::fill_random(&mut bytes);
    // Without random numbers, the time of the start tells two copies apart.
    let clock = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    filled.map_or_else(|_| clock().map_or(0, |at| at.as_nanos() as u64), |()| u64::from_le_bytes(bytes))
}
