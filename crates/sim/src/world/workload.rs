//! The calls of programs: few names and few files, so that machines meet.

use super::events::Event;
use super::history::{CallNumber, Key, Seen, Value, content, tick_of};
use super::machine::LOCKED_TRY_MS;
use super::state::machine::Machine;
use super::{Violation, World};
use crate::calls::create;
use crate::kernel::Kept;
use crate::names::{self, label};
use bytes::Bytes;
use client::{Call, Now, Outcome, Reply, call};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::{AttributeChange, Cred, Entry, Error, FileKind, POLICY_LABEL, RenameMode, Stat, XattrMode};
use rand_core::Rng;

/// Labels in each directory.
const LABELS: usize = 5;
/// Directories that stay, beside the root, and files in the root that stay.
const STAYING: [(&[u8], FileKind); 9] = [
    (b"north", FileKind::Directory),
    (b"North", FileKind::Directory),
    (b"\xffwest\n", FileKind::Directory),
    (b"one", FileKind::Regular),
    (b"ONE", FileKind::Regular),
    (b"three", FileKind::Regular),
    (b".four", FileKind::Regular),
    (b"five ", FileKind::Regular),
    (b"LOG", FileKind::Regular),
];
/// Policies for the spread of content.
const POLICIES: [&[u8]; 3] = [b"copies=1", b"copies=2", b"code=2+1"];
/// Programs on each machine. The first also writes.
const PROGRAMS: usize = 2;
/// The program number of calls that the simulation makes itself.
pub(super) const NOBODY: usize = usize::MAX;
/// Files that a machine remembers to have seen.
const SEEN_MAX: usize = 8;
/// Length of a program's long pause, ms at most.
const IDLE_MS: u64 = 15_000;
/// One of this many calls that gave way, on average, locks its directories again at once.
const LOCK_STOLEN_ONE_OF: u64 = 4;
/// Words of a write that is large enough for shares.
const LARGE: u64 = 9_000;
/// Content is truncated once it is longer than this.
const CONTENT_MAX: u64 = 300_000;

impl World {
    /// Makes the files that stay, before any fault.
    pub(super) fn make_directories(&mut self) -> Result<(), Violation> {
        self.known.dirs.push(FileId::root());
        self.known.labels = names::some(&mut self.rng, LABELS);
        let machines = self.machines.len() + self.weather.limited as usize;
        self.known.seen.resize(machines, Vec::new());
        self.known.open.resize(machines, Vec::new());
        for (name, kind) in STAYING {
            self.call(0, NOBODY, create(FileId::root(), label(name), kind, None))?;
            self.complete()?;
        }
        self.call(0, NOBODY, Call::SyncAll)?;
        self.complete()?;
        for (name, kind) in STAYING {
            let made = self.history.now(&Key::Name(FileId::root(), label(name)));
            let Some(Value::Bound(file)) = made else { return Err(format!("{name:?} was not made")) };
            let known =
                if kind == FileKind::Directory { &mut self.known.dirs } else { &mut self.known.files };
            known.push(file);
        }
        Ok(())
    }

    /// Starts the programs.
    pub(super) fn programs_begin(&mut self) {
        for at in 0..self.machines.len() {
            for program in 0..PROGRAMS {
                let pause = self.below(1_000);
                self.later(pause, Event::Calls(at, program));
            }
        }
    }

    /// Runs until every call has been answered.
    pub(super) fn complete(&mut self) -> Result<(), Violation> {
        self.comes_to(|building| building.machines.iter().all(|machine| machine.calls.is_empty()))
    }

