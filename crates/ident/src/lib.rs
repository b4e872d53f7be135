//! Tree-structured file identifiers, their order-preserving code, and prefix maps (Farsite §4.1).
//!
//! The crate cannot reach any other of ours. It has no input, no output and no clock.

mod code;
mod file_id;
mod file_map;
mod serial;
mod server_id;

pub use code::Malformed;
pub use file_id::{BITS_MAX, CHILD_BITS_MAX, FileId, INTEGER_MAX, OVERFLOW, Parts};
pub use file_map::FileMap;
pub use server_id::ServerId;
