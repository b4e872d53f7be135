//! Requests that hold a directory's lock in the kernel while they wait, and which of them give way.
//!
//! Trap: the kernel expires an entry under its directory's lock. A request that makes, moves,
//! removes or looks up a name holds that lock until it is answered. It may wait for a machine that
//! waits for just this entry. So it gives way: a change of which nothing is done is answered
//! ESTALE. The kernel then releases the lock, walks the path once more, asks for every name on it
//! anew, and tries again. The program does not notice. A second ESTALE within one system call would
//! be shown to the program. So no thread gives way twice in one system call.
//!
//! A lookup is never answered so: ESTALE makes the kernel drop an existing entry, and with it any
//! mount there. It asks for the current state without a lease instead, for which no machine has to
//! release anything. A listing ends a page early, and its program asks for the next one.

use client::{Call, call};
use ident::FileId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::syscall::SystemCall;

/// How long the system call of a thread that gave way may still be the same.
const SAME_CALL: Duration = Duration::from_secs(60);
/// How long a thread that gave way may take to try again, on a busy machine.
const ON_ITS_WAY: Duration = Duration::from_secs(5);
/// The most such threads that are remembered. Beyond that none gives way.
const GAVE_MAX: usize = 4096;

/// The directories that a waiting call keeps locked in the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    dirs: SmallVec<[FileId; 2]>,
    /// It also locks a directory that it finds by name.
    another: bool,
    /// It is a change, and may be tried again from its beginning.
    pub(crate) changes: bool,
}

impl Locks {
    /// The locks of `call`. A lookup may hold the lock, or not.
    pub(crate) fn of(call: &Call) -> Locks {
        let (dirs, another) = match call {
            Call::Lookup(call::Lookup { dir, .. }) | Call::List(call::List { dir, .. }) => {
                return Locks::reading(dir);
            }
            Call::Create(call::Create { dir, .. }) | Call::Link(call::Link { dir, .. }) => {
                (smallvec![dir.clone()], false)
            }
            Call::Unlink(call::Unlink { dir, directory, .. }) => (smallvec![dir.clone()], *directory),
            Call::Rename(call::Rename { from_dir, to_dir, .. }) => {
                (smallvec![from_dir.clone(), to_dir.clone()], true)
            }
            _ => return Locks::default(),
        };
        Locks { dirs, another, changes: true }
    }

    /// The locks of a lookup or listing in `dir`, whatever calls it makes.
    pub(crate) fn reading(dir: &FileId) -> Locks {
        Locks { dirs: smallvec![dir.clone()], another: false, changes: false }
    }

    /// Whether `dir` may be among them.
    pub(crate) fn may_be_of(&self, dir: &FileId) -> bool {
        self.another || self.dirs.contains(dir)
    }
}

/// Threads that gave way lately, each with its system call, and their number.
#[derive(Debug, Default)]
pub(crate) struct Gave(Mutex<FxHashMap<u32, (Instant, SystemCall)>>, AtomicUsize);

impl Gave {
    /// Whether thread `tid`, in system call `call`, may give way. If so, it counts as having done
    /// so.
    pub(crate) fn may(&self, tid: u32, call: SystemCall, now: Instant) -> bool {
        let mut gave = self.0.lock();
        let is_late = |at: Instant| now.duration_since(at) >= SAME_CALL;
        if gave.get(&tid).is_some_and(|(at, before)| *before == call && !is_late(*at)) {
            return false;
        }
        if gave.len() >= GAVE_MAX {
            gave.retain(|_, (at, _)| !is_late(*at));
        }
        let has_room = gave.len() < GAVE_MAX;
        if has_room {
            gave.insert(tid, (now, call));
        }
        self.1.store(gave.len(), Relaxed);
        has_room
    }

    /// Whether thread `tid` may be on its way to try again.
    pub(crate) fn has(&self, tid: u32, now: impl FnOnce() -> Instant) -> bool {
        self.any(now, |gave| gave == tid)
    }

    /// Whether no thread may be on its way to try again.
    pub(crate) fn is_empty(&self, now: impl FnOnce() -> Instant) -> bool {
        !self.any(now, |_| true)
    }

    /// A system call may end without a change, as when its name is there by now. So what is noted
    /// of a thread counts for a short while only.
    fn any(&self, now: impl FnOnce() -> Instant, is_one: impl Fn(u32) -> bool) -> bool {
        // Nearly always there is none.
        if self.1.load(Relaxed) == 0 {
            return false;
        }
        let (now, mut gave) = (now(), self.0.lock());
        gave.retain(|_, (at, _)| now.duration_since(*at) < SAME_CALL);
        self.1.store(gave.len(), Relaxed);
        gave.iter().any(|(tid, (at, _))| now.duration_since(*at) < ON_ITS_WAY && is_one(*tid))
    }

    /// A change by thread `tid` is answered, and so its system call has ended. The next one may
    /// look just the same.
    pub(crate) fn ended(&self, tid: u32) {
        // Nearly always there is none.
        if self.1.load(Relaxed) > 0 {
            let mut gave = self.0.lock();
            gave.remove(&tid);
            self.1.store(gave.len(), Relaxed);
        }
    }
}

/// Holds up threads that gave way, while the directories for which they did are still expired.
///
/// Trap: the kernel expires the entries one by one, each under the lock. A thread that waits for
/// the lock meanwhile gets it after some of them, and gives way no second time. On its way there it
/// looks up the directories of its path, which needs none of these locks.
#[derive(Default)]
pub(crate) struct Barrier(Mutex<HeldUp>);

