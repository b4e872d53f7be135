//! Authentication: SPNEGO around Kerberos (RFC 4121, MS-KILE) and NTLMv2 (MS-SPNG, MS-NLMP). It
//! fails closed: whatever is absent, odd or in doubt is refused.

mod acceptor;
mod der;
pub mod kerberos;
pub mod ntlm;
mod refused;
pub mod spnego;

pub use acceptor::{Acceptor, Authenticated, HashOf, RANDOM_BYTES, Step, Trust};
pub use refused::Refused;
pub use spnego::{Mechanism, hint};

#[cfg(test)]
pub(crate) mod tests;
