//! The leases of a session are checked against a table with a place for everything.

use lease::{Field, Held, Kind, Label, Mode};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).expect("a label")
}

fn child(name: &str) -> Field {
    Field::Child(label(name))
}

const PLAIN: [Field; 8] = [
    Field::Attributes,
    Field::Content,
    Field::Times,
    Field::Disposition,
    Field::Parent,
    Field::Handles,
    Field::Mode(Mode::AccessRead),
    Field::Mode(Mode::ExcludeDelete),
];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Stands for all names that are never named.
const REST: &str = "rest";

/// Returns every field that the table has a place for. `Child("rest")` is the kind of the infinite
/// lease.
fn places() -> Vec<Field> {
    let names = || NAMES.into_iter().chain([REST]).map(label);
    PLAIN.into_iter().chain(names().map(Field::Child)).chain(names().map(Field::Xattr)).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Add(Field, Kind),
    AddInfinite(Field, Kind, Vec<Label>),
    Release(Field, Option<Kind>),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Read, Kind::Write])
}

fn field() -> impl Strategy<Value = Field> {
    let mut named: Vec<Field> =
        NAMES.into_iter().flat_map(|name| [child(name), Field::Xattr(label(name))]).collect();
    named.extend([Field::Children, Field::Xattrs, Field::Times, Field::Content, Field::Path]);
    prop::sample::select(named)
}

fn step() -> impl Strategy<Value = Step> {
    let all = prop::sample::select(vec![Field::Children, Field::Xattrs]);
    let excluded = prop::sample::subsequence(NAMES.to_vec(), 0..3);
    prop_oneof![
        2 => (field(), kind()).prop_map(|(field, kind)| Step::Add(field, kind)),
        1 => Just(Step::Add(Field::Times, Kind::Touch)),
        2 => (all, kind(), excluded)
            .prop_map(|(field, kind, names)| Step::AddInfinite(field, kind, names.into_iter().map(label).collect())),
        1 => field().prop_map(|field| Step::Release(field, Some(Kind::Touch))),
        3 => (field(), prop::option::of(kind())).prop_map(|(field, keep)| Step::Release(field, keep)),
    ]
}

#[derive(Default)]
struct Table(BTreeMap<Field, Kind>);

impl Table {
    fn family(all: &Field) -> Vec<Field> {
        let field: fn(Label) -> Field = if *all == Field::Children { Field::Child } else { Field::Xattr };
        NAMES.into_iter().chain([REST]).map(label).map(field).collect()
    }

    fn add(&mut self, field: &Field, kind: Kind) {
        let held = self.0.get(field).copied();
        self.0.insert(field.clone(), if held.is_none_or(|held| held == kind) { kind } else { Kind::Write });
    }

    fn release(&mut self, field: &Field, keep: Option<Kind>) {
        let keep = keep.filter(|keep| *keep != Kind::Touch || *field == Field::Times);
        match (self.0.get(field), keep) {
            (Some(Kind::Write), Some(keep)) => drop(self.0.insert(field.clone(), keep)),
            (Some(held), Some(keep)) if *held == keep || keep == Kind::Write => {}
            _ => drop(self.0.remove(field)),
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Add(all @ (Field::Children | Field::Xattrs), kind) => {
                Table::family(all).iter().for_each(|field| self.add(field, *kind));
            }
            Step::Add(Field::Path, _) | Step::Release(Field::Path, _) => {}
            Step::Add(field, kind) => self.add(field, *kind),
            Step::AddInfinite(all, kind, excluded) => {
                for field in Table::family(all) {
                    let name = match &field {
                        Field::Child(name) | Field::Xattr(name) => name,
                        _ => continue,
                    };
                    if !excluded.contains(name) {
                        self.add(&field, *kind);
                    }
                }
            }
            Step::Release(all @ (Field::Children | Field::Xattrs), keep) => {
                let family = Table::family(all);
                let infinite = family.last().and_then(|rest| self.0.get(rest)).copied();
                for field in family {
                    if self.0.get(&field).copied() == infinite {
                        self.release(&field, *keep);
                    }
                }
            }
            Step::Release(field, keep) => self.release(field, *keep),
        }
    }
}

fn apply(held: &mut Held, step: &Step) {
    match step.clone() {
        Step::Add(field, kind) => held.add(field, kind),
        Step::AddInfinite(field, kind, excluded) => held.add_infinite(field, kind, excluded),
        Step::Release(field, keep) => held.release(&field, keep),
    }
}

