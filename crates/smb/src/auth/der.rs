//! DER, as far as SPNEGO and Kerberos need it (X.690): elements of a tag and definite length.

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

/// Returns the number of an INTEGER of up to eight bytes.
pub(super) fn number_of(content: &[u8]) -> Result<i64, Malformed> {
    let (first, rest) = content.split_first().ok_or(Malformed("a number has no digit"))?;
    if rest.len() > 7 {
        return Err(Malformed("a number in a token is too large"));
    }
    Ok(rest.iter().fold(i64::from(*first as i8), |sum, digit| sum << 8 | i64::from(*digit)))
}

/// Returns the content of an INTEGER.
pub(super) fn number(value: i64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let sign = if value < 0 { 0xff } else { 0 };
    // A byte that only repeats the sign is left out.
    let extra = (0..7).take_while(|i| bytes[*i] == sign && (bytes[i + 1] ^ sign) & 0x80 == 0).count();
    bytes[extra..].to_vec()
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
