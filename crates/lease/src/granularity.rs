//! The granularity of leases: coarser ones to compare with, as the paper does.

use crate::blackbox::SubLease;
use crate::held::slots;
use crate::{Field, Holdings, InTheWay, Kind, Lease, LeaseViolation, SessionId};
use ident::FileId;
use std::collections::BTreeMap;

/// The extent of a lease, which decides what conflicts. All but [`Granularity::Fields`] are
/// controls: coarser leases, to measure what the finer ones save (Farsite §8.3.3, §8.3.4).
/// Everything that a coarser granularity allows, the finer ones allow too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// One field of one file (Farsite §5.1), and of a black box the part that each client needs
    /// (§5.2).
    #[default]
    Fields,
    /// Fields, but one writer or many readers also of each black box: "we replace each disjunctive
    /// lease with a single-writer/multiple-reader lease" (Farsite §8.3.4).
    SingleWriter,
    /// All of a file at once, for one writer or many readers: "we replace file-field leases with a
    /// single lease per file" (Farsite §8.3.3).
    Files,
}

impl Granularity {
    /// Returns [`Holdings::in_the_way`] with leases of this granularity. With
    /// [`Granularity::Files`] the needs must be [`Granularity::rounded`].
    pub fn in_the_way(
        self,
        holdings: &Holdings,
        session: SessionId,
        field: &Field,
        kind: Kind,
    ) -> Vec<InTheWay> {
        if self == Granularity::Fields || !field.is_black_box() {
            return holdings.in_the_way(session, field, kind);
        }
        let asked = if SubLease::SelfWrite.is_in(kind) { Kind::Write } else { Kind::Read };
        let others = holdings.iter().filter(|(holder, _)| *holder != session);
        let in_the_way = others.filter_map(|(holder, held)| {
            let has = held.kind(field);
            let keep = has.and_then(|has| has.beside(asked));
            (keep != has).then(|| InTheWay { session: holder, field: field.clone(), keep })
        });
        in_the_way.collect()
    }

    /// Rounds the needs to leases of this granularity: all fields of each file. They are to write
    /// if the operation changes anything of the file, else to read. Labels and attributes that are
    /// needed by name are also listed by name, so that the grant includes their values.
    pub fn rounded(self, needs: Vec<Lease>) -> Vec<Lease> {
        if self != Granularity::Files {
            return needs;
        }
        let mut kinds: BTreeMap<FileId, Kind> = BTreeMap::new();
        for need in &needs {
            let kind = kinds.entry(need.file.clone()).or_insert(Kind::Read);
            if need.kind != Kind::Read {
                *kind = Kind::Write;
            }
        }
        let named = needs.into_iter().filter(|need| matches!(need.field, Field::Child(_) | Field::Xattr(_)));
        let mut rounded: Vec<Lease> = named
            .map(|need| Lease { kind: kinds.get(&need.file).copied().unwrap_or(need.kind), ..need })
            .collect();
        for (file, kind) in kinds {
            rounded.extend(slots().map(|field| Lease::new(file.clone(), field, kind)));
        }
        rounded.sort();
        rounded
    }

    /// Checks that `holdings` agree under this granularity. It does not repeat [`Holdings::check`].
    pub fn check(self, holdings: &Holdings) -> Result<(), LeaseViolation> {
        let concerned = |field: &Field| match self {
            Granularity::Fields => false,
            Granularity::SingleWriter => field.is_black_box(),
            Granularity::Files => true,
        };
        let all =
            || holdings.iter().flat_map(|(session, held)| held.iter().map(move |(f, k)| (session, f, k)));
        for (session, field, kind) in all().filter(|(_, field, kind)| concerned(field) && *kind != Kind::Read)
        {
            let same = |other: &Field| self == Granularity::Files || *other == field;
            if let Some((other, _, theirs)) = all().find(|(other, f, _)| *other != session && same(f)) {
                return Err(LeaseViolation::Disagreement {
                    field,
                    first: (session, kind),
                    second: (other, theirs),
                });
            }
        }
        Ok(())
    }
}
