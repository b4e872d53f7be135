//! Kerberos 5, the side of a service (RFC 4120 §3.2.3, RFC 4121 §4.1, MS-KILE §3.4.5).
//!
//! A client shows a ticket, which the realm has encrypted with the key that is in the keytab, and
//! an authenticator, which it has encrypted with the ticket's session key. Groups and other claims
//! in a ticket (PAC) count for nothing: users and their groups are the machine's.

mod gss;
mod keytab;
mod messages;
mod replays;
#[cfg(test)]
pub(super) mod tests;

pub use gss::Context;
pub use keytab::{Keytab, KeytabError};
pub use replays::{REPLAYS_MAX, Replays};

use super::refused::Refused;
use crate::time::{filetime, timestamp};
use crypto::kerberos::EncryptionKey;
use messages::{Authenticator, Request, TicketPart};
use namespace::Timestamp;

/// How far a client's clock may be from this machine's, seconds.
pub const SKEW: i64 = 300;
/// The random bytes that an answer needs: a confounder, a subkey, a sequence number.
pub const RANDOM_BYTES: usize = 16 + 32 + 4;

const WEAK: Refused = Refused("the encryption type is weak or unknown");

/// Usages of keys (RFC 4120 §7.5.1).
mod usage {
    pub const TICKET: u32 = 2;
    pub const AUTHENTICATOR: u32 = 11;
    pub const REPLY: u32 = 12;
}

/// The service that a machine is.
pub struct Service<'a> {
    /// Returns the keys, if they can be read.
    pub keytab: &'a dyn Fn() -> Option<Keytab>,
    /// The authenticators that were used.
    pub replays: &'a Replays,
    /// Returns whether the machine has a user of this name.
    pub is_user: &'a dyn Fn(&str) -> bool,
}

/// A client that has proven who it is.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The user.
    pub user: String,
    /// The keys that both have now.
    pub context: Context,
    /// The proof of the service, if the client wants one.
    pub reply: Option<Vec<u8>>,
    /// When the ticket ends, a FILETIME.
    pub expires: u64,
}

impl Service<'_> {
    /// Checks a client's first token. `time` is a FILETIME.
    pub fn accept(&self, token: &[u8], time: u64, random: &[u8; RANDOM_BYTES]) -> Result<Accepted, Refused> {
        let now = timestamp(time).secs;
        let request = Request::parse(gss::request(token)?)?;
        if request.is_user_to_user {
            return Err(Refused("the ticket is from user to user"));
        }
        let keytab = (self.keytab)().ok_or(Refused("the keytab cannot be read"))?;
        let ticket = TicketPart::parse(&keytab.open(&request)?)?;
        check_time(&ticket, now)?;
        let sealed = request.authenticator;
        if sealed.kind != ticket.key.kind() as i32 {
            return Err(Refused("the authenticator has another encryption type than the session key"));
        }
        let plain = ticket
            .key
            .decrypt(usage::AUTHENTICATOR, sealed.cipher)
            .map_err(|_| Refused("the authenticator is encrypted with another key than the session's"))?;
        let authenticator = Authenticator::parse(&plain)?;
        if authenticator.client != ticket.client || authenticator.realm != ticket.realm {
            return Err(Refused("the authenticator is another client's"));
        }
        if (authenticator.time - now).abs() > SKEW {
            return Err(Refused("the client's clock is more than 5 minutes off"));
        }
        let (kind, checksum) = authenticator.checksum.ok_or(Refused("the authenticator has no checksum"))?;
        let wants_reply = gss::wants_reply(kind, checksum)?;
        if ticket.realm != request.realm {
            return Err(Refused("the client is of another realm"));
        }
        // `anna/admin` and services are others than `anna`, as in MIT's rule.
        let [user] = &ticket.client[..] else { return Err(Refused("the client is no user's principal")) };
        if !(self.is_user)(user) {
            return Err(Refused("the user is unknown"));
        }
        self.replays.admit(user, sealed.cipher, authenticator.time + SKEW, now)?;
        let (context, reply) = answer(&ticket.key, &authenticator, wants_reply, random);
        let expires = filetime(Timestamp { secs: ticket.ends, nanos: 0 });
        Ok(Accepted { user: user.clone(), context, reply, expires })
    }
}

fn check_time(ticket: &TicketPart, now: i64) -> Result<(), Refused> {
    if ticket.is_invalid || ticket.starts > now + SKEW {
        return Err(Refused("the ticket is not valid yet"));
    }
    if ticket.ends < now - SKEW {
        return Err(Refused("the ticket has expired"));
    }
    Ok(())
}

/// Makes the context. A client that wants no reply never learns a subkey of the service.
fn answer(
    session_key: &EncryptionKey,
    authenticator: &Authenticator<'_>,
    wants_reply: bool,
    random: &[u8; RANDOM_BYTES],
) -> (Context, Option<Vec<u8>>) {
    let best = authenticator.subkey.as_ref().unwrap_or(session_key);
    if !wants_reply {
        return (Context { key: best.clone(), is_acceptors: false, sequence: 0 }, None);
    }
    let (confounder, rest) = random.split_first_chunk().expect("16 bytes at first");
    let (subkey, number) = rest.split_at(32);
    let subkey =
        EncryptionKey::new(best.kind(), &subkey[..best.kind().key_bytes()]).expect("as long as it says");
    // Some libraries take a number above 2^30 for a negative one.
    let sequence = u32::from_be_bytes(number.try_into().expect("four bytes at last")) >> 2;
    let part = authenticator.reply_part(&subkey, sequence);
    let cipher = session_key.encrypt(usage::REPLY, *confounder, &part);
    let reply = gss::reply(&messages::reply(session_key.kind(), &cipher));
    (Context { key: subkey, is_acceptors: true, sequence }, Some(reply))
}
