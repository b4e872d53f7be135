//! The messages between members, and the network that openraft sees. Each call is answered before
//! the next one is made.

use super::batch::WaitingInput;
use super::group_id::GroupId;
use super::log::bytes_of;
use super::lookout::Lookout;
use super::machine::Raft;
use super::proposer::LEASE;
use super::queue::ProposalQueue;
use super::runtime::Runtime;
use super::starts::{Introduction, Start};
use super::trust::{Trust, VoteRefusal, Voting};
use super::types::{Host, Snapshot, SnapshotMeta, Types, Vote};
use crate::disk::Disk;
use crate::store::{Checkpoint, Row, RowStore, RowStoreError, RowView, StoreSettings};
use bytes::Bytes;
use directory::{Directory, Fault, Input};
use futures_util::Stream;
use openraft::OptionalSend;
use openraft::async_runtime::AsyncRuntime;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::base::{BoxFuture, BoxStream};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, stream_append_sequential, v2::RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use parking_lot::{Mutex, RwLock};
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
use wire::{Version, Versions, latest_addresses};

/// Rows in one call of a snapshot. The longest are inline extents (128 KiB).
const ROWS_TOGETHER: usize = 256;
/// How long a member may take to make entries durable before it counts as away. It is longer than
/// openraft's own time-out, a heartbeat: disks are slow at times.
const APPEND_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a member may take to say whether it knows this one, and the delay before it is asked
/// again.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(1);
const INTRODUCED_AGAIN: Duration = Duration::from_millis(100);
/// How long the other side may take for a call of a snapshot: it writes to its disk.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);

/// The connections to other members.
pub trait Wires: Send + Sync + 'static {
    /// Returns a wire to the machine of that number, for one conversation of one group. It connects
    /// with the first call.
    fn to(&self, machine: u64) -> Box<dyn Wire>;
    /// Returns the version agreed upon when the last connection to the machine was made.
    fn speaks(&self, machine: u64) -> Option<Version>;
}

/// The calling side of a conversation with a member. Its calls may go over any connection to the
/// machine that carries no other call.
pub trait Wire: Send + Sync {
    /// Keeps the calls from now on together on one connection, without those of other
    /// conversations.
    fn stay(&mut self);
    /// Sends `call` and waits for the answer. If there is no connection, the machine is called at
    /// one of `addresses`. After an error, or if the caller stopped waiting, the next call of a
    /// conversation that stays goes over a new connection.
    fn ask<'a>(&'a mut self, addresses: &'a [String], call: Bytes) -> AnswerFuture<'a>;
}

/// The future of [`Wire::ask`].
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + 'a>>;

/// The addresses of members. openraft keeps its connection to a member that moves, so each call
/// looks here.
#[derive(Clone, Default)]
pub(super) struct KnownPeers(Arc<Mutex<BTreeMap<u64, Arc<[String]>>>>);

impl KnownPeers {
    /// Notes that the member `id` is there from now on. A member that tells no address of use is
    /// where it was.
    pub(super) fn know(&self, id: u64, addresses: &[String]) {
        let mut known = self.0.lock();
        let before = known.entry(id).or_default();
        *before = latest_addresses(before, addresses.to_vec()).into();
    }

    /// Notes an address if none is known. Addresses from the member itself are newer.
    fn know_first(&self, id: u64, addresses: &[String]) {
        self.0.lock().entry(id).or_insert_with(|| addresses.into());
    }

    fn of(&self, id: u64) -> Arc<[String]> {
        self.0.lock().get(&id).cloned().unwrap_or_default()
    }
}

/// A message from one member to another.
#[derive(Debug, Serialize, Deserialize)]
enum PeerCall {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    /// Begins a snapshot. Rows of another one are forgotten.
    Begin(SnapshotMeta),
    Rows(Vec<Row>),
    /// Ends a snapshot: all rows were sent. The position goes with them.
    Install(Vote, Vec<u8>),
    /// Says where the speaker, the member of that number, listens.
    At(u64, Vec<String>),
    /// Introduces the speaker, so that the other can judge it.
    Introduces(Introduction),
    /// Asks the other member to introduce itself.
    Asks,
    /// Judges the other member in that start: whether it remembers all its promises, as far as the
    /// speaker knows.
    Judges(Start, Result<Voting, VoteRefusal>),
    /// Names the member that the leader hands over to: that member calls for votes at once, and
    /// the others no longer heed the leader's lease.
    HandOver(TransferLeaderRequest<Types>),
    /// Gives the leader an input of another server of the directory to propose.
    Proposes(Box<Input>),
}

