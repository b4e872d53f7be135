//! One run: random calls and random crashes, and after each of them a check of the invariants of
//! ARCHITECTURE.

use crate::cluster::Cluster;
use crate::host::Violation;
use crate::model::{File, Model, feed};
use client::{Call, Outcome, Reply, call};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::{Error, FileKind, RenameMode};
use std::collections::{BTreeMap, BTreeSet};

/// Counts of events, to show that a run had some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Calls answered.
    pub calls: u64,
    /// Crashes survived.
    pub crashes: u64,
    /// Calls that found no space.
    pub full: u64,
    /// Digest of all inputs and outputs: equal for equal runs.
    pub trace: u64,
}

/// A violation, with the arguments that replay it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("seed {seed}, step {step}: {what}\nreplay: leasehold simulate --seed {seed} --steps {steps}")]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Calls until then.
    pub step: u64,
    /// Calls asked for.
    pub steps: u64,
    /// A description of the violation.
    pub what: Violation,
}

/// All states since the last crash that the next crash may leave, by number of calls done.
struct History {
    /// Digest of names after each call.
    names: Vec<u64>,
    /// The first of these states that may survive: a sync was answered there.
    floor: usize,
    /// Every content that each file has had: its digest, and the call after which it was so.
    content: BTreeMap<FileId, Vec<(usize, u64)>>,
    /// For each file, the call up to which its content survives.
    synced: BTreeMap<FileId, usize>,
    /// Files that replaced another by rename, and the call that did. If names survive up to that
    /// call, so does the file's content.
    replaced: Vec<(usize, FileId)>,
}

struct Run {
    cluster: Cluster,
    model: Model,
    history: History,
    summary: Summary,
    /// Crashes come once in so many calls; never if zero.
    crash_odds: u64,
}

/// Runs `steps` calls from `seed`. The seed chooses the disk's size, the faults and the calls.
pub fn run(seed: u64, steps: u64) -> Result<Summary, Failure> {
    let failed = |step, what| Failure { seed, step, steps, what };
    let mut run = Run::new(seed).map_err(|what| failed(0, what))?;
    while run.summary.calls < steps {
        run.one().map_err(|what| failed(run.summary.calls, what))?;
    }
    run.finish().map_err(|what| failed(run.summary.calls, what))?;
    run.summary.trace = run.cluster.trace;
    Ok(run.summary)
}

impl Run {
    fn new(seed: u64) -> Result<Run, Violation> {
        let mut chooser = Cluster::new(seed ^ 0xD15C, 1)?;
        let space = if chooser.one_in(4) { 200_000 + chooser.below(1_500_000) } else { 1 << 30 };
        let mut cluster = Cluster::new(seed, space)?;
        cluster.upload_faults = chooser.one_in(4);
        let crash_odds = [0, 30, 100, 300][chooser.below(4) as usize];
        let (model, summary) = (Model::default(), Summary::default());
        Ok(Run { cluster, history: History::new(&model), model, summary, crash_odds })
    }

    fn one(&mut self) -> Result<(), Violation> {
        let call = self.cluster.users().some_call(&self.model);
        self.summary.calls += 1;
        match self.cluster.call(call.clone())? {
            Outcome::Done(result) => self.answered(&call, result)?,
            Outcome::Waiting(ticket) => {
                for waited in 0.. {
                    if self.strikes() {
                        return self.crash(Some(&call));
                    }
                    if waited > 50_000 {
                        return Err(format!("never answered: {call:?}"));
                    }
                    self.cluster.step()?;
                    if let Some(result) = self.cluster.answer(ticket) {
                        self.answered(&call, result)?;
                        break;
                    }
                }
            }
        }
        for _ in 0..self.cluster.below(6) {
            if self.strikes() {
                return self.crash(None);
            }
            self.cluster.step()?;
        }
        if self.summary.calls.is_multiple_of(64) {
            self.cluster.check()?;
        }
        Ok(())
    }

    fn strikes(&mut self) -> bool {
        self.crash_odds > 0 && self.cluster.one_in(self.crash_odds * 8)
    }

