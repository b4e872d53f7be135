//! Answers requests as if they changed something, and changes nothing: pure.
//!
//! The kernel tells watchers of its own requests that were answered. So the event raiser makes a
//! request, and this module answers it, by what was registered before ([`Phantom`]). A name that is
//! made, moved or removed so is a phantom's: a node of no file, given with a time-out of 0. The
//! next program that comes by the name asks us, and gets the real file. Nothing that the kernel has
//! of real files is touched by that. Events of content and attributes are a real node's where they
//! may be: its watchers hear of them, too, and the kernel is given its current attributes.

use bytes::Bytes;
use ident::FileId;

use crate::transport::call::{Call, SetAttr};

/// The first number of a phantom; they are used in turn. Neither inode numbers nor further nodes
/// ([`crate::places`]) get there.
const FIRST: u64 = 0b11 << 62;
/// Numbers in use: with more they would reach numbers that have a meaning of their own.
const TURNS: u64 = 1 << 60;
/// The number of a phantom directory, out of which a replacing file comes. Programs are to hear
/// nothing of it.
const ELSEWHERE: u64 = FIRST - 1;
/// The directory's name in the root, and the name of the file in it.
pub(crate) const ELSEWHERE_NAME: &[u8] = b".leasehold-elsewhere";
pub(crate) const IN_ELSEWHERE: &[u8] = b"new";

/// A change that is answered as if it were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phantom {
    /// A name is made.
    Made { dir: FileId, name: Bytes },
    /// A name is removed.
    Removed { dir: FileId, name: Bytes, directory: bool },
    /// A name is renamed.
    Renamed { dir: FileId, from: Bytes, to: Bytes, directory: bool },
    /// A name of the phantom directory takes the place of another.
    Replaced { root: FileId, dir: FileId, name: Bytes },
    /// The times of a file are set.
    Touched { file: FileId },
    /// The times of the phantom with this name are set.
    Marked { dir: FileId, name: Bytes },
}

/// An answer to the event raiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhantomAnswer {
    /// There is no file of this name.
    Missing,
    /// The name is this phantom's.
    Entry(Ghost),
    /// The phantom's attributes.
    Attributes(Ghost),
    /// The change was made.
    Done,
    /// The attributes of the real node as they are.
    AsItIs,
    /// The event raiser may not do that.
    Refused,
}

/// A node of no file: a phantom's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    pub(crate) node: u64,
    pub(crate) directory: bool,
}

/// The registered phantom, if there is one. There is one at a time.
#[derive(Debug, Default)]
pub(crate) struct Phantoms {
    registered: Option<Phantom>,
    given: u64,
}

impl Phantoms {
    pub(crate) fn register(&mut self, phantom: Option<Phantom>) {
        self.registered = phantom;
    }

    fn next(&mut self, directory: bool) -> Ghost {
        // Directories have even numbers.
        self.given = (self.given + 1) % TURNS;
        Ghost { node: FIRST + 2 * self.given + u64::from(!directory), directory }
    }

    /// The answer to the event raiser, which asks for `call` of `node`, which is `file`. Nothing if
    /// it is answered as any program is. Such a call changes nothing in any case.
    pub(crate) fn answer(&mut self, node: u64, file: Option<&FileId>, call: &Call) -> Option<PhantomAnswer> {
        match call {
            Call::GetAttr | Call::StatX => self.ghost(node).map(PhantomAnswer::Attributes),
            Call::Lookup { name } => self.lookup(node, file, name),
            // A walk along a path reads links, and nodes that the kernel drops must be forgotten.
            Call::Forget(_)
            | Call::Interrupt { .. }
            | Call::ReadLink
            | Call::Access { .. }
            | Call::GetXattr { .. }
            | Call::ListXattr { .. }
            | Call::Other(_) => None,
            call => Some(self.done(node, file, call).unwrap_or(PhantomAnswer::Refused)),
        }
    }

    fn ghost(&self, node: u64) -> Option<Ghost> {
        match node {
            ELSEWHERE => Some(Ghost { node, directory: true }),
            _ if node >= FIRST => Some(Ghost { node, directory: node.is_multiple_of(2) }),
            _ => None,
        }
    }

