//! Operations over files of several servers, while machines hold leases and have files open,
//! messages go astray, servers restart and regions move.

use crate::servers::{Said, Servers, Word};
use crate::support::*;
use directory::{Input, Standing};
use ident::{FileId, ServerId};
use lease::{Field, Kind, Lease, SessionId};
use namespace::{Cred, Effect, Error, FileKind, Operation, RenameMode, Replaced, fold, operation};
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, Joint, JointStep, PathLease, PathStep, ToClient, ToServer};

const ROOT: FileId = FileId::root();
const SERVERS: u16 = 4;
const MACHINES: usize = 3;
/// Names in each directory; some differ in case only, and so are leased together.
const LABELS: [&str; 6] = ["a", "A", "b", "B", "c", "d"];

/// All names, as they are after the operations whose results were told.
#[derive(Clone, Debug, Default)]
struct Names {
    dirs: BTreeMap<FileId, BTreeMap<String, FileId>>,
    kinds: BTreeMap<FileId, FileKind>,
}

impl Names {
    fn links(&self, file: &FileId) -> Vec<(FileId, String)> {
        let of = |(dir, names): (&FileId, &BTreeMap<String, FileId>)| {
            let its = names.iter().filter(|(_, of)| *of == file);
            its.map(|(label, _)| (dir.clone(), label.clone())).collect::<Vec<_>>()
        };
        self.dirs.iter().flat_map(of).collect()
    }

    fn is_named(&self, file: &FileId) -> bool {
        *file == ROOT || !self.links(file).is_empty()
    }

    fn is_dir(&self, file: &FileId) -> bool {
        self.kinds.get(file) == Some(&FileKind::Directory)
    }

    fn child(&self, dir: &FileId, label: &str) -> Option<&FileId> {
        self.dirs.get(dir).and_then(|names| names.get(label))
    }

    fn is_empty(&self, dir: &FileId) -> bool {
        self.dirs.get(dir).is_none_or(BTreeMap::is_empty)
    }

    fn is_above(&self, ancestor: &FileId, dir: &FileId) -> bool {
        let mut at = dir.clone();
        loop {
            if at == *ancestor {
                return true;
            }
            match self.links(&at).first() {
                Some((above, _)) => at = above.clone(),
                None => return false,
            }
        }
    }

    /// The refusals of the operation that are right. None: it has to succeed.
    fn refusals(&self, operation: &Operation) -> Vec<Error> {
        let gone = vec![Error::Stale, Error::NotFound];
        match operation {
            Operation::Create(operation::Create { dir, label, .. }) => {
                match self.child(dir, &label.to_string()) {
                    Some(_) => vec![Error::Exists],
                    None if !self.is_named(dir) => gone,
                    None => Vec::new(),
                }
            }
            Operation::Link(operation::Link { file, dir, label, replaced, .. }) => {
                match self.taken(dir, label, replaced.as_deref()) {
                    Err(error) => vec![error],
                    Ok(Some(_)) if replaced.is_none() => vec![Error::Exists],
                    Ok(Some(named)) if named == file => Vec::new(),
                    Ok(Some(named)) if self.is_dir(named) => vec![Error::IsDirectory],
                    Ok(None) if !self.is_named(dir) => gone,
                    _ if self.is_dir(file) => vec![Error::NotPermitted],
                    _ if !self.is_named(file) => [vec![Error::NotPermitted], gone].concat(),
                    _ => Vec::new(),
                }
            }
            Operation::Unlink(operation::Unlink { dir, label, directory, .. }) => {
                match self.child(dir, &label.to_string()) {
                    None if !self.is_named(dir) => gone,
                    None => vec![Error::NotFound],
                    Some(file) if !directory && self.is_dir(file) => vec![Error::IsDirectory],
                    Some(file) if *directory && !self.is_dir(file) => vec![Error::NotDirectory],
                    Some(file) if !self.is_empty(file) => vec![Error::NotEmpty],
                    Some(_) => Vec::new(),
                }
            }
            Operation::Rename(rename) => self.refusals_of_rename(rename),
            other => panic!("{other:?}"),
        }
    }

