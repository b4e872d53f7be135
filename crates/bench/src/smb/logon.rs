//! The client's side of a logon: bare messages of NTLM (MS-NLMP §2.2.1), without a MIC.

use crypto::smb::{hmac_md5, nt_hash, rc4};
use smb::wire::{Malformed, Reader, Writer, utf16};

const SIGNATURE: &[u8; 8] = b"NTLMSSP\0";
/// NegotiateFlags (§2.2.2.5): Unicode, NTLMv2, pairs, signing, an exchanged key of 128 bits.
const FLAGS: u32 = 0xe288_8215;
/// The fields of AUTHENTICATE: six buffers and the flags.
const PAYLOAD_AT: usize = 64;

/// The key that the client chooses. Nothing here is secret.
const SESSION_KEY: [u8; 16] = [0x55; 16];

/// Returns NEGOTIATE.
pub(super) fn negotiate() -> Vec<u8> {
    let mut message = SIGNATURE.to_vec();
    message.u32(1);
    message.u32(FLAGS);
    message.put(&[0; 16]);
    message
}

/// Answers a challenge for a user. Returns AUTHENTICATE and the session key.
pub(super) fn authenticate(
    challenge: &[u8],
    user: &str,
    password: &str,
) -> Result<(Vec<u8>, [u8; 16]), Malformed> {
    let mut reader = Reader::at(challenge, 24);
    let nonce = reader.array::<8>()?;
    reader.take(8)?;
    let (length, _, at) = (reader.u16()?, reader.u16()?, reader.u32()?);
    let pairs = Reader::buffer(challenge, at as usize, usize::from(length))?;
    let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
    temp.u64(time(pairs)?);
    temp.put(&[0xaa; 8]);
    temp.u32(0);
    temp.put(pairs);
    temp.u32(0);
    let key = hmac_md5(&nt_hash(password), &[&utf16(&user.to_uppercase())]);
    let proof = hmac_md5(&key, &[&nonce, &temp]);
    let exchanged = rc4(&hmac_md5(&key, &[&proof]), SESSION_KEY);
    let response = [&proof[..], &temp].concat();
    let (mut message, mut payload) = (SIGNATURE.to_vec(), Vec::new());
    message.u32(3);
    for part in [&[0; 24][..], &response, &[], &utf16(user), &[], &exchanged] {
        message.u16(part.len() as u16);
        message.u16(part.len() as u16);
        message.u32((PAYLOAD_AT + payload.len()) as u32);
        payload.put(part);
    }
    message.u32(FLAGS);
    message.put(&payload);
    Ok((message, SESSION_KEY))
}

/// The time among a challenge's pairs: MsvAvTimestamp.
fn time(pairs: &[u8]) -> Result<u64, Malformed> {
    let mut reader = Reader::new(pairs);
    loop {
        let (id, length) = (reader.u16()?, reader.u16()?);
        let mut value = Reader::new(reader.take(usize::from(length))?);
        match id {
            7 => return value.u64(),
            0 => return Ok(0),
            _ => {}
        }
    }
}
