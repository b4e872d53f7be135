//! The local object store of a machine (MS-FSA): every open of a file, directory or stream by an
//! SMB client, with its rights, sharing, caching lease, locks and deletion on close. It stands
//! above the machine's client and below the front doors.
//!
//! The crate cannot reach SMB, the machine, connections and disks.
//!
//! A [`Store`] gives out [`Open`]s. FUSE's calls go through [`Store::file_service`], so that they
//! break the caching leases of SMB clients first.

mod alarm;
mod ask;
mod attributes;
mod breaks;
mod cache_holders;
mod closing;
mod content;
mod counted;
mod cover;
mod cursor;
mod dos;
mod error;
mod links;
mod listed;
mod listing;
mod locking;
mod naming;
mod open;
mod opening;
mod path;
mod pattern;
mod permission;
mod persisting;
mod ranges;
mod renaming;
mod replacing;
mod request;
mod resolve;
mod revocations;
mod rights;
mod securing;
mod security;
mod starting;
mod store;
mod store_service;
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
pub use links::{LinkOnPath, link_target, link_text};
pub use open::Open;
pub use opening::Opened;
pub use path::ObjectPath;
pub use persisting::KeptOpen;
pub use request::{
    BasicChange, BreakSink, ByteRange, Caching, Change, CreateAction, CreateDisposition, CreateOptions,
    Deletion, DosAttributes, Granted, Info, ListedEntry, Listing, OpenRequest, Posix, Root, StreamInfo,
    Target, TimeChange, VolumeSpace,
};
pub use security::SecurityDescriptor;
pub use store::Store;
pub use watch::Watch;
