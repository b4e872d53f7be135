//! Content that a client reads from shares.

use crate::host::Violation;
use content::ReadPart;
use namespace::ShareId;

/// The bytes of these parts. `stored` has the bytes of each share.
pub(crate) fn gather<'a>(
    parts: &[ReadPart],
    stored: impl Fn(&ShareId) -> Option<&'a [u8]>,
) -> Result<Vec<u8>, Violation> {
    content::assemble(
        parts,
        |part| {
            let ReadPart::Piece { share, at, piece_length, nonce, hash, key, .. } = part else {
                return Err("only pieces need opening".to_owned());
            };
            let bytes = stored(share).ok_or(format!("share {share:?} was deleted while it was read"))?;
            let (from, to) = (*at as usize, (*at + *piece_length) as usize + content::TAG_BYTES);
            let sealed = bytes.get(from..to).ok_or("a share is too short")?.to_vec();
            content::open(key, nonce, hash, sealed).map(Into::into).map_err(|e| e.to_string())
        },
        || "a piece is too short".to_owned(),
    )
}
