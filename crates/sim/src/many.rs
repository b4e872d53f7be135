//! Several machines and one server in one thread: open handles, and the end of files without names.
//!
//! Each channel keeps its order; between channels the seed decides which message arrives next.
//! Machines stop and start again, or freeze until they are fenced. The server starts again from its
//! checkpoint. The oracle knows nothing of leases: it remembers which machine has which handle.

mod oracle;
mod parts;
#[cfg(test)]
mod tests;
mod workload;

use crate::counts::counts;
use crate::host::{Host, News, Violation};
use crate::names;
use crate::paper::{Actor, Script};
use client::{Call, Outcome, Reply, Settings, Ticket, call};
use directory::Policy;
use ident::FileId;
use lease::{Field, Label, OpenModes};
use namespace::{Cred, Entry, Error, FileKind, Link};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FileGrant, Rights, ToClient};

/// Events within which everything must come to rest once nothing new happens.
const REST_MAX: u32 = 20_000;

counts! {
    /// Counts of events, to show that a run had some.
    Tally {
        /// Calls begun.
        calls,
        /// Messages in both directions.
        messages,
        /// Sessions that ended with an open file.
        ends,
        /// Times that the server started again.
        restarts,
        /// Calls on an open file that had no name any more.
        nameless,
        /// Answers by which a machine learnt that others have a file open.
        told_open,
        /// Opens that conflicted with another handle.
        conflicts,
        /// Files whose deletion was set for the last close.
        doomed,
        /// Opens refused because of that deletion.
        too_late,
    }
}

/// The purpose of a call under way.
#[derive(Clone, Debug)]
enum Doing {
    Open(FileId, OpenModes),
    /// With a handle, or without one.
    Create(Option<OpenModes>),
    Use(FileId),
    /// Sets the deletion at the last close, or clears it.
    Doom(bool),
    Name,
}

/// A machine's work when its turn comes.
enum TurnWork {
    /// The seed chooses.
    Any,
    /// A script chooses. The answer to its last call is here once it has come.
    Script(Box<Script>, Option<Result<Reply, Error>>),
    /// No more work: this part is done.
    Done(Actor),
    /// No work.
    Nothing,
}

/// The programs of a machine.
struct Programs {
    calls: BTreeMap<Ticket, (Call, Doing)>,
    /// Their handles. A file without handles has no entry.
    open: BTreeMap<FileId, Vec<OpenModes>>,
    work: TurnWork,
}

/// Number of labels in use.
const LABELS: usize = 3;

/// The machines, their programs, and what these may expect.
pub struct ManyMachines {
    host: Host,
    /// The labels in use: few, so that machines meet.
    labels: Vec<Label>,
    /// By machine.
    programs: Vec<Programs>,
    /// Every file that was ever made, the name it was made by, and the files that the server has
    /// had.
    known: Vec<FileId>,
    names: BTreeMap<FileId, Link>,
    /// The machine and incarnation that made a file. No other machine knows the file until the
    /// server has it.
    makers: BTreeMap<FileId, (usize, u64)>,
    dirs: Vec<FileId>,
    /// The entries of the last listing.
    listed: Option<Vec<Entry>>,
    stored: BTreeSet<FileId>,
    /// Files that a session had open when it ended. Until all is at rest, others may still see them
    /// as open.
    ghosts: BTreeSet<FileId>,
    /// Whether machines stop and freeze, and the server starts again.
    pub faults: bool,
    /// Counts of events.
    pub tally: Tally,
}

/// Runs so many machines as `seed` chooses, and describes a violation.
pub fn run_many(seed: u64, machines: u64, steps: u64) -> Result<Tally, Violation> {
    run_many_under(Policy::default(), seed, machines, steps)
}

/// The same with another policy.
pub fn run_many_under(policy: Policy, seed: u64, machines: u64, steps: u64) -> Result<Tally, Violation> {
    // The limit is small, so that clients forget files all the time.
    let mut office = ManyMachines::new(seed, machines, policy, 6, || TurnWork::Any)?;
    office.faults = !seed.is_multiple_of(3);
    let failed =
        |step: u64, what| format!("seed {seed}, {machines} machines, step {step} of {steps}: {what}");
    for step in 0..steps {
        office.step().map_err(|what| failed(step, what))?;
    }
    office.finish().map_err(|what| failed(steps, what))?;
    Ok(office.tally)
}

