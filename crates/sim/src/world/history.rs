//! The history: calls, their answers, and the server's updates in the server's order.
//!
//! Every reading of a machine's clocks has a number of its own, which is also the time in the
//! stamps of files. So an applied update names its call, and any two events have a known order. The
//! server's order gives each register its *versions*. A register is a label, the owner and mode of
//! a file, or its content. Every answer must show one of the versions, at the right time
//! ([`super::checks`]).

use super::checks::inodes::Inodes;
use crate::host::Violation;
use bytes::Bytes;
use client::{Call, LostWhat, call};
use ident::FileId;
use lease::{Label, SessionId};
use namespace::{
    ContentChange, Effect, Error, Extent, FileKind, Operation, POLICY_LABEL, Place, RenameMode, Spread,
    Timestamp, operation,
};
use rustc_hash::FxHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::ops::RangeInclusive;

/// A part of a machine's work that may be lost as one: a session, or less if the machine crashes.
pub(super) type Life = usize;

/// The number of a call.
pub(super) type CallNumber = usize;

/// A register: it has one value at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    /// The binding of a label.
    Name(FileId, Label),
    /// Owner and mode.
    Attributes(FileId),
    /// The policy for the spread of content: of a file, or of new files in a directory.
    Policy(FileId),
    /// Content.
    Content(FileId),
}

/// A value of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Bound to nothing.
    Unbound,
    Bound(FileId),
    Attributes(u32, u16),
    Policy(Option<Vec<u8>>),
    /// Length and hash.
    Content(u64, u64),
}

/// A register's value as an answer shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// This value.
    Value(Value),
    /// Bound to some file.
    Bound,
    /// The length of the content.
    Length(u64),
}

impl Seen {
    /// Whether an answer may show this of a register with this value.
    pub fn fits(&self, value: &Value) -> bool {
        match (self, value) {
            (Seen::Value(seen), value) => seen == value,
            (Seen::Bound, value) => matches!(value, Value::Bound(_)),
            (Seen::Length(seen), Value::Content(length, _)) => seen == length,
            (Seen::Length(_), _) => false,
        }
    }
}

/// A value that a register had, and the call that gave it (none at the beginning).
#[derive(Clone, Debug)]
pub(super) struct RegisterVersion {
    pub value: Value,
    pub by: Option<CallNumber>,
}

/// A call. Times are numbers of readings of clocks.
#[derive(Clone, Debug)]
pub(super) struct Called {
    pub life: Life,
    pub call: Call,
    pub begun: u64,
    /// The answer that the call was done; `u64::MAX` before that, and for ever if the outcome stays
    /// unknown.
    pub done: u64,
    /// The answer that the outcome is unknown. No part of the call is decided later than that.
    /// `u64::MAX` without such an answer.
    given_up: u64,
    /// The time of the answer that it was done, ms.
    pub when: u64,
    /// The answer was a refusal.
    pub refused: bool,
    /// The server has done the call.
    pub applied: bool,
    /// The server did the call before the client answered: it was shipped, or in write-through.
    pub shipped: bool,
    /// The file that the call made.
    made: Option<FileId>,
}

/// A register's value in an answer.
#[derive(Clone, Debug)]
pub(super) struct Observation {
    pub key: Key,
    pub seen: Seen,
    pub begun: u64,
    pub ended: u64,
    pub life: Life,
    pub at: usize,
}

/// A directory's modification time in an answer, as a reading of clocks.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub dir: FileId,
    pub modified: u64,
    pub begun: u64,
    pub life: Life,
}

/// A file's content at the server, and the writes that are not published.
#[derive(Clone, Debug, Default)]
struct Written {
    bytes: Vec<u8>,
    unpublished: BTreeMap<Life, Vec<CallNumber>>,
}

