//! The vocabulary of the store: what callers ask for, and what they are answered.

use crate::{ObjectPath, SecurityDescriptor};
use bytes::Bytes;
use ident::FileId;
use lease::caching::{AccessMask, Break, CachingState, ClientGuid, LeaseKey, LeaseVersion, Sharing};
use namespace::Timestamp;

/// The root directory of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The directory.
    pub dir: FileId,
    /// Nothing is changed through this share: it refuses the rights to.
    pub read_only: bool,
    /// Listings have only what their user may read (access-based enumeration). A name that is known
    /// opens as ever.
    pub hides_unreadable: bool,
}

/// The disposition of an open: CreateDisposition, with the values of MS-SMB2 §2.2.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateDisposition {
    /// FILE_SUPERSEDE (0).
    Supersede,
    /// FILE_OPEN (1).
    Open,
    /// FILE_CREATE (2).
    Create,
    /// FILE_OPEN_IF (3).
    OpenIf,
    /// FILE_OVERWRITE (4).
    Overwrite,
    /// FILE_OVERWRITE_IF (5).
    OverwriteIf,
}

/// The effect of an open: CreateAction, with the values of MS-SMB2 §2.2.14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateAction {
    /// FILE_SUPERSEDED (0).
    Superseded,
    /// FILE_OPENED (1).
    Opened,
    /// FILE_CREATED (2).
    Created,
    /// FILE_OVERWRITTEN (3).
    Overwritten,
}

/// The options of an open: CreateOptions (MS-SMB2 §2.2.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CreateOptions(pub u32);

impl CreateOptions {
    /// FILE_DIRECTORY_FILE.
    pub const DIRECTORY: u32 = 0x1;
    /// FILE_WRITE_THROUGH.
    pub const WRITE_THROUGH: u32 = 0x2;
    /// FILE_NON_DIRECTORY_FILE.
    pub const NON_DIRECTORY: u32 = 0x40;
    /// FILE_NO_EA_KNOWLEDGE.
    pub const NO_EA_KNOWLEDGE: u32 = 0x200;
    /// FILE_DELETE_ON_CLOSE.
    pub const DELETE_ON_CLOSE: u32 = 0x1000;
    /// FILE_OPEN_BY_FILE_ID.
    pub const BY_FILE_ID: u32 = 0x2000;
    /// FILE_OPEN_FOR_BACKUP_INTENT.
    pub const BACKUP_INTENT: u32 = 0x4000;
    /// FILE_OPEN_REPARSE_POINT.
    pub const REPARSE_POINT: u32 = 0x20_0000;

    /// Returns whether all these bits are set.
    pub const fn has(self, bits: u32) -> bool {
        self.0 & bits == bits
    }
}

/// FileAttributes (MS-FSCC §2.6), as far as files have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DosAttributes(pub u32);

impl DosAttributes {
    /// FILE_ATTRIBUTE_READONLY.
    pub const READ_ONLY: u32 = 0x1;
    /// FILE_ATTRIBUTE_HIDDEN.
    pub const HIDDEN: u32 = 0x2;
    /// FILE_ATTRIBUTE_SYSTEM.
    pub const SYSTEM: u32 = 0x4;
    /// FILE_ATTRIBUTE_DIRECTORY.
    pub const DIRECTORY: u32 = 0x10;
    /// FILE_ATTRIBUTE_ARCHIVE.
    pub const ARCHIVE: u32 = 0x20;
    /// FILE_ATTRIBUTE_NORMAL.
    pub const NORMAL: u32 = 0x80;
    /// FILE_ATTRIBUTE_TEMPORARY.
    pub const TEMPORARY: u32 = 0x100;
    /// FILE_ATTRIBUTE_SPARSE_FILE.
    pub const SPARSE: u32 = 0x200;
    /// FILE_ATTRIBUTE_REPARSE_POINT.
    pub const REPARSE_POINT: u32 = 0x400;
    /// FILE_ATTRIBUTE_OFFLINE.
    pub const OFFLINE: u32 = 0x1000;
    /// FILE_ATTRIBUTE_NOT_CONTENT_INDEXED.
    pub const NOT_INDEXED: u32 = 0x2000;
    /// The attributes that are stored. A caller may set them, but for SPARSE, which
    /// [`crate::Open::set_sparse`] sets.
    pub const SETTABLE: u32 = DosAttributes::READ_ONLY
        | DosAttributes::SPARSE
        | DosAttributes::HIDDEN
        | DosAttributes::SYSTEM
        | DosAttributes::ARCHIVE
        | DosAttributes::TEMPORARY
        | DosAttributes::OFFLINE
        | DosAttributes::NOT_INDEXED;

