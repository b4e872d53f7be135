//! The identifier of a file.

use crate::ServerId;
use crate::code::{self, CodeToken, END_BITS, Malformed};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU8;
use std::sync::Arc;

/// The largest integer of an identifier.
pub const INTEGER_MAX: u64 = (1 << 63) - 1;

/// The longest identifier, in bits, that decoding accepts. It is more than [`FileId::for_child`]
/// ever makes, so that the overflow rule can change and old identifiers stay readable.
pub const BITS_MAX: usize = 1024;

/// The longest identifier, in bits, that [`FileId::for_child`] makes from the parent's.
pub const CHILD_BITS_MAX: usize = 256;

/// The root's integer for overflow. [`FileId::for_child`] puts files there if their directory's
/// identifier is already long, below an integer of their server ([`ServerId::overflow`]). Other
/// children of the root begin at 2.
pub const OVERFLOW: u64 = 1;

/// Bytes of a code that fit without an allocation.
const INLINE_BYTES: usize = 15;

/// A file's identifier: a sequence of integers. It never changes, and is never used again (Farsite
/// §4.1.1). Usually it is the identifier of the directory where the file was created, and one more
/// integer.
///
/// Identifiers sort as their sequences do, parents before their children; the bytes sort the same
/// way. Up to 120 bits need no allocation, and such identifiers are compared and hashed as two
/// words.
#[derive(Clone)]
pub struct FileId(Code);

#[derive(Clone)]
enum Code {
    /// A code of at most 120 bits; `bytes` are zero after it. `bits` is never zero, and that value
    /// marks `Long`, so a [`FileId`] takes 16 bytes.
    Short { bits: NonZeroU8, bytes: [u8; INLINE_BYTES] },
    /// A code that is too long for `Short`, and no other. So equal identifiers are of one variant.
    Long(Arc<Long>),
}

struct Long {
    bits: usize,
    bytes: SmallVec<[u8; CHILD_BITS_MAX / 8]>,
}

impl FileId {
    /// Returns the root: the empty sequence.
    pub const fn root() -> FileId {
        let bits = NonZeroU8::MIN.saturating_add(END_BITS as u8 - 1);
        FileId(Code::Short { bits, bytes: [0; INLINE_BYTES] })
    }

    /// Returns `self` with the integer `n` after it.
    ///
    /// # Panics
    /// When `n` is not in `1..=INTEGER_MAX`, or the code gets longer than [`BITS_MAX`]. Use
    /// [`FileId::for_child`] where the result may not fit.
    pub fn child(&self, n: u64) -> FileId {
        assert!((1..=INTEGER_MAX).contains(&n), "{n} is not an integer of an identifier");
        let bits = self.bit_len() + code::integer_bits(n);
        assert!(bits <= BITS_MAX, "identifier of {bits} bits");
        let mut bytes = [0; BITS_MAX / 8];
        bytes[..self.as_bytes().len()].copy_from_slice(self.as_bytes());
        let end = code::write(&mut bytes, self.bit_len() - END_BITS, n);
        FileId::from_code(&bytes[..end.div_ceil(8)], end)
    }

    /// Returns the identifier of a new file with inode number `ino` in `parent`. It is `parent`
    /// with the integer `n` from the directory's counter. If that would be longer than
    /// [`CHILD_BITS_MAX`], it is ⟨1.s+1.c⟩, where `ino` is the number `c` of the server `s`. So a
    /// directory and a file that is made in it are at one server, however long identifiers get.
    ///
    /// The function is total, because the arguments may be the claim of a message. An `n` out of
    /// range (or [`OVERFLOW`] in the root) gives ⟨1.s+1.c⟩ as well. An `ino` out of range is
    /// clamped. The caller checks whether the numbers were ever given out.
    pub fn for_child(parent: &FileId, n: u64, ino: u64) -> FileId {
        let usable = if *parent == FileId::root() { OVERFLOW + 1..=INTEGER_MAX } else { 1..=INTEGER_MAX };
        if usable.contains(&n) && parent.bit_len() + code::integer_bits(n) <= CHILD_BITS_MAX {
            parent.child(n)
        } else {
            let (server, count) = ServerId::of(ino.clamp(1, INTEGER_MAX));
            server.overflow().child(count.max(1))
        }
    }

