//! The messages between clients and servers. Every message names what it grants, recalls or
//! releases (Farsite §6: recipients need not draw inferences).

use crate::{LOG_ENTRIES_MAX, Receipt, Rights, Version};
use ident::{FileId, ServerId};
use lease::{Field, Kind, Label, Lease, OpenModes, Others, Released};
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

/// The machine that the cluster was made on.
pub const FOUNDER: MachineId = MachineId(1);
/// The number of the founder's member in the server group.
pub const FOUNDER_MEMBER: u64 = 1;

/// Client to server, within its session.
#[allow(
    clippy::large_enum_variant,
    reason = "requests are the most frequent: a box would cost each of them an allocation"
)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// Keeps the session alive.
    Renew,
    /// Asks for the leases that `operation` needs, all or nothing. The request stands behind the
    /// log: the server decides on its own state. So files and labels that this client made must be
    /// there, and the client sends the unsent part of its log first.
    Ask {
        /// The request's number; it counts up within the session.
        number: u64,
        /// The whole operation: the server decides on the authoritative state which leases it
        /// really needs.
        operation: Operation,
        /// The leases that the client found missing. For those that it holds already it gets the
        /// values once more. In mode `Ship`: the leases that the client doubts, beside those on the
        /// files that the operation names. The client answers from these only after it has the
        /// result.
        wants: Vec<Lease>,
        /// The kind of answer that the client wants.
        mode: AskMode,
    },
    /// Updates and releases, one FIFO: a release stands behind every update that used the lease.
    Log {
        /// Sequence number of the first entry; entries count up by one. The server skips entries
        /// that it has seen already.
        first: u64,
        /// The entries: at most [`LOG_ENTRIES_MAX`].
        #[serde(deserialize_with = "log_entries")]
        entries: Vec<LogEntry>,
        /// Whether the client waits for `Applied`. Otherwise `Applied` comes before or with
        /// whatever rests on these entries, or with the server's next tick. A client that answers a
        /// recall or a flush needs no message of its own for it.
        answer: bool,
    },
    /// Asks for the next integers of `dir`, for identifiers and positions. Only a session that may
    /// write labels of `dir` gets them.
    Reserve { dir: FileId },
    /// Asks for a block of inode numbers beyond those below `known`, the end of the last block that
    /// the client was given. If the server has given a later block and the answer was lost, it
    /// gives the same block again.
    ReserveInodes { known: u64 },
    /// Asks for `want` (bytes, files) in all, and reports what the session still holds. `held` is
    /// what is unused, and what is set aside for content not yet published and updates not yet
    /// applied. The server takes `held` for what is outstanding and adds what it grants. So
    /// accounts cannot drift apart, however often a client overwrites what it was charged for.
    /// `replaces` is the part of that which the client lacks to replace existing content. A full
    /// disk lends the client that much, because the replaced content soon frees more than the loan.
    Allow { held: (u64, u64), want: (u64, u64), replaces: u64 },
    /// Asks for inline content, or extents from `from` on, of `file`, under the content lease that
    /// the client holds. Changes no state, so the server answers without a Raft log entry.
    Extents { number: u64, file: FileId, from: u64 },
    /// Ends the session in order: everything is logged and released.
    Goodbye,
}

/// Reads at most as many entries as a log may have. An empty entry takes two bytes in a frame and a
/// hundred times as much in memory.
fn log_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LogEntry>, D::Error> {
    struct EntriesVisitor;

    impl<'de> Visitor<'de> for EntriesVisitor {
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

    deserializer.deserialize_seq(EntriesVisitor)
}

/// The kind of answer that an `Ask` wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskMode {
    /// Leases and values, so that the client can decide itself.
    Lease,
    /// Leases and values for a page of a directory: entries whose position is above `after`.
    Page { after: u64 },
    /// The server does the operation: it recalls, decides on the authoritative state, commits,
    /// answers, and grants nothing. For contended fields, and for facts that only a server knows.
    /// (Departs from Farsite §6: two machines that want the same fields would take them from each
    /// other before either has done anything; and no client can lease the chain of directories
    /// above a file.)
    Ship,
    /// Only the current values, no lease; a write holder flushes and keeps its lease.
    Report,
    /// For a question whose answer no client will keep. As `Lease`, but ping-pong fields are
    /// reported as in `Report`, in a request for these alone: leases on the other missing fields
    /// are granted first.
    LeaseOrReport,
    /// As `LeaseOrReport`, but every value is reported that another session holds to change. The
    /// asker takes nothing from a holder.
    LeaseIfFree,
    /// As `Lease`, in its turn and once no holder is in the way, but the server reports the values
    /// only, as in `Report`. For a question that has repeatedly lost its grant before the client
    /// could use it.
    Values,
}

