//! The code of an identifier, bit by bit (Farsite §4.1.3).
//!
//! The integers are divided into classes, each with the integers that follow those of the class
//! before. The integer 1 alone is class 0, and is 01. An integer of class j has j ones, a zero, and
//! its number within the class in the class's width of bits. After the last integer stands 00.
//!
//! Departs from Farsite §4.1.3, which takes Elias' code γ': because to say where an identifier ends
//! costs nine bits by γ' on a tree of the paper's size, and six by this one
//! (docs/decisions/identifier-code.md). The widths are those that make identifiers shortest on such
//! a tree.
//!
//! Two more things differ. The unary part consists of ones instead of zeros, so that a greater
//! integer has the greater code. The end is explicit, so that the codes of different identifiers
//! are prefix-free. Zero bits can therefore pad a code to whole bytes, and other bytes can follow
//! it. Neither changes the order or makes two codes equal.

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

/// The bits of the end of a code.
pub const END_BITS: usize = 2;

/// The width in bits of each class. The last one reaches beyond [`INTEGER_MAX`].
const WIDTHS: [u8; 15] = [0, 1, 2, 3, 5, 8, 12, 16, 21, 27, 34, 42, 51, 61, 63];

/// The first integer of each class.
const FIRST: [u64; WIDTHS.len()] = {
    let mut first = [1; WIDTHS.len()];
    let mut class = 1;
    while class < first.len() {
        first[class] = first[class - 1] + (1 << WIDTHS[class - 1]);
        class += 1;
    }
    first
};

/// The class of integer `n`, and its width.
fn class_of(n: u64) -> (usize, usize) {
    // Most integers are small.
    let class = FIRST.iter().take_while(|first| **first <= n).count() - 1;
    (class, WIDTHS[class].into())
}

/// The bits before an integer's number within its class: their number, and the bits themselves.
fn prefix_of(class: usize) -> (usize, u128) {
    match class {
        0 => (2, 0b01),
        _ => (class + 1, ((1 << class) - 1) << 1),
    }
}

/// Returns the bits that the code of integer `n` takes.
pub fn integer_bits(n: u64) -> usize {
    let (class, width) = class_of(n);
    prefix_of(class).0 + width
}

/// A token of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeToken {
    /// An integer.
    Integer(u64),
    /// The end.
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
    let (token, end) = if head >> 62 == 0 {
        (CodeToken::End, at + END_BITS)
    } else {
        let class = head.leading_ones() as usize;
        let (Some(first), Some(width)) = (FIRST.get(class), WIDTHS.get(class)) else {
            return Err(Malformed::Integer);
        };
        let at = at + prefix_of(class).0;
        let n = first + window(bytes, at).checked_shr(64 - u32::from(*width)).unwrap_or(0);
        if n > INTEGER_MAX {
            return Err(Malformed::Integer);
        }
        (CodeToken::Integer(n), at + usize::from(*width))
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
    let (class, width) = class_of(n);
    let (prefix_bits, prefix) = prefix_of(class);
    // The prefix, the number within the class, and the end: at most 80 bits.
    let bits = (prefix << width | u128::from(n - FIRST[class])) << END_BITS;
    let width = prefix_bits + width + END_BITS;
    let mut left = bits << (128 - width);
    let (mut at, end) = (at, at + width);
    while at < end {
        let room = 8 - at % 8;
        bytes[at / 8] |= ((left >> 120) as u8) >> (at % 8);
        left <<= room;
        at += room;
    }
    end
}