    /// Returns the integers in order.
    pub fn parts(&self) -> Parts<'_> {
        Parts { bytes: self.as_bytes(), at: 0 }
    }

    /// Returns the sequence without its last integer; None for the root.
    pub fn parent(&self) -> Option<FileId> {
        let mut last = None;
        let mut at = 0;
        while let Ok((CodeToken::Integer(_), end)) = code::read(self.as_bytes(), at) {
            last = Some(at);
            at = end;
        }
        // Where the last integer begins, the parent's code ends instead.
        let end = last?;
        let bits = end + END_BITS;
        let mut bytes: SmallVec<[u8; CHILD_BITS_MAX / 8]> =
            SmallVec::from_slice(&self.as_bytes()[..bits.div_ceil(8)]);
        bytes[end / 8] &= !(0xff >> (end % 8));
        bytes[end / 8 + 1..].fill(0);
        Some(FileId::from_code(&bytes, bits))
    }

    /// Returns the length of the code in bits, before padding.
    pub fn bit_len(&self) -> usize {
        match &self.0 {
            Code::Short { bits, .. } => bits.get().into(),
            Code::Long(long) => long.bits,
        }
    }

    /// Returns the code, padded with zero bits to bytes. Codes sort as the identifiers do, and none
    /// is the beginning of another.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Code::Short { bits, bytes } => &bytes[..usize::from(bits.get()).div_ceil(8)],
            Code::Long(long) => &long.bytes,
        }
    }

    /// Returns the identifier whose [`FileId::as_bytes`] is exactly `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<FileId, Malformed> {
        match FileId::split_from(bytes)? {
            (id, []) => Ok(id),
            (_, rest) => Err(Malformed::Trailing(rest.len())),
        }
    }

    /// Splits a key into the identifier at its front and the bytes that follow.
    pub fn split_from(bytes: &[u8]) -> Result<(FileId, &[u8]), Malformed> {
        let bits = code::measure(bytes)?;
        let (code, rest) = bytes.split_at(bits.div_ceil(8));
        Ok((FileId::from_code(code, bits), rest))
    }

    /// Returns whether `self` is a prefix of `other` or equal to it: whether `other` is in the
    /// subtree of identifiers at `self`.
    pub fn is_prefix_of(&self, other: &FileId) -> bool {
        let (mine, theirs) = (self.as_bytes(), other.as_bytes());
        // All bits but the end.
        let bits = self.bit_len() - END_BITS;
        let (whole, left) = (bits / 8, bits % 8);
        theirs.len() >= mine.len()
            && mine[..whole] == theirs[..whole]
            && (left == 0 || (mine[whole] ^ theirs[whole]) >> (8 - left) == 0)
    }

    /// Returns the range of keys of everything whose identifier has `self` as a prefix. It holds
    /// the bytes of those identifiers, also with other bytes after them, and nothing else. The
    /// result is the start, and the exclusive end if there is one.
    pub fn region_range(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        // All these keys begin with the bits of `self` before its end. The end of the range is
        // those bits, incremented by one.
        let start = self.as_bytes().to_vec();
        let bits = self.bit_len() - END_BITS;
        let mut end = start[..bits.div_ceil(8)].to_vec();
        let mut unit = 1u8 << ((8 - bits % 8) % 8);
        while let Some(last) = end.last_mut() {
            match last.checked_add(unit) {
                Some(sum) => {
                    *last = sum;
                    return (start, Some(end));
                }
                None => unit = 1,
            }
            end.pop();
        }
        (start, None)
    }

    /// Makes an identifier of `bytes`, which hold a code of `bits` bits and zeros to the end of the
    /// last byte. `bits` is at least [`END_BITS`] and at most [`BITS_MAX`].
    fn from_code(bytes: &[u8], bits: usize) -> FileId {
        if bytes.len() <= INLINE_BYTES {
            let mut short = [0; INLINE_BYTES];
            short[..bytes.len()].copy_from_slice(bytes);
            let bits = NonZeroU8::MIN.saturating_add((bits - 1) as u8);
            FileId(Code::Short { bits, bytes: short })
        } else {
            FileId(Code::Long(Arc::new(Long { bits, bytes: SmallVec::from_slice(bytes) })))
        }
    }

    /// Returns a short code as two numbers that sort as the bytes do.
    fn words(bytes: &[u8; INLINE_BYTES]) -> (u64, u64) {
        let mut all = [0; 16];
        all[..INLINE_BYTES].copy_from_slice(bytes);
        let all = u128::from_be_bytes(all);
        ((all >> 64) as u64, all as u64)
    }
}

impl PartialEq for FileId {
    fn eq(&self, other: &FileId) -> bool {
        match (&self.0, &other.0) {
            // A code contains its own end, so equal bytes are of equal length.
            (Code::Short { bytes: a, .. }, Code::Short { bytes: b, .. }) => {
                FileId::words(a) == FileId::words(b)
            }
            (Code::Long(a), Code::Long(b)) => a.bytes == b.bytes,
            _ => false,
        }
    }
}

impl Eq for FileId {}

impl PartialOrd for FileId {
    fn partial_cmp(&self, other: &FileId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FileId {
    fn cmp(&self, other: &FileId) -> Ordering {
        match (&self.0, &other.0) {
            (Code::Short { bytes: a, .. }, Code::Short { bytes: b, .. }) => {
                FileId::words(a).cmp(&FileId::words(b))
            }
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

impl Hash for FileId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Code::Short { bytes, .. } => {
                let (high, low) = FileId::words(bytes);
                // A code begins at the highest bit, and fast hashers mix upwards only. So the bytes
                // are swapped, and the bits that differ stand low.
                state.write_u64(high.swap_bytes());
                state.write_u64(low.swap_bytes());
            }
            Code::Long(long) => long.bytes.hash(state),
        }
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("⟨")?;
        for (at, part) in self.parts().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            write!(f, "{part}")?;
        }
        f.write_str("⟩")
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The integers of an identifier, first to last.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Parts<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // The bytes are those of an identifier, so no error occurs.
        match code::read(self.bytes, self.at) {
            Ok((CodeToken::Integer(n), end)) => {
                self.at = end;
                Some(n)
            }
            _ => None,
        }
    }
}
