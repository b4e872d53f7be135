//! The lease keys of each client, and the object that each is bound to (MS-SMB2 §3.3.1.11).

use super::holder::{LeaseId, ObjectId};
use super::record::AcknowledgeError;
use std::collections::BTreeMap;

/// The leases of all SMB clients of a machine. A key is bound to one object for as long as its
/// lease has opens. An acknowledgment finds the object by client and key, over whichever connection
/// it comes.
///
/// Its memory grows with the leases that are open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clients {
    bound: BTreeMap<LeaseId, Bound>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Bound {
    object: ObjectId,
    /// The object goes with its last handle, so the key may be used for another.
    is_deleted: bool,
}

/// STATUS_INVALID_PARAMETER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease key is in use for another file or stream; ask with a key for each, or without")]
pub struct KeyInUse;

impl Clients {
    /// Makes a table without leases.
    pub fn new() -> Clients {
        Clients::default()
    }

    /// Returns whether an open of this object may use the key. Another hard link of a file is the
    /// same object.
    ///
    /// This departs from MS-SMB2 §3.3.5.9.8, which compares names: because Linux uses one key for
    /// all links of a file, and a rename would unbind the key.
    pub fn admits(&self, lease: LeaseId, object: ObjectId) -> Result<(), KeyInUse> {
        match self.bound.get(&lease) {
            Some(bound) if bound.object != object && !bound.is_deleted => Err(KeyInUse),
            _ => Ok(()),
        }
    }

    /// Binds the key, when [`Object::open`](super::Object::open) has let the open go on.
    pub fn bind(&mut self, lease: LeaseId, object: ObjectId) -> Result<(), KeyInUse> {
        self.admits(lease, object)?;
        let bound = self.bound.entry(lease).or_insert(Bound { object, is_deleted: false });
        if bound.object != object {
            *bound = Bound { object, is_deleted: false };
        }
        Ok(())
    }

    /// Notes that an open of the lease has delete-on-close.
    pub fn note_deleted(&mut self, lease: LeaseId, object: ObjectId) {
        if let Some(bound) = self.bound.get_mut(&lease).filter(|bound| bound.object == object) {
            bound.is_deleted = true;
        }
    }

    /// Ends the binding, when [`Object::close`](super::Object::close) has ended the lease. A key
    /// that is bound anew stays bound.
    pub fn unbind(&mut self, lease: LeaseId, object: ObjectId) {
        if self.bound.get(&lease).is_some_and(|bound| bound.object == object) {
            self.bound.remove(&lease);
        }
    }

    /// Returns the object of an acknowledgment.
    pub fn object(&self, lease: LeaseId) -> Result<ObjectId, AcknowledgeError> {
        self.bound.get(&lease).map(|bound| bound.object).ok_or(AcknowledgeError::Unknown)
    }
}
