//! Invalidations on their way from the machine to the kernel.
//!
//! Trap: a notification may block, on a lock that a request holds which is waiting for us. So they are sent by a thread of their own, never by one that
//! serves requests, and whoever has one to tell waits for it a bounded time only.

use client::Invalidation;
use node::Below;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::flight::Whose;
use crate::front::Front;

/// Beyond this many, all entries and attributes are dropped instead: recalls of that many fields at once concern most of what the kernel has anyway.
const QUEUE_MAX: usize = 4096;

/// How long a recall waits for the kernel. A request that holds the lock may itself be waiting for what is recalled here.
const WAIT: Duration = Duration::from_millis(50);

/// How long answers on their way are waited for, between two notifications. Short: some wait for the very lease that is recalled, and meanwhile no other
/// notification is sent, whose recall would go on without it.
const SETTLE: Duration = Duration::from_millis(2);

/// How often one notification is repeated because answers were on their way meanwhile.
const ROUNDS_MAX: usize = 3;

/// What can be told to the kernel.
pub(crate) trait Kernel: Send + Sync + 'static {
    fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()>;
    fn invalidate_attributes(&self, node: u64) -> io::Result<()>;
    fn invalidate_pages(&self, node: u64) -> io::Result<()>;
    fn drop_all_entries(&self) -> io::Result<()>;
}

/// The queue.
pub(crate) struct Notices {
    front: Arc<Front>,
    kernel: Box<dyn Kernel>,
    state: Mutex<State>,
    /// Something was queued, or it is over.
    queued: Condvar,
    /// Something was sent, or it is over.
    sent: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Invalidation>,
    /// The queue overflowed: everything is to go.
    everything: bool,
    /// How many were ever queued, and how many of those are done.
    queued: u64,
    done: u64,
    closed: bool,
}

impl Below for Notices {
    /// Trap: what the kernel was never given needs no notification. What is being answered counts as given.
    fn has(&self, what: &Invalidation) -> bool {
        let nodes = &self.front.nodes;
        match what {
            Invalidation::Entry(dir, label) => nodes.node(dir).is_some_and(|dir| {
                nodes.entry_given(dir, label) || !self.front.flight.idle(Whose::Node(dir))
            }),
            Invalidation::Attributes(file) | Invalidation::Pages(file) => {
                nodes.node(file).is_some() || !self.front.flight.idle(Whose::Anyone)
            }
            // Names that are not there, too, may have been given.
            Invalidation::Entries(dir) => nodes.node(dir).is_some(),
            Invalidation::Everything => true,
        }
    }

    fn take_back(&self, what: &[Invalidation]) {
        let Some(last) = what.iter().filter(|what| self.has(what)).map(|what| self.queue(what)).last() else {
            return;
        };
        let mut state = self.state.lock();
        let deadline = Instant::now() + WAIT;
        while state.done < last && !state.closed {
            if self.sent.wait_until(&mut state, deadline).timed_out() {
                drop(state);
                // Trap: a request that holds the lock waits for what is recalled here. Entries go without the lock then: all of them, looked up again before they are used.
                if what.iter().any(|what| matches!(what, Invalidation::Entry(..))) {
                    log("everything", self.kernel.drop_all_entries());
                }
                tracing::debug!(?what, "the kernel is slow to let go");
                return;
            }
        }
    }

    fn take_back_again(&self, what: Vec<Invalidation>) {
        for what in what.iter().filter(|what| self.has(what)) {
            self.queue(what);
        }
    }
}

impl Notices {
    pub(crate) fn new(front: Arc<Front>, kernel: Box<dyn Kernel>) -> Arc<Notices> {
        Arc::new(Notices {
            front,
            kernel,
            state: Mutex::default(),
            queued: Condvar::new(),
            sent: Condvar::new(),
        })
    }

