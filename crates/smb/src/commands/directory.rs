//! QUERY_DIRECTORY and CHANGE_NOTIFY (MS-SMB2 §3.3.5.18, §3.3.5.19).

use super::call::{BoundRequest, Served};
use crate::fscc::{Entries, EntryLevel};
use crate::handle::Cursor;
use crate::limits::{IO_BYTES_MAX, TRANSACT_BYTES_MAX};
use crate::request::Reply;
use crate::wire::bodies::{ChangeNotifyRequest, QueryDirectoryRequest, buffer_body};
use crate::wire::{NtStatus, Reader, Writer, text_of, utf16};
use objects::{Change, Listing, StoreError};
use std::sync::Arc;

/// Flags of QUERY_DIRECTORY (§2.2.33).
const RESTART: u8 = 0x1;
const SINGLE: u8 = 0x2;
const INDEX: u8 = 0x4;
const REOPEN: u8 = 0x10;
/// SMB2_WATCH_TREE.
const WATCH_TREE: u16 = 1;
/// The shortest entry that there can be: so many are asked for as could fit.
const ENTRY_BYTES_LEAST: usize = 16;
/// FILE_LIST_DIRECTORY.
const LIST: u32 = 1;

pub(super) async fn query(call: &BoundRequest<'_>) -> Served {
    let message = call.message();
    let fixed = QueryDirectoryRequest::parse(message)?;
    if fixed.max_output > TRANSACT_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.has_paid(fixed.max_output)?;
    let level = EntryLevel::of(fixed.class, call.context.connection.has_posix())?;
    let name = Reader::buffer(message, usize::from(fixed.name_offset), usize::from(fixed.name_length))?;
    let name = text_of(name)?;
    let handle = call.handle(fixed.file)?;
    let open = handle.object()?;
    if !open.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if open.access().0 & LIST == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // One query of an open at a time: each goes on where the one before stopped.
    let mut cursor = handle.listing.lock().await;
    if fixed.flags & REOPEN != 0 {
        *cursor = Cursor::default();
    }
    let restarts = fixed.flags & (RESTART | REOPEN) != 0;
    let is_first = cursor.pattern.is_none();
    if is_first || (restarts && !name.is_empty()) {
        cursor.pattern = Some(if name.is_empty() { "*".to_owned() } else { name });
    }
    if restarts || is_first {
        cursor.behind = None;
    }
    if fixed.flags & INDEX != 0 && fixed.index != 0 {
        cursor.behind = Some(u64::from(fixed.index));
    }
    let max = fixed.max_output.min(IO_BYTES_MAX) as usize;
    let limit = if fixed.flags & SINGLE != 0 { 1 } else { (max / ENTRY_BYTES_LEAST).clamp(1, 1024) };
    let mut entries = Entries::new(level, max);
    let mut last = None;
    let (mut count, mut starts) = (0, is_first || restarts || std::mem::take(&mut cursor.restarts));
    loop {
        let listing = Listing {
            pattern: cursor.pattern.clone(),
            restart: starts,
            resume: cursor.behind.take(),
            limit: limit - count,
        };
        let listed = match open.list(listing).await {
            Err(StoreError::NoMoreFiles | StoreError::NoSuchFile) if count > 0 => break,
            listed => listed?,
        };
        starts = false;
        let mut is_full = listed.is_empty();
        for entry in &listed {
            if !entries.push(entry) {
                is_full = true;
                cursor.behind = last;
                cursor.restarts = cursor.behind.is_none();
                break;
            }
            last = Some(entry.index);
            count += 1;
        }
        if is_full || count >= limit {
            break;
        }
    }
    if count == 0 {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    Ok(Reply::done(buffer_body(&entries.finish())))
}

/// Waits until something changes. It is never refused and has no end of its own.
pub(super) async fn notify(call: &BoundRequest<'_>) -> Served {
    let fixed = ChangeNotifyRequest::parse(call.message())?;
    if fixed.max_output > TRANSACT_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.has_paid(fixed.max_output)?;
    let handle = call.handle(fixed.file)?;
    let open = handle.object()?;
    if !open.is_directory() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if open.access().0 & LIST == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // The first request sets what is watched, and how much is kept (MS-FSA §2.1.5.11).
    let watch = {
        let mut watch = handle.watch.lock();
        match &*watch {
            Some(watch) => watch.clone(),
            None => {
                let new = Arc::new(open.watch(
                    fixed.filter,
                    fixed.flags & WATCH_TREE != 0,
                    fixed.max_output as usize,
                )?);
                *watch = Some(new.clone());
                new
            }
        }
    };
    let changes = match watch.changes().await {
        Err(StoreError::Closed) => {
            return Ok(Reply { status: NtStatus::NOTIFY_CLEANUP, ..Reply::done(buffer_body(&[])) });
        }
        changes => changes?,
    };
    let bytes = changes_to_bytes(&changes);
    if changes.is_empty() || bytes.len() > watch.room.min(fixed.max_output as usize) {
        return Ok(Reply { status: NtStatus::NOTIFY_ENUM_DIR, ..Reply::done(buffer_body(&[])) });
    }
    Ok(Reply::done(buffer_body(&bytes)))
}

/// Returns FILE_NOTIFY_INFORMATION (MS-FSCC §2.7.1).
fn changes_to_bytes(changes: &[Change]) -> Vec<u8> {
    let (mut out, mut last) = (Vec::new(), 0);
    for (i, change) in changes.iter().enumerate() {
        out.pad(0, 4);
        let start = out.len();
        if i > 0 {
            out.set_u32(last, (start - last) as u32);
        }
        let name = utf16(&change.path);
        out.u32(0);
        out.u32(change.action);
        out.u32(name.len() as u32);
        out.put(&name);
        last = start;
    }
    out
}