/// All calls, answers and versions of a run.
#[derive(Debug, Default)]
pub(super) struct History {
    ticks: u64,
    /// By life: its machine, and whether it has ended.
    pub lives: Vec<(usize, bool)>,
    /// Lives that ended with every update applied: none may be lost.
    pub whole: BTreeSet<Life>,
    sessions: BTreeMap<SessionId, Life>,
    pub calls: Vec<Called>,
    /// Updates without a known result: neither applied nor refused.
    open: BTreeMap<Life, BTreeSet<CallNumber>>,
    pub registers: BTreeMap<Key, Vec<RegisterVersion>>,
    pub observations: Vec<Observation>,
    /// Directories' times in answers.
    pub looks: Vec<Look>,
    contents: BTreeMap<FileId, Written>,
    /// Operations that servers were asked to do and have not done.
    asked: BTreeMap<(SessionId, u64), Operation>,
    ships: BTreeSet<(SessionId, u64)>,
    /// The index up to which each session's log has been applied.
    up_to: BTreeMap<SessionId, u64>,
    /// The directories in which a file has names, once for each name. Then the names removed since
    /// the last input but one, and every directory in which a file ever had a name.
    pub parents: BTreeMap<FileId, Vec<FileId>>,
    pub left: Vec<(FileId, FileId)>,
    pub ever: BTreeMap<FileId, BTreeSet<FileId>>,
    /// Answered calls, in the order of their answers.
    pub order: Vec<CallNumber>,
    pub inodes: Inodes,
    /// Number of files with a policy from their directory, and of publications that follow a
    /// policy.
    pub inherited: u64,
    pub spread: u64,
}

impl History {
    /// A new number for a reading of clocks.
    pub fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    /// Begins a new life: the machine's updates that are not applied yet may be lost.
    pub fn new_life(&mut self, at: usize) -> Life {
        self.lives.iter_mut().filter(|(of, _)| *of == at).for_each(|(_, over)| *over = true);
        self.lives.push((at, false));
        self.lives.len() - 1
    }

    /// Begins the life after an orderly end: the earlier updates may still be applied.
    pub fn next_life(&mut self, at: usize) -> Life {
        self.lives.push((at, false));
        self.lives.len() - 1
    }

    /// Ends a life: its updates that are not applied will not be.
    pub fn is_over(&mut self, life: Life) {
        self.lives.get_mut(life).into_iter().for_each(|(_, over)| *over = true);
    }

    /// Marks a life of which every update is applied. None may be lost from now on.
    pub fn is_whole(&mut self, life: Life) {
        self.whole.insert(life);
    }

    /// Messages of this session belong to this life.
    pub fn begins(&mut self, session: SessionId, life: Life) {
        self.sessions.insert(session, life);
    }

    pub fn called(&mut self, life: Life, call: Call, begun: u64) -> CallNumber {
        let number = self.calls.len();
        if is_update(&call) {
            self.open.entry(life).or_default().insert(number);
        }
        let (done, given_up, refused, made) = (u64::MAX, u64::MAX, false, None);
        let (applied, shipped, when) = (false, false, 0);
        self.calls.push(Called { life, call, begun, done, given_up, when, refused, applied, shipped, made });
        number
    }

    /// A call that has done nothing begins again in this life.
    pub fn begins_again(&mut self, number: CallNumber, life: Life) {
        let Some(called) = self.calls.get_mut(number) else { return };
        let before = std::mem::replace(&mut called.life, life);
        if self.open.get_mut(&before).is_some_and(|open| open.remove(&number)) {
            self.open.entry(life).or_default().insert(number);
        }
    }

    /// Whether `call` does the same as that call, so that an operation could be of either.
    pub fn is_like(&self, number: CallNumber, call: &Call) -> bool {
        let same = |called: &Called| {
            std::mem::discriminant(&called.call) == std::mem::discriminant(call)
                && changes(&called.call) == changes(call)
        };
        is_update(call) && self.calls.get(number).is_some_and(same)
    }

    /// The call was done, and made this file.
    pub fn done(&mut self, number: CallNumber, now: u64, when: u64, made: Option<FileId>) {
        let Some(called) = self.calls.get_mut(number) else { return };
        (called.done, called.when, called.made) = (now, when, made.clone());
        self.order.push(number);
        let life = called.life;
        let (Call::Write(call::Write { file, .. })
        | Call::SetAttributes(call::SetAttributes { file, size: Some(_), .. })) = &called.call
        else {
            return;
        };
        if called.applied {
            // The change was in write-through.
            return;
        }
        let written = self.contents.entry(file.clone()).or_default();
        written.unpublished.entry(life).or_default().push(number);
    }

    /// The call was answered, with an unknown outcome.
    pub fn given_up(&mut self, number: CallNumber, now: u64) {
        if let Some(called) = self.calls.get_mut(number) {
            called.given_up = now;
        }
    }

