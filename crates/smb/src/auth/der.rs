//! DER, as far as SPNEGO needs it (X.690): elements of a tag and definite length.

use crate::wire::Malformed;

/// Takes the element with this tag from the front. Returns its content.
pub(super) fn take<'a>(bytes: &mut &'a [u8], tag: u8) -> Result<&'a [u8], Malformed> {
    match bytes.first() {
        Some(found) if *found == tag => take_any(bytes).map(|(_, content)| content),
        _ => Err(Malformed("a token has another element")),
    }
}

/// Takes the element with this tag from the front, if it is there.
pub(super) fn take_optional<'a>(bytes: &mut &'a [u8], tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
    if bytes.first() == Some(&tag) { take(bytes, tag).map(Some) } else { Ok(None) }
}

/// Takes any element from the front. Returns its tag and content.
pub(super) fn take_any<'a>(bytes: &mut &'a [u8]) -> Result<(u8, &'a [u8]), Malformed> {
    const SHORT: Malformed = Malformed("a token ends early");
    let (&tag, rest) = bytes.split_first().ok_or(SHORT)?;
    let (&first, mut rest) = rest.split_first().ok_or(SHORT)?;
    let length = if first < 0x80 {
        usize::from(first)
    } else {
        let digits = usize::from(first & 0x7f);
        if digits == 0 || digits > 3 {
            return Err(Malformed("a length in a token is too large"));
        }
        let (number, after) = rest.split_at_checked(digits).ok_or(SHORT)?;
        rest = after;
        number.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit))
    };
    let (content, after) = rest.split_at_checked(length).ok_or(SHORT)?;
    *bytes = after;
    Ok((tag, content))
}

/// Returns an element.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..0x80 => out.push(length as u8),
        length @ 0x80..0x100 => out.extend([0x81, length as u8]),
        length => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(content);
    out
}
