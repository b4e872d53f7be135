//! The client's knowledge, file by file, with the leases that it rests on.

use super::handles::Handles;
use super::locks::KnownLocks;
use super::looked_up::LookedUp;
use super::number_blocks::NumberBlocks;
use crate::Upto;
use content::FileContent;
use ident::{FileId, ServerId};
use lease::{Field, Held, Kind, Label, OpenModes};
use namespace::{
    Attributes, ContentHead, Disposition, Entry, FileKind, Knowledge, Known, Links, Locks, POLICY_LABEL,
    Spread, Times, fold,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

// The client's memory goes to hundreds of thousands of these. Parts that most files lack are on the
// heap. glibc's allocator has chunks of 368 bytes, of which 8 are its own.
const _: () = assert!(size_of::<KnownFile>() <= 360);

/// One file: the leases held on it, and the values that they cover. A value without its lease is no
/// knowledge. With the release of a lease the client forgets the value.
#[derive(Debug, Default)]
pub(crate) struct KnownFile {
    /// The leases held on the file.
    pub held: Held,
    /// The server that granted them.
    pub server: ServerId,
    /// The file was deleted here, or is known to be gone for good. The entry stays until the server
    /// knows that too.
    pub gone: bool,
    /// The file is gone, and the server knows that too. No grant of it is on its way any more. Only
    /// open handles keep the entry.
    pub buried: bool,
    /// The file was used since the eviction hand last passed.
    pub recent: bool,
    /// When a front door last received the file by a lookup, and may come back for it.
    pub looked_up: LookedUp,
    /// Extended attributes that are not in `xattrs` are known not to exist.
    pub xattrs_complete: bool,
    /// Open handles, if there are any. A change of this client's own values needs `SelfWrite`.
    pub handles: Option<Box<Handles>>,
    pub attributes: Option<Attributes>,
    /// Only directories have these, and `children`.
    pub times: Option<Box<Times>>,
    pub links: Option<Links>,
    /// The aggregate of how other clients have it open, as far as `OtherRead` is held.
    pub others: OpenModes,
    /// The pending deletion, if there is one.
    pub disposition: Option<Box<Disposition>>,
    /// The file's locks, if there are any.
    pub locks: Option<Box<KnownLocks>>,
    pub content: KnownContent,
    /// The client's number when all but the head of the content was last unknown. Answers to
    /// earlier questions are of earlier content.
    pub content_since: u64,
    /// When a change of the content counts, if this client may change it.
    pub writes: Writes,
    pub children: Option<Box<Children>>,
    pub xattrs: BTreeMap<Label, Option<Vec<u8>>>,
}

/// Knowledge of a file's content.
#[derive(Debug, Default)]
pub(crate) enum KnownContent {
    /// Nothing.
    #[default]
    Unknown,
    /// The head, and inline content if it came with the head.
    Head(ContentHead, Option<Box<[u8]>>),
    /// Everything that reading and writing need.
    Open(Box<FileContent>),
}

impl KnownContent {
    /// The head as stat shows it, unpublished changes included.
    pub fn head(&self) -> Option<ContentHead> {
        match self {
            KnownContent::Unknown => None,
            KnownContent::Head(head, _) => Some(*head),
            KnownContent::Open(content) => Some(content.head()),
        }
    }
}

/// The mode of changes to a file's content: when a change counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writes {
    /// A change counts when it is made. The server asks this client for it.
    #[default]
    WriteBack,
    /// A change counts when the server has confirmed it. The server asks no client.
    WriteThrough,
    /// A write-through change is on its way to the server.
    Unheard,
}

impl Writes {
    /// Whether a lease on the content is good for `kind` outside write-through mode.
    pub fn allow(self, kind: Kind) -> bool {
        match self {
            Writes::WriteBack => true,
            Writes::WriteThrough => kind == Kind::Read,
            Writes::Unheard => false,
        }
    }
}

/// Knowledge of a directory's children.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// Exact labels, with the positions of their entries. A label with `None` is known to be
    /// unused.
    pub by_label: FxHashMap<Label, Option<u64>>,
    /// Labels that are not their own fold, by their fold: every bound one is among them.
    pub capitals: BTreeMap<Label, BTreeSet<Label>>,
    /// Entries by position, the order of a listing.
    pub by_position: BTreeMap<u64, (Label, Entry)>,
    /// Folds of which every bound label is in here.
    pub told: BTreeSet<Label>,
    /// Every entry with a position up to this one is in here, as far as leases cover it. `u64::MAX`
    /// means all of them.
    pub up_to: u64,
    /// No entry stands at a greater position.
    pub last: u64,
    /// Integers for identifiers and positions.
    pub integers: NumberBlocks,
}

