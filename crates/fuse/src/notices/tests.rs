use super::*;
use file_service::Response;
use namespace::{Attributes, Cred, Entry, Error, FileKind, FileSpec, Stat, Timestamp};

use crate::front::LookedUp;
use crate::groups::Asker;
use crate::nodes::ROOT;

/// Answers a lookup with `file`, after it has called `meanwhile`.
#[derive(Default)]
struct FakeService {
    file: Option<(Entry, Stat)>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl file_service::FileService for FakeService {
    fn call(&self, _: &Cred, _: client::Call, answer: file_service::Responder) -> Option<client::Ticket> {
        let file = self.file.clone().ok_or(Error::CutOff);
        let meanwhile = self.meanwhile.lock().take();
        meanwhile.into_iter().for_each(|meanwhile| meanwhile());
        answer(file.map(|(entry, stat)| Response::Reply(client::Reply::Node(entry, stat))));
        None
    }

    fn root(&self) -> FileId {
        FileId::root()
    }

    fn cancel(&self, _: client::Ticket) {}

    fn give_way(&self, _: client::Ticket) {}
    fn forgotten(&self, _: Vec<FileId>) {}

    fn valid_for(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn register_cache(&self, _: Arc<dyn CacheHolder>) {}
}

/// Notes each notification, and calls `meanwhile` at the first. It returns `NotFound` for the
/// first `has_not` notifications.
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

    fn write_back(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
        self.note(format!("written back {node} {offset} {length}"))
    }

    fn drop_all_entries(&self) -> io::Result<()> {
        self.note("all entries".into())
    }
}

/// A file and its stat, as node 5.
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

/// Notices that are sent to a recorder, and a file that the kernel has as node 5.
fn sending() -> (Arc<Notices>, Arc<Recorder>, FileId) {
    let recorder: Arc<Recorder> = Arc::default();
    let notices = Notices::new(Front::new(Arc::new(FakeService::default())), Box::new(recorder.clone()));
    let (file, stat) = five();
    let nodes = &notices.front.nodes;
    nodes.give(&file, &stat).unwrap();
    assert!(nodes.may_keep(5, &file, nodes.since(5)));
    nodes.page(5);
    (notices, recorder, file)
}

/// Sends all notifications: those queued, and those that `tell` queues. Returns what the
/// recorder was told.
fn told(notices: &Notices, recorder: &Arc<Recorder>, tell: impl FnOnce()) -> Vec<String> {
    std::thread::scope(|scope| {
        scope.spawn(|| notices.run());
        tell();
        // `revoke` waits a bounded time only. The one sender here sends this last, and it is a
        // notification of no node.
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

/// The kernel is given an entry of the root.
fn give(notices: &Notices, name: &[u8]) -> bool {
    let nodes = &notices.front.nodes;
    nodes.give_entry(ROOT, &Label::new(name).unwrap(), nodes.since(ROOT))
}

#[test]
fn what_the_kernel_was_not_given_is_not_told() {
    let (notices, recorder, file) = sending();
    give(&notices, b"given");
    let told = told(&notices, &recorder, || {
        let strange = Invalidation::Pages(FileId::root().child(8));
        (notices
            .revoke(&[entry("not given"), strange, entry("given"), Invalidation::Attributes(file)], &[])
            .seal)()();
    });
    assert_eq!(told, ["attributes 1", "entry 1 given", "attributes 5"]);
    assert!(notices.front.nodes.may_have_setid(5), "what changed may be the mode");
}

#[test]
fn what_the_kernel_is_about_to_have_is_waited_for() {
    let (notices, recorder, file) = sending();
    recorder.has_not.store(3, SeqCst);
    let pages = [Invalidation::Pages(file)];
    assert_eq!(told(&notices, &recorder, || drop(notices.revoke(&pages, &[]))), ["pages 5"; 4]);
    // An invalidation of everything repeats as well: two nodes, of which the first is told
    // three times.
    let (notices, recorder, _) = sending();
    recorder.has_not.store(2, SeqCst);
    let everything = told(&notices, &recorder, || drop(notices.revoke(&[Invalidation::Everything], &[])));
    assert_eq!(everything.len(), 4, "{everything:?}");
    // A node that the kernel has forgotten is not repeated.
    let (notices, recorder, _) = sending();
    recorder.has_not.store(1000, SeqCst);
    let front = Arc::clone(&notices.front);
    *recorder.meanwhile.lock() = Some(Box::new(move || assert!(front.nodes.forget(5, 1).is_none())));
    assert_eq!(told(&notices, &recorder, || drop(notices.revoke(&pages, &[]))), ["pages 5"]);
}

#[test]
fn what_is_taken_back_before_it_is_given_is_given_for_no_time() {
    let (file, stat) = five();
    let (position, ino, kind) = (3, 5, FileKind::Regular);
    let entry = Entry { file: file.clone(), position, ino, kind };
    let service = Arc::new(FakeService { file: Some((entry, stat)), ..FakeService::default() });
    let recorder: Arc<Recorder> = Arc::default();
    let notices = Notices::new(Front::new(service.clone()), Box::new(recorder.clone()));
    let look = || {
        let (tell, told) = std::sync::mpsc::channel();
        notices.front.lookup(Asker::KERNEL, ROOT, b"x", move |found| tell.send(found).unwrap());
        let Ok(Ok(LookedUp::File(shown))) = told.recv() else { panic!("nothing found") };
        assert!(notices.front.nodes.forget(5, 1).is_none());
        shown.ttl
    };
    assert_eq!(look(), Duration::from_secs(30));
    let taking_back = Arc::clone(&notices);
    *service.meanwhile.lock() = Some(Box::new(move || {
        // As if a request had been under way since before.
        taking_back.front.flight.begin(ROOT);
        taking_back.revoke_soon(vec![Invalidation::Pages(file)]);
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
    *recorder.meanwhile.lock() = Some(Box::new(move || front.nodes.page(5)));
    assert_eq!(
        told(&notices, &recorder, || drop(notices.revoke(&[Invalidation::Pages(file)], &[]))),
        ["pages 5", "pages 5"]
    );
}

#[test]
fn what_was_answered_before_the_lease_went_is_taken_back_again() {
    let (notices, recorder, file) = sending();
    let pages = [Invalidation::Pages(file)];
    let quiet = told(&notices, &recorder, || (notices.revoke(&pages, &[]).seal)()());
    assert_eq!(quiet, ["pages 5"], "the next answers are under the next lease, and stay");
    let (notices, recorder, _) = sending();
    let nodes = &notices.front.nodes;
    let read_meanwhile = || {
        let again = notices.revoke(&pages, &[]).seal;
        nodes.page(5);
        again()();
    };
    assert_eq!(told(&notices, &recorder, read_meanwhile), ["pages 5", "pages 5"]);
    let (notices, recorder, _) = sending();
    let nodes = &notices.front.nodes;
    let read_afterwards = || {
        let again = (notices.revoke(&pages, &[]).seal)();
        nodes.page(5);
        again();
    };
    assert_eq!(
        told(&notices, &recorder, read_afterwards),
        ["pages 5"],
        "that would make the kernel disregard what it is told"
    );
}

/// A request for attributes may be waiting meanwhile, and the kernel would disregard its answer.
#[test]
fn what_the_kernel_holds_no_more_is_not_invalidated_again() {
    let (notices, recorder, file) = sending();
    let nodes = &notices.front.nodes;
    let [attributes, pages] =
        [Invalidation::Attributes(file.clone()), Invalidation::Pages(file.clone())].map(|what| [what]);
    let told = told(&notices, &recorder, || {
        (notices.revoke(&pages, &[]).seal)()();
        for what in [&attributes, &pages] {
            let seal = notices.revoke(what, &[]).seal;
            assert!(!nodes.may_keep(5, &file, nodes.since(5)), "it is told for no time meanwhile");
            seal()();
        }
        assert!(notices.revoke_uncached(&attributes).is_some());
        assert!(nodes.may_keep(5, &file, nodes.since(5)));
        assert!(notices.revoke_uncached(&attributes).is_none());
        (notices.revoke(&attributes, &[]).seal)()();
    });
    assert_eq!(told, ["pages 5", "attributes 5"]);
}

#[test]
fn what_went_while_a_notification_was_queued_is_not_invalidated_again() {
    let (notices, recorder, file) = sending();
    let told = told(&notices, &recorder, || {
        let what = Invalidation::Pages(file);
        let left = [what.clone(), Invalidation::Attributes(FileId::root()), what];
        // One sender, which sends one after the other.
        left.into_iter().for_each(|what| notices.revoke_soon(vec![what]));
    });
    assert_eq!(told, ["pages 5"]);
}

/// Another recall waits for a notification that is still being sent.
#[test]
fn what_is_just_being_dropped_counts_as_held() {
    let (notices, recorder, file) = sending();
    let (has, pages) = (Arc::new(AtomicUsize::new(9)), Invalidation::Pages(file));
    let (looks, what, says) = (Arc::clone(&notices), pages.clone(), Arc::clone(&has));
    *recorder.meanwhile.lock() = Some(Box::new(move || says.store(usize::from(looks.has(&what)), SeqCst)));
    told(&notices, &recorder, || drop(notices.revoke(std::slice::from_ref(&pages), &[])));
    assert_eq!(has.load(SeqCst), 1);
    assert!(!notices.has(&pages) && notices.state.lock().pending.is_empty());
}

#[test]
fn a_notification_that_blocks_holds_up_no_other() {
    let (notices, recorder, file) = sending();
    give(&notices, b"given");
    let blocked = Arc::clone(&recorder);
    *recorder.meanwhile.lock() = Some(Box::new(move || {
        while blocked.told.lock().len() < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }));
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(|| notices.run())));
        notices.revoke_soon(vec![Invalidation::Pages(file)]);
        while recorder.told.lock().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        notices.revoke_soon(vec![entry("given")]);
        while recorder.told.lock().len() < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        notices.close();
    });
    assert_eq!(recorder.told.lock()[..], ["pages 5", "attributes 1", "entry 1 given"]);
}

#[test]
fn a_lease_on_a_name_is_of_all_that_fold_to_it() {
    let (notices, recorder, _) = sending();
    for name in ["README", "Readme", "other"] {
        give(&notices, name.as_bytes());
    }
    let told = told(&notices, &recorder, || drop(notices.revoke(&[entry("readme")], &[])));
    assert_eq!(told[..3], ["attributes 1", "entry 1 README", "entry 1 Readme"]);
    assert!(!notices.has(&entry("readme")));
    // On a machine with much to do all entries of the directory may go after a while.
    assert_eq!(notices.has(&entry("other")), told.len() == 3, "{told:?}");
}

#[test]
fn all_entries_of_a_directory_go_one_by_one() {
    let (notices, recorder, _) = sending();
    for name in ["README", "other"] {
        give(&notices, name.as_bytes());
    }
    let entries = [Invalidation::Entries(FileId::root())];
    let mut told = told(&notices, &recorder, || drop(notices.revoke(&entries, &[])));
    told.sort();
    // One is sent again if it took long, on a machine with much to do.
    told.dedup();
    assert_eq!(told, ["attributes 1", "entry 1 README", "entry 1 other"]);
    assert!(!notices.has(&entries[0]), "they are told once");
}

/// A file service whose every call waits until it gives way, or until the test answers it.
#[derive(Default)]
struct Waiting {
    calls: Mutex<Vec<(client::Ticket, file_service::Responder)>>,
    never_gives_way: bool,
}

impl file_service::FileService for Waiting {
    fn call(&self, _: &Cred, _: client::Call, answer: file_service::Responder) -> Option<client::Ticket> {
        let ticket = client::Ticket(1);
        self.calls.lock().push((ticket, answer));
        Some(ticket)
    }

    fn cancel(&self, _: client::Ticket) {}

    fn forgotten(&self, _: Vec<FileId>) {}

    fn give_way(&self, ticket: client::Ticket) {
        if self.never_gives_way {
            return;
        }
        let answers: Vec<_> = self.calls.lock().extract_if(.., |(waits, _)| *waits == ticket).collect();
        answers.into_iter().for_each(|(_, answer)| answer(Err(Error::Interrupted)));
    }

    fn root(&self) -> FileId {
        FileId::root()
    }

    fn valid_for(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn register_cache(&self, _: Arc<dyn CacheHolder>) {}
}

/// A kernel that expires an entry under its directory's lock. A request holds that lock until
/// it is answered.
#[derive(Default)]
struct Locking {
    recorder: Arc<Recorder>,
    locked: Mutex<bool>,
    unlocked: Condvar,
}

impl Kernel for Arc<Locking> {
    fn write_back(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        let mut locked = self.locked.lock();
        while *locked {
            self.unlocked.wait(&mut locked);
        }
        self.recorder.expire_entry(dir, name)
    }

    fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
        self.recorder.invalidate_attributes(node)
    }

    fn invalidate_pages(&self, node: u64) -> io::Result<()> {
        self.recorder.invalidate_pages(node)
    }

    fn drop_all_entries(&self) -> io::Result<()> {
        let told = self.recorder.drop_all_entries();
        self.unlock();
        told
    }
}

impl Locking {
    fn unlock(&self) {
        *self.locked.lock() = false;
        self.unlocked.notify_all();
    }
}

/// Thread `tid` makes a name in a directory, keeps it locked and waits. Meanwhile an entry of
/// the directory is invalidated. Returns the error of the request, and what the kernel was
/// told.
fn taken_back_from_locked(tid: u32) -> (Option<crate::errno::Errno>, Vec<String>) {
    let kernel: Arc<Locking> = Arc::default();
    let notices = Notices::new(Front::new(Arc::new(Waiting::default())), Box::new(Arc::clone(&kernel)));
    for name in ["README", "other"] {
        give(&notices, name.as_bytes());
    }
    *kernel.locked.lock() = true;
    let (asker, answered) = (
        Asker { uid: 0, gid: 0, pid: tid, request: 1, keeps_set_ids: false },
        Arc::<Mutex<Option<_>>>::default(),
    );
    let (unlocks, tells) = (Arc::clone(&kernel), Arc::clone(&answered));
    let spec = FileSpec::new(FileKind::Directory, 0o755, 0);
    notices.front.flight.begin(ROOT);
    let front = Arc::clone(&notices.front);
    notices.front.make(asker, ROOT, b"new", spec, move |made| {
        *tells.lock() = made.err();
        front.flight.end(ROOT);
        unlocks.unlock();
    });
    let told = told(&notices, &kernel.recorder, || drop(notices.revoke(&[entry("readme")], &[])));
    (*answered.lock(), told)
}

#[test]
fn whoever_keeps_a_directory_locked_gives_way() {
    // A thread in a system call that goes by a path.
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let (tell, tid) = std::sync::mpsc::channel();
    let path = pipe.clone();
    let opens = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        std::fs::File::open(path).unwrap()
    });
    let tid = tid.recv().unwrap();
    while crate::syscall::retries(tid).is_none() {
        std::thread::yield_now();
    }
    let (answered, mut told) = taken_back_from_locked(tid);
    assert_eq!(answered, Some(crate::errno::Errno(libc::EINTR)));
    told.sort();
    told.dedup();
    assert_eq!(told, ["attributes 1", "entry 1 README", "entry 1 other"], "all of it, and nothing else's");
    drop(std::fs::OpenOptions::new().write(true).open(pipe).unwrap());
    drop(opens.join().unwrap());
}

/// The kernel could not expire an entry of the directory before the change is answered, and the
/// change may be one that cannot give way.
#[test]
fn no_entry_is_given_while_a_change_keeps_its_directory_locked() {
    let service: Arc<Waiting> = Arc::default();
    let front = Front::new(service.clone());
    let (dir, stat) = five();
    let stat = Stat { attributes: Attributes { kind: FileKind::Directory, ..stat.attributes }, ..stat };
    let other = front.nodes.give(&dir, &stat).unwrap();
    let asker = |pid| Asker { uid: 0, gid: 0, pid, request: u64::from(pid), keeps_set_ids: false };
    let answer = |told| service.calls.lock().remove(0).1(told);
    let found = || {
        let position = 7;
        let entry = Entry { file: FileId::root().child(8), ino: 8, position, kind: FileKind::Regular };
        Ok(Response::Reply(client::Reply::Node(entry, five().1)))
    };
    // How long the kernel may keep an entry of a directory, one that exists and one that does not.
    let keeps = |dir: u64, at: usize| {
        [found(), Err(Error::NotFound)].map(|told| {
            let ttl: Arc<Mutex<Option<Duration>>> = Arc::default();
            let tells = Arc::clone(&ttl);
            front.lookup(asker(std::process::id()), dir, b"name", move |found| {
                *tells.lock() = Some(match found.unwrap() {
                    LookedUp::File(shown) => shown.entry_ttl,
                    LookedUp::Missing(ttl) => ttl,
                });
            });
            service.calls.lock().remove(at).1(told);
            let ttl = ttl.lock().take();
            ttl.unwrap()
        })
    };
    let [none, long] = [[Duration::ZERO; 2], [Duration::from_secs(30); 2]];
    assert_eq!(keeps(ROOT, 0), long);
    // A lookup that waits keeps no other from being given.
    front.lookup(asker(1), ROOT, b"first", |_| ());
    assert_eq!(keeps(ROOT, 1), long);
    answer(Err(Error::NotFound));
    front.make(asker(1), ROOT, b"new", FileSpec::new(FileKind::Regular, 0o644, 0), |_| ());
    assert_eq!(keeps(ROOT, 1), none);
    assert_eq!(keeps(other, 1), long);
    answer(Err(Error::NoSpace));
    assert_eq!(keeps(ROOT, 0), long);
    // A directory that is removed is locked, too, and found by name only.
    front.unlink(asker(1), ROOT, b"some", true, |_| ());
    assert_eq!([keeps(ROOT, 1), keeps(other, 1)], [none; 2]);
    answer(Ok(Response::Reply(client::Reply::Nothing)));
    assert_eq!([keeps(ROOT, 0), keeps(other, 0)], [long; 2]);
}

/// A kernel that keeps one directory locked, and has entries of it.
fn locked_root() -> (Arc<Notices>, Arc<Locking>, FileId) {
    let kernel: Arc<Locking> = Arc::default();
    let notices = Notices::new(Front::new(Arc::new(Waiting::default())), Box::new(Arc::clone(&kernel)));
    let (file, stat) = five();
    let nodes = &notices.front.nodes;
    nodes.give(&file, &stat).unwrap();
    assert!(nodes.may_keep(5, &file, nodes.since(5)));
    for at in 0..2 * SENDERS {
        give(&notices, format!("{at}").as_bytes());
    }
    *kernel.locked.lock() = true;
    (notices, kernel, file)
}

/// One thread waits for the directory. The others go on sending.
#[test]
fn a_locked_directory_holds_up_nothing_else() {
    let (notices, kernel, file) = locked_root();
    std::thread::scope(|scope| {
        (0..SENDERS).for_each(|_| _ = scope.spawn(|| notices.run()));
        let names = (0..2 * SENDERS).map(|at| notices.queue(vec![entry(&at.to_string())]));
        let names: Vec<Batch> = names.collect();
        let other = notices.queue(vec![Invalidation::Attributes(file)]);
        let are_sent = |left: &Batch| notices.are_sent(left, Instant::now() + Duration::from_secs(100));
        assert!(are_sent(&other) && names.iter().all(|left| left.load(SeqCst) > 0));
        kernel.unlock();
        assert!(names.iter().all(are_sent));
        notices.close();
    });
    let entries = |told: &String| told.starts_with("entry");
    assert_eq!(kernel.recorder.told.lock().iter().filter(|told| entries(told)).count(), 2 * SENDERS);
}

/// Nobody waits for what is offered. So no request gives way for it, and nothing is dropped.
#[test]
fn what_is_offered_stays_while_its_directory_is_locked() {
    let (notices, kernel, file) = locked_root();
    std::thread::scope(|scope| {
        (0..2).for_each(|_| _ = scope.spawn(|| notices.run()));
        let offered = [entry("1"), Invalidation::Attributes(file.clone())];
        let Revocation { kept, .. } = notices.revoke(&[], &offered);
        assert_eq!(kept, BTreeSet::from([FileId::root()]), "its attributes go");
        kernel.unlock();
        notices.close();
    });
    let told = kernel.recorder.told.lock();
    assert!(
        told.contains(&"attributes 5".to_owned()) && !told.contains(&"all entries".to_owned()),
        "{told:?}"
    );
}

/// A request that waits in the directory is known, so that not even the time is lost.
#[test]
fn what_is_offered_stays_while_a_request_waits_in_its_directory() {
    let (notices, kernel, _) = locked_root();
    let asker = Asker { uid: 0, gid: 0, pid: u32::MAX, request: 1, keeps_set_ids: false };
    let spec = FileSpec::new(FileKind::Directory, 0o755, 0);
    notices.front.make(asker, ROOT, b"new", spec, |_| ());
    let Revocation { kept, .. } = notices.revoke(&[], &[entry("1")]);
    assert_eq!(kept, BTreeSet::from([FileId::root()]));
    assert!(notices.state.lock().queue.is_empty() && kernel.recorder.told.lock().is_empty());
}

/// Offered items do not crowd out recalled ones.
#[test]
fn what_is_offered_in_masses_stays() {
    let (notices, _, file) = sending();
    let offered = vec![Invalidation::Attributes(file.clone()); QUEUE_MAX];
    let Revocation { kept, .. } = notices.revoke(&[], &offered);
    assert_eq!(kept, BTreeSet::from([file]));
    assert!(notices.state.lock().queue.len() <= QUEUE_MAX / 2);
}

#[test]
fn nobody_gives_way_of_whom_it_is_not_known_that_it_tries_again() {
    let (answered, told) = taken_back_from_locked(u32::MAX);
    assert!(answered.is_none() && told.contains(&"all entries".to_owned()), "{answered:?}: {told:?}");
}

#[test]
fn an_overflow_drops_everything() {
    let (notices, recorder, file) = sending();
    for _ in 0..QUEUE_MAX {
        notices.queue(vec![entry("x")]);
    }
    notices.queue(vec![Invalidation::Attributes(file)]);
    give(&notices, b"given");
    let mut told = told(&notices, &recorder, || {});
    told.sort();
    assert_eq!(told, ["entry 1 given", "pages 1", "pages 5"]);
    assert!(notices.state.lock().queue.is_empty());
}

/// A kernel that holds names of the root, and attributes by node, and loses what it is told to.
#[derive(Default)]
struct Caches(Mutex<CachesState>);

#[derive(Default)]
struct CachesState {
    /// An answer on the name, and attributes: whether each was decided under the old leases.
    entry: Option<bool>,
    attributes: Option<bool>,
    /// Whether it has the file at all.
    has_file: bool,
    /// How often attributes were invalidated. Those of a request that began before are disregarded
    /// (`attr_version`).
    invalidated: u32,
}

impl Kernel for Arc<Caches> {
    fn expire_entry(&self, _: u64, _: &[u8]) -> io::Result<()> {
        self.0.lock().entry = None;
        Ok(())
    }

    fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
        let mut caches = self.0.lock();
        if node == 5 {
            caches.attributes = None;
            caches.invalidated += 1;
        }
        if node == 5 && !caches.has_file {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    }

    fn invalidate_pages(&self, node: u64) -> io::Result<()> {
        self.invalidate_attributes(node)
    }

    fn write_back(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn drop_all_entries(&self) -> io::Result<()> {
        self.0.lock().entry = None;
        Ok(())
    }
}

/// The phases of a revocation, after which steps of a lookup happen.
const BEFORE: usize = 0;
const FIRST_PHASE: usize = 1;
const SECOND_PHASE: usize = 2;
const THIRD_PHASE: usize = 3;
/// All that the third phase has queued is sent.
const SENT: usize = 4;

/// A lookup of `X` in the root, and the phases after which it begins, is decided, is given, and
/// arrives in the kernel.
struct Look {
    steps: [usize; 4],
    found: bool,
}

/// Runs the lookup beside a revocation of `what`. Returns whether the kernel holds `what` at the
/// end as it was decided under the leases that have gone.
fn is_left(look: &Look, known: bool, what: &Invalidation) -> bool {
    let kernel: Arc<Caches> = Arc::default();
    let service = Arc::new(Waiting { never_gives_way: true, ..Waiting::default() });
    let notices = Notices::new(Front::new(service.clone()), Box::new(kernel.clone()));
    let front = &notices.front;
    let answers = |found: bool| {
        let (file, stat) = five();
        let entry = Entry { file, position: 3, ino: 5, kind: FileKind::Regular };
        let node = Response::Reply(client::Reply::Node(entry, stat));
        found.then_some(node).ok_or(Error::NotFound)
    };
    let shown: Arc<Mutex<Option<LookedUp>>> = Arc::default();
    let invalidated = std::cell::Cell::new(0);
    let begin = || {
        invalidated.set(kernel.0.lock().invalidated);
        front.flight.begin(ROOT);
        let shown = Arc::clone(&shown);
        front.lookup(Asker::KERNEL, ROOT, b"X", move |told| *shown.lock() = told.ok());
    };
    let give = || {
        let (_, answer) = service.calls.lock().pop().unwrap();
        answer(answers(look.found));
    };
    let arrive = |is_old: bool| {
        let until = |ttl: Duration| (!ttl.is_zero()).then_some(is_old);
        let mut caches = kernel.0.lock();
        match shown.lock().take().unwrap() {
            LookedUp::Missing(ttl) => caches.entry = until(ttl),
            LookedUp::File(shown) => {
                caches.entry = until(shown.entry_ttl);
                if !caches.has_file || caches.invalidated == invalidated.get() {
                    caches.attributes = until(shown.ttl);
                }
                caches.has_file = true;
            }
        }
        drop(caches);
        front.flight.end(ROOT);
    };
    if known {
        begin();
        give();
        arrive(true);
    }
    let arrive = || arrive(look.steps[1] < SECOND_PHASE);
    let steps: [&dyn Fn(); 4] = [&begin, &|| (), &give, &arrive];
    let after = |phase: usize| {
        let due = look.steps.iter().zip(steps).filter(|(at, _)| **at == phase);
        due.for_each(|(_, step)| step());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| notices.run());
        after(BEFORE);
        let what = std::slice::from_ref(what);
        let seal = notices.revoke_uncached(what).unwrap_or_else(|| notices.revoke(what, &[]).seal);
        after(FIRST_PHASE);
        let recheck = seal();
        after(SECOND_PHASE);
        recheck();
        after(THIRD_PHASE);
        let deadline = Instant::now() + Duration::from_secs(60);
        // The one thread sends what is due first, and this last.
        let are_sent = || notices.are_sent(&notices.queue(vec![entry("last")]), deadline);
        if look.steps[3] == SENT {
            assert!(are_sent());
            after(SENT);
        }
        while !are_sent() || !notices.state.lock().last.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        notices.close();
    });
    let caches = kernel.0.lock();
    match what {
        Invalidation::Entry(..) | Invalidation::Entries(_) => caches.entry == Some(true),
        _ => caches.attributes == Some(true),
    }
}

#[test]
fn nothing_stays_that_was_decided_under_a_lease_that_has_gone() {
    let phases = BEFORE..=THIRD_PHASE;
    let (file, _) = five();
    let revoked = [
        entry("x"),
        Invalidation::Entries(FileId::root()),
        Invalidation::Attributes(file.clone()),
        Invalidation::Pages(file),
    ];
    let mut wrong = Vec::new();
    for begins in phases.clone() {
        for decided in begins..=THIRD_PHASE {
            for given in decided..=THIRD_PHASE {
                for arrives in given..=SENT {
                    for (found, known) in [(false, false), (false, true), (true, false), (true, true)] {
                        let look = Look { steps: [begins, decided, given, arrives], found };
                        // The kernel tells itself which attributes are late.
                        let revoked = &revoked[..if arrives == SENT { 2 } else { revoked.len() }];
                        for what in revoked {
                            if is_left(&look, known, what) {
                                wrong.push((look.steps, found, known, what));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them: {wrong:#?}", wrong.len());
}
