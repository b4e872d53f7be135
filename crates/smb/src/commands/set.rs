//! SET_INFO (MS-SMB2 §3.3.5.21).

use super::call::{BoundRequest, Served};
use crate::fscc::full_eas;
use crate::handle::Handle;
use crate::limits::IO_BYTES_MAX;
use crate::request::Reply;
use crate::time::timestamp;
use crate::wire::bodies::{SetInfoRequest, SetInfoResponse};
use crate::wire::{NtStatus, Reader, units};
use objects::{
    BasicChange, Deletion, DosAttributes, ObjectPath, Open, SecurityDescriptor, Target, TimeChange,
};

/// InfoType.
const FILE: u8 = 1;
const VOLUME: u8 = 2;
const SECURITY: u8 = 3;
/// Rights (MS-SMB2 §2.2.13.1).
const WRITE_DATA: u32 = 0x2;
const WRITE_EA: u32 = 0x10;
const WRITE_ATTRIBUTES: u32 = 0x100;

/// FileRenameInformation, FileLinkInformation and their extended forms (MS-FSCC §2.4).
const NAMES: [u8; 4] = [10, 11, 65, 72];

/// FileModeInformation: what may be set of CreateOptions (MS-FSCC §2.4.31).
const MODES: u32 = 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x1000;

pub(super) async fn set(call: &BoundRequest<'_>) -> Served {
    let message = call.message();
    let fixed = SetInfoRequest::parse(message)?;
    if fixed.length > IO_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    call.has_paid(fixed.length)?;
    let buffer = Reader::buffer(message, usize::from(fixed.offset), fixed.length as usize)?;
    let handle = call.handle(fixed.file)?;
    let open = handle.object()?;
    let is_posix = call.context.connection.has_posix();
    match fixed.info_type {
        FILE => {
            if NAMES.contains(&fixed.class) {
                // Names are the directories', where the open has no rights.
                call.session.cred()?;
            }
            set_file(fixed.class, &handle, open, buffer, is_posix).await?;
        }
        SECURITY => set_security(open, fixed.additional, buffer).await?,
        VOLUME => return Err(NtStatus::NOT_SUPPORTED),
        _ => return Err(NtStatus::INVALID_PARAMETER),
    }
    Ok(Reply::done(SetInfoResponse::default().to_bytes()))
}

fn needs(open: &Open, rights: u32) -> Result<(), NtStatus> {
    if open.access().0 & rights == 0 { Err(NtStatus::ACCESS_DENIED) } else { Ok(()) }
}

async fn set_file(
    class: u8,
    handle: &Handle,
    open: &Open,
    buffer: &[u8],
    is_posix: bool,
) -> Result<(), NtStatus> {
    let short = |_| NtStatus::INFO_LENGTH_MISMATCH;
    let mut reader = Reader::new(buffer);
    let mut number = || reader.u64().map_err(short);
    match class {
        4 => {
            needs(open, WRITE_ATTRIBUTES)?;
            open.set_basic(basic(buffer)?).await?;
        }
        10 | 65 => {
            let target = target(class == 65, buffer, is_posix)?;
            open.rename(target).await?;
        }
        11 => open.link(target(false, buffer, is_posix)?).await?,
        13 => {
            let delete = *buffer.first().ok_or(NtStatus::INFO_LENGTH_MISMATCH)? != 0;
            open.set_deletion(Deletion { delete, ..Deletion::default() }).await?;
        }
        64 => {
            let flags = Reader::new(buffer).u32().map_err(short)?;
            let deletion = Deletion {
                delete: flags & 1 != 0,
                posix: flags & 2 != 0,
                ignore_read_only: flags & 0x10 != 0,
            };
            open.set_deletion(deletion).await?;
        }
        14 => *handle.position.lock() = number()?,
        15 => {
            needs(open, WRITE_EA)?;
            for (name, value) in full_eas(buffer)? {
                open.set_ea(&name, &value).await?;
            }
        }
        16 => {
            let mode = Reader::new(buffer).u32().map_err(short)?;
            if mode & !MODES != 0 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            *handle.mode.lock() = mode;
        }
        19 => {
            needs(open, WRITE_DATA)?;
            open.set_allocation(size(number()?)?).await?;
        }
        20 => {
            needs(open, WRITE_DATA)?;
            open.set_end(size(number()?)?).await?;
        }
        // FileValidDataLengthInformation: all data is valid.
        39 => needs(open, WRITE_DATA)?,
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    Ok(())
}

fn size(size: u64) -> Result<u64, NtStatus> {
    if size > i64::MAX as u64 { Err(NtStatus::INVALID_PARAMETER) } else { Ok(size) }
}

/// Parses FileBasicInformation (MS-FSCC §2.4.7). 0 leaves a time, -1 and -2 freeze and thaw it.
fn basic(buffer: &[u8]) -> Result<BasicChange, NtStatus> {
    let mut reader = Reader::new(buffer);
    let short = |_| NtStatus::INFO_LENGTH_MISMATCH;
    let mut time = || {
        Ok(match reader.u64().map_err(short)? as i64 {
            0 => None,
            -1 => Some(TimeChange::Freeze),
            -2 => Some(TimeChange::Thaw),
            time if time < 0 => return Err(NtStatus::INVALID_PARAMETER),
            time => Some(TimeChange::At(timestamp(time as u64))),
        })
    };
    let (created, accessed, written, changed) = (time()?, time()?, time()?, time()?);
    let attributes = reader.u32().map_err(short)?;
    reader.u32().map_err(short)?;
    Ok(BasicChange {
        created,
        accessed,
        written,
        changed,
        attributes: (attributes != 0).then_some(DosAttributes(attributes)),
        ..BasicChange::default()
    })
}

/// Parses FileRenameInformation, FileRenameInformationEx or FileLinkInformation (MS-FSCC §2.4.42,
/// §2.4.43, §2.4.28), in the form of SMB 2.
fn target(is_extended: bool, buffer: &[u8], is_posix: bool) -> Result<Target, NtStatus> {
    let short = |_| NtStatus::INFO_LENGTH_MISMATCH;
    let mut reader = Reader::new(buffer);
    let flags = if is_extended {
        let flags = reader.u32().map_err(short)?;
        reader.u32().map_err(short)?;
        flags
    } else {
        let replace = u32::from(reader.u8().map_err(short)? != 0);
        reader.take(7).map_err(short)?;
        replace
    };
    if reader.u64().map_err(short)? != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let length = reader.u32().map_err(short)? as usize;
    let name = units(reader.take(length).map_err(short)?)?;
    if name.is_empty() {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    Ok(Target {
        path: ObjectPath::from_utf16(&name, is_posix)?,
        replace: flags & 1 != 0,
        posix: flags & 2 != 0,
        ignore_read_only: flags & 0x40 != 0,
    })
}

async fn set_security(open: &Open, parts: u32, buffer: &[u8]) -> Result<(), NtStatus> {
    Ok(open.set_security(parts, SecurityDescriptor::parse(buffer)?).await?)
}