impl Children {
    /// The children of a directory just made here: none, and that is complete knowledge. The
    /// directory starts with the first block of integers.
    pub fn born() -> Children {
        let integers = NumberBlocks::new(1..wire::BIRTH_RESERVATION + 1);
        Children { up_to: u64::MAX, integers, ..Children::default() }
    }

    /// Whether all children are known.
    pub fn complete(&self) -> bool {
        self.up_to == u64::MAX
    }

    /// The entry that `label` is bound to.
    pub fn get(&self, label: &Label) -> Known<Entry> {
        match self.by_label.get(label) {
            Some(Some(position)) => {
                let bound = self.by_position.get(position);
                bound.map_or(Known::Unknown, |(_, entry)| Known::Used(entry.clone()))
            }
            Some(None) => Known::Unused,
            None if self.complete() || self.told.contains(&fold(label)) => Known::Unused,
            None => Known::Unknown,
        }
    }

    /// The bound labels that fold to `folded`, if all of them are known.
    pub fn spellings(&self, folded: &Label) -> Option<Vec<Label>> {
        let is_known = self.complete() || self.told.contains(folded);
        let is_bound = |label: &Label| matches!(self.by_label.get(label), Some(Some(_)));
        is_known.then(|| {
            let others = self.capitals.get(folded).into_iter().flatten();
            std::iter::once(folded).chain(others).filter(|label| is_bound(label)).cloned().collect()
        })
    }

    /// Binds `label`, and replaces its old entry if there is one.
    pub fn bind(&mut self, label: &Label, entry: Entry) {
        self.last = self.last.max(entry.position);
        let folded = fold(label);
        if folded != *label {
            self.capitals.entry(folded).or_default().insert(label.clone());
        }
        if let Some(Some(old)) = self.by_label.insert(label.clone(), Some(entry.position)) {
            self.by_position.remove(&old);
        }
        self.by_position.insert(entry.position, (label.clone(), entry));
    }

    /// Unbinds `label`. In a directory that is known completely, the absence of a label says that
    /// it is unused.
    pub fn unbind(&mut self, label: &Label) {
        self.forget_capitals(label);
        let old = if self.complete() {
            self.by_label.remove(label)
        } else {
            self.by_label.insert(label.clone(), None)
        };
        if let Some(Some(old)) = old {
            self.by_position.remove(&old);
        }
    }

    fn forget_capitals(&mut self, label: &Label) {
        if self.capitals.is_empty() {
            return;
        }
        let folded = fold(label);
        if let Some(labels) = self.capitals.get_mut(&folded) {
            labels.remove(label);
            if labels.is_empty() {
                self.capitals.remove(&folded);
            }
        }
    }

    /// Forgets all labels that fold to one of `folded`. One call takes many folds, because it looks
    /// at every known label.
    pub fn forget(&mut self, folded: &BTreeSet<&Label>) {
        let Children { by_label, by_position, capitals, told, .. } = self;
        told.retain(|label| !folded.contains(label));
        folded.iter().for_each(|label| _ = capitals.remove(*label));
        by_label.retain(|label, position| {
            let forget = folded.contains(&fold(label));
            if forget && let Some(position) = position {
                by_position.remove(position);
            }
            !forget
        });
    }

    /// The end of a listing that begins now.
    pub fn upto(&self) -> Upto {
        Upto { last: self.last, unused: self.integers.at_hand() }
    }

    /// Whether the client should reserve more integers.
    pub fn integers_low(&self) -> bool {
        let integers = &self.integers;
        !integers.is_reserving && !integers.has_next() && integers.left() <= wire::BIRTH_RESERVATION / 2
    }
}

/// All files that this client knows anything about.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub all: FxHashMap<FileId, Box<KnownFile>>,
    /// Servers whose leases do not count now, since their sessions' terms have run out. Nothing is
    /// known under these.
    pub lapsed: Vec<ServerId>,
}

impl Files {
    /// One directory that contains `file`, and its label there: from the file's links, or from the
    /// directory that it was made in.
    pub(crate) fn place(&self, file: &FileId) -> Option<(FileId, Label)> {
        let links = self.all.get(file).and_then(|known| known.links.as_ref());
        if let Some(link) = links.and_then(|links| links.first()) {
            return Some((link.dir.clone(), link.label.clone()));
        }
        let dir = file.parent()?;
        let children = self.all.get(&dir)?.children.as_ref()?;
        let (label, _) = children.by_position.values().find(|(_, entry)| entry.file == *file)?;
        Some((dir, label.clone()))
    }

