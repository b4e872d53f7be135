//! The interface of the state machine.

use crate::balance::activity::{ActiveFiles, Activity};
use crate::cluster::in_use::{InUse, known_to};
use crate::cluster::registry::{Changes, Registry};
use crate::io::{Input, Output};
use crate::requests::subtrees::Subtrees;
use crate::rows::decoded::DecodedRecords;
use crate::rows::files::{Files, Surroundings};
use crate::rows::keys;
use crate::rows::machines::Enrolment;
use crate::rows::record::Record;
use crate::sessions::session::Misdeed;
use crate::state::{Checkpointed, ClusterState, DirectoryState, RegionState, ServerState};
use crate::store::Unchanged;
use crate::transaction::Transaction;
use crate::{
    CertificateAuthority, Corrupt, DelegateError, Fault, Inspector, InvitationReport, LeaseReport,
    MachineCredential, MachineReport, Placement, Policy, RegionReport, Store, WaitReport,
};
use ident::{FileId, ServerId};
use lease::{Label, SessionId, Time};
use namespace::{Attributes, ContentHead, ShareId, Times};
use rustc_hash::FxHashSet;
use std::cell::RefCell;
use std::collections::BTreeSet;
use wire::{EnrolError, MachineId, Refusal, Rights, ToClient, ToServer, Version, Versions};

/// The state that `leasehold status` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Files in all.
    pub files: u64,
    /// Sessions that are not over.
    pub sessions: usize,
    /// Sessions not heard of for their term.
    pub lapsed: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Machines that have not answered a recall, and for how long, ms. The longest first.
    pub unresponsive: Vec<(MachineId, u64)>,
    /// Space as clients see it.
    pub space: wire::Space,
}

/// The server. The host applies inputs in the order of its Raft log, each with the time of its
/// entry (which never goes back), and carries out the outputs. A spurious [`Input::Tick`] does no
/// harm. The host keeps the store durable together with [`Directory::checkpoint`] and the index of
/// the last input applied.
///
/// The first input after a start is [`Input::Lead`]. [`Input::Space`] comes before the first
/// [`Input::Open`], or there is no room to set aside.
#[derive(Clone, Debug)]
pub struct Directory {
    state: DirectoryState,
    checkpointed: Checkpointed,
    live: FxHashSet<SessionId>,
    known: Versions,
    policy: Policy,
    misdeeds: Vec<(SessionId, Misdeed)>,
    lasts: bool,
    subtrees: Subtrees,
    decoded: DecodedRecords,
    /// The files in use. With one server nothing is counted.
    activity: Activity,
}

impl Directory {
    /// Creates a new cluster: nothing but a root, with these attributes, in the newest version that
    /// the program knows, and one machine, [`crate::FOUNDER`]. The machine is called `founder`,
    /// which [`crate::is_machine_name`]. Leaves the first checkpoint in `store`.
    pub fn create(store: &mut dyn Store, root: Attributes, founder: &str, known: Versions) -> Directory {
        let times = Times { mtime: root.ctime, ctime: root.ctime, generation: 0 };
        let mut record = Record::born(root, ContentHead::default(), times);
        // The root has no creator, so no client has integers of it; the first is the overflow
        // prefix.
        record.next_integer = ident::OVERFLOW + 1;
        store.put(&keys::of(&FileId::root(), keys::Tag::Record), record.to_bytes(&FileId::root()));
        crate::rows::machines::found(store, founder.to_owned());
        let has = (1, root.ino.max(1) + 1);
        let cluster = ClusterState {
            in_use: InUse::of(known.newest),
            enrolment: Enrolment { machines: 1, ..Enrolment::default() },
            changes: Changes { last: 1, removal: 0 },
        };
        let state = DirectoryState::new(ServerId::ROOT, cluster, has);
        let mut directory = Directory::of(state, Checkpointed::nothing(), known);
        directory.checkpoint(store);
        directory
    }

