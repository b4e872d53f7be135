//! fcntl and flock on a mounted file system, and programs that no longer wait.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod memory;

use fuse::Mount;
use ident::FileId;
use memory::Memory;
use namespace::{LockKind, LockRange, LockSpace};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Mounted {
    mount: Mount,
    memory: Arc<Memory>,
    _base: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Option<Mounted> {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("SKIPPED: this test mounts, and /dev/fuse is not to be had: {error}");
            return None;
        }
        let (memory, base) = (Memory::new(), tempfile::tempdir().unwrap());
        let mount = Mount::start(memory.clone(), &base.path().join("made"), &memory::options()).unwrap();
        Some(Mounted { mount, memory, _base: base })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount.dir().join(name)
    }

    /// A file, open to read and write, and its identifier.
    fn file(&self) -> (File, FileId) {
        fs::write(self.at("a"), b"hello").unwrap();
        let file = self.open();
        let ino = file.metadata().unwrap().ino();
        (file, FileId::root().child(ino))
    }

    fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.at("a")).unwrap()
    }

    fn here(&self) -> Vec<(LockSpace, LockRange, LockKind)> {
        self.memory.locking(|locking| locking.here())
    }

    fn elsewhere(&self, file: &FileId, space: LockSpace, kind: Option<LockKind>) {
        self.memory.locking(|locking| locking.elsewhere(file, space, kind));
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "hangs: not so for 120 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const WHOLE: LockRange = LockRange::WHOLE;

#[test]
fn the_two_sorts_of_locks_do_not_meet() {
    let Some(m) = Mounted::new() else { return };
    let (file, _) = m.file();
    for _ in 0..20 {
        file.lock().unwrap();
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        let both = [LockSpace::Posix, LockSpace::Flock].map(|space| (space, WHOLE, LockKind::Write));
        assert_eq!(m.here(), both);
        file.unlock().unwrap();
        assert_eq!(m.here(), both[..1]);
        file.lock_shared().unwrap();
        assert_eq!(m.here(), [both[0], (LockSpace::Flock, WHOLE, LockKind::Read)]);
        fcntl_lock(&file, FlockOperation::Unlock).unwrap();
        assert_eq!(m.here(), [(LockSpace::Flock, WHOLE, LockKind::Read)]);
    }
}

#[test]
fn what_another_machine_has_locked_is_in_the_way_and_then_not() {
    let Some(m) = Mounted::new() else { return };
    let (file, id) = m.file();
    m.elsewhere(&id, LockSpace::Flock, Some(LockKind::Write));
    m.elsewhere(&id, LockSpace::Posix, Some(LockKind::Read));
    assert!(matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)));
    let refused = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::AGAIN));
    fcntl_lock(&file, FlockOperation::NonBlockingLockShared).unwrap();
    let waits = {
        let file = file.try_clone().unwrap();
        std::thread::spawn(move || file.lock())
    };
    eventually("it waits", || m.memory.locking(|locking| locking.waiting()) == 1);
    // Longer than the time after which the thread is looked at.
    std::thread::sleep(Duration::from_millis(350));
    assert!(!waits.is_finished());
    m.elsewhere(&id, LockSpace::Flock, None);
    waits.join().unwrap().unwrap();
}

/// POSIX: "all locks associated with a file for a given process shall be removed when a file
/// descriptor for that file is closed by that process".
#[test]
fn any_close_costs_a_process_its_fcntl_locks_and_the_last_one_an_open_file_its_own() {
    let Some(m) = Mounted::new() else { return };
    let (file, _) = m.file();
    let other = m.open();
    fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    file.lock().unwrap();
    assert_eq!(m.here().len(), 2);
    drop(other);
    assert_eq!(m.here(), [(LockSpace::Flock, WHOLE, LockKind::Write)]);
    let same = file.try_clone().unwrap();
    drop(file);
    assert_eq!(m.here().len(), 1, "it is open still");
    drop(same);
    eventually("the last descriptor is closed", || m.here().is_empty());
    // If nothing was locked, closing makes no call.
    let before = m.memory.count("lock");
    for _ in 0..10 {
        drop(m.open());
    }
    assert_eq!(m.memory.count("lock"), before);
}

/// Runs a program of util-linux, or of the shell.
fn start(program: &str, args: &[&std::ffi::OsStr]) -> Child {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn ends_soon(mut child: Child) {
    eventually("it ends", || child.try_wait().unwrap().is_some());
}

/// Trap: over io_uring the kernel has a limited number of slots for requests, and a waiting request
/// keeps its slot.
#[test]
fn however_many_wait_others_do_not() {
    let Some(m) = Mounted::new() else { return };
    let (file, id) = m.file();
    m.elsewhere(&id, LockSpace::Flock, Some(LockKind::Write));
    std::thread::scope(|scope| {
        for _ in 0..200 {
            let file = m.open();
            scope.spawn(move || file.lock_shared().unwrap());
        }
        eventually("all wait", || m.memory.locking(|locking| locking.waiting()) == 200);
        for n in 0..200 {
            let name = m.at(&format!("{n}"));
            scope.spawn(move || {
                fs::write(&name, b"not kept from it").unwrap();
                assert_eq!(fs::read(&name).unwrap(), b"not kept from it");
            });
        }
        eventually("others do not", || fs::read_dir(m.mount.dir()).unwrap().count() == 201);
        m.elsewhere(&id, LockSpace::Flock, None);
    });
    drop(file);
    eventually("all closed", || m.here().is_empty());
}

#[test]
fn who_waits_for_a_lock_can_be_interrupted() {
    let Some(m) = Mounted::new() else { return };
    let (_file, id) = m.file();
    m.elsewhere(&id, LockSpace::Flock, Some(LockKind::Write));
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        // A shell without a terminal starts what runs in its background with SIGINT ignored.
        let default = "--default-signal=INT".as_ref();
        let child = start("env", &[default, "flock".as_ref(), m.at("a").as_os_str(), "true".as_ref()]);
        eventually("it waits", || m.memory.locking(|locking| locking.waiting()) == 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        ends_soon(child);
        eventually("nobody waits", || m.memory.locking(|locking| locking.waiting()) == 0);
    }
    m.elsewhere(&id, LockSpace::Flock, None);
    let mut child = start("flock", &[m.at("a").as_os_str(), "true".as_ref()]);
    assert!(child.wait().unwrap().success());
    eventually("it is closed", || m.here().is_empty());
}

/// A program that waits for a machine without an answer can always be killed.
#[test]
fn who_waits_for_anything_can_be_killed_and_not_interrupted() {
    let Some(m) = Mounted::new() else { return };
    let (_file, _) = m.file();
    m.memory.delay("read", Duration::from_secs(600));
    let script = format!("trap : USR1; read line < {}", m.at("a").display());
    let mut child = start("sh", &["-c".as_ref(), script.as_ref()]);
    eventually("it reads", || m.memory.count("read") == 1);
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    ends_soon(child);
}
