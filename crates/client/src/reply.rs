//! The client's replies to calls.

use ident::FileId;
use lease::Label;
use namespace::{Attributes, Conflict, Entry, Links, Stat};

/// The reply to a front door.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done.
    Nothing,
    /// Done, and this file has lost its last name by that.
    ///
    /// The file stays until the front door reports that it has forgotten it
    /// ([`crate::Input::Forgotten`]). A front door that does not know the file reports that at
    /// once.
    Lingers(FileId),
    /// A file found or made, and its stat.
    Node(Entry, Stat),
    /// A file found, and what no holder may be changing all the time: kind, mode and owner.
    Found(Entry, Attributes),
    /// Everything that stat shows.
    Stat(Stat),
    /// A link's target, or an attribute's value.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Label>),
    /// The wrapped reply was true once, and no lease says that it still is. No cache may keep it. A
    /// node's entry is leased and may be kept.
    Uncached(Box<Reply>),
    /// The binding of a name, or its absence. No lease says that it still holds, so no cache may
    /// keep the entry or the attributes.
    Glimpsed(Option<(Entry, Stat)>),
    /// The handle is open.
    ///
    /// `keep_pages`: the pages that the kernel has cached of the file are still valid. `uncached`:
    /// the file's content ping-pongs between machines, so reads through this handle should not be
    /// cached.
    Opened { keep_pages: bool, uncached: bool },
    /// Clients of the front door may cache the content, and with `write` change it behind the
    /// cache. The machine has so many handles on the file, and its content was published so often.
    Covered { write: bool, handles: u64, version: u64 },
    /// Content: the place of each part of the range. The host gathers the parts.
    Data(Vec<content::ReadPart>),
    /// The number of bytes taken.
    Written(u32),
    /// The names of a file.
    Links(Links),
    /// An offset.
    Offset(u64),
    /// Entries of a directory. `end` is true when none follow in this listing.
    Listing { entries: Vec<Listed>, upto: Upto, end: bool },
    /// The conflicting lock, if there is one.
    Lock(Option<Conflict>),
    /// Free space: bytes in all, bytes free, files in all.
    Space { total: u64, free: u64, files: u64 },
}

impl Reply {
    /// The inner reply, whether or not it may be kept.
    pub fn told(self) -> Reply {
        match self {
            Reply::Uncached(reply) => *reply,
            Reply::Glimpsed(Some((entry, stat))) => Reply::Node(entry, stat),
            reply => reply,
        }
    }
}

/// The end of a listing: the last entry that existed when the listing began.
///
/// New entries take positions behind the last, or positions that this machine had at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upto {
    /// The last position.
    pub last: u64,
    /// Each half-open range of positions held no entry.
    pub unused: [(u64, u64); 2],
}

impl Upto {
    /// Whether an entry at this position may have existed when the listing began.
    pub fn has(&self, position: u64) -> bool {
        position <= self.last && !self.unused.iter().any(|(from, to)| (*from..*to).contains(&position))
    }
}

/// One entry of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its exact label.
    pub label: Label,
    /// The entry itself. Its `position` is the cookie.
    pub entry: Entry,
    /// Its stat, if the caller asked for it and the client knows it without another round trip.
    pub stat: Option<Stat>,
    /// Its stat was reported, and no cache may keep it.
    pub uncached: bool,
}
