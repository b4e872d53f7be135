//! Machines with less than all rights: their clients' answers, and their requests.

use crate::host::calls::label;
use crate::host::{Host, News};
use bytes::Bytes;
use client::{Call, Outcome, Reply, call};
use ident::FileId;
use lease::OpenModes;
use namespace::{AttributeChange, Attributes, Cred, Error, FileKind};
use wire::Rights;

const ROOT: FileId = FileId::root();
const READING: OpenModes = OpenModes::posix(true, false);

impl Host {
    fn write(&mut self, at: usize, file: &FileId, data: &'static [u8]) -> Result<Reply, Error> {
        let data = Bytes::from_static(data);
        self.tries(at, Call::Write(call::Write { file: file.clone(), offset: 0, data, append: false }))?;
        self.tries(at, Call::Sync(call::Sync { file: file.clone() }))
    }

    fn read(&mut self, at: usize, file: &FileId) -> Result<bool, Error> {
        let read =
            Call::Read(call::Read { file: file.clone(), offset: 0, length: 100, kept: true, quietly: false });
        self.tries(at, read).map(|reply| matches!(reply, Reply::Data(_)))
    }

    fn attributes(&mut self, at: usize, file: &FileId) -> Result<Attributes, Error> {
        self.stat(at, file).map(|(stat, _)| stat.attributes)
    }

    fn chmod(&mut self, at: usize, file: &FileId, mode: u16) {
        let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
        self.does(
            at,
            Call::SetAttributes(call::SetAttributes {
                file: file.clone(),
                change,
                size: None,
                through_handle: false,
            }),
        );
    }

    /// Number of updates that were refused.
    fn refused(&self) -> usize {
        let items =
            |news: &News| if let News::Refused { salvage, .. } = news { salvage.items.len() } else { 0 };
        self.news.iter().map(items).sum()
    }
}

fn lookup(dir: &FileId, name: &str) -> Call {
    Call::Lookup(call::Lookup { dir: dir.clone(), label: label(name) })
}

/// A host with `/in/f` and `/out`, made by the founder.
fn founded() -> (Host, FileId, FileId, FileId) {
    let mut host = Host::of(0, 1);
    let inside = host.make(0, &ROOT, "in", FileKind::Directory).unwrap();
    let outside = host.make(0, &ROOT, "out", FileKind::Directory).unwrap();
    let f = host.make(0, &inside, "f", FileKind::Regular).unwrap();
    host.write(0, &f, b"hello").unwrap();
    (host, inside, f, outside)
}

#[test]
fn a_machine_that_may_only_read_reads_and_is_refused_the_rest_without_a_message() {
    let (mut host, inside, f, outside) = founded();
    let reader = host.joins(Rights { root: inside.clone(), read_only: true, squash: None });
    assert_eq!(host.machines[reader].client.root(), &inside);
    host.tries(reader, lookup(&inside, "f")).unwrap();
    let open = Call::OpenFile(call::OpenFile { file: f.clone(), open: READING, mask: 4 });
    host.tries(reader, open).unwrap();
    assert_eq!(host.read(reader, &f), Ok(true));
    assert!(matches!(
        host.tries(reader, Call::Parent(call::Parent { dir: inside.clone() })),
        Ok(Reply::Node(entry, _)) if entry.file == inside
    ));
    let before = host.messages;
    assert_eq!(host.make(reader, &inside, "new", FileKind::Regular), Err(Error::ReadOnly));
    assert_eq!(host.write(reader, &f, b"x").err(), Some(Error::ReadOnly));
    let remove = Call::Unlink(call::Unlink {
        dir: inside.clone(),
        label: label("f"),
        directory: false,
        pending: None,
    });
    assert_eq!(host.tries(reader, remove.clone()).err(), Some(Error::ReadOnly));
    let open =
        Call::OpenFile(call::OpenFile { file: f.clone(), open: OpenModes::posix(true, true), mask: 6 });
    assert_eq!(host.tries(reader, open).err(), Some(Error::ReadOnly));
    assert_eq!(host.messages, before);
    // The machine sees the changes of others.
    host.write(0, &f, b"world").unwrap();
    let read = Call::Read(call::Read { file: f.clone(), offset: 0, length: 100, kept: true, quietly: false });
    let Ok(Reply::Data(parts)) = host.tries(reader, read) else { panic!() };
    assert!(format!("{parts:?}").contains("world"), "{parts:?}");
    // The machine keeps its open file, and the server finishes the deletion after the close.
    host.tries(0, remove).unwrap();
    assert_eq!(host.read(reader, &f), Ok(true));
    host.tries(reader, Call::Close(call::Close { file: f.clone(), open: READING })).unwrap();
    host.tries(reader, Call::SyncAll).unwrap();
    assert_eq!(host.server.directory.status(host.now).files, 3);
    // Elsewhere there is nothing for this machine.
    for file in [&ROOT, &outside] {
        assert_eq!(host.attributes(reader, file), Err(Error::Stale));
    }
}

