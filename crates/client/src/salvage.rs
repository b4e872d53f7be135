//! Salvage: changes that were done here and could not be applied at the server. None of them is
//! dropped silently (ARCHITECTURE, invariant 14).

use crate::Output;
use crate::client::Client;
use crate::knowledge::KnownContent;
use crate::lost::{KnownPath, Lost, LostWhat, Salvage};
use crate::server::ServerId;
use ident::FileId;
use lease::{Field, Label, Released};
use namespace::{ContentChange, Error, Operation, operation};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The maximum number of labels in a path.
const DEPTH_MAX: usize = 4096;
/// Bytes of content that are read at a time.
const RANGE_BYTES_MAX: u32 = 16 << 20;

/// Updates of content that were not applied: ranges by file.
type SalvagedWrite = BTreeMap<FileId, Vec<Range<u64>>>;

impl Client {
    /// All changes done here that this server may not have.
    pub(crate) fn what_is_lost(&self, server: ServerId) -> Vec<Lost> {
        let mut items = Vec::new();
        let dirty = self.publishing.dirty_files().filter(|file| self.server_of(file) == server);
        let mut written: SalvagedWrite = dirty.map(|file| (file.clone(), Vec::new())).collect();
        let operations = self.servers.get(server).log.updates();
        let paths = self.paths();
        for operation in operations {
            match operation {
                // Their loss needs no attention, and locks end with their session.
                Operation::Accessed { .. } | Operation::Lock { .. } => {}
                Operation::Publish(operation::Publish { file, size, change, .. })
                    if self.has_content(file) =>
                {
                    written.entry(file.clone()).or_default().extend(ranges(change, *size));
                }
                _ => items.push(paths.lost(operation, Error::CutOff)),
            }
        }
        items
            .extend(written.into_iter().filter_map(|(file, ranges)| self.lost_content(&paths, file, ranges)));
        items
    }

    /// Takes updates that the server refused while the session goes on. The client forgets the
    /// files that they concern, because the server's state differs.
    pub(crate) fn refused(
        &mut self,
        server: ServerId,
        refused: Vec<(Operation, Error)>,
        out: &mut Vec<Output>,
    ) {
        if refused.is_empty() {
            return;
        }
        let paths = self.paths();
        let (mut items, mut written) = (Vec::new(), SalvagedWrite::new());
        for (operation, error) in refused.iter().filter(is_loss) {
            items.push(paths.lost(operation, *error));
            for file in concerned(operation) {
                written.entry(file).or_default();
            }
        }
        // Other writes to these files are forgotten with them: content that is still to be
        // published, and updates that the server has yet to refuse.
        let unacknowledged = self.servers.get(server).log.updates();
        for operation in refused.iter().map(|(operation, _)| operation).chain(unacknowledged) {
            if let Operation::Publish(operation::Publish { file, size, change, .. }) = operation
                && let Some(written) = written.get_mut(file)
            {
                written.extend(ranges(change, *size));
            }
        }
        let dirty: BTreeSet<&FileId> = self.publishing.dirty_files().collect();
        written.retain(|file, ranges| !ranges.is_empty() || dirty.contains(file));
        items
            .extend(written.into_iter().filter_map(|(file, ranges)| self.lost_content(&paths, file, ranges)));
        if !items.is_empty() {
            self.note_unsaved(&items);
            out.push(Output::Salvage(Salvage { cut_off: false, items }));
        }
        // Trap: a refused access time must not make the client forget anything else of the file,
        // above all no unpublished content.
        let counts = |(operation, _): &&(Operation, Error)| !matches!(operation, Operation::Accessed { .. });
        for file in refused.iter().filter(counts).flat_map(|(operation, _)| concerned(operation)) {
            self.disown(&file, out);
        }
    }

    /// Makes the next sync of one of these files report the loss.
    pub(crate) fn note_unsaved(&mut self, items: &[Lost]) {
        self.unsaved_any |= !items.is_empty();
        for lost in items {
            self.unsaved.insert(lost.file.clone());
            if let LostWhat::Operation { operation, .. } = &lost.what {
                self.unsaved.extend(concerned(operation));
            }
        }
    }

    /// Whether data of `file`, or any data at all, was lost since the last call.
    pub(crate) fn take_unsaved(&mut self, file: Option<&FileId>) -> bool {
        match file {
            Some(file) => self.unsaved.remove(file),
            None => std::mem::take(&mut self.unsaved_any),
        }
    }

