//! Numbers by chance, from a seed: tests of hostile input draw from them.

/// A generator (xorshift), so that a failure can be repeated.
pub(crate) struct Chance(u64);

impl Chance {
    /// Begins with `PROPTEST_RNG_SEED`, which the gate fixes and `.ci/soak` changes.
    pub(crate) fn new(salt: u64) -> Chance {
        let mut chance = Chance(number("PROPTEST_RNG_SEED").unwrap_or(4) << 8 ^ salt ^ 0x9e37_79b9_7f4a_7c15);
        // Seeds that are close to each other begin alike.
        (0..8).for_each(|_| _ = chance.below(1));
        chance
    }

    /// A number less than `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % end.max(1) as u64) as usize
    }

    /// True in one of `odds` cases.
    pub(crate) fn one_in(&mut self, odds: usize) -> bool {
        self.below(odds) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }

    /// Damages a message as somebody does who knows its form: fields get numbers at which parsers
    /// go wrong, parts move, and it ends early or late.
    pub(crate) fn damage(&mut self, message: &mut Vec<u8>, from: usize) {
        const ODD: [u64; 16] = [
            0,
            1,
            2,
            7,
            8,
            0x3f,
            0x40,
            0xff,
            0x7fff,
            0xffff,
            0x1_0000,
            0x7fff_ffff,
            0xffff_ffff,
            i64::MAX as u64,
            u64::MAX - 1,
            u64::MAX,
        ];
        for _ in 0..=self.below(3) {
            let length = message.len().saturating_sub(from);
            if length == 0 {
                return message.extend(self.bytes(9));
            }
            let at = from + self.below(length);
            match self.below(9) {
                0 => message[at] ^= 1 << self.below(8),
                1 => message[at] = self.below(256) as u8,
                // A field of 2, 4 or 8 bytes.
                2..5 => {
                    let size = self.pick(&[2, 4, 8]);
                    let at = at / 2 * 2;
                    let near = message.len() as u64;
                    let odd = self.pick(&ODD);
                    let number = self.pick(&[odd, near, near - 1, near + 1, near / 2, near - from as u64]);
                    for (place, byte) in message[at..].iter_mut().zip(&number.to_le_bytes()[..size]) {
                        *place = *byte;
                    }
                }
                5 => message.truncate(at),
                6 => {
                    let more = self.below(40);
                    message.extend(self.bytes(more));
                }
                7 => {
                    let more = self.below(9);
                    let more = self.bytes(more);
                    drop(message.splice(at..at, more));
                }
                _ => {
                    let end = (at + 1 + self.below(16)).min(message.len());
                    drop(message.drain(at..end));
                }
            }
        }
    }
}

/// The rounds of a test: `HOSTILE_ROUNDS`, or what the gate has time for.
pub(crate) fn rounds(gate: usize) -> usize {
    number("HOSTILE_ROUNDS").map_or(gate, |rounds| rounds as usize)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
