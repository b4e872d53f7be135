//! CREATE (MS-SMB2 §3.3.5.9).

use super::call::BoundRequest;
use super::reparse::stopped;
use crate::client::oplock_level;
use crate::durable::{Durable, PERSISTENT, caches_handle};
use crate::fscc::{full_eas, posix_sids};
use crate::handle::{Handle, HandleKind, close_all};
use crate::keeping::{Returning, reconnect, take_replayed};
use crate::replay::{Begun, KnownCreate};
use crate::request::Reply;
use crate::rpc::Pipe;
use crate::time::filetime;
use crate::tree::TreeKind;
use crate::wire::bodies::{CreateRequest, CreateResponse, FileId};
use crate::wire::contexts::{CreateContexts, LEASE_BREAKING, LeaseContext, LeaseV2, to_bytes};
use crate::wire::negotiate::{Dialect, POSIX_GUID};
use crate::wire::{Flags, HEADER_BYTES, NtStatus, Reader, Writer, text_of};
use bytes::Bytes;
use objects::{
    AccessMask, Caching, CachingState, CreateAction, CreateDisposition, CreateOptions, DosAttributes,
    Granted, Info, LeaseKey, LeaseVersion, ObjectPath, Open, OpenRequest, Opened, Root, Sharing,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// The OplockLevel of a request with a lease.
const LEASE: u8 = 0xff;
/// The contexts' answer begins behind the fixed part.
const CONTEXTS_AT: u32 = HEADER_BYTES as u32 + 88;
/// FILE_CREATE_TREE_CONNECTION and bits that there are not.
const OPTIONS_INVALID: u32 = 0xff00_0000;
/// FILE_OPEN_BY_FILE_ID and others that no server has over the wire.
const OPTIONS_NOT_SUPPORTED: u32 = 0x0010_0000 | CreateOptions::BY_FILE_ID | 0x80;

/// FILE_ATTRIBUTE_ENCRYPTED.
const ENCRYPTED: u32 = 0x4000;
/// Bits that no right has (MS-DTYP §2.4.3).
const ACCESS_RESERVED: u32 = 0x0c00_0000;

/// A refusal of a create, with the data that tells more about it.
pub(super) struct CreateError {
    pub(super) status: NtStatus,
    pub(super) data: Vec<u8>,
}

impl<T: Into<NtStatus>> From<T> for CreateError {
    fn from(status: T) -> CreateError {
        CreateError { status: status.into(), data: Vec::new() }
    }
}

/// Opens a file or a pipe.
pub(super) async fn create(call: &BoundRequest<'_>) -> Result<(Reply, FileId), CreateError> {
    let message = call.message();
    let fixed = CreateRequest::parse(message)?;
    let name = Reader::buffer(message, usize::from(fixed.name_offset), usize::from(fixed.name_length))?;
    if !call.session.has_room() {
        return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
    }
    match &call.tree.kind {
        TreeKind::Pipes => Ok(create_pipe(call, name)?),
        TreeKind::Disk { root, .. } => create_file(call, &fixed, name, root).await,
    }
}

fn create_pipe(call: &BoundRequest<'_>, name: &[u8]) -> Result<(Reply, FileId), NtStatus> {
    let name = text_of(name)?;
    let server = &call.context.connection.server;
    let pipe = Pipe::open(&name, &server.computer).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let number = server.next();
    // The opens of the store count up from 1: no number of a pipe is one of theirs.
    let file = FileId { persistent: number, volatile: number | 1 << 63 };
    let handle = Handle::new(file, call.tree.clone(), HandleKind::Pipe(Mutex::new(pipe)));
    call.session.add(Arc::new(handle))?;
    let body = CreateResponse {
        action: 1,
        attributes: DosAttributes::NORMAL,
        allocation: 4096,
        file,
        ..CreateResponse::default()
    };
    let mut body = body.to_bytes();
    body.u8(0);
    Ok((Reply::done(body), file))
}

async fn create_file(
    call: &BoundRequest<'_>,
    fixed: &CreateRequest,
    name: &[u8],
    root: &Root,
) -> Result<(Reply, FileId), CreateError> {
    let connection = &call.context.connection;
    let contexts = CreateContexts::parse(call.message(), fixed)?;
    let is_posix = contexts.posix_mode.is_some() && connection.has_posix();
    let path = ObjectPath::from_utf16(&crate::wire::units(name)?, is_posix)?;
    match create_object(call, fixed, contexts, root, path.clone()).await {
        Err(NtStatus::STOPPED_ON_SYMLINK) => {
            let store = &connection.server.store;
            // The link may be gone by now.
            let link = store.link_on_path(call.session.cred()?, root, &path, is_posix).await;
            let link = link.map_err(|_| NtStatus::STOPPED_ON_SYMLINK)?;
            Err(CreateError { status: NtStatus::STOPPED_ON_SYMLINK, data: stopped(&link, &path, is_posix) })
        }
        created => Ok(created?),
    }
}

async fn create_object(
    call: &BoundRequest<'_>,
    fixed: &CreateRequest,
    contexts: CreateContexts,
    root: &Root,
    path: ObjectPath,
) -> Result<(Reply, FileId), NtStatus> {
    let connection = &call.context.connection;
    let is_posix = contexts.posix_mode.is_some() && connection.has_posix();
    if contexts.time_warp.is_some_and(|time| time != 0) {
        // There are no snapshots.
        return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
    }
    let dialect = connection.dialect();
    let lease = contexts.lease.filter(|lease| {
        fixed.oplock_level == LEASE && dialect >= Dialect::V2_1 && (lease.v2.is_none() || dialect.is_3())
    });
    contexts.check_durable()?;
    if contexts.reconnect.is_some() || contexts.reconnect_v2.is_some() {
        return come_back(call, &contexts, &path).await;
    }
    let create = match contexts.durable_v2.filter(|_| dialect.is_3()) {
        None => None,
        Some(v2) => {
            let id = (connection.client_guid(), v2.create_guid);
            match connection.server.creates.begin(id, call.request.header.flags.has(Flags::REPLAY))? {
                Begun::New(create) => Some(create),
                Begun::Replayed(handle) => {
                    return replay(call, &contexts, &handle, fixed.oplock_level, lease.as_ref()).await;
                }
            }
        }
    };
    if let Some(instance) = contexts.app_instance {
        end_instance(call, instance).await;
    }
    let eas = match &contexts.extended_attributes {
        Some(bytes) => full_eas(bytes)?.into_iter().map(|(name, value)| (name, Bytes::from(value))).collect(),
        None => Vec::new(),
    };
    let request = OpenRequest {
        client: connection.client_guid(),
        access: AccessMask(fixed.access),
        sharing: Sharing(fixed.sharing),
        disposition: disposition(fixed)?,
        options: CreateOptions(fixed.options),
        attributes: DosAttributes(fixed.attributes & !DosAttributes::SPARSE),
        allocation: contexts.allocation.unwrap_or(0),
        eas,
        security: contexts.security.as_deref().map(objects::SecurityDescriptor::parse).transpose()?,
        caching: caching(fixed.oplock_level, lease.as_ref()),
        mode: contexts.posix_mode.filter(|_| is_posix).map(|mode| (mode & 0o7777) as u16),
        leases_directories: dialect.is_3(),
        is_posix,
    };
    let opened = connection.server.store.open(call.session.cred()?, root, &path, request).await?;
    let number = opened.open.id().0;
    let file = FileId { persistent: number, volatile: number };
    let may_persist = call.tree.is_continuous() && connection.has_persistent();
    let durable = Durable::granted(&contexts, &opened.open, &call.session.user, may_persist);
    let answer = answer(&contexts, &opened, file, lease.as_ref(), durable.as_ref(), is_posix);
    let mut handle = Handle::new(file, call.tree.clone(), HandleKind::Object(opened.open));
    handle.path = path;
    handle.durable = Mutex::new(durable);
    handle.create = Mutex::new(create);
    handle.action = opened.action;
    handle.app_instance = contexts.app_instance;
    *handle.mode.lock() = fixed.options & (CreateOptions::WRITE_THROUGH | 0x4 | 0x8 | 0x10 | 0x20);
    let handle = Arc::new(handle);
    let unanswered = Unanswered(Some(handle.clone()));
    handle.persist(&connection.server).await?;
    KnownCreate::note(&handle);
    call.session.add(handle)?;
    unanswered.answered();
    if let Some(lease) = lease.filter(|_| call.tree.is_continuous()) {
        // It may be more than it was.
        call.session.note_caching(&connection.server, Some(lease.key)).await;
    }
    Ok((Reply::done(answer), file))
}

/// An open whose client has not heard of it. It is closed if the client does not: nothing may be
/// kept of it then.
struct Unanswered(Option<Arc<Handle>>);

impl Unanswered {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(close_all(vec![handle]));
        }
    }
}