    fn has_content(&self, file: &FileId) -> bool {
        self.files.get(file).is_some_and(|known| matches!(known.content, KnownContent::Open(_)))
    }

    /// The lost content of `file`: these ranges, and everything unpublished.
    fn lost_content(&self, paths: &Paths<'_>, file: FileId, mut written: Vec<Range<u64>>) -> Option<Lost> {
        let KnownContent::Open(content) = &self.files.get(&file)?.content else { return None };
        written.extend(content.unpublished());
        let mut ranges = Vec::new();
        for range in merged(written) {
            let mut at = range.start;
            while at < range.end.min(content.size()) {
                let length = u32::try_from(range.end - at).unwrap_or(u32::MAX).min(RANGE_BYTES_MAX);
                let mut parts = Vec::new();
                // The written bytes are here. If other bytes of the piece are not, the piece is
                // left out.
                let _ = content.read(at, length, &mut parts);
                let mut offset = at;
                for part in parts {
                    let length = part.length() as u64;
                    ranges.push((offset, part));
                    offset += length;
                }
                at += u64::from(length);
            }
        }
        let (path, size) = (paths.of(&file), content.size());
        Some(Lost { file, path, from: None, what: LostWhat::Content { size, ranges } })
    }

    /// Releases all leases on `file` but those for its handles and locks, and forgets its values.
    fn disown(&mut self, file: &FileId, out: &mut Vec<Output>) {
        let Some(known) = self.files.get(file) else { return };
        // A refusal concerns no locks, and the server may not have them yet.
        let mut fields = known.to_release();
        fields.retain(|field| !field.is_black_box() && *field != Field::Locks);
        out.extend(known.handed_out(file).map(Output::RevokeUncovered));
        let released = fields.into_iter().map(|field| Released { file: file.clone(), field, keep: None });
        let released: Vec<Released> = released.collect();
        self.files.release(&released);
        self.forget_content(file);
        self.publishing.orphan(file);
        self.push_release(self.server_of(file), released, Vec::new());
    }

    fn paths(&self) -> Paths<'_> {
        let mut linked = FxHashMap::default();
        for (dir, known) in &self.files.all {
            for (label, entry) in known.children.iter().flat_map(|children| children.by_position.values()) {
                linked.insert(&entry.file, (dir, label));
            }
        }
        Paths { client: self, linked }
    }
}

/// The paths of files, from the directories and links that are known.
struct Paths<'a> {
    client: &'a Client,
    linked: FxHashMap<&'a FileId, (&'a FileId, &'a Label)>,
}

impl Paths<'_> {
    fn of(&self, file: &FileId) -> KnownPath {
        let (mut from, mut labels) = (file.clone(), Vec::new());
        while let Some((dir, label)) = self.above(&from)
            && labels.len() < DEPTH_MAX
        {
            labels.push(label.clone());
            from = dir.clone();
        }
        labels.reverse();
        KnownPath { from, labels }
    }

    fn above(&self, file: &FileId) -> Option<(&FileId, &Label)> {
        let links = self.client.files.get(file).and_then(|known| known.links.as_ref());
        let link = links.and_then(|links| links.first()).map(|link| (&link.dir, &link.label));
        link.or_else(|| self.linked.get(file).copied())
    }

    /// Another name of `file` than this one.
    fn other_name(&self, file: &FileId, dir: &FileId, label: &Label) -> Option<KnownPath> {
        let links = self.client.files.get(file).and_then(|known| known.links.as_ref());
        let of_links = links.into_iter().flatten().map(|link| (&link.dir, &link.label));
        let mut known = of_links.chain(self.linked.get(file).copied());
        let (dir, label) = known.find(|other| *other != (dir, label))?;
        Some(self.below(dir, label))
    }

    fn below(&self, dir: &FileId, label: &Label) -> KnownPath {
        let KnownPath { from, mut labels } = self.of(dir);
        labels.push(label.clone());
        KnownPath { from, labels }
    }

    fn lost(&self, operation: &Operation, error: Error) -> Lost {
        let (file, path) = match operation {
            Operation::Create(operation::Create { dir, label, new, .. }) => {
                (&new.file, self.below(dir, label))
            }
            Operation::Link(operation::Link { file, dir, label, .. }) => (file, self.below(dir, label)),
            Operation::Unlink(operation::Unlink { dir, label, .. }) => (dir, self.below(dir, label)),
            Operation::Rename(operation::Rename { to_dir, to, .. }) => (to_dir, self.below(to_dir, to)),
            Operation::Lookup(operation::Lookup { dir: file, .. })
            | Operation::Find(operation::Find { dir: file, .. })
            | Operation::List(operation::List { dir: file })
            | Operation::Stat(operation::Stat { file })
            | Operation::Access(operation::Access { file, .. })
            | Operation::Open(operation::Open { file, .. })
            | Operation::ReadLink(operation::ReadLink { file })
            | Operation::GetXattr(operation::GetXattr { file, .. })
            | Operation::ListXattrs(operation::ListXattrs { file })
            | Operation::SetAttributes(operation::SetAttributes { file, .. })
            | Operation::SetXattr(operation::SetXattr { file, .. })
            | Operation::RemoveXattr(operation::RemoveXattr { file, .. })
            | Operation::Publish(operation::Publish { file, .. })
            | Operation::Accessed(operation::Accessed { file, .. })
            | Operation::SetDisposition(operation::SetDisposition { file, .. })
            | Operation::Lock(operation::Lock { file, .. })
            | Operation::GetLock(operation::GetLock { file, .. })
            | Operation::Dispose(operation::Dispose { file, .. }) => (file, self.of(file)),
        };
        let from = match operation {
            Operation::Rename(operation::Rename { from_dir, from, .. }) => Some(self.below(from_dir, from)),
            Operation::Link(operation::Link { file, dir, label, .. }) => self.other_name(file, dir, label),
            _ => None,
        };
        let what = LostWhat::Operation { operation: Box::new(operation.clone()), error };
        Lost { file: file.clone(), path, from, what }
    }
}

