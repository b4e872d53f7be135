//! Decides what users may do, by all that the kernel knows of them.
//!
//! The kernel checks each request before it sends it (`default_permissions`): by user, groups,
//! capabilities and namespaces, on attributes that it was given. The client decides again, on the
//! current state. A request names only the user and their primary group. So after a refusal the
//! front door looks at the asker in /proc, and asks again with all groups and capabilities. It does
//! so at once for a request that could lose a set-gid bit in silence.
//!
//! Trap: /proc does not show every asker, nor everything
//! ([`KnownAsker::complete`](crate::groups::KnownAsker)). Then the kernel's own check counts, if it
//! was on the current state. For most checks the kernel asks us for attributes that it is not sure
//! of. For changes of attributes it does not. So there the attributes that it was last given are
//! compared with the current ones. If they differ, the kernel is answered ESTALE: it looks the path
//! up once more, and checks anew.

use client::{Call, call};
use file_service::FileCall;
use namespace::{AttributeChange, Capabilities, Capability, Cred, Error, FileKind};
use std::sync::Arc;

use super::{Front, Then};
use crate::groups::{Asker, KnownAsker};
use crate::way::Locks;

const SET_GID: u16 = 0o2000;

/// Whether groups and capabilities decide on more than success. Then they must be known before the
/// call.
pub(super) fn is_decided_in_silence(call: &Call, may_have_set_ids: bool) -> bool {
    match call {
        Call::SetAttributes(call::SetAttributes {
            change: AttributeChange { mode: Some(mode), .. }, ..
        }) => mode & SET_GID != 0,
        Call::SetAttributes(call::SetAttributes { change, .. }) => may_have_set_ids && change.chowns(),
        Call::Create(call::Create { spec, .. }) => {
            spec.kind != FileKind::Directory && spec.mode & SET_GID != 0
        }
        Call::SetXattr(call::SetXattr { name, .. }) | Call::RemoveXattr(call::RemoveXattr { name, .. }) => {
            is_acl(name)
        }
        _ => false,
    }
}

/// Whether an asker with more groups or capabilities may get another answer than `error`.
pub(super) fn may_be_for_want_of(error: Error, call: &Call) -> bool {
    match (error, call) {
        (Error::AccessDenied | Error::NotPermitted, _) => true,
        // An asker that may not see such attributes is answered that there is none.
        (Error::NoAttribute, Call::GetXattr(call::GetXattr { name, .. })) => is_trusted(name.as_bytes()),
        _ => false,
    }
}

/// Whether an attribute is for administrators alone.
fn is_trusted(name: &[u8]) -> bool {
    name.starts_with(b"trusted.")
}

/// The rights that count for an asker when the kernel has let this call pass, and knows more of the
/// asker than can be seen.
fn vouched_for(asker: Asker, known: &KnownAsker, call: &Call) -> Cred {
    let mut capabilities = Capabilities::EVERY;
    let keeps_set_gid = match call {
        // The kernel has taken the bit out of a mode that may not have it.
        Call::SetAttributes(call::SetAttributes { change, .. }) => change.mode.is_some(),
        Call::Create { .. } => true,
        _ => asker.keeps_set_ids,
    };
    if !keeps_set_gid {
        capabilities = capabilities.without(Capability::Fsetid);
    }
    Cred { capabilities, ..known.cred.clone() }
}

/// Whether the kernel checks this call by its cached attributes, even if they are out of date.
fn is_checked_by_old_attributes(call: &Call) -> bool {
    match call {
        Call::SetAttributes { .. } => true,
        Call::SetXattr(call::SetXattr { name, .. }) | Call::RemoveXattr(call::RemoveXattr { name, .. }) => {
            is_acl(name)
        }
        _ => false,
    }
}

fn is_acl(name: &lease::Label) -> bool {
    name.as_bytes().starts_with(b"system.posix_acl_")
}

impl Front {
    /// Makes a call with all that can be known of the asker.
    pub(super) fn ask_with_all<C: FileCall>(
        self: &Arc<Self>,
        node: u64,
        asker: Asker,
        call: Call,
        then: impl Then<C::Reply>,
    ) {
        let known = asker.known();
        if known.complete {
            return self.call_as::<C>(Locks::of(&call), node, asker, &known.cred, call, then);
        }
        let cred = vouched_for(asker, &known, &call);
        let file = match self.nodes.file(node) {
            Ok(file) if is_checked_by_old_attributes(&call) => file,
            _ => return self.call_as::<C>(Locks::of(&call), node, asker, &cred, call, then),
        };
        self.call(node, asker, call::Glance { file }, move |front, told| match told {
            Ok(stat) if front.nodes.is_as_told(node, &stat.value) => {
                front.call_as::<C>(Locks::of(&call), node, asker, &cred, call, then);
            }
            Ok(_) => then(front, Err(Error::Stale)),
            Err(error) => then(front, Err(error)),
        });
    }

    /// The names of attributes that `asker` may see.
    pub(super) fn shown_names(asker: Asker, names: &[lease::Label]) -> impl Iterator<Item = &[u8]> {
        let may_see_trusted = || {
            let KnownAsker { cred, complete } = asker.known();
            if complete { cred.capabilities.has(Capability::SysAdmin) } else { asker.uid == 0 }
        };
        // Few files have any, and then /proc is not read.
        let any = names.iter().any(|name| is_trusted(name.as_bytes()));
        let hidden = any && !may_see_trusted();
        names.iter().map(lease::Label::as_bytes).filter(move |name| !(hidden && is_trusted(name)))
    }
}
