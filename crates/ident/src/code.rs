//! The code of an identifier, bit by bit (Farsite §4.1.3, which takes Elias' γ' for its lengths).
//!
//! Each integer n with 2^k <= n < 2^(k+1) has a 1 bit ("one more integer"), k ones, a zero, and the
//! k low bits of n. A 0 bit follows the last integer.
//!
//! Compared with §4.1.3 two things differ. The unary part consists of ones instead of zeros, so
//! that a greater integer has the greater code. The end is explicit, so that the codes of different
//! identifiers are prefix-free. Zero bits can therefore pad a code to whole bytes, and other bytes
//! can follow it. Neither changes the order or makes two codes equal.

use crate::{BITS_MAX, INTEGER_MAX};

/// The reason why bytes are not an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end before the code does.
    #[error("identifier ends too early")]
    Truncated,
    /// An integer is above [`INTEGER_MAX`].
    #[error("identifier holds an integer of 2^63 or more")]
    Integer,
    /// The code is longer than [`BITS_MAX`].
    #[error("identifier is longer than {BITS_MAX} bits")]
    TooLong,
    /// A bit is set between the end of the code and the end of its last byte.
    #[error("identifier is padded with other than zeros")]
    Padding,
    /// More bytes follow where the identifier should be all.
    #[error("identifier is followed by {0} more bytes")]
    Trailing(usize),
}

/// Returns the bits that the code of integer `n` takes, with the 1 bit before it.
pub fn integer_bits(n: u64) -> usize {
    2 * n.ilog2() as usize + 2
}

/// A token of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeToken {
    /// An integer.
    Integer(u64),
    /// The 0 bit at the end.
    End,
}

/// Returns the 64 bits from bit `at` on; zeros stand beyond the end of `bytes`.
fn window(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at / 8..).unwrap_or_default();
    let mut window = [0; 16];
    let length = rest.len().min(window.len());
    window[..length].copy_from_slice(&rest[..length]);
    ((u128::from_be_bytes(window) << (at % 8)) >> 64) as u64
}

/// Reads the token at bit `at`, and returns it with the position of the bit after it.
pub fn read(bytes: &[u8], at: usize) -> Result<(CodeToken, usize), Malformed> {
    let head = window(bytes, at);
    let (token, end) = if head >> 63 == 0 {
        (CodeToken::End, at + 1)
    } else {
        let k = (head << 1).leading_ones() as usize;
        if k > INTEGER_MAX.ilog2() as usize {
            return Err(Malformed::Integer);
        }
        let low = if k == 0 { 0 } else { window(bytes, at + 2 + k) >> (64 - k) };
        (CodeToken::Integer((1 << k) | low), at + 2 + 2 * k)
    };
    if end > bytes.len() * 8 { Err(Malformed::Truncated) } else { Ok((token, end)) }
}

/// Returns the length in bits of the code at the front of `bytes`. The code must be padded with
/// zero bits to whole bytes.
pub fn measure(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut at = 0;
    loop {
        let (token, end) = read(bytes, at)?;
        if end > BITS_MAX {
            return Err(Malformed::TooLong);
        }
        at = end;
        if token == CodeToken::End {
            break;
        }
    }
    let used = at % 8;
    if used != 0 && bytes[at / 8] << used != 0 {
        return Err(Malformed::Padding);
    }
    Ok(at)
}

/// Writes integer `n` and the end at bit `at` of `bytes`, and returns the position after the end.
/// `n` is 1 to [`INTEGER_MAX`]. `bytes` holds zeros from `at` on, and has room.
pub fn write(bytes: &mut [u8], at: usize, n: u64) -> usize {
    let k = n.ilog2();
    // A 1 bit and k ones, a zero, the k low bits, and the zero that ends the code: at most 127
    // bits.
    let ones = ((1u128 << (k + 1)) - 1) << (k + 2);
    let low = u128::from(n ^ (1 << k)) << 1;
    let width = integer_bits(n) + 1;
    let mut left = (ones | low) << (128 - width);
    let (mut at, end) = (at, at + width);
    while at < end {
        let room = 8 - at % 8;
        bytes[at / 8] |= ((left >> 120) as u8) >> (at % 8);
        left <<= room;
        at += room;
    }
    end
}