    /// At the end every machine looks at every name, and at all that stays: the last versions must
    /// be there.
    pub(super) fn look_at_everything(&mut self) -> Result<(), Violation> {
        for at in 0..self.machines.len() {
            self.call(at, NOBODY, Call::SyncAll)?;
        }
        self.complete()?;
        for at in 0..self.machines.len() {
            let (dirs, files) = self.stays_for(at);
            for dir in dirs {
                for label in self.known.labels.clone() {
                    self.call(at, NOBODY, Call::Lookup(call::Lookup { dir: dir.clone(), label }))?;
                }
                if self.weather.policies > 0 {
                    self.call(at, NOBODY, policy_of(dir.clone()))?;
                }
                self.call(
                    at,
                    NOBODY,
                    Call::List(call::List { dir, after: 0, upto: None, limit: 1_000, stat: false }),
                )?;
            }
            for file in files {
                self.call(at, NOBODY, Call::Stat(call::Stat { file: file.clone() }))?;
                self.call(
                    at,
                    NOBODY,
                    Call::Read(call::Read { file, offset: 0, length: 1 << 20, kept: true, quietly: false }),
                )?;
            }
            self.complete()?;
        }
        Ok(())
    }

    /// A program makes its next call.
    pub(super) fn begins(&mut self, at: usize, program: usize) -> Result<(), Violation> {
        if self.calls_left == 0 || self.waits_frozen(at, || Event::Calls(at, program)) {
            return Ok(());
        }
        self.calls_left -= 1;
        let mut call = self.some_call(at, program);
        let under_way = self.machines[at].calls.values();
        if under_way.into_iter().any(|(number, _)| self.history.is_like(*number, &call)) {
            call = self.some_question(at);
        }
        self.call(at, program, call)
    }

    /// A program makes a call once more that gave way. After a restart of its machine it makes
    /// another.
    pub(super) fn calls_again(
        &mut self,
        at: usize,
        incarnation: u64,
        program: usize,
        call: Box<Call>,
    ) -> Result<(), Violation> {
        if self.machines[at].incarnation != incarnation {
            return self.begins(at, program);
        }
        if self.waits_frozen(at, || Event::CallsAgain(at, incarnation, program, call.clone())) {
            return Ok(());
        }
        self.call(at, program, *call)
    }

    /// Makes a call.
    pub(super) fn call(&mut self, at: usize, program: usize, call: Call) -> Result<(), Violation> {
        self.happened.calls += 1;
        let now = self.read_clocks(at);
        self.notes(|| format!("machine {at} is called at {}: {call:?}", tick_of(now.wall)));
        let life = self.machines[at].life;
        let number = self.history.called(life, call.clone(), tick_of(now.wall));
        if program != NOBODY {
            self.path_begun(number);
        }
        let machine = &mut self.machines[at];
        if let Call::Close(call::Close { file, open }) = &call {
            let open_files = &mut self.known.open[at];
            if let Some(index) = open_files.iter().position(|it| (&it.0, &it.1) == (file, open)) {
                open_files.remove(index);
            }
        }
        // The simulation's own calls go to the client, which programs seldom reach where the kernel
        // keeps much. So the kernel answers only half of the programs' calls.
        if program != NOBODY
            && let Some(kept) = machine.kernel.answer(&call, now.time)
            && self.one_in(2)
        {
            return self.answered_by_kernel(at, number, program, kept, now);
        }
        let machine = &mut self.machines[at];
        let mut out = Vec::new();
        let outcome = machine.client.call(now, &Cred::default(), call, &mut out);
        match outcome {
            Outcome::Done(result) => self.told(at, number, program, result, now)?,
            Outcome::Waiting(ticket) => _ = machine.calls.insert(ticket, (number, program)),
        }
        self.carry_out(at, now, out)
    }

    /// The client has answered a call, and the kernel keeps the answer. A call that gave way is
    /// tried again, once.
    pub(super) fn told(
        &mut self,
        at: usize,
        number: CallNumber,
        program: usize,
        result: Result<Reply, Error>,
        now: Now,
    ) -> Result<(), Violation> {
        if matches!(result, Err(Error::Interrupted))
            && let Some(call) = self.history.calls.get(number).map(|called| called.call.clone())
        {
            self.happened.gave_way += 1;
            self.history.refused(number, Error::Interrupted)?;
            self.machines[at].gave_way.insert(program);
            // The kernel hands a directory's lock to the expiry that waits for it, unless the
            // program that released the lock takes it again before.
            let pause = if self.one_in(LOCK_STOLEN_ONE_OF) { 0 } else { LOCKED_TRY_MS + 1 };
            let incarnation = self.machines[at].incarnation;
            self.later(pause, Event::CallsAgain(at, incarnation, program, Box::new(call)));
            return Ok(());
        }
        self.machines[at].gave_way.remove(&program);
        if let Some(called) = self.history.calls.get(number) {
            let Machine { client, kernel, .. } = &mut self.machines[at];
            let until = now.time.after_ms(client.valid_for_ms(now.time));
            kernel.given(now.time, (&called.call, called.begun), &result, until);
        }
        self.keeps_pages(at, number, &result, now)?;
        self.is_told_to_linger(at, &result);
        let result = match result {
            Ok(Reply::Glimpsed(None)) => Err(Error::NotFound),
            result => result,
        };
        self.answered(at, number, program, result, now)
    }

