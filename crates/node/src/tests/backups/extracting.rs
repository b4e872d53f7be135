//! Extraction of single files and trees.

use super::*;
use backup::{ExtractReport, Extracting, extract};
use bytes::Bytes;
use namespace::{AttributeChange, FileSpec, POLICY, SetTime, Timestamp, XattrMode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

const LONG_AGO: Timestamp = Timestamp { secs: 1_000_000_000, nanos: 7 };

/// Makes `name` in `dir`, of this mode, with this content or target.
fn make(machine: &Machine, dir: &FileId, name: &[u8], kind: FileKind, mode: u16, bytes: &[u8]) -> FileId {
    let open = (kind == FileKind::Regular).then(|| OpenModes::posix(true, true));
    let target = if kind == FileKind::Symlink { bytes.to_vec() } else { Vec::new() };
    let (dir, label) = (dir.clone(), Label::new(name).unwrap());
    let spec = FileSpec { target, ..FileSpec::new(kind, mode, 0) };
    let call = call::Create { dir, label, spec, open };
    let file = create(machine, call).unwrap();
    if let Some(open) = open {
        ask(machine, call::Close { file: file.clone(), open }).unwrap();
        put(machine, &file, 0, bytes);
    }
    file
}

fn put(machine: &Machine, file: &FileId, offset: u64, bytes: &[u8]) {
    let (open, data) = (OpenModes::posix(true, true), Bytes::copy_from_slice(bytes));
    ask(machine, call::OpenFile { file: file.clone(), open, mask: 6 }).unwrap();
    ask(machine, call::Write { file: file.clone(), offset, data, append: false }).unwrap();
    ask(machine, call::Sync { file: file.clone() }).unwrap();
    ask(machine, call::Close { file: file.clone(), open }).unwrap();
}

fn set_xattr(machine: &Machine, file: &FileId, name: &[u8], value: &[u8]) {
    let name = Label::attribute(name).unwrap();
    let call = call::SetXattr { file: file.clone(), name, value: value.to_vec(), mode: XattrMode::Set };
    ask(machine, call).unwrap();
}

fn set_attributes(machine: &Machine, file: &FileId, change: AttributeChange, size: Option<u64>) {
    let call = call::SetAttributes { file: file.clone(), change, size, through_handle: false };
    ask(machine, call).unwrap();
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 1000];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
    value.truncate(length);
    value
}

/// An access list that lets user 1000 read, and neither group nor others.
fn access_list() -> Vec<u8> {
    let entry = |tag: u16, perm: u16, id: u32| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
    };
    let entries =
        [(1, 6, u32::MAX), (2, 4, 1000), (4, 0, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let entries = entries.map(|(tag, perm, id)| entry(tag, perm, id)).concat();
    [&2u32.to_le_bytes()[..], &entries[..]].concat()
}

impl Site {
    fn extracting(&self, file: &str, to: &Path) -> Extracting {
        let (file, to) = (PathBuf::from(file), to.to_path_buf());
        Extracting { dir: self.backups(), name: None, file, to, incomplete: false }
    }

    fn extract(&self, file: &str, to: &Path) -> Result<ExtractReport, BackupError> {
        extract(&self.extracting(file, to), &mut |_| {})
    }

    /// The copies of the shares that this file refers to.
    fn copies_of(&self, name: &str) -> Vec<PathBuf> {
        let server = self.machine.server().unwrap();
        let shares = server.group().query(|directory, store| directory.shares_below(store, name.as_bytes()));
        let shares =
            shares.unwrap().into_iter().map(|share| format!("{:032x}", u128::from_be_bytes(share.0)));
        shares.map(|name| self.backups().join("shares").join(&name[..2]).join(name)).collect()
    }
}

#[test]
fn a_tree_is_restored_with_all_that_belongs_to_it() {
    let site = Site::new();
    let machine = &site.machine;
    let root = machine.file_service().root();
    let dir = make(machine, &root, b"proj", FileKind::Directory, 0o755, b"");
    make(machine, &dir, b"tiny", FileKind::Regular, 0o4755, b"a few bytes");
    let large = make(machine, &dir, b"large", FileKind::Regular, 0o600, &content("large"));
    // The overwritten part stays a piece of its own.
    put(machine, &large, 100_000, b"in between");
    ask(machine, call::Link { file: large.clone(), dir: dir.clone(), label: label("hard"), replaced: None })
        .unwrap();
    let sparse = make(machine, &dir, b"sparse", FileKind::Regular, 0o644, b"");
    put(machine, &sparse, 4 << 20, &content("sparse"));
    set_attributes(machine, &sparse, AttributeChange::default(), Some(64 << 20));
    make(machine, &dir, b"link", FileKind::Symlink, 0o777, b"../../../etc");
    make(machine, &dir, b"pipe", FileKind::Fifo, 0o640, b"");
    let below = make(machine, &dir, b"\xff\xfe", FileKind::Directory, 0o555, b"");
    let coded = make(machine, &below, b"coded", FileKind::Regular, 0o644, b"");
    set_xattr(machine, &coded, POLICY, b"code=2+1");
    put(machine, &coded, 0, &content("coded"));
    set_xattr(machine, &coded, b"user.origin", b"a test");
    set_xattr(machine, &coded, b"system.posix_acl_access", &access_list());
    set_xattr(machine, &below, b"system.posix_acl_default", &access_list());
    for file in [&large, &below] {
        let mtime = Some(SetTime::At(LONG_AGO));
        set_attributes(machine, file, AttributeChange { mtime, ..Default::default() }, None);
    }
    ask(machine, call::SyncAll).unwrap();
    site.back_up(None);

    let at = tempfile::tempdir().unwrap();
    let to = at.path().join("out");
    let report = site.extract("proj/", &to).unwrap();
    assert_eq!((report.files, &report.lost, &report.skipped), (6, &vec![], &vec![]), "{report:?}");
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 1, "what was made on the way is still there");
    let stat = |name: &str| fs::symlink_metadata(to.join(name)).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(to.join("tiny")).unwrap(), b"a few bytes");
    assert_eq!(stat("pipe").mode() & 0o7777, 0o640);
    assert!(stat("pipe").file_type().is_fifo());
    let mut expected = content("large");
    expected[100_000..100_010].copy_from_slice(b"in between");
    assert!(fs::read(to.join("large")).unwrap() == expected);
    let (large, hard) = (stat("large"), stat("hard"));
    assert_eq!((large.ino(), large.nlink(), large.mode() & 0o7777), (hard.ino(), 2, 0o600));
    assert_eq!((large.mtime(), large.mtime_nsec()), (LONG_AGO.secs, 7));
    let mut expected = vec![0; 64 << 20];
    expected[4 << 20..][..BYTES].copy_from_slice(&content("sparse"));
    assert!(fs::read(to.join("sparse")).unwrap() == expected);
    assert!(
        stat("sparse").blocks() * 512 < 2 << 20,
        "its holes are filled: {} blocks",
        stat("sparse").blocks()
    );
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("../../../etc"));
    let below = to.join(OsStr::from_bytes(b"\xff\xfe"));
    let found = fs::metadata(&below).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.mtime_nsec()), (0o555, LONG_AGO.secs, 7));
    assert_eq!(xattr(&below, "system.posix_acl_default"), access_list());
    let coded = below.join("coded");
    assert!(fs::read(&coded).unwrap() == content("coded"));
    assert_eq!(xattr(&coded, "user.origin"), b"a test");
    assert_eq!(xattr(&coded, "system.posix_acl_access"), access_list());
    assert_eq!(fs::metadata(&coded).unwrap().mode() & 0o7777, 0o640);

    // Extracts one file, a link itself, and everything.
    let refused = site.extract("/proj/link/passwd", &at.path().join("none")).unwrap_err().to_string();
    assert!(refused.contains("/proj/link is a symbolic link to ../../../etc"), "{refused}");
    site.extract("/proj/link", &at.path().join("link")).unwrap();
    assert_eq!(fs::read_link(at.path().join("link")).unwrap(), Path::new("../../../etc"));
    site.extract("/proj/tiny", &at.path().join("tiny")).unwrap();
    assert_eq!(fs::read(at.path().join("tiny")).unwrap(), b"a few bytes");
    site.extract("/", &at.path().join("all")).unwrap();
    assert_eq!(fs::read(at.path().join("all/proj/tiny")).unwrap(), b"a few bytes");
}

