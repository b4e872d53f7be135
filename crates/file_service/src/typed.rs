//! The type of each call's reply.

use bytes::Bytes;
use client::{Call, Listed, Reply, Ticket, Upto, call};
use ident::FileId;
use lease::Label;
use namespace::{Attributes, Conflict, Cred, Entry, Error, Links, Stat};

use crate::{FileService, Response};

/// A call that names the type of its reply.
pub trait FileCall: Into<Call> {
    /// The reply to such a call.
    type Reply: Send + 'static;
    /// The reply in a response to such a call. Panics if the machine has answered with the reply to
    /// another.
    fn reply(response: Response) -> Self::Reply;
}

/// A reply, and whether the front door's clients may cache it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<T> {
    /// The reply.
    pub value: T,
    /// No lease says that it is still true: see [`Reply::Uncached`].
    pub uncached: bool,
}

/// The reply to a lookup.
#[derive(Clone, Debug)]
pub enum LookupReply {
    /// The name is this file's. The entry is leased.
    Leased(Observed<(Entry, Stat)>),
    /// The binding of the name, or its absence, as it was once: see [`Reply::Glimpsed`].
    Glimpsed(Option<(Entry, Stat)>),
}

/// The reply to a call that opens a handle: see [`Reply::Opened`].
#[derive(Clone, Copy, Debug)]
pub struct OpenedHandle {
    /// The pages that the kernel has cached of the file are still valid.
    pub keep_pages: bool,
    /// The content ping-pongs between machines, and reads should not be cached.
    pub uncached: bool,
}

/// The caching of a file that front doors' clients may do: see [`Reply::Covered`].
#[derive(Clone, Copy, Debug)]
pub struct Covered {
    /// They may write behind the cache.
    pub write: bool,
    /// The number of handles that the machine has on the file.
    pub handles: u64,
    /// How often content of the file was published; 0 for an extended attribute.
    pub version: u64,
}

/// A page of a listing: see [`Reply::Listing`].
#[derive(Clone, Debug)]
pub struct Listing {
    /// The entries, in the order of their positions.
    pub entries: Vec<Listed>,
    /// The end of the listing.
    pub upto: Upto,
    /// No entries follow in this listing.
    pub end: bool,
}

/// Free space: see [`Reply::Space`].
#[derive(Clone, Copy, Debug)]
pub struct FreeSpace {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Files in all.
    pub files: u64,
}

impl dyn FileService + '_ {
    /// Does `call` for `cred`, as [`FileService::call`] does, and responds with the call's own
    /// reply.
    pub fn ask<C: FileCall>(
        &self,
        cred: &Cred,
        call: C,
        respond: impl FnOnce(Result<C::Reply, Error>) + Send + 'static,
    ) -> Option<Ticket> {
        self.call(cred, call.into(), Box::new(move |response| respond(response.map(C::reply))))
    }
}

macro_rules! replies {
    ($($($call:ident)|+ => $reply:ty, $reply_in:path;)*) => {
        $($(
            impl FileCall for call::$call {
                type Reply = $reply;

                fn reply(response: Response) -> $reply {
                    $reply_in(response).unwrap_or_else(|| {
                        unreachable!("{} has the reply to another call", stringify!($call))
                    })
                }
            }
        )+)*
    };
}

replies! {
    Lookup => LookupReply, found;
    Parent | Create | Link => Observed<(Entry, Stat)>, node;
    Find => (Entry, Attributes), named;
    Stat | Glance | Peek | SetAttributes => Observed<Stat>, stat;
    Links => Links, links;
    ReadLink | GetXattr => Vec<u8>, bytes;
    ListXattrs | Spellings => Vec<Label>, names;
    Unlink | Rename => Option<FileId>, lingering;
    OpenFile => OpenedHandle, opened;
    Read => Vec<Bytes>, data;
    Write => u32, written;
    Seek => u64, offset;
    Cover => Covered, covered;
    List => Listing, listing;
    GetLock => Option<Conflict>, lock;
    Space => FreeSpace, space;
    Access | Accessed | Allocate | Close | Lock | RemoveXattr | SetDisposition | SetXattr => (), nothing;
    Sync | SyncAll => (), nothing;
}

fn found(response: Response) -> Option<LookupReply> {
    match response {
        Response::Reply(Reply::Glimpsed(node)) => Some(LookupReply::Glimpsed(node)),
        response => node(response).map(LookupReply::Leased),
    }
}

fn node(response: Response) -> Option<Observed<(Entry, Stat)>> {
    match response {
        Response::Reply(Reply::Node(entry, stat)) => Some(Observed { value: (entry, stat), uncached: false }),
        Response::Uncached(Reply::Node(entry, stat)) => {
            Some(Observed { value: (entry, stat), uncached: true })
        }
        _ => None,
    }
}

fn stat(response: Response) -> Option<Observed<Stat>> {
    match response {
        Response::Reply(Reply::Stat(value)) => Some(Observed { value, uncached: false }),
        Response::Uncached(Reply::Stat(value)) => Some(Observed { value, uncached: true }),
        _ => None,
    }
}

fn lingering(response: Response) -> Option<Option<FileId>> {
    match response {
        Response::Reply(Reply::Nothing) => Some(None),
        Response::Reply(Reply::Lingers(file)) => Some(Some(file)),
        _ => None,
    }
}

fn data(response: Response) -> Option<Vec<Bytes>> {
    match response {
        Response::Data(parts) => Some(parts),
        Response::Reply(_) | Response::Uncached(_) => None,
    }
}

/// Functions that take one shape of reply out of a response.
macro_rules! shapes {
    ($($name:ident: $pattern:pat => $value:expr, $reply:ty;)*) => {
        $(
            fn $name(response: Response) -> Option<$reply> {
                match response {
                    Response::Reply($pattern) => Some($value),
                    _ => None,
                }
            }
        )*
    };
}

shapes! {
    nothing: Reply::Nothing => (), ();
    named: Reply::Found(entry, attributes) => (entry, attributes), (Entry, Attributes);
    links: Reply::Links(links) => links, Links;
    bytes: Reply::Bytes(bytes) => bytes, Vec<u8>;
    names: Reply::Names(names) => names, Vec<Label>;
    opened: Reply::Opened { keep_pages, uncached } => OpenedHandle { keep_pages, uncached }, OpenedHandle;
    written: Reply::Written(bytes) => bytes, u32;
    offset: Reply::Offset(offset) => offset, u64;
    covered: Reply::Covered { write, handles, version } => Covered { write, handles, version }, Covered;
    listing: Reply::Listing { entries, upto, end } => Listing { entries, upto, end }, Listing;
    lock: Reply::Lock(conflict) => conflict, Option<Conflict>;
    space: Reply::Space { total, free, files } => FreeSpace { total, free, files }, FreeSpace;
}
