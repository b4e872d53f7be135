//! Messages as bytes: a header, and raw content beside it.
//!
//! A frame is one unit of a transport that delimits units itself. It is a postcard header; the
//! bytes after the header are the body.

use crate::{AccountRequest, Version};
use lease::SessionId;
use namespace::{Error, ShareId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest frame, in bytes. The largest honest message is a grant of a whole directory with the
/// inline content of its files.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// The longest greeting, and the longest answer to one, in bytes: both come from peers that are not
/// yet authenticated.
pub const GREETING_BYTES_MAX: usize = 8 << 10;

/// A frame that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header does not parse.
    #[error("a frame of {0} bytes is no message")]
    NoMessage(usize),
    /// Something follows a message that has no body.
    #[error("{0} bytes follow a message")]
    Trailing(usize),
    /// The frame claims a length beyond the maximum.
    #[error("a frame is longer than a frame may be")]
    TooLong,
    /// The peer ended the stream within the frame.
    #[error("a frame was cut short")]
    Cut,
}

/// Encodes a message without a body, or the value of a row.
///
/// # Panics
/// If the value cannot be encoded. Plain data always can be, and no empty encoding may stand for
/// something else.
pub fn encode(message: &(impl Serialize + ?Sized)) -> Vec<u8> {
    postcard::to_allocvec(message).expect("plain data can be encoded into memory")
}

/// Reads a message without a body.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, FrameError> {
    match decode_with_body(frame)? {
        (message, []) => Ok(message),
        (_, rest) => Err(FrameError::Trailing(rest.len())),
    }
}

/// Reads a message and the body beside it.
pub fn decode_with_body<T: DeserializeOwned>(frame: &[u8]) -> Result<(T, &[u8]), FrameError> {
    postcard::take_from_bytes(frame).map_err(|_| FrameError::NoMessage(frame.len()))
}

/// A request to the share server. A [`ShareReply`] of the same number answers it; replies come in
/// any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRequest {
    /// The request's number.
    pub number: u64,
    /// The call.
    pub what: ShareCall,
}

/// Work on a share's lease for a server's account, as the directory demands it. Idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ShareWork {
    /// A reference was published: lease the share for the server's account, then release the
    /// uploader's lease.
    Adopt(ShareId),
    /// The last reference is gone: release all leases on the share.
    Drop(ShareId),
}

/// A call to the share server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShareCall {
    /// Stores the body as these shares, with a lease on each by this machine's account for its
    /// session; answered when the shares are durable.
    Store {
        /// The session that the shares are uploaded in. A share that the directory has not heard of
        /// when the next session begins has no owner.
        session: SessionId,
        /// The shares, and the length of each in bytes.
        shares: Vec<(ShareId, u32)>,
    },
    /// Reads a part of a share.
    Read {
        /// The share.
        share: ShareId,
        /// The first byte.
        at: u32,
        /// The number of bytes.
        length: u32,
    },
    /// Releases the leases of this machine's accounts on these shares.
    LetGo(Vec<ShareId>),
    /// Reads a whole share, which is checked. The answer's body is the share's digest (16 bytes),
    /// then its bytes.
    Fetch(ShareId),
    /// Asks whether each of these shares is kept here: sound, and leased by the group.
    Keep(Vec<ShareId>),
    /// Reports that bytes of the share did not match their hash: the host is to verify the share.
    Doubt(ShareId),
    /// Asks for the state of the host's copies; the answer's body is a [`ShareStanding`].
    Standing,
    /// Asks for a report on the host's store, for people. The answer's body is JSON, which the
    /// caller forwards.
    Report,
    /// Asks which store this is. The answer's body is the store's name, 16 bytes, for which
    /// accounts sign.
    Which,
    /// Carries the request of an account; the answer's body is an [`crate::AccountAnswer`].
    Account(AccountRequest),
    /// Asks for the host's room for content; the answer's body is a [`crate::Space`].
    Space,
}

impl ShareCall {
    /// The first version that has this call: a host that speaks an earlier one is not asked. All
    /// calls are of version 1; a call that a later version adds is listed here.
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

/// The state of the copies that a host keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStanding {
    /// Shares that the host keeps.
    pub kept: u64,
    /// Bytes of those shares.
    pub bytes: u64,
    /// Shares that the host is to keep and is known not to have.
    pub missing: u64,
    /// The missing shares that are being fetched.
    pub fetching: u64,
    /// Shares that the host keeps until the hosts that are to keep them have them.
    pub leaving: u64,
    /// The set of hosts that this is about: equal on machines that know of the same hosts.
    pub hosts: u64,
    /// Whether all shares have been examined since the hosts last changed, and none is missing or
    /// leaving.
    pub complete: bool,
}

/// Answers a [`ShareRequest`]; the body holds the bytes asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareReply {
    /// The number of the request.
    pub number: u64,
    /// The results; for `Store` and `Keep`, share by share.
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
