//! What was done here and could not be applied at the server: nothing of it is dropped silently
//! (ARCHITECTURE, invariant 14).

use crate::Output;
use crate::client::Client;
use crate::known::KnownContent;
use ident::FileId;
use lease::{Field, Label, Released};
use namespace::{ContentChange, Error, Operation};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Labels of a path that are looked for.
const DEPTH_MAX: usize = 4096;
/// Bytes of content that are read at a time.
const RANGE_BYTES_MAX: u32 = 16 << 20;

/// See the module.
#[derive(Clone, Debug)]
pub struct Salvage {
    /// Whether all of it is from a session that is over; otherwise the server refused what is here,
    /// and the session goes on.
    pub cut_off: bool,
    /// In the order in which it was done; content after the operations.
    pub items: Vec<Lost>,
}

/// One thing that could not be applied.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The file that it concerns most: of an operation on a name the one that the name is bound to
    /// or was to be bound to, if that is known, or the directory.
    pub file: FileId,
    /// Where that is, as far as this client knew.
    pub path: KnownPath,
    /// The other path that an operation names: where the file was before a rename, or another name
    /// of what was linked.
    pub from: Option<KnownPath>,
    /// What it is.
    pub what: LostWhat,
}

/// A path, as far as it is known: it begins at the root if all of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// The directory (or the file itself) that the labels begin at.
    pub from: FileId,
    /// Labels from there.
    pub labels: Vec<Label>,
}

/// What was lost.
#[derive(Clone, Debug)]
pub enum LostWhat {
    /// An operation that was done here.
    Operation {
        /// The operation.
        operation: Box<Operation>,
        /// Why the server refused it; [`Error::CutOff`] if nobody asked it any more.
        error: Error,
    },
    /// Content that was written here.
    Content {
        /// The size of the file as it was here.
        size: u64,
        /// What was written and not applied: offsets, and the bytes. The host gathers those that
        /// are in a share, as for a read; that share's lease is not let go before the next start.
        ranges: Vec<(u64, content::ReadPart)>,
    },
}

/// An update of content that was not applied: which file, and which ranges of it.
type Written = BTreeMap<FileId, Vec<Range<u64>>>;

impl Client {
    /// Everything that was done here and that the server may not have.
    pub(crate) fn what_is_lost(&self) -> Vec<Lost> {
        let mut items = Vec::new();
        let mut written: Written =
            self.publishing.dirty_files().map(|file| (file.clone(), Vec::new())).collect();
        let (operations, paths) = (self.log.updates(), self.paths());
        for operation in operations {
            match operation {
                // Not worth anybody's attention; and locks end with their session.
                Operation::Accessed { .. } | Operation::Lock { .. } => {}
                Operation::Publish { file, size, change, .. } if self.has_content(file) => {
                    written.entry(file.clone()).or_default().extend(ranges(change, *size));
                }
                _ => items.push(paths.lost(operation, Error::CutOff)),
            }
        }
        items
            .extend(written.into_iter().filter_map(|(file, ranges)| self.lost_content(&paths, file, ranges)));
        items
    }