    /// The call was refused, so it was not done.
    pub fn refused(&mut self, number: CallNumber, error: Error) -> Result<(), Violation> {
        let Some(called) = self.calls.get_mut(number) else { return Ok(()) };
        if called.applied {
            return Err(format!("{:?} was refused ({error}), and was done", called.call));
        }
        called.refused = true;
        if let Some(open) = self.open.get_mut(&called.life) {
            open.remove(&number);
        }
        Ok(())
    }

    /// The server has refused an update of this life, and the machine knows.
    pub fn turned_down(&mut self, life: Life, lost: &LostWhat, file: &FileId) {
        let calls = &mut self.calls;
        match lost {
            LostWhat::Operation { operation, .. } if !matches!(**operation, Operation::Publish { .. }) => {
                let tick = operation.time().map_or(0, tick_of);
                let is_it = |called: &&mut Called| {
                    called.life == life && called.done == tick && is_of(operation, called)
                };
                calls.iter_mut().filter(is_it).for_each(|called| called.refused = true);
                // The machine's writes to a file that it then removed went with the file.
                if let Operation::Unlink(operation::Unlink { dir, label, .. }) = &**operation
                    && let Some(Value::Bound(removed)) = self.now(&Key::Name(dir.clone(), label.clone()))
                {
                    self.lose_written(life, &removed);
                }
            }
            _ => self.lose_written(life, file),
        }
    }

    fn lose_written(&mut self, life: Life, file: &FileId) {
        let written = self.contents.get_mut(file);
        let numbers = written.and_then(|written| written.unpublished.remove(&life));
        for number in numbers.unwrap_or_default() {
            if let Some(called) = self.calls.get_mut(number) {
                called.refused = true;
            }
        }
    }

    pub fn observe(&mut self, number: CallNumber, key: Key, seen: Seen, ended: u64) {
        let Some(called) = self.calls.get(number) else { return };
        let (begun, life) = (called.begun, called.life);
        let at = self.lives.get(life).map_or(0, |(at, _)| *at);
        self.observations.push(Observation { key, seen, begun, ended, life, at });
    }

    /// The answer shows when a directory was modified.
    pub fn look(&mut self, number: CallNumber, dir: &FileId, modified: u64) {
        let Some(called) = self.calls.get(number) else { return };
        let (begun, life) = (called.begun, called.life);
        self.looks.push(Look { dir: dir.clone(), modified, begun, life });
    }

    /// The entries of a session's log that are applied now and were not before.
    pub fn fresh(&mut self, session: SessionId, up_to: u64) -> RangeInclusive<u64> {
        let known = self.up_to.entry(session).or_default();
        let before = std::mem::replace(known, up_to.max(*known));
        before + 1..=up_to
    }

    /// A client ships an operation.
    pub fn asked(&mut self, session: SessionId, number: u64, operation: Operation) {
        if self.ships.insert((session, number)) {
            self.asked.insert((session, number), operation);
        }
    }

