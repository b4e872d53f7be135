//! Finds the bit that flipped in bytes from a disk.
//!
//! The locator is the XOR of the positions of all set bits. A flipped bit changes it by that bit's
//! position, as in a Hamming code. The locator says where a bit flipped, not whether one did. A
//! checksum beside it tells wrong bytes from right ones, also after the repair.

/// Words that are combined at a time. Their positions differ in the low bits only.
const LANES: usize = 32;

/// Returns the XOR of the positions of all set bits.
pub(crate) fn locator(bytes: &[u8]) -> u32 {
    // The XOR of each lane over all blocks, and the XOR of the numbers of the blocks with an odd
    // number of set bits.
    let (mut lanes, mut blocks) = ([0u64; LANES], 0u32);
    let whole = bytes.chunks_exact(8 * LANES);
    let rest = whole.remainder();
    let mut padded = [0; 8 * LANES];
    padded[..rest.len()].copy_from_slice(rest);
    for (number, block) in (0u32..).zip(whole.chain([&padded[..]])) {
        let mut all = 0;
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
            let word = u64::from_le_bytes(*word);
            *lane ^= word;
            all ^= word;
        }
        blocks ^= number * (all.count_ones() % 2);
    }
    let bits = lanes.iter().fold(0, |all, lane| all ^ lane);
    let odd = (0u32..).zip(lanes).filter(|(_, lane)| lane.count_ones() % 2 == 1);
    let word = odd.fold(blocks * LANES as u32, |all, (lane, _)| all ^ lane);
    let bit = (0u32..64).filter(|bit| bits >> bit & 1 == 1).fold(0, |all, bit| all ^ bit);
    word << 6 | bit
}

/// Flips one bit back, if exactly one has flipped. `known` is the locator of the written bytes.
/// Only a checksum tells whether the result is right.
pub(crate) fn flip_back(bytes: &mut [u8], known: u32) {
    let at = locator(bytes) ^ known;
    if let Some(byte) = bytes.get_mut(at as usize / 8) {
        *byte ^= 1 << (at % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_single_bit_is_found() {
        for length in [1, 7, 8, 9, 64, 256, 333, 777] {
            let whole: Vec<u8> = (0..length).map(|at| (at * 37 + 11) as u8).collect();
            let known = locator(&whole);
            for bit in 0..length * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                flip_back(&mut bytes, known);
                assert_eq!(bytes, whole, "bit {bit} of {length} bytes");
            }
        }
    }

    /// Locators are stored on disks.
    #[test]
    fn it_is_what_its_definition_says() {
        for length in [0, 1, 8, 255, 256, 257, 1_111] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 37 + 11) as u8).collect();
            let set = (0..length * 8).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 == 1);
            assert_eq!(locator(&bytes), set.fold(0, |all, bit| all ^ bit as u32), "{length} bytes");
        }
    }

    #[test]
    fn what_is_far_away_is_left_alone() {
        let mut bytes = vec![0; 16];
        flip_back(&mut bytes, u32::MAX);
        assert_eq!(bytes, vec![0; 16]);
    }
}
