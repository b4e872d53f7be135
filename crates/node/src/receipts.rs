//! Receipts: sealed statements of how far the server has the logs of machines. With one, a machine
//! can prove an acknowledgement to a server that has forgotten it because its disk is an older
//! copy.
//!
//! Only servers of the cluster can make a receipt, so no machine can stop a server by one. Receipts
//! are given now and then, which is enough. A machine keeps the operations acknowledged since its
//! last receipt, and repeats them when the server knows less ([`crate::client_host`]).

use lease::SessionId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use wire::{Receipt, ToClient};

/// The receipts that one server gives and checks.
pub(crate) struct Receipts {
    /// The key of all servers; none before they have a secret.
    key: Mutex<Option<[u8; 32]>>,
    /// An older state is accepted, whatever it has forgotten.
    accepts_older: bool,
    /// Acknowledgements that no receipt was given for.
    due: Mutex<BTreeMap<SessionId, u64>>,
}

impl Receipts {
    /// Makes receipts without a key. [`Receipts::are_by`] sets it.
    pub(crate) fn new(accepts_older: bool) -> Receipts {
        Receipts { key: Mutex::default(), accepts_older, due: Mutex::default() }
    }

    /// Makes the receipts of another server of the directory at this machine.
    pub(crate) fn of_another(&self) -> Receipts {
        let key = Mutex::new(*self.key.lock());
        Receipts { key, accepts_older: self.accepts_older, due: Mutex::default() }
    }

    /// Sets the secret that the servers share. Receipts by an earlier secret do not count: a former
    /// server could make them.
    pub(crate) fn are_by(&self, secret: &[u8]) {
        let key = crypto::derive_key("leasehold receipts of what servers acknowledge", secret);
        *self.key.lock() = Some(key);
    }

    /// Notes a message to a session that acknowledges operations.
    pub(crate) fn note(&self, session: SessionId, message: &ToClient) {
        let up_to = match message {
            ToClient::Opened { .. } => 0,
            ToClient::Applied { up_to, .. } | ToClient::Resumed { up_to, .. } => *up_to,
            ToClient::Fenced => {
                self.due.lock().remove(&session);
                return;
            }
            _ => return,
        };
        self.due.lock().insert(session, up_to);
    }

    /// Returns the receipts that are due. `server` is the member's number, and the number that it
    /// drew at its start.
    pub(crate) fn due(&self, server: (u64, u64)) -> Vec<Receipt> {
        let Some(key) = *self.key.lock() else { return Vec::new() };
        let due = std::mem::take(&mut *self.due.lock());
        due.into_iter().map(|(session, up_to)| sealed(&key, session, up_to, server)).collect()
    }

    /// Whether one of these servers has made the receipt, and receipts count here.
    pub(crate) fn are_of(&self, receipt: &Receipt) -> bool {
        let made = |key: [u8; 32]| sealed(&key, receipt.session, receipt.up_to, receipt.server) == *receipt;
        !self.accepts_older && self.key.lock().is_some_and(made)
    }
}

fn sealed(key: &[u8; 32], session: SessionId, up_to: u64, server: (u64, u64)) -> Receipt {
    let mut hasher = crypto::Hasher::new_keyed(key);
    for number in [session.0, up_to, server.0, server.1] {
        hasher.update(&number.to_le_bytes());
    }
    let mut seal = [0; 16];
    hasher.finalize_xof().fill(&mut seal);
    Receipt { session, up_to, server, seal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_make_one() {
        let by = |secret: &[u8], accepts_older| {
            let receipts = Receipts::new(accepts_older);
            receipts.are_by(secret);
            receipts
        };
        let (ours, others) = (by(b"secret", false), by(b"another", false));
        let nobodys = Receipts::new(false);
        nobodys.note(SessionId(3), &ToClient::Applied { up_to: 7, rejected: Vec::new(), forgotten: 0 });
        assert!(nobodys.due((1, 5)).is_empty());
        ours.note(SessionId(3), &ToClient::Applied { up_to: 7, rejected: Vec::new(), forgotten: 0 });
        let given = ours.due((1, 5));
        assert_eq!(given.len(), 1);
        assert!(ours.are_of(&given[0]) && !others.are_of(&given[0]) && ours.due((1, 5)).is_empty());
        assert!(!ours.are_of(&Receipt { up_to: 8, ..given[0] }));
        assert!(!by(b"secret", true).are_of(&given[0]) && !nobodys.are_of(&given[0]));
        ours.are_by(b"renewed");
        assert!(!ours.are_of(&given[0]));
    }
}
