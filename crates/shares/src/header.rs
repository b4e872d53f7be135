//! The header of a share file. It identifies the file without a database (discovery, fsck), and
//! shows a torn or foreign one.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | magic |
//! | 8..12 | version of the format, 1 |
//! | 12..16 | share number: 0 for copies |
//! | 16..32 | share id |
//! | 32..40 | length of the body |
//! | 40..56 | XXH3-128 of the body |
//! | 56..96 | zeros |
//! | 96..128 | BLAKE3 of bytes 0..96 |
//!
//! Integers are little-endian. The body follows and ends the file.

use namespace::ShareId;
use thiserror::Error;

use crate::digest::Digest;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 128;
const MAGIC: [u8; 8] = *b"lh-share";
const VERSION: u32 = 1;
const CHECKED_BYTES: usize = 96;

/// The header of a share file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShareHeader {
    pub id: ShareId,
    pub length: u32,
    pub digest: Digest,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    #[error("the file is shorter than a header")]
    Short,
    /// Not a share file.
    #[error("the file does not begin as a share file does")]
    Magic,
    /// Flipped or torn bytes.
    #[error("the header's checksum is wrong")]
    Checksum,
    /// A later format.
    #[error("the header is of format version {0}, which this program does not know")]
    Version(u32),
    /// The checksum is sound, but this version never writes such values.
    #[error("the header holds values that are not allowed")]
    Value,
}

impl ShareHeader {
    /// The first bytes of the file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id.0);
        bytes[32..40].copy_from_slice(&u64::from(self.length).to_le_bytes());
        bytes[40..56].copy_from_slice(&self.digest);
        let checksum = crypto::hash(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(checksum.as_bytes());
        bytes
    }

    /// Parses the first bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<ShareHeader, HeaderError> {
        let (bytes, _) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Short)?;
        if field::<8>(bytes, 0) != MAGIC {
            return Err(HeaderError::Magic);
        }
        if crypto::hash(&bytes[..CHECKED_BYTES]) != field::<32>(bytes, CHECKED_BYTES) {
            return Err(HeaderError::Checksum);
        }
        let version = u32::from_le_bytes(field(bytes, 8));
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let length = u32::try_from(u64::from_le_bytes(field(bytes, 32))).map_err(|_| HeaderError::Value)?;
        let header = ShareHeader { id: ShareId(field(bytes, 16)), length, digest: field(bytes, 40) };
        if header.encode() != *bytes { Err(HeaderError::Value) } else { Ok(header) }
    }
}

/// `N` bytes from `at` on, which lie within a header.
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> ShareHeader {
        ShareHeader { id: ShareId([7; 16]), length: 4096, digest: [9; 16] }
    }

    #[test]
    fn this_format_stays_readable() {
        let bytes = header().encode();
        assert_eq!(&bytes[..16], b"lh-share\x01\0\0\0\0\0\0\0");
        assert_eq!(crypto::hash(&bytes).to_hex().as_str(), GOLDEN);
        assert_eq!(ShareHeader::parse(&bytes), Ok(header()));
    }
    const GOLDEN: &str = "dcda1cd9c5e44a25504741d8b59832f1024619b94d4224d26976bdf3729a3af0";

    #[test]
    fn a_later_version_is_told_from_damage() {
        let mut bytes = header().encode();
        bytes[8] = 2;
        assert_eq!(ShareHeader::parse(&bytes), Err(HeaderError::Checksum));
        let checksum = crypto::hash(&bytes[..CHECKED_BYTES]);
        bytes[CHECKED_BYTES..].copy_from_slice(checksum.as_bytes());
        assert_eq!(ShareHeader::parse(&bytes), Err(HeaderError::Version(2)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_header_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(ShareHeader::parse(&bytes).is_err());
        }

        #[test]
        fn resealed_bytes_parse_only_to_what_encodes_to_them(
            position in 0..CHECKED_BYTES, value: u8, id: [u8; 16], length: u32, digest: [u8; 16],
        ) {
            let mut bytes = ShareHeader { id: ShareId(id), length, digest }.encode();
            bytes[position] = value;
            let checksum = crypto::hash(&bytes[..CHECKED_BYTES]);
            bytes[CHECKED_BYTES..].copy_from_slice(checksum.as_bytes());
            if let Ok(header) = ShareHeader::parse(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn one_flipped_bit_is_seen(bit in 0..HEADER_BYTES * 8) {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ShareHeader::parse(&bytes).is_err());
        }
    }
}