    fn lookup(&mut self, node: u64, file: Option<&FileId>, name: &Bytes) -> Option<PhantomAnswer> {
        let is = |dir: &FileId, of: &Bytes| file == Some(dir) && name == of;
        let found = match self.registered.as_ref()? {
            Phantom::Made { dir, name } if is(dir, name) => None,
            Phantom::Removed { dir, name, directory } if is(dir, name) => Some(*directory),
            Phantom::Renamed { dir, from, directory, .. } if is(dir, from) => Some(*directory),
            Phantom::Renamed { dir, to, .. } if is(dir, to) => None,
            Phantom::Replaced { dir, name, .. } if is(dir, name) => None,
            Phantom::Replaced { root, .. } if file == Some(root) && name == ELSEWHERE_NAME => {
                return Some(PhantomAnswer::Entry(Ghost { node: ELSEWHERE, directory: true }));
            }
            Phantom::Replaced { .. } if node == ELSEWHERE && name == IN_ELSEWHERE => Some(false),
            Phantom::Marked { dir, name } if is(dir, name) => Some(false),
            _ => return None,
        };
        Some(found.map_or(PhantomAnswer::Missing, |directory| PhantomAnswer::Entry(self.next(directory))))
    }

    fn done(&mut self, node: u64, file: Option<&FileId>, call: &Call) -> Option<PhantomAnswer> {
        let is = |dir: &FileId| file == Some(dir);
        match (self.registered.as_ref()?, call) {
            (Phantom::Made { dir, name }, Call::MkNod { name: made, .. }) if is(dir) && name == made => {
                Some(PhantomAnswer::Entry(self.next(false)))
            }
            (Phantom::Made { dir, name }, Call::MkDir { name: made, .. }) if is(dir) && name == made => {
                Some(PhantomAnswer::Entry(self.next(true)))
            }
            (Phantom::Removed { dir, name, directory: false }, Call::Unlink { name: gone })
            | (Phantom::Removed { dir, name, directory: true }, Call::RmDir { name: gone })
                if is(dir) && name == gone =>
            {
                Some(PhantomAnswer::Done)
            }
            (Phantom::Renamed { dir, from, to, .. }, Call::Rename { name, to_name, flags: 0, .. })
                if is(dir) && from == name && to == to_name =>
            {
                Some(PhantomAnswer::Done)
            }
            (Phantom::Replaced { name, .. }, Call::Rename { name: from, to_name, flags: 0, .. })
                if node == ELSEWHERE && from == IN_ELSEWHERE && name == to_name =>
            {
                Some(PhantomAnswer::Done)
            }
            (Phantom::Touched { file }, Call::SetAttr(change)) if is(file) && sets_times(change) => {
                Some(PhantomAnswer::AsItIs)
            }
            (Phantom::Marked { .. }, Call::SetAttr(change)) if sets_times(change) => {
                self.ghost(node).map(PhantomAnswer::Attributes)
            }
            _ => None,
        }
    }
}