    /// The kernel keeps what it has read.
    fn keeps_pages(
        &mut self,
        at: usize,
        number: CallNumber,
        result: &Result<Reply, Error>,
        now: Now,
    ) -> Result<(), Violation> {
        let (Some(called), Ok(Reply::Data(parts))) = (self.history.calls.get(number), result) else {
            return Ok(());
        };
        let Call::Read(read) = &called.call else { return Ok(()) };
        let bytes = self.gather(parts)?;
        let Machine { client, kernel, .. } = &mut self.machines[at];
        let until = now.time.after_ms(client.valid_for_ms(now.time));
        kernel.given_pages(read, called.begun, &bytes, until);
        Ok(())
    }

    /// The kernel answers from an earlier answer.
    fn answered_by_kernel(
        &mut self,
        at: usize,
        number: CallNumber,
        program: usize,
        kept: Kept,
        now: Now,
    ) -> Result<(), Violation> {
        self.happened.kept += 1;
        self.notes(|| format!("machine {at} has kept {kept:?}"));
        match kept {
            Kept::Name(None) => self.answered(at, number, program, Err(Error::NotFound), now),
            Kept::Name(Some((entry, Some(stat)))) => {
                self.answered(at, number, program, Ok(Reply::Node(entry, stat)), now)
            }
            Kept::Stat(stat) => self.answered(at, number, program, Ok(Reply::Stat(stat)), now),
            Kept::Content(bytes) => {
                if let Some(Call::Read(call::Read { file, .. })) =
                    self.history.calls.get(number).map(|it| it.call.clone())
                {
                    let seen = Seen::Value(content(&bytes));
                    self.history.observe(number, Key::Content(file), seen, tick_of(now.wall));
                }
                self.answered(at, number, program, Ok(Reply::Nothing), now)
            }
            Kept::Name(Some((entry, None))) => {
                if let Some(Call::Lookup(call::Lookup { dir, label })) =
                    self.history.calls.get(number).map(|it| it.call.clone())
                {
                    let seen = Seen::Value(Value::Bound(entry.file));
                    self.history.observe(number, Key::Name(dir, label), seen, tick_of(now.wall));
                }
                self.answered(at, number, program, Ok(Reply::Nothing), now)
            }
        }
    }

    /// A call was answered.
    fn answered(
        &mut self,
        at: usize,
        number: CallNumber,
        program: usize,
        result: Result<Reply, Error>,
        now: Now,
    ) -> Result<(), Violation> {
        if program != NOBODY {
            let pause = if self.weather.replaces > 0 {
                self.path_pause()
            } else if self.happens(self.weather.idles) {
                self.below(IDLE_MS)
            } else if self.one_in(8) {
                self.below(1_500)
            } else {
                self.below(150)
            };
            self.later(pause, Event::Calls(at, program));
        }
        let Some(called) = self.history.calls.get(number) else { return Ok(()) };
        let (call, tick) = (called.call.clone(), tick_of(now.wall));
        self.path_answered(at, (number, program), &call, &result)?;
        match result {
            Ok(reply) => {
                self.happened.answered += 1;
                let made = match (&call, &reply) {
                    (Call::Create { .. }, Reply::Node(entry, _)) => Some(entry.file.clone()),
                    _ => None,
                };
                self.check_done_within(at, &call)?;
                self.history.done(number, tick, self.now, made);
                self.observes(at, number, &call, reply.told(), tick)
            }
            Err(Error::CutOff) => {
                self.happened.cut_off += 1;
                self.history.given_up(number, tick);
                Ok(())
            }
            Err(Error::ReadOnly | Error::AccessDenied | Error::NotPermitted | Error::Stale)
                if self.is_limited(at) =>
            {
                self.happened.denied += 1;
                self.check_denied(at, &call, result.as_ref().err().copied())?;
                self.history.refused(number, Error::AccessDenied)
            }
            Err(error) => {
                self.happened.answered += 1;
                self.history.refused(number, error)?;
                self.observes_refusal(number, &call, error, tick)
            }
        }
    }

