//! What clients and servers say to each other. Every message names what it grants, recalls or
//! releases (Farsite §6: recipients need not draw inferences).

use crate::{LOG_ENTRIES_MAX, Receipt, Rights, Version};
use ident::FileId;
use lease::{Field, Kind, Label, Lease, Open, Others, Released};
use namespace::{
    Answer, Attributes, ContentHead, Disposition, Effect, Entry, Error, Extent, Links, Locks, Operation,
    Times,
};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A machine of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MachineId(pub u64);

/// Client to server, within its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// Keeps the session alive.
    Renew,
    /// Wants what `operation` needs, all or nothing. Stands behind the log: the server decides on
    /// its own state, so files and labels that this client made must be there (send what is unsent
    /// of the log first).
    Ask {
        /// Names the request; counts up within the session.
        number: u64,
        /// The whole operation: the server decides on the authoritative state what is really
        /// needed.
        operation: Operation,
        /// What the client found missing. Anything that it holds already it gets the values of once
        /// more. In mode `Ship` what it doubts, beside the files that the operation names: it
        /// answers from that only when it has heard what was done.
        wants: Vec<Lease>,
        /// What is wanted of the server.
        mode: AskMode,
    },
    /// Updates and releases, one FIFO: a release stands behind every update that used the lease.
    Log {
        /// Sequence number of the first entry; entries count up by one. What was seen already is
        /// skipped.
        first: u64,
        /// The entries: at most [`LOG_ENTRIES_MAX`].
        #[serde(deserialize_with = "log_entries")]
        entries: Vec<LogEntry>,
        /// Whether somebody waits for `Applied`. Otherwise it comes before whatever rests on these
        /// entries, or with that, or with the server's next tick: who is asked to let go or to
        /// flush need not hear of it by a message of its own.
        answer: bool,
    },
    /// Wants the next integers of `dir`, for identifiers and positions. Only who may write labels
    /// of `dir` gets them.
    Reserve { dir: FileId },
    /// Wants a block of inode numbers beyond those below `known`, where the last block that it was
    /// given ends. A block beyond that which it was given, and whose answer was lost, it is given
    /// again.
    ReserveInodes { known: u64 },
    /// Wants `want` (bytes, files) in all, and says what it still holds: what is unused, and what
    /// is set aside for content not yet published and updates not yet applied. The server takes
    /// `held` for what is outstanding and adds what it grants, so accounts cannot drift apart
    /// however often a client overwrites what it was charged for. `replaces` is what of that it
    /// lacks to replace content that is there: of a full disk it is lent so much, since what it
    /// frees is more than the loan before long.
    Allow { held: (u64, u64), want: (u64, u64), replaces: u64 },
    /// Wants inline content, or extents from `from` on, of `file`, under the content lease that it
    /// holds. Changes no state, so it is answered without a log entry.
    Extents { number: u64, file: FileId, from: u64 },
    /// Ends the session in order: everything is logged and released.
    Goodbye,
}

/// No more of them than a log may have are read: one that says nothing takes two bytes in a frame
/// and a hundred times as much in memory.
fn log_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LogEntry>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<LogEntry>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {LOG_ENTRIES_MAX} log entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<LogEntry>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = seq.next_element()? {
                if entries.len() == LOG_ENTRIES_MAX {
                    return Err(A::Error::invalid_length(entries.len() + 1, &self));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_seq(Entries)
}

/// What an `Ask` wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskMode {
    /// Leases and values, so that the client can decide itself.
    Lease,
    /// Leases and values for a page of a directory: entries whose position is above `after`.
    Page { after: u64 },
    /// The server is to do it: recall, decide on the authoritative state, commit, answer, grant
    /// nothing. For what is contended, and for what only a server knows. (Departs from Farsite §6:
    /// because two machines that want the same fields would take them from each other before either
    /// has done anything, and what is above what no client can lease.)
    Ship,
    /// Only the current values, no lease; a write holder flushes and keeps its lease.
    Report,
    /// For a question whose answer nobody is going to keep. As `Lease`, but what passes to and fro
    /// between machines is told as in `Report`, in a request for that alone: what else is missing
    /// is granted first.
    LeaseOrReport,
    /// As `Lease`, in its turn and once nobody is in the way, but only the values are told, as in
    /// `Report`: for a question that has lost again and again what it was granted before it could
    /// use it.
    Values,
}

