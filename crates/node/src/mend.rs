//! Finds the bit that has flipped in what a disk gave back.
//!
//! The positions of all bits that are set, taken together by XOR, change by the position of the bit that flips: that is what a Hamming code keeps. It says
//! where, and not whether: beside it stands a checksum, by which bytes are known to be wrong, and to be right again.

/// The XOR of the positions of all set bits.
pub(crate) fn locator(bytes: &[u8]) -> u32 {
    let (mut words, mut bits) = (0, 0u64);
    for (number, word) in (0u32..).zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
        let word = u64::from_le_bytes(whole);
        bits ^= word;
        if word.count_ones() % 2 == 1 {
            words ^= number;
        }
    }
    let bit = (0u32..64).filter(|bit| bits >> bit & 1 == 1).fold(0, |all, bit| all ^ bit);
    words << 6 | bit
}

/// Flips back the bit that has flipped, if it was one: `known` is the locator of what was written. Only a checksum tells whether that was it.
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
        for length in [1, 7, 8, 9, 64, 333] {
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

    #[test]
    fn what_is_far_away_is_left_alone() {
        let mut bytes = vec![0; 16];
        flip_back(&mut bytes, u32::MAX);
        assert_eq!(bytes, vec![0; 16]);
    }
}
