//! Leases on directories: whatever a listing shows breaks them, through any front door, but for the
//! client whose own act it is.

use crate::bed::{ALL, Bed, DELETE, READ, Sink, WRITE, key, leased, open_if, pause, request, state};
use client::call;
use file_service::{FileCall, FileService};
use lease::Label;
use lease::caching::{CachingState, ClientGuid, LeaseVersion, Sharing};
use namespace::{AttributeChange, Cred, Error};
use objects::{
    BasicChange, Caching, CreateDisposition, CreateOptions, Deletion, DosAttributes, ObjectPath, Open,
    OpenRequest, Opened, StoreError, Target,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const NONE: CachingState = CachingState::NONE;
const R: CachingState = CachingState::READ;
const RH: CachingState = CachingState::RH;

/// A request for the directory, with a lease of the client of this number.
fn directory(number: u8, state: CachingState) -> OpenRequest {
    let options = CreateOptions(CreateOptions::DIRECTORY);
    leased(number, state, OpenRequest { options, ..request(READ, Sharing::ALL) })
}

/// Opens the directory with a lease, which is granted.
async fn lists(bed: &Bed, path: &str) -> Opened {
    let opened = bed.open(path, directory(1, CachingState::RWH)).await.unwrap();
    assert_eq!(state(opened.granted), RH);
    opened
}

/// The request by a client that has a lease with the key of this number on the directory above.
/// Each file has a key of its own.
fn child_of(parent: u8, request: OpenRequest) -> OpenRequest {
    static LAST: AtomicU8 = AtomicU8::new(70);
    let own = LAST.fetch_add(1, Ordering::Relaxed);
    let version = LeaseVersion::V2 { epoch: 0, parent: Some(key(parent)) };
    OpenRequest {
        client: ClientGuid([7; 16]),
        caching: Caching::Lease { key: key(own), state: NONE, version },
        ..request
    }
}

/// The one break that there was is acknowledged.
async fn broken(bed: &Bed, sink: &Sink, what: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match sink.take()[..] {
            [one] => {
                assert_eq!(one, (RH, NONE, true), "{what}");
                break;
            }
            [] => assert!(Instant::now() < end, "no break by {what}"),
            ref more => panic!("{what}: {more:?}"),
        }
        pause().await;
    }
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), NONE).unwrap());
}

fn to(path: &str) -> Target {
    let path = ObjectPath::parse(path, false).unwrap();
    Target { path, replace: true, posix: false, ignore_read_only: false }
}

async fn act(bed: &Bed, what: &str, file: &Arc<Open>, of: &dyn Fn(OpenRequest) -> OpenRequest) {
    let attributes =
        BasicChange { attributes: Some(DosAttributes(DosAttributes::HIDDEN)), ..BasicChange::default() };
    match what {
        "create" => drop(bed.open("d\\new", of(open_if())).await.unwrap()),
        "resize" => file.set_end(7).await.unwrap(),
        "attributes" => file.set_basic(attributes).await.unwrap(),
        "ea" => file.set_ea("name", b"value").await.unwrap(),
        "overwrite" => {
            let request =
                OpenRequest { disposition: CreateDisposition::Overwrite, ..request(ALL, Sharing::ALL) };
            drop(bed.open("d\\new", of(request)).await.unwrap());
        }
        "rename" => file.rename(to("d\\renamed")).await.unwrap(),
        "move out" => file.rename(to("out")).await.unwrap(),
        "move in" => file.rename(to("d\\f")).await.unwrap(),
        "link" => file.link(to("d\\link")).await.unwrap(),
        "delete" => {
            let open = bed.open("d\\new", of(request(DELETE, Sharing::ALL))).await.unwrap().open;
            open.set_deletion(Deletion { delete: true, ..Deletion::default() }).await.unwrap();
            open.close(false).await.unwrap();
        }
        what => panic!("{what}"),
    }
}

const ACTS: [&str; 10] =
    ["create", "resize", "attributes", "ea", "overwrite", "rename", "move out", "move in", "link", "delete"];

