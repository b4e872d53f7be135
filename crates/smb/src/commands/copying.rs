//! Copies on the server (MS-SMB2 §3.3.5.15.6, MS-FSA §2.1.5.10.4).

use super::call::BoundRequest;
use crate::handle::Handle;
use crate::wire::bodies::FileId;
use crate::wire::{Malformed, NtStatus, Reader, Writer};
use objects::{DosAttributes, Open, StoreError};
use std::sync::Arc;

const READ_DATA: u32 = 0x1;
const EXECUTE: u32 = 0x20;
const WRITE_DATA: u32 = 0x2;
const APPEND_DATA: u32 = 0x4;
/// Limits of a copy in chunks (MS-SMB2 §3.3.3).
const CHUNKS_MAX: u32 = 256;
const CHUNK_BYTES_MAX: u32 = 1 << 20;
const COPY_BYTES_MAX: u32 = 16 << 20;

/// The key by which a copy names its source (§2.2.32.3): the open's number.
pub(super) fn resume_key(handle: &Handle, max: usize) -> Result<Vec<u8>, NtStatus> {
    if max < 32 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut out = Vec::with_capacity(32);
    out.u64(handle.file.persistent);
    out.u64(handle.file.volatile);
    out.put(&[0; 16]);
    Ok(out)
}

/// A piece to copy (§2.2.31.1.1).
struct CopyChunk {
    from: u64,
    to: u64,
    length: u32,
}

fn parse_copy(input: &[u8]) -> Result<(FileId, Vec<CopyChunk>, u32), Malformed> {
    let mut reader = Reader::new(input);
    let file = FileId { persistent: reader.u64()?, volatile: reader.u64()? };
    reader.u64()?;
    let count = reader.u32()?;
    reader.u32()?;
    let mut chunks = Vec::new();
    for _ in 0..count.min(CHUNKS_MAX) {
        let chunk = CopyChunk { from: reader.u64()?, to: reader.u64()?, length: reader.u32()? };
        reader.u32()?;
        chunks.push(chunk);
    }
    Ok((file, chunks, count))
}

/// How far a copy came, or the limits that it does not keep to (§2.2.32.1).
pub(super) struct Copied {
    pub(super) status: NtStatus,
    chunks: u32,
    chunk_bytes: u32,
    bytes: u32,
}

impl Copied {
    pub(super) fn output(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        out.u32(self.chunks);
        out.u32(self.chunk_bytes);
        out.u32(self.bytes);
        out
    }
}

/// Copies chunks. A ChunkCount of 0, which macOS sends, copies nothing.
pub(super) async fn copy(
    call: &BoundRequest<'_>,
    target: &Arc<Open>,
    reads_target: bool,
    input: &[u8],
    max: usize,
) -> Result<Copied, NtStatus> {
    if max < 12 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if target.is_directory() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let (file, chunks, count) = parse_copy(input)?;
    let total = chunks.iter().map(|chunk| u64::from(chunk.length)).sum::<u64>();
    let is_odd = |chunk: &CopyChunk| chunk.length == 0 || chunk.length > CHUNK_BYTES_MAX;
    if count > CHUNKS_MAX || total > u64::from(COPY_BYTES_MAX) || chunks.iter().any(is_odd) {
        let status = NtStatus::INVALID_PARAMETER;
        let (chunks, chunk_bytes, bytes) = (CHUNKS_MAX, CHUNK_BYTES_MAX, COPY_BYTES_MAX);
        return Ok(Copied { status, chunks, chunk_bytes, bytes });
    }
    let source = call.session.opened(file).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let source = source.object()?;
    let lacks = |open: &Open, access| open.access().0 & access == 0;
    if lacks(source, READ_DATA | EXECUTE)
        || lacks(target, WRITE_DATA | APPEND_DATA)
        || reads_target && lacks(target, READ_DATA)
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // A client is told how far it came even after a failure.
    let mut copied = Copied { status: NtStatus::SUCCESS, chunks: 0, chunk_bytes: 0, bytes: 0 };
    for chunk in &chunks {
        match copy_chunk(source, target, chunk).await {
            Ok(()) => (copied.chunks, copied.bytes) = (copied.chunks + 1, copied.bytes + chunk.length),
            Err(refused) => {
                copied.status = refused;
                break;
            }
        }
    }
    Ok(copied)
}

async fn copy_chunk(source: &Open, target: &Open, chunk: &CopyChunk) -> Result<(), NtStatus> {
    let parts = match source.read(chunk.from, chunk.length).await {
        Err(StoreError::EndOfFile) => return Err(NtStatus::INVALID_VIEW_SIZE),
        parts => parts?,
    };
    // A source that is shorter is not copied at all.
    if parts.iter().map(|part| part.len() as u64).sum::<u64>() < u64::from(chunk.length) {
        return Err(NtStatus::INVALID_VIEW_SIZE);
    }
    let mut at = chunk.to;
    for part in parts {
        let length = part.len() as u64;
        target.write(at, part, false).await?;
        at += length;
    }
    Ok(())
}

/// Makes a range of a file the same as one of another (FSCTL_DUPLICATE_EXTENTS_TO_FILE, MS-FSCC
/// §2.3.7). The content is copied, so that each file has its own.
pub(super) async fn duplicate(
    call: &BoundRequest<'_>,
    target: &Arc<Open>,
    input: &[u8],
) -> Result<(), NtStatus> {
    let mut reader = Reader::new(input);
    let file = FileId { persistent: reader.u64()?, volatile: reader.u64()? };
    let (from, to, length) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let source = call.session.opened(file).ok_or(NtStatus::INVALID_HANDLE)?;
    let source = source.object()?;
    if source.is_directory() || target.is_directory() {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if source.access().0 & READ_DATA == 0 || target.access().0 & WRITE_DATA == 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let (of_source, of_target) = (source.info().await?, target.info().await?);
    if to.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let is_within = |at: u64, size: u64| at.checked_add(length).is_some_and(|end| end <= size);
    let is_sparse = |attributes: DosAttributes| attributes.has(DosAttributes::SPARSE);
    let overlaps = of_source.number == of_target.number && from.abs_diff(to) < length;
    // A file that may have no holes gets none, and is no longer than before.
    let fits =
        is_sparse(of_target.attributes) || is_within(to, of_target.size) && !is_sparse(of_source.attributes);
    if !is_within(from, of_source.size) || overlaps || !fits {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let mut done = 0;
    while done < length {
        let bytes = (length - done).min(u64::from(CHUNK_BYTES_MAX));
        let chunk = CopyChunk { from: from + done, to: to + done, length: bytes as u32 };
        copy_chunk(source, target, &chunk).await?;
        done += bytes;
    }
    Ok(())
}
