//! Extended attributes, access control lists, content.

use crate::situation::{Situation, rows};
use crate::tree::at;
use lease::Label;
use namespace::*;

const FILES: &str = "
    f -rw-r----- 1:10
    d drwxr-xr-x 1:10
    t drwxrwxrwt 1:10
    l lrwxrwxrwx 1:10
    p prw-rw-rw- 1:10";

#[test]
fn who_may_set_attributes() {
    rows(
        FILES,
        "1:10 setxattr user.a v f       -> ok
         2:10 setxattr user.a v f       -> AccessDenied
         0:0  setxattr user.a v f       -> ok
         1:10 setxattr user.a v l       -> NotPermitted
         0:0  setxattr user.a v p       -> NotPermitted
         2:20 setxattr user.a v t       -> NotPermitted
         1:10 setxattr user.a v t       -> ok
         1:10 setxattr trusted.a v f    -> NotPermitted
         0:0  setxattr trusted.a v l    -> ok
         1:10 setxattr security.a v f   -> NotPermitted
         0:0  setxattr security.a v f   -> ok
         1:10 setxattr user. v f        -> Invalid
         1:10 setxattr other.a v f      -> NotSupported
         1:10 setxattr system.other v f -> NotSupported
         1:10 setxattr nothing v f      -> NotSupported
         1:10 removexattr user.a f      -> NoAttribute
         2:10 removexattr user.a f      -> AccessDenied
         2:20 getxattr user.a f         -> AccessDenied
         2:10 getxattr user.a f         -> NoAttribute
         1:10 getxattr user.a l         -> NoAttribute
         1:10 getxattr trusted.a f      -> NoAttribute
         2:20 getxattr security.a f     -> NoAttribute
         2:20 getxattr system.other f   -> NotSupported
         2:20 getxattr system.posix_acl_access f -> NoAttribute",
    );
}

#[test]
fn what_is_made_in_a_directory_has_its_policy() {
    rows(
        FILES,
        "1:10 setxattr leasehold.policy code=2+1 f  -> ok
         1:10 setxattr leasehold.policy code=2+1 t  -> ok
         0:0  setxattr leasehold.policy copies=2 d  -> ok
         2:10 setxattr leasehold.policy copies=2 f  -> NotPermitted
         1:10 setxattr leasehold.policy copies=0 f  -> Invalid
         0:0  setxattr leasehold.policy copies=2 l  -> NotSupported
         0:0  setxattr leasehold.policy copies=2 p  -> NotSupported
         1:10 removexattr leasehold.policy f        -> NoAttribute
         2:20 getxattr leasehold.policy f           -> NoAttribute",
    );
    let mut s = Situation::new(FILES);
    let set = s.set_xattr("leasehold.policy", b"code=2+1", XattrMode::Set, "d", "1:10");
    assert_eq!(s.run(&set), Ok(Answer::Nothing));
    for made in ["create 644 0 d/n", "mkdir 755 0 d/s", "mkdir 755 0 d/s/deep", "create 644 0 d/s/deep/file"]
    {
        s.run_text(&format!("1:10 {made}")).unwrap();
    }
    for made in ["d/n", "d/s", "d/s/deep", "d/s/deep/file"] {
        let get = format!("2:20 getxattr leasehold.policy {made}");
        assert_eq!(s.run_text(&get), Ok(Answer::Bytes(b"code=2+1".to_vec())), "{made}");
    }
    s.run_text("1:10 removexattr leasehold.policy d/n").unwrap();
    assert_eq!(s.run_text("2:20 getxattr leasehold.policy d/n"), Err(Error::NoAttribute));
}

#[test]
fn attributes_are_set_found_listed_and_removed() {
    let mut s = Situation::new(FILES);
    let set = |s: &mut Situation, value: &[u8], mode| {
        let operation = s.set_xattr("user.a", value, mode, "f", "1:10");
        s.run(&operation)
    };
    assert_eq!(set(&mut s, b"0", XattrMode::Replace), Err(Error::NoAttribute));
    assert_eq!(set(&mut s, b"1", XattrMode::Create), Ok(Answer::Nothing));
    assert_eq!(set(&mut s, b"2", XattrMode::Create), Err(Error::Exists));
    assert_eq!(set(&mut s, b"3", XattrMode::Replace), Ok(Answer::Nothing));
    assert_eq!(s.run_text("1:10 getxattr user.a f"), Ok(Answer::Bytes(b"3".to_vec())));
    // Two changes at one time are still two changes.
    assert_eq!(s.file("f").attributes.ctime, at(1000).next());
    let list = Operation::ListXattrs(operation::ListXattrs { file: s.id("f") });
    assert_eq!(s.run(&list), Ok(Answer::Names(vec![Label::attribute(b"user.a").unwrap()])));
    s.run_text("1:10 removexattr user.a f").unwrap();
    assert_eq!(s.run(&list), Ok(Answer::Names(vec![])));
    assert_eq!(set(&mut s, &vec![0; XATTR_BYTES_MAX], XattrMode::Set), Ok(Answer::Nothing));
    assert_eq!(set(&mut s, &vec![0; XATTR_BYTES_MAX + 1], XattrMode::Set), Err(Error::TooBig));
}