    fn observes(
        &mut self,
        at: usize,
        number: CallNumber,
        call: &Call,
        reply: Reply,
        tick: u64,
    ) -> Result<(), Violation> {
        match (call, reply) {
            (Call::Lookup(call::Lookup { dir, label }), Reply::Node(entry, stat)) => {
                let key = Key::Name(dir.clone(), label.clone());
                self.history.observe(number, key, Seen::Value(Value::Bound(entry.file.clone())), tick);
                self.history.inodes.told(&entry.file, entry.ino)?;
                self.observes_stat(number, &entry.file, &stat, tick)?;
                self.remember(at, entry);
            }
            (Call::Create { .. }, Reply::Node(entry, stat)) => {
                self.history.inodes.told(&entry.file, stat.attributes.ino)?;
                self.history.inodes.told(&entry.file, entry.ino)?;
                self.remember(at, entry);
            }
            (Call::Stat(call::Stat { file }), Reply::Stat(stat)) => {
                self.observes_stat(number, file, &stat, tick)?
            }
            // No call made the root.
            (Call::Parent { .. }, Reply::Node(above, stat)) if above.file != FileId::root() => {
                self.observes_stat(number, &above.file, &stat, tick)?;
            }
            (Call::GetXattr(call::GetXattr { file, .. }), Reply::Bytes(policy)) => {
                let seen = Seen::Value(Value::Policy(Some(policy)));
                self.history.observe(number, Key::Policy(file.clone()), seen, tick);
            }
            (Call::Read(call::Read { file, .. }), Reply::Data(parts)) => {
                let bytes = self.gather(&parts)?;
                self.history.observe(number, Key::Content(file.clone()), Seen::Value(content(&bytes)), tick);
            }
            (Call::List(call::List { dir, .. }), Reply::Listing { entries, .. }) => {
                for listed in &entries {
                    self.history.inodes.told(&listed.entry.file, listed.entry.ino)?;
                }
                for name in self.known.labels.clone() {
                    let bound = entries.iter().find(|listed| listed.label == name);
                    let value =
                        bound.map_or(Value::Unbound, |listed| Value::Bound(listed.entry.file.clone()));
                    self.history.observe(number, Key::Name(dir.clone(), name), Seen::Value(value), tick);
                }
            }
            (Call::OpenFile(call::OpenFile { file, open, .. }), Reply::Opened { .. }) => {
                self.known.open[at].push((file.clone(), *open));
            }
            _ => {}
        }
        Ok(())
    }

    fn observes_stat(
        &mut self,
        number: CallNumber,
        file: &FileId,
        stat: &Stat,
        tick: u64,
    ) -> Result<(), Violation> {
        self.history.inodes.told(file, stat.attributes.ino)?;
        let namespace::Attributes { uid, mode, kind, .. } = stat.attributes;
        let seen = Seen::Value(Value::Attributes(uid, mode));
        self.history.observe(number, Key::Attributes(file.clone()), seen, tick);
        if kind == FileKind::Regular {
            self.history.observe(number, Key::Content(file.clone()), Seen::Length(stat.size), tick);
        }
        if kind == FileKind::Directory {
            self.history.look(number, file, tick_of(stat.mtime));
        }
        Ok(())
    }

