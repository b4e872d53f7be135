//! The one function that decides operations. The client calls it under its leases, the server when
//! it chooses grants and again at replay.

mod attributes;
mod case;
mod create;
mod link;
mod lock;
mod lookup;
mod open;
mod permission;
mod publish;
mod rename;
mod shape;
mod unlink;
mod xattr;

use crate::{Error, Knowledge, Known, Operation, Traced, Verdict};
use case::{Case, Decided, Stop};
use lease::{Field, Kind, Lease};

pub use attributes::{Accessed, SetAttributes};
pub use create::Create;
pub use link::{LINKS_MAX, Link};
pub use lock::{GetLock, Lock};
pub use lookup::{Access, Find, List, Lookup, ReadLink, Stat};
pub use open::{Dispose, Open, SetDisposition};
pub use publish::{INLINE_PIECE_BYTES_MAX, INLINE_SEAL_BYTES, PIECE_BYTES_MAX, Publish, SEAL_BYTES};
pub use rename::Rename;
pub use shape::{POSITION_MAX, TARGET_BYTES_MAX};
pub use unlink::Unlink;
pub use xattr::{
    CAPABILITY_LABEL, GetXattr, ListXattrs, POLICY, POLICY_LABEL, RemoveXattr, SetXattr, XATTR_BYTES_MAX,
    XATTR_LIST_BYTES_MAX, XATTRS_BYTES_MAX,
};

/// Decides `operation` on what is known.
///
/// A change of an answer is a new version of the cluster. Each update names the version that
/// decided it (`wire::LogEntry::Update`), and the server decides it again by the same version.
///
/// Pure and monotone: with more knowledge an answer other than [`Verdict::Unknown`] stays the same.
/// Every rule is a straight line of queries. The next query depends only on the operation and on
/// earlier answers, and the rule stops at the first query without an answer. Nothing depends on
/// *not* knowing.
///
/// A refusal does not depend on leases to write, so read leases alone can prove it. The right to
/// write a field counts only when all else has succeeded.
pub fn decide<K: Knowledge + ?Sized>(operation: &Operation, knowledge: &K) -> Verdict {
    let mut case = Case::new(knowledge);
    match rule(operation, &mut case) {
        Ok(answer) if case.wants.is_empty() => Verdict::Done { answer, effects: case.effects },
        Ok(_) | Err(Stop::Unknown) => Verdict::Unknown { wants: case.wants },
        Err(Stop::Refused(error)) => Verdict::Refused { error, evidence: evidence(operation, knowledge) },
    }
}

/// Every field that a refusal rests on: those asked for on the way to it. Found by going that way
/// again, so that what succeeds need not keep a record.
fn evidence<K: Knowledge + ?Sized>(operation: &Operation, knowledge: &K) -> Vec<Lease> {
    let traced = Traced::new(knowledge);
    // Decides as it did before: the knowledge is the same.
    let _ = rule(operation, &mut Case::new(&traced));
    let mut evidence: Vec<Lease> = Vec::new();
    for lease in traced.into_leases() {
        let lease = Lease { kind: Kind::Read, ..lease };
        // The one mode that is TRUE proves a conflict. The others that are FALSE add nothing.
        let adds = !matches!(lease.field, Field::Mode(_))
            || knowledge.others(&lease.file, &lease.field) == Known::Used(true);
        if adds && !evidence.contains(&lease) {
            evidence.push(lease);
        }
    }
    evidence
}

fn rule<K: Knowledge + ?Sized>(operation: &Operation, case: &mut Case<'_, K>) -> Decided {
    if !shape::makes_sense(operation) {
        return Err(Error::Invalid.into());
    }
    match operation {
        Operation::Lookup(it) => it.decide(case),
        Operation::Find(it) => it.decide(case),
        Operation::Stat(it) => it.decide(case),
        Operation::Access(it) => it.decide(case),
        Operation::Open(it) => it.decide(case),
        Operation::ReadLink(it) => it.decide(case),
        Operation::List(it) => it.decide(case),
        Operation::GetXattr(it) => it.decide(case),
        Operation::ListXattrs(it) => it.decide(case),
        Operation::Create(it) => it.decide(case),
        Operation::Link(it) => it.decide(case),
        Operation::Unlink(it) => it.decide(case),
        Operation::Rename(it) => it.decide(case),
        Operation::SetAttributes(it) => it.decide(case),
        Operation::SetXattr(it) => it.decide(case),
        Operation::RemoveXattr(it) => it.decide(case),
        Operation::Publish(it) => it.decide(case),
        Operation::Accessed(it) => it.decide(case),
        Operation::SetDisposition(it) => it.decide(case),
        Operation::Dispose(it) => it.decide(case),
        Operation::Lock(it) => it.decide(case),
        Operation::GetLock(it) => it.decide(case),
    }
}