#[test]
fn the_list_of_names_is_bounded() {
    let mut s = Situation::new(FILES);
    // 256 names of 255 bytes, each with its zero, are exactly the bound.
    for n in 0..257 {
        let operation = s.set_xattr(&format!("user.{n:0250}"), b"", XattrMode::Set, "f", "1:10");
        assert_eq!(s.run(&operation), if n < 256 { Ok(Answer::Nothing) } else { Err(Error::TooBig) }, "{n}");
    }
    // An existing attribute can still be changed.
    let operation = s.set_xattr(&format!("user.{:0250}", 0), b"x", XattrMode::Set, "f", "1:10");
    assert_eq!(s.run(&operation), Ok(Answer::Nothing));
}

/// The kernel removes capabilities in the name of the writer.
#[test]
fn who_may_write_takes_capabilities_away() {
    for (asker, expected) in [
        ("1:10", Ok(Answer::Nothing)),
        ("2:10", Err(Error::NotPermitted)),
        ("2:20", Err(Error::NotPermitted)),
    ] {
        let mut s = Situation::new(FILES);
        assert_eq!(s.run_text("1:10 setxattr security.capability v f"), Err(Error::NotPermitted));
        s.run_text("0:0 setxattr security.capability v f").unwrap();
        assert_eq!(s.run_text(&format!("{asker} removexattr security.capability f")), expected);
    }
}

/// Parses `1:7 2@5:4 ...`: tag, id if any, permissions.
fn acl(text: &str) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for entry in text.split(' ') {
        let (tag, perm) = entry.split_once(':').unwrap();
        let (tag, id) = tag.split_once('@').unwrap_or((tag, "4294967295"));
        bytes.extend(tag.parse::<u16>().unwrap().to_le_bytes());
        bytes.extend(perm.parse::<u16>().unwrap().to_le_bytes());
        bytes.extend(id.parse::<u32>().unwrap().to_le_bytes());
    }
    bytes
}

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn set_acl(s: &mut Situation, name: &str, list: &str, path: &str, asker: &str) -> Result<Answer, Error> {
    let operation = s.set_xattr(name, &acl(list), XattrMode::Set, path, asker);
    s.run(&operation)
}

