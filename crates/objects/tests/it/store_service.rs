//! FUSE's calls beside SMB clients.

use crate::bed::{Bed, Sink, key, leased, open_if, pause, request, state};
use client::{Invalidation, call};
use file_service::{CacheHolder, FileCall, FileService, Revocation, Seal};
use lease::Label;
use lease::caching::{CachingState, ClientGuid, Sharing};
use namespace::{Cred, Error};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

fn ask<C: FileCall>(service: &Arc<dyn FileService>, call: C) -> oneshot::Receiver<Result<C::Reply, Error>> {
    let (tell, told) = oneshot::channel();
    service.ask(&Cred::default(), call, move |reply| _ = tell.send(reply));
    told
}

async fn file(bed: &Bed, name: &str) -> ident::FileId {
    let label = Label::new(name.as_bytes()).unwrap();
    let call = call::Lookup { dir: bed.root.dir.clone(), label };
    match ask(&bed.store.file_service(), call).await.unwrap().unwrap() {
        file_service::LookupReply::Leased(node) => node.value.0.file,
        file_service::LookupReply::Glimpsed(node) => node.unwrap().0.file,
    }
}

fn acknowledge(bed: &Bed, sink: &Sink, keeps: CachingState) {
    assert_eq!(sink.take().len(), 1);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), keeps).unwrap());
}

#[tokio::test]
async fn calls_of_fuse_break_what_smb_clients_cache() {
    let bed = Bed::new().await;
    let (one, service) = (bed.client(1), bed.store.file_service());
    let open = bed.open("f", leased(1, CachingState::RWH, open_if())).await.unwrap().open;
    let file = file(&bed, "f").await;
    let read = call::Read { file: file.clone(), offset: 0, length: 10, kept: true, quietly: false };
    let mut reads = ask(&service, read);
    pause().await;
    assert!(reads.try_recv().is_err());
    open.write(0, b"cached".as_slice().into(), false).await.unwrap();
    acknowledge(&bed, &one, CachingState::RH);
    assert_eq!(reads.await.unwrap().unwrap().concat(), b"cached");
    let write = call::Write { file: file.clone(), offset: 0, data: b"C".as_slice().into(), append: false };
    assert_eq!(ask(&service, write).await.unwrap(), Ok(1), "nobody waits for read caching");
    assert_eq!(one.take(), [(CachingState::RH, CachingState::NONE, true)]);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), CachingState::NONE).unwrap());
    open.close(false).await.unwrap();

    let open = bed.open("f", leased(1, CachingState::RH, open_if())).await.unwrap();
    assert_eq!(state(open.granted), CachingState::RH);
    let label = Label::new(b"f").unwrap();
    let mut unlinks =
        ask(&service, call::Unlink { dir: bed.root.dir.clone(), label, directory: false, pending: None });
    pause().await;
    assert!(unlinks.try_recv().is_err());
    acknowledge(&bed, &one, CachingState::READ);
    assert!(unlinks.await.unwrap().is_ok());
    assert_eq!(open.open.read(0, 6).await.unwrap().concat(), b"Cached", "the open stays good");
    assert!(bed.open("f", request(1, Sharing::ALL)).await.is_err());
}

#[tokio::test]
async fn a_call_of_fuse_that_waits_can_be_given_up() {
    let bed = Bed::new().await;
    let (one, service) = (bed.client(1), bed.store.file_service());
    let open = bed.open("f", leased(1, CachingState::RWH, open_if())).await.unwrap().open;
    let file = file(&bed, "f").await;
    let (tell, told) = oneshot::channel();
    let read = call::Read { file, offset: 0, length: 10, kept: true, quietly: false };
    let ticket = service.ask(&Cred::default(), read, move |reply| _ = tell.send(reply));
    service.cancel(ticket.unwrap());
    assert_eq!(told.await.unwrap().err(), Some(Error::Interrupted));
    acknowledge(&bed, &one, CachingState::RH);
    open.close(false).await.unwrap();
    assert_eq!(bed.store.counts(), (0, 0, 0));
}

#[tokio::test]
async fn nothing_is_written_behind_a_cache_while_a_program_has_the_file_open() {
    let bed = Bed::new().await;
    drop(bed.file("f", b"x").await);
    let (service, file) = (bed.store.file_service(), file(&bed, "f").await);
    let modes = lease::OpenModes::posix(true, false);
    ask(&service, call::OpenFile { file: file.clone(), open: modes, mask: 4 }).await.unwrap().unwrap();
    let open = bed.open("f", leased(1, CachingState::RWH, open_if())).await.unwrap();
    assert_eq!(state(open.granted), CachingState::RH);
    open.open.close(false).await.unwrap();
    ask(&service, call::Close { file, open: modes }).await.unwrap().unwrap();
    let open = bed.open("f", leased(1, CachingState::RWH, open_if())).await.unwrap();
    assert_eq!(state(open.granted), CachingState::RWH);
}