impl ManyMachines {
    /// Makes so many machines, and a root without children.
    fn new(
        seed: u64,
        machines: u64,
        policy: Policy,
        files_max: usize,
        work: impl Fn() -> TurnWork,
    ) -> Result<ManyMachines, Violation> {
        let mut host = Host::new(seed, policy, Settings { files_max, ..Settings::new([0; 32]) });
        let labels = names::some(&mut host.rng, LABELS);
        for _ in 0..machines {
            host.join(Rights::FULL)?;
        }
        let programs = || Programs { calls: BTreeMap::new(), open: BTreeMap::new(), work: work() };
        Ok(ManyMachines {
            host,
            labels,
            programs: (0..machines).map(|_| programs()).collect(),
            known: Vec::new(),
            names: BTreeMap::new(),
            makers: BTreeMap::new(),
            dirs: vec![FileId::root()],
            listed: None,
            stored: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            faults: false,
            tally: Tally::default(),
        })
    }

    /// Lets one thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        let at = self.host.some_machine();
        match self.host.below(24) {
            0..9 => self.host.server_receives(at)?,
            9..18 => self.client_receives(at)?,
            18..21 => self.begin(at)?,
            // Time passes as fast for each machine, whatever their number.
            21 => self.host.pass_time(4_000 / self.programs.len() as u64)?,
            22 => self.host.background()?,
            23 if self.faults => self.fault(at)?,
            _ => {}
        }
        self.hear()?;
        self.check()
    }

    fn client_receives(&mut self, at: usize) -> Result<(), Violation> {
        if let Some(ToClient::Granted { grants, .. }) = self.host.machines[at].to_client.front()
            && !self.host.machines[at].frozen
        {
            let told = |grant: &&FileGrant| grant.values.others.get(&Field::Handles) == Some(true);
            self.tally.told_open += grants.iter().filter(told).count() as u64;
        }
        self.host.client_receives(at)
    }

    fn fault(&mut self, at: usize) -> Result<(), Violation> {
        match self.host.below(40) {
            0 => {
                self.tally.restarts += 1;
                self.host.restart()?;
            }
            1 => self.stop(at)?,
            2 => self.host.machines[at].frozen = true,
            3..10 => self.host.machines[at].frozen = false,
            _ => {}
        }
        Ok(())
    }

    /// The machine stops and starts again at once.
    fn stop(&mut self, at: usize) -> Result<(), Violation> {
        self.session_over(at);
        self.programs[at].calls.clear();
        self.host.stop(at)
    }

    /// Ends the session: the handles of the machine's programs no longer count.
    fn session_over(&mut self, at: usize) {
        let open = std::mem::take(&mut self.programs[at].open);
        self.tally.ends += u64::from(!open.is_empty());
        // Others still see a file as open while its close is under way.
        let client = &self.host.machines[at].client;
        self.ghosts.extend(self.known.iter().filter(|file| !client.own(file).is_closed()).cloned());
    }

    fn hear(&mut self) -> Result<(), Violation> {
        while let Some(news) = self.host.news.pop_front() {
            match news {
                News::Answer { at, ticket, result } => {
                    let Some((call, doing)) = self.programs[at].calls.remove(&ticket) else {
                        return Err(format!("{ticket:?} is answered twice"));
                    };
                    self.answered(at, &call, doing, result)?;
                }
                News::Fenced { at } => self.session_over(at),
                News::CutOff { at } if self.host.machines[at].over => self.stop(at)?,
                News::CutOff { at } => return Err(format!("machine {at} was cut off without reason")),
                News::Refused { at, salvage } => {
                    return Err(format!("machine {at}: what was done was refused: {salvage:?}"));
                }
                News::Store(_) | News::Unneeded(_) | News::Shares(_) => {}
            }
        }
        self.tally.messages = self.host.messages;
        Ok(())
    }

    fn call(&mut self, at: usize, call: Call, doing: Doing) -> Result<(), Violation> {
        self.tally.calls += 1;
        if let Call::Close(call::Close { file, open }) = &call
            && let Some(handles) = self.programs[at].open.get_mut(file)
            && let Some(handle) = handles.iter().position(|handle| handle == open)
        {
            handles.remove(handle);
            self.programs[at].open.retain(|_, handles| !handles.is_empty());
        }
        match self.host.call(at, &Cred::default(), call.clone())? {
            Outcome::Done(result) => self.answered(at, &call, doing, result)?,
            Outcome::Waiting(ticket) => _ = self.programs[at].calls.insert(ticket, (call, doing)),
        }
        self.hear()
    }

    fn answered(
        &mut self,
        at: usize,
        call: &Call,
        doing: Doing,
        result: Result<Reply, Error>,
    ) -> Result<(), Violation> {
        if let TurnWork::Script(_, answer) = &mut self.programs[at].work {
            *answer = Some(result.clone().map(Reply::told));
        }
        let opened = match (&result, doing) {
            (Ok(Reply::Node(entry, _)), Doing::Create(open)) => {
                if let Call::Create(call::Create { dir, label, .. }) = call {
                    let link = Link { dir: dir.clone(), label: label.clone() };
                    self.names.insert(entry.file.clone(), link);
                    self.makers.insert(entry.file.clone(), (at, self.host.machines[at].incarnation));
                }
                match entry.kind {
                    FileKind::Directory => self.dirs.push(entry.file.clone()),
                    _ => self.known.push(entry.file.clone()),
                }
                open.map(|open| (entry.file.clone(), open))
            }
            (Ok(Reply::Opened { .. }), Doing::Open(file, open)) => Some((file, open)),
            (Ok(Reply::Stat(stat)), Doing::Use(_)) => {
                self.tally.nameless += u64::from(stat.attributes.links == 0);
                None
            }
            (Ok(_), Doing::Open(..) | Doing::Create(_)) => return Err(format!("{call:?} gave {result:?}")),
            (Ok(_), Doing::Doom(set)) => {
                self.tally.doomed += u64::from(set);
                None
            }
            (Ok(Reply::Listing { entries, .. }), _) => {
                self.listed = Some(entries.iter().map(|listed| listed.entry.clone()).collect());
                None
            }
            (Ok(_), _) | (Err(Error::CutOff), _) => None,
            (Err(error), Doing::Use(file)) if self.programs[at].open.contains_key(&file) => {
                return Err(format!("{call:?}: {error}, though it is open here"));
            }
            (Err(Error::SharingViolation), Doing::Open(file, open)) => {
                self.tally.conflicts += 1;
                let of_all = self.host.machines.iter().flat_map(|machine| machine.client.own(&file).modes());
                let conflicts = of_all.into_iter().any(|mode| open.has_mode(mode.against()));
                if !conflicts && !self.ghosts.contains(&file) && !self.host.machines[at].over {
                    return Err(format!("{call:?} is refused, and nobody has it open so"));
                }
                None
            }
            (Err(Error::DeletePending), Doing::Open(..) | Doing::Create(_) | Doing::Name) => {
                self.tally.too_late += 1;
                None
            }
            // The handle with the right to delete may have been closed meanwhile.
            (Err(Error::AccessDenied), Doing::Doom(..)) => None,
            (
                Err(
                    Error::NotFound
                    | Error::Exists
                    | Error::Stale
                    | Error::NotEmpty
                    | Error::IsDirectory
                    | Error::NotDirectory
                    | Error::Invalid,
                ),
                _,
            ) => None,
            (Err(error), _) => return Err(format!("{call:?}: {error}")),
        };
        if let Some((file, open)) = opened {
            // Programs of a session that has ended have nothing open.
            if !self.host.machines[at].over {
                self.programs[at].open.entry(file).or_default().push(open);
            }
        }
        Ok(())
    }

    /// Delivers all messages under way; no time passes.
    pub(crate) fn deliver(&mut self) -> Result<(), Violation> {
        self.host.deliver()?;
        self.hear()?;
        self.check()
    }

    /// Runs until everything has come to rest; nothing new happens meanwhile.
    fn rest(&mut self) -> Result<(), Violation> {
        self.host.thaw();
        let mut quiet = 0;
        for _ in 0..REST_MAX {
            quiet += u32::from(self.host.step_to_rest()?);
            self.hear()?;
            self.check()?;
            // Every log has been flushed, and all consequences have arrived.
            let waits = self.programs.iter().any(|programs| !programs.calls.is_empty());
            if quiet > 40 && self.host.is_idle() && !waits {
                return Ok(());
            }
        }
        let calls: Vec<_> = self.programs.iter().flat_map(|programs| programs.calls.values()).collect();
        Err(format!("does not come to rest: {calls:?}"))
    }

    /// Comes to rest and checks, with handles open; then closes them and does the same.
    pub(crate) fn finish(&mut self) -> Result<(), Violation> {
        self.rest()?;
        self.check_at_rest()?;
        for at in 0..self.programs.len() {
            for (file, handles) in self.programs[at].open.clone() {
                for open in handles {
                    self.call(at, Call::Close(call::Close { file: file.clone(), open }), Doing::Name)?;
                }
            }
        }
        self.rest()?;
        self.check_at_rest()
    }
}
