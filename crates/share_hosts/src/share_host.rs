//! The share host of a machine. It takes and releases share leases as the directory says, and
//! sweeps the uploads that sessions have left behind. It answers the requests of other machines,
//! and fetches the shares that it lacks ([`crate::repair`]).

use crate::accounts;
use crate::acted::Acted;
use crate::hosts::HostList;
use crate::peers::Peers;
use crate::references::ReferenceIndex;
use crate::repair::{Repair, RepairStanding};
use crate::report::StoreReport;
use crate::shares_server::{ShareSettings, Shares, SharesError};
use crate::space;
use bytes::Bytes;
use ident::ServerId;
use lease::SessionId;
use namespace::{Error, ShareId};
use net::Pending;
use os::STOP_LOOK;
use parking_lot::Mutex;
use shares::{Clock, DatabaseError, Holds, NewShare, ReadError};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::{FRAME_BYTES_MAX, MachineId, ShareCall, ShareStanding, ShareWork, Space};

/// Between two attempts at work that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// Work that comes within this time is settled together, with as many flushes as for one item. No
/// call waits for it, and a writer at this moment waits for the disk.
const TOGETHER: Duration = Duration::from_millis(50);
/// How often an upload looks whether the log has reported the beginning of its session.
const BEGINNING_EVERY: Duration = Duration::from_millis(10);
/// How many times an upload looks for that.
const BEGINNING_LOOKS: u32 = 100;
/// How long a host may take to report how it stands.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shares that one `ShareCall::Keep` may ask about.
pub const KEEP_MAX: usize = 4096;
/// Bytes of a share that one frame carries.
pub const BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// The host of shares on this machine.
pub struct ShareHost {
    shares: Shares,
    peers: Arc<Peers>,
    repair: Arc<Repair>,
    chores: Sender<Chore>,
    /// While this is locked, the host releases no share that others promise to keep, and promises
    /// none itself. So of two hosts that rely on each other, at most one releases.
    promises: Mutex<()>,
    /// The number of [`Hold`]s.
    holds: AtomicUsize,
    acted: Acted,
    stopping: AtomicBool,
}