    fn observes_refusal(
        &mut self,
        number: CallNumber,
        call: &Call,
        error: Error,
        tick: u64,
    ) -> Result<(), Violation> {
        if let (Call::GetXattr(call::GetXattr { file, .. }), Error::NoAttribute) = (call, error) {
            let seen = Seen::Value(Value::Policy(None));
            self.history.observe(number, Key::Policy(file.clone()), seen, tick);
        }
        let stays = |dir: &FileId| self.known.dirs.contains(dir);
        let told = match (call, error) {
            (
                Call::Lookup(call::Lookup { dir, label }) | Call::Unlink(call::Unlink { dir, label, .. }),
                Error::NotFound,
            ) if stays(dir) => Some((dir, label, Seen::Value(Value::Unbound))),
            (Call::Rename(call::Rename { from_dir, from, to_dir, .. }), Error::NotFound)
                if stays(from_dir) && stays(to_dir) =>
            {
                Some((from_dir, from, Seen::Value(Value::Unbound)))
            }
            (
                Call::Create(call::Create { dir, label, .. }) | Call::Link(call::Link { dir, label, .. }),
                Error::Exists,
            ) => Some((dir, label, Seen::Bound)),
            _ => None,
        };
        if let Some((dir, label, seen)) = told {
            self.history.observe(number, Key::Name(dir.clone(), label.clone()), seen, tick);
        }
        let stays = match call {
            Call::Stat(call::Stat { file })
            | Call::Read(call::Read { file, .. })
            | Call::Write(call::Write { file, .. })
            | Call::Sync(call::Sync { file }) => self.known.files.contains(file),
            Call::Lookup(call::Lookup { dir, .. }) | Call::List(call::List { dir, .. }) => {
                self.known.dirs.contains(dir) && error != Error::NotFound
            }
            _ => false,
        };
        if stays { Err(format!("{call:?}: {error}")) } else { Ok(()) }
    }

    fn remember(&mut self, at: usize, entry: Entry) {
        let seen = &mut self.known.seen[at];
        if seen.len() == SEEN_MAX {
            seen.remove(0);
        }
        seen.push(entry);
    }

    /// The machine's programs end, and their knowledge with them.
    pub(super) fn programs_end(&mut self, at: usize) {
        self.known.open[at].clear();
    }

    /// The bytes of a read.
    fn gather(&self, parts: &[::content::ReadPart]) -> Result<Vec<u8>, Violation> {
        ::content::assemble(
            parts,
            |part| {
                let ::content::ReadPart::Piece { share, at, piece_length, nonce, hash, key, .. } = part
                else {
                    return Err("only pieces need opening".to_owned());
                };
                let stored = self.shares.get(share).ok_or("a share was never stored")?;
                let (from, to) = (*at as usize, (*at + *piece_length) as usize + ::content::TAG_BYTES);
                let sealed = stored.get(from..to).ok_or("a share is too short")?.to_vec();
                ::content::open(key, nonce, hash, sealed).map(Into::into).map_err(|e| e.to_string())
            },
            || "a piece is too short".to_owned(),
        )
    }

    fn some_call(&mut self, at: usize, program: usize) -> Call {
        if self.weather.replaces == 0 && self.weather.policies > 0 && self.one_in(self.weather.policies) {
            return self.some_policy_call(at, program);
        }
        if self.weather.replaces > 0 {
            return self.some_path_call(at, program);
        }
        if self.weather.moves > 0 {
            return self.some_move();
        }
        if self.weather.passes > 0 && !self.one_in(self.weather.passes) {
            return self.some_pass(at, program);
        }
        match self.below(20) {
            0..8 => self.some_name_call(at),
            8..11 => self.some_question(at),
            11..14 => self.some_read(at),
            14..18 if program == 0 => self.some_write(at, None),
            14..16 => self.some_read(at),
            18 => self.some_open(at),
            _ if self.one_in(5) => Call::SyncAll,
            _ => Call::Sync(call::Sync { file: self.some_file(at) }),
        }
    }

