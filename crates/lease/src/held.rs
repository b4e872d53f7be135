//! The leases of one session on one file.

use crate::{Field, Kind, Label};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Everything that one session holds on one file, the same at the server and at the client.
///
/// For labels (and attributes) it is a function from each label to the lease on it. One value
/// counts for all labels, which is the infinite child lease of Farsite §5.1; finitely many labels
/// are exceptions. An excluded label is an exception of which nothing is held. Without an infinite
/// lease, each leased label is an exception. A label's own lease that equals the infinite one is no
/// exception: it is absorbed.
///
/// It takes two bits for each field, and the heap for exceptions, if there are any. A session that
/// holds everything, or no label by name, needs 16 bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Two bits for each of `slots`.
    kinds: u32,
    /// None when there are no exceptions.
    exceptions: Option<Box<Exceptions>>,
}

/// Exceptions to the infinite leases: no entry equals the value for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Exceptions {
    labels: BTreeMap<Label, Option<Kind>>,
    xattrs: BTreeMap<Label, Option<Kind>>,
}

/// The first fields that have a slot in `Held::kinds`. The black boxes follow with one slot each,
/// and then locks.
const PLAIN: [Field; 7] = [
    Field::Attributes,
    Field::Content,
    Field::Times,
    Field::Disposition,
    Field::Parent,
    Field::Children,
    Field::Xattrs,
];

/// Returns all fields with a slot of their own, in the order of the slots.
pub(crate) fn slots() -> impl Iterator<Item = Field> {
    PLAIN.into_iter().chain(Field::BLACK_BOXES).chain([Field::Locks])
}

/// Number of slots.
const SLOTS: usize = PLAIN.len() + Field::BLACK_BOXES.len() + 1;

/// All of `slots` in `Write`.
const EVERYTHING: u32 = (1 << (2 * SLOTS)) - 1;

/// The index of one of `slots`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HeldSlot(u8);

/// A slot whose value counts for all names that are no exceptions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Labels,
    Xattrs,
}

impl Family {
    fn slot(self) -> HeldSlot {
        match self {
            Family::Labels => HeldSlot(5),
            Family::Xattrs => HeldSlot(6),
        }
    }
}

/// The place of a field's lease.
enum SlotPlace<'a> {
    Plain(HeldSlot),
    All(Family),
    One(Family, &'a Label),
    /// Clients hold no path leases.
    Nowhere,
}

impl SlotPlace<'_> {
    fn of(field: &Field) -> SlotPlace<'_> {
        match field {
            Field::Attributes => SlotPlace::Plain(HeldSlot(0)),
            Field::Content => SlotPlace::Plain(HeldSlot(1)),
            Field::Times => SlotPlace::Plain(HeldSlot(2)),
            Field::Disposition => SlotPlace::Plain(HeldSlot(3)),
            Field::Parent => SlotPlace::Plain(HeldSlot(4)),
            Field::Handles => SlotPlace::Plain(HeldSlot(7)),
            Field::Mode(mode) => SlotPlace::Plain(HeldSlot(8 + *mode as u8)),
            Field::Locks => SlotPlace::Plain(HeldSlot(14)),
            Field::Children => SlotPlace::All(Family::Labels),
            Field::Xattrs => SlotPlace::All(Family::Xattrs),
            Field::Child(label) => SlotPlace::One(Family::Labels, label),
            Field::Xattr(name) => SlotPlace::One(Family::Xattrs, name),
            Field::Path => SlotPlace::Nowhere,
        }
    }
}

/// Returns the bits of a kind in `Held::kinds`. `Write` has the bits of both others, so adding
/// leases is "or" and releasing is "and".
fn bits(kind: Option<Kind>) -> u32 {
    match kind {
        None => 0,
        Some(Kind::Read) => 1,
        Some(Kind::Touch) => 2,
        Some(Kind::Write) => 3,
    }
}

fn add(held: Option<Kind>, kind: Kind) -> Option<Kind> {
    Some(held.map_or(kind, |held| held.and(kind)))
}

fn left_of(held: Option<Kind>, keep: Option<Kind>) -> Option<Kind> {
    held.and_then(|held| held.within(keep))
}

impl Held {
    /// Returns everything in `Write`, as the creator of a file holds it: all fields but the path,
    /// and both infinite leases without exclusions.
    pub const fn whole() -> Held {
        Held { kinds: EVERYTHING, exceptions: None }
    }

    /// Returns whether everything is held.
    pub fn is_whole(&self) -> bool {
        self.kinds == EVERYTHING && self.exceptions.is_none()
    }

