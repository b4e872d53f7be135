//! The inputs and outputs of the client, between it and its host.

use content::Upload;
use ident::{FileId, ServerId};
use lease::caching::CachingState;
use lease::{Label, Time};
use namespace::{Error, ShareId, Timestamp};
use std::collections::BTreeSet;
use wire::{ToClient, ToServer};

use crate::{Reply, Salvage};

/// The clocks, read by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time that leases count in (the clock that runs during suspend).
    pub time: Time,
    /// The time that files are stamped with.
    pub wall: Timestamp,
}

/// The name of a call that could not be answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The state of a call when it returns.
#[derive(Debug)]
pub enum Outcome {
    /// Answered on the spot: the leases at hand covered it.
    Done(Result<Reply, Error>),
    /// An [`Output::Answer`] with this ticket follows.
    Waiting(Ticket),
}

/// An input other than a call.
#[derive(Clone, Debug)]
pub enum Input {
    /// There is a new connection to this server, and the host is about to send the greeting over it
    /// (`directory::Input::Open`). The host connects to the root server by itself, and to another
    /// one after [`Output::Connect`].
    ///
    /// The greeting names the session there if [`Client::has_session`](crate::Client::has_session).
    /// Messages under way over an earlier connection are lost, and none of them comes after this
    /// input. Leases count from here, once the greeting has been answered. The host gives this
    /// input also after [`ToClient::Fenced`], on the same connection or a new one. Then the
    /// greeting opens a new session.
    Greeting(ServerId),
    /// A message from a server.
    Message(ServerId, ToClient),
    /// The share server has stored this upload, or has failed to.
    Stored {
        /// The upload of [`Output::Store`].
        upload: u64,
        /// BLAKE3 of each piece's ciphertext, in order, or the error.
        result: Result<Vec<[u8; 32]>, Error>,
    },
    /// Front doors have revoked the items of an [`Output::Revoke`], as far as they could.
    Revoked {
        /// The number of that output.
        number: u64,
        /// Files of which a front door keeps something that was offered.
        kept: BTreeSet<FileId>,
    },
    /// Front doors have forgotten these files, which lingered ([`Reply::Lingers`]).
    Forgotten(Vec<FileId>),
    /// Time has passed. Spurious ticks do no harm.
    Tick,
}

/// An action for the host.
#[derive(Clone, Debug)]
pub enum Output {
    /// Send this to the server, in this order.
    Send(ServerId, ToServer),
    /// Connect to this server, which manages files that a call wants. Then give
    /// [`Input::Greeting`]. The host keeps that connection as it keeps the one to the root server.
    Connect(ServerId),
    /// Answer a waiting call.
    Answer {
        /// The call.
        ticket: Ticket,
        /// Its result.
        result: Result<Reply, Error>,
    },
    /// Seal these pieces and store them durably as one share. Then give [`Input::Stored`].
    Store(Upload),
    /// These shares were stored and are not needed after all. Release the machine's leases on them.
    Unneeded(Vec<ShareId>),
    /// The host need not keep the bytes of these shares any more. The server has the publication,
    /// or no publication will need them.
    Settled(Vec<ShareId>),
    /// Keep these changes where the user finds them: they were done here and did not happen at the
    /// server. The host never drops them silently.
    ///
    /// Content in shares is read from the host's own copy. The host keeps the bytes of each share
    /// of an upload, until the share is settled or not needed.
    Salvage(Salvage),
    /// Revoke these items, then give [`Input::Revoked`].
    ///
    /// Front doors have cached them under leases that are recalled, or the server is about to
    /// change them. The client holds the leases until then, because a call that holds kernel locks
    /// may wait for an answer under them. Answers under way at the same time may put an item into a
    /// cache again. So it is revoked once more after that.
    Revoke {
        /// The number of this revocation.
        number: u64,
        /// The items to revoke.
        what: Vec<Invalidation>,
        /// Items of leases that the client need not release. A front door keeps what is in use.
        offered: Vec<Invalidation>,
    },
    /// Revoke this item: no lease covers it any more.
    RevokeUncovered(Invalidation),
}

/// An item that front doors remove from their caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// The binding of labels that fold to this one ([`namespace::fold()`]). They may be bound to
    /// another file now, or bound at all.
    Entry(FileId, Label),
    /// The binding of every label of a directory.
    Entries(FileId),
    /// Attributes, and a directory's times.
    Attributes(FileId),
    /// Pages, and attributes with them.
    Pages(FileId),
    /// The caching of a file by clients of front doors, beyond this state. They were covered by
    /// [`crate::call::Cover`]. The kernel takes it for [`Invalidation::Pages`].
    Caching(FileId, CachingState),
    /// Everything that front doors have cached. The session was over, or the machine was asleep for
    /// an unknown time.
    Everything,
}

impl Invalidation {
    /// The file, or the directory of the labels; none for everything.
    pub fn file(&self) -> Option<&FileId> {
        match self {
            Invalidation::Entry(file, _)
            | Invalidation::Entries(file)
            | Invalidation::Attributes(file)
            | Invalidation::Pages(file)
            | Invalidation::Caching(file, _) => Some(file),
            Invalidation::Everything => None,
        }
    }
}