    pub fn get(&self, file: &FileId) -> Option<&KnownFile> {
        self.all.get(file).map(|known| &**known)
    }

    pub fn get_mut(&mut self, file: &FileId) -> Option<&mut KnownFile> {
        self.all.get_mut(file).map(|known| &mut **known)
    }

    /// Brings the entries of `files` into the processor's cache. In one short loop their misses
    /// overlap. One by one, with a decision between each, they took more than a quarter of a
    /// listing's time.
    pub fn warm<'a>(&self, files: impl Iterator<Item = &'a FileId>) {
        std::hint::black_box(files.filter_map(|file| self.get(file)).filter(|known| known.gone).count());
    }

    /// The same, if the leases of its server count.
    fn counted(&self, file: &FileId) -> Option<&KnownFile> {
        self.get(file).filter(|known| !self.lapsed.contains(&known.server))
    }

    /// The value that `pick` finds, if the lease on `field` covers `kind`.
    fn under<T>(
        &self,
        file: &FileId,
        field: &Field,
        kind: Kind,
        pick: impl FnOnce(&KnownFile) -> Option<T>,
    ) -> Known<T> {
        let Some(known) = self.counted(file) else { return Known::Unknown };
        if known.gone {
            return Known::Unused;
        }
        if !known.covers(field, kind) {
            return Known::Unknown;
        }
        pick(known).map_or(Known::Unknown, Known::Used)
    }
}

impl Knowledge for Files {
    fn attributes(&self, file: &FileId, kind: Kind) -> Known<Attributes> {
        self.under(file, &Field::Attributes, kind, |known| known.attributes)
    }

    fn content(&self, file: &FileId, kind: Kind) -> Known<ContentHead> {
        self.under(file, &Field::Content, kind, |known| known.content.head())
    }

    fn inline(&self, file: &FileId) -> Known<Vec<u8>> {
        self.under(file, &Field::Content, Kind::Read, |known| match &known.content {
            KnownContent::Head(head, None) if head.size == 0 => Some(Vec::new()),
            KnownContent::Head(_, Some(inline)) => Some(inline.to_vec()),
            KnownContent::Open(_) | KnownContent::Unknown | KnownContent::Head(_, None) => None,
        })
    }

    fn times(&self, dir: &FileId, kind: Kind) -> Known<Times> {
        self.under(dir, &Field::Times, kind, |known| known.times.as_deref().copied())
    }

    fn links(&self, file: &FileId, kind: Kind) -> Known<Links> {
        self.under(file, &Field::Parent, kind, |known| known.links.clone())
    }

    fn child(&self, dir: &FileId, label: &Label, kind: Kind) -> Known<Entry> {
        let Some(known) = self.counted(dir) else { return Known::Unknown };
        if known.gone {
            return Known::Unused;
        }
        let Some(children) = &known.children else { return Known::Unknown };
        if !known.held.is_whole() && !known.held.covers(&Field::Child(fold(label)), kind) {
            return Known::Unknown;
        }
        children.get(label)
    }

    fn childless(&self, dir: &FileId, kind: Kind) -> Known<bool> {
        self.under(dir, &Field::Children, kind, |known| {
            let children = known.children.as_ref()?;
            match children.by_position.is_empty() {
                false => Some(false),
                true if children.complete() => Some(true),
                true => None,
            }
        })
    }

    fn xattr(&self, file: &FileId, name: &Label, kind: Kind) -> Known<Vec<u8>> {
        let Some(known) = self.counted(file) else { return Known::Unknown };
        if known.gone {
            return Known::Unused;
        }
        if !known.held.is_whole() && !known.held.covers(&Field::Xattr(name.clone()), kind) {
            return Known::Unknown;
        }
        match known.xattrs.get(name) {
            Some(value) => Known::of(value.clone()),
            None if known.xattrs_complete => Known::Unused,
            None => Known::Unknown,
        }
    }

    fn xattrs(&self, file: &FileId) -> Known<Vec<(Label, usize)>> {
        self.under(file, &Field::Xattrs, Kind::Read, |known| {
            let size =
                |(name, value): (&Label, &Option<Vec<u8>>)| Some((name.clone(), value.as_ref()?.len()));
            known.xattrs_complete.then(|| known.xattrs.iter().filter_map(size).collect())
        })
    }

    fn disposition(&self, file: &FileId, kind: Kind) -> Known<Option<Disposition>> {
        self.under(file, &Field::Disposition, kind, |known| Some(known.disposition.as_deref().cloned()))
    }

