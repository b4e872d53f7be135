//! What a host does about the shares that it keeps: leases taken and let go as the directory says,
//! what sessions have left behind swept, what other machines ask answered, and ([`crate::repair`])
//! what it lacks fetched.

use crate::acted::Acted;
use crate::hosts::HostList;
use crate::machine::STOP_LOOK;
use crate::net::Pending;
use crate::peers::Peers;
use crate::references::ReferenceIndex;
use crate::repair::{Repair, RepairStanding};
use crate::shares_server::{ShareSettings, Shares, SharesError};
use crate::space;
use crate::stored::{StoreReport, answer_account};
use bytes::Bytes;
use directory::ShareWork;
use lease::SessionId;
use namespace::{Error, ShareId};
use parking_lot::Mutex;
use shares::{Clock, DatabaseError, Holds, NewShare, ReadError};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::{FRAME_BYTES_MAX, MachineId, ShareCall, ShareStanding, Space};

/// Between two attempts at what failed.
const PAUSE: Duration = Duration::from_millis(500);
/// What comes within so long is settled together, with as many flushes as for one: nobody waits for
/// it, and who writes now waits for the disk.
const TOGETHER: Duration = Duration::from_millis(50);
/// How often, and how many times, the log is waited for to tell of the beginning of a session that
/// uploads already.
const BEGINNING: (Duration, u32) = (Duration::from_millis(10), 100);
/// How long a host may say nothing of how it stands.
const PATIENCE: Duration = Duration::from_secs(1);
/// Shares that may be asked for at a time whether they are kept.
pub(crate) const KEEP_MAX: usize = 4096;
/// Bytes of a share that are sent or taken in one frame.
pub(crate) const BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// See the module.
pub(crate) struct ShareHost {
    shares: Shares,
    peers: Arc<Peers>,
    repair: Arc<Repair>,
    chores: Sender<Chore>,
    /// While this is held, nothing is let go that others are said to keep, and nobody is told that
    /// it is kept here. So of two hosts that each rely on the other one at most lets go.
    promises: Mutex<()>,
    /// How many want that nothing is let go ([`Hold`]).
    holds: AtomicUsize,
    acted: Acted,
    stopping: AtomicBool,
}