    fn refusals_of_rename(&self, rename: &operation::Rename) -> Vec<Error> {
        let operation::Rename { from_dir, from, source: meant, to_dir, to, mode, replaced, .. } = rename;
        let gone = vec![Error::Stale, Error::NotFound];
        let source = self.child(from_dir, &from.to_string());
        let is_another = source.is_some_and(|source| meant.as_ref().is_some_and(|meant| meant != source));
        if !self.is_named(from_dir) || !self.is_named(to_dir) {
            // A directory without a name is there as long as a machine has it open.
            return gone.into_iter().chain(is_another.then_some(Error::AnotherFile)).collect();
        }
        let Some(source) = source else { return vec![Error::NotFound] };
        if is_another {
            return vec![Error::AnotherFile];
        }
        let target = match self.taken(to_dir, to, replaced.as_deref()) {
            Err(error) => return vec![error],
            Ok(target) => target,
        };
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return vec![Error::Exists],
            (RenameMode::Exchange, None) => return vec![Error::NotFound],
            (_, Some(target)) if target == source => return Vec::new(),
            _ => {}
        }
        if let (Some(target), false) = (target, *mode == RenameMode::Exchange) {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return vec![Error::NotDirectory],
                (false, true) => return vec![Error::IsDirectory],
                _ => {}
            }
        }
        let goes = |file: &FileId, into: &FileId| {
            (from_dir != to_dir && self.is_dir(file)).then(|| self.is_above(file, into))
        };
        let back = target.filter(|_| *mode == RenameMode::Exchange).and_then(|file| goes(file, from_dir));
        match (goes(source, to_dir), back) {
            (None, None) => {}
            (forth, back) if forth == Some(true) || back == Some(true) => return vec![Error::Invalid],
            _ if mode != &RenameMode::Exchange && target.is_some_and(|target| !self.is_empty(target)) => {
                return vec![Error::NotEmpty];
            }
            _ => return Vec::new(),
        }
        match target.filter(|_| *mode != RenameMode::Exchange) {
            Some(target) if !self.is_empty(target) => vec![Error::NotEmpty],
            _ => Vec::new(),
        }
    }

    /// The file that loses its name to a new one, or has that.
    fn taken(
        &self,
        dir: &FileId,
        label: &lease::Label,
        replaced: Option<&Replaced>,
    ) -> Result<Option<&FileId>, Error> {
        let bound = self.child(dir, &label.to_string());
        let Some(replaced) = replaced else { return Ok(bound) };
        let taken = match bound {
            bound if replaced.label == *label => bound,
            Some(_) => return Err(Error::Exists),
            None => self.child(dir, &replaced.label.to_string()),
        };
        if taken.is_some_and(|file| *file != replaced.file) { Err(Error::AnotherFile) } else { Ok(taken) }
    }

    /// Whether a directory gets another parent.
    fn moves_a_directory(&self, operation: &Operation) -> bool {
        let Operation::Rename(operation::Rename { from_dir, from, to_dir, to, mode, .. }) = operation else {
            return false;
        };
        let is_dir = |dir: &FileId, label: &lease::Label| {
            self.child(dir, &label.to_string()).is_some_and(|file| self.is_dir(file))
        };
        from_dir != to_dir && (is_dir(from_dir, from) || *mode == RenameMode::Exchange && is_dir(to_dir, to))
    }

    /// Takes in that the operation was done. Returns the file that lost a name.
    fn done(&mut self, operation: &Operation, effects: &[Effect]) -> Option<FileId> {
        match operation {
            Operation::Create(operation::Create { dir, label, .. }) => {
                let born = effects.iter().find_map(|effect| match effect {
                    Effect::Birth { file, attributes, .. } => Some((file.clone(), attributes.kind)),
                    _ => None,
                });
                let (file, kind) = born.expect("a create makes a file");
                if kind == FileKind::Directory {
                    self.dirs.insert(file.clone(), BTreeMap::new());
                }
                assert_eq!(self.kinds.insert(file.clone(), kind), None);
                self.bind(dir, label, file)
            }
            Operation::Link(operation::Link { file, dir, label, replaced, .. }) => {
                let taken = self.taken(dir, label, replaced.as_deref()).expect("it was linked").cloned();
                if taken.as_ref() == Some(file) {
                    return None;
                }
                if let Some(replaced) = replaced {
                    self.unbind(dir, &replaced.label);
                }
                self.bind(dir, label, file.clone());
                taken
            }
            Operation::Unlink(operation::Unlink { dir, label, .. }) => self.unbind(dir, label),
            Operation::Rename(operation::Rename { from_dir, from, to_dir, to, mode, replaced, .. }) => {
                let source = self.child(from_dir, &from.to_string()).cloned().expect("it was renamed");
                let target = self.taken(to_dir, to, replaced.as_deref()).expect("it was renamed").cloned();
                if target.as_ref() == Some(&source) {
                    return None;
                }
                match (mode, target.clone()) {
                    (RenameMode::Exchange, Some(target)) => _ = self.bind(from_dir, from, target),
                    _ => _ = self.unbind(from_dir, from),
                }
                if let Some(replaced) = replaced {
                    self.unbind(to_dir, &replaced.label);
                }
                self.bind(to_dir, to, source);
                target.filter(|_| *mode != RenameMode::Exchange)
            }
            other => panic!("{other:?}"),
        }
    }

    fn bind(&mut self, dir: &FileId, label: &lease::Label, file: FileId) -> Option<FileId> {
        self.dirs.get_mut(dir).expect("names are in directories").insert(label.to_string(), file)
    }

    fn unbind(&mut self, dir: &FileId, label: &lease::Label) -> Option<FileId> {
        self.dirs.get_mut(dir).expect("names are in directories").remove(&label.to_string())
    }
}