#[derive(Default)]
struct HeldUp {
    /// The directories being expired, once for each expiry.
    dirs: Vec<FileId>,
    lookups: Vec<HeldLookup>,
}

/// Goes on with a lookup.
pub(crate) type HeldLookup = Box<dyn FnOnce() + Send>;

impl Barrier {
    /// Entries of `dirs` are expired from now on.
    pub(crate) fn close(&self, dirs: &[FileId]) {
        self.0.lock().dirs.extend_from_slice(dirs);
    }

    /// The expiry of `dirs` is over. If it was the last, what was held up goes on.
    pub(crate) fn open(&self, dirs: &[FileId]) {
        let mut held = self.0.lock();
        for dir in dirs {
            if let Some(at) = held.dirs.iter().position(|it| it == dir) {
                held.dirs.swap_remove(at);
            }
        }
        let lookups = if held.dirs.is_empty() { std::mem::take(&mut held.lookups) } else { Vec::new() };
        drop(held);
        lookups.into_iter().for_each(|lookup| lookup());
    }

    /// Holds up a lookup in `dir`, unless nothing is expired, or that directory itself: its lock
    /// may be held already. A lookup that is not held up is returned.
    pub(crate) fn hold_up(&self, dir: &FileId, lookup: HeldLookup) -> Option<HeldLookup> {
        let mut held = self.0.lock();
        if held.dirs.is_empty() || held.dirs.contains(dir) {
            return Some(lookup);
        }
        held.lookups.push(lookup);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lease::Label;
    use namespace::RenameMode;

    #[test]
    fn no_thread_gives_way_twice_in_one_system_call() {
        let (gave, now) = (Gave::default(), Instant::now());
        let call = |number| SystemCall { number, arguments: [1, 2, 3] };
        assert!(gave.is_empty(|| now));
        assert!(gave.may(7, call(1), now) && !gave.may(7, call(1), now));
        assert!(gave.may(8, call(1), now), "another thread");
        assert!(gave.may(7, call(2), now) && !gave.may(7, call(2), now), "another call");
        assert!(gave.may(7, call(2), now + SAME_CALL));
        gave.ended(7);
        assert!(
            !gave.is_empty(|| now) && gave.has(8, || now) && !gave.has(7, || now),
            "thread 8 has not come again"
        );
        assert!(gave.is_empty(|| now + ON_ITS_WAY) && !gave.has(8, || now + ON_ITS_WAY), "nor will it");
        assert!(!gave.may(8, call(1), now + ON_ITS_WAY), "in the same call, if it does");
        assert!(gave.may(7, call(2), now + SAME_CALL), "the next one, which looks the same");
        (0..2 * GAVE_MAX as u32).for_each(|tid| _ = gave.may(tid, call(3), now));
        assert!(gave.0.lock().len() <= GAVE_MAX);
    }

    #[test]
    fn lookups_are_held_up_until_the_last_expiry_is_over() {
        let barrier = Barrier::default();
        let [one, two, three] = [2, 3, 4].map(|n| FileId::root().child(n));
        let gone: std::sync::Arc<Mutex<Vec<u32>>> = std::sync::Arc::default();
        let lookup = |number| -> HeldLookup {
            let gone = std::sync::Arc::clone(&gone);
            Box::new(move || gone.lock().push(number))
        };
        assert!(barrier.hold_up(&one, lookup(1)).is_some(), "nothing is expired");
        barrier.close(&[one.clone(), two.clone()]);
        barrier.close(std::slice::from_ref(&two));
        for dir in [&one, &two] {
            assert!(barrier.hold_up(dir, lookup(2)).is_some(), "it may hold the lock");
        }
        assert!(barrier.hold_up(&three, lookup(3)).is_none());
        barrier.open(&[one.clone(), two.clone()]);
        assert!(barrier.hold_up(&two, lookup(4)).is_some() && barrier.hold_up(&one, lookup(5)).is_none());
        assert!(gone.lock().is_empty());
        barrier.open(std::slice::from_ref(&two));
        assert_eq!(*gone.lock(), [3, 5]);
        assert!(barrier.hold_up(&one, lookup(6)).is_some());
    }

    #[test]
    fn what_changes_names_locks_their_directories_and_what_it_finds() {
        let [one, two, three] = [2, 3, 4].map(|n| FileId::root().child(n));
        let label = Label::new(b"x").unwrap();
        let rmdir = |directory| {
            Call::Unlink(call::Unlink { dir: one.clone(), label: label.clone(), directory, pending: None })
        };
        let of = |call: &Call| [&one, &two, &three].map(|dir| Locks::of(call).may_be_of(dir));
        assert_eq!(of(&rmdir(false)), [true, false, false]);
        assert_eq!(of(&rmdir(true)), [true; 3], "one that it removes");
        let (from_dir, to_dir) = (one.clone(), two.clone());
        let (from, to, mode) = (label.clone(), label.clone(), RenameMode::Replace);
        assert_eq!(
            of(&Call::Rename(call::Rename {
                from_dir,
                from,
                to_dir,
                to,
                mode,
                whiteout: false,
                source: None,
                replaced: None
            })),
            [true; 3]
        );
        let lookup = Call::Lookup(call::Lookup { dir: two.clone(), label });
        assert!(of(&lookup) == [false, true, false] && !Locks::of(&lookup).changes);
        assert_eq!(of(&Call::Stat(call::Stat { file: one.clone() })), [false; 3]);
    }
}