    fn answered(&mut self, call: &Call, result: Result<Reply, Error>) -> Result<(), Violation> {
        let expected = self.model.refuses(call);
        match (&result, &expected) {
            (Err(Error::NoSpace), _) if may_be_full(call) => {
                self.summary.full += 1;
                return Ok(());
            }
            // A sync may fail while shares cannot be stored. Then it promises nothing.
            (Err(Error::NoSpace | Error::Damaged), Ok(()))
                if matches!(call, Call::Sync { .. } | Call::SyncAll) =>
            {
                return Ok(());
            }
            (Err(found), Err(expected)) if found == expected => return Ok(()),
            // A rename may be wrong in several ways at once. The kernel checks most of them before
            // it asks the file system.
            (Err(_), Err(_)) if matches!(call, Call::Rename { .. }) => return Ok(()),
            (Ok(_), Ok(())) => {}
            _ => return Err(format!("{call:?} gave {result:?}, expected {expected:?}")),
        }
        let Ok(reply) = result else { return Ok(()) };
        self.model.compare(call, &reply, |parts| self.cluster.gather(parts))?;
        let made = match (&reply, call) {
            (Reply::Node(entry, _), Call::Create { .. }) => Some(entry.file.clone()),
            _ => None,
        };
        let replacing = self.replaces(call);
        self.model.apply(call, made.clone());
        self.history.done(&self.model, touched(call, made), replacing, call);
        Ok(())
    }

    /// The regular file that a rename puts in another's place.
    fn replaces(&self, call: &Call) -> Option<FileId> {
        let Call::Rename(call::Rename { from_dir, from, to_dir, to, mode: RenameMode::Replace, .. }) = call
        else {
            return None;
        };
        let moved = self.model.files.get(from_dir)?.children.get(from)?;
        let target = self.model.files.get(to_dir)?.children.get(to)?;
        (moved != target && self.model.files.get(moved)?.kind == FileKind::Regular).then(|| moved.clone())
    }

    fn crash(&mut self, under_way: Option<&Call>) -> Result<(), Violation> {
        self.summary.crashes += 1;
        // The server may or may not have done a rename that was under way.
        if let Some(call @ Call::Rename { .. }) = under_way
            && self.model.refuses(call).is_ok()
        {
            let mut model = self.model.clone();
            model.apply(call, None);
            self.history.names.push(model.names_digest());
        }
        if self.cluster.one_in(3) {
            self.cluster.crash_client()?;
        } else {
            self.cluster.crash()?;
        }
        let survivors = self.survey()?;
        self.history.allows(&survivors)?;
        self.cluster.settle()?;
        self.cluster.sweep_shares();
        self.cluster.check()?;
        self.model = survivors;
        self.history = History::new(&self.model);
        Ok(())
    }

    /// Reads the whole file system.
    fn survey(&mut self) -> Result<Model, Violation> {
        let mut model = Model::default();
        let mut todo = vec![(FileId::root(), None)];
        while let Some((id, parent)) = todo.pop() {
            let mut file = self.survey_file(&id)?;
            if file.kind == FileKind::Directory {
                file.parent = parent;
                for (label, child) in self.survey_children(&id)? {
                    let known = file.children.insert(label, child.clone()).is_some();
                    if known {
                        return Err(format!("{id} lists a label twice"));
                    }
                    if !model.files.contains_key(&child) {
                        todo.push((child, Some(id.clone())));
                    }
                }
            }
            model.files.insert(id, file);
        }
        Ok(model)
    }

    fn ask(&mut self, call: Call) -> Result<Reply, Violation> {
        let text = format!("{call:?}");
        self.cluster.complete(call)?.map_err(|error| format!("after a crash, {text}: {error}"))
    }

