//! Invalidations on their way from the machine to the kernel.
//!
//! Trap: a notification may block, on a lock that a request holds which is waiting for us. So they are sent by threads of their own, never by one that
//! serves requests, and whoever has one to tell waits for it a bounded time only.

use client::Invalidation;
use node::{Again, Below};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
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

/// How long it may take a program to run again once it is answered, on a machine that is very busy. Longer than a recall waits: as with one that blocks, the notification is sent even so.
const RUNS_AGAIN: Duration = Duration::from_secs(1);

/// How often a notification is tried until then.
const TRY_EVERY: Duration = Duration::from_micros(100);

/// How often one notification is repeated because answers were on their way meanwhile.
const ROUNDS_MAX: usize = 3;

/// What can be told to the kernel. Of a node that it does not have, not yet or not any more, it says `NotFound`.
pub(crate) trait Kernel: Send + Sync + 'static {
    fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()>;
    fn invalidate_attributes(&self, node: u64) -> io::Result<()>;
    fn invalidate_pages(&self, node: u64) -> io::Result<()>;
    fn drop_all_entries(&self) -> io::Result<()>;
}

/// Threads that send. Each may block, on a page or directory whose request waits for a lease, and what it blocks on holds up no other's notification.
pub(crate) const SENDERS: usize = 8;

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
    queue: VecDeque<(Invalidation, Batch)>,
    /// The queue overflowed: everything is to go, and with it what these count.
    everything: Vec<Batch>,
    closed: bool,
}

