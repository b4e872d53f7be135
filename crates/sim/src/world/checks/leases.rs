//! No two machines believe at the same time that they hold conflicting leases (Farsite §5). A
//! machine believes so until its session's term has run out on its own clock.
//!
//! Black boxes are left out: the simulation of handles (`sim::many`) checks them.

use crate::world::{Violation, World};
use ident::FileId;
use lease::{Field, Held, Kind};
use std::collections::BTreeMap;

impl World {
    pub(in crate::world) fn check_leases(&self) -> Result<(), Violation> {
        let mut holders: BTreeMap<&FileId, Vec<(usize, &Held)>> = BTreeMap::new();
        for (at, machine) in self.machines.iter().enumerate() {
            for (file, held) in machine.client.held(self.clock(at)).filter(|(_, held)| !held.is_empty()) {
                holders.entry(file).or_default().push((at, held));
            }
        }
        for (file, holders) in holders {
            for (one, held) in &holders {
                for (other, beside) in holders.iter().filter(|(other, _)| other != one) {
                    if let Some(field) = conflict(held, beside) {
                        let (one, other) = (self.machines[*one].id, self.machines[*other].id);
                        return Err(format!(
                            "{one:?} holds {field:?} of {file} to write, and {other:?} holds it, too"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A field that `held` has to write and `beside` has as well.
fn conflict(held: &Held, beside: &Held) -> Option<Field> {
    // Most machines hold leases only to read, and need no comparison field by field.
    if !held.iter().any(|(field, kind)| kind == Kind::Write && !field.is_black_box()) {
        return None;
    }
    let both = beside.iter().map(|(field, _)| field).filter(|field| !field.is_black_box());
    let mut both = both.filter(|field| held.kind(field) == Some(Kind::Write));
    // An infinite child lease excludes some labels: the other machine may hold those by name.
    both.find(|field| match field {
        Field::Children => beside.excluded().count() == 0 && held.excluded().count() == 0,
        Field::Xattrs => false,
        _ => true,
    })
}
