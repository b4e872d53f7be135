//! Appends that come in several requests.
//!
//! Trap: the kernel cuts the data that one system call appends into requests. A request has 1 MiB
//! at most, and 256 pages at most, of which each piece of a `writev` takes at least one. Between
//! two of these requests another machine may append if it asks for the file. /proc says how much a
//! call appends in all. The file is released once all of that has come. On one machine the kernel
//! itself keeps other writers out meanwhile.

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::syscall;

/// The most pages of one request.
const PAGES_MAX: u64 = 256;
const PAGE: u64 = 4096;
/// The pause between two looks whether the appending thread still appends: it may be killed in
/// between.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The longest time that a recall of the file waits for one call.
const WAIT: Duration = Duration::from_secs(5);

/// Appending calls of which more is to come, by file.
#[derive(Default)]
pub(crate) struct Appends {
    /// The number of files in `by_node`.
    files: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, Of>>,
    ended: Condvar,
}

#[derive(Default)]
struct Of {
    /// The one call under way.
    append: Option<Append>,
    /// How many releases of the file are under way. A call that begins meanwhile would be cut in
    /// two.
    closed: usize,
    /// Calls that wait until the file has been released.
    waiting: Vec<(Append, Box<dyn FnOnce() + Send>)>,
}

#[derive(Clone, Copy, Debug)]
struct Append {
    tid: u32,
    /// Bytes that are still to come.
    left: u64,
}

impl Of {
    /// The next waiting call, if it may begin.
    fn next(&mut self) -> Option<Box<dyn FnOnce() + Send>> {
        if self.closed > 0 || self.append.is_some() {
            return None;
        }
        let (append, does) = self.waiting.pop()?;
        self.append = Some(append);
        Some(does)
    }
}

impl Appends {
    /// Thread `tid` appends `length` bytes more to `node` by calling `does`: now, or once the file
    /// has been released.
    pub(super) fn come(&self, node: u64, tid: u32, length: u64, does: impl FnOnce() + Send + 'static) {
        if self.goes_on(node, tid, length) {
            return does();
        }
        // A full request has at least one byte for each page.
        let total = (length >= PAGES_MAX && tid != 0)
            .then(|| syscall::bytes_written(tid, |pieces| may_be_full(length, pieces)))
            .flatten();
        let Some(left) = total.and_then(|total| total.checked_sub(length)).filter(|left| *left > 0) else {
            return does();
        };
        let append = Append { tid, left };
        let mut by_node = self.by_node.lock();
        let of = by_node.entry(node).or_default();
        if of.closed > 0 {
            of.waiting.push((append, Box::new(does)));
            return;
        }
        of.append = Some(append);
        self.files.store(by_node.len(), SeqCst);
        drop(by_node);
        does();
    }

    fn goes_on(&self, node: u64, tid: u32, length: u64) -> bool {
        if self.files.load(SeqCst) == 0 {
            return false;
        }
        let mut by_node = self.by_node.lock();
        let append = by_node.get_mut(&node).and_then(|of| of.append.as_mut());
        let Some(append) = append.filter(|append| append.tid == tid && append.left > 0) else { return false };
        append.left = append.left.saturating_sub(length);
        true
    }

    /// A request was done or `refused`. A refused one ends the call.
    pub(super) fn done(&self, node: u64, tid: u32, refused: bool) {
        if self.files.load(SeqCst) > 0 {
            self.end_if(node, |append| append.tid == tid && (refused || append.left == 0));
        }
    }

    /// Whether a call has data left to append to `node`.
    pub(crate) fn is_appended(&self, node: u64) -> bool {
        self.files.load(SeqCst) > 0 && self.by_node.lock().get(&node).is_some_and(|of| of.append.is_some())
    }