    /// The how manieth it is of all that were ever queued.
    fn queue(&self, what: &Invalidation) -> u64 {
        let nodes = &self.front.nodes;
        match what {
            Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                nodes.node(dir).into_iter().for_each(|dir| nodes.contend(dir));
            }
            Invalidation::Attributes(file) | Invalidation::Pages(file) => {
                nodes.node(file).into_iter().for_each(|node| nodes.doubt(node));
            }
            Invalidation::Everything => {}
        }
        let mut state = self.state.lock();
        if state.queue.len() < QUEUE_MAX && *what != Invalidation::Everything {
            state.queue.push_back(what.clone());
        } else {
            state.queue.clear();
            state.everything = true;
        }
        state.queued += 1;
        self.queued.notify_one();
        state.queued
    }

    /// Sends what is queued until closed.
    pub(crate) fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while state.queue.is_empty() && !state.everything && !state.closed {
                self.queued.wait(&mut state);
            }
            if state.closed {
                return;
            }
            let everything = std::mem::take(&mut state.everything);
            let next = state.queue.pop_front();
            // What overflowed is done with the rest.
            let done = state.queued - state.queue.len() as u64;
            drop(state);
            if everything {
                self.send_everything();
            }
            if let Some(what) = next {
                self.send(&what);
            }
            self.state.lock().done = done;
            self.sent.notify_all();
        }
    }

    /// Nothing will be sent any more.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.queued.notify_all();
        self.sent.notify_all();
    }

    /// Sends one, again while answers are on their way that may bring back what it drops: they were decided under the lease that is being
    /// recalled. Trap: reads are still answered while their pages are being invalidated; repeat until none was.
    fn send(&self, what: &Invalidation) {
        let (flight, nodes) = (&self.front.flight, &self.front.nodes);
        let deadline = Instant::now() + SETTLE;
        for _ in 0..ROUNDS_MAX {
            let (Invalidation::Entry(file, _)
            | Invalidation::Entries(file)
            | Invalidation::Attributes(file)
            | Invalidation::Pages(file)) = what
            else {
                // Never queued: see `queue`.
                return self.send_everything();
            };
            let node = nodes.node(file);
            let whose = node.map_or(Whose::Anyone, Whose::Node);
            let (begun, idle) = (flight.begun(whose), flight.idle(whose));
            if let Some(node) = node {
                log(what, notify(&*self.kernel, node, what));
            }
            if (idle && flight.begun(whose) == begun) || !flight.settle(whose, deadline) {
                return;
            }
        }
    }

    fn send_everything(&self) {
        log("everything", self.kernel.drop_all_entries());
        for node in self.front.nodes.all() {
            self.front.nodes.doubt(node);
            log("everything", self.kernel.invalidate_pages(node));
        }
    }
}

fn notify(kernel: &dyn Kernel, node: u64, what: &Invalidation) -> io::Result<()> {
    match what {
        Invalidation::Entry(_, label) => {
            // Trap: if there is no such entry, the directory's attributes are not refreshed either. First, since it cannot block.
            kernel.invalidate_attributes(node)?;
            kernel.expire_entry(node, label.as_bytes())
        }
        // There is no such notification for one directory; all entries are looked up again before they are used.
        Invalidation::Entries(_) => {
            kernel.invalidate_attributes(node)?;
            kernel.drop_all_entries()
        }
        Invalidation::Attributes(_) => kernel.invalidate_attributes(node),
        Invalidation::Pages(_) | Invalidation::Everything => kernel.invalidate_pages(node),
    }
}

