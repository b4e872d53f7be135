//! Messages of SMB 2 and 3: bytes to values and back (MS-SMB2 §2.2). Parsing never panics, and
//! takes nothing from outside the message.
//!
//! Each body is a fixed part with a struct in [`bodies`], and buffers that its offsets point to.
//! Offsets count from the first byte of the header, so bodies are parsed out of whole messages.

pub mod bodies;
pub mod contexts;
mod cursor;
mod header;
pub mod negotiate;
mod status;
mod transform;

pub(crate) use cursor::units;
pub use cursor::{Malformed, Reader, Writer, text_of, utf16};
pub use header::{Command, Flags, HEADER_BYTES, Header, PROTOCOL, SMB1_PROTOCOL};
pub use status::NtStatus;
pub use transform::{TRANSFORM_BYTES, TRANSFORM_PROTOCOL, TransformHeader};

#[cfg(test)]
mod tests;
