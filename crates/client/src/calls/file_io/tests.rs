//! Answers to questions for content, which the log and grants overtake.

use crate::server::ServerId;
use crate::tests::{at, empty, logged, opened};
use crate::{Call, Client, Input, Invalidation, Output, Settings, call};
use ident::FileId;
use lease::{Field, Kind, Released};
use namespace::{Attributes, ContentHead, Cred, FileKind};
use std::collections::BTreeSet;
use wire::{FileGrant, LogEntry, ToClient, ToServer, Values};

fn hears(client: &mut Client, message: ToClient) -> Vec<Output> {
    let mut out = Vec::new();
    client.handle(at(1), Input::Message(ServerId::ROOT, message), &mut out);
    out
}

/// The grant `number` of the content of `file`, of `size` bytes that are not told with it.
fn grant(client: &mut Client, number: u64, file: &FileId, size: u64) {
    let empty = empty(file);
    let attributes =
        empty.values.attributes.map(|it| Attributes { kind: FileKind::Regular, mode: 0o644, ..it });
    let content = Some(ContentHead { size, key: Some([7; 32]), ..ContentHead::default() });
    let values = Values { attributes, content, ..Values::default() };
    let fields = vec![(Field::Attributes, Kind::Read), (Field::Content, Kind::Read)];
    let grants = vec![FileGrant { fields, values, ..empty }];
    hears(client, ToClient::Granted { number, grants, gone: Vec::new() });
}

/// The number of the only question for content in `out`.
fn question(out: &[Output]) -> u64 {
    let numbers = out.iter().filter_map(|output| match output {
        Output::Send(_, ToServer::Extents { number, .. }) => Some(*number),
        _ => None,
    });
    let numbers: Vec<u64> = numbers.collect();
    let [number] = numbers[..] else { panic!("{out:?}") };
    number
}

/// A client with a lease on a file's content, and the number of its question for that.
fn asking() -> (Client, FileId, u64) {
    let (mut client, file) = (Client::new(Settings::new([7; 32])), FileId::root().child(2));
    client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut Vec::new());
    hears(&mut client, opened());
    grant(&mut client, 1, &file, 10_000);
    let mut out = Vec::new();
    let read = call::Read { file: file.clone(), offset: 0, length: 4096, kept: true, quietly: true };
    client.call(at(1), &Cred::default(), Call::Read(read), &mut out);
    let number = question(&out);
    (client, file, number)
}

fn content(file: &FileId) -> Released {
    Released { file: file.clone(), field: Field::Content, keep: None }
}

/// Ends the revocation in `out`, which has to be one of the pages of `file`.
fn revoke(client: &mut Client, file: &FileId, out: &[Output]) -> Vec<Output> {
    let [Output::Revoke { number, ref what, .. }] = out[..] else { panic!("{out:?}") };
    assert_eq!(*what, [Invalidation::Pages(file.clone())]);
    let mut out = Vec::new();
    client.handle(at(2), Input::Revoked { number, kept: BTreeSet::new() }, &mut out);
    out
}

/// Lets the lease go, and gets the next one.
fn lease_again(client: &mut Client, file: &FileId, size: u64) {
    let out = hears(client, ToClient::Recall { leases: vec![content(file)], ahead: Vec::new() });
    let out = revoke(client, file, &out);
    assert_eq!(logged(&out), [LogEntry::Release(vec![content(file)])]);
    let up_to = client.server().log.last();
    hears(client, ToClient::Applied { up_to, rejected: Vec::new(), forgotten: 0 });
    grant(client, 2, file, size);
    assert!(client.files.get(file).unwrap().held.covers(&Field::Content, Kind::Read));
}

fn answer(number: u64, file: &FileId, to: u64) -> ToClient {
    ToClient::Extents { number, file: file.clone(), from: 0, to, extents: Vec::new(), inline: None }
}

/// The server answered when the earlier lease was gone. The kernel may have pages under the next.
#[test]
fn a_late_answer_without_content_does_not_release_the_next_lease() {
    let (mut client, file, number) = asking();
    lease_again(&mut client, &file, 0);
    let last = client.server().log.last();
    let out = hears(&mut client, answer(number, &file, 0));
    assert!(!out.iter().any(|output| matches!(output, Output::Revoke { .. })), "{out:?}");
    assert!(client.files.get(&file).unwrap().held.covers(&Field::Content, Kind::Read));
    assert_eq!(client.server().log.last(), last, "nothing is released");
}

/// The extents are of what the file was before another machine wrote it.
#[test]
fn a_late_answer_is_not_taken_for_the_content_of_the_next_lease() {
    let (mut client, file, number) = asking();
    lease_again(&mut client, &file, 10_000);
    let out = hears(&mut client, answer(number, &file, u64::MAX));
    let again = question(&out);
    assert!(again > number);
    let out = hears(&mut client, answer(again, &file, u64::MAX));
    assert!(out.iter().any(|output| matches!(output, Output::Answer { result: Ok(_), .. })), "{out:?}");
}

/// A lease that only this client knows of goes as if it were recalled: pages first.
#[test]
fn a_lease_that_the_server_does_not_know_goes_after_the_pages_under_it() {
    let (mut client, file, number) = asking();
    let out = hears(&mut client, answer(number, &file, 0));
    assert!(logged(&out).is_empty(), "{out:?}");
    let revoked: Vec<Output> =
        out.into_iter().filter(|output| matches!(output, Output::Revoke { .. })).collect();
    let out = revoke(&mut client, &file, &revoked);
    assert_eq!(logged(&out), [LogEntry::Release(vec![content(&file)])]);
}
