//! QUERY_INFO (MS-SMB2 §3.3.5.20).

use super::call::{BoundRequest, Served};
use crate::fscc::{Information, emit_eas, query_file, query_volume};
use crate::limits::TRANSACT_BYTES_MAX;
use crate::request::Reply;
use crate::tree::TreeKind;
use crate::wire::bodies::{QueryInfoRequest, buffer_body};
use crate::wire::negotiate::Dialect;
use crate::wire::{NtStatus, Writer};
use objects::Open;

/// InfoType.
const FILE: u8 = 1;
const VOLUME: u8 = 2;
const SECURITY: u8 = 3;
/// FileFullEaInformation.
const FULL_EA: u8 = 15;
/// FileNormalizedNameInformation, which is new in SMB 3.1.1.
const NORMALIZED_NAME: u8 = 48;

pub(super) async fn query(call: &BoundRequest<'_>) -> Served {
    let fixed = QueryInfoRequest::parse(call.message())?;
    if fixed.max_output > TRANSACT_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.has_paid(fixed.max_output.max(fixed.input_length))?;
    let handle = call.handle(fixed.file)?;
    let open = handle.object()?;
    let connection = &call.context.connection;
    let has_posix = connection.has_posix();
    let max = fixed.max_output as usize;
    let mut information = match fixed.info_type {
        FILE if fixed.class == FULL_EA => {
            let all = open.eas().await?;
            if all.is_empty() {
                return Err(NtStatus::NO_EAS_ON_FILE);
            }
            let bytes = emit_eas(&all);
            if bytes.len() > max {
                return Err(NtStatus::BUFFER_TOO_SMALL);
            }
            Information { bytes, least: 0 }
        }
        FILE if fixed.class == NORMALIZED_NAME && connection.dialect() < Dialect::V3_1_1 => {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        FILE => query_file(fixed.class, &handle, open, has_posix).await?,
        VOLUME => {
            let TreeKind::Disk { root, share } = &call.tree.kind else {
                return Err(NtStatus::INVALID_DEVICE_REQUEST);
            };
            let server = &connection.server;
            query_volume(fixed.class, &server.store, &share.name, root.read_only, &server.guid, has_posix)
                .await?
        }
        SECURITY => return security(open, fixed.additional, max).await,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    };
    let status = information.cut(max)?;
    Ok(Reply { status, ..Reply::done(buffer_body(&information.bytes)) })
}

async fn security(open: &Open, parts: u32, max: usize) -> Served {
    let bytes = open.security(parts).await?.to_bytes(parts);
    if bytes.len() > max {
        // The error data is the size that is needed (§2.2.2).
        let mut body = Vec::new();
        body.u16(9);
        body.u16(0);
        body.u32(4);
        body.u32(bytes.len() as u32);
        return Ok(Reply { status: NtStatus::BUFFER_TOO_SMALL, ..Reply::done(body) });
    }
    Ok(Reply::done(buffer_body(&bytes)))
}