/// Several servers, and machines with a session at each.
struct Cluster {
    servers: Servers,
    /// By machine, then by server.
    sessions: Vec<Vec<SessionId>>,
    incarnation: u64,
    /// Messages that machines have not heard yet.
    mail: BTreeMap<SessionId, Vec<ToClient>>,
    names: Names,
    /// Machines with files that they have open.
    open: BTreeSet<(usize, FileId)>,
    /// Questions without a result: by server and number.
    asked: BTreeMap<(usize, u64), (usize, Operation)>,
    results: BTreeMap<(usize, u64), Outcome>,
    /// Questions to be asked at another server.
    elsewhere: Vec<(usize, usize, Operation)>,
    /// Whether most operations move directories.
    is_of_directories: bool,
    /// How often each thing happened.
    tally: BTreeMap<String, usize>,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let mut servers = Servers::new(SERVERS, MACHINES as u64, seed);
        let sessions = (0..MACHINES)
            .map(|machine| servers.iter_mut().map(|world| world.open(machine as u64 + 1, 1)).collect())
            .collect();
        let names = Names {
            dirs: BTreeMap::from([(ROOT, BTreeMap::new())]),
            kinds: BTreeMap::from([(ROOT, FileKind::Directory)]),
        };
        let mut cluster = Cluster {
            servers,
            sessions,
            incarnation: 1,
            mail: BTreeMap::new(),
            names,
            open: BTreeSet::new(),
            asked: BTreeMap::new(),
            results: BTreeMap::new(),
            elsewhere: Vec::new(),
            is_of_directories: seed % 2 == 1,
            tally: BTreeMap::new(),
        };
        for label in LABELS {
            cluster.create(0, &ROOT, label, FileKind::Directory);
        }
        for (at, dir) in cluster.names.dirs.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
            let to = ServerId(at as u16 % SERVERS);
            cluster.servers[0].input_unchecked(Input::Delegate { region: dir, to });
            cluster.observe(0);
        }
        for _ in 0..12 {
            cluster.ticks();
        }
        cluster
    }

    fn draw(&mut self, below: usize) -> usize {
        self.servers.draw(below)
    }

    fn counts(&mut self, what: impl Into<String>) {
        *self.tally.entry(what.into()).or_default() += 1;
    }

    fn some_dir(&mut self) -> FileId {
        let at = self.draw(self.names.dirs.len());
        self.names.dirs.keys().nth(at).unwrap().clone()
    }

    fn some_file(&mut self) -> FileId {
        let at = self.draw(self.names.kinds.len());
        self.names.kinds.keys().nth(at).unwrap().clone()
    }

    /// The file that an operation means by a name, if it means one: mostly the one that has it.
    fn some_meant(&mut self, dir: &FileId, name: &str) -> Option<FileId> {
        match (self.draw(4), self.names.child(dir, name).cloned()) {
            (0 | 1, _) => None,
            (2, Some(named)) => Some(named),
            _ => Some(self.some_file()),
        }
    }

    /// The name that goes for a new one: that itself, or its other spelling.
    fn some_replaced(&mut self, dir: &FileId, to: &str) -> Option<Box<Replaced>> {
        let lower = to.to_lowercase();
        let name = match self.draw(3) {
            0 if lower == to => to.to_uppercase(),
            0 => lower,
            _ => to.to_owned(),
        };
        let file = self.some_meant(dir, &name)?;
        Some(Box::new(Replaced { label: label(&name), file }))
    }

    fn some_label(&mut self) -> &'static str {
        LABELS[self.servers.draw(LABELS.len())]
    }

    /// A name that is bound, or any.
    fn some_name(&mut self) -> (FileId, String) {
        let bound: Vec<(FileId, String)> = self
            .names
            .dirs
            .iter()
            .flat_map(|(dir, names)| names.keys().map(|label| (dir.clone(), label.clone())))
            .collect();
        match self.draw(6) {
            0 => (self.some_dir(), self.some_label().to_owned()),
            _ if bound.is_empty() => (ROOT, "a".to_owned()),
            _ => {
                let at = self.draw(bound.len());
                bound[at].clone()
            }
        }
    }

    fn create(&mut self, machine: usize, dir: &FileId, label: &str, kind: FileKind) {
        let Some(at) = self.servers.follow(dir, &self.sessions[machine]) else { return };
        let session = self.sessions[machine][at];
        let operation = self.servers[at].create(session, dir, label, kind, 1);
        self.ask(machine, at, operation);
    }

    /// Has a server do an operation.
    fn ask(&mut self, machine: usize, at: usize, operation: Operation) {
        let session = self.sessions[machine][at];
        let number = self.servers[at].next_number();
        self.asked.insert((at, number), (machine, operation.clone()));
        self.asks(session, at, number, operation);
    }

    fn asks(&mut self, session: SessionId, at: usize, number: u64, operation: Operation) {
        let message = ToServer::Ask { number, operation, wants: Vec::new(), mode: AskMode::Ship };
        self.servers[at].input_unchecked(Input::Message { session, message });
        self.observe(at);
    }

    /// Takes down what a server has just told its clients. A result is what happened at this
    /// moment.
    fn observe(&mut self, at: usize) {
        assert_eq!(self.servers[at].server.misdeeds(), []);
        for (number, result) in std::mem::take(&mut self.servers[at].shipped) {
            self.on_result(at, number, result);
        }
        for machine in 0..MACHINES {
            let session = self.sessions[machine][at];
            for message in self.servers[at].told(session) {
                match message {
                    ToClient::Elsewhere { number, server, .. } => {
                        if let Some((machine, operation)) = self.asked.remove(&(at, number)) {
                            self.elsewhere.push((machine, usize::from(server.0), operation));
                        }
                    }
                    ToClient::Recall { .. } | ToClient::Flush { .. } => {
                        self.mail.entry(session).or_default().push(message);
                    }
                    _ => {}
                }
            }
        }
    }

    fn on_result(&mut self, at: usize, number: u64, result: Outcome) {
        if let Some(before) = self.results.get(&(at, number)) {
            assert_eq!(*before, result, "the result of a question that is asked again");
            return;
        }
        let (_, operation) = self.asked.remove(&(at, number)).expect("a result of no question");
        self.results.insert((at, number), result.clone());
        let refusals = self.names.refusals(&operation);
        let name = match &operation {
            Operation::Rename(operation::Rename { mode, .. }) => format!("{mode:?}"),
            operation => operation.name().to_owned(),
        };
        match result {
            Ok((_, effects)) => {
                assert_eq!(refusals, [], "{operation:?} was done");
                let servers: BTreeSet<Vec<usize>> =
                    effects.iter().map(|effect| self.servers.managers(Effect::file(effect))).collect();
                self.counts(format!("{name} over {}", servers.len()));
                if self.names.moves_a_directory(&operation) {
                    self.counts(format!("moves over {}", servers.len()));
                }
                let lost = self.names.done(&operation, &effects);
                self.is_gone_rightly(lost, &effects);
            }
            Err(Error::CutOff) => self.counts("CutOff"),
            Err(error) => {
                assert!(refusals.contains(&error), "{error:?} for {operation:?} and not {refusals:?}");
                self.counts(format!("{error:?}"));
            }
        }
    }

    /// A file dies with its last name, unless a machine has it open.
    fn is_gone_rightly(&mut self, lost: Option<FileId>, effects: &[Effect]) {
        let nameless = lost.filter(|file| !self.names.is_named(file));
        for effect in effects {
            match effect {
                Effect::Death { file } => {
                    assert_eq!(Some(file), nameless.as_ref());
                    assert!(!self.open.iter().any(|(_, open)| open == file), "{file} is open and dies");
                    self.counts("death");
                }
                Effect::Orphan { file } => {
                    assert_eq!(Some(file), nameless.as_ref());
                    self.counts("orphan");
                }
                _ => {}
            }
        }
        if let Some(file) = nameless {
            self.names.dirs.remove(&file);
            self.names.kinds.remove(&file);
        }
    }

    /// Has a machine answer what a server has asked of it.
    fn hear(&mut self, machine: usize, at: usize) {
        let session = self.sessions[machine][at];
        for message in self.mail.remove(&session).unwrap_or_default() {
            match message {
                ToClient::Recall { leases, .. } => {
                    for released in leases {
                        // A release unasked meanwhile has answered the recall.
                        if !self.is_owed(machine, at, &released.file, &released.field) {
                            continue;
                        }
                        let open = self.open.contains(&(machine, released.file.clone()));
                        let entry = match released.field.is_black_box() {
                            true => returning(released.clone(), open && released.field == Field::Handles),
                            false => releasing(vec![released]).remove(0),
                        };
                        self.logs(session, at, entry);
                    }
                }
                ToClient::Flush { number, .. } => {
                    self.logs(session, at, wire::LogEntry::Flushed { number });
                }
                _ => {}
            }
        }
    }

    fn logs(&mut self, session: SessionId, at: usize, entry: wire::LogEntry) {
        let checks = std::mem::replace(&mut self.servers[at].checks, false);
        self.servers[at].send_log(session, vec![entry], false);
        self.servers[at].checks = checks;
        self.observe(at);
    }

    fn is_owed(&self, machine: usize, at: usize, file: &FileId, field: &Field) -> bool {
        let world = &self.servers[at];
        world.server.leases(world.now, &world.store, file).iter().any(|it| {
            it.machine.0 == machine as u64 + 1
                && it.field == *field
                && matches!(it.standing, Standing::Recalled { .. })
        })
    }

    fn may_open(&self, machine: usize, at: usize, file: &FileId) -> bool {
        let held = self.servers[at].holds(machine as u64 + 1, file, &Field::Handles);
        held.is_some_and(|kind| kind.covers(Kind::Touch))
    }

    /// Takes a lease on anything of a file, and opens it if it may.
    fn holds(&mut self, machine: usize, file: &FileId) {
        let Some(at) = self.servers.follow(file, &self.sessions[machine]) else { return };
        let label = fold(&label(self.some_label()));
        let (field, kind) = match self.draw(8) {
            0 => (Field::Attributes, Kind::Write),
            1 => (Field::Attributes, Kind::Read),
            2 => (Field::Parent, Kind::Read),
            3 => (Field::Child(label), Kind::Write),
            4 => (Field::Children, Kind::Read),
            _ => (Field::Handles, Kind::Touch),
        };
        let is_open = field == Field::Handles;
        let mode = if self.draw(4) == 0 { AskMode::Report } else { AskMode::Lease };
        self.wants(machine, at, want(file, field, kind), mode);
        if is_open && self.may_open(machine, at, file) && self.names.is_named(file) {
            self.open.insert((machine, file.clone()));
        }
    }

    fn wants(&mut self, machine: usize, at: usize, lease: Lease, mode: AskMode) {
        let session = self.sessions[machine][at];
        let (number, operation) = (self.servers[at].next_number(), stat(&lease.file));
        let message = ToServer::Ask { number, operation, wants: vec![lease], mode };
        self.servers[at].input_unchecked(Input::Message { session, message });
        self.observe(at);
    }

    /// Closes a file. Without the lease to say so, the machine asks for it first.
    fn closes(&mut self) {
        let which = self.draw(self.open.len().max(1));
        let Some((machine, file)) = self.open.iter().nth(which).cloned() else { return };
        let Some(at) = self.servers.follow(&file, &self.sessions[machine]) else { return };
        if !self.may_open(machine, at, &file) {
            self.wants(machine, at, want(&file, Field::Handles, Kind::Touch), AskMode::Lease);
        }
        if self.may_open(machine, at, &file) {
            self.open.remove(&(machine, file.clone()));
            let session = self.sessions[machine][at];
            self.logs(session, at, returning(released(&file, Field::Handles, None), false));
        }
    }

    fn works(&mut self) {
        let machine = self.draw(MACHINES);
        let (dir, name) = self.some_name();
        let (to_dir, to) = match self.draw(3) {
            0 => (dir.clone(), self.some_label().to_owned()),
            1 => self.some_name(),
            _ => (self.some_dir(), self.some_label().to_owned()),
        };
        let operation = match self.draw(12) {
            0 | 1 => {
                let kind = if self.draw(4) == 0 { FileKind::Directory } else { FileKind::Regular };
                let label = self.some_label();
                return self.create(machine, &dir, label, kind);
            }
            2 | 3 => unlink(&dir, &name, false),
            4 => Operation::Unlink(operation::Unlink {
                dir,
                label: label(&name),
                directory: true,
                open: false,
                cred: Cred::default(),
                time: at(20),
                pending: None,
            }),
            5 | 6 => {
                let named = self.names.child(&dir, &name).cloned();
                let file = match named {
                    Some(file) if !self.names.is_dir(&file) => file,
                    _ => self.some_file(),
                };
                let replaced = self.some_replaced(&to_dir, &to);
                match link(&file, &to_dir, &to) {
                    Operation::Link(link) => Operation::Link(operation::Link { replaced, ..link }),
                    other => other,
                }
            }
            number => {
                let mode = match number {
                    7 => RenameMode::NoReplace,
                    8 => RenameMode::Exchange,
                    _ => RenameMode::Replace,
                };
                let source = self.some_meant(&dir, &name);
                let replaced = self.some_replaced(&to_dir, &to).filter(|_| mode == RenameMode::Replace);
                match renames(&dir, &name, &to_dir, &to, mode) {
                    Operation::Rename(rename) => {
                        Operation::Rename(operation::Rename { source, replaced, ..rename })
                    }
                    other => other,
                }
            }
        };
        let leading = operation.leading_file().clone();
        let Some(at) = self.servers.follow(&leading, &self.sessions[machine]) else { return };
        self.ask(machine, at, operation);
    }

    /// The same on directories alone, most of which get another parent.
    fn moves_directories(&mut self) {
        let machine = self.draw(MACHINES);
        let ((dir, name), to_dir, to) = (self.some_name(), self.some_dir(), self.some_label());
        let mode = if self.draw(4) == 0 { RenameMode::Exchange } else { RenameMode::Replace };
        match self.draw(8) {
            0 | 1 => self.create(machine, &to_dir, to, FileKind::Directory),
            _ => {
                let Some(at) = self.servers.follow(&to_dir, &self.sessions[machine]) else { return };
                self.ask(machine, at, renames(&dir, &name, &to_dir, to, mode));
            }
        }
    }

    fn step(&mut self) {
        let at = self.draw(self.servers.len());
        match self.draw(20) {
            0 | 1 if self.is_of_directories => self.moves_directories(),
            0..=3 => self.works(),
            4 | 14 => {
                let (machine, file) = (self.draw(MACHINES), self.some_file());
                self.holds(machine, &file);
            }
            5 if self.draw(6) == 0 => self.closes(),
            6 if self.draw(4) == 0 => {
                let (region, to) = (self.some_file(), ServerId(self.draw(self.servers.len()) as u16));
                self.servers[at].input_unchecked(Input::Delegate { region, to });
                self.observe(at);
            }
            7 if self.draw(4) == 0 => {
                self.servers.restart(at);
                self.observe(at);
            }
            8 if self.draw(8) == 0 => self.starts_anew(at),
            9 => self.asks_again(),
            10 => self.goes_on(),
            11 | 12 => {
                self.servers[at].now = self.servers[at].now.after_ms(100);
                self.servers[at].input_unchecked(Input::Tick);
                self.observe(at);
            }
            13 => {
                let machine = self.draw(MACHINES);
                self.hear(machine, at);
            }
            _ => {
                if let Some(said) = self.servers.draws_said() {
                    let at = self.servers.deliver(said);
                    self.observe(at);
                }
            }
        }
        self.servers.collects(true);
        let leases = self.servers.path_leases_are_right();
        *self.tally.entry("path leases".to_owned()).or_default() += leases;
    }

    /// Questions go on to the servers that have their files.
    fn goes_on(&mut self) {
        for (machine, at, operation) in std::mem::take(&mut self.elsewhere) {
            self.ask(machine, at, operation);
        }
    }

    /// A question is asked once more, whether it has a result or not.
    fn asks_again(&mut self) {
        let count = self.asked.len();
        let which = self.draw(count.max(1));
        let Some(((at, number), (machine, operation))) = self.asked.iter().nth(which) else { return };
        let (at, number, session, operation) =
            (*at, *number, self.sessions[*machine][*at], operation.clone());
        self.asks(session, at, number, operation);
    }

    /// A machine's session at a server ends, and another begins.
    fn starts_anew(&mut self, at: usize) {
        let machine = self.draw(MACHINES);
        let session = self.sessions[machine][at];
        self.servers[at].input_unchecked(Input::Message { session, message: ToServer::Goodbye });
        // Files that it had open there may die in this very turn.
        let servers = &self.servers;
        self.open.retain(|(of, file)| *of != machine || servers.managers(file) != [at]);
        self.observe(at);
        self.mail.remove(&session);
        self.asked.retain(|(server, _), (asker, _)| *server != at || *asker != machine);
        self.incarnation += 1;
        let incarnation = self.incarnation;
        let checks = std::mem::replace(&mut self.servers[at].checks, false);
        self.sessions[machine][at] = self.servers[at].open(machine as u64 + 1, incarnation);
        self.servers[at].checks = checks;
    }

    /// Time passes, and everything arrives.
    fn ticks(&mut self) {
        for at in 0..self.servers.len() {
            self.servers[at].now = self.servers[at].now.after_ms(100);
            self.servers[at].input_unchecked(Input::Tick);
            self.observe(at);
            (0..MACHINES).for_each(|machine| self.hear(machine, at));
        }
        self.goes_on();
        self.servers.collects(false);
        for said in self.servers.takes_all() {
            let at = self.servers.deliver(said);
            self.observe(at);
            (0..MACHINES).for_each(|machine| self.hear(machine, at));
        }
    }

    fn check(&self) {
        self.servers.iter().for_each(World::check);
    }

    /// Everything goes on until nothing is left to do. Every operation has ended by then.
    fn settles(&mut self) {
        for _ in 0..2000 {
            self.ticks();
            self.closes();
            let waits = self.servers.iter().any(|world| world.server.anybody_waits());
            if !waits && self.asked.is_empty() && self.elsewhere.is_empty() && self.open.is_empty() {
                break;
            }
        }
        assert!(self.asked.is_empty(), "these do not end: {:#?}", self.asked);
        assert!(!self.servers.iter().any(|world| world.server.has_joint_operations()));
        (0..20).for_each(|_| self.ticks());
        self.check();
        self.agree();
    }

    /// All servers together have the names whose making was told, and no other file.
    fn agree(&self) {
        let mut files = 0;
        for (file, kind) in &self.names.kinds {
            let at = self.servers.managers(file);
            let [at] = at[..] else { panic!("{file} has {} servers", at.len()) };
            let world = &self.servers[at];
            let found = world.server.found(&world.store, file).unwrap();
            let found = found.unwrap_or_else(|| panic!("{file} is no more"));
            assert_eq!(found.attributes.kind, *kind);
            let links = world.server.links(&world.store, file).unwrap().unwrap();
            let links: BTreeSet<(FileId, String)> =
                links.into_iter().map(|link| (link.dir, link.label.to_string())).collect();
            assert_eq!(links, self.names.links(file).into_iter().collect(), "links of {file}");
            let count = if *file == ROOT { 1 } else { links.len() };
            assert_eq!(found.attributes.links as usize, count, "the number of links of {file}");
            files += 1;
        }
        for (dir, names) in &self.names.dirs {
            let world = &self.servers[self.servers.managers(dir)[0]];
            let entries = world.server.entries(&world.store, dir, 0, usize::MAX).unwrap();
            let found: BTreeMap<String, FileId> =
                entries.into_iter().map(|(label, entry)| (label.to_string(), entry.file)).collect();
            assert_eq!(found, *names, "names in {dir}");
        }
        let counted: u64 = self.servers.iter().map(|world| world.server.status(world.now).files).sum();
        assert_eq!(counted, files, "files in all");
    }
}

