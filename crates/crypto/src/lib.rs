//! The cryptography: each algorithm is chosen here, once.
//!
//! The crate cannot reach any other of ours, nor a disk or a connection.
//!
//! | for | algorithm | here |
//! | --- | --- | --- |
//! | content | AES-256-GCM, with a key for each file | [`Cipher`] |
//! | certificates, requests of accounts | Ed25519 | [`SecretKey`], [`PublicKey`] |
//! | content and records that are read back, keys made of others | BLAKE3 | [`hash()`], [`Hasher`], [`derive_key`] |
//! | SMB messages, NTLM | what Microsoft's documents say | [`smb`] |
//! | Kerberos | AES with HMAC-SHA1 and HMAC-SHA2 | [`kerberos`] |
//! | connections | TLS 1.3 with the provider's cipher suites | [`provider`] |
//!
//! Another library takes the place of `ring` in this crate and in the features that the
//! workspace's `Cargo.toml` lists. No other crate of ours names one (`tests/dependencies`).
//!
//! Keys, nonces and seeds come in as values. The host draws them from the system, and the client
//! from a ChaCha12 generator that the host has seeded.

mod cipher;
pub mod kerberos;
mod signature;
pub mod smb;

pub use blake3::{Hash, Hasher, derive_key, hash};
pub use cipher::{Cipher, Key, Nonce, NotSealed, TAG_BYTES};
pub use signature::{NoKey, PublicKey, SecretKey, Signature};

use rustls::crypto::CryptoProvider;
use std::sync::Arc;

/// The cryptography of TLS, between machines and with object stores.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
