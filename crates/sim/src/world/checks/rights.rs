//! A machine with restricted rights (`wire::Rights`) gets and changes nothing outside of them. It
//! gets nothing of files that are elsewhere, by the names that the server's own updates bound and
//! removed. It gets no lease to write if it may only read. It acts as no other user than its own.
//! An input may bind and remove names, so a file that is within at any time of the input counts as
//! within.

use crate::world::history::{Key, Value};
use crate::world::{Violation, World};
use client::{Call, call};
use directory::Output;
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::{Effect, Error, Operation};
use std::collections::BTreeSet;
use wire::{FileGrant, Rights, ToClient, Values};

impl World {
    /// Checks that the outputs are within the rights of the machine that gets each.
    pub(in crate::world) fn check_rights(&mut self, out: &[Output]) -> Result<(), Violation> {
        for output in out {
            match output {
                Output::Opened { session, machine, .. } => {
                    if let Some(rights) = self.limits.rights.get(machine).cloned() {
                        self.limits.sessions.insert(*session, rights);
                    }
                }
                Output::Send { session, message } => {
                    if let Some(rights) = self.limits.sessions.get(session) {
                        let told = self.check_told(rights, message);
                        told.map_err(|what| format!("{session:?} may {rights:?}, and {what}: {message:?}"))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_told(&self, rights: &Rights, message: &ToClient) -> Result<(), Violation> {
        match message {
            ToClient::Granted { grants, .. } | ToClient::Reported { values: grants, .. } => {
                grants.iter().try_for_each(|grant| self.check_grant(rights, grant))
            }
            ToClient::Shipped { result: Ok((_, effects)), .. } => {
                let dirs = effects.iter().filter_map(|effect| match effect {
                    Effect::Bind { dir, .. } | Effect::Unbind { dir, .. } | Effect::Touch { dir, .. } => {
                        Some(dir)
                    }
                    _ => None,
                });
                let mut dirs = dirs.peekable();
                if rights.read_only && dirs.peek().is_some() {
                    return Err("changed a name".into());
                }
                // A result may be sent again: its directories were within when the operation was
                // done.
                match dirs.find(|dir| !self.was_within(&rights.root, dir)) {
                    Some(dir) => Err(format!("changed {dir}")),
                    None => Ok(()),
                }
            }
            ToClient::Extents { file, .. } if !self.may_be_told(rights, file) => {
                Err(format!("is told the content of {file}"))
            }
            _ => Ok(()),
        }
    }

    fn check_grant(&self, rights: &Rights, grant: &FileGrant) -> Result<(), Violation> {
        let FileGrant { file, whole, fields, values, .. } = grant;
        let within = self.is_within(&rights.root, file);
        let closes = fields.iter().all(|(field, kind)| field.is_black_box() && *kind == Kind::Touch);
        if !within && (*whole || !closes || *values != Values::default()) {
            return Err(format!("is granted or told something of {file}"));
        }
        let writes = |(field, kind): &(Field, Kind)| {
            *kind != Kind::Read && !field.is_black_box() && *field != Field::Locks
        };
        if rights.read_only && (*whole || fields.iter().any(writes)) {
            return Err(format!("may write {file}"));
        }
        let told = values.inline.is_some()
            || values.extents.is_some()
            || values.content.is_some_and(|head| head.key.is_some());
        if told && !self.may_be_told(rights, file) {
            return Err(format!("is told the content of {file}"));
        }
        let mut links = values.links.iter().flatten();
        match links.find(|link| !self.is_within(&rights.root, &link.dir)) {
            Some(link) => Err(format!("is told of a name in {}", link.dir)),
            None => Ok(()),
        }
    }

    /// Whether the machine may have the file's content: the file is within, or was for a machine
    /// that has it open, and is not its owner's alone.
    fn may_be_told(&self, rights: &Rights, file: &FileId) -> bool {
        let alone = |value: &Value| matches!(value, Value::Attributes(uid, mode) if Some(*uid) != rights.squash && mode & 0o077 == 0);
        let versions = self.history.registers.get(&Key::Attributes(file.clone()));
        // The last two versions: one may be of this input.
        let owners =
            versions.is_some_and(|all| all.iter().rev().take(2).all(|version| alone(&version.value)));
        self.is_within(&rights.root, file) && !(rights.squash.is_some() && owners)
    }

    /// Checks that the machine had the right to do the operation.
    pub(in crate::world) fn check_change(
        &self,
        session: SessionId,
        operation: &Operation,
    ) -> Result<(), Violation> {
        let Some(rights) = self.limits.sessions.get(&session) else { return Ok(()) };
        let leased = matches!(
            operation,
            Operation::Publish { .. } | Operation::Accessed { .. } | Operation::Lock { .. }
        );
        let user = operation.cred().is_none_or(|cred| rights.squash.is_none_or(|uid| uid == cred.uid));
        let writes = !rights.read_only || matches!(operation, Operation::Lock { .. });
        let within = leased || operation.files().into_iter().all(|file| self.is_within(&rights.root, file));
        if user && writes && within {
            return Ok(());
        }
        Err(format!("{session:?} may {rights:?}, and did {operation:?}"))
    }

    /// Checks that an answered call was within the machine's rights.
    pub(in crate::world) fn check_done_within(&self, at: usize, call: &Call) -> Result<(), Violation> {
        let Some(rights) = self.limits.rights.get(&self.machines[at].id) else { return Ok(()) };
        let file = match call {
            Call::Stat(call::Stat { file })
            | Call::Read(call::Read { file, .. })
            | Call::Write(call::Write { file, .. })
            | Call::GetXattr(call::GetXattr { file, .. })
            | Call::SetXattr(call::SetXattr { file, .. })
            | Call::RemoveXattr(call::RemoveXattr { file, .. }) => file,
            Call::Lookup(call::Lookup { dir, .. })
            | Call::List(call::List { dir, .. })
            | Call::Create(call::Create { dir, .. }) => dir,
            _ => return Ok(()),
        };
        // No other machine knows a file that the machine has made and not yet sent.
        let known = *file == FileId::root() || self.history.ever.contains_key(file);
        if known && !self.was_within(&rights.root, file) {
            return Err(format!("machine {at} may {rights:?}, and was answered {call:?}"));
        }
        let writes = matches!(
            call,
            Call::Write { .. } | Call::Create { .. } | Call::SetXattr { .. } | Call::RemoveXattr { .. }
        );
        if rights.read_only && writes {
            Err(format!("machine {at} may only read, and did {call:?}"))
        } else {
            Ok(())
        }
    }

    /// Checks that no file which stays within is denied.
    pub(in crate::world) fn check_denied(
        &self,
        at: usize,
        call: &Call,
        error: Option<Error>,
    ) -> Result<(), Violation> {
        let (dirs, files) = self.stays_for(at);
        let stays = match call {
            Call::Lookup(call::Lookup { dir, .. }) => dirs.contains(dir),
            Call::Stat(call::Stat { file }) | Call::Read(call::Read { file, .. }) => files.contains(file),
            _ => false,
        };
        if stays { Err(format!("machine {at}: {call:?}: {error:?}")) } else { Ok(()) }
    }

    fn is_within(&self, root: &FileId, file: &FileId) -> bool {
        let history = &self.history;
        // A file without a name counts as where it was, for a machine that has it open.
        if history.parents.get(file).is_none_or(Vec::is_empty) {
            return self.was_within(root, file);
        }
        walks_to(root, file, |file| {
            let now = history.parents.get(file).into_iter().flatten();
            let left = history.left.iter().filter(|(child, _)| child == file).map(|(_, dir)| dir);
            now.chain(left).collect()
        })
    }

    fn was_within(&self, root: &FileId, file: &FileId) -> bool {
        walks_to(root, file, |file| self.history.ever.get(file).into_iter().flatten().collect())
    }
}

/// Whether a walk upwards from the file reaches `root`.
fn walks_to<'a>(root: &FileId, file: &'a FileId, above: impl Fn(&FileId) -> Vec<&'a FileId>) -> bool {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![file]);
    while let Some(file) = todo.pop() {
        if file == root {
            return true;
        }
        if seen.insert(file) {
            todo.extend(above(file));
        }
    }
    *root == FileId::root()
}
