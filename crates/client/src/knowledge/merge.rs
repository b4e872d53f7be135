//! Knowledge that grows and changes: by effects of decided operations, by grants and by releases.

use super::{Children, Files, KnownContent, KnownFile, KnownLocks, Writes};
use content::FileContent;
use ident::FileId;
use lease::{Field, Kind, Label, Released};
use namespace::{ContentChange, ContentHead, Effect, FileKind, Knowledge};
use std::collections::{BTreeMap, BTreeSet};
use wire::{FileGrant, Values};

impl Files {
    /// Carries out an effect on the fields that are known here. For an operation decided here all
    /// of them are. For one that the server did for this client (shipped), some are.
    pub fn apply(&mut self, effect: &Effect, decided_here: bool) {
        match effect {
            Effect::Birth { file, attributes, content, target, times } => {
                if decided_here {
                    let born = KnownFile::born(*attributes, *content, target, *times);
                    self.all.insert(file.clone(), Box::new(born));
                }
            }
            Effect::Bind { dir, label, entry } => self.children(dir, label, |c| c.bind(label, entry.clone())),
            Effect::Unbind { dir, label } => self.children(dir, label, |children| children.unbind(label)),
            Effect::AddLink { file, link } => self.edit(file, |known| {
                if let Some(links) = &mut known.links {
                    links.push(link.clone());
                }
            }),
            Effect::DropLink { file, link } => self.edit(file, |known| {
                if let Some(links) = &mut known.links {
                    links.retain(|other| other != link);
                }
            }),
            Effect::Attributes { file, attributes } => self.edit(file, |known| {
                if known.attributes.is_some() {
                    known.attributes = Some(*attributes);
                }
            }),
            Effect::Touch { dir, time } => self.edit(dir, |known| {
                if let Some(times) = &mut known.times {
                    **times = times.touched(*time);
                }
            }),
            Effect::Times { dir, times } => self.edit(dir, |known| {
                if known.times.is_some() {
                    known.times = Some(Box::new(*times));
                }
            }),
            Effect::Xattr { file, name, value } => {
                self.edit(file, |known| known.set_xattr(name, value.clone()))
            }
            Effect::Content { file, head, change } => {
                self.edit(file, |known| known.set_content(head, change))
            }
            Effect::Disposition { file, disposition } => {
                self.edit(file, |known| known.disposition = disposition.clone().map(Box::new))
            }
            // A value without a lease must not become knowledge.
            Effect::Lock { file, change } if self.holds(file, &Field::Locks, Kind::Read) => {
                self.edit(file, |known| KnownLocks::change(&mut known.locks, change, decided_here))
            }
            Effect::Orphan { .. } | Effect::Lock { .. } => {}
            Effect::Death { file } => self.edit(file, |known| {
                let handles = known.handles.take();
                *known = KnownFile { gone: true, handles, ..KnownFile::default() };
            }),
        }
    }

    fn edit(&mut self, file: &FileId, change: impl FnOnce(&mut KnownFile)) {
        if let Some(known) = self.get_mut(file)
            && !known.gone
        {
            change(known);
        }
    }

    fn children(&mut self, dir: &FileId, label: &Label, change: impl FnOnce(&mut Children)) {
        // A value without a lease must not become knowledge.
        if !self.holds(dir, &Field::Child(namespace::fold(label)), Kind::Read) {
            return;
        }
        self.edit(dir, |known| {
            if let Some(children) = &mut known.children {
                change(children);
            }
        });
    }

    /// Makes granted files known again. A machine with rights on a subtree sees a file that was
    /// moved out of it as gone. But the file may be moved back.
    pub fn revive(&mut self, grant: &FileGrant) {
        let bound = grant.values.children.iter().map(|(_, entry)| &entry.file);
        for file in bound.chain([&grant.file]) {
            if let Some(known) = self.get_mut(file).filter(|known| known.buried) {
                (known.gone, known.buried) = (false, false);
            }
        }
    }

