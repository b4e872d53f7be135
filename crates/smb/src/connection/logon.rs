//! A logon under way.

use super::ConnectionState;
use crate::auth::Acceptor;
use crate::channel::Channel;
use crate::limits::{EARLY_LOGONS_MAX, SESSIONS_MAX};
use crate::session::Session;
use crate::wire::NtStatus;
use crypto::smb::PreauthHash;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The exchange of tokens with a user who has no session yet, or renews it.
pub(crate) struct Logon {
    pub(super) acceptor: Acceptor,
    pub(super) hash: PreauthHash,
    pub(super) aim: Aim,
}

impl Logon {
    /// Returns whether its aim is [`Aim::Bind`].
    pub(super) fn binds(&self) -> bool {
        matches!(self.aim, Aim::Bind(_))
    }
}

impl ConnectionState {
    /// Begins a logon. Returns the number of the session that it is for.
    pub(super) fn begin_logon(&mut self, id: u64, hash: PreauthHash, aim: Aim) -> Result<u64, NtStatus> {
        if !matches!(aim, Aim::Renew(_)) {
            // Some may have ended on another connection.
            self.sessions.retain(|_, channel| !channel.session.has_ended.load(Relaxed));
            let most = if self.sessions.is_empty() { EARLY_LOGONS_MAX } else { SESSIONS_MAX };
            if self.logons.len() + self.sessions.len() >= most {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
        }
        let acceptor = if matches!(aim, Aim::Renew(_)) { Acceptor::renewing() } else { Acceptor::default() };
        self.logons.insert(id, Logon { acceptor, hash, aim });
        Ok(id)
    }
}

/// The end to which a user logs on.
pub(super) enum Aim {
    /// A new session.
    New,
    /// To stay logged on, in a session of this connection.
    Renew(Channel),
    /// To use a session of another connection on this one, too.
    Bind(Arc<Session>),
}
