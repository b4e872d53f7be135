//! What members of the group say to each other, and how openraft says it: each call is answered
//! before the next is made.

use super::log::bytes_of;
use super::lookout::Lookout;
use super::proposer::LEASE;
use super::runtime::Runtime;
use super::starts::{Introduction, Start};
use super::trust::{Refusal, Trust, Voting};
use super::types::{Host, Raft, Snapshot, SnapshotMeta, Types, Vote};
use crate::disk::Disk;
use crate::store::{Checkpoint, Row, RowStore, RowView, StoreError, StoreSettings, stop};
use bytes::Bytes;
use directory::{Directory, Fault};
use futures_util::Stream;
use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::base::{BoxFuture, BoxStream};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, stream_append_sequential, v2::RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest,
    VoteResponse,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use together::together;
use tokio::time::Instant;
use wire::{Version, Versions};

/// Rows that go in one call of a snapshot: the longest are inline extents (128 KiB).
const ROWS_TOGETHER: usize = 256;
/// How long a member may take to make entries durable before it counts as away. Longer than
/// openraft's own idea of it, a heartbeat: disks are slow at times.
const APPEND_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a member may take to say whether it knows this one, and how long it takes until it is
/// asked again.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(1);
const INTRODUCED_AGAIN: Duration = Duration::from_millis(100);
/// How long the other side may take for such a call: it writes to its disk.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);

/// The way to other members.
pub trait Wires: Send + Sync + 'static {
    /// One to the member `id` on the machine of that number, for one conversation. Nothing is
    /// connected before something is said.
    fn to(&self, id: u64, machine: u64) -> Box<dyn Wire>;
    /// The version that was agreed upon when a conversation with the member `id` was begun last.
    fn speaks(&self, id: u64) -> Option<Version>;
}

/// A conversation with a member.
pub trait Wire: Send + Sync {
    /// Says `call` and waits for the answer. The member is at one of `addresses`, if it has to be
    /// called. After an error, or when this was not waited for, the next call goes over a new
    /// connection.
    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> Asking<'a>;
}

/// See [`Wire::ask`].
pub type Asking<'a> = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + 'a>>;

/// Where members listen: openraft keeps what goes to a member that moves.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<BTreeMap<u64, Arc<[String]>>>>);

impl Known {
    /// The member `id` is there from now on.
    pub(super) fn know(&self, id: u64, addresses: &[String]) {
        self.0.lock().insert(id, addresses.into());
    }

    /// It is there if nothing else is known: what it has said itself is newer.
    fn know_first(&self, id: u64, addresses: &[String]) {
        self.0.lock().entry(id).or_insert_with(|| addresses.into());
    }

    fn of(&self, id: u64) -> Arc<[String]> {
        self.0.lock().get(&id).cloned().unwrap_or_default()
    }
}

/// What one member says to another.
#[derive(Debug, Serialize, Deserialize)]
enum Call {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    /// A snapshot begins: whatever came of another is forgotten.
    Begin(SnapshotMeta),
    Rows(Vec<Row>),
    /// All rows were said; the position that goes with them.
    Install(Vote, Vec<u8>),
    /// The member of that number, which speaks, listens there.
    At(u64, Vec<String>),
    /// Who speaks says this of itself: whether it is what it was.
    Introduces(Introduction),
    /// Who is asked is to say the same of itself.
    Asks,
    /// Who is asked has said it in that start, and is what it was or not, as far as who speaks
    /// knows.
    Judges(Start, Result<Voting, Refusal>),
}

/// Who says something: which member, in which of its starts.
type Speaker = (u64, Start);

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    Taken,
    Installed(Vote),
    Failed(String),
    /// Who has called is to introduce itself first: that start of it is not known here.
    Stranger,
    /// Who has introduced itself is what it was, or not.
    Judged(Result<Voting, Refusal>),
    Introduces(Introduction),
    /// Who is asked does not know yet whether it has all that it promised.
    Waits,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("a member's message cannot be read")]
    Code(#[from] postcard::Error),
    #[error("no answer in time")]
    Time(#[from] tokio::time::error::Elapsed),
    #[error("the member cannot: {0}")]
    Failed(String),
    #[error("the member's answer is none to this call")]
    Other,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("it has just started, and votes in a moment")]
    Started,
    #[error("this member does not know yet whether it has all that it promised")]
    Untrusted,
    #[error("the member is not known to be what it was")]
    Unknown,
    #[error("given up")]
    Closed,
}

impl From<CallError> for RPCError<Types> {
    fn from(error: CallError) -> RPCError<Types> {
        RPCError::Unreachable(Unreachable::new(&error))
    }
}