    /// Waits until all of the data that a call appends to `node` has come. No other call begins
    /// before the returned guard is dropped.
    pub(crate) fn settle(&self, node: u64) -> Settled<'_> {
        let deadline = Instant::now() + WAIT;
        loop {
            let mut by_node = self.by_node.lock();
            let of = by_node.entry(node).or_default();
            let Some(append) = of.append.filter(|_| Instant::now() < deadline) else {
                of.closed += 1;
                self.files.store(by_node.len(), SeqCst);
                return Settled { appends: self, node };
            };
            self.ended.wait_for(&mut by_node, LOOK_EVERY);
            drop(by_node);
            if syscall::has_left(append.tid) {
                self.end_if(node, |now| now.tid == append.tid);
            }
        }
    }

    fn open(&self, node: u64) {
        let mut by_node = self.by_node.lock();
        let Some(of) = by_node.get_mut(&node) else { return };
        of.closed = of.closed.saturating_sub(1);
        let does = of.next();
        self.tidy(&mut by_node, node);
        drop(by_node);
        does.into_iter().for_each(|does| does());
    }

    fn end_if(&self, node: u64, ends: impl Fn(&Append) -> bool) {
        let mut by_node = self.by_node.lock();
        let Some(of) = by_node.get_mut(&node) else { return };
        if of.append.take_if(|append| ends(append)).is_some() {
            let does = of.next();
            self.tidy(&mut by_node, node);
            self.ended.notify_all();
            drop(by_node);
            does.into_iter().for_each(|does| does());
        }
    }

    fn tidy(&self, by_node: &mut FxHashMap<u64, Of>, node: u64) {
        let is_idle = |of: &Of| of.append.is_none() && of.closed == 0 && of.waiting.is_empty();
        if by_node.get(&node).is_some_and(is_idle) {
            by_node.remove(&node);
        }
        self.files.store(by_node.len(), SeqCst);
    }
}

/// The guard of [`Appends::settle`]: no call begins to append while it lives.
pub(crate) struct Settled<'a> {
    appends: &'a Appends,
    node: u64,
}

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        self.appends.open(self.node);
    }
}

/// Whether a request of `length` bytes may have been full, in a call with so many pieces. Each
/// piece may begin and end within a page.
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
        // A call of 600 pieces that waits, since the pipe has no room for its 1.2 MB.
        let calling = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let piece = [b'x'; 2000];
            writer.write_vectored(&[IoSlice::new(&piece); 600]).unwrap()
        });
        let (tid, appends) = (told.recv().unwrap(), Appends::default());
        while syscall::bytes_written(tid, |_| true) != Some(1_200_000) {
            std::thread::yield_now();
        }
        let come = |length| appends.come(7, tid, length, || ());
        come(512_000);
        appends.done(7, tid, false);
        assert_eq!(appends.files.load(SeqCst), 1);
        let settled = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(appends.settle(7));
                settled.store(1, SeqCst);
            });
            std::thread::sleep(4 * LOOK_EVERY);
            drop(appends.settle(8));
            come(512_000);
            appends.done(7, tid, false);
            std::thread::sleep(4 * LOOK_EVERY);
            assert_eq!(settled.load(SeqCst), 0, "a part of it is still to come");
            come(176_000);
            appends.done(7, tid, false);
        });
        assert_eq!((settled.load(SeqCst), appends.files.load(SeqCst)), (1, 0));
        // No call begins while the file is being released.
        let begun = std::sync::Arc::new(AtomicUsize::new(0));
        let does = std::sync::Arc::clone(&begun);
        let settled = appends.settle(7);
        appends.come(7, tid, 512_000, move || does.store(1, SeqCst));
        assert_eq!(begun.load(SeqCst), 0);
        drop(settled);
        assert_eq!(begun.load(SeqCst), 1);
        // A recall does not wait for a call that has ended without the rest.
        drop(reader);
        let _ = calling.join();
        let began = Instant::now();
        drop(appends.settle(7));
        assert!(began.elapsed() < WAIT && appends.files.load(SeqCst) == 0);
    }
}