    /// The server has done what it was asked to.
    pub fn shipped(&mut self, session: SessionId, number: u64, effects: &[Effect]) -> Result<(), Violation> {
        // A result that is told again is of what was done before.
        let Some(operation) = self.asked.remove(&(session, number)) else { return Ok(()) };
        if !operation.is_update() {
            return Ok(());
        }
        let call = self.find(session, &operation, false)?;
        let moved = |effect: &Effect| match (effect, &operation) {
            (Effect::Bind { dir, label, entry }, Operation::Rename(operation::Rename { to_dir, to, .. }))
                if (dir, label) == (to_dir, to) =>
            {
                Some(entry.file.clone())
            }
            _ => None,
        };
        if let Some(moved) = effects.iter().find_map(moved) {
            self.check_rename(call, &operation, &moved)?;
        }
        for effect in effects {
            match effect {
                Effect::Bind { dir, label, entry } => {
                    self.version(
                        Key::Name(dir.clone(), label.clone()),
                        Value::Bound(entry.file.clone()),
                        call,
                    );
                }
                Effect::Unbind { dir, label } => {
                    self.version(Key::Name(dir.clone(), label.clone()), Value::Unbound, call);
                }
                Effect::Birth { file, attributes, .. } => {
                    let Operation::Create(operation::Create { dir, .. }) = &operation else { continue };
                    self.born(file, dir, attributes.kind, (attributes.uid, attributes.mode), call);
                }
                Effect::Xattr { file, value, .. } if is_policy_of(effect, file) => {
                    let (key, value) = (Key::Policy(file.clone()), Value::Policy(value.clone()));
                    let born = matches!(operation, Operation::Create { .. });
                    if born && self.now(&key) != Some(value.clone()) {
                        return Err(format!(
                            "{file} was born with {value:?}, and not as its directory has it"
                        ));
                    }
                    if !born {
                        self.version(key, value, call);
                    }
                }
                Effect::Attributes { file, attributes } => {
                    let value = Value::Attributes(attributes.uid, attributes.mode);
                    if self.now(&Key::Attributes(file.clone())).is_some_and(|before| before != value) {
                        self.version(Key::Attributes(file.clone()), value, call);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The server has applied an update of a client's log.
    pub fn applied(&mut self, session: SessionId, operation: &Operation) -> Result<(), Violation> {
        match operation {
            Operation::Accessed { .. } | Operation::Dispose { .. } => return Ok(()),
            Operation::Publish(operation::Publish { file, mtime, change, .. }) => {
                self.published(session, file, tick_of(*mtime));
                return self.check_spread(file, change);
            }
            _ => {}
        }
        let call = self.find(session, operation, true)?;
        match operation {
            Operation::Create(operation::Create { dir, label, new, cred, .. }) => {
                self.version(Key::Name(dir.clone(), label.clone()), Value::Bound(new.file.clone()), call);
                self.born(&new.file, dir, new.spec.kind, (cred.uid, new.spec.mode & !new.spec.umask), call);
            }
            Operation::Link(operation::Link { file, dir, label, .. }) => {
                self.version(Key::Name(dir.clone(), label.clone()), Value::Bound(file.clone()), call);
            }
            Operation::Unlink(operation::Unlink { dir, label, .. }) => {
                self.version(Key::Name(dir.clone(), label.clone()), Value::Unbound, call);
            }
            Operation::Rename(operation::Rename {
                from_dir,
                from,
                to_dir,
                to,
                mode: RenameMode::Replace,
                ..
            }) => {
                let (from, to) =
                    (Key::Name(from_dir.clone(), from.clone()), Key::Name(to_dir.clone(), to.clone()));
                let moved = self.now(&from).unwrap_or(Value::Unbound);
                // Two labels of one file: the rename does nothing.
                if self.now(&to).as_ref() != Some(&moved) {
                    if let Value::Bound(moved) = &moved {
                        self.check_rename(call, operation, moved)?;
                    }
                    self.version(from, Value::Unbound, call);
                    self.version(to, moved, call);
                }
            }
            Operation::SetAttributes(operation::SetAttributes { file, change, .. }) => {
                let key = Key::Attributes(file.clone());
                if let Some(Value::Attributes(uid, mode)) = self.now(&key) {
                    let value = Value::Attributes(change.uid.unwrap_or(uid), change.mode.unwrap_or(mode));
                    self.version(key, value, call);
                }
            }
            Operation::SetXattr(operation::SetXattr { file, value, .. }) => {
                self.version(Key::Policy(file.clone()), Value::Policy(Some(value.clone())), call);
            }
            Operation::RemoveXattr(operation::RemoveXattr { file, .. }) => {
                self.version(Key::Policy(file.clone()), Value::Policy(None), call);
            }
            other => return Err(format!("nobody was to do {other:?}")),
        }
        Ok(())
    }

    /// Checks a rename of `moved` by the server, before its versions are noted.
    fn check_rename(&self, call: CallNumber, operation: &Operation, moved: &FileId) -> Result<(), Violation> {
        let Operation::Rename(operation::Rename { to_dir, to, .. }) = operation else { return Ok(()) };
        match self.now(&Key::Name(to_dir.clone(), to.clone())) {
            Some(Value::Bound(replaced)) if replaced != *moved => self.check_replaced(call, moved),
            _ => Ok(()),
        }
    }

    /// Writes to `file` in this life that are not at the server.
    pub fn unpublished(&self, file: &FileId, life: Life) -> &[CallNumber] {
        let written = self.contents.get(file).and_then(|written| written.unpublished.get(&life));
        written.map_or(&[], Vec::as_slice)
    }

    /// Adds a new file's first versions: this owner and mode, and the policy of the directory
    /// `above`, if the file may have one.
    fn born(
        &mut self,
        file: &FileId,
        dir: &FileId,
        kind: FileKind,
        (uid, mode): (u32, u16),
        call: CallNumber,
    ) {
        self.version(Key::Attributes(file.clone()), Value::Attributes(uid, mode), call);
        let passed_on = matches!(kind, FileKind::Regular | FileKind::Directory);
        let policy = passed_on.then(|| self.now(&Key::Policy(dir.clone()))).flatten();
        let policy = policy.unwrap_or(Value::Policy(None));
        self.inherited += u64::from(policy != Value::Policy(None));
        self.version(Key::Policy(file.clone()), policy, call);
        self.version(Key::Content(file.clone()), content(&[]), call);
    }

    /// Checks that content is spread as usual, or by a policy that the file had.
    fn check_spread(&mut self, file: &FileId, change: &ContentChange) -> Result<(), Violation> {
        let ContentChange::Extents { put, .. } = change else { return Ok(()) };
        let had = self.registers.get(&Key::Policy(file.clone())).into_iter().flatten();
        let had = had.flat_map(|version| match &version.value {
            Value::Policy(Some(policy)) => match Spread::of_policy(Some(policy)) {
                // Content too short for a code is kept in copies.
                code @ Spread::Code { parity, .. } => vec![code, Spread::Copies(parity + 1)],
                spread => vec![spread],
            },
            _ => Vec::new(),
        });
        let had: Vec<Spread> = had.chain([Spread::Usual]).collect();
        let spread = |extent: &Extent| match extent.piece.place {
            Place::Share { share, .. } => Some(share.spread()),
            Place::Inline(_) => None,
        };
        let spreads: Vec<Spread> = put.iter().filter_map(spread).collect();
        self.spread += u64::from(spreads.iter().any(|spread| *spread != Spread::Usual));
        match spreads.into_iter().find(|spread| !had.contains(spread)) {
            Some(spread) => {
                Err(format!("content of {file} is spread as {spread}, and its policies were {had:?}"))
            }
            None => Ok(()),
        }
    }

    /// The server has the content that the client had at this reading of its clocks.
    fn published(&mut self, session: SessionId, file: &FileId, tick: u64) {
        let Some(life) = self.sessions.get(&session) else { return };
        // A write in write-through is published before its caller is answered; then no other write
        // of the file is unpublished.
        let under_way = |number: &&CallNumber| {
            self.calls.get(**number).is_some_and(|called| {
                matches!(&called.call, Call::Write(call::Write { file: of, .. }) if of == file)
                    && (called.begun..called.done.min(called.given_up)).contains(&tick)
            })
        };
        let up_to = self.open.get(life).and_then(|open| open.iter().rev().find(under_way).copied());
        let calls = &mut self.calls;
        let written = self.contents.entry(file.clone()).or_default();
        let unpublished = written.unpublished.entry(*life).or_default();
        let last =
            unpublished.iter().rposition(|number| calls.get(*number).is_some_and(|it| it.done == tick));
        let published: Vec<CallNumber> = match (last, up_to) {
            (Some(last), _) => unpublished.drain(..=last).collect(),
            (None, Some(up_to)) => {
                calls.get_mut(up_to).into_iter().for_each(|called| called.shipped = true);
                vec![up_to]
            }
            (None, None) => return,
        };
        let mut versions = Vec::new();
        for number in published {
            if let Some(called) = calls.get_mut(number).filter(|called| !called.applied) {
                called.applied = true;
                change(&mut written.bytes, &called.call);
                versions.push(RegisterVersion { value: content(&written.bytes), by: Some(number) });
            }
        }
        self.registers.entry(Key::Content(file.clone())).or_default().extend(versions);
    }

    /// The call that an update is of. If `here`, the client did the call and answered at once.
    fn find(
        &mut self,
        session: SessionId,
        operation: &Operation,
        here: bool,
    ) -> Result<CallNumber, Violation> {
        let tick = operation.time().map_or(0, tick_of);
        let life = self.sessions.get(&session).copied();
        let open = life.and_then(|life| self.open.get_mut(&life));
        let calls = &mut self.calls;
        let is_it = |number: &&CallNumber| {
            calls.get(**number).is_some_and(|called| {
                let then = match here {
                    true => called.done == tick,
                    false => (called.begun..=called.done.min(called.given_up)).contains(&tick),
                };
                then && is_of(operation, called)
            })
        };
        let found = open.as_ref().and_then(|open| open.iter().find(is_it).copied());
        let (Some(number), Some(open)) = (found, open) else {
            return Err(format!(
                "{session:?} (life {life:?}) did what nobody called for, or twice: {operation:?}"
            ));
        };
        open.remove(&number);
        if let Some(called) = calls.get_mut(number) {
            (called.applied, called.shipped) = (true, !here);
        }
        Ok(number)
    }

    fn version(&mut self, key: Key, value: Value, by: CallNumber) {
        let versions = self.registers.entry(key.clone()).or_default();
        if versions.is_empty()
            && let Some(value) = at_first(&key)
        {
            versions.push(RegisterVersion { value, by: None });
        }
        if let Key::Name(dir, _) = &key {
            if let Some(RegisterVersion { value: Value::Bound(file), .. }) = versions.last() {
                let parents = self.parents.entry(file.clone()).or_default();
                parents.iter().position(|parent| parent == dir).map(|at| parents.swap_remove(at));
                self.left.push((file.clone(), dir.clone()));
            }
            if let Value::Bound(file) = &value {
                self.parents.entry(file.clone()).or_default().push(dir.clone());
                self.ever.entry(file.clone()).or_default().insert(dir.clone());
            }
        }
        versions.push(RegisterVersion { value, by: Some(by) });
    }

    /// The value that a register has at the server.
    pub fn now(&self, key: &Key) -> Option<Value> {
        self.registers.get(key).and_then(|versions| versions.last()).map(|version| version.value.clone())
    }

    /// Files without a name: writes to them are not missed.
    pub fn nameless(&self) -> BTreeSet<FileId> {
        let bound = |versions: &Vec<RegisterVersion>| {
            versions
                .iter()
                .filter_map(|version| match &version.value {
                    Value::Bound(file) => Some(file.clone()),
                    _ => None,
                })
                .collect::<Vec<FileId>>()
        };
        let names = self.registers.iter().filter(|(key, _)| matches!(key, Key::Name(..)));
        let ever: BTreeSet<FileId> = names.clone().flat_map(|(_, versions)| bound(versions)).collect();
        let now: BTreeSet<FileId> = names
            .filter_map(|(key, _)| match self.now(key) {
                Some(Value::Bound(file)) => Some(file),
                _ => None,
            })
            .collect();
        ever.difference(&now).cloned().collect()
    }

    /// Updates that were done on machines, in the order of their answers, unless only nameless
    /// files had them.
    pub fn updates(&self) -> impl Iterator<Item = &Called> {
        let nameless = self.nameless();
        let missed = move |called: &&Called| {
            let of_nameless = |key| matches!(key, Key::Content(file) | Key::Attributes(file) | Key::Policy(file) if nameless.contains(&file));
            !called.changes().into_iter().all(of_nameless)
        };
        let done = self.order.iter().filter_map(|number| self.calls.get(*number));
        let done = done.filter(|called| !called.refused);
        done.filter(|called| is_update(&called.call)).filter(missed)
    }

    /// Such updates that the server has not done.
    pub fn missing(&self) -> impl Iterator<Item = &Called> {
        self.updates().filter(|called| !called.applied)
    }

    /// The number of updates that were done on machines and lost.
    pub fn lost(&self) -> u64 {
        self.missing().count() as u64
    }
}

impl Called {
    /// The registers that the call changes, if it is done.
    pub fn changes(&self) -> Vec<Key> {
        let of_made = |file: &FileId| {
            [Key::Attributes(file.clone()), Key::Policy(file.clone()), Key::Content(file.clone())]
        };
        let made = self.made.iter().filter(|_| matches!(self.call, Call::Create { .. }));
        changes(&self.call).into_iter().chain(made.flat_map(of_made)).collect()
    }
}

/// A register's value before any change, if it exists from the beginning: every label, and the
/// root's policy.
pub(super) fn at_first(key: &Key) -> Option<Value> {
    match key {
        Key::Name(..) => Some(Value::Unbound),
        Key::Policy(file) if *file == FileId::root() => Some(Value::Policy(None)),
        _ => None,
    }
}

/// The registers that a call changes if it is done, apart from those of a new file.
fn changes(call: &Call) -> Vec<Key> {
    match call {
        Call::Create(call::Create { dir, label, .. })
        | Call::Link(call::Link { dir, label, .. })
        | Call::Unlink(call::Unlink { dir, label, .. }) => {
            vec![Key::Name(dir.clone(), label.clone())]
        }
        Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }) => {
            vec![Key::Name(from_dir.clone(), from.clone()), Key::Name(to_dir.clone(), to.clone())]
        }
        Call::SetAttributes(call::SetAttributes { file, size: None, .. }) => {
            vec![Key::Attributes(file.clone())]
        }
        Call::SetXattr(call::SetXattr { file, .. }) | Call::RemoveXattr(call::RemoveXattr { file, .. }) => {
            vec![Key::Policy(file.clone())]
        }
        Call::SetAttributes(call::SetAttributes { file, .. }) | Call::Write(call::Write { file, .. }) => {
            vec![Key::Content(file.clone())]
        }
        _ => Vec::new(),
    }
}

/// Whether a call changes a register.
pub(super) fn is_update(call: &Call) -> bool {
    matches!(
        call,
        Call::Create { .. }
            | Call::Link { .. }
            | Call::Unlink { .. }
            | Call::Rename { .. }
            | Call::SetAttributes { .. }
            | Call::SetXattr { .. }
            | Call::RemoveXattr { .. }
            | Call::Write { .. }
    )
}

fn is_policy_of(effect: &Effect, of: &FileId) -> bool {
    matches!(effect, Effect::Xattr { file, name, .. } if file == of && *name == *POLICY_LABEL)
}

fn is_of(operation: &Operation, called: &Called) -> bool {
    match (operation, &called.call) {
        (
            Operation::Create(operation::Create { dir, label, .. }),
            Call::Create(call::Create { dir: d, label: l, .. }),
        ) => (dir, label) == (d, l),
        (
            Operation::Link(operation::Link { file, dir, label, .. }),
            Call::Link(call::Link { file: f, dir: d, label: l, .. }),
        ) => (file, dir, label) == (f, d, l),
        (
            Operation::Unlink(operation::Unlink { dir, label, .. }),
            Call::Unlink(call::Unlink { dir: d, label: l, .. }),
        ) => (dir, label) == (d, l),
        (
            Operation::Rename(operation::Rename { from_dir, from, to_dir, to, .. }),
            Call::Rename(call::Rename { from_dir: fd, from: f, to_dir: td, to: t, .. }),
        ) => (from_dir, from, to_dir, to) == (fd, f, td, t),
        (
            Operation::SetAttributes(operation::SetAttributes { file, change, .. }),
            Call::SetAttributes(call::SetAttributes { file: f, change: c, size: None, .. }),
        ) => (file, change) == (f, c),
        (
            Operation::SetXattr(operation::SetXattr { file, value, .. }),
            Call::SetXattr(call::SetXattr { file: f, value: v, .. }),
        ) => (file, value) == (f, v),
        (
            Operation::RemoveXattr(operation::RemoveXattr { file, .. }),
            Call::RemoveXattr(call::RemoveXattr { file: f, .. }),
        ) => file == f,
        _ => false,
    }
}

/// The time in the stamps of files at this reading of clocks.
pub(super) fn wall(tick: u64) -> Timestamp {
    Timestamp { secs: 1_700_000_000 + (tick / 1_000_000) as i64, nanos: (tick % 1_000_000) as u32 * 1_000 }
}

pub(super) fn tick_of(wall: Timestamp) -> u64 {
    (wall.secs - 1_700_000_000).max(0) as u64 * 1_000_000 + u64::from(wall.nanos / 1_000)
}

/// The value of this content: length and hash.
pub(super) fn content(bytes: &[u8]) -> Value {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    Value::Content(bytes.len() as u64, hasher.finish())
}

fn change(bytes: &mut Vec<u8>, call: &Call) {
    let mut write = |offset: usize, data: &Bytes| {
        bytes.resize(bytes.len().max(offset + data.len()), 0);
        bytes[offset..offset + data.len()].copy_from_slice(data);
    };
    match call {
        Call::Write(call::Write { data, append: true, .. }) => bytes.extend_from_slice(data),
        Call::Write(call::Write { offset, data, .. }) => write(*offset as usize, data),
        Call::SetAttributes(call::SetAttributes { size: Some(size), .. }) => bytes.resize(*size as usize, 0),
        _ => {}
    }
}
