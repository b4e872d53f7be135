//! The FUSE front door.
