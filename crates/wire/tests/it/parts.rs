//! One value of each variant of all parts of messages.

use ident::FileId;
use lease::{Field, Kind, Label, Mode, OpenModes, Others};
use namespace::*;

/// Defines a function that gives one value of each variant of an enum, by the variant's name. A
/// variant that has no value here does not compile.
macro_rules! every {
    ($(#[$doc:meta])* $function:ident -> $type:ident {
        $($variant:ident $(($($item:expr),*))? $({$($field:ident: $value:expr),* $(,)?})?),* $(,)?
    }) => {
        $(#[$doc])*
        pub fn $function() -> Vec<(&'static str, $type)> {
            #[allow(dead_code, reason = "it is compiled, which is the check")]
            fn none_is_missing(value: &$type) {
                match value {
                    $($type::$variant { .. } => {})*
                }
            }
            vec![$((stringify!($variant), $type::$variant $(($($item),*))? $({$($field: $value),*})?)),*]
        }
    };
}
pub(crate) use every;

/// The values alone.
pub fn values<T>(named: Vec<(&'static str, T)>) -> Vec<T> {
    named.into_iter().map(|(_, value)| value).collect()
}

pub fn file() -> FileId {
    FileId::root().child(3).child(200)
}

pub fn dir() -> FileId {
    FileId::root().child(3)
}

pub fn label() -> Label {
    Label::new(b"Mail").unwrap()
}

pub fn name() -> Label {
    Label::attribute(b"user.a/b").unwrap()
}

pub fn cred() -> Cred {
    Cred { uid: 1000, gid: 100, groups: [4, 300].into_iter().collect(), capabilities: Capabilities::EVERY }
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 999_999_999 }
}

pub fn range() -> LockRange {
    LockRange { first: 5, last: u64::MAX }
}

pub fn link() -> Link {
    Link { dir: dir(), label: label() }
}

pub fn entry() -> Entry {
    Entry { file: file(), kind: FileKind::Symlink, ino: 4097, position: 200 }
}

pub fn attributes(kind: FileKind) -> Attributes {
    let (mode, uid, gid, links, ino, rdev) = (0o4755, 1000, 100, 2, 4097, 0x801);
    Attributes { kind, mode, uid, gid, links, ino, rdev, ctime: at(-1), btime: at(0), atime: at(1 << 33) }
}

pub fn head(key: Option<[u8; 32]>) -> ContentHead {
    ContentHead { size: 70_000, mtime: at(2), ctime: at(3), version: 9, occupied: 65_536, key }
}

pub fn times() -> Times {
    Times { mtime: at(4), ctime: at(5), generation: 6 }
}

pub fn disposition() -> Disposition {
    Disposition { link: link(), since: at(7) }
}

pub fn change(kind: Option<LockKind>) -> LockChange {
    LockChange { owner: 77, pid: 4321, space: LockSpace::Posix, range: range(), kind }
}

pub fn share(n: u8) -> ShareId {
    ShareId([n; 16])
}

/// Extents stored in every way in which pieces can be.
pub fn extents() -> Vec<Extent> {
    let extent = |place, offset| {
        let piece = Piece { length: 131_072, nonce: [8; 12], hash: [9; 32], place };
        Extent { offset, length: 4096, skip: 12, piece }
    };
    let places = values(places()).into_iter();
    places.zip([0, 1 << 20]).map(|(place, offset)| extent(place, offset)).collect()
}

/// The locks of a file, here and elsewhere, made by their encoding: only the server makes such a
/// table.
pub fn locks() -> Locks {
    let lock =
        |space, holder, last, kind| Lock { space, holder, range: LockRange { first: 0, last }, kind, pid: 9 };
    let table = vec![
        lock(LockSpace::Posix, Holder::Here(77), 4, LockKind::Read),
        lock(LockSpace::Posix, Holder::Elsewhere, 9, LockKind::Read),
        lock(LockSpace::Flock, Holder::Here(78), u64::MAX, LockKind::Write),
    ];
    postcard::from_bytes(&postcard::to_allocvec(&(table, 2u32)).unwrap()).unwrap()
}

/// Others' opens, known for every black box, and true of some.
pub fn others() -> Others {
    let open = OpenModes::with([Mode::AccessRead, Mode::ExcludeWrite]);
    postcard::from_bytes(&postcard::to_allocvec(&(OpenModes::EVERY, open)).unwrap()).unwrap()
}

every! { kinds -> Kind { Read, Touch, Write } }
every! { modes -> Mode { AccessRead, AccessWrite, AccessDelete, ExcludeRead, ExcludeWrite, ExcludeDelete } }
every! { fields -> Field {
    Attributes, Content, Times, Disposition, Parent, Handles, Mode(Mode::ExcludeWrite), Path, Child(label()), Children, Xattr(name()), Xattrs, Locks,
} }
every! { file_kinds -> FileKind { Directory, Regular, Symlink, Fifo, Socket, CharDevice, BlockDevice } }
every! { places -> Place { Inline(bytes::Bytes::from_static(b"sealed")), Share { share: share(1), at: 300 } } }
every! { content_changes -> ContentChange {
    Inline { sealed: b"text".to_vec(), key: Some([2; 32]) },
    Extents { truncate_to: Some(100), punch: vec![(0, 4096), (1 << 40, 1)], put: extents(), key: Some([2; 32]) },
    None,
} }
every! { rename_modes -> RenameMode { Replace, NoReplace, Exchange } }
every! { xattr_modes -> XattrMode { Set, Create, Replace } }
every! { set_times -> SetTime { Now, At(at(-2)) } }
every! { lock_spaces -> LockSpace { Posix, Flock } }
every! { lock_kinds -> LockKind { Read, Write } }
every! { errors -> Error {
    NotFound, Exists, NotDirectory, IsDirectory, NotEmpty, NotPermitted, AccessDenied, Invalid, TooManyLinks, Stale, SharingViolation,
    DeletePending, NoAttribute, TooBig, NotSupported, NoSpace, Damaged, CutOff, ReadOnly, WouldBlock, TooManyLocks, Deadlock, Interrupted, AnotherFile,
} }
every! { answers -> Answer {
    Nothing,
    Entry(entry()),
    Found(entry(), attributes(FileKind::Regular)),
    Stat(Stat { attributes: attributes(FileKind::Regular), size: 70_000, occupied: 65_536, mtime: at(2) }),
    Bytes(b"target".to_vec()),
    Names(vec![name(), label()]),
    Lock(Some(Conflict { range: range(), kind: LockKind::Write, pid: Some(4321) })),
} }
every! { effects -> Effect {
    Birth { file: file(), attributes: attributes(FileKind::Symlink), content: head(None), target: b"to".to_vec(), times: times() },
    Bind { dir: dir(), label: label(), entry: entry() },
    Unbind { dir: dir(), label: label() },
    AddLink { file: file(), link: link() },
    DropLink { file: file(), link: link() },
    Attributes { file: file(), attributes: attributes(FileKind::Fifo) },
    Touch { dir: dir(), time: at(8) },
    Times { dir: dir(), times: times() },
    Xattr { file: file(), name: name(), value: Some(b"value".to_vec()) },
    Content { file: file(), head: head(Some([3; 32])), change: ContentChange::None },
    Disposition { file: file(), disposition: Some(disposition()) },
    Orphan { file: file() },
    Death { file: file() },
    Lock { file: file(), change: change(Some(LockKind::Read)) },
} }
every! { operations -> Operation {
    Lookup(operation::Lookup { dir: dir(), label: label(), cred: cred() }),
    Find(operation::Find { dir: dir(), label: label(), cred: cred() }),
    Stat(operation::Stat { file: file() }),
    Access(operation::Access { file: file(), mask: 5, cred: cred() }),
    Open(operation::Open { file: file(), mask: 6, open: OpenModes::posix(true, true), own: OpenModes::EVERY, cred: Cred::default() }),
    ReadLink(operation::ReadLink { file: file() }),
    List(operation::List { dir: dir() }),
    GetXattr(operation::GetXattr { file: file(), name: name(), cred: cred() }),
    ListXattrs(operation::ListXattrs { file: file() }),
    Create(operation::Create { dir: dir(), label: label(), position: 200, new: new_file(), cred: cred(), time: at(9) }),
    Link(operation::Link { file: file(), dir: dir(), label: label(), replaced: Some(replaced()), position: 201, open: true, cred: cred(), time: at(9) }),
    Unlink(operation::Unlink { dir: dir(), label: label(), pending: Some(file()), directory: true, open: true, cred: cred(), time: at(9) }),
    Rename(operation::Rename {
        from_dir: dir(), from: label(), source: Some(file()), to_dir: FileId::root(), to: name(), mode: RenameMode::Replace, replaced: Some(replaced()), position: 9, whiteout: Some(Whiteout { integer: 202, ino: 11 }), open: true,
        cred: cred(), time: at(9),
    }),
    SetAttributes(operation::SetAttributes { file: file(), change: attribute_change(), cred: cred(), time: at(9) }),
    SetXattr(operation::SetXattr { file: file(), name: name(), value: b"value".to_vec(), mode: XattrMode::Create, cred: cred(), time: at(9) }),
    RemoveXattr(operation::RemoveXattr { file: file(), name: name(), cred: cred(), time: at(9) }),
    Publish(operation::Publish { file: file(), version: 10, size: 70_000, mtime: at(2), ctime: at(3), change: ContentChange::Inline { sealed: b"text".to_vec(), key: None } }),
    Accessed(operation::Accessed { file: file(), time: at(9) }),
    SetDisposition(operation::SetDisposition { file: file(), link: Some(link()), own: OpenModes::with([Mode::AccessDelete]), cred: cred(), time: at(9) }),
    Dispose(operation::Dispose { file: file(), time: at(9) }),
    Lock(operation::Lock { file: file(), change: change(None) }),
    GetLock(operation::GetLock { file: file(), owner: 77, space: LockSpace::Flock, range: LockRange::WHOLE, kind: LockKind::Write }),
} }

fn replaced() -> Box<Replaced> {
    Box::new(Replaced { label: name(), file: file() })
}

fn new_file() -> NewFile {
    let device = FileSpec::new(FileKind::BlockDevice, 0o644, 0o22);
    NewFile { file: file(), ino: 4097, spec: FileSpec { rdev: 0x801, target: b"to".to_vec(), ..device } }
}

fn attribute_change() -> AttributeChange {
    let times = [SetTime::Now, SetTime::At(at(-2))].map(Some);
    AttributeChange {
        mode: Some(0o600),
        uid: Some(1),
        gid: None,
        atime: times[0],
        mtime: times[1],
        keeps_owner: false,
    }
}

pub fn receipt() -> wire::Receipt {
    wire::Receipt { session: lease::SessionId(5), up_to: 300, server: (1, 7), seal: [9; 16] }
}
