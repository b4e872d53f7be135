//! Doubts: values that an operation which a server is doing for this client may have changed.
//! Other clients may see its result before this one does.

use crate::client::Client;
use crate::{Call, call};
use ident::FileId;
use lease::{Kind, Label};
use namespace::{Knowledge, Known, Operation, fold, operation};

/// The names that an operation binds or unbinds.
pub(crate) fn names(operation: &Operation) -> [Option<(&FileId, &Label)>; 3] {
    match operation {
        Operation::Create(operation::Create { dir, label, .. })
        | Operation::Unlink(operation::Unlink { dir, label, .. }) => [Some((dir, label)), None, None],
        Operation::Link(operation::Link { dir, label, replaced, .. }) => {
            [Some((dir, label)), replaced.as_ref().map(|replaced| (dir, &replaced.label)), None]
        }
        Operation::Rename(operation::Rename { from_dir, from, to_dir, to, replaced, .. }) => {
            let lost = replaced.as_ref().map(|replaced| (to_dir, &replaced.label));
            [Some((from_dir, from)), Some((to_dir, to)), lost]
        }
        _ => [None, None, None],
    }
}

impl Client {
    /// Whether a server is doing an operation that changes the answer to `call`. Other clients
    /// may see its result before this one does, so a value leased earlier is no answer.
    pub(crate) fn is_in_doubt(&self, call: &Call) -> bool {
        if !self.servers.any_shipped() {
            return false;
        }
        match call {
            Call::Lookup(call::Lookup { dir, label }) | Call::Find(call::Find { dir, label }) => {
                let named = |operation: &Operation| names(operation).contains(&Some((dir, label)));
                self.servers.shipped().any(named)
                    || self.named(dir, label).is_some_and(|file| self.is_changing(&file))
            }
            Call::List(call::List { dir: file, .. })
            | Call::Parent(call::Parent { dir: file })
            | Call::Links(call::Links { file })
            | Call::Stat(call::Stat { file })
            | Call::Glance(call::Glance { file })
            | Call::Peek(call::Peek { file })
            | Call::Access(call::Access { file, .. })
            | Call::OpenFile(call::OpenFile { file, .. })
            | Call::GetXattr(call::GetXattr { file, .. })
            | Call::ListXattrs(call::ListXattrs { file }) => self.is_changing(file),
            _ => false,
        }
    }

    /// Whether a server is doing an operation that changes the binding of names like `folded`.
    pub(crate) fn is_name_in_doubt(&self, dir: &FileId, folded: &Label) -> bool {
        let is_it = |(of, label): (&FileId, &Label)| of == dir && fold(label) == *folded;
        self.servers.shipped().any(|operation| names(operation).into_iter().flatten().any(is_it))
    }

    /// Whether a server is doing an operation that changes `file`. A file that a request declared
    /// to be in doubt stays so, even when the client no longer knows its name.
    pub(crate) fn is_changing(&self, file: &FileId) -> bool {
        self.servers.is_doubted(file)
            || self.servers.shipped().any(|operation| self.changes(operation).any(|changed| changed == *file))
    }

    /// The files that an operation changes, as far as is known here.
    pub(crate) fn changes(&self, operation: &Operation) -> impl Iterator<Item = FileId> {
        operation.files().into_iter().cloned().chain(self.found_by_name(operation))
    }

    /// The files among them that the operation finds by name.
    pub(crate) fn found_by_name(&self, operation: &Operation) -> impl Iterator<Item = FileId> {
        names(operation).into_iter().flatten().filter_map(|(dir, label)| self.named(dir, label))
    }

    fn named(&self, dir: &FileId, label: &Label) -> Option<FileId> {
        match self.files.child(dir, label, Kind::Read) {
            Known::Used(entry) => Some(entry.file),
            Known::Unused | Known::Unknown => None,
        }
    }
}
