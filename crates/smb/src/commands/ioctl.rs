//! IOCTL (MS-SMB2 §3.3.5.15).

use super::call::BoundRequest;
use super::copying::{copy, duplicate, resume_key};
use super::interfaces::interfaces;
use super::reparse;
use crate::connection::Ends;
use crate::durable::Durable;
use crate::handle::HandleKind;
use crate::limits::{IO_BYTES_MAX, TRANSACT_BYTES_MAX};
use crate::request::Reply;
use crate::wire::bodies::{FileId, IoctlRequest, IoctlResponse};
use crate::wire::{HEADER_BYTES, Malformed, NtStatus, Reader, Writer};
use objects::{ByteRange, Open, StoreError};

/// Control codes (MS-FSCC §2.3, MS-SMB2 §2.2.31).
mod code {
    pub const DFS_GET_REFERRALS: u32 = 0x0006_0194;
    pub const DFS_GET_REFERRALS_EX: u32 = 0x0006_01b0;
    pub const GET_COMPRESSION: u32 = 0x0009_003c;
    pub const SET_COMPRESSION: u32 = 0x0009_c040;
    pub const SET_SPARSE: u32 = 0x0009_00c4;
    pub const CREATE_OR_GET_OBJECT_ID: u32 = 0x0009_00c0;
    pub const SET_REPARSE_POINT: u32 = 0x0009_00a4;
    pub const GET_REPARSE_POINT: u32 = 0x0009_00a8;
    pub const QUERY_ALLOCATED_RANGES: u32 = 0x0009_40cf;
    pub const DUPLICATE_EXTENTS_TO_FILE: u32 = 0x0009_8344;
    pub const SET_ZERO_DATA: u32 = 0x0009_80c8;
    pub const FILE_LEVEL_TRIM: u32 = 0x0009_8208;
    pub const LMR_REQUEST_RESILIENCY: u32 = 0x0014_01d4;
    pub const PIPE_TRANSCEIVE: u32 = 0x0011_c017;
    pub const REQUEST_RESUME_KEY: u32 = 0x0014_0078;
    pub const QUERY_NETWORK_INTERFACE_INFO: u32 = 0x0014_01fc;
    pub const VALIDATE_NEGOTIATE_INFO: u32 = 0x0014_0204;
    pub const ENUMERATE_SNAPSHOTS: u32 = 0x0014_4064;
    pub const COPYCHUNK: u32 = 0x0014_40f2;
    pub const COPYCHUNK_WRITE: u32 = 0x0014_80f2;
}

/// SMB2_0_IOCTL_IS_FSCTL.
const IS_FSCTL: u32 = 1;
/// A failure of an IOCTL.
pub(super) enum IoctlError {
    Status(NtStatus),
    /// Somebody is between client and server.
    Ends(Ends),
}

impl From<NtStatus> for IoctlError {
    fn from(status: NtStatus) -> IoctlError {
        IoctlError::Status(status)
    }
}

impl From<Malformed> for IoctlError {
    fn from(malformed: Malformed) -> IoctlError {
        IoctlError::Status(malformed.into())
    }
}

impl From<StoreError> for IoctlError {
    fn from(error: StoreError) -> IoctlError {
        IoctlError::Status(error.into())
    }
}

