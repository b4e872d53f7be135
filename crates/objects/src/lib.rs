//! The local object store of a machine (MS-FSA): every open of a file, directory or stream by an
//! SMB client, with its rights, sharing, caching lease, locks and deletion on close. It stands
//! above the machine's client and below the front doors.
//!
//! A [`Store`] gives out [`Open`]s. FUSE's calls go through [`Store::door`], so that they break the
//! caching leases of SMB clients first.

mod alarm;
mod ask;
mod attributes;
mod below;
mod breaks;
mod closing;
mod content;
mod cover;
mod cursor;
mod door;
mod dos;
mod error;
mod listed;
mod listing;
mod locking;
mod naming;
mod open;
mod opening;
mod path;
mod pattern;
mod permission;
mod ranges;
mod recalls;
mod request;
mod resolve;
mod rights;
mod securing;
mod security;
mod starting;
mod store;
mod streams;
mod table;
mod underway;
mod watch;
mod watches;

pub use breaks::Acknowledged;
pub use error::StoreError;
pub use lease::caching::{
    AccessMask, AcknowledgeError, Break, CachingState, ClientGuid, LeaseHolder, LeaseId, LeaseKey,
    LeaseVersion, OpenId, Sharing,
};
pub use open::Open;
pub use opening::Opened;
pub use path::ObjectPath;
pub use request::{
    BasicChange, BreakSink, ByteRange, Caching, Change, CreateAction, CreateDisposition, CreateOptions,
    Deletion, DosAttributes, Entry, Granted, Info, Listing, OpenRequest, Posix, Root, Space, StreamInfo,
    Target, TimeChange,
};
pub use security::SecurityDescriptor;
pub use store::Store;
pub use watch::Watch;