    /// Creates another server of the cluster, which manages no file yet. It knows the machines that
    /// the root server does: `registry` is whole ([`Directory::registry`] since 0). A restored
    /// cluster founds its servers anew. So numbers of sessions and inodes begin beyond any that
    /// could have been given `at` this time, UTC seconds. Leaves the first checkpoint in `store`.
    ///
    /// # Errors
    /// The program does not know the cluster's versions.
    pub fn create_beside(
        store: &mut dyn Store,
        server: ServerId,
        (registry, at): (&Registry, u64),
        known: Versions,
    ) -> Result<Directory, Fault> {
        assert!(server != ServerId::ROOT, "the root server is there before all others");
        assert!(registry.is_whole(), "a part of the machines would never be known");
        known_to(known, registry.version)?;
        known_to(known, registry.oldest)?;
        crate::rows::machines::write(store, &registry.machines);
        let mut state = DirectoryState::new(server, registry.as_state(), (0, 1));
        state.server.sessions.pass_over(at);
        let mut directory = Directory::of(state, Checkpointed::nothing(), known);
        directory.checkpoint(store);
        Ok(directory)
    }

    /// The server as of the last [`Directory::checkpoint`], in a program that knows these versions.
    pub fn open(store: &dyn Store, known: Versions) -> Result<Directory, Fault> {
        let state = DirectoryState::read(store, known)?;
        let checkpointed = Checkpointed::of(&state);
        Ok(Directory::of(state, checkpointed, known))
    }

    fn of(state: DirectoryState, checkpointed: Checkpointed, known: Versions) -> Directory {
        let ServerState { sessions, joint, .. } = &state.server;
        let live = sessions.all.keys().copied().chain(joint.sessions()).collect();
        Directory {
            state,
            checkpointed,
            live,
            known,
            policy: Policy::default(),
            misdeeds: Default::default(),
            lasts: false,
            subtrees: Default::default(),
            decoded: Default::default(),
            activity: Default::default(),
        }
    }

    /// The same server with another policy.
    pub fn with_policy(self, policy: Policy) -> Directory {
        Directory { policy, ..self }
    }

    /// Takes an input.
    ///
    /// # Errors
    /// After an error the host must stop: the store is not what this server wrote, or the cluster
    /// goes on without programs such as this one.
    pub fn handle(
        &mut self,
        now: Time,
        input: Input,
        store: &mut dyn Store,
        out: &mut Vec<Output>,
    ) -> Result<(), Fault> {
        if let Input::Raise { to } = input {
            known_to(self.known, to)?;
        }
        if let Input::Message { session, message } = &input
            && self.has_others()
            && self.live.contains(session)
        {
            self.activity.hear(now, message);
        }
        self.misdeeds.clear();
        self.lasts = true;
        let (before, asks, digest) = (out.len(), input.asks(), self.state.server.digest);
        let surroundings = Surroundings {
            live: std::mem::take(&mut self.live),
            regions: std::mem::take(&mut self.state.server.regions),
            paths: std::mem::take(&mut self.state.server.paths),
            digest,
            dying: self.state.region.dying,
            decoded: std::mem::take(&mut self.decoded),
        };
        let files = Files::new(store, surroundings);
        let Directory { state, policy, misdeeds, subtrees, .. } = self;
        let subtrees = RefCell::new(subtrees);
        let mut transaction = Transaction {
            now,
            files,
            state,
            policy,
            out,
            misdeeds,
            subtrees,
            recalls: Default::default(),
            shares: Default::default(),
            again: Default::default(),
            promised: false,
            ways_changed: Default::default(),
        };
        transaction.take(input);
        match transaction.finish() {
            Ok((live, decoded, promised)) => {
                (self.live, self.decoded) = (live, decoded);
                let told = out.get(before..).unwrap_or_default();
                let is_lost = asks && !promised && self.state.server.digest == digest;
                self.lasts = !is_lost || !told.iter().all(Output::tells_of_rows);
                Ok(())
            }
            Err(corrupt) => {
                out.truncate(before);
                Err(corrupt.into())
            }
        }
    }

    /// Answers a question that changes nothing ([`ToServer::Extents`]) without a Raft log entry;
    /// `None` for any other message.
    pub fn query(&self, session: SessionId, message: &ToServer, store: &dyn Store) -> Option<ToClient> {
        let ToServer::Extents { number, file, from } = message else { return None };
        if !self.live.contains(&session) {
            return Some(ToClient::Fenced);
        }
        let mut unchanged = Unchanged(store);
        let files = Files::new(&mut unchanged, self.surroundings(FxHashSet::from_iter([session])));
        if let Some(elsewhere) = files.regions.elsewhere(*number, file) {
            return Some(elsewhere);
        }
        let rights = self.state.server.sessions.all.get(&session).map(|known| &known.rights);
        let withheld = rights
            .filter(|rights| !rights.are_full())
            .and_then(|rights| files.withheld(&mut Subtrees::default(), rights, session, file));
        Some(match withheld {
            Some(error) => ToClient::Shipped { number: *number, result: Err(error) },
            None => files.content_from(session, *number, file, *from),
        })
    }

