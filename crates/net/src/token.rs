//! The token that `leasehold invite` prints. By it a machine finds the cluster, recognizes it, and
//! is let in once.

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "lease1-";
/// The longest token that is parsed.
const CHARACTERS_MAX: usize = 2048;

/// An invitation to the cluster. Any machine that has the token can join until it is used or
/// expires.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The server's addresses, `host:port`; each is to be tried.
    pub addresses: Vec<String>,
    /// BLAKE3 of the authority's certificate.
    pub authority: [u8; 32],
    /// The secret by which the server recognizes the invitation (it stores the hash).
    pub secret: [u8; 16],
}

/// The error of a text that is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token: it must be what `leasehold invite` printed, whole (lease1-...)")]
pub struct TokenError;

impl Token {
    /// The hash that the server stores.
    pub fn hash(secret: &[u8; 16]) -> [u8; 32] {
        *crypto::hash(secret).as_bytes()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = postcard::to_allocvec(self).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

/// Leaves the secret out: the output may end up in a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?})", self.addresses)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let encoded = text.strip_prefix(PREFIX).filter(|text| text.len() <= CHARACTERS_MAX);
        let bytes = BASE64URL_NOPAD.decode(encoded.ok_or(TokenError)?.as_bytes()).map_err(|_| TokenError)?;
        postcard::from_bytes(&bytes).map_err(|_| TokenError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_read_as_it_was_printed() {
        let token = Token { addresses: vec!["hall:4470".into()], authority: [7; 32], secret: [9; 16] };
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert_eq!(format!(" {token}\n").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains('9'));
        assert_eq!(token.to_string().get(1..).unwrap_or_default().parse::<Token>(), Err(TokenError));
    }

    proptest! {
        #[test]
        fn nothing_that_is_typed_panics(text in "(lease1-)?[A-Za-z0-9_-]{0,200}|\\PC{0,40}") {
            let _ = text.parse::<Token>();
        }
    }
}
