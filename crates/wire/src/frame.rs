//! Messages as bytes: a header, and raw content beside it.
//!
//! A frame is what a transport with lengths of its own carries: a postcard header, and whatever follows it is the body.

use namespace::{Error, ShareId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest frame: a grant of a whole directory with the inline content of its files is the largest honest message.
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
    /// Store the body as these shares, of so many bytes each, with a lease of this machine's account on each; answered when they are durable.
    Store(Vec<(ShareId, u32)>),
    /// A part of a share.
    Read {
        /// Which.
        share: ShareId,
        /// From which byte on.
        at: u32,
        /// How many.
        length: u32,
    },
    /// This machine's account lets go of them.
    LetGo(Vec<ShareId>),
}

/// Answers a [`ShareRequest`]; the bytes of a read are the body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareReply {
    /// Which.
    pub number: u64,
    /// How it went; for a store, share by share.
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
