//! The breaks of clients' leases: the addresses that they go to, and how they end: by an
//! acknowledgment, by the loss of the client's last connection, or by time.

use crate::alarm::Alarm;
use crate::table::Table;
use crate::{BreakSink, Open, Store};
use lease::caching::{
    AcknowledgeError, Break, CachingState, ClientGuid, LeaseHolder, LeaseId, LeaseKey, ObjectId, OpenId,
};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// An acknowledgment that the store has taken. The caller sends its answer, and drops this then:
/// the next break of the lease goes out with that. So does the one of an open that has come back.
#[must_use = "the answer goes out before this is dropped"]
pub struct Acknowledged {
    /// The state that the holder has now, for the answer.
    pub state: CachingState,
    store: Arc<Store>,
    object: ObjectId,
    next: Vec<Break>,
}

impl Drop for Acknowledged {
    fn drop(&mut self) {
        let next = std::mem::take(&mut self.next);
        self.store.with(|table, now| {
            table.send(self.object, now, next);
            table.settle(self.object, now);
        });
    }
}

impl Open {
    /// Has a break of its lease or oplock go out again that waits for an acknowledgment: the client
    /// was away. The caller sends the answer to the reconnect, and drops this then.
    pub fn breaks_again(&self) -> Option<Acknowledged> {
        let (holder, object) = (self.parts.holder?, self.object());
        let told = self.store().with(|table, _| table.objects.get(&object)?.caching.told(holder))?;
        Some(Acknowledged { state: told.from, store: Arc::clone(self.store()), object, next: vec![told] })
    }
}

impl Store {
    /// Sets the address for a client's breaks. A later one takes its place.
    pub fn connect(&self, client: ClientGuid, breaks: Arc<dyn BreakSink>) {
        self.with(|table, _| table.connect(client, Some(breaks)));
    }

    /// Forgets the address for a client's breaks, after its last connection is gone. Breaks that
    /// are under way are taken as acknowledged with none. The caller has closed the opens that do
    /// not outlive their connection.
    pub fn disconnect(&self, client: ClientGuid) {
        self.with(|table, now| table.disconnect(client, now));
    }

    /// Takes the acknowledgment of a lease break (MS-SMB2 §3.3.5.22.2), over whichever connection
    /// of the client.
    pub fn acknowledge(
        self: &Arc<Self>,
        client: ClientGuid,
        key: LeaseKey,
        keeps: CachingState,
    ) -> Result<Acknowledged, AcknowledgeError> {
        let lease = LeaseId { client, key };
        self.acknowledge_of(|table| table.clients.object(lease), LeaseHolder::Lease(lease), keeps)
    }

    /// Takes the acknowledgment of an oplock break (MS-SMB2 §3.3.5.22.1): level II is R.
    pub fn acknowledge_oplock(
        self: &Arc<Self>,
        open: OpenId,
        keeps: CachingState,
    ) -> Result<Acknowledged, AcknowledgeError> {
        let object =
            |table: &Table| table.opens.get(&open).map(|open| open.object).ok_or(AcknowledgeError::Unknown);
        self.acknowledge_of(object, LeaseHolder::Oplock(open), keeps)
    }

    fn acknowledge_of(
        self: &Arc<Self>,
        object: impl FnOnce(&Table) -> Result<ObjectId, AcknowledgeError>,
        holder: LeaseHolder,
        keeps: CachingState,
    ) -> Result<Acknowledged, AcknowledgeError> {
        self.with(|table, now| {
            let object = object(table)?;
            let known = table.objects.get_mut(&object).ok_or(AcknowledgeError::Unknown)?;
            let mut next = Vec::new();
            let state = known.caching.acknowledge(now, holder, keeps, &mut next)?;
            Ok(Acknowledged { state, store: Arc::clone(self), object, next })
        })
    }
}

/// Ends the breaks whose time is over, until the store is dropped.
pub(crate) fn end_breaks(alarm: &Alarm, store: &Weak<Store>) {
    let mut next: Option<Instant> = None;
    while alarm.wait(next) {
        let Some(store) = store.upgrade() else { return };
        let due = store.with(|table, now| table.expire(now));
        next = due.map(|due| store.began + Duration::from_millis(due.0));
    }
}