    /// Takes a grant. A value that is known already is newer than the server's: its lease was held
    /// all along, and updates may be on their way. So the client takes a value only where it has
    /// none. `number` is the client's last number: what it asks from now on has later ones.
    pub fn grant(&mut self, mut grant: FileGrant, number: u64) {
        let known = self.all.entry(grant.file.clone()).or_default();
        if known.gone {
            return;
        }
        known.recent = true;
        known.keep_own(&mut grant.values);
        if grant.whole {
            known.held = lease::Held::whole();
        }
        for (field, kind) in &grant.fields {
            match field {
                Field::Children => {
                    known.held.add_infinite(Field::Children, *kind, grant.excluded.iter().cloned())
                }
                Field::Xattrs => {
                    known.held.add_infinite(Field::Xattrs, *kind, grant.excluded_xattrs.iter().cloned())
                }
                _ => known.held.add(field.clone(), *kind),
            }
        }
        if matches!(known.content, KnownContent::Unknown) {
            known.content_since = number;
        }
        known.learn(grant.values);
        if !known.xattrs_complete {
            // An attribute granted by name comes with its value. Without a value it does not exist.
            for (field, _) in grant.fields {
                if let Field::Xattr(name) = field {
                    known.xattrs.entry(name).or_insert(None);
                }
            }
        }
    }

    /// Releases leases, one after the other, and forgets the values that they covered. Returns the
    /// kind that was held of each.
    pub fn release(&mut self, leases: &[Released]) -> Vec<Option<Kind>> {
        let release = |released: &Released| {
            let known = self.get_mut(&released.file)?;
            let held = known.held.kind(&released.field);
            known.released(released);
            held
        };
        let held = leases.iter().map(release).collect();
        let mut labels: BTreeMap<&FileId, BTreeSet<&Label>> = BTreeMap::new();
        // A client that may only touch a field does not know its value.
        let knows = |keep: Option<Kind>| keep.is_some_and(|keep| keep.covers(Kind::Read));
        for released in leases.iter().filter(|released| !knows(released.keep)) {
            match &released.field {
                Field::Child(folded) => drop(labels.entry(&released.file).or_default().insert(folded)),
                field => self.get_mut(&released.file).into_iter().for_each(|known| known.forget(field)),
            }
        }
        for (dir, folded) in labels {
            if let Some(children) = self.get_mut(dir).and_then(|known| known.children.as_mut()) {
                children.forget(&folded);
            }
        }
        held
    }
}

impl KnownFile {
    /// Releases one lease. With the lease on all labels go those on single ones. If the grant of
    /// all was lost on its way, the server counted a name granted later as part of all, and recalls
    /// both together.
    fn released(&mut self, released: &Released) {
        // A write-through change that the server has not confirmed stays invisible, even where the
        // client may still read.
        let is_unheard = self.writes == Writes::Unheard && released.keep.is_some();
        if released.field == Field::Content && released.keep != Some(Kind::Write) && !is_unheard {
            self.writes = Writes::WriteBack;
        }
        let is_one_of_them: fn(&Field) -> bool = match released.field {
            Field::Children => |field| matches!(field, Field::Child(_)),
            Field::Xattrs => |field| matches!(field, Field::Xattr(_)),
            _ => return self.held.release(&released.field, released.keep),
        };
        let named: Vec<Field> = self.held.iter().map(|(field, _)| field).filter(is_one_of_them).collect();
        self.held.release(&released.field, released.keep);
        named.iter().for_each(|field| self.held.release(field, released.keep));
    }