#[test]
fn all_users_of_a_machine_count_as_one() {
    let (mut host, inside, f, _) = founded();
    host.chmod(0, &inside, 0o777);
    let guest = host.joins(Rights { root: inside.clone(), read_only: false, squash: Some(1000) });
    let new = host.make(guest, &inside, "new", FileKind::Regular).unwrap();
    host.write(guest, &new, b"mine").unwrap();
    let attributes = host.attributes(0, &new).unwrap();
    assert_eq!((attributes.uid, attributes.gid), (1000, 1000));
    // The machine's root user has no special rights.
    let secret = host.make(0, &inside, "secret", FileKind::Regular).unwrap();
    host.write(0, &secret, b"mine").unwrap();
    host.chmod(0, &secret, 0o600);
    assert_eq!(host.attributes(guest, &secret).map(|it| it.mode), Ok(0o600));
    let open = Call::OpenFile(call::OpenFile { file: secret.clone(), open: READING, mask: 4 });
    assert_eq!(host.tries(guest, open).err(), Some(Error::AccessDenied));
    // The same holds for calls without a permission check before.
    assert_eq!(host.read(guest, &secret), Err(Error::AccessDenied));
    assert_eq!(host.write(guest, &secret, b"x").err(), Some(Error::AccessDenied));
    assert_eq!(host.read(guest, &f), Ok(true));
    assert_eq!(host.write(guest, &f, b"x").err(), Some(Error::AccessDenied));
    let someone = Cred { uid: 7, gid: 7, ..Cred::default() };
    let remove = Call::Unlink(call::Unlink {
        dir: inside.clone(),
        label: label("new"),
        directory: false,
        pending: None,
    });
    assert!(host.complete(guest, &someone, remove).unwrap().is_ok());
    host.tries(guest, Call::SyncAll).unwrap();
    assert_eq!(host.refused(), 0);
}

#[test]
fn below_its_root_a_machine_works_as_any() {
    let (mut host, inside, f, outside) = founded();
    let other = host.joins(Rights { root: inside.clone(), ..Rights::FULL });
    let dir = host.make(other, &inside, "dir", FileKind::Directory).unwrap();
    let rename = |from_dir: &FileId, from: &str, to_dir: &FileId, to: &str| {
        Call::Rename(call::Rename {
            from_dir: from_dir.clone(),
            from: label(from),
            to_dir: to_dir.clone(),
            to: label(to),
            mode: namespace::RenameMode::Replace,
            whiteout: false,
            source: None,
            replaced: None,
        })
    };
    host.tries(other, rename(&inside, "f", &dir, "g")).unwrap();
    let sub = host.make(other, &inside, "sub", FileKind::Directory).unwrap();
    let deep = host.make(other, &sub, "deep", FileKind::Directory).unwrap();
    // Only the server moves directories, for this machine too.
    host.tries(other, rename(&inside, "sub", &dir, "sub")).unwrap();
    assert_eq!(host.tries(other, rename(&dir, "sub", &outside, "sub")).err(), Some(Error::Stale));
    host.tries(other, Call::SyncAll).unwrap();
    assert!(matches!(host.tries(0, lookup(&dir, "g")), Ok(Reply::Node(entry, _)) if entry.file == f));
    // A machine goes on to work in a directory that was moved out of its root. Its update is
    // refused once sent, and nothing else suffers.
    host.tries(0, rename(&dir, "sub", &outside, "sub")).unwrap();
    assert_eq!(host.make(other, &sub, "late", FileKind::Regular), Err(Error::Stale));
    assert!(host.make(other, &deep, "late", FileKind::Regular).is_ok());
    assert!(host.make(other, &dir, "fine", FileKind::Regular).is_ok());
    assert_eq!(host.tries(other, Call::SyncAll).err(), Some(Error::CutOff));
    assert_eq!(host.refused(), 1);
    assert_eq!(host.tries(0, lookup(&deep, "late")).err(), Some(Error::NotFound));
    assert!(host.tries(0, lookup(&dir, "fine")).is_ok());
}

/// The server grants a directory's times without having seen a later change of the directory.
#[test]
fn times_that_are_granted_do_not_forget_what_was_done_meanwhile() {
    let (mut host, dir, _, _) = founded();
    let other = host.joins(Rights::FULL);
    // Both may make files here, and neither knows the times.
    host.make(other, &dir, "theirs", FileKind::Regular).unwrap();
    host.make(0, &dir, "ours", FileKind::Regular).unwrap();
    host.make(other, &dir, "theirs too", FileKind::Regular).unwrap();
    // The other machine asks for the times, and makes another change before the answer.
    let cred = Cred::default();
    let asked = host.call(other, &cred, Call::Stat(call::Stat { file: dir.clone() })).unwrap();
    assert!(matches!(asked, Outcome::Waiting(_)), "it knew: {asked:?}");
    host.began += 9;
    let later = host.clocks().wall;
    let call = Call::Unlink(call::Unlink {
        dir: dir.clone(),
        label: label("theirs too"),
        directory: false,
        pending: None,
    });
    let done = host.call(other, &cred, call).unwrap();
    assert!(matches!(done, Outcome::Done(Ok(_))), "{done:?}");
    host.deliver().unwrap();
    let seen = [other, 0].map(|at| host.stat(at, &dir).unwrap().0.mtime);
    assert_eq!(seen, [later; 2]);
}
