//! A machine is granted, told and lets be changed nothing outside of its rights: not of files that
//! are elsewhere (by the names that the server's own updates gave and took), nothing to write if it
//! may only read, and as nobody else than the one user that it has (`wire::Rights`). While an input
//! is done names may be given and taken, so what was within at any time of it was within.

use crate::world::history::{Key, Value};
use crate::world::{Violation, World};
use client::Call;
use directory::Output;
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::{Effect, Error, Operation};
use std::collections::BTreeSet;
use wire::{FileGrant, Rights, ToClient, Values};

impl World {
    /// What came of an input is within the rights of whom it is for.
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
                // What is told once more was within when it was done.
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

    /// Whether content of the file may be told: it is within, or was for whoever has it open, and
    /// not its owner's alone.
    fn may_be_told(&self, rights: &Rights, file: &FileId) -> bool {
        let alone = |value: &Value| matches!(value, Value::Attributes(uid, mode) if Some(*uid) != rights.squash && mode & 0o077 == 0);
        let versions = self.history.registers.get(&Key::Attributes(file.clone()));
        // The last two: one may be of this input.
        let owners =
            versions.is_some_and(|all| all.iter().rev().take(2).all(|version| alone(&version.value)));
        self.is_within(&rights.root, file) && !(rights.squash.is_some() && owners)
    }

    /// What a machine has changed it might change.
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

    /// A program of such a machine has only done what is within.
    pub(in crate::world) fn check_done_within(&self, at: usize, call: &Call) -> Result<(), Violation> {
        let Some(rights) = self.limits.rights.get(&self.machines[at].id) else { return Ok(()) };
        let file = match call {
            Call::Stat { file }
            | Call::Read { file, .. }
            | Call::Write { file, .. }
            | Call::GetXattr { file, .. }
            | Call::SetXattr { file, .. }
            | Call::RemoveXattr { file, .. } => file,
            Call::Lookup { dir, .. } | Call::List { dir, .. } | Call::Create { dir, .. } => dir,
            _ => return Ok(()),
        };
        // What it has made, and not sent, nobody else knows of.
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

    /// What stays within is not denied to be there.
    pub(in crate::world) fn check_denied(
        &self,
        at: usize,
        call: &Call,
        error: Option<Error>,
    ) -> Result<(), Violation> {
        let (dirs, files) = self.stays_for(at);
        let stays = match call {
            Call::Lookup { dir, .. } => dirs.contains(dir),
            Call::Stat { file } | Call::Read { file, .. } => files.contains(file),
            _ => false,
        };
        if stays { Err(format!("machine {at}: {call:?}: {error:?}")) } else { Ok(()) }
    }

    fn is_within(&self, root: &FileId, file: &FileId) -> bool {
        let history = &self.history;
        // What has no name is where it was, for who has it open.
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

/// Whether going up from the file comes by that directory.
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