/// Gives a client that has lost its connection its open back.
async fn come_back(
    call: &BoundRequest<'_>,
    contexts: &CreateContexts,
    path: &ObjectPath,
) -> Result<(Reply, FileId), NtStatus> {
    let connection = &call.context.connection;
    let client = connection.client_guid();
    // A lease counts whatever the request says of an oplock.
    let lease = contexts.lease.as_ref();
    let may_persist = call.tree.is_continuous() && connection.has_persistent();
    let old = reconnect(&connection.server, contexts, client, &call.session.user, path, lease, may_persist)?;
    give_back(call, contexts, &old, CreateAction::Opened).await
}

/// Makes an open that waited no longer the client's session's. An answer that repeats the one to
/// its create says what that did.
async fn give_back(
    call: &BoundRequest<'_>,
    contexts: &CreateContexts,
    old: &Arc<Handle>,
    action: CreateAction,
) -> Result<(Reply, FileId), NtStatus> {
    let connection = &call.context.connection;
    let client = connection.client_guid();
    let lease = contexts.lease.as_ref();
    let open = old.object()?.clone();
    let waiting = Returning::new(&connection.server, old.clone());
    let record = std::mem::take(&mut *old.record.lock().await);
    let mut handle = Handle::new(old.file, call.tree.clone(), HandleKind::Object(open.clone()));
    handle.path = old.path.clone();
    handle.durable = Mutex::new(old.durable.lock().clone());
    handle.record = tokio::sync::Mutex::new(record);
    handle.lock_sequences = Mutex::new(*old.lock_sequences.lock());
    handle.create = Mutex::new(old.create.lock().take());
    handle.action = old.action;
    handle.app_instance = old.app_instance;
    *handle.position.lock() = *old.position.lock();
    *handle.mode.lock() = *old.mode.lock();
    let handle = Arc::new(handle);
    KnownCreate::note(&handle);
    let returning = Returning::new(&connection.server, handle.clone());
    waiting.arrived();
    open.adopt(client);
    let opened = reopened(&open, action).await?;
    // Only the answer to a create says that the open is durable.
    let durable = handle.durable.lock().clone().filter(|_| contexts.durable_v2.is_some());
    let answer = answer(contexts, &opened, old.file, lease, durable.as_ref(), false);
    call.session.add(handle)?;
    returning.arrived();
    open.set_away(false);
    Ok((Reply { after: open.breaks_again(), ..Reply::done(answer) }, old.file))
}

