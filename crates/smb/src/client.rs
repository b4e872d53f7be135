//! A client, which breaks are sent to over any of its connections (MS-SMB2 §3.3.4.6, §3.3.4.7).

use crate::outbox::Outbox;
use crate::wire::bodies::{FileId, LeaseBreak, OplockBreak};
use crate::wire::{Command, Flags, Header, NtStatus};
use objects::{Break, BreakSink, CachingState, LeaseHolder};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;

/// SMB2_NOTIFY_BREAK_LEASE_FLAG_ACK_REQUIRED.
const ACKNOWLEDGE: u32 = 1;

/// A client's connections.
pub(crate) struct Client {
    connections: Mutex<Vec<Outbox>>,
    /// The holders of breaks that could not be sent.
    unheard: UnboundedSender<LeaseHolder>,
}

impl Client {
    pub(crate) fn new(unheard: UnboundedSender<LeaseHolder>) -> Client {
        Client { connections: Mutex::default(), unheard }
    }

    pub(crate) fn add(&self, outbox: Outbox) {
        self.connections.lock().push(outbox);
    }

    pub(crate) fn remove(&self, outbox: &Outbox) {
        self.connections.lock().retain(|other| !other.is(outbox));
    }

    /// Returns whether its last connection has been taken away.
    pub(crate) fn is_gone(&self) -> bool {
        self.connections.lock().is_empty()
    }

    /// Returns whether a connection of it could take a message.
    pub(crate) fn is_reached(&self) -> bool {
        self.connections.lock().iter().any(|connection| !connection.is_gone())
    }
}

impl BreakSink for Client {
    fn broken(&self, broken: &Break) -> bool {
        let message = notification(broken);
        let sent = self.connections.lock().iter().any(|connection| connection.send(message.clone()));
        if !sent && broken.acknowledge {
            // The receiver, which lives as long as the server listens, answers in the client's
            // place.
            let _ = self.unheard.send(broken.holder);
        }
        sent || broken.acknowledge
    }
}

/// Returns the level of an oplock in messages (§2.2.13).
pub(crate) fn oplock_level(state: CachingState) -> u8 {
    match state {
        CachingState::RWH => 9,
        CachingState::RW => 8,
        state if state.has(CachingState::READ) => 1,
        _ => 0,
    }
}

/// Returns the notification of a break. It belongs to no session and is not signed.
fn notification(broken: &Break) -> Vec<u8> {
    let header = Header {
        charge: 0,
        status: NtStatus::SUCCESS,
        command: Command::OplockBreak as u16,
        credits: 0,
        flags: Flags(Flags::ANSWER),
        next: 0,
        message_id: u64::MAX,
        tree_or_async: 0,
        session_id: 0,
        signature: [0; 16],
    };
    let mut message = Vec::with_capacity(108);
    header.emit(&mut message);
    match broken.holder {
        LeaseHolder::Lease(lease) => LeaseBreak {
            epoch: broken.epoch,
            flags: if broken.acknowledge { ACKNOWLEDGE } else { 0 },
            key: lease.key.bytes(),
            current: broken.from.bits(),
            new: broken.to.bits(),
            ..LeaseBreak::default()
        }
        .emit(&mut message),
        LeaseHolder::Oplock(open) => OplockBreak {
            level: oplock_level(broken.to),
            file: FileId { persistent: open.0, volatile: open.0 },
            ..OplockBreak::default()
        }
        .emit(&mut message),
    }
    message
}
