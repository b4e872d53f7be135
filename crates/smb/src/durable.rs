//! Opens that outlive their connection (MS-SMB2 §3.3.5.9.6, §3.3.5.9.7, §3.3.5.9.10, §3.3.5.9.12).
//!
//! An open is durable if its client asks for that and its lease or oplock has HANDLE caching. When
//! the connection is lost, the open waits for its client, for a time. It goes as soon as somebody
//! else needs what it caches: nobody could be asked.

use crate::handle::{Handle, HandleKind};
use crate::server::Server;
use crate::wire::NtStatus;
use crate::wire::contexts::{CreateContexts, LeaseContext};
use objects::{CachingState, ClientGuid, Granted, LeaseHolder, ObjectPath, Open};
use std::sync::Arc;
use std::time::Duration;

/// The time of a client that does not say any.
const USUAL: Duration = Duration::from_secs(60);
/// The longest time that a client gets.
const LONGEST: Duration = Duration::from_secs(300);

/// What makes an open durable.
#[derive(Clone, Debug)]
pub(crate) struct Durable {
    /// How long it waits for its client.
    pub(crate) timeout: Duration,
    /// The identifier of the create, of version 2.
    pub(crate) create_guid: Option<[u8; 16]>,
    /// The user's name.
    pub(crate) user: String,
    /// The path by which it was opened.
    pub(crate) path: ObjectPath,
}

impl Durable {
    /// Returns what a request asks for, if the open may be durable.
    pub(crate) fn granted(
        contexts: &CreateContexts,
        open: &Open,
        user: &str,
        path: &ObjectPath,
    ) -> Option<Durable> {
        if open.is_directory() || !has_handle(open) {
            return None;
        }
        let (timeout, create_guid) = match &contexts.durable_v2 {
            Some(v2) => {
                let asked = Duration::from_millis(u64::from(v2.timeout_ms));
                (if asked.is_zero() { USUAL } else { asked.min(LONGEST) }, Some(v2.create_guid))
            }
            None if contexts.durable => (USUAL, None),
            None => return None,
        };
        Some(Durable { timeout, create_guid, user: user.to_owned(), path: path.clone() })
    }
}

/// Returns whether the open's lease or oplock lets it be kept.
fn has_handle(open: &Open) -> bool {
    match open.granted() {
        Granted::Oplock(state) | Granted::Lease { state, .. } => state.has(CachingState::HANDLE),
        Granted::Nothing => false,
    }
}

/// Keeps the durable ones of opens whose connection is lost, and closes the others.
pub(crate) async fn keep_or_close(server: &Arc<Server>, handles: Vec<Arc<Handle>>) {
    let mut others = Vec::new();
    for handle in handles {
        let timeout = match (&handle.durable, &handle.kind) {
            (Some(durable), HandleKind::Object(open)) if has_handle(open) => durable.timeout,
            _ => {
                others.push(handle);
                continue;
            }
        };
        let number = handle.file.persistent;
        *handle.watch.lock() = None;
        server.durables.lock().insert(number, handle.clone());
        let server = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(timeout).await;
            let expired = {
                let mut durables = server.durables.lock();
                let is_it = durables.get(&number).is_some_and(|kept| Arc::ptr_eq(kept, &handle));
                if is_it { durables.remove(&number) } else { None }
            };
            server.forget(expired.into_iter().collect()).await;
        });
    }
    crate::connection::close_all(others).await;
}

/// Closes the opens of a holder that could not be asked. Its break counts as acknowledged.
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
    let given_up = {
        let mut durables = server.durables.lock();
        let numbers = durables.iter().filter(|(_, handle)| is_holders(handle)).map(|(number, _)| *number);
        let numbers = numbers.collect::<Vec<u64>>();
        numbers.iter().filter_map(|number| durables.remove(number)).collect()
    };
    server.forget(given_up).await;
}

/// Finds the open that a client comes back for, and takes it out of those that wait.
pub(crate) fn reconnect(
    server: &Server,
    contexts: &CreateContexts,
    client: ClientGuid,
    user: &str,
    path: &ObjectPath,
    lease: Option<&LeaseContext>,
) -> Result<Arc<Handle>, NtStatus> {
    let (number, create_guid) = match (&contexts.reconnect_v2, &contexts.reconnect) {
        (Some(v2), _) => (v2.file.persistent, Some(v2.create_guid)),
        (None, Some(file)) => (file.persistent, None),
        (None, None) => return Err(NtStatus::INVALID_PARAMETER),
    };
    let mut durables = server.durables.lock();
    let handle = durables.get(&number).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let durable = handle.durable.as_ref().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let open = handle.object()?;
    if durable.create_guid != create_guid || !has_handle(open) {
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    match (open.granted(), lease) {
        (Granted::Lease { key, version, .. }, Some(lease)) => {
            let is_v2 = matches!(version, objects::LeaseVersion::V2 { .. });
            if lease.key != key.bytes() || lease.v2.is_some() != is_v2 || client != open.client() {
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
            }
            if durable.path != *path {
                return Err(NtStatus::INVALID_PARAMETER);
            }
        }
        (Granted::Oplock(_), None) => {}
        _ => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
    }
    if durable.user != user {
        return Err(NtStatus::ACCESS_DENIED);
    }
    durables.remove(&number).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)
}