    /// Forgets the value of `field`.
    fn forget(&mut self, field: &Field) {
        match field {
            Field::Attributes => self.attributes = None,
            Field::Content => self.content = KnownContent::Unknown,
            Field::Times => self.times = None,
            Field::Parent => self.links = None,
            Field::Children => self.children = None,
            Field::Xattr(name) => {
                self.xattrs_complete = false;
                self.xattrs.remove(name);
            }
            Field::Xattrs => {
                self.xattrs_complete = false;
                self.xattrs = BTreeMap::new();
            }
            Field::Locks => self.locks = None,
            // A label is one of many, see [`Files::release`]. The other fields are read only under
            // their leases, and come anew with the next grant.
            Field::Child(_) | Field::Disposition | Field::Handles | Field::Mode(_) | Field::Path => {}
        }
    }

    /// Removes from `values` the parts that this client knows better. The server may not have its
    /// latest changes yet.
    fn keep_own(&self, values: &mut Values) {
        if let Some(children) = &self.children {
            let known = |folded: &Label| {
                let told = children.complete() || children.told.contains(folded);
                told && self.held.kind(&Field::Child(folded.clone())).is_some()
            };
            values.children.retain(|(label, _)| !known(&namespace::fold(label)));
            values.told.retain(|folded| !known(folded));
        }
        if self.held.covers(&Field::Disposition, Kind::Read) {
            values.disposition = None;
        }
        if self.held.covers(&Field::Locks, Kind::Read) {
            values.locks = None;
        }
        for field in Field::BLACK_BOXES.iter().filter(|field| self.held.covers(field, Kind::Read)) {
            values.others.set(field, None);
        }
        if self.xattrs_complete {
            values.xattrs.retain(|(name, _)| self.held.kind(&Field::Xattr(name.clone())).is_none());
        }
    }

    fn learn(&mut self, mut values: Values) {
        self.attributes = self.attributes.or(values.attributes);
        if self.times.is_none() {
            self.times = values.times.map(Box::new);
        }
        if self.links.is_none() {
            self.links = values.links;
        }
        if let Some(disposition) = values.disposition {
            self.disposition = disposition.map(Box::new);
        }
        if let Some(locks) = values.locks {
            self.locks = KnownLocks::told(locks);
        }
        for field in &Field::BLACK_BOXES {
            if let Some(value) = values.others.get(field) {
                self.others.set(field, value);
            }
        }
        if let Some(head) = values.content {
            self.learn_content(head, values.inline, values.extents);
        }
        // A value without a lease must not become knowledge: it would still be here when a lease
        // comes.
        let held = &self.held;
        for (name, value) in values.xattrs {
            if held.is_whole() || held.kind(&Field::Xattr(name.clone())).is_some() {
                self.xattrs.entry(name).or_insert(Some(value));
            }
        }
        // With an infinite lease the server sends every attribute that the lease covers.
        self.xattrs_complete |= held.kind(&Field::Xattrs).is_some();
        values.children.retain(|(label, _)| {
            held.is_whole() || held.kind(&Field::Child(namespace::fold(label))).is_some()
        });
        let directory = self.attributes.is_some_and(|a| a.kind == FileKind::Directory);
        if directory || !values.children.is_empty() || values.children_up_to.is_some() {
            let (up_to, last) = (values.children_up_to, values.children_last);
            self.learn_children(values.children, values.told, (up_to, last), values.reservation);
        }
    }

    fn learn_content(
        &mut self,
        head: ContentHead,
        inline: Option<Vec<u8>>,
        extents: Option<(Vec<namespace::Extent>, u64)>,
    ) {
        match &mut self.content {
            KnownContent::Unknown => {
                let inline = inline.map(Vec::into_boxed_slice);
                self.content = KnownContent::Head(head, inline);
            }
            // Trap: a client that only looked at the file was told no key.
            KnownContent::Head(known, bytes @ None) => {
                known.key = known.key.take().or(head.key);
                *bytes = inline.map(Vec::into_boxed_slice);
            }
            KnownContent::Head(..) | KnownContent::Open(_) => {}
        }
        if let (KnownContent::Head(head, None), Some((extents, up_to))) = (&self.content, extents) {
            self.content =
                KnownContent::Open(Box::new(FileContent::new(*head, None, Some((extents, up_to)))));
        }
    }