/// An entry of a client's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEntry {
    /// An update that the client decided by `version` and did under its leases. The server decides
    /// it again by the same version.
    Update { version: Version, operation: Operation },
    /// Releases shared values.
    Release(Vec<Released>),
    /// Releases leases on black boxes of `file`, each down to what is kept of it. If `SelfWrite` is
    /// released, the client's own value is what `own` says from now on.
    Return { file: FileId, fields: Vec<(Field, Option<Kind>)>, own: OpenModes },
    /// Everything before this entry that touches what the report asked for is in the log now.
    Flushed { number: u64 },
    /// Answers `WriteThrough`. As `Flushed`; and from here on this client's writes to the content
    /// of `file` are write-through. No change of it counts before the server has said `Heard` of
    /// the [`LogEntry::Wrote`] behind it. So the server has the current content, and a reader need
    /// wait for no other client.
    WritesThrough { number: u64, file: FileId },
    /// The entries before this one that change the content of `file` wait to count, and a caller
    /// waits for that.
    Wrote { file: FileId },
}

/// Server to client, within its session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// A new session has begun; an earlier one of this machine is over.
    Opened {
        /// The inode numbers to use first: `first..end`.
        inodes: (u64, u64),
        /// Allowance: bytes and files.
        allowance: (u64, u64),
        /// The free space.
        space: Space,
        /// The time without a renewal after which the session may be taken for lapsed, ms.
        term_ms: u64,
        /// The version by which the machine is to decide.
        version: Version,
        /// The machine's rights, with the directory that is its root.
        rights: Rights,
    },
    /// Renewed.
    Renewed { space: Space },
    /// Answers an `Ask` in mode `Lease` or `Page`. A client ignores the part of it that the client
    /// has released in log entries that are not yet `Applied`: the grant was made before the server
    /// saw them, and they undo it. Labels among `fields` are always fully valued. So one that has
    /// no entry in `children` is unused, even beside an infinite lease whose pages are not all
    /// there. The same holds of attributes and `xattrs`.
    Granted { number: u64, grants: Vec<FileGrant>, gone: Vec<FileId> },
    /// Answers an `Ask` in mode `Ship`, or refuses one in any mode that the machine has no right
    /// to. The effects bring the client's own knowledge up to date, as far as it holds leases.
    Shipped { number: u64, result: Result<(Answer, Vec<Effect>), Error> },
    /// Answers an `Ask` in mode `Report` or `LeaseOrReport` with the values of `fields` at the time
    /// of the flush; no lease.
    Reported { number: u64, values: Vec<FileGrant>, gone: Vec<FileId> },
    /// Recalls leases that another session needs. The client answers once by a release (of a
    /// black-box field by a return), even if it no longer holds them. A release of the same lease
    /// that is on its way already answers the recall. The message does not say who needs the leases
    /// or for what (BlackBox §3.3).
    ///
    /// The session is likely to need those of `ahead` next. The client owes no answer for them: it
    /// releases what it holds of them and can spare at once, with the others.
    Recall { leases: Vec<Released>, ahead: Vec<Released> },
    /// Another session wants to know the value: the client flushes what is pending of it, keeps the
    /// lease, and logs `Flushed`.
    Flush { number: u64, file: FileId, field: Field },
    /// All log entries up to and including `through` are durable at the server; those in `rejected`
    /// were refused. This comes before any grant, report or result that rests on them. The one
    /// exception is an answer that says as much itself: the answer to the only request that the
    /// session has, if no part of the log came after that request. The log before the request is
    /// durable then, and every refusal in it has been reported. (A client that asks again over a
    /// new connection has the log acknowledged first.)
    ///
    /// The server remembers only the latest refusals. Other updates up to and including `forgotten`
    /// may have been refused as well: to the client they are lost, and it asks for what is there.
    /// An answer that it has had already says what is true of those.
    Applied { up_to: u64, rejected: Vec<(u64, Error)>, forgotten: u64 },
    /// Answers `Reserve`: integers `first..end`.
    Reserved { dir: FileId, first: u64, end: u64 },
    /// Answers `ReserveInodes`.
    ReservedInodes { first: u64, end: u64 },
    /// Answers `Allow`: the amount added to `held`; zero when nothing is left to set aside.
    Allowance { bytes: u64, files: u64, space: Space },
    /// Answers `Extents`: those that begin in `from..to` or reach into it; `to` is `u64::MAX` at
    /// the end. Inline content comes as a whole instead.
    Extents { number: u64, file: FileId, from: u64, to: u64, extents: Vec<Extent>, inline: Option<Vec<u8>> },
    /// The session is over; changes that were not `Applied` do not count.
    Fenced,
    /// The session goes on over a new connection, on which this is the first message. All log
    /// entries up to and including `through` are durable at the server. Those in `rejected` were
    /// refused, and those up to `forgotten` may have been, as `Applied` says. After this come the
    /// remembered results of shipped operations, and the recalls and flushes that the client has
    /// not answered. Everything else that was under way is lost: the client asks again.
    Resumed {
        up_to: u64,
        rejected: Vec<(u64, Error)>,
        forgotten: u64,
        space: Space,
        term_ms: u64,
        version: Version,
    },
    /// As `Flush` of the content of `file`, which is read after each change: the client may answer
    /// that it is write-through from now on.
    WriteThrough { number: u64, file: FileId },
    /// The server has the log up to `through`, durable or not, so write-through changes of `file`
    /// up to there count. If `goes_on` is false, write-through of the file ends: writes to it count
    /// at once again, and the server asks for them with `Flush`. The server sends this once for
    /// each `Wrote`, and whenever write-through is to end.
    Heard { file: FileId, up_to: u64, goes_on: bool },
    /// The receipt to show with each greeting from now on. It is the host's alone: the directory
    /// neither makes nor needs it.
    Receipt(Receipt),
    /// Answers an `Ask` or an `Extents` about a file that another server manages: all files of
    /// `region` are at that server, but for those of longer prefixes that the client knows to be
    /// elsewhere. Of two such messages about one region, or about a region and a part of it, the
    /// one with the greater `epoch` counts.
    /// That a file is elsewhere never means that the file is gone.
    Elsewhere { number: u64, region: FileId, epoch: u64, server: ServerId },
}

