//! The verdict on an operation.

use crate::{
    Attributes, Conflict, ContentChange, ContentHead, Disposition, Entry, Link, LockChange, Times, Timestamp,
};
use ident::FileId;
use lease::{Label, Lease};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// The reason for a refusal: an answer of the file system, not a fault. A front door turns it into
/// errno or NTSTATUS:
///
/// | answer | errno | NTSTATUS |
/// | --- | --- | --- |
/// | `NotFound` | ENOENT (seeking beyond the end: ENXIO) | OBJECT_NAME_NOT_FOUND |
/// | `Exists` | EEXIST | OBJECT_NAME_COLLISION |
/// | `NotDirectory` | ENOTDIR | NOT_A_DIRECTORY |
/// | `IsDirectory` | EISDIR | FILE_IS_A_DIRECTORY |
/// | `NotEmpty` | ENOTEMPTY | DIRECTORY_NOT_EMPTY |
/// | `NotPermitted` | EPERM | ACCESS_DENIED |
/// | `AccessDenied` | EACCES | ACCESS_DENIED |
/// | `Invalid` | EINVAL | INVALID_PARAMETER |
/// | `TooManyLinks` | EMLINK | TOO_MANY_LINKS |
/// | `Stale` | ESTALE | FILE_CLOSED |
/// | `AnotherFile` | ESTALE | OBJECT_NAME_NOT_FOUND |
/// | `SharingViolation` | EBUSY | SHARING_VIOLATION |
/// | `DeletePending` | ENOENT | DELETE_PENDING |
/// | `NoAttribute` | ENODATA | NO_EAS_ON_FILE |
/// | `TooBig` | attributes: E2BIG; content: EFBIG | EA_TOO_LARGE; FILE_TOO_LARGE |
/// | `NotSupported` | EOPNOTSUPP | NOT_SUPPORTED |
/// | `NoSpace` | ENOSPC | DISK_FULL |
/// | `Damaged` | EIO | FILE_CORRUPT_ERROR |
/// | `CutOff` | EIO | CONNECTION_DISCONNECTED |
/// | `ReadOnly` | EROFS | MEDIA_WRITE_PROTECTED |
/// | `WouldBlock` | EAGAIN | LOCK_NOT_GRANTED |
/// | `TooManyLocks` | ENOLCK | INSUFFICIENT_RESOURCES |
/// | `Deadlock` | EDEADLK | POSSIBLE_DEADLOCK |
/// | `Interrupted` | EINTR | CANCELLED |
///
/// `Stale` for a [`crate::Operation::Publish`] says that the file is gone, so nothing was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// No such label (ENOENT).
    #[error("no such file")]
    NotFound,
    /// The label is bound already (EEXIST).
    #[error("exists already")]
    Exists,
    /// A directory is needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory will not do (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// The directory has children (ENOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// Ownership or privilege is missing (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// Permission bits or an ACL deny it (EACCES).
    #[error("permission denied")]
    AccessDenied,
    /// The operation makes no sense: a directory into itself, a bad ACL, a read link of another
    /// kind of file (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// Too many links (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The file itself is gone (ESTALE).
    #[error("stale file")]
    Stale,
    /// Another handle on the file conflicts with the wanted modes (EBUSY, as in Linux' SMB client;
    /// BlackBox §4.4).
    #[error("open elsewhere, and not shared")]
    SharingViolation,
    /// The file goes with its last handle, and gets no more handles (ENOENT, as in Linux' SMB
    /// client; BlackBox §3.3).
    #[error("about to be deleted")]
    DeletePending,
    /// No such extended attribute (ENODATA).
    #[error("no such attribute")]
    NoAttribute,
    /// Value or list too large (E2BIG, EFBIG).
    #[error("too large")]
    TooBig,
    /// Not supported for this kind of file or name (EOPNOTSUPP).
    #[error("not supported")]
    NotSupported,
    /// No space is left to reserve (ENOSPC).
    #[error("no space left")]
    NoSpace,
    /// The file's content is unavailable, or fails its hash (EIO).
    #[error("content is missing or damaged")]
    Damaged,
    /// This machine lost the lease that the call rested on, or the file system is shutting down
    /// (EIO).
    #[error("cut off from the servers")]
    CutOff,
    /// This machine may only read (EROFS).
    #[error("read-only file system")]
    ReadOnly,
    /// Another owner's lock conflicts (EAGAIN).
    #[error("locked by somebody else")]
    WouldBlock,
    /// The file has the maximum number of locks (ENOLCK).
    #[error("too many locks")]
    TooManyLocks,
    /// The lock's holder waits, directly or through others, for the caller (EDEADLK).
    #[error("would wait for itself")]
    Deadlock,
    /// The caller does not wait any longer (EINTR).
    #[error("interrupted")]
    Interrupted,
    /// The name is bound to another file than the one that the operation means (ESTALE).
    #[error("the name is another file's by now")]
    AnotherFile,
}

