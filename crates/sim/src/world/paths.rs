//! Calls on paths, as a kernel makes them. The kernel looks the name up, and then makes its request
//! on the file found, which must still be good for that. If the file is gone by then, the kernel
//! looks the name up once more, and no further.
//!
//! Some programs replace the files of two names by rename as fast as they can. The names always
//! exist. So no answer may deny them, and no call may wait for long while others are served.

use super::events::Event;
use super::history::CallNumber;
use super::state::paths::{ALWAYS, Walk};
use super::{Violation, World};
use crate::calls::create;
use crate::names::label;
use client::{Call, Input, Reply, call};
use ident::FileId;
use lease::OpenModes;
use namespace::{AttributeChange, Error, FileKind, POLICY_LABEL, RenameMode};

/// A name that programs make if it does not exist.
const EXCLUSIVE: &str = "lock";
/// The longest that a call may wait in fair weather, ms. This is about the time of the twenty calls
/// before it, each of which has to wait for two recalls over the slowest links.
const WAITS_MAX_MS: u64 = 6_000;

/// Times that a name may be replaced in fair weather during one lookup of it.
const OVERTAKEN_MAX: u64 = 1000;

impl World {
    fn always_in(&self) -> FileId {
        self.known.dirs[3].clone()
    }

    /// Makes the names that always exist.
    pub(super) fn make_paths(&mut self) -> Result<(), Violation> {
        if self.weather.replaces > 0 {
            for (name, _) in ALWAYS {
                let made = create(self.always_in(), label(name.as_bytes()), FileKind::Regular, None);
                self.call(0, super::workload::NOBODY, made)?;
                self.complete()?;
            }
        }
        Ok(())
    }

    /// A program's next call.
    pub(super) fn some_path_call(&mut self, at: usize, program: usize) -> Call {
        let dir = self.always_in();
        // The first program of each of two machines replaces a name of its own.
        if let Some((name, new)) = ALWAYS.get(at).filter(|_| program == 0) {
            return self.some_replacement(at, program, dir, name, new);
        }
        let (life, pick) = (self.machines[at].life, self.below(ALWAYS.len() as u64) as usize);
        if self.one_in(8) {
            let made = create(dir.clone(), label(EXCLUSIVE.as_bytes()), FileKind::Regular, None);
            let gone = Call::Unlink(call::Unlink {
                dir,
                label: label(EXCLUSIVE.as_bytes()),
                directory: false,
                pending: None,
            });
            return if self.one_in(2) { made } else { gone };
        }
        let fresh = Walk { name: ALWAYS[pick].0, found: None, again: false, open: None, life };
        let walk = self.paths.walks.entry((at, program)).or_insert(fresh.clone());
        if walk.life != life {
            *walk = fresh;
        }
        let walk = walk.clone();
        if let Some((file, open)) = walk.open {
            return Call::Close(call::Close { file, open });
        }
        let Some(file) = walk.found else {
            return Call::Lookup(call::Lookup { dir, label: label(walk.name.as_bytes()) });
        };
        match self.below(6) {
            0 | 1 => Call::OpenFile(call::OpenFile { file, open: OpenModes::posix(true, false), mask: 4 }),
            2 => {
                let uid = Some(self.happened.calls as u32);
                let change = AttributeChange { uid, ..AttributeChange::default() };
                Call::SetAttributes(call::SetAttributes { file, change, size: None, through_handle: false })
            }
            3 => Call::Access(call::Access { file, mask: 0 }),
            4 => Call::GetXattr(call::GetXattr { file, name: POLICY_LABEL.clone() }),
            _ => Call::Stat(call::Stat { file }),
        }
    }

    fn some_replacement(
        &mut self,
        at: usize,
        program: usize,
        dir: FileId,
        name: &'static str,
        new: &str,
    ) -> Call {
        let (new, walk) = (label(new.as_bytes()), self.paths.walks.remove(&(at, program)));
        if let Some(walk) = walk {
            if let Some(file) = walk.found.filter(|_| self.one_in(2)) {
                // The new file has content, which the rename must bring along.
                self.paths.walks.insert((at, program), Walk { found: None, ..walk });
                let data = self.happened.calls.to_be_bytes().repeat(3).into();
                return Call::Write(call::Write { file, offset: 0, data, append: false });
            }
            let (from_dir, to_dir, mode) = (dir.clone(), dir, RenameMode::Replace);
            return Call::Rename(call::Rename {
                from_dir,
                from: new,
                to_dir,
                to: label(name.as_bytes()),
                mode,
                whiteout: false,
                source: None,
                replaced: None,
            });
        }
        let life = self.machines[at].life;
        let made = Walk { name, found: None, again: false, open: None, life };
        self.paths.walks.insert((at, program), made);
        create(dir, new, FileKind::Regular, None)
    }

    /// A program has begun a call.
    pub(super) fn path_begun(&mut self, number: CallNumber) {
        if self.weather.replaces > 0 {
            self.paths.begun.insert(number, (self.now, self.paths.replaced));
        }
    }