/// While there is one, no share is let go here because nothing refers to it any more: somebody
/// copies what was referred to when it began. What is put off stays in the directory's rows.
pub(crate) struct Hold(Arc<ShareHost>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What [`ShareHost::run`] is to do.
pub(crate) enum Chore {
    Work(Vec<ShareWork>),
    /// Uploads of the machine in sessions before this one, or in all of them, that nobody has
    /// adopted by now are nobody's.
    Sweep(MachineId, Option<SessionId>),
}

impl ShareHost {
    /// Of the share server in `dir`, whose content is at `content` if it has none yet, whose finds
    /// are repaired and whose leases count by `clock`; what it puts off is for [`ShareHost::run`].
    pub(crate) fn open(
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

    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Its threads end when they next look.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// From now on nothing is let go to which something refers now.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self.clone())
    }

    /// Whether the state is known to be no older than what was acted on here.
    pub(crate) fn trusts_state(&self) -> bool {
        self.acted.trusts()
    }

    /// Whether there is a [`Hold`], or the state may be too old to let go of anything by it. What
    /// nothing refers to never is referred to again: who decided to let go of it before the hold
    /// began may do so after.
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::SeqCst) > 0 || !self.acted.trusts()
    }

    /// An applied log entry says so. In the order of the log; never blocks.
    pub(crate) fn work(&self, work: Vec<ShareWork>) {
        self.chore(Chore::Work(work));
    }

    /// A new session of `machine` in the log: what its earlier ones have left behind is swept. As
    /// [`ShareHost::work`].
    pub(crate) fn begin(&self, machine: MachineId, session: SessionId) {
        self.chore(Chore::Sweep(machine, Some(session)));
    }

    /// `machine` was expelled in the log: what it has published stays, what else it has uploaded is
    /// swept. As [`ShareHost::work`].
    pub(crate) fn expelled(&self, machine: MachineId) {
        self.chore(Chore::Sweep(machine, None));
    }

    /// The directory's state has changed otherwise than by log entries, whose work was told: all of
    /// it is compared with what is here.
    pub(crate) fn compare(&self) {
        self.repair.compare();
    }

    fn chore(&self, chore: Chore) {
        // The thread ends after the last sender's owner.
        let _ = self.chores.send(chore);
    }

    /// Settles share leases until the machine stops; beside that all that is here is looked
    /// through, and what is amiss is repaired.
    pub(crate) fn run(self: &Arc<Self>, chores: &Receiver<Chore>, references: &Arc<dyn ReferenceIndex>) {
        let mut unsettled: Vec<ShareWork> = Vec::new();
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
                            Chore::Work(work) => unsettled.extend(work),
                            Chore::Sweep(machine, before) => {
                                before.into_iter().for_each(|session| self.acted.note(session));
                                sweeps.insert(machine, before);
                            }
                        }
                    }
                }
                Err(_) if self.is_stopping() => break,
                Err(_) if unsettled.is_empty() => {}
                // Tried again.
                Err(_) => std::thread::sleep(PAUSE),
            }
            if self.is_held() {
                put_off.extend(unsettled.extract_if(.., |work| matches!(work, ShareWork::Drop(_))));
            } else {
                unsettled.append(&mut put_off);
            }
            if !unsettled.is_empty()
                && let Some(missing) =
                    self.shares.settle(&unsettled, |shares| self.publishers(shares, &**references))
            {
                let settled = std::mem::take(&mut unsettled);
                if !self.is_alone() {
                    self.note(&settled, &missing);
                }
                references.settled(settled);
            }
            // What is pending may be the adoption of such an upload, and a host may have crashed
            // before it adopted what was in its log.
            if unsettled.is_empty() && self.repair.has_adopted() && self.trusts_state() {
                self.shares.confirm_clock();
                let sweeps = std::mem::take(&mut sweeps);
                self.shares.sweep(|machine, session| {
                    sweeps.get(&machine).is_some_and(|before| before.is_none_or(|before| session < before))
                });
            }
        }
        if let Ok(thread) = repairing {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// What of this work is not as it is to be: shares that are not here, and shares that are here
    /// in place of a host that was passed over.
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

    /// Whose uploads of these are believed, which files refer to. The only host believes all: it
    /// has them from before they were published, and there is nobody to have others from.
    pub(crate) fn publishers(
        &self,
        shares: &[ShareId],
        references: &dyn ReferenceIndex,
    ) -> Vec<Option<MachineId>> {
        if self.is_alone() { vec![None; shares.len()] } else { references.publishers(shares) }
    }

    /// Stores what `machine` uploads, if it has the right to, but for what a file refers to
    /// already: whoever published that has it stored, and others have no business with it. Nothing
    /// of a session that has not begun: no look would find that over. What is stored of a machine
    /// that is expelled meanwhile goes with the rest of it.
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
                // Its publisher's may come late, to a host that others were quicker than.
                if references.publishers(&[share]) != [Some(machine)] {
                    tracing::warn!(?share, machine = machine.0, "refused an upload of what a file refers to");
                }
                return Err(Error::Exists);
            }
            stored.next().unwrap_or(Err(Error::Damaged))
        };
        taken.into_iter().zip(ids).map(result).collect()
    }

    /// Reads a part of a share. What is damaged or missing is repaired, if there are others to have
    /// it from.
    pub(crate) fn read(&self, share: ShareId, at: u32, length: u32) -> Result<Vec<u8>, Error> {
        let server = self.shares.server();
        let read = match server.read(&share, at, length) {
            // There is nobody to have it from. Who asks knows what the bytes are to be, and most of
            // them are.
            Err(ReadError::Damaged { .. }) if self.is_alone() => server.read_unsound(&share, at, length),
            read => read,
        };
        read.map_err(|error| self.lacks(share, &error))
    }

    /// A reader has found bytes of `share` that are not what they were.
    pub(crate) fn doubt(&self, share: ShareId) {
        if self.is_alone() {
            // There is nothing to repair it from, and the rest of it may be sound.
            return;
        }
        if let Err(error) = self.shares.server().verify(&share) {
            self.lacks(share, &error);
        }
    }

    /// How the copies stand that are kept here.
    pub(crate) fn standing(&self) -> ShareStanding {
        let hosts = self.peers.hosts().now();
        let usage = self.shares.server().usage(self.shares.group).unwrap_or_default();
        let RepairStanding { missing, fetching, leaving, complete_for } = self.repair.standing();
        let still = missing == 0 && fetching == 0 && leaving == 0;
        let fingerprint = hosts.fingerprint();
        ShareStanding {
            kept: usage.shares,
            bytes: usage.bytes,
            missing,
            fetching,
            leaving,
            hosts: fingerprint,
            complete: hosts.is_only(self.peers.me()) || (still && complete_for == fingerprint),
        }
    }

    /// How they stand at each host, as far as it answers.
    pub(crate) fn standings(&self) -> Vec<(MachineId, Option<ShareStanding>)> {
        self.of_all(&ShareCall::Standing, || Some(self.standing()), |body| wire::decode(body).ok())
    }

    /// How the store here stands; its log says why, if that cannot be told.
    pub(crate) fn store(&self) -> Option<StoreReport> {
        StoreReport::of(self)
            .inspect_err(|error| tracing::error!(%error, "how the store stands is not known"))
            .ok()
    }

    /// How the stores of all hosts stand, as far as they answer.
    pub(crate) fn stores(&self) -> Vec<(MachineId, Option<StoreReport>)> {
        self.of_all(&ShareCall::Report, || self.store(), |body| serde_json::from_slice(body).ok())
    }

    /// What room each host has for content, as far as it answers.
    pub(crate) fn spaces(&self, references: &dyn ReferenceIndex) -> Vec<(MachineId, Option<Space>)> {
        self.of_all(&ShareCall::Space, || self.space(references), |body| wire::decode(body).ok())
    }

    /// Whether content is kept on the disk that `dir` is on.
    pub(crate) fn is_on_disk_of(&self, dir: &Path) -> bool {
        let device = |path: &Path| path.metadata().map(|metadata| metadata.dev()).ok();
        self.shares.server().disk().is_some_and(|disk| device(disk) == device(dir))
    }

    /// What room there is here for content.
    pub(crate) fn space(&self, references: &dyn ReferenceIndex) -> Option<Space> {
        let Some(disk) = self.shares.server().disk() else { return Some(space::ELSEWHERE) };
        // What nobody will publish any more is in nobody's allowance.
        let sessions = self.shares.sessions();
        let over = references.are_over(&sessions);
        let stand = sessions.into_iter().zip(over).filter_map(|(of, over)| (!over).then_some(of));
        let unpublished = self.shares.unpublished(stand);
        Some(space::with_unpublished(space::measure(disk).ok()?, unpublished))
    }

    /// What each host says when it is asked, and this one.
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

    /// What `machine` asks over a connection.
    pub(crate) fn answer(
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
                self.shares.let_go(machine, &shares);
                vec![Ok(())]
            }
            ShareCall::Fetch(share) => vec![self.whole(share).map(|whole| told = whole)],
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
                told = wire::encode(&self.standing());
                vec![Ok(())]
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
                told = wire::encode(&answer_account(self.shares.server(), request, body));
                vec![Ok(())]
            }
        };
        (results, told)
    }

    fn whole(&self, share: ShareId) -> Result<Vec<u8>, Error> {
        let (body, digest) = self.shares.server().whole(&share).map_err(|error| self.lacks(share, &error))?;
        if body.len() > BYTES_MAX {
            return Err(Error::Invalid);
        }
        let mut whole = Vec::with_capacity(digest.len() + body.len());
        whole.extend(digest);
        whole.extend(body);
        Ok(whole)
    }

    /// Whether each of these is kept here, and is to be.
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

    /// Lets go what all hosts have promised to keep that are to have it; not if other hosts are to
    /// have it by now.
    pub(crate) fn leave(&self, hosts: &HostList, shares: &[ShareId]) -> Result<bool, DatabaseError> {
        let _promises = self.promises.lock();
        if self.peers.hosts().now().fingerprint() != hosts.fingerprint() {
            return Ok(false);
        }
        self.shares.let_go_of_group(shares)?;
        Ok(true)
    }

    /// Whether there are no other hosts.
    pub(crate) fn is_alone(&self) -> bool {
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

/// Whether it has, once this host has had the time to hear of it: who begins a session hears of
/// that before the last replica.
fn has_begun(session: SessionId, references: &dyn ReferenceIndex) -> bool {
    (0..BEGINNING.1).any(|_| {
        let has_begun = references.has_begun(session);
        if !has_begun {
            std::thread::sleep(BEGINNING.0);
        }
        has_begun
    })
}
