//! A share's file, opened and found to be what its header says.

use std::io;

use namespace::ShareId;

use crate::{
    backend::{Backend, Opened, ReadAt},
    digest::Hasher,
    error::{Damage, DiskError},
    header::{HEADER_BYTES, Header},
    share::file_name,
};

/// An open file with a sound header and the right length.
#[derive(Debug)]
pub(crate) struct OpenShare {
    bytes: Box<dyn ReadAt>,
    pub header: Header,
}

impl OpenShare {
    /// Opens a share's file. The outer error is the backend's.
    pub fn open(backend: &dyn Backend, id: &ShareId) -> Result<Result<OpenShare, Damage>, DiskError> {
        OpenShare::parse(id, backend.open(id))
    }

    /// Opens many, and answers in their order.
    pub fn open_many(
        backend: &dyn Backend,
        ids: &[ShareId],
    ) -> impl Iterator<Item = Result<Result<OpenShare, Damage>, DiskError>> {
        ids.iter().zip(backend.open_many(ids)).map(|(id, opened)| OpenShare::parse(id, opened))
    }

    fn parse(
        id: &ShareId,
        opened: Result<Opened, DiskError>,
    ) -> Result<Result<OpenShare, Damage>, DiskError> {
        let Opened { head, length, bytes } = match opened {
            Ok(opened) => opened,
            Err(e) if e.is_absence() => return Ok(Err(Damage::Missing)),
            Err(e) if is_lost(&e.cause) => return Ok(Err(Damage::Unreadable)),
            Err(e) => return Err(e),
        };
        let header = match Header::parse(&head) {
            Ok(header) => header,
            Err(e) => return Ok(Err(Damage::Header(e))),
        };
        if header.id != *id {
            return Ok(Err(Damage::Stranger));
        }
        if length != HEADER_BYTES as u64 + u64::from(header.length) {
            return Ok(Err(Damage::Length));
        }
        Ok(Ok(OpenShare { bytes, header }))
    }

    /// Bytes of the body, of which the caller knows that there are so many.
    pub fn read(&self, at: u32, length: u32) -> Result<Result<Vec<u8>, Damage>, DiskError> {
        match self.bytes.read_at(HEADER_BYTES as u64 + u64::from(at), length as usize) {
            Ok(bytes) if bytes.len() == length as usize => Ok(Ok(bytes)),
            Ok(_) => Ok(Err(Damage::Length)),
            Err(e) if is_lost(&e) => Ok(Err(Damage::Unreadable)),
            // A file that is open stays there; an object does not.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Err(Damage::Missing)),
            Err(e) => Err(DiskError::new("reading", file_name(&self.header.id), e)),
        }
    }

    /// Reads all of the body and compares its digest.
    pub fn verify(&self) -> Result<Result<(), Damage>, DiskError> {
        let stride = self.bytes.stride().max(1);
        let mut hasher = Hasher::default();
        let mut at = 0;
        while at < self.header.length {
            let length = stride.min(self.header.length - at);
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
