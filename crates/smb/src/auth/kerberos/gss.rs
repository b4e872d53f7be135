//! The tokens of GSS around Kerberos (RFC 4121).

use super::messages::application;
use crate::auth::der::{element, take};
use crate::auth::refused::Refused;
use crate::auth::spnego::{Mechanism, Side};
use crypto::kerberos::EncryptionKey;
use crypto::smb::are_equal;

const OID: u8 = 0x06;
const REQUEST: [u8; 2] = [1, 0];
const REPLY: [u8; 2] = [2, 0];
const MIC: [u8; 2] = [4, 4];
const MIC_HEADER_BYTES: usize = 16;
/// The type of the checksum that is none, but has the flags of the context (§4.1.1).
pub(super) const CHECKSUM: i64 = 0x8003;

/// Flags of the context (§4.1.1.1).
mod flag {
    pub const MUTUAL: u32 = 2;
    pub const DCE_STYLE: u32 = 0x1000;
}

/// Flags of a signature (§4.2.2).
mod sender {
    pub const IS_ACCEPTOR: u8 = 1;
    pub const HAS_ACCEPTORS_SUBKEY: u8 = 4;
}

/// Returns the AP-REQ of a client's first token. The frame has the mechanism's one number, however
/// SPNEGO calls it.
pub(super) fn request(mut token: &[u8]) -> Result<&[u8], Refused> {
    let mut inner = take(&mut token, application(0))?;
    if !token.is_empty() {
        return Err(Refused("there is more behind the token"));
    }
    if take(&mut inner, OID)? != Mechanism::Kerberos.oid() {
        return Err(Refused("the token is not of Kerberos"));
    }
    inner.strip_prefix(&REQUEST).ok_or(Refused("the token of Kerberos is another than the first"))
}

/// Returns a token in its frame.
fn framed(kind: [u8; 2], message: &[u8]) -> Vec<u8> {
    let oid = element(OID, Mechanism::Kerberos.oid());
    element(application(0), &[&oid, &kind[..], message].concat())
}

/// Returns the token with AP-REP.
pub(super) fn reply(message: &[u8]) -> Vec<u8> {
    framed(REPLY, message)
}

/// Returns whether the client wants a proof of the service, as its authenticator's checksum says.
pub(super) fn wants_reply(kind: i64, checksum: &[u8]) -> Result<bool, Refused> {
    if kind != CHECKSUM {
        return Err(Refused("the authenticator's checksum is not of GSS"));
    }
    // Behind the flags there may be delegated credentials, which nobody needs here. The channel
    // bindings in front count if a service has any.
    let flags = checksum
        .strip_prefix(&16_u32.to_le_bytes())
        .and_then(|rest| rest.get(16..20))
        .ok_or(Refused("the authenticator's checksum is malformed"))?;
    let flags = u32::from_le_bytes(flags.try_into().expect("four bytes"));
    if flags & flag::DCE_STYLE != 0 {
        return Err(Refused("the client wants the third message of DCE"));
    }
    Ok(flags & flag::MUTUAL != 0)
}

/// A client and a service that share a key.
#[derive(Clone, Debug)]
pub struct Context {
    /// The acceptor's subkey, that of the initiator, or the session key of the ticket: the first of
    /// them that there is (§2).
    pub(super) key: EncryptionKey,
    /// The key is the acceptor's subkey.
    pub(super) is_acceptors: bool,
    /// The acceptor's first sequence number.
    pub(super) sequence: u32,
}

impl Context {
    /// Returns the first 16 bytes of the key (MS-SMB2 §3.3.5.5.3).
    pub fn session_key(&self) -> [u8; 16] {
        *self.key.bytes().first_chunk().expect("a key of AES has 16 bytes at least")
    }

    /// Returns all bytes of the key.
    pub fn full_session_key(&self) -> &[u8] {
        self.key.bytes()
    }

    fn checksum(&self, side: Side, message: &[u8], header: &[u8]) -> Vec<u8> {
        let usage = match side {
            Side::Client => 25,
            Side::Server => 23,
        };
        self.key.checksum(usage, &[message, header])
    }

    fn flags(&self, side: Side) -> u8 {
        let sender = if side == Side::Server { sender::IS_ACCEPTOR } else { 0 };
        sender | if self.is_acceptors { sender::HAS_ACCEPTORS_SUBKEY } else { 0 }
    }

    fn signed(&self, side: Side, message: &[u8], number: [u8; 8]) -> Vec<u8> {
        let mut token = MIC.to_vec();
        token.push(self.flags(side));
        token.extend([0xff; 5]);
        token.extend(number);
        let checksum = self.checksum(side, message, &token);
        token.extend(checksum);
        token
    }

    /// Returns a side's first signature of a message (§4.2.6.1).
    pub fn mic(&self, side: Side, message: &[u8]) -> Vec<u8> {
        self.signed(side, message, u64::from(self.sequence).to_be_bytes())
    }

    /// Returns whether the client has signed the message. Its sequence number may be any: there is
    /// one signature in a logon.
    pub fn has_signed(&self, token: &[u8], message: &[u8]) -> bool {
        let number = token.get(8..MIC_HEADER_BYTES).and_then(|number| number.try_into().ok());
        number.is_some_and(|number| are_equal(token, &self.signed(Side::Client, message, number)))
    }
}
