//! The content of files, from outside: what is written, flushed, sealed and read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod extents;
mod flush;
mod model;
mod seal;
mod support;
