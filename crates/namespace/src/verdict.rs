//! What deciding an operation gives.

use crate::{
    Attributes, Conflict, ContentChange, ContentHead, Disposition, Entry, Link, LockChange, Times, Timestamp,
};
use ident::FileId;
use lease::{Label, Lease};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Why an operation is refused: answers of the file system, not faults. A front door turns them
/// into errno or NTSTATUS:
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
/// `Stale` for a [`crate::Operation::Publish`] says that the file is gone, and so that nothing was
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
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
    /// Permission bits or ACL say no (EACCES).
    #[error("permission denied")]
    AccessDenied,
    /// Makes no sense: a directory into itself, a bad ACL, a read link of something else (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// Too many links (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The file itself is gone (ESTALE).
    #[error("stale file")]
    Stale,
    /// Another handle on the file does not go with the modes wanted (EBUSY, as Linux' SMB client
    /// has it; BlackBox §4.4).
    #[error("open elsewhere, and not shared")]
    SharingViolation,
    /// The file goes with its last handle, and gets no more (ENOENT, likewise; BlackBox §3.3).
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
    /// No space is left to set aside (ENOSPC).
    #[error("no space left")]
    NoSpace,
    /// The file's content cannot be had, or fails its hash (EIO).
    #[error("content is missing or damaged")]
    Damaged,
    /// This machine lost the lease that the call rested on, or the file system is shutting down
    /// (EIO).
    #[error("cut off from the servers")]
    CutOff,
    /// This machine may only read (EROFS).
    #[error("read-only file system")]
    ReadOnly,
    /// Somebody else's lock is in the way (EAGAIN).
    #[error("locked by somebody else")]
    WouldBlock,
    /// The file has as many locks as a file can have (ENOLCK).
    #[error("too many locks")]
    TooManyLocks,
    /// Whoever holds the lock waits, in the end, for who asks for it (EDEADLK).
    #[error("would wait for itself")]
    Deadlock,
    /// Whoever called does not wait any longer (EINTR).
    #[error("interrupted")]
    Interrupted,
}

/// What a decision returns to its asker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done; nothing to tell.
    Nothing,
    /// The entry found, made or moved.
    Entry(Entry),
    /// Everything that `stat` shows.
    Stat(Stat),
    /// A link's target or an attribute's value.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Label>),
    /// The lock that is in the way, if one is.
    Lock(Option<Conflict>),
}

/// What `stat` shows, beside what is constant.
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

/// One change to one field. Applying the effects of a decision in order is all that executing it
/// means, on either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// A file comes into being (its other fields are empty; effects that follow fill them).
    Birth {
        file: FileId,
        attributes: Attributes,
        content: ContentHead,
        #[serde(with = "serde_bytes")]
        target: Vec<u8>,
        times: Times,
    },
    /// `label` in `dir` is bound to `entry` from now on, whatever it was bound to.
    Bind { dir: FileId, label: Label, entry: Entry },
    /// `label` in `dir` is bound to nothing.
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
    /// The content's head becomes this and its extents change so. With [`ContentChange::Extents`]
    /// `head.occupied` is still the old one: a head does not tell what there was, so whoever
    /// carries this out adds the lengths of extents that rows gain, and subtracts those that they
    /// lose and the length of inline content that goes. With the other changes it is right as it
    /// stands.
    Content { file: FileId, head: ContentHead, change: ContentChange },
    /// Deletion is pending from now on, or not any more.
    Disposition { file: FileId, disposition: Option<Disposition> },
    /// The last link went, and somebody may have it open: it stays, without a name, until nobody
    /// has.
    Orphan { file: FileId },
    /// The file is no more: all its rows go, and its shares' leases with them.
    Death { file: FileId },
    /// What an owner on the machine that decided this has locked changes so.
    Lock { file: FileId, change: LockChange },
}

/// The effects of one operation, in order.
pub type Effects = SmallVec<[Effect; 4]>;

/// What [`crate::decide()`] says.
#[allow(
    clippy::large_enum_variant,
    reason = "success is the hot path, and a verdict is taken apart where it is returned"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It succeeds so.
    Done {
        /// For the asker.
        answer: Answer,
        /// For the state.
        effects: Effects,
    },
    /// It fails, and these read leases prove it.
    Refused {
        /// Why.
        error: Error,
        /// One counterexample: knowing these fields is enough to know the refusal.
        evidence: Vec<Lease>,
    },
    /// These leases are wanted to say more (at least the first that is missing; a server, which
    /// knows all, finds the rest).
    Unknown {
        /// In the order in which they were missed.
        wants: Vec<Lease>,
    },
}
