//! Appends that come in several requests.
//!
//! Trap: what one system call appends the kernel cuts: into requests of 1 MiB, and of 256 pages, of which each piece of a `writev` takes one at least. Between two of them another machine
//! may append if it asks for the file. How much a call appends in all is in /proc; the file is let go once that has come. On one machine the kernel itself keeps others out
//! meanwhile.

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::syscall;

/// Pages of one request.
const PAGES_MAX: u64 = 256;
const PAGE: u64 = 4096;
/// How often it is looked whether who appends still does: it may be killed in between.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long who asks for the file waits for one call, at most.
const WAIT: Duration = Duration::from_secs(5);

/// Calls of which more is to come, by file.
#[derive(Default)]
pub(crate) struct Appends {
    /// How many there are.
    under_way: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, Append>>,
    ended: Condvar,
}

/// The one call under way on a file.
#[derive(Clone, Copy, Debug)]
struct Append {
    tid: u32,
    /// Bytes that are still to come.
    left: u64,
}

impl Appends {
    /// Thread `tid` appends `length` bytes more to `node`: to be called before they are.
    pub(super) fn come(&self, node: u64, tid: u32, length: u64) {
        if self.under_way.load(SeqCst) > 0 {
            let mut by_node = self.by_node.lock();
            if let Some(append) = by_node.get_mut(&node).filter(|append| append.tid == tid && append.left > 0)
            {
                append.left = append.left.saturating_sub(length);
                return;
            }
        }
        // A request that is full has a byte for each page at least.
        if length < PAGES_MAX || tid == 0 {
            return;
        }
        if let Some(left) = syscall::bytes_written(tid, |pieces| may_be_full(length, pieces))
            .and_then(|total| total.checked_sub(length))
            .filter(|left| *left > 0)
        {
            let mut by_node = self.by_node.lock();
            by_node.insert(node, Append { tid, left });
            self.under_way.store(by_node.len(), SeqCst);
        }
    }

    /// That was done, or refused: then the call ends with it.
    pub(super) fn done(&self, node: u64, tid: u32, refused: bool) {
        if self.under_way.load(SeqCst) > 0 {
            self.end_if(node, |append| append.tid == tid && (refused || append.left == 0));
        }
    }

    /// Waits until all of what a call appends to `node` has come.
    pub(crate) fn settle(&self, node: u64) {
        let deadline = Instant::now() + WAIT;
        while self.under_way.load(SeqCst) > 0 && Instant::now() < deadline {
            let mut by_node = self.by_node.lock();
            let Some(append) = by_node.get(&node).copied() else { return };
            self.ended.wait_for(&mut by_node, LOOK_EVERY);
            drop(by_node);
            if syscall::has_left(append.tid) {
                self.end_if(node, |now| now.tid == append.tid);
            }
        }
    }

    fn end_if(&self, node: u64, ends: impl Fn(&Append) -> bool) {
        let mut by_node = self.by_node.lock();
        if by_node.get(&node).is_some_and(ends) {
            by_node.remove(&node);
            self.under_way.store(by_node.len(), SeqCst);
            self.ended.notify_all();
        }
    }
}

/// Whether a request of `length` bytes may have had no room for more, of a call with so many pieces: each may begin and end within a page.
fn may_be_full(length: u64, pieces: u64) -> bool {
    length / PAGE + 2 * pieces >= PAGES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, Write};

    #[test]
    fn what_may_be_full() {
        assert!(!may_be_full(4096, 2) && !may_be_full(1 << 19, 10));
        assert!(may_be_full(256, 600) && may_be_full((1 << 20) - 4096, 1));
    }

    #[test]
    fn a_file_is_let_go_once_all_of_a_call_has_come() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        // A call of 600 pieces that waits: there is no room for its 1.2 MB.
        let calling = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let piece = [b'x'; 2000];
            writer.write_vectored(&[IoSlice::new(&piece); 600]).unwrap()
        });
        let (tid, appends) = (told.recv().unwrap(), Appends::default());
        while syscall::bytes_written(tid, |_| true) != Some(1_200_000) {
            std::thread::yield_now();
        }
        appends.come(7, tid, 512_000);
        appends.done(7, tid, false);
        assert_eq!(appends.under_way.load(SeqCst), 1);
        let settled = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                appends.settle(7);
                settled.store(1, SeqCst);
            });
            std::thread::sleep(4 * LOOK_EVERY);
            appends.settle(8);
            appends.come(7, tid, 512_000);
            appends.done(7, tid, false);
            std::thread::sleep(4 * LOOK_EVERY);
            assert_eq!(settled.load(SeqCst), 0, "a part of it is still to come");
            appends.come(7, tid, 176_000);
            appends.done(7, tid, false);
        });
        assert_eq!((settled.load(SeqCst), appends.under_way.load(SeqCst)), (1, 0));
        // Nor does anybody wait for a call that has ended without it.
        appends.come(7, tid, 512_000);
        drop(reader);
        assert!(calling.join().is_ok_and(|written| written < 1_200_000) || true);
        let began = Instant::now();
        appends.settle(7);
        assert!(began.elapsed() < WAIT);
    }
}