impl From<CallError> for StreamingError<Types> {
    fn from(error: CallError) -> StreamingError<Types> {
        StreamingError::Unreachable(Unreachable::new(&error))
    }
}

/// Where this member listens, once that is known.
pub(super) type Here = Arc<OnceLock<Vec<String>>>;

/// Makes openraft's conversations.
#[derive(Clone)]
pub(super) struct Peers {
    /// Of whom.
    pub(super) member: u64,
    pub(super) here: Here,
    pub(super) known: Known,
    pub(super) wires: Arc<dyn Wires>,
    pub(super) lookout: Arc<Lookout>,
    pub(super) trust: Arc<Trust>,
}

/// openraft's handle on one.
pub(super) struct Peer {
    /// With whom.
    to: u64,
    from: u64,
    here: Here,
    known: Known,
    wire: Box<dyn Wire>,
    lookout: Arc<Lookout>,
    trust: Arc<Trust>,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, host: &Host) -> Peer {
        self.peer(id, host)
    }
}

impl Peers {
    /// A conversation with the member `id`.
    pub(super) fn peer(&self, id: u64, host: &Host) -> Peer {
        self.known.know_first(id, &host.addresses);
        let (here, known, lookout) = (self.here.clone(), self.known.clone(), self.lookout.clone());
        let (wire, trust) = (self.wires.to(id, host.machine), self.trust.clone());
        Peer { to: id, from: self.member, here, known, wire, lookout, trust }
    }
}

impl Peer {
    /// Says `call`, and takes the answer if it is one of the member that is known. Each of the two
    /// may have to hear first which start of the other this is.
    async fn ask(&mut self, call: &Call, within: Duration) -> Result<Answer, CallError> {
        let (mut start, mut answer) = self.say(call, within).await?;
        if let Answer::Stranger = answer {
            self.introduce(within).await?;
            (start, answer) = self.say(call, within).await?;
        }
        if !self.trust.knows(self.to, start) {
            self.get_to_know(within).await?;
        }
        match answer {
            Answer::Failed(why) => Err(CallError::Failed(why)),
            Answer::Stranger => Err(CallError::Unknown),
            Answer::Waits => {
                // It may have introduced itself only to those who voted when its log ends.
                self.say(&Call::Judges(start, Ok(self.trust.voting())), within).await?;
                Err(CallError::Untrusted)
            }
            answer => Ok(answer),
        }
    }

    async fn say(&mut self, call: &Call, within: Duration) -> Result<(Start, Answer), CallError> {
        let entries = if let Call::Append(request) = call { &request.entries[..] } else { &[] };
        let room = Vec::with_capacity(entries.iter().map(bytes_of).sum());
        let speaker: Speaker = (self.from, self.trust.own());
        let call = Bytes::from(postcard::to_extend(&(self.to, speaker, call), room)?);
        let answer = tokio::time::timeout(within, self.wire.ask(&self.known.of(self.to), call)).await??;
        self.lookout.heard();
        Ok(postcard::from_bytes(&answer)?)
    }

    /// Says of this member what the other compares with what it knows.
    async fn introduce(&mut self, within: Duration) -> Result<(), CallError> {
        let introduction = Call::Introduces(self.trust.introduction());
        match self.say(&introduction, within).await?.1 {
            Answer::Judged(judged) => {
                let known = judged.is_ok();
                self.trust.was_judged(self.to, judged);
                if known { Ok(()) } else { Err(CallError::Unknown) }
            }
            Answer::Failed(why) => Err(CallError::Failed(why)),
            _ => Err(CallError::Other),
        }
    }

    /// Asks the other the same.
    async fn get_to_know(&mut self, within: Duration) -> Result<(), CallError> {
        let (start, Answer::Introduces(introduction)) = self.say(&Call::Asks, within).await? else {
            return Err(CallError::Other);
        };
        if introduction.member != self.to || introduction.start != start {
            return Err(CallError::Unknown);
        }
        if let Err(refusal) = self.trust.judge(&introduction) {
            self.say(&Call::Judges(start, Err(refusal)), within).await?;
            return Err(CallError::Unknown);
        }
        Ok(())
    }

