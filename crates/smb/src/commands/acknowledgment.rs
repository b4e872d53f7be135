//! Acknowledgments of lease and oplock breaks (MS-SMB2 §3.3.5.22).

use super::call::{Context, Served};
use crate::client::oplock_level;
use crate::request::{Reply, Request};
use crate::session::Session;
use crate::wire::NtStatus;
use crate::wire::bodies::{LeaseAcknowledgment, OplockBreak};
use objects::{AcknowledgeError, CachingState, LeaseKey, OpenId};

/// Takes the acknowledgment of a break. Its size says of which kind.
pub(super) fn acknowledge(context: &Context, session: &Session, request: &Request) -> Served {
    let store = &context.connection.server.store;
    if let Ok(lease) = LeaseAcknowledgment::parse(&request.message) {
        let key = LeaseKey::new(lease.key).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
        let keeps = CachingState::from_bits(lease.state);
        let taken = store.acknowledge(context.connection.client_guid(), key, keeps)?;
        let answer =
            LeaseAcknowledgment { flags: 0, reserved: 0, duration: 0, state: taken.state.bits(), ..lease };
        return Ok(Reply { after: Some(taken), ..Reply::done(answer.to_bytes()) });
    }
    let oplock = OplockBreak::parse(&request.message)?;
    let handle = session.opened(oplock.file).ok_or(NtStatus::FILE_CLOSED)?;
    let keeps = match oplock.level {
        0 => CachingState::NONE,
        1 => CachingState::READ,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    handle.object()?;
    let taken =
        store.acknowledge_oplock(OpenId(oplock.file.volatile), keeps).map_err(|error| match error {
            // A break to none from level II is not to be acknowledged (§3.3.5.22.1).
            AcknowledgeError::NotBreaking => NtStatus::INVALID_OPLOCK_PROTOCOL,
            error => error.into(),
        })?;
    let level = oplock_level(taken.state);
    let answer = OplockBreak { level, ..oplock };
    Ok(Reply { after: Some(taken), ..Reply::done(answer.to_bytes()) })
}