/// Leases on one file, and the values that they give knowledge of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileGrant {
    /// The file.
    pub file: FileId,
    /// Whether each field, all labels and all attributes are granted in write. Then the lists that
    /// follow are empty.
    pub whole: bool,
    /// The leases granted.
    pub fields: Vec<(Field, Kind)>,
    /// Labels (as folds) that an infinite child lease among `fields` does not cover.
    pub excluded: Vec<Label>,
    /// Names that an infinite attribute lease among `fields` does not cover.
    pub excluded_xattrs: Vec<Label>,
    /// The values.
    pub values: Values,
}

/// Values of a file's fields; those of fields that are not granted are absent.
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
    /// The file's deletion, if that is pending.
    pub disposition: Option<Option<Disposition>>,
    /// The file's locks: those of the asker's own owners, and all others as one.
    pub locks: Option<Locks>,
    /// How others have the file open, with `OtherRead`: the aggregate of their values and nothing
    /// else.
    pub others: Others,
    /// Exact labels and what they are bound to.
    pub children: Vec<(Label, Entry)>,
    /// Folds of labels: everything that is bound to a label with one of these folds is in
    /// `children`.
    pub told: Vec<Label>,
    /// With an infinite child lease or a page: the position up to which all entries that the lease
    /// covers are in `children`, or were in earlier pages; `u64::MAX` when those are all of them.
    pub children_up_to: Option<u64>,
    /// With `children_up_to`: the greatest position at which an entry stands or ever stood. A
    /// listing that begins now ends there.
    pub children_last: u64,
    /// Attributes; with the infinite attribute lease, all that it covers.
    pub xattrs: Vec<(Label, Vec<u8>)>,
    /// Integers for identifiers and positions, with the right to write labels.
    pub reservation: Option<(u64, u64)>,
}

/// The free space, as the servers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that can still be set aside.
    pub free: u64,
    /// Files in all.
    pub files: u64,
    /// Bytes that the hosts keep back and may lend to clients that replace content: the replaced
    /// content is free before long.
    pub lends: u64,
    /// Bytes that the other servers of the directory may grant: all have the same disks.
    pub elsewhere: u64,
}
