//! TREE_CONNECT and TREE_DISCONNECT (MS-SMB2 §3.3.5.7, §3.3.5.8).

use super::call::{BoundRequest, Context, Served};
use crate::accounts::are_same;
use crate::handle::close_all;
use crate::request::{Reply, Request};
use crate::session::Session;
use crate::tree::{TreeKind, root_of};
use crate::wire::bodies::{TreeConnectRequest, TreeConnectResponse};
use crate::wire::{NtStatus, Reader, text_of};
use std::sync::Arc;

/// ShareType.
const DISK: u8 = 1;
const PIPE: u8 = 2;
/// SMB2_SHAREFLAG_ENCRYPT_DATA, SMB2_SHAREFLAG_NO_CACHING, and
/// SMB2_SHAREFLAG_ACCESS_BASED_DIRECTORY_ENUM (MS-SMB2 §2.2.10).
const ENCRYPT_DATA: u32 = 0x8000;
const NO_CACHING: u32 = 0x30;
const ACCESS_BASED_ENUM: u32 = 0x800;
/// SMB2_SHARE_CAP_CONTINUOUS_AVAILABILITY.
const CONTINUOUS_AVAILABILITY: u32 = 0x10;
/// FILE_ALL_ACCESS, and the part of it that only reads.
const ALL_ACCESS: u32 = 0x1f_01ff;
const READ_ACCESS: u32 = 0x12_00a9;

/// Connects to a share.
pub(super) async fn connect(context: &Context, session: &Arc<Session>, request: &Request) -> Served {
    let fixed = TreeConnectRequest::parse(&request.message)?;
    let (at, length) = (usize::from(fixed.path_offset), usize::from(fixed.path_length));
    let path = text_of(Reader::buffer(&request.message, at, length)?)?;
    // \\server\share
    let share = path.rsplit('\\').next().filter(|_| path.starts_with("\\\\")).unwrap_or_default();
    let server = &context.connection.server;
    if are_same(share, "IPC$") {
        let tree = session.connect("IPC$", TreeKind::Pipes)?;
        let body = TreeConnectResponse {
            share_type: PIPE,
            share_flags: NO_CACHING,
            maximal_access: ALL_ACCESS,
            ..TreeConnectResponse::default()
        };
        return Ok(Reply { tree: Some(tree.id), ..Reply::done(body.to_bytes()) });
    }
    let found = server.accounts.shares().into_iter().find(|one| are_same(&one.name, share));
    let found = found.ok_or(NtStatus::BAD_NETWORK_NAME)?;
    if found.encrypt && session.encryption.is_none() {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let root = root_of(&found, &server.store).await;
    let root = root.map_err(|_| NtStatus::BAD_NETWORK_NAME)?;
    let body = TreeConnectResponse {
        share_type: DISK,
        share_flags: if found.encrypt { ENCRYPT_DATA } else { 0 }
            | if found.hide_unreadable { ACCESS_BASED_ENUM } else { 0 },
        capabilities: if found.continuous && context.connection.has_persistent() {
            CONTINUOUS_AVAILABILITY
        } else {
            0
        },
        maximal_access: if found.read_only { READ_ACCESS } else { ALL_ACCESS },
        ..TreeConnectResponse::default()
    };
    let name = found.name.clone();
    let tree = session.connect(&name, TreeKind::Disk { root, share: found })?;
    Ok(Reply { tree: Some(tree.id), ..Reply::done(body.to_bytes()) })
}

/// Ends a tree connect.
pub(super) async fn disconnect(call: &BoundRequest<'_>) -> Served {
    let handles = call.session.disconnect(call.tree.id).ok_or(NtStatus::NETWORK_NAME_DELETED)?;
    close_all(handles).await;
    Ok(Reply::empty())
}
