//! Keeping durable opens whose connection is lost, until their clients come back for them (MS-SMB2
//! §3.3.5.9.7, §3.3.5.9.12).

use crate::durable::PERSISTENT;
use crate::handle::{Handle, HandleKind, close_all};
use crate::server::Server;
use crate::wire::NtStatus;
use crate::wire::contexts::{CreateContexts, LeaseContext};
use objects::{CachingState, ClientGuid, Granted, LeaseHolder, LeaseVersion, ObjectPath};
use std::sync::Arc;
use std::time::Duration;

/// Keeps the durable ones of opens whose connection is lost, and closes the others.
pub(crate) async fn keep_or_close(server: &Arc<Server>, handles: Vec<Arc<Handle>>) {
    let mut others = Vec::new();
    for handle in handles {
        match keep(server, handle) {
            Ok(Some(holder)) => give_up(server, holder).await,
            Ok(None) => {}
            Err(other) => others.push(other),
        }
    }
    close_all(others).await;
}

/// Keeps a durable open, for its time. Returns the holder whose break was lost with the connection:
/// the caller gives that up. An open that is not durable comes back.
fn keep(server: &Arc<Server>, handle: Arc<Handle>) -> Result<Option<LeaseHolder>, Arc<Handle>> {
    let durable = handle.durable.lock().clone();
    let timeout = match (durable, &handle.kind) {
        (Some(durable), HandleKind::Object(open)) if durable.keeps(open) => {
            open.set_away(durable.is_persistent);
            durable.timeout
        }
        _ => return Err(handle),
    };
    let number = handle.file.persistent;
    *handle.watch.lock() = None;
    server.durables.lock().insert(number, handle.clone());
    // A break may have gone out over the connection, and been lost with it.
    let lost = handle.object().ok().filter(|open| !server.reaches(open.client()));
    let broken = lost.and_then(|open| open.breaking());
    end_after(server, handle, timeout);
    Ok(broken)
}

/// Closes an open that waits when its time is over. It may have come back, and wait anew.
pub(crate) fn end_after(server: &Arc<Server>, handle: Arc<Handle>, timeout: Duration) {
    let (server, number) = (server.clone(), handle.file.persistent);
    tokio::spawn(async move {
        tokio::time::sleep(timeout).await;
        let expired = {
            let mut durables = server.durables.lock();
            let is_it = durables.get(&number).is_some_and(|kept| Arc::ptr_eq(kept, &handle));
            if is_it { durables.remove(&number) } else { None }
        };
        forget(&server, expired.into_iter().collect()).await;
    });
}

/// An open on its way back to its client. It waits again, for all of its time, if this is dropped
/// before it has arrived: the request was cancelled, or lost with its connection.
pub(crate) struct Returning {
    server: Arc<Server>,
    handle: Option<Arc<Handle>>,
}

impl Returning {
    pub(crate) fn new(server: &Arc<Server>, handle: Arc<Handle>) -> Returning {
        Returning { server: server.clone(), handle: Some(handle) }
    }

    /// Notes that the open is its client's session's.
    pub(crate) fn arrived(mut self) {
        self.handle = None;
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        // A server whose threads end closes all that is open.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let server = self.server.clone();
        match keep(&server, handle) {
            Ok(None) => {}
            Ok(Some(holder)) => drop(runtime.spawn(async move { give_up(&server, holder).await })),
            Err(other) => drop(runtime.spawn(close_all(vec![other]))),
        }
    }
}

/// Closes the opens of a holder that could not be asked, and so ends its break. Resilient ones
/// stay, and it counts as acknowledged with none. With a persistent one the break waits for the
/// client, as for any that does not answer: it goes out again when the open comes back.
///
/// If none of them waits, their connection is about to end, which closes them or gives them up; or
/// the client has just come back, and its break counts as acknowledged with none.
pub(crate) async fn give_up(server: &Arc<Server>, holder: LeaseHolder) {
    let is_holders = |handle: &Handle| {
        let HandleKind::Object(open) = &handle.kind else { return false };
        match (holder, open.granted()) {
            (LeaseHolder::Oplock(id), _) => open.id() == id,
            (LeaseHolder::Lease(lease), Granted::Lease { key, .. }) => {
                lease.key == key && lease.client == open.client()
            }
            (LeaseHolder::Lease(_), _) => false,
        }
    };
    let (mut stay, mut is_awaited, mut given_up) = (false, false, Vec::new());
    server.durables.lock().retain(|_, handle| {
        let durable = handle.durable.lock();
        let is_persistent = durable.as_ref().is_some_and(|durable| durable.is_persistent);
        let stays = is_persistent || durable.as_ref().is_some_and(|durable| durable.is_resilient);
        let holds = is_holders(handle);
        stay |= holds && stays;
        is_awaited |= holds && is_persistent;
        if holds && !stays {
            given_up.push(handle.clone());
        }
        !holds || stays
    });
    if is_awaited {
        return forget(server, given_up).await;
    }
    if given_up.is_empty() || stay {
        let store = &server.store;
        let client = match holder {
            LeaseHolder::Lease(lease) => Some(lease.client),
            LeaseHolder::Oplock(open) => store.client_of(open),
        };
        if !stay && !client.is_some_and(|client| server.reaches(client)) {
            return;
        }
        // A break that has ended by then needs none.
        let _ = match holder {
            LeaseHolder::Lease(lease) => store.acknowledge(lease.client, lease.key, CachingState::NONE),
            LeaseHolder::Oplock(open) => store.acknowledge_oplock(open, CachingState::NONE),
        };
    }
    forget(server, given_up).await;
}