    fn survey_file(&mut self, id: &FileId) -> Result<File, Violation> {
        let Reply::Stat(stat) = self.ask(Call::Stat(call::Stat { file: id.clone() }))? else {
            return Err("no stat".into());
        };
        let mut file = File::new(stat.attributes.kind, stat.attributes.mode);
        file.links = stat.attributes.links;
        match file.kind {
            FileKind::Regular => {
                let length = u32::try_from(stat.size).unwrap_or(u32::MAX);
                let Reply::Data(parts) = self.ask(Call::Read(call::Read {
                    file: id.clone(),
                    offset: 0,
                    length,
                    kept: true,
                    quietly: false,
                }))?
                else {
                    return Err("no data".into());
                };
                file.content = self.cluster.gather(&parts)?;
                if file.content.len() as u64 != stat.size {
                    return Err(format!("{id} has {} bytes, its size is {}", file.content.len(), stat.size));
                }
            }
            FileKind::Symlink => {
                let Reply::Bytes(target) = self.ask(Call::ReadLink(call::ReadLink { file: id.clone() }))?
                else {
                    return Err("no target".into());
                };
                file.content = target;
            }
            _ => {}
        }
        let Reply::Names(names) = self.ask(Call::ListXattrs(call::ListXattrs { file: id.clone() }))? else {
            return Err("no names".into());
        };
        for name in names {
            let Reply::Bytes(value) =
                self.ask(Call::GetXattr(call::GetXattr { file: id.clone(), name: name.clone() }))?
            else {
                return Err("no value".into());
            };
            file.xattrs.insert(name, value);
        }
        Ok(file)
    }

    fn survey_children(&mut self, dir: &FileId) -> Result<Vec<(Label, FileId)>, Violation> {
        let mut children = Vec::new();
        let (mut after, mut upto) = (0, None);
        loop {
            let call = Call::List(call::List { dir: dir.clone(), after, upto, limit: 3, stat: true });
            let Reply::Listing { entries, upto: told, end } = self.ask(call)? else {
                return Err("no listing".into());
            };
            upto = Some(told);
            for listed in entries {
                if listed.entry.position <= after {
                    return Err(format!("{dir} lists positions out of order"));
                }
                after = listed.entry.position;
                children.push((listed.label, listed.entry.file));
            }
            if end {
                return Ok(children);
            }
        }
    }

    /// Checks that a listing has exactly the entries that were there when it began. Each entry is
    /// renamed as it is listed: to a label of its own, then over another's. Each is listed once.
    fn rename_what_is_listed(cluster: &mut Cluster, dir: &FileId, there: usize) -> Result<(), Violation> {
        let ask = |cluster: &mut Cluster, call: Call| {
            let text = format!("{call:?}");
            cluster.complete(call)?.map_err(|error| format!("{text}: {error}"))
        };
        let (mut seen, mut after, mut upto) = (BTreeSet::new(), 0, None);
        for page in 1usize.. {
            let limit = 1 + page % 3;
            let call = Call::List(call::List { dir: dir.clone(), after, upto, limit, stat: false });
            let Reply::Listing { entries, upto: told, end } = ask(cluster, call)? else {
                return Err("no listing".into());
            };
            upto = Some(told);
            for listed in entries {
                after = listed.entry.position;
                if !seen.insert(listed.label.clone()) || seen.len() > there {
                    let (label, seen) = (listed.label, seen.len());
                    return Err(format!("{dir} of {there} entries lists {label:?} as the {seen}th"));
                }
                let (from_dir, to_dir) = (dir.clone(), dir.clone());
                let to =
                    Label::new(format!("renamed {}", seen.len()).as_bytes()).map_err(|e| format!("{e:?}"))?;
                let (mode, whiteout) = (RenameMode::Replace, false);
                ask(
                    cluster,
                    Call::Rename(call::Rename {
                        from_dir,
                        from: listed.label,
                        to_dir,
                        to,
                        mode,
                        whiteout,
                        source: None,
                        replaced: None,
                    }),
                )?;
            }
            if end {
                break;
            }
        }
        if seen.len() == there { Ok(()) } else { Err(format!("{dir} lists {} of {there}", seen.len())) }
    }