    /// Returns whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.kinds == 0 && self.exceptions.is_none()
    }

    /// Returns the kind held on `field`. For one label it is the label's own lease, or the infinite
    /// one unless that excludes the label. For `Children` (`Xattrs`) it is the kind of the infinite
    /// lease, with or without exclusions.
    pub fn kind(&self, field: &Field) -> Option<Kind> {
        match SlotPlace::of(field) {
            SlotPlace::Plain(slot) => self.slot(slot),
            SlotPlace::All(family) => self.slot(family.slot()),
            SlotPlace::One(family, label) => self.one(family, label),
            SlotPlace::Nowhere => None,
        }
    }

    /// Returns whether the leases are enough for `kind` on `field`. For `Children` (`Xattrs`) they
    /// must cover every single label, none excluded.
    pub fn covers(&self, field: &Field, kind: Kind) -> bool {
        let enough = |held: Option<Kind>| held.is_some_and(|held| held.covers(kind));
        match SlotPlace::of(field) {
            SlotPlace::All(family) if enough(self.slot(family.slot())) => {
                self.exceptions(family).is_none_or(|some| some.values().all(|held| enough(*held)))
            }
            _ => enough(self.kind(field)),
        }
    }

    /// Adds `kind` on `field`; on `Children` (`Xattrs`), without exclusions. Nothing can be held on
    /// `Path`.
    pub fn add(&mut self, field: Field, kind: Kind) {
        match SlotPlace::of(&field) {
            SlotPlace::Plain(slot) => self.set_slot(slot, add(self.slot(slot), kind)),
            SlotPlace::All(_) => self.add_infinite(field, kind, []),
            SlotPlace::One(family, label) => self.set_one(family, label, add(self.one(family, label), kind)),
            SlotPlace::Nowhere => {}
        }
    }

    /// Adds the infinite lease `field`, which is `Children` or `Xattrs`, on all labels but
    /// `excluded`. The leases on excluded labels stay as they were. Any other field has no
    /// exclusions.
    pub fn add_infinite(&mut self, field: Field, kind: Kind, excluded: impl IntoIterator<Item = Label>) {
        let SlotPlace::All(family) = SlotPlace::of(&field) else {
            return self.add(field, kind);
        };
        let before = self.slot(family.slot());
        let excluded: BTreeSet<Label> = excluded.into_iter().collect();
        if self.exceptions.is_some() || !excluded.is_empty() {
            let exceptions = self.exceptions_mut(family);
            for (label, held) in exceptions.iter_mut() {
                if !excluded.contains(label) {
                    *held = add(*held, kind);
                }
            }
            for label in excluded {
                exceptions.entry(label).or_insert(before);
            }
        }
        self.set_all(family, add(before, kind));
    }

    /// Releases `field` down to `keep`. For one label under an infinite lease, the infinite lease
    /// then excludes the label. For `Children` (`Xattrs`) it releases the infinite lease; labels
    /// keep leases of their own. A `keep` that does not exist on the field keeps nothing.
    pub fn release(&mut self, field: &Field, keep: Option<Kind>) {
        let keep = keep.filter(|keep| field.admits(*keep));
        match SlotPlace::of(field) {
            SlotPlace::Plain(slot) => self.set_slot(slot, left_of(self.slot(slot), keep)),
            SlotPlace::All(family) => self.set_all(family, left_of(self.slot(family.slot()), keep)),
            SlotPlace::One(family, label) => {
                self.set_one(family, label, left_of(self.one(family, label), keep))
            }
            SlotPlace::Nowhere => {}
        }
    }

    /// Returns every lease: fields, infinite leases, then labels and attributes with leases of
    /// their own. Together with the exclusions it is the whole state.
    pub fn iter(&self) -> impl Iterator<Item = (Field, Kind)> + '_ {
        let slots = slots().filter_map(|field| self.kind(&field).map(|kind| (field, kind)));
        let named = |family, field: fn(Label) -> Field| {
            let exceptions = self.exceptions(family).into_iter().flatten();
            exceptions.filter_map(move |(label, held)| held.map(|kind| (field(label.clone()), kind)))
        };
        slots.chain(named(Family::Labels, Field::Child)).chain(named(Family::Xattrs, Field::Xattr))
    }

    /// Returns the labels on which more is held than the infinite child lease gives. All other
    /// named labels are [`Held::excluded`].
    pub fn named(&self) -> impl Iterator<Item = &Label> {
        let all = self.slot(Family::Labels.slot());
        let exceptions = self.exceptions(Family::Labels).into_iter().flatten();
        exceptions.filter(move |(_, held)| left_of(**held, all) != **held).map(|(label, _)| label)
    }

    /// Returns the labels that the infinite child lease does not cover.
    pub fn excluded(&self) -> impl Iterator<Item = &Label> {
        self.excluded_from(Family::Labels)
    }

    /// Returns the attributes that the infinite attribute lease does not cover.
    pub fn excluded_xattrs(&self) -> impl Iterator<Item = &Label> {
        self.excluded_from(Family::Xattrs)
    }

    /// Calls `in_the_way` with each lease that conflicts with another session's request for `kind`
    /// on `field`, and with what the holder may keep.
    pub(crate) fn against(&self, field: &Field, kind: Kind, mut in_the_way: impl FnMut(Field, Option<Kind>)) {
        let mut check = |field: &dyn Fn() -> Field, held: Option<Kind>| {
            let keep = held.and_then(|held| held.beside(kind));
            if keep != held {
                in_the_way(field(), keep);
            }
        };
        check(&|| field.clone(), self.kind(field));
        if let SlotPlace::All(family) = SlotPlace::of(field) {
            for (label, held) in self.exceptions(family).into_iter().flatten() {
                check(&|| family_field(family, label), *held);
            }
        }
    }

    /// Returns the fields on which the two may disagree: all with slots, and the labels that either
    /// names.
    pub(crate) fn fields_with(&self, other: &Held) -> BTreeSet<Field> {
        let mut fields = BTreeSet::from_iter(slots());
        for family in [Family::Labels, Family::Xattrs] {
            let named =
                [self, other].into_iter().filter_map(|held| held.exceptions(family)).flat_map(BTreeMap::keys);
            fields.extend(named.map(|label| family_field(family, label)));
        }
        fields
    }

    fn excluded_from(&self, family: Family) -> impl Iterator<Item = &Label> {
        let all = self.slot(family.slot());
        let short_of =
            move |held: &Option<Kind>| all.is_some_and(|all| !held.is_some_and(|held| held.covers(all)));
        let exceptions = self.exceptions(family).into_iter().flatten();
        exceptions.filter(move |(_, held)| short_of(held)).map(|(label, _)| label)
    }

    fn slot(&self, slot: HeldSlot) -> Option<Kind> {
        match (self.kinds >> (2 * slot.0)) & 3 {
            0 => None,
            1 => Some(Kind::Read),
            2 => Some(Kind::Touch),
            _ => Some(Kind::Write),
        }
    }

    fn set_slot(&mut self, slot: HeldSlot, kind: Option<Kind>) {
        let at = 2 * slot.0;
        self.kinds = (self.kinds & !(3 << at)) | (bits(kind) << at);
    }

    fn one(&self, family: Family, label: &Label) -> Option<Kind> {
        match self.exceptions(family).and_then(|exceptions| exceptions.get(label)) {
            Some(held) => *held,
            None => self.slot(family.slot()),
        }
    }

    fn set_one(&mut self, family: Family, label: &Label, held: Option<Kind>) {
        if held != self.slot(family.slot()) {
            self.exceptions_mut(family).insert(label.clone(), held);
        } else if self.exceptions.is_some() {
            self.exceptions_mut(family).remove(label);
            self.tidy();
        }
    }

    fn set_all(&mut self, family: Family, all: Option<Kind>) {
        self.set_slot(family.slot(), all);
        if self.exceptions.is_some() {
            self.exceptions_mut(family).retain(|_, held| *held != all);
            self.tidy();
        }
    }

    fn exceptions(&self, family: Family) -> Option<&BTreeMap<Label, Option<Kind>>> {
        let exceptions = self.exceptions.as_ref()?;
        Some(match family {
            Family::Labels => &exceptions.labels,
            Family::Xattrs => &exceptions.xattrs,
        })
    }

    fn exceptions_mut(&mut self, family: Family) -> &mut BTreeMap<Label, Option<Kind>> {
        let exceptions = self.exceptions.get_or_insert_default();
        match family {
            Family::Labels => &mut exceptions.labels,
            Family::Xattrs => &mut exceptions.xattrs,
        }
    }

    fn tidy(&mut self) {
        self.exceptions.take_if(|exceptions| exceptions.labels.is_empty() && exceptions.xattrs.is_empty());
    }

    fn is_canonical(&self) -> bool {
        let sound = |family: Family| {
            let all = self.slot(family.slot());
            self.exceptions(family).is_none_or(|exceptions| exceptions.values().all(|held| *held != all))
        };
        let mut tidied = self.clone();
        tidied.tidy();
        self.kinds <= EVERYTHING && sound(Family::Labels) && sound(Family::Xattrs) && tidied == *self
    }
}