    fn locks(&self, file: &FileId, kind: Kind) -> Known<Arc<Locks>> {
        let locks = |known: &KnownFile| {
            Some(known.locks.as_ref().map(|locks| Arc::clone(&locks.now)).unwrap_or_default())
        };
        self.under(file, &Field::Locks, kind, locks)
    }

    fn others(&self, file: &FileId, field: &Field) -> Known<bool> {
        self.under(file, field, Kind::Read, |known| Some(known.others.has(field)))
    }

    fn is_above(&self, _ancestor: &FileId, _dir: &FileId) -> Known<bool> {
        Known::Unknown
    }

    fn holds(&self, file: &FileId, field: &Field, kind: Kind) -> bool {
        self.counted(file).is_some_and(|known| !known.gone && known.covers(field, kind))
    }
}

impl KnownFile {
    /// Whether the leases on `field` are good for `kind`.
    pub(crate) fn covers(&self, field: &Field, kind: Kind) -> bool {
        self.held.covers(field, kind) && (*field != Field::Content || self.writes.allow(kind))
    }

    /// The spread of its content, if that is known.
    pub(crate) fn spread(&self) -> Option<Spread> {
        match self.xattrs.get(&*POLICY_LABEL) {
            Some(policy) => Some(Spread::of_policy(policy.as_deref())),
            None => self.xattrs_complete.then_some(Spread::Usual),
        }
    }

    /// All fields held, in an order in which they can be released: single names before all names.
    /// (The server may count a single name as part of all names, if the grant of all was lost on
    /// its way.)
    pub fn to_release(&self) -> Vec<Field> {
        let mut fields: Vec<Field> = self.held.iter().map(|(field, _)| field).collect();
        fields.reverse();
        fields
    }

    /// This client's own values of the black boxes: how it has the file open.
    pub fn own(&self) -> OpenModes {
        self.handles.as_ref().map_or(OpenModes::CLOSED, |handles| handles.own())
    }

    /// The values that only a handle with these modes makes true.
    pub fn ends(&self, open: OpenModes) -> OpenModes {
        self.handles.as_ref().map_or(OpenModes::CLOSED, |handles| handles.own().but(handles.but(open)))
    }

    /// Adds one handle.
    pub fn add_handle(&mut self, open: OpenModes) {
        self.handles.get_or_insert_default().add(open);
    }

    /// Removes one handle.
    pub fn remove_handle(&mut self, open: OpenModes) {
        if let Some(handles) = &mut self.handles {
            handles.remove(open);
        }
        self.handles.take_if(|handles| handles.own().is_closed());
    }

    /// A file just made here, with everything held and known (the creator's birthright).
    pub fn born(attributes: Attributes, head: ContentHead, target: &[u8], times: Times) -> KnownFile {
        let directory = attributes.kind == FileKind::Directory;
        let inline = (!target.is_empty()).then(|| target.into());
        KnownFile {
            held: Held::whole(),
            recent: true,
            xattrs_complete: true,
            attributes: Some(attributes),
            times: directory.then(|| Box::new(times)),
            links: Some(Links::new()),
            content: KnownContent::Head(head, inline),
            children: directory.then(|| Box::new(Children::born())),
            ..KnownFile::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::FileKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn spellings_are_all_bound_labels_of_a_fold(
            steps in prop::collection::vec(("[aAbB]{1,2}", 0..3u8), 0..60)
        ) {
            let (mut children, mut model) = (Children::born(), BTreeSet::new());
            for (at, (name, act)) in (1..).zip(&steps) {
                let label = label_of(name);
                match act {
                    0 | 1 => {
                        let file = FileId::root().child(at);
                        let entry = Entry { file, kind: FileKind::Regular, ino: at, position: at };
                        children.bind(&label, entry);
                        model.insert(label);
                    }
                    _ => {
                        children.unbind(&label);
                        model.remove(&label);
                    }
                }
            }
            for name in ["a", "b", "aa", "ab", "ba", "bb"] {
                let found = children.spellings(&label_of(name)).unwrap();
                let found: BTreeSet<Label> = found.into_iter().collect();
                let expected = model.iter().filter(|label| fold(label) == label_of(name));
                prop_assert_eq!(found, expected.cloned().collect::<BTreeSet<Label>>());
            }
            let folds: BTreeSet<Label> = model.iter().map(fold).collect();
            children.forget(&folds.iter().collect());
            prop_assert!(children.capitals.is_empty() && children.by_position.is_empty());
        }
    }

    fn label_of(name: &str) -> Label {
        Label::new(name.as_bytes()).unwrap()
    }
}
