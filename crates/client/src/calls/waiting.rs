//! A call under way: its caller, its progress, and the event that it waits for.

use crate::server::{Allowance, ServerId};
use crate::{Call, Now, Ticket};
use ident::FileId;
use lease::Time;
use namespace::{Answer, Attributes, Cred, Error, LockChange, Operation};
use std::collections::BTreeMap;
use wire::FileGrant;

/// The number of grants that are recalled before their call can use them. After these the server is
/// asked to do the operation itself.
const LOST_RACES_MAX: u8 = 2;

/// The event that a waiting call waits for.
#[derive(Debug)]
pub(crate) enum WaitingFor {
    /// The session with this server is open (again).
    Session(ServerId),
    /// The request with this number is answered.
    Number(u64),
    /// Nothing: the call is to be tried again at once.
    Answered,
    /// The effects of the operations that the server is doing for this client are known.
    Quiet,
    /// Integers of a directory are at hand.
    Integers(FileId),
    /// Inode numbers of this server are at hand.
    Inodes(ServerId),
    /// The server has answered the request for a larger allowance.
    Allowance(ServerId),
    /// The server has reported how much space there is.
    Space,
    /// This time: the space of replaced content may be free then.
    Freed { until: Time },
    /// Entries of this server's log up to this one are durable.
    Applied(ServerId, u64),
    /// Content is published up to the barriers of its flush.
    Published(BTreeMap<FileId, u64>),
    /// There is less dirty content.
    Room,
    /// The conflicting locks are released, or the lease that shows them is recalled.
    Unlocked { file: FileId, change: LockChange },
    /// The content of a file is released, which another client waits for.
    Revocation(FileId),
    /// This server confirms this log entry of a write-through change.
    Heard(ServerId, u64),
}

/// A call under way, from its first try to its answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub cred: Cred,
    pub call: Call,
    pub caller: Caller,
    /// When the call came.
    pub since: Time,
    pub on: WaitingFor,
    pub progress: Progress,
    pub lost_races: u8,
    /// The next request is for current values without a lease.
    pub hurries: bool,
    /// The next request takes nothing from another machine that holds it to change it.
    pub spares: bool,
    /// Values that the server reported without a lease, for the next try.
    pub told: Vec<FileGrant>,
    /// The allowance at the call's last request for more.
    pub asked_allowance: Option<Allowance>,
    /// When a server first answered that it has no space for the call.
    pub full_since: Option<Time>,
}

/// The party that made a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A front door, which waits for the answer.
    FrontDoor,
    /// The client itself, for instance to close a file that lingers no more.
    Client,
    /// The client itself, to open this file again.
    Reopening(FileId),
}

/// How far a call has come that takes more than one step.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing of it is done.
    Nothing,
    /// A sync: content is flushed up to these barriers, and then logs up to these entries.
    Syncing { barriers: BTreeMap<FileId, u64>, up_to: Vec<(ServerId, u64)> },
    /// An operation that the server is to do once content is in the log up to these barriers.
    Publishing(BTreeMap<FileId, u64>),
    /// An operation that the server is to do once other servers have their logs up to these
    /// entries.
    Ordering(Vec<(ServerId, u64)>),
    /// A cover, after the question whether other machines have the file open in these modes.
    Inquired(lease::OpenModes),
    /// A write in write-through mode: this many bytes are written.
    Written(u32),
    /// The server has answered: it has done the operation, or refuses it.
    Shipped(Result<ShippedAnswer, Error>),
}

/// The result of an operation that the server has done.
#[derive(Clone, Debug)]
pub(crate) struct ShippedAnswer {
    pub answer: Answer,
    /// The new attributes of the file that the operation made, linked or changed.
    pub attributes: Option<Attributes>,
    /// The error of the request for the rest of the reply. By then the file is gone, or is where
    /// this machine may not look.
    pub refused: Option<Error>,
}

impl Waiting {
    /// A call of a front door.
    pub fn new(now: Now, cred: Cred, call: Call) -> Waiting {
        Waiting::untried(now.time, Caller::FrontDoor, cred, call)
    }

    /// A call that came at `since` and has not been tried.
    pub fn untried(since: Time, caller: Caller, cred: Cred, call: Call) -> Waiting {
        Waiting {
            cred,
            call,
            caller,
            since,
            on: WaitingFor::Answered,
            progress: Progress::Nothing,
            lost_races: 0,
            hurries: false,
            spares: false,
            told: Vec::new(),
            asked_allowance: None,
            full_since: None,
        }
    }

    /// A call of the client itself. It names no user.
    pub fn own(now: Now, caller: Caller, call: Call) -> Waiting {
        Waiting::untried(now.time, caller, Cred::default(), call)
    }

    /// Whether the server has answered the operation itself.
    pub fn is_shipped(&self) -> bool {
        matches!(self.progress, Progress::Shipped(_))
    }

    /// Whether the call's grants were recalled too often before it could use them.
    pub fn keeps_losing(&self) -> bool {
        self.lost_races >= LOST_RACES_MAX
    }
}

impl Waiting {
    /// Whether the server may do the operation instead of granting leases.
    ///
    /// That is so once for each call, and only if the operation is the call's own update. Content,
    /// handles and locks go by their leases only, since a lock may have to wait. Questions also go
    /// by leases only: front doors cache the answers, and nothing would be recalled for that.
    pub fn may_ship(&self, operation: &Operation) -> bool {
        let is_it = operation.is_update()
            && !matches!(
                operation,
                Operation::Publish { .. }
                    | Operation::Dispose { .. }
                    | Operation::Lock { .. }
                    | Operation::Accessed { .. }
            );
        is_it && !self.is_shipped()
    }
}

/// A waiting call, for the machine's log. The client does not know which machine keeps it waiting,
/// and must not learn other machines' holdings (BlackBox §3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitReport {
    /// The call's ticket.
    pub ticket: Ticket,
    /// The name of the call.
    pub call: &'static str,
    /// How long the call has waited, ms.
    pub for_ms: u64,
    /// The reason for which the call waits.
    pub reason: WaitReason,
}

/// The reason for which a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// There is no connection to the server.
    Connection,
    /// Another machine waits for the file's content, which is released first.
    ContentRelease,
    /// Content or operations of this machine are to be durable at the server.
    Storing,
    /// The disk of the server is full.
    Space,
    /// The server is to answer, or another machine that has to release leases first.
    Server,
}
