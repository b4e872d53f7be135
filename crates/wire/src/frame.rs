//! Messages as bytes: a header, and raw content beside it.
//!
//! A frame is what a transport with lengths of its own carries: a postcard header, and whatever
//! follows it is the body.

use crate::{AccountRequest, Version};
use lease::SessionId;
use namespace::{Error, ShareId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest frame: a grant of a whole directory with the inline content of its files is the
/// largest honest message.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// The longest greeting, and the longest answer to one: both come from who is nobody yet.
pub const GREETING_BYTES_MAX: usize = 8 << 10;

/// A frame that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Its header does not parse.
    #[error("a frame of {0} bytes is no message")]
    NoMessage(usize),
    /// Something follows a message that has no body.
    #[error("{0} bytes follow a message")]
    Trailing(usize),
    /// It says that it is longer than any may be.
    #[error("a frame is longer than a frame may be")]
    TooLong,
    /// The peer ended the stream within it.
    #[error("a frame was cut short")]
    Cut,
}

/// A message without a body.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap_or_default()
}

/// Reads a message without a body.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, FrameError> {
    match decode_with_body(frame)? {
        (message, []) => Ok(message),
        (_, rest) => Err(FrameError::Trailing(rest.len())),
    }
}

/// Reads a message and what is beside it.
pub fn decode_with_body<T: DeserializeOwned>(frame: &[u8]) -> Result<(T, &[u8]), FrameError> {
    postcard::take_from_bytes(frame).map_err(|_| FrameError::NoMessage(frame.len()))
}

/// To the share server. Each is answered by a [`ShareReply`] of the same number, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRequest {
    /// Names it.
    pub number: u64,
    /// What is wanted.
    pub what: ShareCall,
}

/// What is wanted of the share server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShareCall {
    /// Store the body as these shares, with a lease of this machine's account for its session on
    /// each; answered when they are durable.
    Store {
        /// The session that they are uploaded in: what the directory has not heard of when the next
        /// one begins is nobody's.
        session: SessionId,
        /// Which, and of how many bytes each.
        shares: Vec<(ShareId, u32)>,
    },
    /// A part of a share.
    Read {
        /// Which.
        share: ShareId,
        /// From which byte on.
        at: u32,
        /// How many.
        length: u32,
    },
    /// This machine's accounts let go of them.
    LetGo(Vec<ShareId>),
    /// All of a share, which is checked; the answer's body is its digest, 16 bytes, and then its
    /// bytes.
    Fetch(ShareId),
    /// Whether each of these is kept here: sound, and leased by the group.
    Keep(Vec<ShareId>),
    /// Bytes of it did not match their hash: it is to be looked through.
    Doubt(ShareId),
    /// How the host's copies stand; the answer's body is a [`ShareStanding`].
    Standing,
    /// How the host's store stands, for people; the answer's body is JSON, which whoever asks
    /// passes on.
    Report,
    /// Which store this is; the answer's body is its name, 16 bytes, for which accounts sign.
    Which,
    /// What an account asks; the answer's body is an [`crate::AccountAnswer`].
    Account(AccountRequest),
    /// What room the host has for content; the answer's body is a [`crate::Space`].
    Space,
}

impl ShareCall {
    /// The first version in which it may be said: a host that speaks an earlier one is not asked.
    /// All are of version 1; what the next one adds says so here.
    pub fn since(&self) -> Version {
        match self {
            ShareCall::Store { .. }
            | ShareCall::Read { .. }
            | ShareCall::LetGo(_)
            | ShareCall::Fetch(_)
            | ShareCall::Keep(_)
            | ShareCall::Doubt(_)
            | ShareCall::Standing
            | ShareCall::Report
            | ShareCall::Which
            | ShareCall::Account(_)
            | ShareCall::Space => Version(1),
        }
    }
}

/// How the copies stand that a host keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStanding {
    /// Shares that it keeps.
    pub kept: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Shares that it is to keep and is known not to have.
    pub missing: u64,
    /// Of these, how many are being fetched.
    pub fetching: u64,
    /// Shares that it keeps until the hosts that are to keep them have them.
    pub leaving: u64,
    /// Which hosts this is about: equal on machines that know of the same ones.
    pub hosts: u64,
    /// All shares have been gone through since the hosts last changed, and none is missing or
    /// leaving.
    pub complete: bool,
}

/// Answers a [`ShareRequest`]; whatever bytes were asked for are the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareReply {
    /// Which.
    pub number: u64,
    /// How it went; for a store and for whether they are kept, share by share.
    pub results: Vec<Result<(), Error>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_beside_its_header() {
        let reply = ShareReply { number: 9, results: vec![Ok(())] };
        let mut frame = encode(&reply);
        frame.extend(b"body");
        assert_eq!(decode_with_body::<ShareReply>(&frame), Ok((reply.clone(), b"body".as_slice())));
        assert_eq!(decode::<ShareReply>(&frame), Err(FrameError::Trailing(4)));
        assert_eq!(decode::<ShareReply>(&[]), Err(FrameError::NoMessage(0)));
    }
}
