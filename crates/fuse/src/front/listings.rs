//! Open directories, and the pages of their listings.

use client::Upto;
use namespace::FileKind;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::outcome::{Outcome, Shown};

/// One line of a listing.
#[derive(Debug)]
pub(crate) struct ListingLine<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    /// The cookie at which the listing goes on after it.
    pub(crate) cookie: u64,
    /// The attributes for readdirplus. For `.` and `..`, which the kernel ignores there, they are
    /// the directory's own.
    pub(crate) shown: Option<Shown>,
}

/// The kernel's buffer.
pub(crate) trait Page: Send + 'static {
    /// Whether attributes are wanted. Then each file counts as given.
    fn plus(&self) -> bool;
    /// Adds a line; `false` if there is no room for it.
    fn push(&mut self, line: &ListingLine<'_>) -> bool;
    /// Hands the page over.
    fn finish(self, outcome: Outcome<()>);
}

/// How many lines the last full pages held, plain and plus. The number that fits depends on the
/// names.
#[derive(Debug)]
pub(crate) struct PageLines([AtomicUsize; 2]);

impl PageLines {
    pub(crate) fn new() -> PageLines {
        PageLines([AtomicUsize::new(128), AtomicUsize::new(64)])
    }

    pub(super) fn of(&self, plus: bool) -> &AtomicUsize {
        &self.0[usize::from(plus)]
    }
}

/// Open directories, and where the listing by each handle ends. Without that end, an entry that is
/// renamed while it is listed would come again and again.
#[derive(Default)]
pub(crate) struct Listings {
    opened: AtomicU64,
    upto: Mutex<FxHashMap<u64, Upto>>,
}

impl Listings {
    /// A handle for one more open directory.
    pub(crate) fn open(&self) -> u64 {
        self.opened.fetch_add(1, Relaxed)
    }

    pub(crate) fn close(&self, handle: u64) {
        self.upto.lock().remove(&handle);
    }

    /// The end of a listing that goes on. Nothing for one that begins: at offset 0, as after
    /// rewinddir.
    pub(super) fn upto(&self, handle: u64, after: u64) -> Option<Upto> {
        if after == 0 { None } else { self.upto.lock().get(&handle).copied() }
    }

    pub(super) fn begin(&self, handle: u64, upto: Upto) {
        self.upto.lock().insert(handle, upto);
    }
}