#[tokio::test]
async fn what_a_listing_shows_breaks_leases_on_it() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    bed.directory("d").await;
    let file = bed.file("d\\f", b"").await;
    for what in ACTS {
        let dir = lists(&bed, "d").await;
        act(&bed, what, &file, &|request| request).await;
        broken(&bed, &one, what).await;
        dir.open.close(false).await.unwrap();
    }
}

#[tokio::test]
async fn a_clients_own_acts_leave_its_lease() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    bed.directory("d").await;
    let dir = lists(&bed, "d").await;
    let own = |request| child_of(1, request);
    let file = bed.open("d\\f", own(open_if())).await.unwrap().open;
    for what in ACTS {
        act(&bed, what, &file, &own).await;
        assert_eq!(one.take(), [], "{what}");
    }
    assert_eq!(state(dir.open.granted()), RH);
    // The names that came meanwhile are watched like all others.
    let service = bed.store.file_service();
    let made = file_of(&service, &bed, &["d", "f"]).await;
    let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    let call = call::SetAttributes { file: made, change, size: None, through_handle: false };
    ask(&service, call).await.unwrap().unwrap();
    broken(&bed, &one, "chmod of what was moved in").await;
    drop(dir);
    let dir = lists(&bed, "d").await;
    drop(bed.open("d\\other", child_of(9, open_if())).await.unwrap());
    broken(&bed, &one, "a create with the key of another directory").await;
    drop(dir);
}

#[tokio::test]
async fn what_is_written_counts_when_it_is_flushed_or_closed() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    bed.directory("d").await;
    let file = bed.file("d\\f", b"").await;
    let dir = lists(&bed, "d").await;
    file.write(0, b"text".as_slice().into(), false).await.unwrap();
    assert_eq!(one.take(), []);
    file.flush().await.unwrap();
    broken(&bed, &one, "a flush").await;
    drop(dir);
    let dir = lists(&bed, "d").await;
    file.flush().await.unwrap();
    assert_eq!(one.take(), [], "nothing was written since");
    file.write(0, b"TEXT".as_slice().into(), false).await.unwrap();
    file.close(false).await.unwrap();
    broken(&bed, &one, "a close").await;
    drop(dir);
}