    /// A program's call was answered.
    pub(super) fn path_answered(
        &mut self,
        at: usize,
        (number, program): (CallNumber, usize),
        call: &Call,
        result: &Result<Reply, Error>,
    ) -> Result<(), Violation> {
        let Some((begun, before)) = self.paths.begun.remove(&number) else { return Ok(()) };
        let waited = self.now - begun;
        self.happened.waited_ms = self.happened.waited_ms.max(waited);
        if self.weather.is_fair() && waited > WAITS_MAX_MS {
            return Err(format!("machine {at} waited {waited} ms for {call:?}"));
        }
        self.is_not_overtaken(at, call, before)?;
        let life = self.machines[at].life;
        let (replaces, always_in) = (program == 0 && at < ALWAYS.len(), self.always_in());
        if replaces && matches!((call, result), (Call::Rename { .. }, Ok(_))) {
            self.paths.replaced[at] += 1;
        }
        let Some(walk) = self.paths.walks.get_mut(&(at, program)) else { return Ok(()) };
        if replaces {
            if let (Call::Create { .. }, Ok(Reply::Node(entry, _))) = (call, result) {
                walk.found = Some(entry.file.clone());
            }
            return Ok(());
        }
        // Programs have other calls, too.
        let ours = match call {
            Call::Lookup(call::Lookup { dir, label: of }) => {
                *dir == always_in && of == &label(walk.name.as_bytes())
            }
            Call::OpenFile(call::OpenFile { file, .. })
            | Call::SetAttributes(call::SetAttributes { file, .. })
            | Call::Access(call::Access { file, .. })
            | Call::GetXattr(call::GetXattr { file, .. })
            | Call::Stat(call::Stat { file }) => walk.found.as_ref() == Some(file),
            Call::Close(call::Close { file, .. }) => walk.open.as_ref().is_some_and(|(open, _)| open == file),
            _ => false,
        };
        if !ours {
            return Ok(());
        }
        match (call, result) {
            // The handle or lookup ended with the session.
            (_, Err(Error::CutOff)) => _ = self.paths.walks.remove(&(at, program)),
            _ if walk.life != life => _ = self.paths.walks.remove(&(at, program)),
            (Call::Lookup { .. }, Ok(reply)) => match reply.clone().told() {
                Reply::Node(entry, _) => walk.found = Some(entry.file),
                _ => _ = self.paths.walks.remove(&(at, program)),
            },
            (Call::OpenFile(call::OpenFile { file, open, .. }), Ok(_)) => {
                walk.open = Some((file.clone(), *open))
            }
            (_, Err(Error::Stale)) if !walk.again => (walk.again, walk.found) = (true, None),
            (_, Err(error @ (Error::Stale | Error::NotFound))) if self.is_steady(at) => {
                return Err(format!("machine {at}, {call:?}, of a name that always exists: {error}"));
            }
            _ => _ = self.paths.walks.remove(&(at, program)),
        }
        Ok(())
    }

    /// Checks that a lookup is answered after a limited number of replacements, however fast they
    /// are. Questions that have lost races are answered in the order in which they came.
    fn is_not_overtaken(
        &mut self,
        at: usize,
        call: &Call,
        before: [u64; ALWAYS.len()],
    ) -> Result<(), Violation> {
        let Call::Lookup(call::Lookup { dir, label: of }) = call else { return Ok(()) };
        let name = ALWAYS.iter().position(|(name, _)| label(name.as_bytes()) == *of);
        let Some(name) = name.filter(|_| *dir == self.always_in()) else { return Ok(()) };
        let overtaken = self.paths.replaced[name] - before[name];
        self.happened.overtaken = self.happened.overtaken.max(overtaken);
        if self.weather.is_fair() && overtaken > OVERTAKEN_MAX {
            return Err(format!("machine {at} was overtaken by {overtaken} who replaced what it looks up"));
        }
        Ok(())
    }

    /// Whether no fault excuses the machine: one that was frozen or cut off may come too late for
    /// the file it found.
    fn is_steady(&self, at: usize) -> bool {
        self.weather.is_fair() || self.machines[at].client.valid_for_ms(self.clock(at)) > 0
    }

    /// The kernel forgets a lingering file soon, unless a call on its path is under way.
    pub(super) fn forgets(&mut self, at: usize, incarnation: u64, file: FileId) -> Result<(), Violation> {
        if self.machines[at].incarnation != incarnation {
            return Ok(());
        }
        let pinned =
            |((of, _), walk): (&(usize, usize), &Walk)| *of == at && walk.found.as_ref() == Some(&file);
        if self.paths.walks.iter().any(pinned) || self.machines[at].frozen.is_some() {
            self.later(5, Event::Forgets(at, incarnation, file));
            return Ok(());
        }
        self.input(at, Input::Forgotten(vec![file]))
    }

    /// The answer says that a file lingers; the kernel will forget it.
    pub(super) fn is_told_to_linger(&mut self, at: usize, result: &Result<Reply, Error>) {
        if let Ok(Reply::Lingers(file)) = result {
            let (wait, incarnation) = (self.below(6), self.machines[at].incarnation);
            self.later(wait, Event::Forgets(at, incarnation, file.clone()));
        }
    }

    /// A short pause, for programs that replace or look up names.
    pub(super) fn path_pause(&mut self) -> u64 {
        if self.one_in(20) { self.below(60) } else { self.below(4) }
    }
}
