//! The bytes of every message, and the fate of bytes that are none.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod fuzz;
mod golden;
mod parts;
mod samples;