    fn learn_children(
        &mut self,
        entries: Vec<(Label, namespace::Entry)>,
        told: Vec<Label>,
        (up_to, last): (Option<u64>, u64),
        reservation: Option<(u64, u64)>,
    ) {
        let children = self.children.get_or_insert_default();
        children.last = children.last.max(last);
        if let Some((first, end)) = reservation {
            children.integers.add(first..end);
        }
        // This client knows a complete directory better than the server does. Only labels that were
        // released and come back are taken. All others were left out.
        if children.complete() {
            for (label, entry) in entries {
                if !children.by_label.contains_key(&label) {
                    children.bind(&label, entry);
                }
            }
            return;
        }
        for (label, entry) in entries {
            if !children.by_label.contains_key(&label) {
                children.bind(&label, entry);
            }
        }
        children.told.extend(told);
        children.up_to = children.up_to.max(up_to.unwrap_or(0));
        if children.complete() {
            // From here on the absence of a label says that it is unused.
            children.told = BTreeSet::new();
            children.by_label.retain(|_, entry| entry.is_some());
        }
    }

    fn set_xattr(&mut self, name: &Label, value: Option<Vec<u8>>) {
        if !self.held.covers(&Field::Xattr(name.clone()), Kind::Read) {
            return;
        }
        if value.is_none() && self.xattrs_complete {
            self.xattrs.remove(name);
        } else {
            self.xattrs.insert(name.clone(), value);
        }
    }

    fn set_content(&mut self, head: &ContentHead, change: &ContentChange) {
        match &mut self.content {
            // Publications are made from the open content here. Only times come from elsewhere
            // (utimens).
            KnownContent::Open(content) => content.adopt(head),
            KnownContent::Head(known, inline) => {
                *known = *head;
                match change {
                    ContentChange::None => {}
                    ContentChange::Inline { sealed, .. } => *inline = Some(sealed.as_slice().into()),
                    ContentChange::Extents { .. } => *inline = None,
                }
            }
            KnownContent::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::{Known, POLICY_LABEL};

    fn grant(field: Field, xattrs: &[&[u8]]) -> FileGrant {
        let xattrs = xattrs.iter().map(|value| (POLICY_LABEL.clone(), value.to_vec())).collect();
        FileGrant {
            file: FileId::root(),
            whole: false,
            fields: vec![(field, Kind::Read)],
            excluded: Vec::new(),
            excluded_xattrs: Vec::new(),
            values: Values { xattrs, ..Values::default() },
        }
    }

    /// The server counts the lease as held, although this client released it on arrival. So it
    /// reports the value along with another one.
    #[test]
    fn an_attribute_that_is_told_without_a_lease_is_not_known_when_the_lease_comes() {
        let mut files = Files::default();
        files.grant(grant(Field::Attributes, &[b"copies=2"]), 0);
        let policy = Field::Xattr(POLICY_LABEL.clone());
        files.grant(grant(policy, &[]), 0);
        assert_eq!(files.xattr(&FileId::root(), &POLICY_LABEL, Kind::Read), Known::Unused);
    }

    /// The file's mode forbade this machine's user to read it, and then it was changed.
    #[test]
    fn a_key_that_was_withheld_is_learned_with_the_content() {
        let (mut files, head) = (Files::default(), ContentHead { size: 3, ..Default::default() });
        let mut of_content = grant(Field::Content, &[]);
        of_content.values.content = Some(head);
        files.grant(of_content.clone(), 0);
        let key = Some([7; 32]);
        of_content.values.content = Some(ContentHead { key, ..head });
        of_content.values.inline = Some(vec![1, 2, 3]);
        files.grant(of_content, 0);
        let known = files.get(&FileId::root()).unwrap();
        assert_eq!(known.content.head().unwrap().key, key);
        assert_eq!(files.inline(&FileId::root()), Known::Used(vec![1, 2, 3]));
    }
}