    /// Says where this member is, too. Only a leader can have it put into the log that a member has
    /// moved, and who is to lead may have to call the one that has.
    async fn ask_for_vote(
        &mut self,
        call: Call,
        within: Duration,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        if let Some(here) = self.here.get() {
            let at = Call::At(self.from, here.clone());
            match self.ask(&at, within).await {
                // A program of before does not know what that is.
                Ok(_) | Err(CallError::Failed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.ask(&call, within).await? {
            Answer::Vote(response) => Ok(response),
            _ => Err(CallError::Other.into()),
        }
    }

    async fn send(&mut self, vote: Vote, snapshot: Snapshot) -> Result<Vote, CallError> {
        let view = snapshot.snapshot;
        self.ask(&Call::Begin(snapshot.meta), SNAPSHOT_TIMEOUT).await?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = view.page(after.as_deref(), ROWS_TOGETHER)?;
            let Some((last, _)) = rows.last() else { break };
            after = Some(last.clone());
            self.ask(&Call::Rows(rows), SNAPSHOT_TIMEOUT).await?;
        }
        let position = view.position().unwrap_or_default().to_vec();
        match self.ask(&Call::Install(vote, position), SNAPSHOT_TIMEOUT).await? {
            Answer::Installed(vote) => Ok(vote),
            _ => Err(CallError::Other),
        }
    }
}

/// What members answer to entries.
type Answers<'s> = BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>;

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = RowView;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let upto = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        match self.ask(&Call::Append(request), option.soft_ttl().max(APPEND_TIMEOUT)).await? {
            Answer::Append(response) => {
                if response.is_success() {
                    self.trust.reached(self.to, upto);
                }
                Ok(response)
            }
            _ => Err(CallError::Other.into()),
        }
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<Answers<'s>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        stream_append_sequential(self, together(input), option)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let term = request.vote.leader_id.term;
        let response = self.ask_for_vote(Call::Vote(request), option.soft_ttl()).await?;
        if response.vote_granted {
            self.trust.voted(self.to, term);
        }
        Ok(response)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_for_vote(Call::PreVote(request), option.soft_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let mut cancel = pin!(cancel);
        tokio::select! {
            biased;
            sent = self.send(vote, snapshot) => Ok(SnapshotResponse::new(sent?)),
            _ = &mut cancel => Err(CallError::Closed.into()),
        }
    }
}

/// What every conversation that others begin with this member has to do with.
pub(super) struct Ear {
    /// Whose it is.
    pub(super) member: u64,
    pub(super) raft: Raft,
    pub(super) here: Here,
    pub(super) known: Known,
    pub(super) wires: Arc<dyn Wires>,
    pub(super) started: Instant,
    pub(super) disk: Arc<dyn Disk>,
    /// Where a snapshot that is coming in is kept.
    pub(super) dir: PathBuf,
    /// What this program knows.
    pub(super) knows: Versions,
    pub(super) lookout: Arc<Lookout>,
    pub(super) trust: Arc<Trust>,
}

/// The other side of a [`Wire`]: answers what one member says, over one connection.
///
/// A snapshot is of the conversation in which it began, and ends with it: a leader that was given
/// up, or an earlier attempt, may still be sending its own.
pub struct Conversation {
    ear: Arc<Ear>,
    incoming: Option<Incoming>,
}

struct Incoming {
    meta: SnapshotMeta,
    rows: RowStore,
}

impl Conversation {
    pub(super) fn with(ear: Arc<Ear>) -> Conversation {
        Conversation { ear, incoming: None }
    }

    /// Answers `call`.
    pub async fn hear(&mut self, call: &[u8]) -> Bytes {
        self.ear.lookout.heard();
        let answer = match postcard::from_bytes::<(u64, Speaker, Call)>(call) {
            // One that was on this machine before, and has promised what this one has not.
            Ok((member, ..)) if member != self.ear.member => {
                Answer::Failed(format!("member {member} is not here"))
            }
            Ok((_, (from, start), call)) => match self.meet(from, start, &call) {
                Some(answer) => answer,
                None => self.take(call).await.unwrap_or_else(|error| Answer::Failed(error.to_string())),
            },
            Err(error) => Answer::Failed(error.to_string()),
        };
        postcard::to_allocvec(&(self.ear.trust.own(), answer)).unwrap_or_default().into()
    }

    /// What is to be said before anything else, to who speaks in that start: none if both are what
    /// they were.
    fn meet(&self, from: u64, start: Start, call: &Call) -> Option<Answer> {
        let trust = &self.ear.trust;
        match call {
            Call::Introduces(it) if (it.member, it.start) == (from, start) => {
                Some(Answer::Judged(trust.judge(it).map(|()| trust.voting())))
            }
            Call::Introduces(_) => Some(Answer::Stranger),
            Call::Asks => Some(Answer::Introduces(trust.introduction())),
            Call::Judges(judged, judgment) => {
                // One that has ended since is none of this one's concern.
                if *judged == trust.own() {
                    trust.was_judged(from, judgment.clone());
                }
                Some(Answer::Taken)
            }
            _ if !trust.knows(from, start) => Some(Answer::Stranger),
            Call::At(..) => None,
            _ if !self.ear.is_ready() => Some(Answer::Waits),
            _ => None,
        }
    }

