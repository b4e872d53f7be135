use super::*;
use crate::{FileKind, Timestamp};
use proptest::prelude::*;

/// Parses `u::rw- u:5:r-x g::--- m::rwx o::r--`, getfacl's short form.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for entry in text.split_whitespace() {
        let [tag, id, perm] = entry.split(':').collect::<Vec<_>>().try_into().unwrap();
        let tag = match (tag, id) {
            ("u", "") => USER_OBJ,
            ("u", _) => USER,
            ("g", "") => GROUP_OBJ,
            ("g", _) => GROUP,
            ("m", "") => MASK,
            ("o", "") => OTHER,
            _ => panic!("{entry}"),
        };
        let perm: u16 = perm.bytes().zip([4, 2, 1]).map(|(c, bit)| if c == b'-' { 0 } else { bit }).sum();
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.parse().unwrap_or(NO_ID).to_le_bytes());
    }
    bytes
}

fn acl(text: &str) -> Acl {
    Acl::parse(&bytes(text)).unwrap().unwrap()
}

fn owned_by(uid: u32, gid: u32) -> Attributes {
    let time = Timestamp::default();
    Attributes {
        kind: FileKind::Regular,
        mode: 0,
        uid,
        gid,
        links: 1,
        ino: 2,
        rdev: 0,
        ctime: time,
        btime: time,
        atime: time,
    }
}

#[test]
fn validity() {
    for (text, valid) in [
        ("u::rw- g::r-- o::---", true),
        ("u::rw- u:5:r-- g::r-- m::r-- o::---", true),
        ("u::rw- u:5:r-- u:4:r-- g::r-- g:7:--- g:7:rwx m::r-- o::---", true),
        ("u::rw- g::r-- m::rwx o::---", true),
        ("u::rw- u:5:r-- g::r-- o::---", false), // named, no mask
        ("u::rw- g::r-- g:5:r-- o::---", false),
        ("g::r-- u::rw- o::---", false), // order
        ("u::rw- o::---", false),
        ("u::rw- g::r--", false),
        ("u::rw- u::rw- g::r-- o::---", false),
        ("u::rw- g::r-- g::r-- o::---", false),
        ("u::rw- g::r-- m::r-- m::r-- o::---", false),
        ("u::rw- g::r-- o::--- o::---", false),
        ("u::rw- u:5:r-- m::r-- o::---", false), // no owning group
        ("u::rw- u:4294967295:r-- g::r-- m::r-- o::---", false),
    ] {
        assert_eq!(Acl::parse(&bytes(text)).is_ok(), valid, "{text}");
    }
    let mut excess = bytes("u::rw- g::r-- o::---");
    excess[HEADER_BYTES + 2] = 8;
    assert_eq!(Acl::parse(&excess), Err(NotAnAcl));
    assert_eq!(Acl::parse(&[2, 0, 0, 0]), Ok(None));
    assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(NotAnAcl));
    assert_eq!(Acl::parse(&[]), Err(NotAnAcl));
}

/// The bytes that the kernel itself wrote for `setfacl -m u:1000:rw,g:50:x` on a file of mode 0640.
#[test]
fn golden_bytes() {
    let golden = [
        2, 0, 0, 0, // version
        1, 0, 6, 0, 255, 255, 255, 255, // owner rw-
        2, 0, 6, 0, 232, 3, 0, 0, // user 1000 rw-
        4, 0, 4, 0, 255, 255, 255, 255, // group r--
        8, 0, 1, 0, 50, 0, 0, 0, // group 50 --x
        16, 0, 7, 0, 255, 255, 255, 255, // mask rwx
        32, 0, 0, 0, 255, 255, 255, 255, // others ---
    ];
    let parsed = Acl::parse(&golden).unwrap().unwrap();
    assert_eq!(parsed, acl("u::rw- u:1000:rw- g::r-- g:50:--x m::rwx o::---"));
    assert_eq!(parsed.emit(), golden);
}