#[test]
fn only_the_shares_of_a_file_are_needed_and_what_is_damaged_is_refused() {
    let site = Site::new();
    ["a", "b", "c"].iter().for_each(|name| write(&site.machine, name).unwrap());
    let name = site.back_up(None).name;
    let at = tempfile::tempdir().unwrap();
    let to = |name: &str| at.path().join(name);
    let (gone, rotten) = (site.copies_of("b"), &site.copies_of("c")[0]);
    gone.iter().for_each(|copy| fs::remove_file(copy).unwrap());
    let mut bytes = fs::read(rotten).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(rotten, &bytes).unwrap();

    let report = site.extract("a", &to("a")).unwrap();
    assert_eq!((report.name, report.files, report.bytes), (name, 1, BYTES as u64));
    assert!(fs::read(to("a")).unwrap() == content("a"));
    for file in ["b", "c", "/"] {
        let refused = site.extract(file, &to("damaged")).unwrap_err();
        assert!(matches!(refused, BackupError::Lost { .. }), "{refused}");
    }
    let incomplete = |file, name| {
        extract(&Extracting { incomplete: true, ..site.extracting(file, &to(name)) }, &mut |_| {})
    };
    assert_eq!(incomplete("b", "damaged").unwrap().lost.len(), 1);
    assert!(!to("damaged").exists());
    let report = incomplete("/", "all").unwrap();
    assert_eq!((report.files, report.lost.len()), (1, 2), "{report:?}");
    assert!(fs::read(to("all/a")).unwrap() == content("a"));
    assert_eq!(fs::read_dir(to("all")).unwrap().count(), 1);

    // Nothing is replaced, and a refused extraction leaves nothing behind.
    for there in ["a", "all"] {
        let refused = site.extract("a", &to(there)).unwrap_err();
        assert!(matches!(refused, BackupError::Exists { .. }), "{refused}");
    }
    let refused = site.extract("/a/x", &to("new")).unwrap_err().to_string();
    assert!(refused.contains("there is no /a/x in backup") && refused.contains("/a has no x"), "{refused}");
    let refused = site.extract("a", &to("none/new")).unwrap_err();
    assert!(matches!(refused, BackupError::NoDirectory { .. }), "{refused}");
    assert_eq!(fs::read_dir(at.path()).unwrap().count(), 2);
    fs::create_dir(to(".new.leasehold-restore")).unwrap();
    let refused = site.extract("a", &to("new")).unwrap_err();
    assert!(matches!(refused, BackupError::Remains { .. }), "{refused}");
}
