//! No two machines believe at the same time that they hold what goes ill together: what each holds
//! as long as its session's time, as it counts it, has not run out (Farsite §5).
//!
//! Black boxes are left out: what is seen of them is looked at in the simulation of handles.

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

/// What `held` has to write and `beside` has as well.
fn conflict(held: &Held, beside: &Held) -> Option<Field> {
    // Most hold things to read only, and need not be compared field by field.
    if !held.iter().any(|(field, kind)| kind == Kind::Write && !field.is_black_box()) {
        return None;
    }
    let both = beside.iter().map(|(field, _)| field).filter(|field| !field.is_black_box());
    let mut both = both.filter(|field| held.kind(field) == Some(Kind::Write));
    // All labels that one has but some: those may be the other's, by name.
    both.find(|field| match field {
        Field::Children => beside.excluded().count() == 0 && held.excluded().count() == 0,
        Field::Xattrs => false,
        _ => true,
    })
}
