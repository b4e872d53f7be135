//! Keys of RFC 3962, derived by DK of RFC 3961 §5.1.

use super::BLOCK;
use super::cts::Aes;

/// Returns a key of as many bytes as `key` has.
pub(super) fn derive(key: &[u8], usage: u32, purpose: u8) -> Vec<u8> {
    let mut constant = usage.to_be_bytes().to_vec();
    constant.push(purpose);
    let (aes, mut block, mut derived) = (Aes::new(key), fold(&constant), Vec::new());
    while derived.len() < key.len() {
        aes.encrypt(&mut block);
        derived.extend(block);
    }
    derived
}

/// Stretches or shrinks bytes to a block (n-fold, RFC 3961 §5.1): copies, each rotated 13 bits to
/// the right of the one before, are added in ones' complement.
pub(super) fn fold(bytes: &[u8]) -> [u8; BLOCK] {
    let (length, bits) = (bytes.len(), bytes.len() * 8);
    let copies = lcm(length, BLOCK) / length;
    let bit = |at: usize| {
        let (copy, place) = (at / bits, at % bits);
        let from = (place + bits * 13 - 13 * copy % bits) % bits;
        bytes[from / 8] >> (7 - from % 8) & 1
    };
    let byte = |at: usize| (0..8).fold(0, |sum, i| sum << 1 | bit(at * 8 + i));
    let mut sum = [0_u8; BLOCK];
    for chunk in 0..copies * length / BLOCK {
        let mut carry = 0;
        for i in (0..BLOCK).rev() {
            let all = u16::from(sum[i]) + u16::from(byte(chunk * BLOCK + i)) + carry;
            (sum[i], carry) = (all as u8, all >> 8);
        }
        for place in sum.iter_mut().rev() {
            let all = u16::from(*place) + carry;
            (*place, carry) = (all as u8, all >> 8);
        }
    }
    sum
}

fn lcm(one: usize, other: usize) -> usize {
    let (mut a, mut b) = (one, other);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    one / a * other
}