/// An entry of a client's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEntry {
    /// Decided by `version`, and done on the client under its leases: to be decided again by the
    /// same.
    Update { version: Version, operation: Operation },
    /// Lets go of shared values.
    Release(Vec<Released>),
    /// Lets go of leases on black boxes of `file`, each down to what is kept of it. Where
    /// `SelfWrite` goes with that, the client's own value is what `own` says from now on.
    Return { file: FileId, fields: Vec<(Field, Option<Kind>)>, own: Open },
    /// Everything before this that touches what the report asked for is in the log now.
    Flushed { number: u64 },
    /// Answers `FlushThrough`. As `Flushed`; and from here on this client writes the content of
    /// `file` through: no change of it counts before the server has said `Heard` of the
    /// [`LogEntry::Wrote`] behind it. So what the server has of it is what there is, and who wants
    /// to know it need wait for nobody.
    FlushedThrough { number: u64, file: FileId },
    /// What stands before this of the content of `file` waits to count, and somebody waits for
    /// that.
    Wrote { file: FileId },
}

/// Server to client, within its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// A new session has begun; an earlier one of this machine is over.
    Opened {
        /// What integers to use first: inode numbers `first..end`.
        inodes: (u64, u64),
        /// Allowance: bytes and files.
        allowance: (u64, u64),
        /// What is free.
        space: Space,
        /// How long without a renewal until the session may be taken for lapsed, ms.
        term_ms: u64,
        /// By which version the machine is to decide.
        version: Version,
        /// What the machine may do, and which directory is its root.
        rights: Rights,
    },
    /// Renewed.
    Renewed { space: Space },
    /// Answers an `Ask` in mode `Lease` or `Page`. A client ignores of it whatever it let go in log
    /// entries that are not yet `Applied`: the grant was made before they were seen, and they take
    /// it back. Labels among `fields` are always fully valued, so one that has no entry in
    /// `children` is unused, even where an infinite lease comes along of which not all pages are
    /// there. Likewise attributes and `xattrs`.
    Granted { number: u64, grants: Vec<FileGrant>, gone: Vec<FileId> },
    /// Answers an `Ask` in mode `Ship`; or refuses one in any mode that the machine has no right
    /// to. The effects bring the client's own knowledge up to date, as far as it holds leases.
    Shipped { number: u64, result: Result<(Answer, Vec<Effect>), Error> },
    /// Answers an `Ask` in mode `Report` or `LeaseOrReport`: the values of `fields` at the time of
    /// the flush; no lease.
    Reported { number: u64, values: Vec<FileGrant>, gone: Vec<FileId> },
    /// Someone else needs these. To be answered by a release (of a black-box field by a return)
    /// even of what is no longer held, once; one of the same lease that is on its way already
    /// answers it. For whom and for what is nobody's business (BlackBox §3.3).
    Recall { leases: Vec<Released> },
    /// Someone wants to know the value: flush what is pending of it, keep the lease, log `Flushed`.
    Flush { number: u64, file: FileId, field: Field },
    /// All log entries up to and including `through` are durable at the server; these were refused.
    /// Comes before any grant, report or result that rests on them, but for one that says as much
    /// itself: the answer to the only request that the session has, if no part of the log came
    /// after that. The log before the request is durable then, and none of it refused that was not
    /// said. (Not to who asks again over a new connection, who has the log acknowledged first.)
    Applied { through: u64, rejected: Vec<(u64, Error)> },
    /// Answers `Reserve`: integers `first..end`.
    Reserved { dir: FileId, first: u64, end: u64 },
    /// Answers `ReserveInodes`.
    ReservedInodes { first: u64, end: u64 },
    /// Answers `Allow`: this much more than `held`; zero when nothing is left to set aside.
    Allowance { bytes: u64, files: u64, space: Space },
    /// Answers `Extents`: those that begin in `from..to` or reach into it; `to` is `u64::MAX` at
    /// the end. Or all of the content, where it is inline.
    Extents { number: u64, file: FileId, from: u64, to: u64, extents: Vec<Extent>, inline: Option<Vec<u8>> },
    /// The session is over; nothing that was not `Applied` counts.
    Fenced,
    /// The session goes on over a new connection, over which nothing was said yet. All log entries
    /// up to and including `through` are durable at the server; those in `rejected` were refused
    /// (it is remembered of the latest only). After this come the results of shipped operations
    /// that are remembered, and what the client was asked and has not answered: recalls and
    /// flushes. Everything else that was under way is lost: the client asks again.
    Resumed { through: u64, rejected: Vec<(u64, Error)>, space: Space, term_ms: u64, version: Version },
    /// As `Flush` of the content of `file`, which somebody asks for after each change: the client
    /// may answer that it writes through from now on.
    FlushThrough { number: u64, file: FileId },
    /// The server has the log up to `through`, durable or not, so what was written through of
    /// `file` up to there counts. Unless it `goes_on`, the file is written through no more: what is
    /// written of it counts at once again, and the server asks for it with `Flush`. Said once for
    /// each `Wrote`, and whenever it is to end.
    Heard { file: FileId, through: u64, goes_on: bool },
    /// To be shown with each greeting from now on. The host's alone: the directory neither makes
    /// nor needs it.
    Receipt(Receipt),
}