/// Keeps unreferenced shares here while it exists. A backup copies the shares that were referenced
/// when it began. The releases that it puts off stay in the directory's rows.
pub struct Hold(Arc<ShareHost>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A task of [`ShareHost::run`].
pub enum Chore {
    /// Takes and releases leases for a server of the directory, in the order of its log.
    Work(ServerId, Vec<ShareWork>),
    /// That session began.
    Begun(SessionId),
    /// Removes uploads of the machine that are not adopted by now: of sessions before this one, or
    /// of all its sessions.
    Sweep(MachineId, Option<SessionId>),
}

impl ShareHost {
    /// Opens the share server in `dir`. Its content is at `content`, if it has none yet, and its
    /// leases count by `clock`. Damage that it finds is repaired. [`ShareHost::run`] does the work
    /// that it puts off.
    pub fn open(
        dir: &Path,
        settings: ShareSettings,
        clock: Clock,
        peers: Arc<Peers>,
    ) -> Result<(Arc<ShareHost>, Receiver<Chore>), SharesError> {
        let repair = Arc::new(Repair::default());
        let repairs = repair.clone();
        let shares = Shares::open(dir, settings, clock, Arc::new(move |share| repairs.want(share)))?;
        let (chores, to_do) = channel();
        let (promises, holds, stopping) = (Mutex::new(()), AtomicUsize::new(0), AtomicBool::new(false));
        let acted = Acted::of(dir);
        Ok((Arc::new(ShareHost { shares, peers, repair, chores, promises, holds, acted, stopping }), to_do))
    }

    /// The share server, with its accounts.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// The connections to other hosts.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Stops the host. Its threads end when they next look.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether [`ShareHost::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Holds all shares that are referenced now, until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self.clone())
    }

    /// Whether the state is known to be no older than any that was acted on here.
    pub fn trusts_state(&self) -> bool {
        self.acted.trusts()
    }

    /// Whether there is a [`Hold`], or the state may be too old to release shares by it. An
    /// unreferenced share is never referenced again: a release that was decided before the hold
    /// began may happen after that.
    pub fn is_held(&self) -> bool {
        self.holds.load(Ordering::SeqCst) > 0 || !self.acted.trusts()
    }

    /// Takes the work of an applied log entry of `server`, in the order of its log. Never blocks.
    pub fn work(&self, server: ServerId, work: Vec<ShareWork>) {
        self.chore(Chore::Work(server, work));
    }

    /// A new session of `machine` began in the root server's log. If nothing publishes uploads of
    /// earlier ones any more (`sweeps`), what those have left behind is swept. Called as
    /// [`ShareHost::work`].
    pub fn begin(&self, machine: MachineId, session: SessionId, sweeps: bool) {
        self.chore(Chore::Begun(session));
        if sweeps {
            self.chore(Chore::Sweep(machine, Some(session)));
        }
    }

    /// `machine` was expelled in the log. Its published shares stay, its other uploads are swept.
    /// Called as [`ShareHost::work`].
    pub fn expelled(&self, machine: MachineId) {
        self.chore(Chore::Sweep(machine, None));
    }

    /// Compares all of the directory's state with the shares here. For changes of the state that no
    /// log entry reported.
    pub fn compare(&self) {
        self.repair.compare();
    }

    fn chore(&self, chore: Chore) {
        // The thread ends after the owner of the last sender.
        let _ = self.chores.send(chore);
    }

    /// Settles share leases until the machine stops. Beside that it looks through all shares that
    /// are here, and repairs them.
    pub fn run(self: &Arc<Self>, chores: &Receiver<Chore>, references: &Arc<dyn ReferenceIndex>) {
        let mut unsettled: Vec<(ServerId, ShareWork)> = Vec::new();
        let mut put_off = Vec::new();
        let mut sweeps: BTreeMap<MachineId, Option<SessionId>> = BTreeMap::new();
        let (share_host, its_ledger) = (self.clone(), references.clone());
        let repairing = std::thread::Builder::new().name("repair".to_owned());
        let repairing = repairing.spawn(move || share_host.repair.run(&share_host, &*its_ledger));
        let repairing = repairing.inspect_err(|error| tracing::error!(%error, "shares are not looked after"));
        loop {
            self.acted.look(&**references);
            match chores.recv_timeout(STOP_LOOK) {
                Ok(first) => {
                    std::thread::sleep(TOGETHER);
                    for chore in std::iter::once(first).chain(chores.try_iter()) {
                        match chore {
                            Chore::Work(server, work) => {
                                unsettled.extend(work.into_iter().map(|work| (server, work)));
                            }
                            Chore::Begun(session) => self.acted.note(session),
                            Chore::Sweep(machine, before) => _ = sweeps.insert(machine, before),
                        }
                    }
                }
                Err(_) if self.is_stopping() => break,
                Err(_) if unsettled.is_empty() => {}
                // Tried again.
                Err(_) => std::thread::sleep(PAUSE),
            }
            if self.is_held() {
                put_off.extend(unsettled.extract_if(.., |(_, work)| matches!(work, ShareWork::Drop(_))));
            } else {
                unsettled.append(&mut put_off);
            }
            let due: Vec<ShareWork> = unsettled.iter().map(|(_, work)| *work).collect();
            if !due.is_empty()
                && let Some(missing) =
                    self.shares.settle(&due, |shares| self.publishers(shares, &**references))
            {
                if !self.is_alone() {
                    self.note(&due, &missing);
                }
                let mut settled = BTreeMap::<ServerId, Vec<ShareWork>>::new();
                unsettled.drain(..).for_each(|(server, work)| settled.entry(server).or_default().push(work));
                settled.into_iter().for_each(|(server, work)| references.settled(server, work));
            }
            // Pending work may be the adoption of such an upload. A host may also have crashed
            // before it adopted the shares in its log.
            if unsettled.is_empty() && self.repair.has_adopted() && self.trusts_state() {
                self.shares.confirm_clock();
                let sweeps = std::mem::take(&mut sweeps);
                self.shares.sweep(|machine, session| {
                    sweeps.get(&machine).is_some_and(|before| before.is_none_or(|before| session < before))
                });
            }
        }
        if let Ok(thread) = repairing {
            // The panic is already reported.
            let _ = thread.join();
        }
    }

    /// Notes where this work differs from the shares here: missing shares, and shares that are here
    /// in place of another host.
    fn note(&self, settled: &[ShareWork], missing: &[ShareId]) {
        let missing: BTreeSet<ShareId> = missing.iter().copied().collect();
        let (hosts, me) = (self.peers.hosts().now(), self.peers.me());
        let adopted = settled.iter().filter_map(|work| match work {
            ShareWork::Adopt(share) => Some(share.kept_as()),
            ShareWork::Drop(_) => None,
        });
        for share in adopted.flatten() {
            match (missing.contains(&share), hosts.placed(&share).contains(&me)) {
                (true, true) => self.repair.want(share),
                (false, false) => self.repair.took(share),
                (true, false) | (false, true) => {}
            }
        }
    }

    /// Returns whose uploads of these referenced shares are believed. The only host believes all
    /// uploads: it has them from before they were published, and there is no other source.
    pub fn publishers(&self, shares: &[ShareId], references: &dyn ReferenceIndex) -> Vec<Option<MachineId>> {
        if self.is_alone() { vec![None; shares.len()] } else { references.publishers(shares) }
    }

    /// Stores the uploads of `machine`, if it has the right to upload. It refuses shares that a
    /// file refers to already: their publisher has them stored, and no other machine may replace
    /// them. It refuses uploads of a session that has not begun, since no look would find that
    /// session over. If the machine is expelled meanwhile, this upload is swept with its others.
    fn take_in(
        &self,
        machine: MachineId,
        session: SessionId,
        shares: Vec<NewShare>,
        references: &dyn ReferenceIndex,
    ) -> Vec<Result<(), Error>> {
        if !has_begun(session, references) {
            tracing::warn!(
                machine = machine.0,
                session = session.0,
                "refused an upload of an unknown session"
            );
            return vec![Err(Error::CutOff); shares.len()];
        }
        if !references.may_upload(machine) {
            tracing::warn!(machine = machine.0, "refused an upload of a machine that may store nothing");
            return vec![Err(Error::NotPermitted); shares.len()];
        }
        let ids: Vec<ShareId> = shares.iter().map(|share| share.id).collect();
        let taken = references.refers_to(&ids);
        let free = shares.into_iter().zip(&taken).filter_map(|(share, taken)| (!taken).then_some(share));
        let mut stored = self.shares.store(machine, session, free.collect()).into_iter();
        if !references.may_upload(machine) {
            self.expelled(machine);
        }
        let result = |(taken, share): (bool, ShareId)| {
            if taken {
                // The publisher's own upload may come late, after those of others.
                if references.publishers(&[share]) != [Some(machine)] {
                    tracing::warn!(?share, machine = machine.0, "refused an upload of what a file refers to");
                }
                return Err(Error::Exists);
            }
            stored.next().unwrap_or(Err(Error::Damaged))
        };
        taken.into_iter().zip(ids).map(result).collect()
    }

    /// Reads a part of a share. A damaged or missing share is repaired, if there are other hosts.
    pub fn read(&self, share: ShareId, at: u32, length: u32) -> Result<Vec<u8>, Error> {
        let server = self.shares.server();
        let read = match server.read(&share, at, length) {
            // There is no other source. The reader checks the bytes itself, and most of them are
            // sound.
            Err(ReadError::Damaged { .. }) if self.is_alone() => server.read_unsound(&share, at, length),
            read => read,
        };
        read.map_err(|error| self.lacks(share, &error))
    }

    /// Checks `share`, in which a reader has found wrong bytes.
    pub fn doubt(&self, share: ShareId) {
        if self.is_alone() {
            // There is no other source, and the rest of it may be sound.
            return;
        }
        if let Err(error) = self.shares.server().verify(&share) {
            self.lacks(share, &error);
        }
    }

    /// Returns how the copies stand that are kept here. If that fails, the log says why.
    pub fn standing(&self) -> Option<ShareStanding> {
        let hosts = self.peers.hosts().now();
        let usage = self.shares.server().usage(self.shares.group);
        let usage = usage
            .inspect_err(|error| tracing::error!(%error, "how many copies are kept here is not known"))
            .ok()?;
        let RepairStanding { missing, fetching, leaving, complete_for } = self.repair.standing();
        let still = missing == 0 && fetching == 0 && leaving == 0;
        let fingerprint = hosts.fingerprint();
        Some(ShareStanding {
            kept: usage.shares,
            bytes: usage.bytes,
            missing,
            fetching,
            leaving,
            hosts: fingerprint,
            complete: hosts.is_only(self.peers.me()) || (still && complete_for == fingerprint),
        })
    }

    /// Returns how the copies stand at each host that answers.
    pub fn standings(&self) -> Vec<(MachineId, Option<ShareStanding>)> {
        self.of_all(&ShareCall::Standing, || self.standing(), |body| wire::decode(body).ok())
    }

    /// Returns how the store here stands. If that fails, the log says why.
    pub fn store(&self) -> Option<StoreReport> {
        StoreReport::of(self.shares.server())
            .inspect_err(|error| tracing::error!(%error, "how the store stands is not known"))
            .ok()
    }

    /// Returns how the stores of all hosts stand that answer.
    pub fn stores(&self) -> Vec<(MachineId, Option<StoreReport>)> {
        self.of_all(&ShareCall::Report, || self.store(), |body| serde_json::from_slice(body).ok())
    }

    /// Returns the room that each host has for content, if it answers.
    pub fn spaces(&self, references: &dyn ReferenceIndex) -> Vec<(MachineId, Option<Space>)> {
        self.of_all(&ShareCall::Space, || self.space(references), |body| wire::decode(body).ok())
    }

    /// Whether content is kept on the disk that `dir` is on.
    pub fn is_on_disk_of(&self, dir: &Path) -> bool {
        let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
        self.shares.server().disk().is_some_and(|disk| device(disk) == device(dir))
    }

    /// Returns the room here for content.
    pub fn space(&self, references: &dyn ReferenceIndex) -> Option<Space> {
        let Some(disk) = self.shares.server().disk() else { return Some(space::ELSEWHERE) };
        // Uploads of sessions that are over will never be published: no allowance has them.
        let sessions = self.shares.sessions();
        let over = references.are_over(&sessions);
        let stand = sessions.into_iter().zip(over).filter_map(|(of, over)| (!over).then_some(of));
        let unpublished = self.shares.unpublished(stand);
        Some(space::with_unpublished(space::measure(disk).ok()?, unpublished))
    }

    /// Asks each host, and this one.
    fn of_all<T>(
        &self,
        what: &ShareCall,
        here: impl Fn() -> Option<T>,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Vec<(MachineId, Option<T>)> {
        let hosts = self.peers.hosts().now();
        let machines = hosts.all().iter().map(|host| host.machine);
        let asked: Vec<(MachineId, Option<Pending>)> = machines
            .map(|machine| {
                let ask = || self.peers.call(&hosts, machine, what.clone(), Vec::new());
                (machine, if machine == self.peers.me() { None } else { ask() })
            })
            .collect();
        let answer = |(machine, pending): (MachineId, Option<Pending>)| {
            if machine == self.peers.me() {
                return (machine, here());
            }
            let answer = pending.and_then(|pending| pending.wait(Some(PATIENCE)).ok());
            (machine, answer.and_then(|(_, body)| read(&body)))
        };
        asked.into_iter().map(answer).collect()
    }

    /// Answers a request that `machine` sent over a connection.
    pub fn answer(
        &self,
        machine: MachineId,
        what: ShareCall,
        mut body: Bytes,
        references: &dyn ReferenceIndex,
    ) -> (Vec<Result<(), Error>>, Vec<u8>) {
        let mut told = Vec::new();
        let results = match what {
            ShareCall::Store { session, shares } => {
                let fit = shares.iter().all(|(_, length)| *length as usize <= BYTES_MAX);
                let all: usize = shares.iter().map(|(_, length)| *length as usize).sum();
                if fit && all == body.len() {
                    let parts = |(id, length)| NewShare { id, parts: vec![body.split_to(length as usize)] };
                    self.take_in(machine, session, shares.into_iter().map(parts).collect(), references)
                } else {
                    vec![Err(Error::Invalid); shares.len()]
                }
            }
            ShareCall::Read { length, .. } if length as usize > BYTES_MAX => vec![Err(Error::Invalid)],
            ShareCall::Read { share, at, length } => {
                vec![self.read(share, at, length).map(|bytes| told = bytes)]
            }
            ShareCall::LetGo(shares) => {
                self.shares.release(machine, &shares);
                vec![Ok(())]
            }
            ShareCall::Fetch(share) => vec![self.told(machine, share).map(|whole| told = whole)],
            ShareCall::Keep(shares) if shares.len() > KEEP_MAX => vec![Err(Error::Invalid); shares.len()],
            ShareCall::Keep(shares) => {
                let kept = self.promise(&shares).into_iter();
                kept.map(|kept| if kept { Ok(()) } else { Err(Error::NotFound) }).collect()
            }
            ShareCall::Doubt(share) => {
                self.doubt(share);
                vec![Ok(())]
            }
            ShareCall::Standing => {
                let standing = self.standing().ok_or(Error::Damaged);
                vec![standing.map(|standing| told = wire::encode(&standing))]
            }
            ShareCall::Report => {
                let report = self.store().and_then(|store| serde_json::to_vec(&store).ok());
                vec![report.ok_or(Error::Damaged).map(|report| told = report)]
            }
            ShareCall::Which => {
                let which = self.shares.server().id().map_err(|_| Error::Damaged);
                vec![which.map(|which| told = which.to_vec())]
            }
            ShareCall::Space => {
                let space = self.space(references).ok_or(Error::Damaged);
                vec![space.map(|space| told = wire::encode(&space))]
            }
            ShareCall::Account(request) => {
                told = wire::encode(&accounts::answer(self.shares.server(), request, body));
                vec![Ok(())]
            }
        };
        (results, told)
    }

    /// Returns the answer to [`ShareCall::Fetch`]: a copy's digest, and its body.
    fn told(&self, asker: MachineId, share: ShareId) -> Result<Vec<u8>, Error> {
        let (body, digest) = self.copy(asker, share)?;
        if body.len() > BYTES_MAX {
            return Err(Error::Invalid);
        }
        let mut whole = Vec::with_capacity(digest.len() + body.len());
        whole.extend(digest);
        whole.extend(body);
        Ok(whole)
    }

    /// Returns the body and the digest of a share that `asker` may take for a copy. The digest says
    /// what was stored, and not who has stored it. So an upload that the group has not adopted is a
    /// copy for its uploader alone: another machine may have stored it, or a session that is over.
    ///
    /// # Errors
    /// [`Error::CutOff`] if the share is here and no copy, or none yet.
    pub fn copy(&self, asker: MachineId, share: ShareId) -> Result<(Vec<u8>, [u8; 16]), Error> {
        let whole = self.shares.server().whole(&share).map_err(|error| self.lacks(share, &error))?;
        match self.shares.is_copy(asker, &share) {
            Ok(true) => Ok(whole),
            Ok(false) => Err(Error::CutOff),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "what is kept here is not known");
                Err(Error::CutOff)
            }
        }
    }

    /// Returns whether each of these shares is kept here, and is to be.
    fn promise(&self, shares: &[ShareId]) -> Vec<bool> {
        let _promises = self.promises.lock();
        let (hosts, me) = (self.peers.hosts().now(), self.peers.me());
        let holds = self.shares.server().holds(self.shares.group, shares).unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "what is kept here is not known");
            Vec::new()
        });
        let holds = holds.into_iter().chain(std::iter::repeat(Holds::Nothing));
        let kept = shares.iter().zip(holds);
        let leased = |holds| matches!(holds, Holds::Leased | Holds::Due);
        kept.map(|(share, holds)| leased(holds) && hosts.placed(share).contains(&me)).collect()
    }

    /// Releases shares that all their hosts have promised to keep, by this list and since it came.
    /// Returns false, and releases nothing, if another list has come since, be it an equal one: by
    /// a list in between this host may have promised the shares itself, and the others relied on
    /// it.
    pub fn leave(&self, hosts: &HostList, shares: &[ShareId]) -> Result<bool, DatabaseError> {
        let _promises = self.promises.lock();
        if self.peers.hosts().now().change() != hosts.change() {
            return Ok(false);
        }
        self.shares.release_of_group(shares)?;
        Ok(true)
    }

    /// Whether there are no other hosts.
    pub fn is_alone(&self) -> bool {
        self.peers.hosts().now().is_only(self.peers.me())
    }

    fn lacks(&self, share: ShareId, error: &ReadError) -> Error {
        let absent = matches!(error, ReadError::NotFound(_) | ReadError::Going(_));
        let alone = self.is_alone();
        if absent && !alone {
            tracing::debug!(%error, "a share is not here");
        } else {
            tracing::error!(error = error as &dyn std::error::Error, "a share cannot be read");
        }
        if !alone && (absent || matches!(error, ReadError::Damaged { .. })) {
            self.repair.want(share);
        }
        Error::Damaged
    }
}

/// Whether `session` has begun. Waits until this host has had time to learn of it: a client learns
/// of its session before the last replica does.
fn has_begun(session: SessionId, references: &dyn ReferenceIndex) -> bool {
    (0..BEGINNING_LOOKS).any(|_| {
        let has_begun = references.has_begun(session);
        if !has_begun {
            std::thread::sleep(BEGINNING_EVERY);
        }
        has_begun
    })
}
