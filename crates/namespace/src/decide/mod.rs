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

use crate::{Answer, Error, Knowledge, Known, Operation, Traced, Verdict};
use case::{Case, Stop};
use lease::{Field, Kind, Lease};

pub use link::LINKS_MAX;
pub use publish::{INLINE_PIECE_BYTES_MAX, INLINE_SEAL_BYTES, PIECE_BYTES_MAX, SEAL_BYTES};
pub use shape::{POSITION_MAX, TARGET_BYTES_MAX};
pub use xattr::{
    CAPABILITY_LABEL, POLICY, POLICY_LABEL, XATTR_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTRS_BYTES_MAX,
};

/// The result of a rule. Its effects are collected in the [`Case`].
type Decided = Result<Answer, Stop>;

/// Decides `operation` on what is known.
///
/// A change of an answer is a new version of the cluster. Each update names the version that decided
/// it (`wire::LogEntry::Update`), and the server decides it again by the same version.
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
        Operation::Lookup { dir, label, cred } => lookup::lookup(case, dir, label, cred),
        Operation::Stat { file } => lookup::stat(case, file),
        Operation::Access { file, mask, cred } => lookup::access(case, file, *mask, cred),
        Operation::Open { file, mask, open, own, cred } => open::open(case, file, *mask, *open, *own, cred),
        Operation::ReadLink { file } => lookup::read_link(case, file),
        Operation::List { dir } => lookup::list(case, dir),
        Operation::GetXattr { file, name, cred } => xattr::get(case, file, name, cred),
        Operation::ListXattrs { file } => xattr::list(case, file),
        Operation::Create { dir, label, position, new, cred, time } => {
            create::create(case, dir, label, *position, new, cred, *time)
        }
        Operation::Link { file, dir, label, position, cred, time } => {
            link::link(case, file, dir, label, *position, cred, *time)
        }
        Operation::Unlink { dir, label, directory, open, cred, time } => {
            unlink::unlink(case, dir, label, *directory, *open, cred, *time)
        }
        Operation::Rename { from_dir, from, to_dir, to, mode, position, whiteout, open, cred, time } => {
            let rename = rename::Rename {
                from_dir,
                from,
                to_dir,
                to,
                mode: *mode,
                position: *position,
                whiteout: *whiteout,
                open: *open,
                cred,
                time: *time,
            };
            rename::rename(case, &rename)
        }
        Operation::SetAttributes { file, change, cred, time } => {
            attributes::set(case, file, change, cred, *time)
        }
        Operation::SetXattr { file, name, value, mode, cred, time } => {
            xattr::set(case, file, name, value, *mode, cred, *time)
        }
        Operation::RemoveXattr { file, name, cred, time } => xattr::remove(case, file, name, cred, *time),
        Operation::Publish { file, version, size, mtime, ctime, change } => {
            let head = publish::Published { version: *version, size: *size, mtime: *mtime, ctime: *ctime };
            publish::publish(case, file, head, change)
        }
        Operation::Accessed { file, time } => attributes::accessed(case, file, *time),
        Operation::SetDisposition { file, link, own, cred, time } => {
            open::set_disposition(case, file, link.as_ref(), *own, cred, *time)
        }
        Operation::Dispose { file, time } => open::dispose(case, file, *time),
        Operation::Lock { file, change } => lock::lock(case, file, change),
        Operation::GetLock { file, owner, space, range, kind } => {
            lock::get_lock(case, file, *owner, *space, *range, *kind)
        }
    }
}