fn compare(held: &Held, table: &Table) -> Result<(), TestCaseError> {
    for field in places() {
        prop_assert_eq!(held.kind(&field), table.0.get(&field).copied(), "{:?} in {:?}", field, held);
        for kind in [Kind::Read, Kind::Touch, Kind::Write] {
            prop_assert_eq!(
                held.covers(&field, kind),
                table.0.get(&field).is_some_and(|held| held.covers(kind))
            );
        }
    }
    for all in [Field::Children, Field::Xattrs] {
        let family = Table::family(&all);
        for kind in [Kind::Read, Kind::Write] {
            let covered = family.iter().all(|field| table.0.get(field).is_some_and(|held| held.covers(kind)));
            prop_assert_eq!(held.covers(&all, kind), covered, "{:?} of {:?}", all, held);
        }
        prop_assert_eq!(held.kind(&all), family.last().and_then(|rest| table.0.get(rest)).copied());
    }
    prop_assert_eq!(held.is_empty(), table.0.is_empty());
    prop_assert_eq!(held.is_whole(), places().iter().all(|field| table.0.get(field) == Some(&Kind::Write)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_session_holds_what_the_table_says(whole in any::<bool>(), steps in prop::collection::vec(step(), 0..30)) {
        let (mut held, mut table) = (Held::default(), Table::default());
        if whole {
            held = Held::whole();
            table.0 = places().into_iter().map(|field| (field, Kind::Write)).collect();
        }
        for step in steps {
            apply(&mut held, &step);
            table.apply(&step);
            compare(&held, &table)?;
            prop_assert_eq!(held.kind(&Field::Path), None);

            // The reported leases are complete: they build the same value again, and so do the
            // bytes.
            let mut told = Held::default();
            for (field, kind) in held.iter() {
                match field {
                    Field::Children => told.add_infinite(Field::Children, kind, held.excluded().cloned()),
                    Field::Xattrs => told.add_infinite(Field::Xattrs, kind, held.excluded_xattrs().cloned()),
                    field => told.add(field, kind),
                }
            }
            prop_assert_eq!(&told, &held);
            let row = postcard::to_stdvec(&held).unwrap();
            prop_assert_eq!(postcard::from_bytes::<Held>(&row).unwrap(), held.clone());

            // Without the leases by name, all names that are not excluded are like the rest.
            let mut less = held.clone();
            held.named().for_each(|name| less.release(&Field::Child(name.clone()), held.kind(&Field::Children)));
            prop_assert!(less.named().next().is_none());
            prop_assert!(less.excluded().eq(held.excluded()));
            let is_as_the_rest = |name: &str| less.excluded().any(|of| *of == label(name)) || less.kind(&child(name)) == held.kind(&Field::Children);
            prop_assert!(NAMES.into_iter().all(is_as_the_rest));
        }
    }

    #[test]
    fn any_bytes_are_a_held_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok((held, rest)) = postcard::take_from_bytes::<Held>(&bytes) {
            let row = postcard::to_stdvec(&held).unwrap();
            prop_assert!(row.len() <= bytes.len() - rest.len());
            prop_assert_eq!(postcard::from_bytes::<Held>(&row).unwrap(), held);
        }
    }
}

#[test]
fn the_common_ones_are_small() {
    assert_eq!(size_of::<Held>(), 16);
    assert_eq!(postcard::to_stdvec(&Held::whole()).unwrap(), [0]);
    let mut reader = Held::default();
    reader.add(Field::Attributes, Kind::Read);
    assert_eq!(postcard::to_stdvec(&reader).unwrap().len(), 2);
}

#[test]
fn one_label_of_the_infinite_lease_is_let_go_alone() {
    let mut held = Held::whole();
    held.release(&child("a"), Some(Kind::Read));
    held.release(&child("b"), None);
    assert_eq!(held.kind(&child("a")), Some(Kind::Read));
    assert_eq!(held.kind(&child("b")), None);
    assert!(held.covers(&child("c"), Kind::Write) && !held.covers(&Field::Children, Kind::Read));
    assert_eq!(held.excluded().collect::<Vec<_>>(), [&label("a"), &label("b")]);
    // The leases come back, and nothing is excluded any more.
    held.add(child("a"), Kind::Write);
    held.add(child("b"), Kind::Write);
    assert!(held.is_whole());
}

#[test]
fn labels_with_leases_of_their_own_outlast_the_infinite_one() {
    let mut held = Held::default();
    held.add(child("mine"), Kind::Write);
    held.add_infinite(Field::Children, Kind::Read, [label("theirs")]);
    held.release(&Field::Children, None);
    assert_eq!(held.iter().collect::<Vec<_>>(), [(child("mine"), Kind::Write)]);
    assert_eq!(held.excluded().count(), 0, "without an infinite lease nothing is excluded from it");
}

#[test]
fn reading_and_touching_alone_is_writing() {
    let mut held = Held::default();
    held.add(Field::Times, Kind::Touch);
    assert!(!held.covers(&Field::Times, Kind::Read));
    held.add(Field::Times, Kind::Read);
    assert_eq!(held.kind(&Field::Times), Some(Kind::Write));
    held.release(&Field::Times, Some(Kind::Touch));
    assert_eq!(held.kind(&Field::Times), Some(Kind::Touch));
    held.release(&Field::Times, Some(Kind::Read));
    assert_eq!(held.kind(&Field::Times), None);
}

#[test]
fn rows_in_another_form_are_refused() {
    let mut held = Held::default();
    held.add(child("a"), Kind::Read);
    let row = postcard::to_stdvec(&held).unwrap();
    assert_eq!(postcard::from_bytes::<Held>(&row).unwrap(), held);
    // The last but one byte says what is held of "a": nothing, as of all other labels.
    let at = row.windows(2).position(|pair| pair == [1, b'a']).unwrap() + 2;
    assert_eq!(row[at..at + 2], [1, 0], "some kind, and it is Read");
    let none = [&row[..at], &[0], &row[at + 2..]].concat();
    assert!(postcard::from_bytes::<Held>(&none).is_err());
    assert!(postcard::from_bytes::<Held>(&row[..row.len() - 1]).is_err());
    assert!(postcard::from_bytes::<Held>(&[2, 0, 0, 0]).is_err(), "exceptions, and none of them");
}
