//! The same without rings, as older kernels have it: requests are read of the device, and answers
//! written to it.

#![allow(clippy::duplicate_mod, reason = "both bring their own file system")]

#[path = "locks.rs"]
mod locks;
#[path = "mount.rs"]
mod mount;
