//! Authentication: SPNEGO around NTLMv2 (MS-SPNG, MS-NLMP). It fails closed: whatever is absent,
//! odd or in doubt is refused.

mod acceptor;
mod der;
pub mod ntlm;
pub mod spnego;

pub use acceptor::{Acceptor, Authenticated, LogonFailed, Step};
pub use spnego::hint;

#[cfg(test)]
pub(crate) mod tests;
