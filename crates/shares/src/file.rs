//! An open share file, checked against its header.

use std::io;

use namespace::ShareId;

use crate::{
    backend::{Backend, OpenedShare, ReadAt},
    digest::Hasher,
    error::{Damage, DiskError},
    header::{HEADER_BYTES, ShareHeader},
    share::file_name,
};

/// An open file with a sound header and the right length.
#[derive(Debug)]
pub(crate) struct OpenShare {
    bytes: Box<dyn ReadAt>,
    pub header: ShareHeader,
}

impl OpenShare {
    /// Opens a share's file. The outer error is the backend's.
    pub fn open(backend: &dyn Backend, id: &ShareId) -> Result<Result<OpenShare, Damage>, DiskError> {
        OpenShare::parse(id, backend.open(id))
    }

    /// Opens many files and answers in their order.
    pub fn open_many(
        backend: &dyn Backend,
        ids: &[ShareId],
    ) -> impl Iterator<Item = Result<Result<OpenShare, Damage>, DiskError>> {
        ids.iter().zip(backend.open_many(ids)).map(|(id, opened)| OpenShare::parse(id, opened))
    }

    fn parse(
        id: &ShareId,
        opened: Result<OpenedShare, DiskError>,
    ) -> Result<Result<OpenShare, Damage>, DiskError> {
        let OpenedShare { head, length, bytes } = match opened {
            Ok(opened) => opened,
            Err(e) => return damage_of(e).map(Err),
        };
        Ok(header(id, &head, length).map(|header| OpenShare { bytes, header }))
    }

    /// Reads bytes of the body. The caller knows that the body has them.
    pub fn read(&self, at: u32, length: u32) -> Result<Result<Vec<u8>, Damage>, DiskError> {
        match self.bytes.read_at(HEADER_BYTES as u64 + u64::from(at), length as usize) {
            Ok(bytes) if bytes.len() == length as usize => Ok(Ok(bytes)),
            Ok(_) => Ok(Err(Damage::Length)),
            Err(e) if is_lost(&e) => Ok(Err(Damage::Unreadable)),
            // An open file stays there; an object does not.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Err(Damage::Missing)),
            Err(e) => Err(DiskError::new("reading", file_name(&self.header.id), e)),
        }
    }
}

/// Reads all of a share's file as it is stored and compares its body with the digest in its header.
/// Returns the header.
pub(crate) fn verify(backend: &dyn Backend, id: &ShareId) -> Result<Result<ShareHeader, Damage>, DiskError> {
    let (mut head, mut body, mut length) = (Vec::new(), Hasher::default(), 0);
    let read = backend.read_through(id, &mut |piece| {
        length += piece.len() as u64;
        let (of_head, rest) = piece.split_at(piece.len().min(HEADER_BYTES - head.len()));
        head.extend_from_slice(of_head);
        body.update(rest);
    });
    if let Err(e) = read {
        return damage_of(e).map(Err);
    }
    let same = |header: &ShareHeader| body.finish() == header.digest;
    Ok(header(id, &head, length)
        .and_then(|header| if same(&header) { Ok(header) } else { Err(Damage::Digest) }))
}

/// Parses the header of a file of that length and checks that it is this share's.
fn header(id: &ShareId, head: &[u8], length: u64) -> Result<ShareHeader, Damage> {
    let header = ShareHeader::parse(head).map_err(Damage::Header)?;
    if header.id != *id {
        return Err(Damage::Stranger);
    }
    if length != HEADER_BYTES as u64 + u64::from(header.length) {
        return Err(Damage::Length);
    }
    Ok(header)
}

/// The damage that an error shows. Other errors are the backend's own and are passed on.
fn damage_of(error: DiskError) -> Result<Damage, DiskError> {
    match error {
        e if e.is_absence() => Ok(Damage::Missing),
        e if is_lost(&e.cause) => Ok(Damage::Unreadable),
        e => Err(e),
    }
}

/// Whether the bytes written there are lost.
fn is_lost(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
