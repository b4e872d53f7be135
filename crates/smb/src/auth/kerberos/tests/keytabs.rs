//! Keytab files, sound and damaged.

use super::kdc::{Entry, HOST, REALM, key, keytab, service_key};
use crate::auth::kerberos::Keytab;
use proptest::prelude::*;
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;

fn entry<'a>(components: &'a [&'a str], kind: u16, key: &'a [u8]) -> Entry<'a> {
    Entry { realm: REALM, components, byte: 3, kind, key, whole: None }
}

fn count(bytes: &[u8]) -> usize {
    Keytab::parse(bytes).unwrap().entries.len()
}

#[test]
fn other_services_and_weak_types_are_left_out() {
    let key = service_key();
    let all = |components: &'static [&'static str], kind| keytab(&[entry(components, kind, key.bytes())]);
    assert_eq!(count(&all(&["cifs", HOST], 18)), 1);
    for components in [&["host", HOST][..], &["cifs"], &["cifs", HOST, HOST], &["FILES$"], &[]] {
        assert_eq!(count(&all(components, 18)), 0);
    }
    for kind in [1, 3, 16, 23, 99] {
        assert_eq!(count(&all(&["cifs", HOST], kind)), 0);
    }
    assert!(Keytab::parse(&all(&["cifs", HOST], 17)).is_err(), "the key is too long");
}

#[test]
fn holes_and_the_space_behind_are_skipped() {
    let key = service_key();
    let whole = keytab(&[entry(&["cifs", HOST], 18, key.bytes())]);
    let hole = [&(-7_i32).to_be_bytes()[..], &[0xff; 7]].concat();
    assert_eq!(count(&[&whole[..2], &hole, &whole[2..]].concat()), 1);
    assert_eq!(count(&[&whole[..], &[0; 100]].concat()), 1);
    assert_eq!(count(&[5, 2]), 0);
    for bad in [&b""[..], &[5], &[5, 1], &[4, 2], &[5, 2, 0x80, 0, 0, 0], &[5, 2, 0x7f, 0xff, 0xff, 0xff]] {
        assert!(Keytab::parse(bad).is_err());
    }
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keytab");
    let refused = |content: &[u8], mode| {
        write(&file, content).unwrap();
        set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        Keytab::read(&file).map(drop).map_err(|error| error.to_string())
    };
    let key = service_key();
    let whole = keytab(&[entry(&["cifs", HOST], 18, key.bytes())]);
    assert_eq!(refused(&whole, 0o600), Ok(()));
    for mode in [0o640, 0o604, 0o620, 0o666] {
        assert!(refused(&whole, mode).unwrap_err().ends_with("chmod 600"), "{mode:o}");
    }
    let hosts = keytab(&[entry(&["host", HOST], 18, key.bytes())]);
    assert!(refused(&hosts, 0o600).unwrap_err().ends_with("has no key of a principal cifs/HOST with AES"));
    assert!(refused(b"no keytab", 0o600).unwrap_err().ends_with("it is no keytab of version 2"));
    let long = [&whole[..], &vec![0; 1 << 20]].concat();
    assert!(refused(&long, 0o600).unwrap_err().ends_with("is longer than 1 MiB"));
    assert!(Keytab::read(&dir.path().join("none")).unwrap_err().to_string().contains("cannot be read"));
}

proptest! {
    #[test]
    fn no_bytes_are_too_much_for_the_parser(
        garbage in proptest::collection::vec(any::<u8>(), 0..300), at: proptest::sample::Index, byte: u8,
        cut: proptest::sample::Index,
    ) {
        let _ = Keytab::parse(&[&[5, 2], &garbage[..]].concat());
        let key = service_key();
        let mut whole = keytab(&[entry(&["cifs", HOST], 18, key.bytes()), entry(&["cifs", "b"], 18, key.bytes())]);
        let _ = Keytab::parse(&whole[..cut.index(whole.len())]);
        let place = at.index(whole.len());
        whole[place] = byte;
        // An entry has 30 bytes at least, so there are never many.
        prop_assert!(Keytab::parse(&whole).map_or(0, |keytab| keytab.entries.len()) <= 2);
    }

    #[test]
    fn what_is_written_is_read(
        names in proptest::collection::vec(("[A-Z.]{1,20}", "[a-z.0-9]{1,20}", 17..21_i32, any::<u8>(), any::<Option<u32>>()), 0..6),
    ) {
        let keys = names.iter().map(|(_, _, kind, fill, _)| key(*kind, *fill)).collect::<Vec<_>>();
        let components = names.iter().map(|(_, host, ..)| ["cifs", host]).collect::<Vec<_>>();
        let entries = names.iter().zip(&keys).zip(&components).map(|(((realm, _, kind, _, whole), key), components)| {
            Entry { realm, components, byte: 7, kind: *kind as u16, key: key.bytes(), whole: *whole }
        });
        let read = Keytab::parse(&keytab(&entries.collect::<Vec<_>>())).unwrap();
        prop_assert_eq!(read.entries.len(), names.len());
        for ((entry, key), (realm, host, _, _, whole)) in read.entries.iter().zip(&keys).zip(&names) {
            prop_assert_eq!((&entry.realm, &entry.host, &entry.key), (realm, host, key));
            // A whole version of 0 is what old programs leave behind the key.
            let version = whole.filter(|whole| *whole != 0).unwrap_or(7);
            prop_assert!(entry.version.is(version));
            prop_assert!(!entry.version.is(version ^ 1));
        }
    }
}