#[tokio::test]
async fn a_handle_that_is_only_cached_on_a_directory_makes_way() {
    let bed = Bed::new().await;
    let one = bed.client(1);
    bed.directory("d").await;
    let deny = OpenRequest { sharing: Sharing(0), ..directory(1, RH) };
    let dir = bed.open("d", deny).await.unwrap().open;
    let second = bed.opens("d", request(READ, Sharing::ALL));
    pause().await;
    assert_eq!(one.take(), [(RH, R, true)]);
    dir.close(false).await.unwrap();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_name_comes_to_a_directory_beside_those_that_share_writing_it() {
    let bed = Bed::new().await;
    bed.directory("d").await;
    let file = bed.file("f", b"").await;
    let of = |access, sharing| OpenRequest {
        options: CreateOptions(CreateOptions::DIRECTORY),
        ..request(access, Sharing(sharing))
    };
    for (access, sharing, expected) in [
        (READ | DELETE, 7, Err(StoreError::SharingViolation)),
        (READ, 5, Err(StoreError::SharingViolation)),
        (READ | WRITE, 7, Ok(())),
    ] {
        let dir = bed.open("d", of(access, sharing)).await.unwrap().open;
        assert_eq!(file.rename(to("d\\f")).await, expected, "{access:#x} {sharing}");
        dir.close(false).await.unwrap();
    }
}

#[tokio::test]
async fn old_dialects_get_no_lease_on_a_directory() {
    let bed = Bed::new().await;
    bed.directory("d").await;
    let old = OpenRequest { leases_directories: false, ..directory(1, RH) };
    let opened = bed.open("d", old).await.unwrap();
    assert_eq!(opened.granted, objects::Granted::Nothing);
}

fn ask<C: FileCall>(service: &Arc<dyn FileService>, call: C) -> oneshot::Receiver<Result<C::Reply, Error>> {
    let (tell, told) = oneshot::channel();
    service.ask(&Cred::default(), call, move |reply| _ = tell.send(reply));
    told
}

async fn file_of(service: &Arc<dyn FileService>, bed: &Bed, path: &[&str]) -> ident::FileId {
    let mut file = bed.root.dir.clone();
    for name in path {
        let call = call::Lookup { dir: file, label: Label::new(name.as_bytes()).unwrap() };
        file = match ask(service, call).await.unwrap().unwrap() {
            file_service::LookupReply::Leased(node) => node.value.0.file,
            file_service::LookupReply::Glimpsed(node) => node.unwrap().0.file,
        };
    }
    file
}

#[tokio::test]
async fn fuse_breaks_leases_on_directories() {
    let bed = Bed::new().await;
    let (one, service) = (bed.client(1), bed.store.file_service());
    let dir = bed.directory("d").await;
    bed.file("d\\f", b"").await;
    dir.close(false).await.unwrap();
    let (d, f) = (file_of(&service, &bed, &["d"]).await, file_of(&service, &bed, &["d", "f"]).await);
    let label = |name: &[u8]| Label::new(name).unwrap();
    let opened = lists(&bed, "d").await;
    let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
    let call = call::SetAttributes { file: f.clone(), change, size: None, through_handle: false };
    ask(&service, call).await.unwrap().unwrap();
    broken(&bed, &one, "chmod").await;
    drop(opened);
    let opened = lists(&bed, "d").await;
    let open = lease::OpenModes::posix(false, true);
    ask(&service, call::OpenFile { file: f.clone(), open, mask: 2 }).await.unwrap().unwrap();
    let write = call::Write { file: f.clone(), offset: 0, data: b"text".as_slice().into(), append: false };
    ask(&service, write).await.unwrap().unwrap();
    assert_eq!(one.take(), []);
    ask(&service, call::Close { file: f, open }).await.unwrap().unwrap();
    broken(&bed, &one, "a close").await;
    drop(opened);
    let opened = lists(&bed, "d").await;
    ask(&service, call::Unlink { dir: d, label: label(b"f"), directory: false, pending: None })
        .await
        .unwrap()
        .unwrap();
    broken(&bed, &one, "unlink").await;
    drop(opened);
}

#[tokio::test]
async fn another_machine_breaks_leases_on_directories() {
    let here = Bed::new().await;
    let there = here.another().await;
    let one = here.client(1);
    here.directory("d").await.close(false).await.unwrap();
    here.file("d\\f", b"").await.close(false).await.unwrap();
    for what in ["create", "attributes", "write", "delete"] {
        // A machine that keeps losing what a listing shows is not given it for a moment.
        let end = Instant::now() + Duration::from_secs(20);
        let opened = loop {
            let opened = here.open("d", directory(1, RH)).await.unwrap();
            if state(opened.granted) == RH {
                break opened;
            }
            assert!(Instant::now() < end, "no lease before {what}");
            drop(opened);
            pause().await;
        };
        pause().await;
        assert_eq!(one.take(), [], "before {what}");
        let file = there.open("d\\f", open_if()).await.unwrap().open;
        let name = what.to_owned();
        let acts = {
            let (store, who, root) = (Arc::clone(&there.store), there.who.clone(), there.root.clone());
            tokio::spawn(async move {
                match &*name {
                    "create" => {
                        let path = ObjectPath::parse("d\\new", false).unwrap();
                        drop(store.open(&who, &root, &path, open_if()).await.unwrap());
                    }
                    "attributes" => {
                        let attributes = Some(DosAttributes(DosAttributes::HIDDEN));
                        file.set_basic(BasicChange { attributes, ..BasicChange::default() }).await.unwrap();
                    }
                    "write" => {
                        file.write(0, b"text".as_slice().into(), true).await.unwrap();
                    }
                    _ => {
                        file.set_deletion(Deletion { delete: true, ..Deletion::default() }).await.unwrap();
                    }
                }
                file.close(false).await.unwrap();
            })
        };
        broken(&here, &one, what).await;
        acts.await.unwrap();
        drop(opened);
        one.take();
    }
}