    /// All machines, by number, expelled ones among them.
    pub fn machines(&self, now: Time, store: &dyn Store) -> Vec<MachineReport> {
        self.read(store, |files| crate::report::machines(&self.state, now, files))
    }

    /// The invitations that no machine has joined by, expired ones among them.
    pub fn invitations(&self, store: &dyn Store) -> Vec<InvitationReport> {
        self.read(store, crate::report::open_invitations)
    }

    /// The path of a file from the root; its identifier, where it has none.
    pub fn path(&self, store: &dyn Store, file: &FileId) -> String {
        self.read(store, |files| crate::report::path_of(files, file.clone(), None))
    }

    /// The sessions that hold, wait for or are recalled from `file`, field by field. This recalls
    /// nothing.
    pub fn leases(&self, now: Time, store: &dyn Store, file: &FileId) -> Vec<LeaseReport> {
        self.read(store, |files| crate::report::leases(&self.state, now, files, file))
    }

    /// Whether `machine` may have a session.
    pub fn admits(&self, machine: MachineId, store: &dyn Store) -> Result<Rights, Refusal> {
        self.read(store, |files| files.admit(machine))
    }

    /// Whether a machine that shows this token, with this name and key, would be enrolled `at` this
    /// time.
    pub fn may_enrol(
        &self,
        token: &[u8; 32],
        (name, key): (&str, &[u8; 32]),
        at: u64,
        store: &dyn Store,
    ) -> Result<(), EnrolError> {
        self.read(store, |files| files.enrolling(token, name, key, at).map(|_| ()))
    }

    /// The authorities that certify machines by number, the latest last. Empty until the founder
    /// has led.
    pub fn authorities(&self, store: &dyn Store) -> Vec<(u64, CertificateAuthority)> {
        self.read(store, |files| files.authorities())
    }

    /// The key by which a machine is known, if there is a machine of that number.
    pub fn known(&self, machine: MachineId, store: &dyn Store) -> Option<MachineCredential> {
        self.read(store, |files| files.machine(machine).map(|machine| machine.known))
    }

