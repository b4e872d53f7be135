//! The acts on an object, and the flags that each takes away from others (MS-SMB2 §3.3.1.4, MS-FSA
//! §2.1.4.12).

use super::holder::{LeaseKey, OpenId};
use super::state::CachingState;

/// An act on an object that is no open of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Data is read or flushed.
    Read,
    /// Data is written, copied into it or zeroed.
    Write,
    /// Its end, its allocation or its valid length changes.
    Resize,
    /// The open that does it was to overwrite it, and has. The lease that the open was granted
    /// counts from then on.
    Overwrite,
    /// A byte-range lock is asked for, granted or not. MS-FSA §2.1.4.12 has an exception for locks
    /// behind the end; MS-SMB2 §3.3.1.4 has none, nor do the conformance tests (`lock1`).
    Lock,
    /// Its name changes, or a rename replaces it.
    Rename,
    /// It gets another hard link.
    Link,
    /// Its deletion disposition is set, or a handle closes that was opened with delete-on-close. A
    /// close goes on, whatever the judgement.
    Dispose,
    /// A directory above it is renamed or deleted. If the object is still open when the act may go
    /// on ([`Object::is_open`](super::Object::is_open)), a rename over SMB fails. A POSIX rename
    /// does not.
    MoveAbove,
    /// A listing of this directory would show something else. A child comes, goes or changes its
    /// name, or its times, attributes or sizes change. For a child that is written this act comes
    /// when the handle is flushed or closed. The directory's own times and attributes count, too.
    ChangeListing,
}

/// The party that does an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// An open of the object. An open that the object does not know is [`Actor::Other`].
    Open(OpenId),
    /// An open of a child of this directory, with the parent key that it gave. A lease with that
    /// key is exempt, whichever client has it.
    Child(Option<LeaseKey>),
    /// Anybody else: a call by path, another file's rename, another machine.
    Other,
}

impl Actor {
    /// Returns the actor for the deletion of a child, with the parent keys of two handles: the one
    /// that set the disposition (or was opened with delete-on-close), and the one that closed last.
    /// A directory's lease is exempt only from a deletion in which both gave its key.
    pub fn deleting(disposer: Option<LeaseKey>, last: Option<LeaseKey>) -> Actor {
        Actor::Child(disposer.filter(|key| Some(*key) == last))
    }
}

/// The effect of an act on each other holder.
#[derive(Clone, Copy)]
pub(super) struct Toll {
    /// The flags that the holder loses.
    pub takes: CachingState,
    /// The flags, among them, for whose acknowledgment the act waits.
    pub awaits: CachingState,
}

impl Toll {
    pub(super) const WRITE: Toll = Toll { takes: CachingState::WRITE, awaits: CachingState::WRITE };
    pub(super) const HANDLE: Toll = Toll { takes: CachingState::HANDLE, awaits: CachingState::HANDLE };
    /// Cached data is void. Read caching ends without being waited for (MS-SMB2 §3.3.1.4).
    pub(super) const DATA: Toll = Toll { takes: CachingState::RWH, awaits: CachingState::WRITE };

    pub(super) fn of(act: Act) -> Toll {
        match act {
            Act::Read => Toll::WRITE,
            Act::Write | Act::Resize | Act::Overwrite | Act::Lock => Toll::DATA,
            Act::Rename | Act::Link | Act::Dispose | Act::MoveAbove => Toll::HANDLE,
            Act::ChangeListing => Toll { awaits: CachingState::NONE, ..Toll::DATA },
        }
    }

    /// Another machine wants what is above `keep`. Its answer says that nobody here has it. So the
    /// answer waits for every flag, and for read caching, too.
    pub(super) fn of_recall(keep: CachingState) -> Toll {
        let takes = CachingState::RWH.but(keep.of_lease());
        Toll { takes, awaits: takes }
    }
}