/// Leases on one file, and the values that they give knowledge of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileGrant {
    /// The file.
    pub file: FileId,
    /// Everything is granted in write: each field, all labels, all attributes. Then the lists below
    /// are empty.
    pub whole: bool,
    /// What is granted.
    pub fields: Vec<(Field, Kind)>,
    /// Labels (as folds) that an infinite child lease among `fields` does not cover.
    pub excluded: Vec<Label>,
    /// Names that an infinite attribute lease among `fields` does not cover.
    pub excluded_xattrs: Vec<Label>,
    /// The values.
    pub values: Values,
}

/// Values of a file's fields; what is not granted is not here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    pub attributes: Option<Attributes>,
    pub content: Option<ContentHead>,
    /// Inline content, with `content`.
    pub inline: Option<Vec<u8>>,
    /// Extents from offset 0 on, with `content`: complete below the second number.
    pub extents: Option<(Vec<Extent>, u64)>,
    pub times: Option<Times>,
    pub links: Option<Links>,
    /// Its deletion, if that is pending.
    pub disposition: Option<Option<Disposition>>,
    /// What is locked of it: the asker's own owners', and others' as one.
    pub locks: Option<Locks>,
    /// How others have the file open, with `OtherRead`: what their values come to, and nothing else
    /// of them.
    pub others: Others,
    /// Exact labels and what they are bound to.
    pub children: Vec<(Label, Entry)>,
    /// Folds of labels: everything that is bound to a label with one of these folds is in
    /// `children`.
    pub told: Vec<Label>,
    /// With an infinite child lease or a page: all entries with positions up to this one that the
    /// lease covers are in `children`, or were in earlier pages; `u64::MAX` when that is all of
    /// them.
    pub children_through: Option<u64>,
    /// With `children_through`: no entry stands, or ever stood, at a greater position. A listing
    /// that begins now ends there.
    pub children_last: u64,
    /// Attributes; with the infinite attribute lease, all that it covers.
    pub xattrs: Vec<(Label, Vec<u8>)>,
    /// Integers for identifiers and positions, with the right to write labels.
    pub reservation: Option<(u64, u64)>,
}

/// What is free, as the servers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that can still be set aside.
    pub free: u64,
    /// Files in all.
    pub files: u64,
    /// Bytes that the hosts keep back and that may be lent to those that replace content: what they
    /// replace is free before long.
    pub lends: u64,
}
