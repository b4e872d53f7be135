//! The rules of the file system, from outside: what operations decide on what is known.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod ctime;
mod extended;
mod linux;
mod locks;
mod meant;
mod monotone;
mod names;
mod opens;
mod permissions;
mod random;
mod situation;
mod tree;