/// Closes opens that waited for their clients.
async fn forget(server: &Server, handles: Vec<Arc<Handle>>) {
    let opens = handles.iter().filter_map(|handle| handle.object().ok());
    let clients = opens.map(|open| open.client()).collect::<Vec<ClientGuid>>();
    close_all(handles).await;
    clients.into_iter().for_each(|client| server.leave(client));
}

/// Finds the open that a client comes back for, and takes it out of those that wait.
pub(crate) fn reconnect(
    server: &Server,
    contexts: &CreateContexts,
    client: ClientGuid,
    user: &str,
    path: &ObjectPath,
    lease: Option<&LeaseContext>,
    is_continuous: bool,
) -> Result<Arc<Handle>, NtStatus> {
    let persistent = contexts.reconnect_v2.is_some_and(|v2| v2.flags & PERSISTENT != 0);
    if persistent && !is_continuous {
        // No open of the share is persistent.
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let (number, create_guid) = match (&contexts.reconnect_v2, &contexts.reconnect) {
        (Some(v2), _) => (v2.file.persistent, Some(v2.create_guid)),
        (None, Some(file)) => (file.persistent, None),
        (None, None) => return Err(NtStatus::INVALID_PARAMETER),
    };
    let mut durables = server.durables.lock();
    let by_guid = || durables.values().find(|handle| persistent && has_guid(handle, create_guid));
    let handle = durables.get(&number).or_else(by_guid).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let number = handle.file.persistent;
    let durable = handle.durable.lock().clone().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let open = handle.object()?;
    // Either version of the context finds opens of both. Those of version 1 have no identifier:
    // zeros.
    let is_named = create_guid.is_none_or(|guid| guid == durable.create_guid.unwrap_or_default());
    if is_named && persistent && !durable.is_persistent {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if !is_named || !durable.keeps(open) || durable.is_persistent != persistent {
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    match (open.granted(), lease) {
        (Granted::Lease { key, version, .. }, Some(lease)) => {
            let is_v2 = matches!(version, LeaseVersion::V2 { .. });
            if lease.key != key.bytes() || lease.v2.is_some() != is_v2 || client != open.client() {
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
            }
            if handle.path != *path {
                return Err(NtStatus::INVALID_PARAMETER);
            }
        }
        (Granted::Oplock(_), None) => {}
        // A resilient open may have lost its oplock, or never had one.
        (Granted::Nothing, None) if durable.is_resilient || durable.is_persistent => {}
        _ => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
    }
    if durable.user != user {
        return Err(NtStatus::ACCESS_DENIED);
    }
    durables.remove(&number).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)
}

/// Returns whether an open was made by the create of this identifier.
fn has_guid(handle: &Handle, guid: Option<[u8; 16]>) -> bool {
    let durable = handle.durable.lock();
    guid.is_some() && durable.as_ref().is_some_and(|durable| durable.create_guid == guid)
}

/// Finds the persistent open that a create is sent again for by the same user: the answer was lost
/// with the connection, or with the server (MS-SMB2 §3.3.5.9.10). It waits no longer then.
pub(crate) fn take_replayed(server: &Server, handle: &Arc<Handle>, user: &str) -> bool {
    let is_persistent =
        handle.durable.lock().as_ref().is_some_and(|durable| durable.is_persistent && durable.user == user);
    let mut durables = server.durables.lock();
    let number = handle.file.persistent;
    let is_it = is_persistent && durables.get(&number).is_some_and(|kept| Arc::ptr_eq(kept, handle));
    is_it && durables.remove(&number).is_some()
}