/// Whether a refusal is a loss. Refused access times are none, and neither are changes of a file
/// that is gone.
pub(crate) fn is_loss((operation, error): &&(Operation, Error)) -> bool {
    match operation {
        // Their loss needs no attention, and locks end with their session.
        Operation::Accessed { .. } | Operation::Lock { .. } => false,
        Operation::Publish { .. }
        | Operation::SetAttributes { .. }
        | Operation::SetXattr { .. }
        | Operation::RemoveXattr { .. }
        | Operation::SetDisposition { .. }
        | Operation::Dispose { .. } => *error != Error::Stale,
        _ => true,
    }
}

/// The files that an update concerns.
fn concerned(operation: &Operation) -> Vec<FileId> {
    match operation {
        Operation::Create(operation::Create { dir, new, .. }) => vec![dir.clone(), new.file.clone()],
        Operation::Link(operation::Link { file, dir, .. }) => vec![dir.clone(), file.clone()],
        Operation::Unlink(operation::Unlink { dir, .. }) => vec![dir.clone()],
        Operation::Rename(operation::Rename { from_dir, to_dir, .. }) => {
            vec![from_dir.clone(), to_dir.clone()]
        }
        Operation::Lookup { .. }
        | Operation::Find { .. }
        | Operation::List { .. }
        | Operation::Stat { .. }
        | Operation::Access { .. }
        | Operation::Open { .. }
        | Operation::ReadLink { .. }
        | Operation::GetXattr { .. }
        | Operation::ListXattrs { .. }
        | Operation::Lock { .. }
        | Operation::GetLock { .. } => Vec::new(),
        Operation::SetAttributes(operation::SetAttributes { file, .. })
        | Operation::SetXattr(operation::SetXattr { file, .. })
        | Operation::RemoveXattr(operation::RemoveXattr { file, .. })
        | Operation::Publish(operation::Publish { file, .. })
        | Operation::Accessed(operation::Accessed { file, .. })
        | Operation::SetDisposition(operation::SetDisposition { file, .. })
        | Operation::Dispose(operation::Dispose { file, .. }) => vec![file.clone()],
    }
}

/// The ranges in which a publication puts data, of a file of `size` bytes.
fn ranges(change: &ContentChange, size: u64) -> Vec<Range<u64>> {
    match change {
        ContentChange::None => Vec::new(),
        ContentChange::Inline { .. } => std::iter::once(0..size).collect(),
        ContentChange::Extents { put, .. } => {
            put.iter().map(|extent| extent.offset..extent.offset + u64::from(extent.length)).collect()
        }
    }
}

/// The same ranges in order and without overlaps.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(range),
        }
    }
    merged
}