fn log(what: impl std::fmt::Debug, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(?what, %error, "a notification was not taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ident::FileId;
    use lease::Label;
    use namespace::{Attributes, Cred, Error, FileKind, Stat, Timestamp};

    use crate::nodes::ROOT;

    /// Answers nothing: no test here asks.
    struct NoDoor;

    impl node::Door for NoDoor {
        fn call(&self, _: &Cred, _: client::Call, answer: node::Answer) -> Option<client::Ticket> {
            answer(Err(Error::CutOff));
            None
        }

        fn root(&self) -> FileId {
            FileId::root()
        }

        fn cancel(&self, _: client::Ticket) {}

        fn valid_for(&self) -> Duration {
            Duration::ZERO
        }

        fn hand_out(&self, _: Arc<dyn Below>) {}
    }

    /// Writes down what it is told, and does `meanwhile` the first time.
    #[derive(Default)]
    struct Recorder {
        told: Mutex<Vec<String>>,
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl Recorder {
        fn note(&self, what: String) -> io::Result<()> {
            self.told.lock().push(what);
            if let Some(meanwhile) = self.meanwhile.lock().take() {
                meanwhile();
            }
            Ok(())
        }
    }

    impl Kernel for Arc<Recorder> {
        fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
            self.note(format!("entry {dir} {}", name.escape_ascii()))
        }

        fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
            self.note(format!("attributes {node}"))
        }

        fn invalidate_pages(&self, node: u64) -> io::Result<()> {
            self.note(format!("pages {node}"))
        }

        fn drop_all_entries(&self) -> io::Result<()> {
            self.note("all entries".into())
        }
    }

    /// Notices that are being sent to a recorder, and a file that the kernel has as node 5.
    fn sending() -> (Arc<Notices>, Arc<Recorder>, FileId) {
        let recorder: Arc<Recorder> = Arc::default();
        let notices = Notices::new(Front::new(Arc::new(NoDoor)), Box::new(recorder.clone()));
        let (file, at) = (FileId::root().child(9), Timestamp::default());
        let attributes = Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            ino: 5,
            rdev: 0,
            ctime: at,
            btime: at,
            atime: at,
        };
        notices.front.nodes.give(&file, &Stat { attributes, size: 0, occupied: 0, mtime: at }).unwrap();
        (notices, recorder, file)
    }

    /// Sends what is queued and what `tell` queues, and what the kernel was told when all of it was sent.
    fn told(notices: &Notices, recorder: &Arc<Recorder>, tell: impl FnOnce()) -> Vec<String> {
        std::thread::scope(|scope| {
            scope.spawn(|| notices.run());
            tell();
            // `take_back` waits a bounded time only.
            let mut state = notices.state.lock();
            while state.done < state.queued {
                notices.sent.wait(&mut state);
            }
            drop(state);
            notices.close();
        });
        recorder.told.lock().clone()
    }

    fn entry(name: &str) -> Invalidation {
        Invalidation::Entry(FileId::root(), Label::new(name.as_bytes()).unwrap())
    }

    #[test]
    fn what_the_kernel_was_not_given_is_not_told() {
        let (notices, recorder, file) = sending();
        notices.front.nodes.give_entry(ROOT, &Label::new(b"given").unwrap());
        let told = told(&notices, &recorder, || {
            let strange = Invalidation::Pages(FileId::root().child(8));
            notices.take_back(&[entry("not given"), strange, entry("given"), Invalidation::Attributes(file)]);
        });
        assert_eq!(told, ["attributes 1", "entry 1 given", "attributes 5"]);
        assert!(notices.front.nodes.may_have_setid(5), "what changed may be the mode");
    }

    #[test]
    fn pages_are_dropped_until_no_read_was_answered_meanwhile() {
        let (notices, recorder, file) = sending();
        let front = Arc::clone(&notices.front);
        *recorder.meanwhile.lock() = Some(Box::new(move || {
            front.flight.begin(5);
            front.flight.end(5);
        }));
        assert_eq!(
            told(&notices, &recorder, || notices.take_back(&[Invalidation::Pages(file)])),
            ["pages 5", "pages 5"]
        );
    }

    #[test]
    fn entries_whose_lock_is_held_go_all_at_once() {
        let (notices, recorder, _) = sending();
        notices.front.nodes.give_entry(ROOT, &Label::new(b"given").unwrap());
        // Attributes come first and do not block; the entry does until the one who waits has given up on it.
        let blocked = Arc::clone(&recorder);
        *recorder.meanwhile.lock() = Some(Box::new(move || {
            while !blocked.told.lock().contains(&"all entries".to_owned()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        let told = told(&notices, &recorder, || notices.take_back(&[entry("given")]));
        assert_eq!(told, ["attributes 1", "all entries", "entry 1 given"]);
    }

    #[test]
    fn an_overflow_drops_everything() {
        let (notices, recorder, file) = sending();
        for _ in 0..QUEUE_MAX {
            notices.queue(&entry("x"));
        }
        notices.queue(&Invalidation::Attributes(file));
        let mut told = told(&notices, &recorder, || {});
        told.sort();
        assert_eq!(told, ["all entries", "pages 1", "pages 5"]);
    }
}
