//! What the host gives the client and takes from it.

use bytes::Bytes;
use ident::FileId;
use lease::{Label, Time};
use namespace::{Error, ShareId, Timestamp};
use wire::{ToClient, ToServer};

use crate::{Reply, Salvage};

/// The clocks, read by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What leases count in (the clock that runs during suspend).
    pub time: Time,
    /// What files are stamped with.
    pub wall: Timestamp,
}

/// Names a call that could not be answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What became of a call.
#[derive(Debug)]
pub enum Outcome {
    /// Answered on the spot: the leases at hand covered it.
    Done(Result<Reply, Error>),
    /// An [`Output::Answer`] with this ticket follows.
    Waiting(Ticket),
}

/// An input beside calls.
#[derive(Clone, Debug)]
pub enum Input {
    /// There is a new connection to the server, and the host is about to send the greeting over it
    /// (`directory::Input::Open`; it names the session if
    /// [`Client::has_session`](crate::Client::has_session)): what was under way over an earlier one
    /// is lost, and nothing of that comes after this. Leases count from here, once the greeting has
    /// been answered. The same after [`ToClient::Fenced`], whether the connection stays or not: a
    /// new session is to be opened.
    Greeting,
    /// From the server.
    Message(ToClient),
    /// The share server has, or cannot take, this upload: the hashes of the sealed pieces in order.
    Stored {
        /// Which [`Output::Store`].
        upload: u64,
        /// BLAKE3 of each piece's ciphertext, or why not.
        result: Result<Vec<[u8; 32]>, Error>,
    },
    /// What [`Output::Yield`] named is gone from below, as far as it would go.
    Yielded {
        /// Which.
        number: u64,
    },
    /// Front doors have forgotten these, of which they were told that they linger
    /// ([`Reply::Lingers`]).
    Forgotten(Vec<FileId>),
    /// Time has passed; spurious ones do no harm.
    Tick,
}

/// What the host is to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// To the server, in this order.
    Send(ToServer),
    /// Answers a waiting call.
    Answer {
        /// Which.
        ticket: Ticket,
        /// How.
        result: Result<Reply, Error>,
    },
    /// Seal these pieces and store them as one share, durably; then [`Input::Stored`].
    Store(Upload),
    /// These shares were stored and are not needed after all: let go the machine's leases on them.
    Unneeded(Vec<ShareId>),
    /// The host need not keep the bytes of these shares any more: the server has what refers to
    /// them, or nobody will.
    Settled(Vec<ShareId>),
    /// What was done here and did not happen at the server: to be kept where the user finds it.
    /// Never silent. What of it is in shares the host has by its own: of each that it was told to
    /// store it keeps the bytes until it is told that they are settled or not needed.
    Salvage(Salvage),
    /// Leases are recalled that front doors have handed out below, or the server is to change what
    /// they are of: all of this is to go, then [`Input::Yielded`]; the leases are held until then,
    /// since what holds locks below may be waiting for an answer under them. Answers that were on
    /// their way meanwhile may bring it back: so it is to go once more after that.
    Yield {
        /// Names it.
        number: u64,
        /// What is to go.
        what: Vec<Invalidation>,
    },
    /// What front doors have handed out below is no longer covered by a lease.
    Invalidate(Invalidation),
}

/// Pieces of one file, to be sealed and stored as one share.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Names it.
    pub upload: u64,
    /// The share to make.
    pub share: ShareId,
    /// The file's key.
    pub key: [u8; 32],
    /// Nonce and plain bytes of each piece; their ciphertexts stand in the share one after the
    /// other.
    pub pieces: Vec<([u8; 12], Bytes)>,
}

/// What to invalidate below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Labels that fold to this one ([`namespace::fold()`]) may be bound to something else (or be
    /// bound at all) now.
    Entry(FileId, Label),
    /// Any label of a directory may be bound to something else, or to something at all.
    Entries(FileId),
    /// Attributes (and a directory's times).
    Attributes(FileId),
    /// Pages, and attributes with them.
    Pages(FileId),
    /// Whatever was handed out: the session was over, or nobody knows how long this machine was
    /// asleep.
    Everything,
}
