//! The checks: at any time, and once everything is at rest.

use super::{Doing, ManyMachines};
use crate::host::Violation;
use client::{Call, call};
use directory::Store;
use ident::FileId;
use lease::{Field, OpenModes};
use namespace::{Entry, FileKind};
use std::collections::BTreeSet;

impl ManyMachines {
    /// Checks that hold at any time.
    pub(super) fn check(&mut self) -> Result<(), Violation> {
        for file in self.programs.iter().flat_map(|programs| programs.open.keys()) {
            if self.host.server.store.get(&record_key(file)).is_some() {
                self.stored.insert(file.clone());
            } else if self.stored.contains(file) {
                return Err(format!("{file} is gone, and somebody has it open"));
            }
        }
        for file in &self.known {
            let handles = self.programs.iter().filter_map(|programs| programs.open.get(file)).flatten();
            let handles: Vec<&OpenModes> = handles.collect();
            for (at, open) in handles.iter().enumerate() {
                let others = handles.iter().skip(at + 1);
                if others.clone().any(|other| open.modes().any(|mode| other.has_mode(mode.against()))) {
                    return Err(format!("{file} is open as does not go together: {handles:?}"));
                }
            }
        }
        for machine in self.host.machines.iter().filter(|machine| !machine.over) {
            // A file that is gone has no handles to report: any request for it is answered with its
            // absence.
            for file in
                self.known.iter().filter(|file| self.host.server.store.get(&record_key(file)).is_some())
            {
                let others = self.host.machines.iter().filter(|other| other.id != machine.id && !other.over);
                let open = others.fold(OpenModes::CLOSED, |open, other| open.or(other.client.own(file)));
                for field in &Field::BLACK_BOXES {
                    let Some(belief) = machine.client.others(file, field) else { continue };
                    if belief != open.has(field) && !(belief && self.ghosts.contains(file)) {
                        let id = machine.id;
                        return Err(format!(
                            "{id:?} knows {belief} of {field:?} of {file}, and others have it {open:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks that the server's whole state is sound, and that every file left has a name or a
    /// handle.
    pub(super) fn check_at_rest(&mut self) -> Result<(), Violation> {
        self.ghosts.clear();
        self.check()?;
        self.host.server.check()?;
        let doomed = self.host.server.store.scan(&[2], &[3], usize::MAX).into_iter();
        let mut doomed = doomed.filter_map(|(key, _)| FileId::from_bytes(&key[1..]).ok());
        let is_open = |file: &FileId| self.programs.iter().any(|programs| programs.open.contains_key(file));
        if let Some(file) = doomed.find(|file| !is_open(file)) {
            return Err(format!("{file} was to go with its last handle, and has none"));
        }
        let mut named: Vec<FileId> = Vec::new();
        let mut dirs = vec![FileId::root()];
        while let Some(dir) = dirs.pop() {
            for entry in self.list(dir)? {
                dirs.extend((entry.kind == FileKind::Directory).then(|| entry.file.clone()));
                named.push(entry.file);
            }
        }
        let open = self.programs.iter().flat_map(|programs| programs.open.keys().cloned());
        let expected: BTreeSet<FileId> = named.into_iter().chain(open).collect();
        if let Some(file) =
            expected.iter().find(|file| self.host.server.store.get(&record_key(file)).is_none())
        {
            return Err(format!("{file} is not there"));
        }
        let found = self.host.server.directory.status(self.host.now).files;
        if found != expected.len() as u64 + 1 {
            let known = self.known.iter().chain(&self.dirs[1..]);
            let left = known
                .filter(|f| !expected.contains(f) && self.host.server.store.get(&record_key(f)).is_some());
            let left: Vec<_> = left.map(|file| (file, self.names.get(file))).collect();
            return Err(format!(
                "{found} files, and with the root {} have a name or a handle: {left:?} have not",
                expected.len() + 1
            ));
        }
        Ok(())
    }

    /// The entries that the first machine sees in `dir`.
    pub(super) fn list(&mut self, dir: FileId) -> Result<Vec<Entry>, Violation> {
        self.listed = None;
        self.call(
            0,
            Call::List(call::List { dir: dir.clone(), after: 0, upto: None, limit: 1_000, stat: false }),
            Doing::Name,
        )?;
        self.rest()?;
        self.listed.take().ok_or_else(|| format!("{dir} is not listed"))
    }
}

/// The key of a file's record: its identifier and the first tag.
pub(super) fn record_key(file: &FileId) -> Vec<u8> {
    [file.as_bytes(), &[1]].concat()
}
