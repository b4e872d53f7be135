//! The digest of a share's body. Restart, scrub and fsck find damage by it.
//!
//! XXH3 of 128 bits: it guards against accidents, not against attackers. A reader checks each piece
//! against the BLAKE3 that its extent records. A second BLAKE3 of every byte here would keep no
//! attacker out, and it was a tenth of the CPU time of a long write.

use twox_hash::XxHash3_128;

/// The digest of all bytes of a body, in order.
pub(crate) type Digest = [u8; 16];

/// The digest of a whole body.
pub fn digest(body: &[u8]) -> [u8; 16] {
    let mut hasher = Hasher::default();
    hasher.update(body);
    hasher.finish()
}

/// A digest being computed.
#[derive(Default)]
pub(crate) struct Hasher(XxHash3_128);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub fn finish(&self) -> Digest {
        self.0.finish_128().to_le_bytes()
    }
}