fn sets_times(change: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, size, .. } = change;
    (mode, uid, gid, size) == (&None, &None, &None, &None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 7;

    fn name(name: &'static str) -> Bytes {
        Bytes::from_static(name.as_bytes())
    }

    /// The answer about directory 7, while this phantom is registered.
    fn answer(phantoms: &mut Phantoms, call: &Call) -> Option<PhantomAnswer> {
        phantoms.answer(DIR, Some(&dir()), call)
    }

    fn dir() -> FileId {
        FileId::root().child(DIR)
    }

    fn registered(phantom: Phantom) -> Phantoms {
        let mut phantoms = Phantoms::default();
        phantoms.register(Some(phantom));
        phantoms
    }

    fn times() -> Call {
        Call::SetAttr(SetAttr { mtime: Some(None), ..SetAttr::default() })
    }

    #[test]
    fn what_is_made_was_not_there_and_is_of_no_file() {
        let mut phantoms = registered(Phantom::Made { dir: dir(), name: name("a") });
        assert_eq!(answer(&mut phantoms, &Call::Lookup { name: name("a") }), Some(PhantomAnswer::Missing));
        assert_eq!(answer(&mut phantoms, &Call::Lookup { name: name("b") }), None, "as anybody is answered");
        let make = |of| Call::MkNod { name: name(of), mode: 0, umask: 0, rdev: 0 };
        let Some(PhantomAnswer::Entry(first)) = answer(&mut phantoms, &make("a")) else { panic!("not made") };
        let Some(PhantomAnswer::Entry(second)) =
            answer(&mut phantoms, &Call::MkDir { name: name("a"), mode: 0, umask: 0 })
        else {
            panic!("not made")
        };
        assert!(first.node != second.node && first.node.min(second.node) >= FIRST);
        assert!(!first.directory && second.directory);
        assert_eq!(
            phantoms.answer(second.node, None, &Call::GetAttr),
            Some(PhantomAnswer::Attributes(second))
        );
        assert_eq!(answer(&mut phantoms, &make("b")), Some(PhantomAnswer::Refused));
        assert_eq!(phantoms.answer(8, Some(&FileId::root()), &make("a")), Some(PhantomAnswer::Refused));
    }

    #[test]
    fn what_is_removed_or_renamed_was_there() {
        let mut phantoms = registered(Phantom::Removed { dir: dir(), name: name("a"), directory: true });
        let found = answer(&mut phantoms, &Call::Lookup { name: name("a") });
        assert!(matches!(found, Some(PhantomAnswer::Entry(Ghost { directory: true, .. }))), "{found:?}");
        assert_eq!(answer(&mut phantoms, &Call::RmDir { name: name("a") }), Some(PhantomAnswer::Done));
        assert_eq!(answer(&mut phantoms, &Call::Unlink { name: name("a") }), Some(PhantomAnswer::Refused));
        let (from, to) = (name("a"), name("b"));
        let mut phantoms = registered(Phantom::Renamed { dir: dir(), from, to, directory: false });
        let found = answer(&mut phantoms, &Call::Lookup { name: name("a") });
        assert!(matches!(found, Some(PhantomAnswer::Entry(Ghost { directory: false, .. }))), "{found:?}");
        assert_eq!(answer(&mut phantoms, &Call::Lookup { name: name("b") }), Some(PhantomAnswer::Missing));
        let rename = |flags| Call::Rename { name: name("a"), to: DIR, to_name: name("b"), flags };
        assert_eq!(answer(&mut phantoms, &rename(0)), Some(PhantomAnswer::Done));
        assert_eq!(answer(&mut phantoms, &rename(2)), Some(PhantomAnswer::Refused));
    }

    #[test]
    fn what_replaces_comes_from_where_nobody_is() {
        let root = FileId::root();
        let mut phantoms = registered(Phantom::Replaced { root: root.clone(), dir: dir(), name: name("a") });
        let look = Call::Lookup { name: Bytes::from_static(ELSEWHERE_NAME) };
        let found = phantoms.answer(1, Some(&root), &look);
        assert_eq!(found, Some(PhantomAnswer::Entry(Ghost { node: ELSEWHERE, directory: true })));
        let look = Call::Lookup { name: Bytes::from_static(IN_ELSEWHERE) };
        assert!(matches!(phantoms.answer(ELSEWHERE, None, &look), Some(PhantomAnswer::Entry(_))));
        assert_eq!(answer(&mut phantoms, &Call::Lookup { name: name("a") }), Some(PhantomAnswer::Missing));
        let from = Bytes::from_static(IN_ELSEWHERE);
        let rename = Call::Rename { name: from, to: DIR, to_name: name("a"), flags: 0 };
        assert_eq!(phantoms.answer(ELSEWHERE, None, &rename), Some(PhantomAnswer::Done));
        assert_eq!(answer(&mut phantoms, &rename), Some(PhantomAnswer::Refused));
    }

    #[test]
    fn times_are_set_of_what_is_registered_and_nothing_else_is() {
        let mut phantoms = registered(Phantom::Touched { file: dir() });
        assert_eq!(answer(&mut phantoms, &times()), Some(PhantomAnswer::AsItIs));
        assert_eq!(phantoms.answer(8, Some(&FileId::root()), &times()), Some(PhantomAnswer::Refused));
        let cut = Call::SetAttr(SetAttr { size: Some(0), ..SetAttr::default() });
        assert_eq!(answer(&mut phantoms, &cut), Some(PhantomAnswer::Refused));
        let mut phantoms = registered(Phantom::Marked { dir: dir(), name: name("a") });
        let Some(PhantomAnswer::Entry(ghost)) = answer(&mut phantoms, &Call::Lookup { name: name("a") })
        else {
            panic!("not found")
        };
        assert_eq!(phantoms.answer(ghost.node, None, &times()), Some(PhantomAnswer::Attributes(ghost)));
        assert_eq!(answer(&mut phantoms, &times()), Some(PhantomAnswer::Refused), "of a real one");
    }

    #[test]
    fn with_nothing_registered_it_can_look_and_do_nothing() {
        let mut phantoms = Phantoms::default();
        assert_eq!(answer(&mut phantoms, &Call::Lookup { name: name("a") }), None);
        for call in [
            times(),
            Call::Unlink { name: name("a") },
            Call::MkDir { name: name("a"), mode: 0, umask: 0 },
            Call::Create { name: name("a"), flags: 0, mode: 0, umask: 0 },
            Call::Open { flags: 0 },
            Call::RemoveXattr { name: name("user.a") },
        ] {
            assert_eq!(answer(&mut phantoms, &call), Some(PhantomAnswer::Refused), "{call:?}");
        }
    }
}
