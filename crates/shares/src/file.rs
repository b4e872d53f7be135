//! A share's file, opened and found to be what its header says.

use std::{fs::File, io};

use namespace::ShareId;
use rustix::{buffer::spare_capacity, io::pread};

use crate::{
    digest::Hasher,
    disk::Disk,
    error::{Damage, DiskError},
    header::{HEADER_BYTES, Header},
    share::file_name,
};

/// Bytes that are hashed at a time: while they are in the processor's cache.
const CHUNK: u32 = 64 << 10;

/// An open file with a sound header and the right length.
#[derive(Debug)]
pub(crate) struct OpenShare {
    file: File,
    pub header: Header,
}

impl OpenShare {
    /// Opens a share's file. The outer error is the disk's.
    pub fn open(disk: &dyn Disk, id: &ShareId) -> Result<Result<OpenShare, Damage>, DiskError> {
        let file = match disk.open(id) {
            Ok(file) => file,
            Err(e) if e.is_absence() => return Ok(Err(Damage::Missing)),
            Err(e) => return Err(e),
        };
        let failed = |e| DiskError::new("reading", file_name(id), e);
        let bytes = match read(&file, 0, HEADER_BYTES) {
            Err(e) if is_lost(&e) => return Ok(Err(Damage::Unreadable)),
            bytes => bytes.map_err(failed)?,
        };
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(e) => return Ok(Err(Damage::Header(e))),
        };
        if header.id != *id {
            return Ok(Err(Damage::Stranger));
        }
        let length = file.metadata().map_err(failed)?.len();
        if length != HEADER_BYTES as u64 + u64::from(header.length) {
            return Ok(Err(Damage::Length));
        }
        Ok(Ok(OpenShare { file, header }))
    }

    /// Bytes of the body, of which the caller knows that there are so many.
    pub fn read(&self, at: u32, length: u32) -> Result<Result<Vec<u8>, Damage>, DiskError> {
        match read(&self.file, HEADER_BYTES as u64 + u64::from(at), length as usize) {
            Ok(bytes) if bytes.len() == length as usize => Ok(Ok(bytes)),
            Ok(_) => Ok(Err(Damage::Length)),
            Err(e) if is_lost(&e) => Ok(Err(Damage::Unreadable)),
            Err(e) => Err(DiskError::new("reading", file_name(&self.header.id), e)),
        }
    }

    /// Reads all of the body and compares its digest.
    pub fn verify(&self) -> Result<Result<(), Damage>, DiskError> {
        let mut hasher = Hasher::default();
        let mut at = 0;
        while at < self.header.length {
            let length = CHUNK.min(self.header.length - at);
            match self.read(at, length)? {
                Ok(bytes) => hasher.update(&bytes),
                Err(damage) => return Ok(Err(damage)),
            };
            at += length;
        }
        Ok(if hasher.finish() == self.header.digest { Ok(()) } else { Err(Damage::Digest) })
    }
}

/// What was written there is not there any more.
fn is_lost(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Up to `length` bytes; fewer only at the end of the file.
fn read(file: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let position = at + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), position) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    // A vector may have been given more room than it asked for.
    bytes.truncate(length);
    Ok(bytes)
}