fn family_field(family: Family, label: &Label) -> Field {
    match family {
        Family::Labels => Field::Child(label.clone()),
        Family::Xattrs => Field::Xattr(label.clone()),
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            return f.write_str("whole");
        }
        f.debug_map().entries(self.iter()).finish()?;
        for label in self.excluded().chain(self.excluded_xattrs()) {
            write!(f, " but {label}")?;
        }
        Ok(())
    }
}

/// The stored form, in which the most common values are shortest.
#[derive(Serialize)]
#[serde(rename = "Held")]
enum WriteHeld<'a> {
    Whole,
    Fields(u32),
    Named(u32, &'a Exceptions),
}

#[derive(Deserialize)]
#[serde(rename = "Held")]
enum Read {
    Whole,
    Fields(u32),
    Named(u32, Box<Exceptions>),
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.exceptions {
            None if self.is_whole() => WriteHeld::Whole,
            None => WriteHeld::Fields(self.kinds),
            Some(exceptions) => WriteHeld::Named(self.kinds, exceptions),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Held, D::Error> {
        let held = match Read::deserialize(deserializer)? {
            Read::Whole => Held::whole(),
            Read::Fields(kinds) => Held { kinds, exceptions: None },
            Read::Named(kinds, exceptions) => Held { kinds, exceptions: Some(exceptions) },
        };
        if held.is_canonical() {
            Ok(held)
        } else {
            Err(serde::de::Error::custom("leases not in their one form"))
        }
    }
}
