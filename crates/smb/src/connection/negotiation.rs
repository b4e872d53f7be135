//! NEGOTIATE (MS-SMB2 §3.3.5.3, §3.3.5.4), and the check of it afterwards (§3.3.5.15.12).

use super::{Connection, Ends};
use crate::auth::hint;
use crate::limits::{EARLY_CREDITS_MAX, IO_BYTES_MAX, TRANSACT_BYTES_MAX};
use crate::negotiated::Negotiated;
use crate::request::Reply;
use crate::time::now;
use crate::wire::bodies::{NegotiateRequest, NegotiateResponse};
use crate::wire::negotiate::{Dialect, Offer, POSIX_GUID, context, emit_context, numbers_data, preauth_data};
use crate::wire::{Command, Flags, HEADER_BYTES, Header, Malformed, NtStatus, Reader, Writer};
use crypto::smb::{MessageCipherKind, PreauthHash, SigningAlgorithm};
use objects::ClientGuid;

/// SecurityMode: signing is enabled and required.
const SIGNING_REQUIRED: u16 = 3;

/// Capabilities (§2.2.4).
pub(super) mod capability {
    pub const LEASING: u32 = 0x2;
    pub const LARGE_MTU: u32 = 0x4;
    pub const MULTI_CHANNEL: u32 = 0x8;
    pub const PERSISTENT_HANDLES: u32 = 0x10;
    pub const DIRECTORY_LEASING: u32 = 0x20;
    pub const ENCRYPTION: u32 = 0x40;
}

impl Connection {
    /// Answers SMB 1's negotiate, by which old clients look for SMB 2. Returns the whole message.
    pub(super) fn negotiate_smb1(&self, message: &[u8]) -> Result<Vec<u8>, Ends> {
        const NEGOTIATE: u8 = 0x72;
        let has = |name: &[u8]| message.windows(name.len()).any(|window| window == name);
        let mut state = self.state.lock();
        if state.negotiated.is_some() || state.saw_smb1 || message.get(4) != Some(&NEGOTIATE) {
            return Err(Ends("SMB 1 is not spoken here"));
        }
        state.saw_smb1 = true;
        let dialect = if has(b"\x02SMB 2.???\0") {
            Dialect::WILDCARD
        } else if has(b"\x02SMB 2.002\0") {
            Dialect::V2_0_2 as u16
        } else {
            return Err(Ends("the client speaks SMB 1 alone"));
        };
        if dialect != Dialect::WILDCARD {
            state.negotiated = Some(Negotiated {
                dialect: Dialect::V2_0_2,
                client: ClientGuid([0; 16]),
                signing: SigningAlgorithm::HmacSha256,
                cipher: None,
                hash: PreauthHash::START,
                posix: false,
                capabilities: 0,
                client_capabilities: 0,
                client_mode: 0,
            });
        }
        state.credits.consume(0, 1);
        let credits = state.credits.grant(1, EARLY_CREDITS_MAX);
        let header = Header {
            charge: 0,
            status: NtStatus::SUCCESS,
            command: Command::Negotiate as u16,
            credits,
            flags: Flags(Flags::ANSWER),
            next: 0,
            message_id: 0,
            tree_or_async: 0,
            session_id: 0,
            signature: [0; 16],
        };
        let mut out = Vec::new();
        header.emit(&mut out);
        out.put(&self.negotiate_body(dialect, 0, &[]));
        Ok(out)
    }