#[tokio::test]
async fn a_rename_by_fuse_closes_what_is_only_cached_below() {
    let bed = Bed::new().await;
    let (one, two, service) = (bed.client(1), bed.client(2), bed.store.file_service());
    for dir in ["d", "d\\e", "other"] {
        bed.directory(dir).await.close(false).await.unwrap();
    }
    let open = bed.open("d\\e\\f", leased(1, CachingState::RWH, open_if())).await.unwrap().open;
    let beside = bed.open("other\\f", leased(2, CachingState::RWH, open_if())).await.unwrap().open;
    let root = bed.root.dir.clone();
    let renames = |from: &[u8], to: &[u8]| call::Rename {
        from_dir: root.clone(),
        from: Label::new(from).unwrap(),
        to_dir: root.clone(),
        to: Label::new(to).unwrap(),
        mode: namespace::RenameMode::NoReplace,
        whiteout: false,
        source: None,
        replaced: None,
    };
    let mut renamed = ask(&service, renames(b"d", b"D2"));
    pause().await;
    assert!(renamed.try_recv().is_err());
    assert_eq!(one.take(), [(CachingState::RWH, CachingState::RW, true)]);
    drop(bed.store.acknowledge(ClientGuid([1; 16]), key(1), CachingState::RW).unwrap());
    renamed.await.unwrap().unwrap();
    assert_eq!((open.path().as_str(), beside.path().as_str()), ("D2\\e\\f", "other\\f"));
    assert_eq!(two.take(), [], "it has nothing there");
    let again = bed.open("d2\\e\\f", leased(1, CachingState::RWH, open_if())).await.unwrap();
    assert_eq!(state(again.granted), CachingState::RWH);
    let mut renamed = ask(&service, renames(b"D2", b"d"));
    pause().await;
    assert_eq!(one.take().len(), 1, "the new name is known");
    assert!(renamed.try_recv().is_err());
    drop((open, again));
    pause().await;
    assert!(renamed.await.unwrap().is_ok());
}

/// A kernel that has everything cached.
#[derive(Default)]
struct Kernel(Mutex<Vec<Invalidation>>);

impl CacheHolder for Kernel {
    fn revoke(&self, what: &[Invalidation], _: &[Invalidation]) -> Revocation<'_> {
        std::thread::sleep(Duration::from_millis(20));
        self.0.lock().extend_from_slice(what);
        Revocation { seal: Box::new(|| Box::new(|| ())), kept: BTreeSet::new() }
    }

    fn revoke_uncached(&self, _: &[Invalidation]) -> Option<Seal<'_>> {
        None
    }

    fn revoke_soon(&self, _: Vec<Invalidation>) {}
}

#[tokio::test]
async fn the_kernel_forgets_before_an_smb_client_is_answered() {
    let bed = Bed::new().await;
    let kernel = Arc::new(Kernel::default());
    bed.store.file_service().register_cache(kernel.clone());
    let open = bed.file("f", b"").await;
    let file = file(&bed, "f").await;
    let root = bed.root.dir.clone();
    let folded = Label::new(b"f").unwrap();
    let named = [Invalidation::Entry(root.clone(), folded), Invalidation::Attributes(root)];
    assert_eq!(std::mem::take(&mut *kernel.0.lock()), named);
    open.write(0, b"x".as_slice().into(), false).await.unwrap();
    assert_eq!(std::mem::take(&mut *kernel.0.lock()), [Invalidation::Pages(file)]);
}

/// A kernel that forgets nothing while the other end of this is there.
struct StubbornKernel(Mutex<std::sync::mpsc::Receiver<()>>);

impl CacheHolder for StubbornKernel {
    fn revoke(&self, _: &[Invalidation], _: &[Invalidation]) -> Revocation<'_> {
        let _ = self.0.lock().recv();
        Revocation { seal: Box::new(|| Box::new(|| ())), kept: BTreeSet::new() }
    }

    fn revoke_uncached(&self, _: &[Invalidation]) -> Option<Seal<'_>> {
        None
    }

    fn revoke_soon(&self, _: Vec<Invalidation>) {}
}

/// The open has made its file and waits for the kernel.
#[tokio::test]
async fn an_open_that_is_given_up_hides_no_program_that_has_the_file_open() {
    let bed = Bed::new().await;
    let (forgets, waits) = std::sync::mpsc::channel();
    bed.store.file_service().register_cache(Arc::new(StubbornKernel(Mutex::new(waits))));
    let opens = bed.opens("f", open_if());
    pause().await;
    assert!(!opens.is_finished());
    opens.abort();
    assert!(opens.await.unwrap_err().is_cancelled());
    drop(forgets);
    let (service, file) = (bed.store.file_service(), file(&bed, "f").await);
    let modes = lease::OpenModes::posix(true, true);
    ask(&service, call::OpenFile { file: file.clone(), open: modes, mask: 6 }).await.unwrap().unwrap();
    let open = bed.open("f", leased(1, CachingState::RWH, open_if())).await.unwrap();
    assert_eq!(state(open.granted), CachingState::RH, "a program has it open to write");
    open.open.close(false).await.unwrap();
    ask(&service, call::Close { file, open: modes }).await.unwrap().unwrap();
    let open = bed.open("f", leased(1, CachingState::RWH, open_if())).await.unwrap();
    assert_eq!(state(open.granted), CachingState::RWH);
}