    fn some_name_call(&mut self, at: usize) -> Call {
        let (dir, name) = (self.some_dir(at), self.some_label());
        match self.below(16) {
            0..4 => create(dir, name, FileKind::Regular, None),
            4 => create(dir, name, FileKind::Directory, None),
            5..8 => Call::Unlink(call::Unlink { dir, label: name, directory: false, pending: None }),
            8 => Call::Unlink(call::Unlink { dir, label: name, directory: true, pending: None }),
            9 | 10 => self.some_save(at, dir, name),
            11..13 => {
                let (to_dir, to, mode) = (self.some_dir(at), self.some_label(), RenameMode::Replace);
                Call::Rename(call::Rename {
                    from_dir: dir,
                    from: name,
                    to_dir,
                    to,
                    mode,
                    whiteout: false,
                    source: None,
                    replaced: None,
                })
            }
            13..15 => Call::Link(call::Link { file: self.some_file(at), dir, label: name, replaced: None }),
            _ => {
                let file = self.some_file(at);
                let mut change = AttributeChange::default();
                if self.one_in(2) {
                    // Any number, and no two the same.
                    change.uid = Some((self.happened.calls as u32).wrapping_mul(0x9e37_79b1));
                } else {
                    change.mode = Some(self.below(0o2000) as u16);
                }
                Call::SetAttributes(call::SetAttributes { file, change, size: None, through_handle: false })
            }
        }
    }

    /// As editors save: a file that this machine has just written, if there is one, takes the place
    /// of this name.
    fn some_save(&mut self, at: usize, to_dir: FileId, to: Label) -> Call {
        let life = self.machines[at].life;
        let is_written = |file: &FileId| !self.history.unpublished(file, life).is_empty();
        let names: Vec<(FileId, Label)> = self
            .known
            .dirs
            .iter()
            .flat_map(|dir| self.known.labels.iter().map(|label| (dir.clone(), label.clone())))
            .filter(|(dir, label)| match self.history.now(&Key::Name(dir.clone(), label.clone())) {
                Some(Value::Bound(file)) => is_written(&file) && (dir, label) != (&to_dir, &to),
                _ => false,
            })
            .collect();
        let (from_dir, from) = match self.below(names.len() as u64) as usize {
            at if at < names.len() => names[at].clone(),
            _ => (self.some_dir(at), self.some_label()),
        };
        Call::Rename(call::Rename {
            from_dir,
            from,
            to_dir,
            to,
            mode: RenameMode::Replace,
            whiteout: false,
            source: None,
            replaced: None,
        })
    }

    /// Directories move between two of those that stay. Their names are looked at by all, and only
    /// the server can move them.
    fn some_move(&mut self) -> Call {
        let (here, there) = if self.one_in(2) { (1, 2) } else { (2, 1) };
        let (from_dir, to_dir) = (self.known.dirs[here].clone(), self.known.dirs[there].clone());
        let mut either = || self.known.labels[(self.rng.next_u64() % 2) as usize].clone();
        let (from, to) = (either(), either());
        if !self.one_in(self.weather.moves) {
            Call::Lookup(call::Lookup { dir: from_dir, label: from })
        } else if self.one_in(4) {
            create(from_dir, from, FileKind::Directory, None)
        } else {
            Call::Rename(call::Rename {
                from_dir,
                from,
                to_dir,
                to,
                mode: RenameMode::Replace,
                whiteout: false,
                source: None,
                replaced: None,
            })
        }
    }

    /// Ping-pong: each change is looked at before the next, or about that.
    fn some_pass(&mut self, at: usize, program: usize) -> Call {
        let file = self.known.files[0].clone();
        if at == 0 && program == 0 {
            let data = self.happened.calls.to_be_bytes().repeat(2).into();
            Call::Write(call::Write { file, offset: 0, data, append: false })
        } else if self.one_in(4) {
            Call::Stat(call::Stat { file })
        } else {
            Call::Read(call::Read { file, offset: 0, length: 1 << 20, kept: false, quietly: false })
        }
    }