    /// Updates that the server refused, while the session goes on. What is known of the files that
    /// they concern is not what the server has: it goes.
    pub(crate) fn refused(&mut self, refused: Vec<(Operation, Error)>, out: &mut Vec<Output>) {
        if refused.is_empty() {
            return;
        }
        let paths = self.paths();
        let (mut items, mut written) = (Vec::new(), Written::new());
        for (operation, error) in refused.iter().filter(is_loss) {
            items.push(paths.lost(operation, *error));
            for file in concerned(operation) {
                written.entry(file).or_default();
            }
        }
        // What else was written of these is forgotten with them: what is still to be published, and
        // what the server has yet to refuse.
        for operation in refused.iter().map(|(operation, _)| operation).chain(self.log.updates()) {
            if let Operation::Publish { file, size, change, .. } = operation
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
        // Trap: for a time that is not moved nothing else of the file may be given up, least what
        // is yet to be published.
        let counts = |(operation, _): &&(Operation, Error)| !matches!(operation, Operation::Accessed { .. });
        for file in refused.iter().filter(counts).flat_map(|(operation, _)| concerned(operation)) {
            self.disown(&file, out);
        }
    }

    /// Whoever asks next for one of these to be durable is told that it is not.
    pub(crate) fn note_unsaved(&mut self, items: &[Lost]) {
        self.unsaved_any |= !items.is_empty();
        for lost in items {
            self.unsaved.insert(lost.file.clone());
            if let LostWhat::Operation { operation, .. } = &lost.what {
                self.unsaved.extend(concerned(operation));
            }
        }
    }

    /// Whether something of `file`, or anything at all, was lost since this was asked last.
    pub(crate) fn take_unsaved(&mut self, file: Option<&FileId>) -> bool {
        match file {
            Some(file) => self.unsaved.remove(file),
            None => std::mem::take(&mut self.unsaved_any),
        }
    }

    fn has_content(&self, file: &FileId) -> bool {
        self.files.get(file).is_some_and(|known| matches!(known.content, KnownContent::Open(_)))
    }

    /// What was written of `file`: these ranges, and what is not published.
    fn lost_content(&self, paths: &Paths<'_>, file: FileId, mut written: Vec<Range<u64>>) -> Option<Lost> {
        let KnownContent::Open(content) = &self.files.get(&file)?.content else { return None };
        written.extend(content.unpublished());
        let mut ranges = Vec::new();
        for range in merged(written) {
            let mut at = range.start;
            while at < range.end.min(content.size()) {
                let length = u32::try_from(range.end - at).unwrap_or(u32::MAX).min(RANGE_BYTES_MAX);
                let mut parts = Vec::new();
                // What was written is here; if the rest is not, the piece is left out.
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

    /// Lets everything of `file` go but its handles and locks, and forgets it.
    fn disown(&mut self, file: &FileId, out: &mut Vec<Output>) {
        let Some(known) = self.files.get(file) else { return };
        // What is locked here no refusal concerns, and the server may not have it yet.
        let mut fields = known.to_let_go();
        fields.retain(|field| !field.is_black_box() && *field != Field::Locks);
        out.extend(known.handed_out(file).map(Output::Invalidate));
        let released = fields.into_iter().map(|field| Released { file: file.clone(), field, keep: None });
        let released: Vec<Released> = released.collect();
        self.files.release(&released);
        self.forget_content(file);
        self.publishing.orphan(file);
        self.push_release(released, Vec::new());
    }

    fn paths(&self) -> Paths<'_> {
        let mut linked = FxHashMap::default();
        for (dir, known) in &self.files.0 {
            for (label, entry) in known.children.iter().flat_map(|children| children.by_position.values()) {
                linked.insert(&entry.file, (dir, label));
            }
        }
        Paths { client: self, linked }
    }
}

/// Where files are, from what is known upward and downward.
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
            Operation::Create { dir, label, new, .. } => (&new.file, self.below(dir, label)),
            Operation::Link { file, dir, label, .. } => (file, self.below(dir, label)),
            Operation::Unlink { dir, label, .. } => (dir, self.below(dir, label)),
            Operation::Rename { to_dir, to, .. } => (to_dir, self.below(to_dir, to)),
            Operation::Lookup { dir: file, .. }
            | Operation::List { dir: file }
            | Operation::Stat { file }
            | Operation::Access { file, .. }
            | Operation::Open { file, .. }
            | Operation::ReadLink { file }
            | Operation::GetXattr { file, .. }
            | Operation::ListXattrs { file }
            | Operation::SetAttributes { file, .. }
            | Operation::SetXattr { file, .. }
            | Operation::RemoveXattr { file, .. }
            | Operation::Publish { file, .. }
            | Operation::Accessed { file, .. }
            | Operation::SetDisposition { file, .. }
            | Operation::Lock { file, .. }
            | Operation::GetLock { file, .. }
            | Operation::Dispose { file, .. } => (file, self.of(file)),
        };
        let from = match operation {
            Operation::Rename { from_dir, from, .. } => Some(self.below(from_dir, from)),
            Operation::Link { file, dir, label, .. } => self.other_name(file, dir, label),
            _ => None,
        };
        let what = LostWhat::Operation { operation: Box::new(operation.clone()), error };
        Lost { file: file.clone(), path, from, what }
    }
}

/// Whether anybody misses what was refused: not an access time, nor anything of a file that is
/// gone.
pub(crate) fn is_loss((operation, error): &&(Operation, Error)) -> bool {
    match operation {
        // Not worth anybody's attention; and locks end with their session.
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

/// The files of which an update says something.
fn concerned(operation: &Operation) -> Vec<FileId> {
    match operation {
        Operation::Create { dir, new, .. } => vec![dir.clone(), new.file.clone()],
        Operation::Link { file, dir, .. } => vec![dir.clone(), file.clone()],
        Operation::Unlink { dir, .. } => vec![dir.clone()],
        Operation::Rename { from_dir, to_dir, .. } => vec![from_dir.clone(), to_dir.clone()],
        Operation::Lookup { .. }
        | Operation::List { .. }
        | Operation::Stat { .. }
        | Operation::Access { .. }
        | Operation::Open { .. }
        | Operation::ReadLink { .. }
        | Operation::GetXattr { .. }
        | Operation::ListXattrs { .. }
        | Operation::Lock { .. }
        | Operation::GetLock { .. } => Vec::new(),
        Operation::SetAttributes { file, .. }
        | Operation::SetXattr { file, .. }
        | Operation::RemoveXattr { file, .. }
        | Operation::Publish { file, .. }
        | Operation::Accessed { file, .. }
        | Operation::SetDisposition { file, .. }
        | Operation::Dispose { file, .. } => vec![file.clone()],
    }
}

/// The ranges of a file of `size` that a publication puts data in.
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
