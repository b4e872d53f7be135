//! The same tests without rings, as on older kernels: requests are read of the device, and answers
//! are written to it.

#![allow(clippy::duplicate_mod, reason = "both bring their own file system")]

#[path = "locks.rs"]
mod locks;
#[path = "mount.rs"]
mod mount;