    /// Answers NEGOTIATE.
    pub(super) fn negotiate(&self, header: &Header, message: &[u8]) -> Result<Reply, Ends> {
        let refused = |status| Ok(Reply::error(status));
        let mut state = self.state.lock();
        if state.negotiated.is_some() {
            return Err(Ends("the client negotiates twice"));
        }
        let Ok(fixed) = NegotiateRequest::parse(message) else {
            return refused(NtStatus::INVALID_PARAMETER);
        };
        let Ok(offer) = Offer::parse(message, &fixed) else {
            return refused(NtStatus::INVALID_PARAMETER);
        };
        let Some(dialect) = Dialect::ALL.into_iter().find(|one| offer.dialects.contains(&(*one as u16)))
        else {
            return refused(NtStatus::NOT_SUPPORTED);
        };
        let is_311 = dialect == Dialect::V3_1_1;
        if is_311 && offer.hashes.is_none() {
            return refused(NtStatus::INVALID_PARAMETER);
        }
        if is_311 && !offer.hashes.as_ref().is_some_and(|hashes| hashes.contains(&1)) {
            return refused(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
        }
        let cipher = match dialect {
            Dialect::V3_1_1 => best_of(&offer.ciphers, &MessageCipherKind::ALL, |kind| *kind as u16),
            Dialect::V3_0 | Dialect::V3_0_2 if fixed.capabilities & capability::ENCRYPTION != 0 => {
                Some(MessageCipherKind::Aes128Ccm)
            }
            _ => None,
        };
        let signing = match dialect {
            Dialect::V2_0_2 | Dialect::V2_1 => SigningAlgorithm::HmacSha256,
            _ => {
                use SigningAlgorithm::{AesCmac, AesGmac, HmacSha256};
                let agreed = best_of(&offer.signing, &[AesGmac, AesCmac, HmacSha256], |one| *one as u16);
                agreed.filter(|_| is_311).unwrap_or(AesCmac)
            }
        };
        let mut capabilities = 0;
        if dialect >= Dialect::V2_1 {
            capabilities |= capability::LEASING | capability::LARGE_MTU;
        }
        if dialect.is_3() {
            // Several connections and persistent handles are for clients that know how (§3.3.5.4).
            const FOR_THOSE: u32 = capability::MULTI_CHANNEL | capability::PERSISTENT_HANDLES;
            capabilities |= capability::DIRECTORY_LEASING | fixed.capabilities & FOR_THOSE;
        }
        if cipher.is_some() && !is_311 {
            capabilities |= capability::ENCRYPTION;
        }
        let mut contexts = Vec::new();
        if is_311 {
            let mut salt = [0; 32];
            if os::fill_random(&mut salt).is_err() {
                return refused(NtStatus::INSUFFICIENT_RESOURCES);
            }
            contexts.push((context::PREAUTH, preauth_data(&salt)));
            if offer.ciphers.is_some() {
                contexts.push((context::ENCRYPTION, numbers_data(&[cipher.map_or(0, |kind| kind as u16)])));
            }
            if offer.signing.is_some() {
                contexts.push((context::SIGNING, numbers_data(&[signing as u16])));
            }
            if offer.posix {
                contexts.push((context::POSIX, POSIX_GUID.to_vec()));
            }
        }
        let body = self.negotiate_body(dialect as u16, capabilities, &contexts);
        let mut hash = PreauthHash::START;
        hash.update(message);
        let client = ClientGuid(fixed.client_guid);
        state.negotiated = Some(Negotiated {
            dialect,
            client,
            signing,
            cipher,
            hash,
            posix: is_311 && offer.posix,
            capabilities,
            client_capabilities: fixed.capabilities,
            client_mode: fixed.security_mode,
        });
        drop(state);
        let _ = header;
        self.join(client);
        Ok(Reply::done(body))
    }

    fn negotiate_body(&self, dialect: u16, capabilities: u32, contexts: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let token = hint(|mechanism| self.server.mechanisms.has(mechanism));
        let is_small = dialect == Dialect::V2_0_2 as u16;
        let max = if is_small { 64 << 10 } else { IO_BYTES_MAX };
        let at = HEADER_BYTES as u32 + 64;
        let context_offset = (at + token.len() as u32).next_multiple_of(8);
        let mut out = NegotiateResponse {
            security_mode: SIGNING_REQUIRED,
            dialect,
            context_count: contexts.len() as u16,
            server_guid: self.server.guid,
            capabilities,
            max_transact: if is_small { max } else { TRANSACT_BYTES_MAX },
            max_read: max,
            max_write: max,
            system_time: now(),
            start_time: 0,
            security_offset: at as u16,
            security_length: token.len() as u16,
            context_offset: if contexts.is_empty() { 0 } else { context_offset },
        }
        .to_bytes();
        out.put(&token);
        for (kind, data) in contexts {
            out.pad(0, 8);
            emit_context(&mut out, *kind, data);
        }
        out
    }

    /// Answers FSCTL_VALIDATE_NEGOTIATE_INFO. A client that sees another negotiation than this
    /// server has somebody in between, and its connection ends without an answer.
    pub(crate) fn validate_negotiation(&self, input: &[u8], max_output: u32) -> Result<Vec<u8>, Ends> {
        const DIFFERS: Ends = Ends("the client saw another negotiation than this server");
        let state = self.state.lock();
        let negotiated = state.negotiated.as_ref().ok_or(DIFFERS)?;
        let mut reader = Reader::new(input);
        let mut parse = || {
            let (capabilities, guid, mode) = (reader.u32()?, reader.array::<16>()?, reader.u16()?);
            let dialects = (0..reader.u16()?).map(|_| reader.u16()).collect::<Result<Vec<u16>, _>>()?;
            Ok::<_, Malformed>((capabilities, guid, mode, dialects))
        };
        let (capabilities, guid, mode, dialects) = parse().map_err(|_| DIFFERS)?;
        if max_output < 24 {
            return Err(DIFFERS);
        }
        let best = Dialect::ALL.into_iter().find(|one| dialects.contains(&(*one as u16)));
        if capabilities != negotiated.client_capabilities
            || guid != negotiated.client.0
            || mode != negotiated.client_mode
            || best != Some(negotiated.dialect)
        {
            return Err(DIFFERS);
        }
        let mut out = Vec::with_capacity(24);
        out.u32(negotiated.capabilities);
        out.put(&self.server.guid);
        out.u16(SIGNING_REQUIRED);
        out.u16(negotiated.dialect as u16);
        Ok(out)
    }
}

/// Returns the first of ours that the client offers.
/// Returns what the client likes best of ours: its list is in its order, as Windows takes it.
fn best_of<T: Copy>(offered: &Option<Vec<u16>>, ours: &[T], number: impl Fn(&T) -> u16) -> Option<T> {
    offered.as_ref()?.iter().find_map(|wanted| ours.iter().find(|one| number(one) == *wanted)).copied()
}

#[cfg(test)]
mod tests {
    use super::best_of;

    #[test]
    fn the_client_is_given_what_it_likes_best_of_ours() {
        let best = |offered: &[u16]| best_of(&Some(offered.to_vec()), &[2, 1, 4], |one| *one);
        assert_eq!(best(&[1, 2]), Some(1));
        assert_eq!(best(&[9, 4, 2]), Some(4));
        assert_eq!(best(&[9]), None);
        assert_eq!(best_of(&None, &[2], |one| *one), None);
    }
}