pub fn link(file: &FileId, dir: &FileId, name: &str) -> Operation {
    Operation::Link(operation::Link {
        file: file.clone(),
        dir: dir.clone(),
        label: label(name),
        position: 1,
        cred: Cred::default(),
        time: at(25),
        replaced: None,
        open: false,
    })
}

pub fn renames(from_dir: &FileId, from: &str, to_dir: &FileId, to: &str, mode: RenameMode) -> Operation {
    match rename(from_dir, from, to_dir, to, 1) {
        Operation::Rename(rename) => Operation::Rename(operation::Rename { mode, ..rename }),
        other => other,
    }
}

fn name_of(step: &PathStep) -> &'static str {
    match step {
        PathStep::Ask { .. } => "ask",
        PathStep::Issued { .. } => "issued",
        PathStep::Gone => "path gone",
        PathStep::NotHere { .. } => "path not here",
        PathStep::Recall => "recall",
        PathStep::Released => "released",
    }
}

#[test]
fn operations_over_several_servers_happen_once_or_not_at_all() {
    let (mut tally, mut said): (BTreeMap<String, usize>, BTreeMap<&str, usize>) = Default::default();
    for seed in 0..64 {
        let mut cluster = Cluster::new(seed);
        for at in 0..600 {
            cluster.step();
            if at % 16 == 0 {
                cluster.check();
            }
        }
        cluster.settles();
        cluster.tally.into_iter().for_each(|(what, times)| *tally.entry(what).or_default() += times);
        for Said { what, .. } in &cluster.servers.said {
            let step = match what {
                Word::Joint(Joint { step, .. }) => step,
                Word::Path(PathLease { step, .. }) => {
                    *said.entry(name_of(step)).or_default() += 1;
                    continue;
                }
                Word::HandOver(_) => continue,
            };
            let name = match step {
                JointStep::Borrow { .. } => "borrow",
                JointStep::Lent { .. } => "lent",
                JointStep::Gone { .. } => "gone",
                JointStep::NotHere { .. } => "not here",
                JointStep::Wounded => "wounded",
                JointStep::Settle { .. } => "settle",
                JointStep::Settled => "settled",
            };
            *said.entry(name).or_default() += 1;
        }
    }
    let times = |what: &str| tally.get(what).copied().unwrap_or_default();
    for what in ["unlink", "link", "Replace", "NoReplace", "Exchange"] {
        assert!(times(&format!("{what} over 2")) >= 10, "{what}: {tally:#?}");
    }
    assert!(times("Replace over 3") >= 20 && times("Exchange over 3") >= 20, "{tally:#?}");
    assert!(times("death") >= 20 && times("orphan") >= 5, "{tally:#?}");
    assert_eq!(times("CutOff"), 0, "nothing waits long once messages flow");
    println!("{tally:?} {said:?}");
    assert!(
        times("moves over 3") >= 20 && times("Invalid") >= 20 && times("path leases") >= 1000,
        "{tally:#?}"
    );
    assert!(times("AnotherFile") >= 20, "{tally:#?}");
    for step in ["ask", "issued", "path not here", "recall", "released"] {
        assert!(said.get(step).is_some_and(|times| *times >= 20), "{said:#?}");
    }
    for step in ["borrow", "lent", "not here", "wounded", "settle", "settled"] {
        assert!(said.get(step).is_some_and(|times| *times >= 20), "{said:#?}");
    }
}