#[test]
fn access() {
    // The file belongs to user 1 and group 10. Each row has the list, user, group and wanted bits,
    // and whether the list permits them.
    let rows = [
        ("u::rw- g::r-- o::---", 1, 1, 6, true),
        ("u::rw- g::r-- o::rwx", 1, 1, 1, false), // the owner's entry decides
        ("u::r-- u:1:rwx g::rwx m::rwx o::rwx", 1, 10, 2, false),
        ("u::rw- u:2:rw- g::--- m::rwx o::---", 2, 2, 6, true),
        ("u::rw- u:2:rw- g::--- m::r-- o::---", 2, 2, 2, false), // the mask takes it
        ("u::rw- u:2:--- g::rwx m::rwx o::rwx", 2, 10, 4, false), // a named user's entry decides
        ("u::--- g::rw- o::---", 3, 10, 6, true),
        ("u::--- g::rw- o::rwx", 3, 10, 1, false), // of the group, so never others
        ("u::--- g::r-- g:11:-w- m::rwx o::---", 3, 11, 2, true),
        ("u::--- g::r-- g:3:-w- m::rwx o::---", 3, 3, 6, false),
        ("u::--- g::rwx m::r-x o::rwx", 3, 10, 2, false),
        ("u::--- g::rwx m::--- o::r--", 4, 4, 4, true), // the mask is not for others
        ("u::--- g::rwx m::rwx o::r--", 4, 4, 5, false),
        ("u::--- g::--- o::---", 4, 4, 0, true),
    ];
    for (text, uid, gid, wanted, expected) in rows {
        let cred = Cred { uid, gid, ..Cred::default() };
        assert_eq!(
            acl(text).permits(&owned_by(1, 10), &cred, wanted),
            expected,
            "{text} {uid}:{gid} {wanted}"
        );
    }
    // One entry must grant everything: two groups with one bit each do not add up.
    let both = Cred { uid: 3, gid: 10, groups: SmallVec::from_slice(&[11]), ..Cred::default() };
    assert!(!acl("u::--- g::r-- g:11:-w- m::rwx o::---").permits(&owned_by(1, 10), &both, 6));
}

#[test]
fn modes() {
    for (text, bits, extended) in [
        ("u::rw- g::r-- o::--x", 0o641, false),
        ("u::rw- g::r-- m::-w- o::--x", 0o621, true),
        ("u::rwx u:3:r-- g::--- m::r-- o::---", 0o740, true),
    ] {
        assert_eq!((acl(text).mode_bits(), acl(text).is_extended()), (bits, extended), "{text}");
    }
}

#[test]
fn chmod() {
    for (before, mode, after) in [
        ("u::rw- g::r-- o::--x", 0o4750, "u::rwx g::r-x o::---"),
        ("u::rw- u:7:rwx g::r-- m::rwx o::--x", 0o604, "u::rw- u:7:rwx g::r-- m::--- o::r--"),
    ] {
        let mut changed = acl(before);
        changed.set_mode_bits(mode);
        assert_eq!(changed, acl(after), "{before} {mode:o}");
    }
}

#[test]
fn inheritance() {
    for (default, wanted, access, mode) in [
        ("u::rwx g::r-x o::---", 0o666, "u::rw- g::r-- o::---", 0o640),
        ("u::rwx g::r-x o::rwx", 0o2777, "u::rwx g::r-x o::rwx", 0o2757),
        ("u::rwx u:9:rwx g::r-x m::rwx o::r--", 0o640, "u::rw- u:9:rwx g::r-x m::r-- o::---", 0o640),
        ("u::rwx u:9:rwx g::r-x m::r-x o::r--", 0o666, "u::rw- u:9:rwx g::r-x m::r-- o::r--", 0o644),
    ] {
        let mut inherited = acl(default);
        assert_eq!(inherited.inherit(wanted), mode, "{default} {wanted:o}");
        assert_eq!(inherited, acl(access), "{default} {wanted:o}");
    }
}

/// Bytes that often are a list, or nearly one.
fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let entry = (
        prop_oneof![8 => (0u32..6).prop_map(|bit| 1u16 << bit), 1 => any::<u16>()],
        prop_oneof![8 => 0u16..8, 1 => any::<u16>()],
        prop_oneof![4 => 0u32..4, 1 => any::<u32>()],
    );
    let sorted = (proptest::collection::vec(entry, 0..7), any::<bool>()).prop_map(|(mut entries, sort)| {
        if sort {
            entries.sort_unstable();
        }
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    });
    prop_oneof![3 => sorted, 1 => proptest::collection::vec(any::<u8>(), 0..60)]
}

proptest! {
    #[test]
    fn what_parses_is_emitted_as_something_that_parses_to_the_same(bytes in some_bytes()) {
        if let Ok(Some(parsed)) = Acl::parse(&bytes) {
            prop_assert_eq!(Acl::parse(&parsed.emit()), Ok(Some(parsed)));
        }
    }

    /// A list with nothing beyond mode bits permits exactly what they permit.
    #[test]
    fn a_minimal_list_is_its_mode(mode in 0u16..0o1000, uid in 1u32..3, gid in 1u32..3, wanted in 0u16..8) {
        let mut minimal = acl("u::--- g::--- o::---");
        minimal.set_mode_bits(mode);
        prop_assert_eq!(minimal.mode_bits(), mode);
        let cred = Cred { uid, gid, ..Cred::default() };
        let bits = if uid == 1 { mode >> 6 } else if gid == 1 { mode >> 3 } else { mode };
        prop_assert_eq!(minimal.permits(&owned_by(1, 1), &cred, wanted), bits & wanted == wanted);
    }
}