    /// Ends the run without further faults: everything is there, and no garbage is kept.
    fn finish(&mut self) -> Result<(), Violation> {
        self.cluster.upload_faults = false;
        self.cluster.space = 1 << 30;
        for (file, state) in self.model.clone().files {
            for _ in 0..state.open {
                let call =
                    Call::Close(call::Close { file: file.clone(), open: OpenModes::posix(true, true) });
                self.ask(call.clone())?;
                self.model.apply(&call, None);
            }
        }
        self.ask(Call::SyncAll)?;
        let found = self.survey()?;
        if found != self.model {
            let differs = |(id, file): &(&FileId, &File)| found.files.get(*id) != Some(*file);
            let first = self
                .model
                .files
                .iter()
                .find(differs)
                .or(found.files.iter().find(|(id, _)| !self.model.files.contains_key(*id)));
            let there = first.map(|(id, file)| {
                let is = found.files.get(id);
                let at = is.and_then(|is| is.content.iter().zip(&file.content).position(|(a, b)| a != b));
                format!("{id} should be {file:?}, is {is:?}, content differs at {at:?}")
            });
            return Err(format!("the tree is not what was made of it: {}", there.unwrap_or_default()));
        }
        for dir in self.model.files.iter().filter(|(_, file)| file.kind == FileKind::Directory) {
            Self::rename_what_is_listed(&mut self.cluster, dir.0, dir.1.children.len())?;
        }
        self.ask(Call::SyncAll)?;
        self.cluster.settle()?;
        // Synced content goes to shares, since no handle is open any more.
        self.ask(Call::SyncAll)?;
        self.cluster.settle()?;
        self.cluster.check()?;
        self.cluster.check_no_garbage()
    }
}

impl History {
    fn new(model: &Model) -> History {
        let content =
            model.files.iter().map(|(id, file)| (id.clone(), vec![(0, digest(&file.content))])).collect();
        History {
            names: vec![model.names_digest()],
            floor: 0,
            content,
            // Content that was read after a crash is durable.
            synced: model.files.keys().map(|id| (id.clone(), 0)).collect(),
            replaced: Vec::new(),
        }
    }

    fn done(&mut self, model: &Model, touched: Option<FileId>, replacing: Option<FileId>, call: &Call) {
        self.names.push(model.names_digest());
        let at = self.names.len() - 1;
        if let Some(file) = touched
            && let Some(state) = model.files.get(&file)
        {
            self.content.entry(file).or_default().push((at, digest(&state.content)));
        }
        self.replaced.extend(replacing.map(|file| (at, file)));
        match call {
            Call::Sync(call::Sync { file }) => {
                self.floor = at;
                self.synced.insert(file.clone(), at);
            }
            Call::SyncAll => {
                self.floor = at;
                self.synced.extend(model.files.keys().map(|id| (id.clone(), at)));
            }
            _ => {}
        }
    }

    /// Checks that a crash may leave `found`. It must be a prefix of the updates that has the last
    /// sync. Each file's content must be at least as new as the file's last sync.
    fn allows(&self, found: &Model) -> Result<(), Violation> {
        let names = found.names_digest();
        let Some(at) = (self.floor..self.names.len()).find(|at| self.names[*at] == names) else {
            let before = self.names[..self.floor].contains(&names);
            let what = if before { "older than the last sync" } else { "no prefix of what was done" };
            return Err(format!("after a crash the names are {what}"));
        };
        for (id, file) in &found.files {
            if file.kind != FileKind::Regular {
                continue;
            }
            let replaced =
                self.replaced.iter().filter(|(call, file)| *call <= at && file == id).map(|(call, _)| *call);
            let least = replaced.chain(self.synced.get(id).copied()).max().unwrap_or(0);
            let had = self.content.get(id).map_or(&[][..], Vec::as_slice);
            let oldest = had.iter().rposition(|(call, _)| *call <= least).unwrap_or(0);
            if !had[oldest.min(had.len())..].iter().any(|(_, content)| *content == digest(&file.content)) {
                return Err(format!(
                    "after a crash {id} has content that is older than its sync, or that it never had"
                ));
            }
        }
        Ok(())
    }
}

/// The regular file whose content a call may have changed.
fn touched(call: &Call, made: Option<FileId>) -> Option<FileId> {
    match call {
        Call::Create { .. } => made,
        Call::Write(call::Write { file, .. })
        | Call::Allocate(call::Allocate { file, .. })
        | Call::SetAttributes(call::SetAttributes { file, size: Some(_), .. }) => Some(file.clone()),
        _ => None,
    }
}

/// Whether the call may fail for lack of space: only calls that use space may.
fn may_be_full(call: &Call) -> bool {
    matches!(
        call,
        Call::Create { .. }
            | Call::Link { .. }
            | Call::Write { .. }
            | Call::Allocate { .. }
            | Call::SetXattr { .. }
    )
}

fn digest(bytes: &[u8]) -> u64 {
    let mut digest = 0xcbf2_9ce4_8422_2325;
    feed(&mut digest, bytes);
    digest
}