async fn reopened(open: &Arc<Open>, action: CreateAction) -> Result<Opened, NtStatus> {
    Ok(Opened {
        action,
        info: open.info().await?,
        granted: open.granted(),
        maximal: open.access(),
        open: open.clone(),
    })
}

/// Answers a create that is sent again: as the first time, with what its lease has become. A client
/// that asks for less of an oplock now is answered so, and the open keeps what it has.
async fn replay(
    call: &BoundRequest<'_>,
    contexts: &CreateContexts,
    handle: &Arc<Handle>,
    level: u8,
    lease: Option<&LeaseContext>,
) -> Result<(Reply, FileId), NtStatus> {
    if call.session.opened(handle.file).is_none()
        && call.tree.is_continuous()
        && has_lease(handle.object()?.granted(), lease)
        && take_replayed(&call.context.connection.server, handle, &call.session.user)
    {
        return give_back(call, contexts, handle, handle.action).await;
    }
    if call.session.opened(handle.file).is_none() {
        // It is an open of another session, or waits for a reconnect.
        return Err(NtStatus::DUPLICATE_OBJECTID);
    }
    let mut opened = reopened(handle.object()?, handle.action).await?;
    match (opened.granted, lease) {
        (Granted::Lease { key, .. }, Some(lease)) if key.bytes() == lease.key => {}
        (Granted::Lease { .. }, _) | (_, Some(_)) => return Err(NtStatus::ACCESS_DENIED),
        (Granted::Oplock(state), None) if level < oplock_level(state) => {
            opened.granted = match caching(level, None) {
                Caching::Oplock(state) => Granted::Oplock(state),
                _ => Granted::Nothing,
            };
        }
        _ => {}
    }
    let is_durable = |durable: &Durable| durable.is_persistent || caches_handle(opened.granted);
    let durable = handle.durable.lock().clone().filter(is_durable);
    let answer = answer(contexts, &opened, handle.file, lease, durable.as_ref(), false);
    Ok((Reply::done(answer), handle.file))
}

