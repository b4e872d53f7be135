//! Sessions: how they begin, go on and end, the logs that they send, and what they leave behind.

pub(crate) mod departed_sessions;
pub(crate) mod greeting;
pub(crate) mod locks;
pub(crate) mod replay;
pub(crate) mod restored;
pub(crate) mod session;