/// The speaker: a member in one of its starts.
type Speaker = (u64, Start);

#[derive(Debug, Serialize, Deserialize)]
enum PeerAnswer {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    Taken,
    Installed(Vote),
    Failed(String),
    /// The caller has to introduce itself first: its start is not known here.
    Stranger,
    /// The judgement on the member that introduced itself.
    Judged(Result<Voting, VoteRefusal>),
    Introduces(Introduction),
    /// This member does not know yet whether it remembers all its promises.
    Waits,
}

/// The reason why a call failed.
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
    Store(#[from] RowStoreError),
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

/// The addresses where this member listens, once they are known.
pub(super) type Here = Arc<OnceLock<Vec<String>>>;

/// Makes the conversations of openraft.
#[derive(Clone)]
pub(super) struct Peers {
    pub(super) group: GroupId,
    /// The number of this member.
    pub(super) member: u64,
    pub(super) here: Here,
    pub(super) known: KnownPeers,
    pub(super) wires: Arc<dyn Wires>,
    pub(super) lookout: Arc<Lookout>,
    pub(super) trust: Arc<Trust>,
}

/// openraft's handle on one conversation.
pub(super) struct Peer {
    group: GroupId,
    /// The other member.
    to: u64,
    from: u64,
    here: Here,
    known: KnownPeers,
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
    /// Begins a conversation with the member `id`.
    pub(super) fn peer(&self, id: u64, host: &Host) -> Peer {
        self.known.know_first(id, &host.addresses);
        let (here, known, lookout) = (self.here.clone(), self.known.clone(), self.lookout.clone());
        let (wire, trust) = (self.wires.to(host.machine), self.trust.clone());
        Peer { group: self.group, to: id, from: self.member, here, known, wire, lookout, trust }
    }
}

impl Peer {
    /// Sends `call`, and takes the answer if it comes from a known start. Each side may first have
    /// to learn which start of the other this is.
    async fn ask(&mut self, call: &PeerCall, within: Duration) -> Result<PeerAnswer, CallError> {
        let (mut start, mut answer) = self.say(call, within).await?;
        if let PeerAnswer::Stranger = answer {
            self.introduce(within).await?;
            (start, answer) = self.say(call, within).await?;
        }
        if !self.trust.knows(self.to, start) {
            self.get_to_know(within).await?;
        }
        match answer {
            PeerAnswer::Failed(why) => Err(CallError::Failed(why)),
            PeerAnswer::Stranger => Err(CallError::Unknown),
            PeerAnswer::Waits => {
                // The other may have introduced itself only to the voters that its log ends with.
                self.say(&PeerCall::Judges(start, Ok(self.trust.voting())), within).await?;
                Err(CallError::Untrusted)
            }
            answer => Ok(answer),
        }
    }

    async fn say(&mut self, call: &PeerCall, within: Duration) -> Result<(Start, PeerAnswer), CallError> {
        if self.trust.has_ended() {
            return Err(CallError::Closed);
        }
        let entries = if let PeerCall::Append(request) = call { &request.entries[..] } else { &[] };
        let room = Vec::with_capacity(entries.iter().map(bytes_of).sum());
        let speaker: Speaker = (self.from, self.trust.own());
        let call = Bytes::from(postcard::to_extend(&(self.group, self.to, speaker, call), room)?);
        let answer = tokio::time::timeout(within, self.wire.ask(&self.known.of(self.to), call)).await??;
        self.lookout.heard();
        Ok(postcard::from_bytes(&answer)?)
    }

    /// Introduces this member, for the other to judge.
    async fn introduce(&mut self, within: Duration) -> Result<(), CallError> {
        let introduction = PeerCall::Introduces(self.trust.introduction());
        match self.say(&introduction, within).await?.1 {
            PeerAnswer::Judged(judged) => {
                let known = judged.is_ok();
                self.trust.was_judged(self.to, judged);
                if known { Ok(()) } else { Err(CallError::Unknown) }
            }
            PeerAnswer::Failed(why) => Err(CallError::Failed(why)),
            _ => Err(CallError::Other),
        }
    }

    /// Asks the other to introduce itself, and judges it.
    async fn get_to_know(&mut self, within: Duration) -> Result<(), CallError> {
        let (start, PeerAnswer::Introduces(introduction)) = self.say(&PeerCall::Asks, within).await? else {
            return Err(CallError::Other);
        };
        if introduction.member != self.to || introduction.start != start {
            return Err(CallError::Unknown);
        }
        if let Err(refusal) = self.trust.judge(&introduction).await {
            self.say(&PeerCall::Judges(start, Err(refusal)), within).await?;
            return Err(CallError::Unknown);
        }
        Ok(())
    }

    /// Asks for a vote, and says where this member listens. Only a leader can log that a member has
    /// moved, and the future leader may have to call a member that moved.
    async fn ask_for_vote(
        &mut self,
        call: PeerCall,
        within: Duration,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        if let Some(here) = self.here.get() {
            let at = PeerCall::At(self.from, here.clone());
            match self.ask(&at, within).await {
                // An older program does not know this call.
                Ok(_) | Err(CallError::Failed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.ask(&call, within).await? {
            PeerAnswer::Vote(response) => Ok(response),
            _ => Err(CallError::Other.into()),
        }
    }

    /// Gives the other, which leads, an input of another server of the directory.
    pub(super) async fn pass_on(&mut self, input: Input) -> io::Result<()> {
        let told = self.ask(&PeerCall::Proposes(Box::new(input)), APPEND_TIMEOUT).await;
        told.map(drop).map_err(io::Error::other)
    }

    async fn send(&mut self, vote: Vote, snapshot: Snapshot) -> Result<Vote, CallError> {
        let view = snapshot.snapshot;
        // A snapshot belongs to its connection.
        self.wire.stay();
        self.ask(&PeerCall::Begin(snapshot.meta), SNAPSHOT_TIMEOUT).await?;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = view.page(after.as_deref(), ROWS_TOGETHER)?;
            let Some((last, _)) = rows.last() else { break };
            after = Some(last.clone());
            self.ask(&PeerCall::Rows(rows), SNAPSHOT_TIMEOUT).await?;
        }
        let position = view.position().unwrap_or_default().to_vec();
        match self.ask(&PeerCall::Install(vote, position), SNAPSHOT_TIMEOUT).await? {
            PeerAnswer::Installed(vote) => Ok(vote),
            _ => Err(CallError::Other),
        }
    }
}

/// The stream of answers to entries.
type Answers<'s> = BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>;

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = RowView;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let upto = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        match self.ask(&PeerCall::Append(request), option.soft_ttl().max(APPEND_TIMEOUT)).await? {
            PeerAnswer::Append(response) => {
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
        let response = self.ask_for_vote(PeerCall::Vote(request), option.soft_ttl()).await?;
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
        self.ask_for_vote(PeerCall::PreVote(request), option.soft_ttl()).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        match self.ask(&PeerCall::HandOver(request), option.soft_ttl()).await? {
            PeerAnswer::Taken => Ok(Ok(())),
            _ => Err(CallError::Other.into()),
        }
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

/// The parts of a member that its incoming conversations use.
pub(super) struct Ear {
    pub(super) group: GroupId,
    /// The number of the member.
    pub(super) member: u64,
    pub(super) raft: Raft,
    pub(super) queue: Arc<ProposalQueue>,
    pub(super) here: Here,
    pub(super) known: KnownPeers,
    pub(super) wires: Arc<dyn Wires>,
    pub(super) started: Instant,
    pub(super) disk: Arc<dyn Disk>,
    /// The directory for incoming snapshots.
    pub(super) dir: PathBuf,
    /// The versions that this program knows.
    pub(super) knows: Versions,
    pub(super) lookout: Arc<Lookout>,
    pub(super) trust: Arc<Trust>,
}

/// The members of this machine that hear others, by group.
#[derive(Default)]
pub(super) struct Ears(RwLock<BTreeMap<GroupId, Arc<Ear>>>);

/// Stands for a member that hears others. It ends with the member's work.
pub(super) struct Listening {
    ears: Arc<Ears>,
    group: GroupId,
}

impl Listening {
    pub(super) fn begin(ears: Arc<Ears>, ear: Arc<Ear>) -> Listening {
        let group = ear.group;
        ears.0.write().insert(group, ear);
        Listening { ears, group }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ears.0.write().remove(&self.group);
    }
}

/// The answering side of a [`Wire`]: it answers another machine's members over one connection.
///
/// A snapshot belongs to the conversation in which it began, and ends with it. A deposed leader, or
/// an earlier attempt, may still be sending another one.
pub struct Conversation {
    ears: Arc<Ears>,
    incoming: Option<Incoming>,
}

struct Incoming {
    group: GroupId,
    meta: SnapshotMeta,
    rows: RowStore,
}

impl Conversation {
    pub(super) fn with(ears: Arc<Ears>) -> Conversation {
        Conversation { ears, incoming: None }
    }

    /// Answers `call`.
    pub async fn hear(&mut self, call: &[u8]) -> Bytes {
        let call = postcard::from_bytes::<(GroupId, u64, Speaker, PeerCall)>(call);
        let (group, member, (from, start), call) = match call {
            Ok(call) => call,
            Err(error) => return said(Start::default(), &PeerAnswer::Failed(error.to_string())),
        };
        // The call may be for an earlier member of this machine, with promises that this member
        // never made.
        let ear = self.ears.0.read().get(&group).filter(|ear| ear.member == member).cloned();
        let Some(ear) = ear else {
            let nobody = format!("member {member} of group {} is not here", group.0);
            return said(Start::default(), &PeerAnswer::Failed(nobody));
        };
        ear.lookout.heard();
        let answer = match ear.meet(from, start, &call).await {
            Some(answer) => answer,
            None => self.take(&ear, call).await.unwrap_or_else(|error| PeerAnswer::Failed(error.to_string())),
        };
        said(ear.trust.own(), &answer)
    }

    /// Takes the incoming snapshot of the member's group.
    fn incoming_of(&mut self, ear: &Ear) -> Result<Incoming, CallError> {
        self.incoming.take_if(|incoming| incoming.group == ear.group).ok_or(CallError::Other)
    }

    async fn take(&mut self, ear: &Ear, call: PeerCall) -> Result<PeerAnswer, CallError> {
        let failed = |error: &dyn std::error::Error| CallError::Failed(error.to_string());
        Ok(match call {
            PeerCall::Append(request) => {
                PeerAnswer::Append(ear.raft.append_entries(request).await.map_err(|e| failed(&e))?)
            }
            PeerCall::Introduces(_) | PeerCall::Asks | PeerCall::Judges(..) => return Err(CallError::Other),
            // A voter must have some state: an emptied member has none.
            PeerCall::Vote(_) | PeerCall::PreVote(_) if ear.has_nothing() => {
                return Err(CallError::Untrusted);
            }
            // It may have promised a leader, just before it ended, to wait for that leader.
            PeerCall::Vote(_) | PeerCall::PreVote(_) if ear.started.elapsed() < LEASE => {
                return Err(CallError::Started);
            }
            PeerCall::Vote(request) => {
                PeerAnswer::Vote(ear.raft.vote(request).await.map_err(|e| failed(&e))?)
            }
            PeerCall::PreVote(request) => {
                PeerAnswer::Vote(ear.raft.pre_vote(request).await.map_err(|e| failed(&e))?)
            }
            PeerCall::HandOver(request) => {
                let taken = ear.raft.handle_transfer_leader(request).await.map_err(|e| failed(&e))?;
                taken.map_err(|e| failed(&e))?;
                PeerAnswer::Taken
            }
            PeerCall::Proposes(input) if input.may_be_passed_on() => {
                ear.queue.push(WaitingInput::new(*input));
                PeerAnswer::Taken
            }
            PeerCall::Proposes(_) => return Err(CallError::Other),
            PeerCall::At(member, addresses) => {
                let metrics = ear.raft.metrics();
                let is_member =
                    metrics.borrow_watched().membership_config.membership().get_node(&member).is_some();
                if is_member {
                    ear.known.know(member, &addresses);
                }
                PeerAnswer::Taken
            }
            PeerCall::Begin(meta) => {
                self.incoming = None;
                let (disk, file) = (ear.disk.clone(), ear.incoming());
                let rows = off_this_thread(move || fresh(&*disk, &file)).await?;
                self.incoming = Some(Incoming { group: ear.group, meta, rows });
                PeerAnswer::Taken
            }
            PeerCall::Rows(rows) => {
                let mut incoming = self.incoming_of(ear)?;
                let filled = off_this_thread(move || {
                    incoming.rows.fill(rows)?;
                    Ok(incoming)
                })
                .await?;
                self.incoming = Some(filled);
                PeerAnswer::Taken
            }
            PeerCall::Install(vote, position) => {
                let Incoming { meta, mut rows, .. } = self.incoming_of(ear)?;
                let (disk, file) = (ear.disk.clone(), ear.incoming());
                let whole = move || {
                    rows.checkpoint(position).map_or(Ok(()), Checkpoint::write)?;
                    is_room_for(&*disk, &file)?;
                    Ok(rows)
                };
                let rows = off_this_thread(whole).await?;
                match Directory::open(&rows, ear.knows) {
                    Ok(_) => {}
                    // This program does not know the version of the group's state, and has no other
                    // state.
                    Err(version @ Fault::Version { .. }) => ear.trust.fail(&version),
                    Err(Fault::Corrupt(corrupt)) => return Err(failed(&corrupt)),
                }
                let snapshot = Snapshot { meta, snapshot: rows.view() };
                let installed = ear.raft.install_full_snapshot(vote, snapshot).await;
                drop(rows);
                let _ = ear.disk.remove(&ear.incoming());
                PeerAnswer::Installed(installed.map_err(|e| failed(&e))?.vote)
            }
        })
    }
}

fn said(start: Start, answer: &PeerAnswer) -> Bytes {
    wire::encode(&(start, answer)).into()
}

impl Ear {
    /// Begins a conversation with the member `id`.
    pub(super) fn peer(&self, id: u64, host: &Host) -> Peer {
        let (here, known, lookout) = (self.here.clone(), self.known.clone(), self.lookout.clone());
        let (group, member, trust) = (self.group, self.member, self.trust.clone());
        Peers { group, member, here, known, wires: self.wires.clone(), lookout, trust }.peer(id, host)
    }

    /// Returns the file for the rows of an incoming snapshot.
    fn incoming(&self) -> PathBuf {
        self.dir.join(format!("incoming-{}", self.group.0))
    }

    /// Returns the answer that must come before any other to the speaker in that start. None if
    /// both remember all their promises.
    async fn meet(&self, from: u64, start: Start, call: &PeerCall) -> Option<PeerAnswer> {
        let trust = &self.trust;
        match call {
            PeerCall::Introduces(it) if (it.member, it.start) == (from, start) => {
                Some(PeerAnswer::Judged(trust.judge(it).await.map(|()| trust.voting())))
            }
            PeerCall::Introduces(_) => Some(PeerAnswer::Stranger),
            PeerCall::Asks => Some(PeerAnswer::Introduces(trust.introduction())),
            PeerCall::Judges(judged, judgment) => {
                // A judgement on an earlier start does not concern this one.
                if *judged == trust.own() {
                    trust.was_judged(from, judgment.clone());
                }
                Some(PeerAnswer::Taken)
            }
            _ if !trust.knows(from, start) => Some(PeerAnswer::Stranger),
            PeerCall::At(..) => None,
            _ if !self.is_ready() => Some(PeerAnswer::Waits),
            _ => None,
        }
    }

    /// Returns whether this member may take part. It checks again if that was not known.
    fn is_ready(&self) -> bool {
        self.trust.is_trusted() || self.trust.look(voting(&self.raft))
    }

    fn has_nothing(&self) -> bool {
        self.raft.metrics().borrow_watched().last_log_index.is_none()
    }
}

/// Returns the voters, as far as this member knows.
pub(super) fn voting(raft: &Raft) -> Voting {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let stored = &metrics.membership_config;
    let membership = stored.membership();
    let host = |id: u64| {
        let host = membership.get_node(&id).expect("a membership has the host of each voter");
        (id, host.clone())
    };
    let voters = membership.voter_ids().map(host).collect();
    Voting { at: *stored.log_id(), voters }
}

/// Introduces this member to that one until the other has confirmed its start, or this one has
/// ended.
pub(super) async fn introduce(mut peer: Peer, queue: Arc<ProposalQueue>) {
    while !peer.trust.is_confirmed_by(peer.to) && !queue.is_abandoned() {
        // A failed introduction is repeated.
        let _ = peer.introduce(INTRODUCED_WITHIN).await;
        tokio::time::sleep(INTRODUCED_AGAIN).await;
    }
}

/// Runs `work` off this thread. A thread that listens to members must not wait for the disk for
/// long, or the others would take this member for dead.
async fn off_this_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CallError> + Send + 'static,
) -> Result<T, CallError> {
    Runtime::spawn_blocking(work).await?
}

fn fresh(disk: &dyn Disk, path: &Path) -> Result<RowStore, CallError> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let rows = disk.open_rows(path, StoreSettings { cache_bytes: 16 << 20, overlay_bytes: 32 << 20 })?;
    Ok(rows.group(GroupId::FIRST)?)
}

/// Checks that the disk has as much free room as that file takes. Its rows will replace the
/// member's rows, and redb takes no write after one that found no room.
fn is_room_for(disk: &dyn Disk, file: &Path) -> io::Result<()> {
    let room = file.with_extension("room");
    let reserved = disk.open(&room, true)?.reserve(disk.open(file, false)?.length()?);
    disk.remove(&room)?;
    reserved
}

mod together;

#[cfg(test)]
mod tests;
