//! The names of clients, leases, opens and objects.

/// An SMB client: its ClientGuid (MS-SMB2 §2.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientGuid(pub [u8; 16]);

/// A lease key, which is never all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseKey([u8; 16]);

impl LeaseKey {
    /// Returns the key. All zeros are no key: such a request asks for no lease.
    pub fn new(key: [u8; 16]) -> Option<LeaseKey> {
        (key != [0; 16]).then_some(LeaseKey(key))
    }

    /// Returns the bytes for a message.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// A lease, as its client names it.
///
/// *Own and other* is decided by the key alone, which is the ClientLeaseId of MS-SMB2 §3.3.1.4. So
/// leases of one key do not break each other, whatever their clients. Each client still has a state
/// and an epoch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    /// The client.
    pub client: ClientGuid,
    /// The key.
    pub key: LeaseKey,
}

/// An open, of whichever front door. The caller gives each a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u64);

/// An object that is open: a file with all its hard links, a directory, or a stream. The caller
/// gives each a number, which is its for as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// The holder of a state: a lease of any number of opens, or the legacy oplock of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseHolder {
    /// A lease.
    Lease(LeaseId),
    /// The oplock of this open.
    Oplock(OpenId),
}

/// The party whose own state an act does not break.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Nothing,
    /// All leases with the key.
    Key(LeaseKey),
    /// The oplock of the open.
    Oplock(OpenId),
}

impl Own {
    pub(super) fn of(holder: Option<LeaseHolder>) -> Own {
        match holder {
            None => Own::Nothing,
            Some(LeaseHolder::Lease(lease)) => Own::Key(lease.key),
            Some(LeaseHolder::Oplock(open)) => Own::Oplock(open),
        }
    }

    /// Returns whether the holder, or an open with this holder, is another's.
    pub(super) fn is_not(self, holder: Option<LeaseHolder>) -> bool {
        self == Own::Nothing || self != Own::of(holder)
    }
}