    /// Returns whether any of these bits is set.
    pub const fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }
}

/// The caching that an open asks for. The caller has taken off what the share does not allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// Neither a lease nor an oplock.
    #[default]
    Nothing,
    /// A legacy oplock: R is level II, RW exclusive, RWH batch.
    Oplock(CachingState),
    /// A lease.
    Lease {
        /// Its key.
        key: LeaseKey,
        /// The state asked for.
        state: CachingState,
        /// The version of the request.
        version: LeaseVersion,
    },
}

/// A request to open.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The client, which names leases together with their keys.
    pub client: ClientGuid,
    /// DesiredAccess as it came: with generic rights and MAXIMUM_ALLOWED, if asked for.
    pub access: AccessMask,
    /// ShareAccess.
    pub sharing: Sharing,
    /// CreateDisposition.
    pub disposition: CreateDisposition,
    /// CreateOptions.
    pub options: CreateOptions,
    /// FileAttributes for a file that is made or overwritten.
    pub attributes: DosAttributes,
    /// Bytes to set aside for a file that is made or overwritten (SMB2_CREATE_ALLOCATION_SIZE); 0
    /// asks for nothing.
    pub allocation: u64,
    /// Extended attributes for a file that is made (SMB2_CREATE_EA_BUFFER), without prefix.
    pub eas: Vec<(String, Bytes)>,
    /// The security descriptor for a file that is made (SMB2_CREATE_SD_BUFFER).
    pub security: Option<SecurityDescriptor>,
    /// The lease or oplock asked for.
    pub caching: Caching,
    /// The mode of a file that is made with the POSIX extensions. Names are exact with them, and
    /// [`OpenRequest::is_posix`] says that.
    pub mode: Option<u16>,
    /// The client takes leases on directories (SMB 3.x).
    pub leases_directories: bool,
    /// The path is matched with regard to case, and every name that is a label is valid.
    pub is_posix: bool,
}

/// The caching that an open was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// Neither a lease nor an oplock.
    Nothing,
    /// A legacy oplock.
    Oplock(CachingState),
    /// The lease's state, which may be none. During a break, it is the state before.
    Lease {
        /// Its key.
        key: LeaseKey,
        /// The state.
        state: CachingState,
        /// Whether a break is under way (flag 0x2).
        is_breaking: bool,
        /// The version, which is that of the open that made the lease.
        version: LeaseVersion,
    },
}

/// Everything that a front door shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The file's number, which is its index number and its QFid. A stream has its file's.
    pub number: u64,
    /// The attributes. At least one is set.
    pub attributes: DosAttributes,
    /// When the file was made.
    pub created: Timestamp,
    /// When it was last read.
    pub accessed: Timestamp,
    /// When its content was last changed.
    pub written: Timestamp,
    /// When anything of it was last changed.
    pub changed: Timestamp,
    /// Its length in bytes; 0 for a directory.
    pub size: u64,
    /// Bytes that it occupies, or that are set aside for it; a multiple of the cluster size.
    pub allocation: u64,
    /// Names that it has. A file about to be deleted has one less.
    pub links: u32,
    /// The deletion disposition is set.
    pub delete_pending: bool,
    /// Whether the object is a directory.
    pub is_directory: bool,
    /// Whether the object is a symbolic link.
    pub is_link: bool,
    /// The POSIX mode, owner and group, with the kind's bits of `st_mode`.
    pub posix: Posix,
}

/// The POSIX side of an object's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posix {
    /// `st_mode`: kind and permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device.
    pub rdev: u32,
}

