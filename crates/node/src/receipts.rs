//! What machines are told of how far the server has their logs, sealed, so that they can prove it to a server that has forgotten: one whose disk is an older copy.
//!
//! Only servers of the cluster can make a receipt, so no machine can stop a server by one. They are given now and then, since nothing that was acknowledged long ago is missed: what a machine was
//! told since the last one, it takes back itself when the server knows less ([`crate::engine`]).

use lease::SessionId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use wire::{Receipt, ToClient};

/// See the module.
pub(crate) struct Receipts {
    key: [u8; 32],
    /// A state that is older is accepted, whatever it has forgotten.
    accepts_older: bool,
    /// What was acknowledged and no receipt was given for.
    due: Mutex<BTreeMap<SessionId, u64>>,
}

impl Receipts {
    /// Of servers that share a secret.
    pub(crate) fn by(secret: &[u8], accepts_older: bool) -> Receipts {
        let key = blake3::derive_key("leasehold receipts of what servers acknowledge", secret);
        Receipts { key, accepts_older, due: Mutex::default() }
    }

    /// That is said to a session.
    pub(crate) fn note(&self, session: SessionId, message: &ToClient) {
        let through = match message {
            ToClient::Opened { .. } => 0,
            ToClient::Applied { through, .. } | ToClient::Resumed { through, .. } => *through,
            ToClient::Fenced => {
                self.due.lock().remove(&session);
                return;
            }
            _ => return,
        };
        self.due.lock().insert(session, through);
    }

    /// What is to be given, by the member of that number which has drawn that at its start.
    pub(crate) fn due(&self, server: (u64, u64)) -> Vec<Receipt> {
        let due = std::mem::take(&mut *self.due.lock());
        due.into_iter().map(|(session, through)| self.sealed(session, through, server)).collect()
    }

    /// Whether one of these servers has made it, and it counts.
    pub(crate) fn are_of(&self, receipt: &Receipt) -> bool {
        !self.accepts_older && self.sealed(receipt.session, receipt.through, receipt.server) == *receipt
    }

    fn sealed(&self, session: SessionId, through: u64, server: (u64, u64)) -> Receipt {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for number in [session.0, through, server.0, server.1] {
            hasher.update(&number.to_le_bytes());
        }
        let mut seal = [0; 16];
        hasher.finalize_xof().fill(&mut seal);
        Receipt { session, through, server, seal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_make_one() {
        let (ours, others) = (Receipts::by(b"secret", false), Receipts::by(b"another", false));
        ours.note(SessionId(3), &ToClient::Applied { through: 7, rejected: Vec::new() });
        let given = ours.due((1, 5));
        assert_eq!(given.len(), 1);
        assert!(ours.are_of(&given[0]) && !others.are_of(&given[0]) && ours.due((1, 5)).is_empty());
        assert!(!ours.are_of(&Receipt { through: 8, ..given[0] }));
        assert!(!Receipts::by(b"secret", true).are_of(&given[0]));
    }
}