/// How many notifications are still to be sent of those that were queued together.
type Batch = Arc<AtomicUsize>;

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

    fn take_back(&self, what: &[Invalidation]) -> Again<'_> {
        let had: Vec<Invalidation> = what.iter().filter(|what| self.has(what)).cloned().collect();
        let before: Vec<Option<u64>> = had.iter().map(|what| self.quiet_since(what)).collect();
        self.queue_and_wait(&had);
        // Trap: a notification makes the kernel disregard attributes that are just being answered (`attr_version`), and a read then ends where the file
        // ended before. So there is none more than it takes: what had no request under way since before it was taken back is gone.
        Box::new(move || {
            let brought_back = had
                .into_iter()
                .zip(before)
                .filter(|(what, before)| before.is_none() || self.quiet_since(what) != *before);
            let brought_back: Vec<Invalidation> = brought_back.map(|(what, _)| what).collect();
            Box::new(move || {
                self.queue(brought_back.into_iter().filter(|what| self.has(what)).collect());
            })
        })
    }

    fn take_back_soon(&self, what: Vec<Invalidation>) {
        self.queue(what.into_iter().filter(|what| self.has(what)).collect());
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

    /// Whose answers may bring `what` back; everybody's if the kernel does not have the file yet.
    fn whose(&self, what: &Invalidation) -> Whose {
        match what {
            Invalidation::Entry(file, _)
            | Invalidation::Entries(file)
            | Invalidation::Attributes(file)
            | Invalidation::Pages(file) => self.front.nodes.node(file).map_or(Whose::Anyone, Whose::Node),
            Invalidation::Everything => Whose::Anyone,
        }
    }

    /// If no request is under way that may bring `what` back: how many have begun so far. If that is still so many later, nothing has brought it back.
    fn quiet_since(&self, what: &Invalidation) -> Option<u64> {
        let (flight, whose) = (&self.front.flight, self.whose(what));
        let begun = flight.begun(whose);
        (flight.idle(whose) && flight.begun(whose) == begun).then_some(begun)
    }

    fn queue_and_wait(&self, what: &[Invalidation]) {
        let left = self.queue(what.to_vec());
        let mut state = self.state.lock();
        let deadline = Instant::now() + WAIT;
        while left.load(SeqCst) > 0 && !state.closed {
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

    /// Counts how many of these are still to be sent.
    fn queue(&self, what: Vec<Invalidation>) -> Batch {
        let left = Batch::new(AtomicUsize::new(what.len()));
        for what in what {
            let nodes = &self.front.nodes;
            match &what {
                Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                    nodes.node(dir).into_iter().for_each(|dir| nodes.contend(dir));
                }
                Invalidation::Attributes(file) | Invalidation::Pages(file) => match nodes.node(file) {
                    Some(node) => nodes.doubt(node),
                    None => nodes.miss(),
                },
                Invalidation::Everything => {}
            }
            let mut state = self.state.lock();
            if state.queue.len() < QUEUE_MAX && what != Invalidation::Everything {
                state.queue.push_back((what, Arc::clone(&left)));
            } else {
                let State { queue, everything, .. } = &mut *state;
                everything.extend(queue.drain(..).map(|(_, batch)| batch).chain([Arc::clone(&left)]));
            }
            self.queued.notify_one();
        }
        left
    }

    /// Sends what is queued until closed. For [`SENDERS`] threads.
    pub(crate) fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while state.queue.is_empty() && state.everything.is_empty() && !state.closed {
                self.queued.wait(&mut state);
            }
            if state.closed {
                return;
            }
            let mut done = std::mem::take(&mut state.everything);
            let next = if done.is_empty() { state.queue.pop_front() } else { None };
            drop(state);
            match next {
                Some((what, batch)) => {
                    self.send(&what);
                    done.push(batch);
                }
                None => self.send_everything(),
            }
            let _state = self.state.lock();
            for batch in done {
                batch.fetch_sub(1, SeqCst);
            }
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
        let deadline = Instant::now() + SETTLE;
        for _ in 0..ROUNDS_MAX {
            let (whose, before) = (self.whose(what), self.quiet_since(what));
            // What is given meanwhile is given for no time: [`Nodes::miss`](crate::nodes::Nodes::miss).
            let Whose::Node(node) = whose else { return };
            log(what, self.notify_given(node, what));
            let quiet = before.is_some() && self.quiet_since(what) == before;
            if quiet || !self.front.flight.settle(whose, deadline) {
                return;
            }
        }
    }

    /// Trap: a file that was just looked up the kernel has only once who asked has run again. Until then a notification finds nothing, and the attributes that the lookup brought would stand for
    /// as long as they were given. So it is repeated while the node counts as given.
    fn notify_given(&self, node: u64, what: &Invalidation) -> io::Result<()> {
        let deadline = Instant::now() + RUNS_AGAIN;
        loop {
            match notify(&*self.kernel, node, what) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if self.front.nodes.file(node).is_err() {
                        return Ok(());
                    }
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    std::thread::sleep(TRY_EVERY);
                }
                told => return told,
            }
        }
    }

    fn send_everything(&self) {
        log("everything", self.kernel.drop_all_entries());
        for node in self.front.nodes.all() {
            self.front.nodes.doubt(node);
            log("everything", self.notify_given(node, &Invalidation::Everything));
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
    use namespace::{Attributes, Cred, Entry, Error, FileKind, Stat, Timestamp};
    use node::Told;

    use crate::front::Found;
    use crate::groups::Asker;
    use crate::nodes::ROOT;

    /// Answers a lookup with `file`, after it has done `meanwhile`.
    #[derive(Default)]
    struct Door {
        file: Option<(Entry, Stat)>,
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl node::Door for Door {
        fn call(&self, _: &Cred, _: client::Call, answer: node::Answer) -> Option<client::Ticket> {
            let file = self.file.clone().ok_or(Error::CutOff);
            let meanwhile = self.meanwhile.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
            answer(file.map(|(entry, stat)| Told::Reply(client::Reply::Node(entry, stat))));
            None
        }

        fn root(&self) -> FileId {
            FileId::root()
        }

        fn cancel(&self, _: client::Ticket) {}

        fn valid_for(&self) -> Duration {
            Duration::from_secs(30)
        }

        fn hand_out(&self, _: Arc<dyn Below>) {}
    }

    /// Writes down what it is told, and does `meanwhile` the first time. For so many times it does not have what it is told of.
    #[derive(Default)]
    struct Recorder {
        told: Mutex<Vec<String>>,
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
        has_not: AtomicUsize,
    }

    impl Recorder {
        fn note(&self, what: String) -> io::Result<()> {
            self.told.lock().push(what);
            let meanwhile = self.meanwhile.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
            let has_not = self.has_not.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            if has_not { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
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

    /// A file, and what stat shows of it: node 5.
    fn five() -> (FileId, Stat) {
        let at = Timestamp::default();
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
        (FileId::root().child(9), Stat { attributes, size: 0, occupied: 0, mtime: at })
    }

    /// Notices that are being sent to a recorder, and a file that the kernel has as node 5.
    fn sending() -> (Arc<Notices>, Arc<Recorder>, FileId) {
        let recorder: Arc<Recorder> = Arc::default();
        let notices = Notices::new(Front::new(Arc::new(Door::default())), Box::new(recorder.clone()));
        let (file, stat) = five();
        notices.front.nodes.give(&file, &stat).unwrap();
        (notices, recorder, file)
    }

    /// Sends what is queued and what `tell` queues, and what the kernel was told when all of it was sent.
    fn told(notices: &Notices, recorder: &Arc<Recorder>, tell: impl FnOnce()) -> Vec<String> {
        std::thread::scope(|scope| {
            scope.spawn(|| notices.run());
            tell();
            // `take_back` waits a bounded time only. The one sender here sends this last, and nothing for it.
            let last = notices.queue(vec![Invalidation::Attributes(FileId::root().child(7))]);
            let mut state = notices.state.lock();
            while last.load(SeqCst) > 0 {
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
            notices.take_back(&[entry("not given"), strange, entry("given"), Invalidation::Attributes(file)])(
            )();
        });
        assert_eq!(told, ["attributes 1", "entry 1 given", "attributes 5"]);
        assert!(notices.front.nodes.may_have_setid(5), "what changed may be the mode");
    }

    #[test]
    fn what_the_kernel_is_about_to_have_is_waited_for() {
        let (notices, recorder, file) = sending();
        recorder.has_not.store(3, SeqCst);
        let pages = [Invalidation::Pages(file)];
        assert_eq!(told(&notices, &recorder, || drop(notices.take_back(&pages))), ["pages 5"; 4]);
        // Nor is it forgotten when everything is to go: the entries, which are not there, and two nodes, of which the first is told twice.
        let (notices, recorder, _) = sending();
        recorder.has_not.store(2, SeqCst);
        let everything = told(&notices, &recorder, || drop(notices.take_back(&[Invalidation::Everything])));
        assert_eq!(everything.len(), 4, "{everything:?}");
        // Not for what it has forgotten.
        let (notices, recorder, _) = sending();
        recorder.has_not.store(1000, SeqCst);
        let front = Arc::clone(&notices.front);
        *recorder.meanwhile.lock() = Some(Box::new(move || front.nodes.forget(5, 1)));
        assert_eq!(told(&notices, &recorder, || drop(notices.take_back(&pages))), ["pages 5"]);
    }

    #[test]
    fn what_is_taken_back_before_it_is_given_is_given_for_no_time() {
        let (file, stat) = five();
        let (position, ino, kind) = (3, 5, FileKind::Regular);
        let entry = Entry { file: file.clone(), position, ino, kind };
        let door = Arc::new(Door { file: Some((entry, stat)), ..Door::default() });
        let recorder: Arc<Recorder> = Arc::default();
        let notices = Notices::new(Front::new(door.clone()), Box::new(recorder.clone()));
        let look = || {
            let (tell, told) = std::sync::mpsc::channel();
            notices.front.lookup(Asker::KERNEL, ROOT, b"x", move |found| tell.send(found).unwrap());
            let Ok(Ok(Found::File(shown))) = told.recv() else { panic!("nothing found") };
            notices.front.nodes.forget(5, 1);
            shown.ttl
        };
        assert_eq!(look(), Duration::from_secs(30));
        let taking_back = Arc::clone(&notices);
        *door.meanwhile.lock() = Some(Box::new(move || {
            // As a request has been under way since before.
            taking_back.front.flight.begin(ROOT);
            taking_back.take_back_soon(vec![Invalidation::Pages(file)]);
            taking_back.front.flight.end(ROOT);
        }));
        assert_eq!(look(), Duration::ZERO);
        assert!(told(&notices, &recorder, || {}).is_empty(), "there was no node");
        assert_eq!(look(), Duration::from_secs(30));
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
            told(&notices, &recorder, || drop(notices.take_back(&[Invalidation::Pages(file)]))),
            ["pages 5", "pages 5"]
        );
    }

    #[test]
    fn what_was_answered_before_the_lease_went_is_taken_back_again() {
        let (notices, recorder, file) = sending();
        let pages = [Invalidation::Pages(file)];
        let quiet = told(&notices, &recorder, || notices.take_back(&pages)()());
        assert_eq!(quiet, ["pages 5"], "the next answers are under the next lease, and stay");
        let (notices, recorder, _) = sending();
        let flight = &notices.front.flight;
        let read_meanwhile = || {
            let again = notices.take_back(&pages);
            flight.begin(5);
            flight.end(5);
            again()();
        };
        assert_eq!(told(&notices, &recorder, read_meanwhile), ["pages 5", "pages 5"]);
        let (notices, recorder, _) = sending();
        let flight = &notices.front.flight;
        let read_afterwards = || {
            let again = notices.take_back(&pages)();
            flight.begin(5);
            flight.end(5);
            again();
        };
        assert_eq!(
            told(&notices, &recorder, read_afterwards),
            ["pages 5"],
            "that would make the kernel disregard what it is told"
        );
    }

    #[test]
    fn a_notification_that_blocks_holds_up_no_other() {
        let (notices, recorder, file) = sending();
        notices.front.nodes.give_entry(ROOT, &Label::new(b"given").unwrap());
        let blocked = Arc::clone(&recorder);
        *recorder.meanwhile.lock() = Some(Box::new(move || {
            while blocked.told.lock().len() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| notices.run())));
            notices.take_back_soon(vec![Invalidation::Pages(file)]);
            while recorder.told.lock().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            notices.take_back_soon(vec![entry("given")]);
            while recorder.told.lock().len() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            notices.close();
        });
        assert_eq!(recorder.told.lock()[..], ["pages 5", "attributes 1", "entry 1 given"]);
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
        let told = told(&notices, &recorder, || drop(notices.take_back(&[entry("given")])));
        assert_eq!(told, ["attributes 1", "all entries", "entry 1 given"]);
    }

    #[test]
    fn an_overflow_drops_everything() {
        let (notices, recorder, file) = sending();
        for _ in 0..QUEUE_MAX {
            notices.queue(vec![entry("x")]);
        }
        notices.queue(vec![Invalidation::Attributes(file)]);
        let mut told = told(&notices, &recorder, || {});
        told.sort();
        assert_eq!(told, ["all entries", "pages 1", "pages 5"]);
        assert!(notices.state.lock().queue.is_empty());
    }
}