/// The attributes to set (FileBasicInformation and POSIX' mode and owner). `None` leaves one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasicChange {
    /// When the file was made.
    pub created: Option<TimeChange>,
    /// When it was last read.
    pub accessed: Option<TimeChange>,
    /// When its content was last changed.
    pub written: Option<TimeChange>,
    /// When anything was last changed.
    pub changed: Option<TimeChange>,
    /// The settable DOS attributes.
    pub attributes: Option<DosAttributes>,
    /// The permission bits. Needs WRITE_DAC.
    pub mode: Option<u16>,
    /// The owner. Needs WRITE_OWNER.
    pub uid: Option<u32>,
    /// The group. Needs WRITE_OWNER.
    pub gid: Option<u32>,
}

/// A change of a time (MS-FSCC §2.4.7, MS-FSA §2.1.5.15.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The time itself. The open's own acts do not move it from then on.
    At(Timestamp),
    /// -1: the open's own acts do not move it any more.
    Freeze,
    /// -2: they move it again.
    Thaw,
}

/// A target of a rename or a link.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path from the share's root (RootDirectory 0), or a stream's name, which begins with a
    /// colon.
    pub path: ObjectPath,
    /// An existing file of that name goes.
    pub replace: bool,
    /// POSIX semantics (FILE_RENAME_POSIX_SEMANTICS): files that are open do not stand in the way.
    pub posix: bool,
    /// A read-only target goes, too (FILE_RENAME_IGNORE_READONLY_ATTRIBUTE).
    pub ignore_read_only: bool,
}

/// The deletion disposition to set (FileDispositionInformation, FileDispositionInformationEx).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// The file goes; otherwise it stays.
    pub delete: bool,
    /// The name goes when this open closes, whoever else has the file open
    /// (FILE_DISPOSITION_POSIX_SEMANTICS).
    pub posix: bool,
    /// A read-only file goes, too (FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE).
    pub ignore_read_only: bool,
}

/// A range of bytes to lock or unlock (MS-SMB2 §2.2.26.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes, which may be 0.
    pub length: u64,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name, which is valid UTF-8 and can be opened.
    pub name: String,
    /// The number with which [`Listing::resume`] goes on behind it (FileIndex).
    pub index: u64,
    /// The size of its extended attributes (EaSize).
    pub ea_size: u32,
    /// The entry's object. A name that was removed meanwhile is left out.
    pub info: Info,
}

/// A query of a directory (MS-SMB2 §2.2.33).
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The pattern, with DOS wildcards. It counts in the first query and in one that restarts or
    /// reopens. `None` or an empty one is `*`.
    pub pattern: Option<String>,
    /// Begin at the first entry, with the pattern of the first query unless there is one here.
    pub restart: bool,
    /// Go on behind the entry with this index.
    pub resume: Option<u64>,
    /// Return at most so many entries. The rest is for the next query.
    pub limit: usize,
}

/// A named stream of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The name without colons and type; empty for the file's own content.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes set aside for it.
    pub allocation: u64,
}

/// Space on the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSpace {
    /// In all.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// The size of an allocation unit, of which allocations are multiples.
    pub cluster: u32,
}

/// A change that a watch reports (FILE_NOTIFY_INFORMATION, MS-FSCC §2.7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// FILE_ACTION_ADDED (1), _REMOVED (2), _MODIFIED (3), _RENAMED_OLD_NAME (4),
    /// _RENAMED_NEW_NAME (5), _ADDED_STREAM (6), _REMOVED_STREAM (7), _MODIFIED_STREAM (8).
    pub action: u32,
    /// The path below the watched directory, with backslashes.
    pub path: String,
}

/// The address of a client's lease breaks and oplock breaks.
///
/// The store calls it under its lock, so that breaks and answers keep their order. An
/// implementation only puts the message into a queue. It neither blocks nor calls the store.
pub trait BreakSink: Send + Sync {
    /// Sends a break: of a lease by its key ([`lease::caching::LeaseHolder::Lease`]), or of the
    /// oplock of one open. Returns false if the client has no connection. The store then takes the
    /// break as acknowledged with none.
    fn broken(&self, broken: &Break) -> bool;
}