    async fn take(&mut self, call: Call) -> Result<Answer, CallError> {
        let ear = &*self.ear;
        let failed = |error: &dyn std::error::Error| CallError::Failed(error.to_string());
        Ok(match call {
            Call::Append(request) => {
                Answer::Append(ear.raft.append_entries(request).await.map_err(|e| failed(&e))?)
            }
            Call::Introduces(_) | Call::Asks | Call::Judges(..) => return Err(CallError::Other),
            // Whoever votes has learnt what there is: one that was emptied has not.
            Call::Vote(_) | Call::PreVote(_) if ear.has_nothing() => return Err(CallError::Untrusted),
            // It may have told a leader just before it ended that it would wait for it.
            Call::Vote(_) | Call::PreVote(_) if ear.started.elapsed() < LEASE => {
                return Err(CallError::Started);
            }
            Call::Vote(request) => Answer::Vote(ear.raft.vote(request).await.map_err(|e| failed(&e))?),
            Call::PreVote(request) => Answer::Vote(ear.raft.pre_vote(request).await.map_err(|e| failed(&e))?),
            Call::At(member, addresses) => {
                let metrics = ear.raft.metrics();
                let is_member =
                    metrics.borrow_watched().membership_config.membership().get_node(&member).is_some();
                if is_member {
                    ear.known.know(member, &addresses);
                }
                Answer::Taken
            }
            Call::Begin(meta) => {
                self.incoming = None;
                let rows = fresh(&*ear.disk, &ear.dir.join("incoming"))?;
                self.incoming = Some(Incoming { meta, rows });
                Answer::Taken
            }
            Call::Rows(rows) => {
                let mut incoming = self.incoming.take().ok_or(CallError::Other)?;
                let filled = off_this_thread(move || incoming.rows.fill(rows).map(|()| incoming)).await?;
                self.incoming = Some(filled);
                Answer::Taken
            }
            Call::Install(vote, position) => {
                let incoming = self.incoming.take().ok_or(CallError::Other)?;
                let Incoming { meta, mut rows } = incoming;
                let whole =
                    move || rows.checkpoint(position).map_or(Ok(()), Checkpoint::write).map(|()| rows);
                let rows = off_this_thread(whole).await?;
                is_room_for(&*ear.disk, &ear.dir.join("incoming"))?;
                match Directory::open(&rows, ear.knows) {
                    Ok(_) => {}
                    // The others' state is nothing for this program, and it has none but theirs.
                    Err(version @ Fault::Version { .. }) => stop(&version),
                    Err(Fault::Corrupt(corrupt)) => return Err(failed(&corrupt)),
                }
                let snapshot = Snapshot { meta, snapshot: rows.view() };
                let installed = ear.raft.install_full_snapshot(vote, snapshot).await;
                drop(rows);
                let _ = ear.disk.remove(&ear.dir.join("incoming"));
                Answer::Installed(installed.map_err(|e| failed(&e))?.vote)
            }
        })
    }
}

impl Ear {
    /// Whether this member may take part. Looks, if that was not known.
    fn is_ready(&self) -> bool {
        self.trust.is_trusted() || self.trust.look(voting(&self.raft))
    }

    fn has_nothing(&self) -> bool {
        self.raft.metrics().borrow_watched().last_log_index.is_none()
    }
}

/// Who votes, as far as this member knows.
pub(super) fn voting(raft: &Raft) -> Voting {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let stored = &metrics.membership_config;
    Voting { at: *stored.log_id(), voters: stored.membership().voter_ids().collect() }
}

/// Introduces this member to that one, until the other has heard of its start.
pub(super) async fn introduce(mut peer: Peer) {
    while !peer.trust.is_confirmed_by(peer.to) {
        // What did not succeed is tried again.
        let _ = peer.introduce(INTRODUCED_WITHIN).await;
        tokio::time::sleep(INTRODUCED_AGAIN).await;
    }
}

/// Whoever listens to members must not wait for the disk for long: they would take this one for
/// dead.
async fn off_this_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, CallError> {
    Ok(Runtime::spawn_blocking(work).await??)
}

fn fresh(disk: &dyn Disk, path: &Path) -> Result<RowStore, CallError> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    Ok(disk.open_rows(path, StoreSettings { cache_bytes: 16 << 20, overlay_bytes: 32 << 20 })?)
}

/// Whether the disk has as much room again as that file takes. The member's rows are replaced by
/// those in it: redb takes no write after one that found no room.
fn is_room_for(disk: &dyn Disk, file: &Path) -> io::Result<()> {
    let room = file.with_extension("room");
    let reserved = disk.open(&room, true)?.reserve(disk.open(file, false)?.length()?);
    disk.remove(&room)?;
    reserved
}

mod together;

#[cfg(test)]
mod tests;