/// The answer to a successful operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done, without a value.
    Nothing,
    /// The entry found, made or moved.
    Entry(Entry),
    /// The entry found, and the attributes of its file without times and length.
    Found(Entry, Attributes),
    /// Everything that `stat` shows.
    Stat(Stat),
    /// A link's target or an attribute's value.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Label>),
    /// The conflicting lock, if there is one.
    Lock(Option<Conflict>),
}

/// The varying part of what `stat` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The attributes; `ctime` is the latest that applies.
    pub attributes: Attributes,
    /// Length in bytes (of a link, its target's; of a directory, 0).
    pub size: u64,
    /// Bytes occupied.
    pub occupied: u64,
    /// Modification time: of content, or of a directory's entries.
    pub mtime: Timestamp,
}

/// One change to one field. To execute a decision, either side applies its effects in order, and
/// does nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// A file comes into being. Its other fields are empty, and later effects fill them.
    Birth {
        file: FileId,
        attributes: Attributes,
        content: ContentHead,
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
        times: Times,
    },
    /// `label` in `dir` is bound to `entry` from now on, whatever its binding was.
    Bind { dir: FileId, label: Label, entry: Entry },
    /// `label` in `dir` is unbound.
    Unbind { dir: FileId, label: Label },
    /// `file` is linked there too.
    AddLink { file: FileId, link: Link },
    /// `file` is no longer linked there.
    DropLink { file: FileId, link: Link },
    /// The attributes become these.
    Attributes { file: FileId, attributes: Attributes },
    /// An entry of `dir` changed at `time`: [`Times::touched`].
    Touch { dir: FileId, time: Timestamp },
    /// A directory's times become these.
    Times { dir: FileId, times: Times },
    /// The extended attribute becomes this, or goes.
    Xattr { file: FileId, name: Label, value: Option<Vec<u8>> },
    /// The content gets this head, and its extents change as `change` says.
    ///
    /// With [`ContentChange::Extents`], `head.occupied` is still the old value, because a head does
    /// not show the old extents. The executor of the effect adds the lengths of extents that rows
    /// gain. It subtracts those that they lose, and the length of inline content that goes. With
    /// the other changes `head.occupied` is right as it stands.
    Content { file: FileId, head: ContentHead, change: ContentChange },
    /// Deletion is pending from now on, or no longer.
    Disposition { file: FileId, disposition: Option<Disposition> },
    /// The last link went, and a client may have the file open. The file stays without a name until
    /// no handle is open.
    Orphan { file: FileId },
    /// The file is dead. All its rows go, and its shares' leases with them.
    Death { file: FileId },
    /// An owner on the deciding machine changes its locks.
    Lock { file: FileId, change: LockChange },
}

impl Effect {
    /// The file that it changes.
    pub fn file(&self) -> &FileId {
        match self {
            Effect::Bind { dir, .. }
            | Effect::Unbind { dir, .. }
            | Effect::Touch { dir, .. }
            | Effect::Times { dir, .. } => dir,
            Effect::Birth { file, .. }
            | Effect::AddLink { file, .. }
            | Effect::DropLink { file, .. }
            | Effect::Attributes { file, .. }
            | Effect::Xattr { file, .. }
            | Effect::Content { file, .. }
            | Effect::Disposition { file, .. }
            | Effect::Orphan { file }
            | Effect::Death { file }
            | Effect::Lock { file, .. } => file,
        }
    }
}

/// The effects of one operation, in order.
pub type Effects = SmallVec<[Effect; 4]>;

/// The result of [`crate::decide()`].
#[allow(
    clippy::large_enum_variant,
    reason = "success is the hot path, and a verdict is taken apart where it is returned"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The operation succeeds.
    Done {
        /// For the caller.
        answer: Answer,
        /// For the state.
        effects: Effects,
    },
    /// The operation fails, and these read leases prove it.
    Refused {
        /// The reason.
        error: Error,
        /// One counterexample: knowledge of these fields is enough to know the refusal.
        evidence: Vec<Lease>,
    },
    /// The decision needs these leases. They are at least the first that is missing. A server,
    /// which knows everything, finds the rest.
    Unknown {
        /// In the order of the queries.
        wants: Vec<Lease>,
    },
}