    /// The keys by which all machines are known, expelled ones among them.
    pub fn all_known(&self, store: &dyn Store) -> Vec<(MachineId, MachineCredential)> {
        let known = |files: &Files<'_>| {
            files.machines().into_iter().map(|(machine, row)| (machine, row.known)).collect()
        };
        self.read(store, known)
    }

    /// Whether none of the shares that `machine` uploads in `session` will be published any more:
    /// the session is over, or never was the machine's. A session that this state has not heard of
    /// yet may have begun.
    pub fn is_over(&self, machine: MachineId, session: SessionId) -> bool {
        self.state.server.sessions.is_over(machine, session)
    }

    /// Whether there was such a session, or is. A session that this state has not heard of yet
    /// looks like one that never began.
    pub fn has_begun(&self, session: SessionId) -> bool {
        self.state.server.sessions.has_begun(session)
    }

    /// How far the log of a session has come: the number of the last entry that was taken in.
    /// `None` if the session is over, or never began.
    pub fn has_through(&self, session: SessionId) -> Option<u64> {
        self.state.server.sessions.all.get(&session).map(|known| known.next_entry - 1)
    }

    /// The latest start of `machine` that has greeted this server or, as far as this one knows, the
    /// root server. `None` if there was none.
    pub fn latest_start(&self, machine: MachineId, store: &dyn Store) -> Option<u64> {
        let recorded = self.read(store, |files| files.started(machine));
        let sessions = self.state.server.sessions.of_machine(machine).map(|(_, known)| known.incarnation);
        sessions.chain([recorded]).max().filter(|start| *start > 0)
    }

    /// The number of the last change of the registry of machines that this server knows of. A
    /// server other than the root is behind as long as its number is less than the root server's.
    pub fn registered(&self) -> u64 {
        self.state.cluster.changes.last
    }

    /// The changes of the registry after the one of number `since`, for a server that knows all up
    /// to there; with 0 the whole registry. To be asked of a replica of the root server.
    pub fn registry(&self, since: u64, store: &dyn Store) -> Registry {
        self.read(store, |files| Registry::of(&self.state.cluster, since, files))
    }

    /// The servers that were founded beside the root server, in the order of their numbers, each
    /// with the member of the server group that makes its first state. Only the root server knows.
    pub fn servers(&self, store: &dyn Store) -> Vec<(ServerId, u64)> {
        self.read(store, |files| files.servers())
    }

    /// Whether there are other servers, as far as this one knows.
    fn has_others(&self) -> bool {
        self.state.server.regions.are_several() || self.state.cluster.enrolment.servers > 0
    }

    /// The files, or a sample of them, that sessions here have named within `within_ms`, which is
    /// [`crate::ACTIVE_MS`] at most. With one server there are none. Other servers may manage some
    /// of them by now. Each replica counts since it was started.
    pub fn active(&self, now: Time, within_ms: u64) -> ActiveFiles {
        self.activity.active(now, within_ms)
    }

    /// The placement of regions, as people and the balance have it. Only the root server knows.
    pub fn placement(&self, store: &dyn Store) -> Placement {
        self.read(store, |files| files.placement())
    }

    /// The cluster's version.
    pub fn version(&self) -> Version {
        self.state.cluster.in_use.version
    }

    /// The machines that may still speak an older version, by number and name. When the last of
    /// them goes, the older version goes, and the next version can come.
    pub fn older_machines(&self, store: &dyn Store) -> Vec<(MachineId, String)> {
        self.read(store, |files| crate::cluster::versions::older(&self.state, files))
    }

    /// The requests that have waited for at least `at_least_ms`, in the order of arrival, and the
    /// machines that they wait for.
    pub fn waits(&self, now: Time, store: &dyn Store, at_least_ms: u64) -> Vec<WaitReport> {
        self.read(store, |files| crate::report::waits(&self.state, now, files, at_least_ms))
    }

    /// Whether a request waits, a session waits to hear how far its log has come, a region is
    /// handed over, a joint operation is under way, or a path lease is asked for or recalled. Then
    /// the host must report the passing of time.
    pub fn anybody_waits(&self) -> bool {
        let ServerState { regions, sessions, joint, paths, .. } = &self.state.server;
        self.state.region.pending.len() > 0
            || !sessions.owed.is_empty()
            || regions.are_moving()
            || joint.are_open()
            || paths.are_asked_for()
    }

    /// The file at this path from the root, its labels between slashes; links are not followed.
    pub fn resolve(&self, store: &dyn Store, path: &[u8]) -> Option<FileId> {
        self.read(store, |files| crate::report::resolve(files, path))
    }

    /// Whether this server decides about `file`, and no other does.
    pub fn manages(&self, file: &FileId) -> bool {
        self.state.server.regions.manage(file)
    }

    /// Whether `region` may be handed over to `to` now, as far as its use allows.
    ///
    /// # Errors
    /// The reason for which it may not.
    pub fn may_delegate(
        &self,
        store: &dyn Store,
        region: &FileId,
        to: ServerId,
    ) -> Result<(), DelegateError> {
        let may_leave = |files: &Files<'_>| {
            files.regions.may_leave(region, files.record(region).is_some(), to).map(|_| ())
        };
        self.read(store, may_leave)
    }

    /// The regions that this server knows of, in the order of identifiers.
    pub fn regions(&self) -> Vec<RegionReport> {
        self.state.server.regions.report()
    }

    /// The server that manages `file`, as far as this one knows: itself, or the one to ask.
    pub fn server_of(&self, file: &FileId) -> ServerId {
        self.state.server.regions.server_of(file)
    }

    /// The file of this name in a directory that this server manages.
    pub fn child(&self, store: &dyn Store, dir: &FileId, name: &[u8]) -> Option<FileId> {
        let label = Label::new(name).ok()?;
        self.read(store, |files| Some(files.child(dir, &label)?.file))
    }

    /// The first link to a file that this server manages: a directory, and the name there.
    pub fn link(&self, store: &dyn Store, file: &FileId) -> Option<(FileId, Label)> {
        self.read(store, |files| {
            let link = files.record(file)?.links.first().cloned()?;
            Some((link.dir, link.label))
        })
    }

    /// Whether any operation over files of several servers is under way.
    pub fn has_joint_operations(&self) -> bool {
        self.state.server.joint.are_open()
    }

    /// The path leases that this server holds: each directory, and the directories above it, the
    /// nearest first (Farsite §4.3).
    pub fn path_leases(&self) -> impl Iterator<Item = (&FileId, &[FileId])> {
        self.state.server.paths.held()
    }

    /// The shares that the file at this path refers to, or all files in the directory at this path.
    /// `None`: there is no such file.
    pub fn shares_below(&self, store: &dyn Store, path: &[u8]) -> Option<BTreeSet<ShareId>> {
        self.read(store, |files| {
            Some(crate::rows::share_index::shares_below(files, crate::report::resolve(files, path)?))
        })
    }

    /// Reads rows that do not change meanwhile.
    fn read<T>(&self, store: &dyn Store, read: impl FnOnce(&Files<'_>) -> T) -> T {
        read(&Files::new(&mut Unchanged(store), self.surroundings(self.live.clone())))
    }

    /// The surroundings of rows that are only read.
    fn surroundings(&self, live: FxHashSet<SessionId>) -> Surroundings {
        let ServerState { regions, paths, .. } = &self.state.server;
        let (regions, paths) = (regions.clone(), paths.clone());
        Surroundings { live, regions, paths, ..Surroundings::default() }
    }

    /// The same; an error if any row cannot be read.
    pub(crate) fn read_soundly<T>(
        &self,
        store: &dyn Store,
        read: impl FnOnce(&Files<'_>) -> T,
    ) -> Result<T, Corrupt> {
        let mut unchanged = Unchanged(store);
        let files = Files::new(&mut unchanged, self.surroundings(FxHashSet::default()));
        let value = read(&files);
        files.finish().map(|_| value)
    }

    /// Writes the rows of the state that is no file's own, as far as they changed since the last
    /// checkpoint in this store.
    pub fn checkpoint(&mut self, store: &mut dyn Store) {
        self.checkpointed.write(&self.state, store);
    }

    /// Running hash of all changes to rows, for replicas to compare.
    pub fn digest(&self) -> u64 {
        self.state.server.digest
    }

    /// The misdeeds of peers in the last turn; their sessions are over.
    pub fn misdeeds(&self) -> &[(SessionId, Misdeed)] {
        &self.misdeeds
    }

    /// Whether the last input had effects that must survive once any answer rests on them. If not,
    /// no client would miss it after a crash, so no output has to wait for its entry to be durable.
    /// Such an input was a question whose answer reported what rows said before, or one that waits
    /// for a flush.
    pub fn lasts(&self) -> bool {
        self.lasts
    }

    /// Bytes that updates have used up since the host last measured; the next measurement includes
    /// them.
    pub fn used_up(&self) -> u64 {
        self.state.server.sessions.used_up()
    }

    /// The server's state in brief.
    pub fn status(&self, now: Time) -> Status {
        let DirectoryState { server: ServerState { sessions, .. }, region, .. } = &self.state;
        let RegionState { pending, files, .. } = region;
        let lapsed = sessions.all.values().filter(|session| session.lapsed(now, crate::TERM_MS)).count();
        let space = sessions.space(*files);
        let owed = pending.queue.recalls.owed_since().into_iter();
        let owed = owed.filter_map(|(session, since)| Some((sessions.all.get(&session)?.machine, since)));
        let mut unresponsive: Vec<_> = owed.map(|(machine, since)| (machine, now.ms_since(since))).collect();
        unresponsive.sort_by_key(|(machine, ms)| (std::cmp::Reverse(*ms), *machine));
        let (files, sessions, waiting) = (*files, sessions.all.len(), pending.len());
        Status { files, sessions, lapsed, waiting, unresponsive, space }
    }

    /// Shows `inspector` every violation of an invariant in the whole state.
    pub fn check(&self, store: &dyn Store, inspector: &mut dyn Inspector) {
        crate::rows::check::check(&self.state, self.policy.granularity, store, inspector);
        crate::rows::check::check_decoded(
            &self.decoded,
            (&self.live, &self.state.server.regions),
            store,
            inspector,
        );
    }
}
