//! The rules of MS-SMB2 §3.3.1.4, one test after each.

mod breaks;
mod handle;
mod read;
mod shape;
mod upgrade;
mod write;