pub(super) async fn ioctl(call: &BoundRequest<'_>) -> Result<Reply, IoctlError> {
    let message = call.message();
    let fixed = IoctlRequest::parse(message)?;
    if fixed.flags != IS_FSCTL {
        return Err(NtStatus::NOT_SUPPORTED.into());
    }
    if fixed.max_output > TRANSACT_BYTES_MAX || fixed.input_count > IO_BYTES_MAX {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    call.has_paid(fixed.max_output.max(fixed.input_count))?;
    let input = Reader::buffer(message, fixed.input_offset as usize, fixed.input_count as usize)?;
    let max = fixed.max_output.min(IO_BYTES_MAX) as usize;
    // These are of no file.
    match fixed.code {
        code::VALIDATE_NEGOTIATE_INFO => {
            let connection = &call.context.connection;
            let output = connection.validate_negotiation(input, fixed.max_output);
            let output = output.map_err(IoctlError::Ends)?;
            return Ok(answer(&fixed, NtStatus::SUCCESS, &output));
        }
        code::QUERY_NETWORK_INTERFACE_INFO => {
            let connection = &call.context.connection;
            if fixed.file != FileId::RELATED {
                // It is of no file (§3.3.5.15.11).
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
            let reached = connection.reached.filter(|_| connection.dialect().is_3());
            let output = interfaces(reached.ok_or(NtStatus::NOT_SUPPORTED)?);
            if output.len() > max {
                return Err(NtStatus::BUFFER_TOO_SMALL.into());
            }
            return Ok(answer(&fixed, NtStatus::SUCCESS, &output));
        }
        code::DFS_GET_REFERRALS | code::DFS_GET_REFERRALS_EX => return Err(NtStatus::NOT_FOUND.into()),
        _ => {}
    }
    let handle = call.handle(fixed.file)?;
    let open = match (&handle.kind, fixed.code) {
        (HandleKind::Pipe(pipe), code::PIPE_TRANSCEIVE) => {
            let mut pipe = pipe.lock();
            pipe.write(input, &call.context.connection.server.accounts)?;
            let (output, is_whole) = pipe.transceive(max)?;
            let status = if is_whole { NtStatus::SUCCESS } else { NtStatus::BUFFER_OVERFLOW };
            return Ok(answer(&fixed, status, &output));
        }
        (HandleKind::Pipe(_), _) => return Err(NtStatus::INVALID_DEVICE_REQUEST.into()),
        (HandleKind::Object(open), _) => open,
    };
    let output = match fixed.code {
        code::ENUMERATE_SNAPSHOTS => {
            if max < 16 {
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
            vec![0; 16]
        }
        code::REQUEST_RESUME_KEY => resume_key(&handle, max)?,
        code::COPYCHUNK | code::COPYCHUNK_WRITE => {
            let reads_target = fixed.code == code::COPYCHUNK;
            let copied = copy(call, open, reads_target, input, max).await?;
            return Ok(answer(&fixed, copied.status, &copied.output()));
        }
        code::DUPLICATE_EXTENTS_TO_FILE => {
            duplicate(call, open, input).await?;
            Vec::new()
        }
        code::SET_SPARSE => {
            // No input stands for true.
            open.set_sparse(input.first() != Some(&0)).await?;
            Vec::new()
        }
        code::SET_ZERO_DATA => {
            let mut reader = Reader::new(input);
            let (from, to) = (reader.u64()?, reader.u64()?);
            if from > to || to > i64::MAX as u64 {
                return Err(NtStatus::INVALID_PARAMETER.into());
            }
            open.zero(from, to).await?;
            Vec::new()
        }
        code::FILE_LEVEL_TRIM => trim(open, input, max).await?,
        code::LMR_REQUEST_RESILIENCY => {
            let mut durable = handle.durable.lock();
            *durable = Some(Durable::resilient(input, &call.session.user, durable.as_ref())?);
            Vec::new()
        }
        code::QUERY_ALLOCATED_RANGES => return allocated(&fixed, open, input, max).await,
        code::SET_REPARSE_POINT => reparse::set(call, &handle, input).await?,
        code::GET_REPARSE_POINT => reparse::get(&handle).await?,
        code::GET_COMPRESSION => vec![0; 2],
        // COMPRESSION_FORMAT_NONE is what every file has.
        code::SET_COMPRESSION if Reader::new(input).u16()? == 0 => Vec::new(),
        code::SET_COMPRESSION => return Err(NtStatus::NOT_SUPPORTED.into()),
        code::CREATE_OR_GET_OBJECT_ID => {
            let mut output = open.info().await?.number.to_le_bytes().to_vec();
            output.resize(64, 0);
            output
        }
        _ => return Err(NtStatus::INVALID_DEVICE_REQUEST.into()),
    };
    if output.len() > max {
        return Err(NtStatus::BUFFER_TOO_SMALL.into());
    }
    Ok(answer(&fixed, NtStatus::SUCCESS, &output))
}

fn answer(fixed: &IoctlRequest, status: NtStatus, output: &[u8]) -> Reply {
    let at = HEADER_BYTES as u32 + 48;
    let response = IoctlResponse {
        code: fixed.code,
        file: fixed.file,
        input_offset: at,
        output_offset: at,
        output_count: output.len() as u32,
        ..IoctlResponse::default()
    };
    let mut body = response.to_bytes();
    body.put(output);
    if output.is_empty() {
        body.u8(0);
    }
    Reply { status, ..Reply::done(body) }
}

/// Forgets ranges that the client needs no more (MS-FSCC §2.3.73): they read as zeros. Returns how
/// many, if the client has room for that.
async fn trim(open: &Open, input: &[u8], max: usize) -> Result<Vec<u8>, IoctlError> {
    let mut reader = Reader::new(input);
    let (_key, count) = (reader.u32()?, reader.u32()?);
    for _ in 0..count {
        let (offset, length) = (reader.u64()?, reader.u64()?);
        open.zero(offset, offset.checked_add(length).ok_or(NtStatus::INVALID_PARAMETER)?).await?;
    }
    Ok(if max < 4 { Vec::new() } else { count.to_le_bytes().to_vec() })
}

async fn allocated(fixed: &IoctlRequest, open: &Open, input: &[u8], max: usize) -> Result<Reply, IoctlError> {
    let mut reader = Reader::new(input);
    let range = ByteRange { offset: reader.u64()?, length: reader.u64()? };
    if range.offset.checked_add(range.length).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER.into());
    }
    let limit = max / 16;
    let ranges = open.allocated(range, limit).await?;
    if limit == 0 && !ranges.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL.into());
    }
    let mut output = Vec::new();
    for range in ranges.iter().take(limit) {
        output.u64(range.offset);
        output.u64(range.length);
    }
    let status = if ranges.len() > limit { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS };
    Ok(answer(fixed, status, &output))
}