fn get_acl(s: &mut Situation, name: &str, path: &str) -> Option<Vec<u8>> {
    match s.run_text(&format!("0:0 getxattr {name} {path}")) {
        Ok(Answer::Bytes(bytes)) => Some(bytes),
        Err(Error::NoAttribute) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_may_set_a_list() {
    let minimal = "1:6 4:4 32:0";
    for (name, list, path, asker, expected) in [
        (ACCESS, minimal, "f", "1:10", Ok(Answer::Nothing)),
        (ACCESS, minimal, "f", "2:10", Err(Error::NotPermitted)),
        (ACCESS, minimal, "l", "1:10", Err(Error::NotSupported)),
        (ACCESS, minimal, "p", "1:10", Ok(Answer::Nothing)),
        (ACCESS, "1:6 32:0", "f", "1:10", Err(Error::Invalid)),
        (DEFAULT, minimal, "d", "1:10", Ok(Answer::Nothing)),
        (DEFAULT, minimal, "f", "1:10", Err(Error::AccessDenied)),
        (DEFAULT, minimal, "d", "2:10", Err(Error::NotPermitted)),
    ] {
        let mut s = Situation::new(FILES);
        assert_eq!(set_acl(&mut s, name, list, path, asker), expected, "{name} {list} {path} {asker}");
    }
}

#[test]
fn a_list_and_the_mode_follow_each_other() {
    let mut s = Situation::new("f -rwxr-sr-x 1:10");
    // The list is equivalent to a mode, so no list is stored.
    set_acl(&mut s, ACCESS, "1:6 4:5 32:1", "f", "1:10").unwrap();
    assert_eq!((get_acl(&mut s, ACCESS, "f"), s.file("f").attributes.mode), (None, 0o2651));
    set_acl(&mut s, ACCESS, "1:6 2@5:7 4:4 16:6 32:0", "f", "1:10").unwrap();
    assert_eq!(s.file("f").attributes.mode, 0o2660);
    s.run_text("1:10 chmod 604 f").unwrap();
    assert_eq!(get_acl(&mut s, ACCESS, "f"), Some(acl("1:6 2@5:7 4:4 16:0 32:4")));
    s.run_text("1:10 chmod 674 f").unwrap();
    assert_eq!(get_acl(&mut s, ACCESS, "f"), Some(acl("1:6 2@5:7 4:4 16:7 32:4")));
    // The group's bits keep the mask's value.
    s.run_text("1:10 removexattr system.posix_acl_access f").unwrap();
    assert_eq!((get_acl(&mut s, ACCESS, "f"), s.file("f").attributes.mode), (None, 0o674));
    let before = s.tree.clone();
    assert_eq!(s.run_text("1:10 removexattr system.posix_acl_access f"), Ok(Answer::Nothing));
    assert_eq!(s.tree, before);
    // A list set by a user outside the group clears set-gid, as chmod does.
    s.run_text("0:0 chmod 2755 f").unwrap();
    set_acl(&mut s, ACCESS, "1:7 4:5 32:5", "f", "1:3").unwrap();
    assert_eq!(s.file("f").attributes.mode, 0o755);
}

#[test]
fn a_list_decides_for_all_but_owner_and_root() {
    let mut s = Situation::new("d drwx------ 1:10\n d/f -rw------- 1:10");
    set_acl(&mut s, ACCESS, "1:7 2@5:7 4:0 8@50:5 16:7 32:0", "d", "1:10").unwrap();
    for (asker, label, expected) in [
        ("5:5", "new", Ok(())),
        ("6:50", "new", Err(Error::AccessDenied)),
        ("6:50", "f", Err(Error::Exists)),
        ("6:10", "f", Err(Error::AccessDenied)),
        ("7:7,50", "f", Err(Error::Exists)),
        ("7:7", "f", Err(Error::AccessDenied)),
    ] {
        let mut s = s.clone();
        let done = s.run_text(&format!("{asker} create 644 0 d/{label}"));
        assert_eq!(done.map(|_| ()), expected, "{asker} {label}");
    }
    // A write in a directory needs one entry with both "write" and "search".
    let mut both = Situation::new("d drwx------ 1:10");
    set_acl(&mut both, ACCESS, "1:7 4:1 8@50:2 16:7 32:0", "d", "1:10").unwrap();
    assert_eq!(both.run_text("6:10,50 lookup d/new"), Err(Error::NotFound));
    assert_eq!(both.run_text("6:10,50 create 644 0 d/new"), Err(Error::AccessDenied));
    // As in Linux, the list is ignored if the group's bits (the mask) are all zero. The "others"
    // bits remain.
    s.run_text("1:10 chmod 705 d").unwrap();
    assert!(matches!(s.run_text("5:5 lookup d/f"), Ok(Answer::Entry(_))));
}

#[test]
fn a_default_list_takes_the_place_of_the_umask() {
    let mut s = Situation::new("d drwxrwxrwx 1:10");
    let default = "1:7 2@5:7 4:5 16:7 32:4";
    set_acl(&mut s, DEFAULT, default, "d", "1:10").unwrap();
    s.run_text("2:20 create 666 077 d/f").unwrap();
    assert_eq!(s.file("d/f").attributes.mode, 0o664);
    assert_eq!(get_acl(&mut s, ACCESS, "d/f"), Some(acl("1:6 2@5:7 4:5 16:6 32:4")));
    assert_eq!(get_acl(&mut s, DEFAULT, "d/f"), None);
    s.run_text("2:20 mkdir 750 077 d/d").unwrap();
    assert_eq!(s.file("d/d").attributes.mode, 0o750);
    assert_eq!(get_acl(&mut s, ACCESS, "d/d"), Some(acl("1:7 2@5:7 4:5 16:5 32:0")));
    assert_eq!(get_acl(&mut s, DEFAULT, "d/d"), Some(acl(default)));
    s.run_text("2:20 symlink 0 077 d/l").unwrap();
    assert_eq!((get_acl(&mut s, ACCESS, "d/l"), s.file("d/l").attributes.mode), (None, 0o777));
    // A list with nothing beyond a mode gives the new file no list.
    set_acl(&mut s, DEFAULT, "1:7 4:5 32:0", "d", "1:10").unwrap();
    s.run_text("2:20 create 666 0 d/g").unwrap();
    assert_eq!((get_acl(&mut s, ACCESS, "d/g"), s.file("d/g").attributes.mode), (None, 0o640));
    // Without the default list the umask counts again.
    s.run_text("1:10 removexattr system.posix_acl_default d").unwrap();
    s.run_text("2:20 create 666 077 d/h").unwrap();
    assert_eq!(s.file("d/h").attributes.mode, 0o600);
}

fn extent(offset: u64, length: u32, skip: u32, piece_length: u32, place: Place) -> Extent {
    Extent {
        offset,
        length,
        skip,
        piece: Piece { length: piece_length, nonce: [0; 12], hash: [0; 32], place },
    }
}

fn share(at: u32) -> Place {
    Place::Share { share: ShareId([7; 16]), at }
}

/// Version, size and change of a publication, to a file with version 4, size 100 and no key.
#[test]
fn publications() {
    let put = |truncate_to, put, key| ContentChange::Extents { truncate_to, punch: vec![], put, key };
    let one = |extent| put(None, vec![extent], Some([1; 32]));
    let pad = SEAL_BYTES as usize;
    let inline = |length, key| ContentChange::Inline { sealed: vec![0; length + INLINE_SEAL_BYTES], key };
    let rows = [
        (5, 100, ContentChange::None, true),
        (6, 100, ContentChange::None, false),
        (4, 100, ContentChange::None, false),
        (5, 99, ContentChange::None, false),
        (5, 1 << 40, ContentChange::None, true),
        (5, 3, inline(3, Some([1; 32])), true),
        (5, 4, inline(3, Some([1; 32])), false),
        (5, 3, inline(3, None), false), // without a key
        (5, 0, ContentChange::Inline { sealed: Vec::new(), key: None }, true),
        (5, 0, inline(0, Some([1; 32])), false),
        (5, 3, ContentChange::Inline { sealed: b"abc".to_vec(), key: Some([1; 32]) }, false), // not sealed
        (5, 4096, inline(4096, Some([1; 32])), true),
        (5, 4097, inline(4097, Some([1; 32])), false),
        (5, i64::MAX as u64, inline(0, Some([1; 32])), false),
        (5, 100, put(None, vec![], None), true),
        (5, 99, put(None, vec![], None), false),
        (5, 99, put(Some(50), vec![], None), true),
        (5, 99, put(Some(100), vec![], None), false),
        (5, 100, one(extent(0, 100, 0, 100, share(0))), true),
        (5, 100, put(None, vec![extent(0, 100, 0, 100, share(0))], None), false), // without a key
        (5, 100, one(extent(1, 100, 0, 100, share(0))), false),
        (5, 100, one(extent(u64::MAX, 100, 0, 100, share(0))), false),
        (5, 100, one(extent(0, 0, 0, 100, share(0))), false),
        (5, 100, one(extent(0, 60, 40, 100, share(0))), true),
        (5, 100, one(extent(0, 60, 41, 100, share(0))), false),
        (5, 100, one(extent(0, 60, u32::MAX, 100, share(0))), false),
        (5, 1 << 20, one(extent(0, 1 << 20, 0, 1 << 20, share(0))), true),
        (5, 1 << 21, one(extent(0, 1 << 20, 0, (1 << 20) + 1, share(0))), false),
        (5, 100, one(extent(0, 100, 0, 100, share(u32::MAX - 10))), false),
        (5, 100, one(extent(0, 100, 0, 100, Place::Inline(vec![0; 100 + pad].into()))), true),
        (5, 100, one(extent(0, 100, 0, 100, Place::Inline(vec![0; 100].into()))), false),
        (
            5,
            1 << 20,
            one(extent(0, 1 << 20, 0, 1 << 20, Place::Inline(vec![0; (1 << 20) + pad].into()))),
            false,
        ),
        (
            5,
            100,
            put(None, vec![extent(0, 9, 0, 9, share(0)), extent(9, 9, 0, 9, share(0))], Some([1; 32])),
            true,
        ),
        (
            5,
            100,
            put(None, vec![extent(0, 9, 0, 9, share(0)), extent(8, 9, 0, 9, share(0))], Some([1; 32])),
            false,
        ),
        (
            5,
            100,
            put(None, vec![extent(9, 9, 0, 9, share(0)), extent(0, 9, 0, 9, share(0))], Some([1; 32])),
            false,
        ),
        (
            5,
            100,
            ContentChange::Extents { truncate_to: None, punch: vec![(5, 0)], put: vec![], key: None },
            false,
        ),
        (
            5,
            100,
            ContentChange::Extents { truncate_to: None, punch: vec![(5, u64::MAX)], put: vec![], key: None },
            false,
        ),
        (
            5,
            100,
            ContentChange::Extents { truncate_to: None, punch: vec![(5, 5)], put: vec![], key: None },
            true,
        ),
    ];
    for (version, size, change, good) in rows {
        let mut s = at_version_4();
        let (mtime, ctime) = (at(3), at(4));
        let publish = Operation::Publish(operation::Publish {
            file: s.id("f"),
            version,
            size,
            mtime,
            ctime,
            change: change.clone(),
        });
        let expected = if good { Ok(Answer::Nothing) } else { Err(Error::Invalid) };
        assert_eq!(s.run(&publish), expected, "{version} {size} {change:?}");
        if good {
            let head = s.file("f").content;
            let occupied = if matches!(change, ContentChange::Inline { .. }) { size } else { 77 };
            assert_eq!((head.version, head.size, head.mtime, head.occupied), (5, size, mtime, occupied));
            assert_eq!(head.ctime, at(20), "ctime never goes back");
        }
    }
}

fn at_version_4() -> Situation {
    let mut s = Situation::new(FILES);
    let f = s.id("f");
    let head = ContentHead { size: 100, version: 4, occupied: 77, ctime: at(20), ..ContentHead::default() };
    s.tree.files.get_mut(&f).unwrap().content = head;
    s
}

#[test]
fn a_file_keeps_its_first_key() {
    let mut s = at_version_4();
    let f = s.id("f");
    let publish = |version, key| {
        let put = vec![extent(0, 9, 0, 9, share(0))];
        let change = ContentChange::Extents { truncate_to: None, punch: vec![], put, key };
        Operation::Publish(operation::Publish {
            file: f.clone(),
            version,
            size: 100,
            mtime: at(30),
            ctime: at(30),
            change,
        })
    };
    s.run(&publish(5, Some([1; 32]))).unwrap();
    s.run(&publish(6, None)).unwrap();
    s.run(&publish(7, Some([1; 32]))).unwrap();
    assert_eq!(s.run(&publish(8, Some([2; 32]))), Err(Error::Invalid));
    assert_eq!((s.file("f").content.key, s.file("f").content.ctime), (Some([1; 32]), at(30)));
}

#[test]
fn only_regular_files_have_content_to_publish() {
    let mut s = Situation::new(FILES);
    for path in ["d", "l", "p"] {
        let file = s.id(path);
        let change = ContentChange::None;
        let publish = Operation::Publish(operation::Publish {
            file,
            version: 1,
            size: 0,
            mtime: at(1),
            ctime: at(1),
            change,
        });
        assert_eq!(s.run(&publish), Err(Error::Invalid), "{path}");
    }
    let (file, change) = (s.id("f"), ContentChange::None);
    let publish = Operation::Publish(operation::Publish {
        file,
        version: 1,
        size: 1 << 63,
        mtime: at(1),
        ctime: at(1),
        change,
    });
    assert_eq!(s.run(&publish), Err(Error::TooBig));
}

#[test]
fn links_are_read_and_nothing_else_is() {
    let mut s = Situation::new(FILES);
    s.run_text("1:10 symlink 0 0 d/l").unwrap();
    assert_eq!(
        s.run(&Operation::ReadLink(operation::ReadLink { file: s.id("d/l") })),
        Ok(Answer::Bytes(b"target".to_vec()))
    );
    assert_eq!(s.run(&Operation::ReadLink(operation::ReadLink { file: s.id("f") })), Err(Error::Invalid));
    let Ok(Answer::Stat(stat)) = s.run(&Operation::Stat(operation::Stat { file: s.id("d/l") })) else {
        panic!()
    };
    assert_eq!((stat.size, stat.mtime, stat.attributes.kind), (6, at(1000), FileKind::Symlink));
    assert_eq!(s.run(&Operation::List(operation::List { dir: s.id("d") })), Ok(Answer::Nothing));
    assert_eq!(s.run(&Operation::List(operation::List { dir: s.id("f") })), Err(Error::NotDirectory));
}
