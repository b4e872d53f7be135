//! CLOSE, FLUSH, READ, WRITE and LOCK (MS-SMB2 §3.3.5.10 to §3.3.5.14).

use super::call::{BoundRequest, Served};
use crate::handle::HandleKind;
use crate::limits::IO_BYTES_MAX;
use crate::request::Reply;
use crate::time::{filetime, now};
use crate::wire::bodies::{
    CloseResponse, FileRequest, LockElement, LockRequest, ReadRequest, ReadResponse, WriteRequest,
    WriteResponse,
};
use crate::wire::{HEADER_BYTES, NtStatus, Reader, Writer};
use bytes::Bytes;
use objects::{ByteRange, Open};

/// SMB2_CLOSE_FLAG_POSTQUERY_ATTRIB.
const POSTQUERY: u16 = 1;
/// SMB2_WRITEFLAG_WRITE_THROUGH.
const WRITE_THROUGH: u32 = 1;
/// The most locks of a request.
const LOCKS_MAX: u16 = 64;

pub(super) async fn close(call: &BoundRequest<'_>) -> Served {
    let fixed = FileRequest::parse(call.message())?;
    let handle = call.handle(fixed.file)?;
    call.session.remove(handle.file).ok_or(NtStatus::FILE_CLOSED)?;
    handle.closing.notify_waiters();
    let mut answer = CloseResponse::default();
    if let HandleKind::Object(open) = &handle.kind {
        let info = open.close(fixed.flags & POSTQUERY != 0).await;
        handle.forget().await;
        let info = info?;
        if let Some(info) = info.filter(|_| fixed.flags & POSTQUERY != 0) {
            answer = CloseResponse {
                flags: POSTQUERY,
                reserved: 0,
                created: filetime(info.created),
                accessed: filetime(info.accessed),
                written: filetime(info.written),
                changed: filetime(info.changed),
                allocation: info.allocation,
                size: info.size,
                attributes: info.attributes.0,
            };
        }
    }
    Ok(Reply::done(answer.to_bytes()))
}

pub(super) async fn flush(call: &BoundRequest<'_>) -> Served {
    let fixed = FileRequest::parse(call.message())?;
    let handle = call.handle(fixed.file)?;
    if let HandleKind::Object(open) = &handle.kind {
        open.flush().await?;
    }
    Ok(Reply::empty())
}

pub(super) async fn read(call: &BoundRequest<'_>) -> Served {
    let fixed = ReadRequest::parse(call.message())?;
    if fixed.length > IO_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.has_paid(fixed.length)?;
    let handle = call.handle(fixed.file)?;
    let parts = match &handle.kind {
        HandleKind::Pipe(pipe) => vec![Bytes::from(pipe.lock().read(fixed.length as usize)?)],
        HandleKind::Object(open) if open.is_directory() => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        HandleKind::Object(open) => {
            if fixed.offset.checked_add(u64::from(fixed.length)).is_none_or(|end| end > i64::MAX as u64) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            open.read(fixed.offset, fixed.length).await?
        }
    };
    let length = parts.iter().map(Bytes::len).sum::<usize>();
    *handle.position.lock() = fixed.offset.saturating_add(length as u64);
    if length < fixed.minimum as usize {
        return Err(NtStatus::END_OF_FILE);
    }
    let answer = ReadResponse {
        data_offset: HEADER_BYTES as u8 + 16,
        length: length as u32,
        ..ReadResponse::default()
    };
    let mut body = answer.to_bytes();
    if length == 0 {
        body.u8(0);
    }
    Ok(Reply { content: parts, ..Reply::done(body) })
}

pub(super) async fn write(call: &BoundRequest<'_>) -> Served {
    let message = call.message();
    let fixed = WriteRequest::parse(message)?;
    if fixed.length > IO_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.has_paid(fixed.length)?;
    let data = Reader::buffer(message, usize::from(fixed.data_offset), fixed.length as usize)?;
    let handle = call.handle(fixed.file)?;
    let count = match &handle.kind {
        HandleKind::Pipe(pipe) => {
            pipe.lock().write(data, &call.context.connection.server.accounts)?;
            data.len() as u32
        }
        HandleKind::Object(open) if open.is_directory() => return Err(NtStatus::INVALID_DEVICE_REQUEST),
        HandleKind::Object(open) => {
            let end = fixed.offset.checked_add(u64::from(fixed.length));
            if end.is_none_or(|end| end > i64::MAX as u64) {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            let through = fixed.flags & WRITE_THROUGH != 0;
            open.write(fixed.offset, call.request.message.slice_ref(data), through).await?
        }
    };
    let mut body = WriteResponse { count, ..WriteResponse::default() }.to_bytes();
    body.u8(0);
    Ok(Reply::done(body))
}

/// Locks or unlocks ranges. The first element says which; all are one or the other.
pub(super) async fn lock(call: &BoundRequest<'_>) -> Served {
    let message = call.message();
    let fixed = LockRequest::parse(message)?;
    if fixed.count == 0 || fixed.count > LOCKS_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let locks = LockElement::parse_all(message, fixed.count)?;
    let handle = call.handle(fixed.file)?;
    let open = handle.object()?;
    // A request that is sent again is answered again (§3.3.5.14).
    let (number, bucket) = ((fixed.sequence & 15) as u8, (fixed.sequence >> 4) as usize);
    let place = (1..=64).contains(&bucket).then(|| bucket - 1);
    if let Some(place) = place {
        let mut sequences = handle.lock_sequences.lock();
        if sequences[place] == Some(number) {
            return Ok(Reply::empty());
        }
        sequences[place] = None;
    }
    if locks[0].flags == LockElement::UNLOCK {
        unlock(open, &locks).await?;
    } else if call.session.has_expired(now()) {
        return Err(NtStatus::NETWORK_SESSION_EXPIRED);
    } else {
        tokio::select! {
            biased;
            taken = take_locks(open, &locks) => taken?,
            () = handle.closing.notified() => return Err(NtStatus::RANGE_NOT_LOCKED),
        }
    }
    if let Some(place) = place {
        handle.lock_sequences.lock()[place] = Some(number);
    }
    Ok(Reply::empty())
}

fn range(lock: &LockElement) -> ByteRange {
    ByteRange { offset: lock.offset, length: lock.length }
}

async fn unlock(open: &Open, locks: &[LockElement]) -> Result<(), NtStatus> {
    for lock in locks {
        if lock.flags != LockElement::UNLOCK {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        open.unlock(range(lock)).await?;
    }
    Ok(())
}

/// Takes all locks, or none.
async fn take_locks(open: &Open, locks: &[LockElement]) -> Result<(), NtStatus> {
    let mut taken = Vec::new();
    for lock in locks {
        let locked = match lock.flags & !LockElement::AT_ONCE {
            _ if locks.len() > 1 && lock.flags & LockElement::AT_ONCE == 0 => {
                Err(NtStatus::INVALID_PARAMETER)
            }
            LockElement::SHARED | LockElement::EXCLUSIVE => {
                let exclusive = lock.flags & LockElement::EXCLUSIVE != 0;
                let waits = lock.flags & LockElement::AT_ONCE == 0;
                open.lock(range(lock), exclusive, waits).await.map_err(NtStatus::from)
            }
            _ => Err(NtStatus::INVALID_PARAMETER),
        };
        match locked {
            Ok(()) => taken.push(range(lock)),
            Err(status) => {
                for range in taken {
                    open.unlock(range).await?;
                }
                return Err(status);
            }
        }
    }
    Ok(())
}
