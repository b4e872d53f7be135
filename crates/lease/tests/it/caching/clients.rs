//! The keys of clients.

use super::{key, lease, lease_of};
use lease::caching::{AcknowledgeError, Actor, Clients, KeyInUse, LeaseKey, LeaseVersion, ObjectId};

const FILE: ObjectId = ObjectId(1);
const STREAM: ObjectId = ObjectId(2);

#[test]
fn a_key_belongs_to_one_object_while_its_lease_has_opens() {
    let mut clients = Clients::new();
    assert_eq!(clients.bind(lease(1), FILE), Ok(()));
    assert_eq!(clients.bind(lease(1), FILE), Ok(()), "another open, or another hard link");
    assert_eq!(clients.admits(lease(1), STREAM), Err(KeyInUse));
    assert_eq!(clients.bind(lease(1), STREAM), Err(KeyInUse));
    assert_eq!(clients.bind(lease(2), STREAM), Ok(()), "a stream takes a key of its own");
    clients.unbind(lease(1), FILE);
    assert_eq!(clients.bind(lease(1), STREAM), Ok(()));
}

#[test]
fn clients_have_tables_of_their_own() {
    let mut clients = Clients::new();
    assert_eq!(clients.bind(lease_of(1, 7), FILE), Ok(()));
    assert_eq!(clients.bind(lease_of(2, 7), STREAM), Ok(()));
    assert_eq!(clients.object(lease_of(1, 7)), Ok(FILE));
    assert_eq!(clients.object(lease_of(2, 7)), Ok(STREAM));
}

#[test]
fn an_acknowledgment_of_an_unknown_key_finds_no_object() {
    let mut clients = Clients::new();
    assert_eq!(clients.object(lease(1)), Err(AcknowledgeError::Unknown));
    assert_eq!(clients.bind(lease(1), FILE), Ok(()));
    assert_eq!(clients.object(lease(1)), Ok(FILE));
    assert_eq!(clients.object(lease_of(2, 1)), Err(AcknowledgeError::Unknown), "another client");
    clients.unbind(lease(1), FILE);
    assert_eq!(clients.object(lease(1)), Err(AcknowledgeError::Unknown));
}

#[test]
fn a_file_that_is_deleted_on_close_lets_its_key_go() {
    let mut clients = Clients::new();
    assert_eq!(clients.bind(lease(1), FILE), Ok(()));
    clients.note_deleted(lease(1), STREAM);
    assert_eq!(clients.admits(lease(1), STREAM), Err(KeyInUse), "noted of another object");
    clients.note_deleted(lease(1), FILE);
    assert_eq!(clients.bind(lease(1), STREAM), Ok(()));
    clients.unbind(lease(1), FILE);
    assert_eq!(clients.object(lease(1)), Ok(STREAM), "the file's last close ends its own binding only");
    assert_eq!(clients.admits(lease(1), FILE), Err(KeyInUse), "the mark went with the file");
}

#[test]
fn a_key_of_zeros_is_no_key() {
    assert_eq!(LeaseKey::new([0; 16]), None);
    assert_eq!(LeaseKey::new([3; 16]).map(LeaseKey::bytes), Some([3; 16]));
}

#[test]
fn a_parent_key_counts_with_its_flag_only() {
    let parent = |flags| match LeaseVersion::v2(9, flags, [5; 16]) {
        LeaseVersion::V2 { epoch: 9, parent } => parent,
        other => unreachable!("{other:?}"),
    };
    assert_eq!(parent(0x4), Some(key(5)));
    assert_eq!(parent(0x4 | 0x2), Some(key(5)), "flag 0x2 of a request is ignored");
    assert_eq!(parent(0), None);
    assert_eq!(parent(0x2), None);
}

#[test]
fn a_deletion_is_exempt_by_a_key_that_both_handles_gave() {
    assert_eq!(Actor::deleting(Some(key(1)), Some(key(1))), Actor::Child(Some(key(1))));
    for (disposer, last) in
        [(Some(key(1)), Some(key(2))), (Some(key(1)), None), (None, Some(key(1))), (None, None)]
    {
        assert_eq!(Actor::deleting(disposer, last), Actor::Child(None));
    }
}
