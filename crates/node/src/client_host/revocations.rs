//! Revocations: front doors' caches are emptied on threads of their own before leases are released.

use super::{After, ClientHost};
use client::{Input, Invalidation};
use file_service::{Recheck, Seal};
use ident::FileId;
use os::STOP_LOOK;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;

/// Front-door caches to revoke before leases are released.
pub(crate) struct DueRevocation {
    pub(super) number: u64,
    pub(super) what: Vec<Invalidation>,
    pub(super) offered: Vec<Invalidation>,
}

impl ClientHost {
    /// Revokes recalled content from front doors, until the machine stops. Several threads do this,
    /// so that a kernel slow to invalidate delays no other recall.
    pub(crate) fn revoke(&self, revocations: &Mutex<Receiver<DueRevocation>>) {
        while !self.is_stopping() {
            let next = revocations.lock().recv_timeout(STOP_LOOK);
            let Ok(DueRevocation { number, what, offered }) = next else { continue };
            let caches = self.caches.read().clone();
            let (mut seals, mut kept) = (Vec::new(), BTreeSet::new());
            for cache in &caches {
                let revocation = cache.revoke(&what, &offered);
                seals.push(revocation.seal);
                kept.extend(revocation.kept);
            }
            self.revoked(number, kept, seals).into_iter().for_each(|again| again());
        }
    }

    /// Trap: a call from here on is answered under no lease that is released here. So its response
    /// must not be revoked: the kernel would disregard a response that it is just receiving.
    pub(super) fn revoked<'a>(
        &self,
        number: u64,
        kept: BTreeSet<FileId>,
        seals: Vec<Seal<'a>>,
    ) -> Vec<Recheck<'a>> {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        let again = seals.into_iter().map(|seal| seal()).collect();
        self.input(&mut hosted, Input::Revoked { number, kept }, &mut after);
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, MachineSettings};
    use file_service::{CacheHolder, FileService, Revocation};
    use parking_lot::Condvar;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// A front door whose first revocation does not end before there is a second.
    #[derive(Default)]
    struct Slow {
        begun: Mutex<u32>,
        more: Condvar,
    }

    impl CacheHolder for Slow {
        fn revoke(&self, _: &[Invalidation], _: &[Invalidation]) -> Revocation<'_> {
            let mut begun = self.begun.lock();
            *begun += 1;
            self.more.notify_all();
            let deadline = Instant::now() + Duration::from_secs(200);
            while *begun < 2 {
                assert!(!self.more.wait_until(&mut begun, deadline).timed_out(), "one waits for the other");
            }
            Revocation { seal: Box::new(|| Box::new(|| ())), kept: BTreeSet::new() }
        }

        fn revoke_uncached(&self, _: &[Invalidation]) -> Option<Seal<'_>> {
            None
        }

        fn revoke_soon(&self, _: Vec<Invalidation>) {}
    }

    #[test]
    fn a_recall_that_the_kernel_is_slow_to_let_go_of_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
        let (client_host, slow) = (machine.client_host(), Arc::new(Slow::default()));
        client_host.register_cache(slow.clone());
        for number in [u64::MAX - 1, u64::MAX] {
            let what = vec![Invalidation::Everything];
            client_host.revocations.send(DueRevocation { number, what, offered: Vec::new() }).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut begun = slow.begun.lock();
        while *begun < 2 {
            assert!(!slow.more.wait_until(&mut begun, deadline).timed_out(), "one waits for the other");
        }
        drop(begun);
        machine.stop().unwrap();
    }
}