/// Returns whether a request has the lease that the open has, or neither has one.
fn has_lease(granted: Granted, lease: Option<&LeaseContext>) -> bool {
    match granted {
        Granted::Lease { key, .. } => lease.is_some_and(|lease| lease.key == key.bytes()),
        Granted::Oplock(_) | Granted::Nothing => lease.is_none(),
    }
}

/// Closes the opens that an instance of a program has left on another machine
/// (MS-SMB2 §3.3.5.9.13): it has moved to this client's.
async fn end_instance(call: &BoundRequest<'_>, instance: [u8; 16]) {
    let connection = &call.context.connection;
    let client = connection.client_guid();
    let is_left = |handle: &Handle| {
        handle.app_instance == Some(instance)
            && handle.tree.name == call.tree.name
            && handle.object().is_ok_and(|open| open.client() != client)
    };
    close_all(connection.server.take_opens(&call.session.user, is_left)).await;
}

/// Checks what the store does not see, and returns CreateDisposition.
fn disposition(fixed: &CreateRequest) -> Result<CreateDisposition, NtStatus> {
    const BAD_IMPERSONATION_LEVEL: NtStatus = NtStatus(0xc000_00a5);
    if fixed.impersonation > 3 {
        return Err(BAD_IMPERSONATION_LEVEL);
    }
    if fixed.options & OPTIONS_INVALID != 0 || fixed.sharing & !7 != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if fixed.options & OPTIONS_NOT_SUPPORTED != 0 {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    if fixed.access & ACCESS_RESERVED != 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if fixed.attributes & ENCRYPTED != 0 {
        // Nothing is encrypted for one user alone, and nobody is to believe so.
        return Err(NtStatus::ACCESS_DENIED);
    }
    // Bits that no attribute to be set has (MS-FSCC §2.6).
    if fixed.attributes & !0x7fb7 != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(match fixed.disposition {
        0 => CreateDisposition::Supersede,
        1 => CreateDisposition::Open,
        2 => CreateDisposition::Create,
        3 => CreateDisposition::OpenIf,
        4 => CreateDisposition::Overwrite,
        5 => CreateDisposition::OverwriteIf,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    })
}

fn caching(level: u8, lease: Option<&LeaseContext>) -> Caching {
    match level {
        1 => Caching::Oplock(CachingState::READ),
        8 => Caching::Oplock(CachingState::RW),
        9 => Caching::Oplock(CachingState::RWH),
        LEASE => {
            let Some(lease) = lease else { return Caching::Nothing };
            let Some(key) = LeaseKey::new(lease.key) else { return Caching::Nothing };
            let version = match lease.v2 {
                None => LeaseVersion::V1,
                Some(v2) => LeaseVersion::V2 { epoch: v2.epoch, parent: v2.parent.and_then(LeaseKey::new) },
            };
            Caching::Lease { key, state: CachingState::from_bits(lease.state), version }
        }
        _ => Caching::Nothing,
    }
}

fn answer(
    contexts: &CreateContexts,
    opened: &Opened,
    file: FileId,
    lease: Option<&LeaseContext>,
    durable: Option<&Durable>,
    is_posix: bool,
) -> Vec<u8> {
    let info = &opened.info;
    let mut list: Vec<(&[u8], Vec<u8>)> = Vec::new();
    let level = match opened.granted {
        Granted::Nothing => 0,
        Granted::Oplock(state) => oplock_level(state),
        Granted::Lease { key, state, is_breaking, version } => {
            let v2 = match version {
                LeaseVersion::V1 => None,
                LeaseVersion::V2 { epoch, parent } => {
                    Some(LeaseV2 { parent: parent.map(LeaseKey::bytes), epoch })
                }
            };
            let flags = if is_breaking { LEASE_BREAKING } else { 0 };
            let granted = LeaseContext { key: key.bytes(), state: state.bits(), flags, v2 };
            if lease.is_some() {
                list.push((b"RqLs", granted.to_bytes()));
            }
            LEASE
        }
    };
    match durable {
        Some(Durable { create_guid: None, .. }) => list.push((b"DHnQ", vec![0; 8])),
        Some(durable) => {
            let mut data = Vec::new();
            data.u32(durable.timeout.as_millis() as u32);
            data.u32(if durable.is_persistent { PERSISTENT } else { 0 });
            list.push((b"DH2Q", data));
        }
        None => {}
    }
    if contexts.maximal_access {
        let mut data = Vec::new();
        data.u32(NtStatus::SUCCESS.0);
        data.u32(opened.maximal.0);
        list.push((b"MxAc", data));
    }
    if contexts.disk_id {
        let mut data = Vec::new();
        data.u64(info.number);
        data.u64(0);
        data.put(&[0; 16]);
        list.push((b"QFid", data));
    }
    if is_posix {
        list.push((&POSIX_GUID, posix_context(info)));
    }
    let contexts = to_bytes(&list);
    let mut body = CreateResponse {
        oplock_level: level,
        flags: 0,
        action: match opened.action {
            CreateAction::Superseded => 0,
            CreateAction::Opened => 1,
            CreateAction::Created => 2,
            CreateAction::Overwritten => 3,
        },
        created: filetime(info.created),
        accessed: filetime(info.accessed),
        written: filetime(info.written),
        changed: filetime(info.changed),
        allocation: info.allocation,
        size: info.size,
        attributes: info.attributes.0,
        reserved: 0,
        file,
        context_offset: if contexts.is_empty() { 0 } else { CONTEXTS_AT },
        context_length: contexts.len() as u32,
    }
    .to_bytes();
    body.put(&contexts);
    if contexts.is_empty() {
        body.u8(0);
    }
    body
}

/// Returns the answer's context of the POSIX extensions: links, reparse tag, mode and owners.
fn posix_context(info: &Info) -> Vec<u8> {
    let mut data = Vec::new();
    data.u32(info.links);
    data.u32(crate::fscc::reparse_tag(info));
    data.u32(info.posix.mode & 0o7777);
    data.put(&posix_sids(info));
    data
}