    /// Calls on policies, and on content that follows them.
    fn some_policy_call(&mut self, at: usize, program: usize) -> Call {
        let file = if self.one_in(2) { self.some_dir(at) } else { self.some_file(at) };
        match self.below(8) {
            0 | 1 => {
                let value = POLICIES[self.below(POLICIES.len() as u64) as usize].to_vec();
                Call::SetXattr(call::SetXattr {
                    file,
                    name: POLICY_LABEL.clone(),
                    value,
                    mode: XattrMode::Set,
                })
            }
            2 => Call::RemoveXattr(call::RemoveXattr { file, name: POLICY_LABEL.clone() }),
            3 => self.some_open(at),
            4 | 5 if program == 0 => self.some_write(at, Some(LARGE)),
            _ => policy_of(file),
        }
    }

    fn some_question(&mut self, at: usize) -> Call {
        let (dir, name) = (self.some_dir(at), self.some_label());
        match self.below(7) {
            0..4 => Call::Lookup(call::Lookup { dir, label: name }),
            4 => Call::List(call::List { dir, after: 0, upto: None, limit: 1_000, stat: false }),
            5 => Call::Parent(call::Parent { dir }),
            _ => Call::Stat(call::Stat { file: self.some_file(at) }),
        }
    }

    fn some_read(&mut self, at: usize) -> Call {
        let kept = self.one_in(2);
        Call::Read(call::Read { file: self.some_file(at), offset: 0, length: 1 << 20, kept, quietly: false })
    }

    /// A write of bytes that no other call writes, of the given length or a random one.
    fn some_write(&mut self, at: usize, words: Option<u64>) -> Call {
        let file = self.some_file(at);
        let size = match self.history.now(&Key::Content(file.clone())) {
            Some(Value::Content(length, _)) => length,
            _ => 0,
        };
        if size > CONTENT_MAX || self.one_in(6) {
            let size = Some(self.below(100));
            return Call::SetAttributes(call::SetAttributes {
                file,
                change: AttributeChange::default(),
                size,
                through_handle: true,
            });
        }
        let words = words.unwrap_or_else(|| match self.below(24) {
            0 => LARGE,
            1 => 700,
            _ => 1 + self.below(8),
        });
        let token = self.happened.calls.to_be_bytes();
        let data: Bytes = token.repeat(words as usize).into();
        let (offset, append) = if self.one_in(2) { (0, true) } else { (self.below(200), false) };
        Call::Write(call::Write { file, offset, data, append })
    }

    fn some_open(&mut self, at: usize) -> Call {
        let open = &self.known.open[at];
        if let Some((file, open)) = open.first().cloned().filter(|_| open.len() > 3) {
            return Call::Close(call::Close { file, open });
        }
        // A machine with restricted rights asks for the permissions that it needs.
        let (writes, mask) = (!self.may_only_read(at), if self.is_limited(at) { 6 } else { 0 });
        let (open, mask) = (OpenModes::posix(true, writes), if writes { mask } else { 4 });
        Call::OpenFile(call::OpenFile { file: self.some_file(at), open, mask })
    }

    fn some_file(&mut self, at: usize) -> FileId {
        let is_file = |entry: &&Entry| entry.kind == FileKind::Regular;
        let seen: Vec<FileId> =
            self.known.seen[at].iter().filter(is_file).map(|entry| entry.file.clone()).collect();
        let stay = self.some_of(at).1;
        let from = if seen.is_empty() || self.one_in(2) { stay } else { seen };
        let pick = self.below(from.len() as u64) as usize;
        from[pick].clone()
    }

    fn some_dir(&mut self, at: usize) -> FileId {
        let is_dir = |entry: &&Entry| entry.kind == FileKind::Directory;
        let seen: Vec<FileId> =
            self.known.seen[at].iter().filter(is_dir).map(|entry| entry.file.clone()).collect();
        let stay = self.some_of(at).0;
        let from = if seen.is_empty() || !self.one_in(5) { stay } else { seen };
        let pick = self.below(from.len() as u64) as usize;
        from[pick].clone()
    }

    fn some_label(&mut self) -> Label {
        let pick = self.below(self.known.labels.len() as u64) as usize;
        self.known.labels[pick].clone()
    }
}

fn policy_of(file: FileId) -> Call {
    Call::GetXattr(call::GetXattr { file, name: POLICY_LABEL.clone() })
}
