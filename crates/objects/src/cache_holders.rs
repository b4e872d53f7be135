//! The caches of the machine's other front doors: FUSE's kernel. A change over SMB is shown there
//! before the SMB client is answered. The client itself revokes only what other machines change.

use client::Invalidation;
use file_service::CacheHolder;
use ident::FileId;
use namespace::Link;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;

type RevocationJob = Box<dyn FnOnce() + Send>;

/// The front doors that cache, and a thread that revokes what they have. A revocation may wait for
/// the kernel, so no caller's thread does it.
pub(crate) struct CacheHolders {
    holders: RwLock<Vec<Arc<dyn CacheHolder>>>,
    jobs: Sender<RevocationJob>,
}

impl CacheHolders {
    pub(crate) fn new() -> CacheHolders {
        let (jobs, due) = channel::<RevocationJob>();
        let thread = std::thread::Builder::new().name("smb changes".to_owned());
        if let Err(error) = thread.spawn(move || due.into_iter().for_each(|job| job())) {
            tracing::error!(%error, "no thread that tells FUSE of changes over SMB");
        }
        CacheHolders { holders: RwLock::default(), jobs }
    }

    pub(crate) fn register(&self, holder: Arc<dyn CacheHolder>) {
        self.holders.write().push(holder);
    }

    /// A name was bound, or is bound no longer.
    pub(crate) async fn entry_changed(&self, link: &Link) {
        let entry = Invalidation::Entry(link.dir.clone(), namespace::fold(&link.label));
        self.changed(vec![entry, Invalidation::Attributes(link.dir.clone())]).await;
    }

    pub(crate) async fn attributes_changed(&self, file: &FileId) {
        self.changed(vec![Invalidation::Attributes(file.clone())]).await;
    }

    pub(crate) async fn content_changed(&self, file: &FileId) {
        self.changed(vec![Invalidation::Pages(file.clone())]).await;
    }

    async fn changed(&self, what: Vec<Invalidation>) {
        let holders = self.holders.read().clone();
        for holder in holders {
            if let Some(seal) = holder.revoke_uncached(&what) {
                seal()();
                continue;
            }
            let (tell, told) = oneshot::channel();
            let what = what.clone();
            let job = Box::new(move || {
                let revocation = holder.revoke(&what, &[]);
                (revocation.seal)()();
                let _ = tell.send(());
            });
            if self.jobs.send(job).is_ok() {
                let _ = told.await;
            }
        }
    }
}
