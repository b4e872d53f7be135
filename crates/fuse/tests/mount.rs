//! System calls on a mounted file system in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "mount/invalidations.rs"]
mod invalidations;
mod memory;

use client::Invalidation;
use fuse::Mount;
use ident::FileId;
use lease::Label;
use memory::Memory;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A mount in a directory of its own. In this order of fields it is unmounted before the directory
/// goes.
struct Mounted {
    mount: Mount,
    memory: Arc<Memory>,
    base: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Option<Mounted> {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("SKIPPED: this test mounts, and /dev/fuse is not to be had: {error}");
            return None;
        }
        let (memory, base) = (Memory::new(), tempfile::tempdir().unwrap());
        let mount = Mount::start(memory.clone(), &base.path().join("made"), &memory::options()).unwrap();
        Some(Mounted { mount, memory, base })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.mount.dir().join(name)
    }
}

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.map(drop).unwrap_err().raw_os_error().unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Waits until `holds` is true of something in the background.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "hangs: not so for 120 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn files_come_move_and_go() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.at("a"), b"hello").unwrap();
    assert_eq!(fs::read(m.at("a")).unwrap(), b"hello");
    fs::create_dir(m.at("d")).unwrap();
    fs::rename(m.at("a"), m.at("d/b")).unwrap();
    assert_eq!(fs::metadata(m.at("a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_to_string(m.at("d/b")).unwrap(), "hello");
    symlink("d/b", m.at("s")).unwrap();
    assert_eq!(
        (fs::read_link(m.at("s")).unwrap(), fs::read(m.at("s")).unwrap()),
        (PathBuf::from("d/b"), b"hello".to_vec())
    );
    assert_eq!(errno(fs::remove_dir(m.at("d"))), libc::ENOTEMPTY);
    fs::remove_file(m.at("d/b")).unwrap();
    fs::remove_dir(m.at("d")).unwrap();
    assert_eq!(names(m.mount.dir()), ["s"]);
    assert_eq!(errno(fs::write(m.at(&"n".repeat(256)), b"")), libc::ENAMETOOLONG);
    fs::write(m.at(&"n".repeat(255)), b"").unwrap();
}

#[test]
fn renames_replace_or_exchange_or_refuse() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.at("a"), b"a").unwrap();
    fs::write(m.at("b"), b"b").unwrap();
    let rename = |flags| {
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, m.at("a"), here, m.at("b"), flags)
    };
    use rustix::fs::RenameFlags;
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(m.at("a")).unwrap(), fs::read(m.at("b")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(m.at("b")).unwrap(), b"b");
    assert!(!m.at("a").exists());
    // As in an overlay's upper directory.
    fs::write(m.at("a"), b"a").unwrap();
    rename(RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::read(m.at("b")).unwrap(), b"a");
    let left = fs::symlink_metadata(m.at("a")).unwrap();
    assert_eq!((left.mode(), left.rdev()), (libc::S_IFCHR, 0));
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    assert_eq!(rename(both), Err(rustix::io::Errno::INVAL));
}

#[test]
fn a_listing_survives_deletions_while_it_is_read() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.at("many");
    fs::create_dir(&dir).unwrap();
    for n in 0..5000 {
        File::create(dir.join(format!("file {n}"))).unwrap();
    }
    let mut seen = Vec::new();
    for (at, entry) in fs::read_dir(&dir).unwrap().enumerate() {
        let entry = entry.unwrap();
        // The number is that of stat, whichever way the entry was listed.
        assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), fs::metadata(entry.path()).unwrap().ino());
        let n: usize = entry.file_name().to_str().unwrap()[5..].parse().unwrap();
        seen.push(n);
        if at % 2 == 0 {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(seen, (0..5000).collect::<Vec<_>>(), "in order of creation, each once");
    assert_eq!(names(&dir).len(), 2500);
}

/// A renamed entry gets a position behind all others. A listing ends all the same, at the last
/// entry that was there when it began.
#[test]
fn a_listing_ends_though_each_entry_is_renamed_while_it_is_read() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.at("many");
    fs::create_dir(&dir).unwrap();
    for n in 0..3000 {
        File::create(dir.join(n.to_string())).unwrap();
    }
    let mut seen = Vec::new();
    for entry in fs::read_dir(&dir).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::rename(dir.join(&name), dir.join(format!("{name} renamed"))).unwrap();
        assert!(seen.len() < 3000, "{name} comes after all that was there");
        seen.push(name.parse::<usize>().unwrap());
    }
    assert_eq!(seen, (0..3000).collect::<Vec<_>>());
    // A listing that begins anew by the same handle sees new entries.
    let mut handle = rustix::fs::Dir::read_from(File::open(&dir).unwrap()).unwrap();
    let count = |handle: &mut rustix::fs::Dir| handle.by_ref().collect::<Result<Vec<_>, _>>().unwrap().len();
    assert_eq!(count(&mut handle), 3002);
    File::create(dir.join("new")).unwrap();
    handle.rewind();
    assert_eq!(count(&mut handle), 3003);
}

#[test]
fn dots_have_the_right_numbers() {
    let Some(m) = Mounted::new() else { return };
    fs::create_dir_all(m.at("up/down")).unwrap();
    let ino = |name: &str| fs::metadata(m.at(name)).unwrap().ino();
    let dir = rustix::fs::Dir::read_from(File::open(m.at("up/down")).unwrap()).unwrap();
    let lines: Vec<_> =
        dir.map(|line| line.unwrap()).map(|line| (line.file_name().to_owned(), line.ino())).collect();
    assert_eq!(lines, [(c".".to_owned(), ino("up/down")), (c"..".to_owned(), ino("up"))]);
}

#[test]
fn appends_go_to_the_end_whatever_the_kernel_thinks() {
    let Some(m) = Mounted::new() else { return };
    let append = || OpenOptions::new().create(true).append(true).open(m.at("log")).unwrap();
    let mut log = append();
    log.write_all(b"one ").unwrap();
    // Another machine appends, unknown to the kernel.
    m.memory.elsewhere(|tree| {
        let file = tree.find(&FileId::root(), &label("log")).unwrap().file;
        tree.write(&file, 0, b"two ", true).unwrap();
    });
    log.write_all(b"three").unwrap();
    let content = m.memory.elsewhere(|tree| {
        let file = tree.find(&FileId::root(), &label("log")).unwrap().file;
        tree.file(&file).unwrap().content.clone()
    });
    assert_eq!(content, b"one two three");

    let threads: Vec<_> = (0..4)
        .map(|n| {
            let mut log = append();
            std::thread::spawn(move || (0..500).for_each(|_| writeln!(log, "line of {n}").unwrap()))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(fs::metadata(m.at("log")).unwrap().len(), 13 + 4 * 500 * "line of 1\n".len() as u64);
}

/// Trap: the kernel writes through pages that it has not read one at a time, and between two
/// requests another machine appends.
#[test]
fn an_append_is_one_request() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.at("log"), [b'x'; 4000]).unwrap();
    let file = m.memory.elsewhere(|tree| tree.find(&FileId::root(), &label("log")).unwrap().file);
    m.memory.invalidate(&Invalidation::Pages(file));
    let writes = m.memory.count("write");
    let mut log = OpenOptions::new().read(true).append(true).open(m.at("log")).unwrap();
    log.write_all(&[b'y'; 9000]).unwrap();
    assert_eq!(m.memory.count("write") - writes, 1);
    assert_eq!(fs::metadata(m.at("log")).unwrap().len(), 13000);
    let mut last = [0; 5000];
    log.read_exact_at(&mut last, 8000).unwrap();
    assert_eq!(last, [b'y'; 5000]);
}

#[test]
fn what_is_known_is_not_asked_again() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.at("there"), b"").unwrap();
    let (lookups, stats) = (m.memory.count("lookup"), m.memory.count("stat"));
    for _ in 0..100 {
        assert!(!m.at("missing").exists());
        assert!(m.at("there").exists());
    }
    assert!(m.memory.count("lookup") - lookups <= 2, "a missing name is answered by the kernel too");
    assert!(m.memory.count("stat") - stats <= 2);
    fs::write(m.at("missing"), b"").unwrap();
    assert!(m.at("missing").exists());

    let opens = m.memory.count("open");
    for _ in 0..10 {
        assert_eq!(fs::read(m.at("there")).unwrap(), b"");
        File::open(m.at("there")).unwrap();
    }
    assert_eq!(m.memory.count("open") - opens, 20, "the kernel does not hide opens");
}

#[test]
fn hard_links_are_one_file() {
    let Some(m) = Mounted::new() else { return };
    fs::write(m.at("a"), b"x").unwrap();
    fs::hard_link(m.at("a"), m.at("b")).unwrap();
    let (a, b) = (fs::metadata(m.at("a")).unwrap(), fs::metadata(m.at("b")).unwrap());
    assert_eq!((a.ino(), a.nlink(), b.nlink()), (b.ino(), 2, 2));
    fs::remove_file(m.at("a")).unwrap();
    assert_eq!((fs::metadata(m.at("b")).unwrap().nlink(), fs::read(m.at("b")).unwrap()), (1, b"x".to_vec()));
}

#[test]
fn an_unlinked_file_stays_while_it_is_open() {
    let Some(m) = Mounted::new() else { return };
    let options = || OpenOptions::new().read(true).write(true).create(true).to_owned();
    let mut file = options().open(m.at("f")).unwrap();
    fs::remove_file(m.at("f")).unwrap();
    file.write_all(b"still here").unwrap();
    file.set_len(5).unwrap();
    assert_eq!((file.metadata().unwrap().nlink(), file.metadata().unwrap().len()), (0, 5));
    let mut content = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, "still");
    let count = || m.memory.elsewhere(|tree| tree.len());
    assert_eq!(count(), 2);
    drop(file);
    // The kernel sends the release after close has returned.
    eventually("the file goes with its last handle", || count() == 1);
}

/// A file that was found by its name is good for the second request of a call, and as long as a
/// program holds it.
#[test]
fn an_unlinked_file_stays_until_the_kernel_has_forgotten_it() {
    let Some(m) = Mounted::new() else { return };
    let count = || m.memory.elsewhere(|tree| tree.len());
    for replaces in [false, true] {
        fs::write(m.at("f"), "here").unwrap();
        let found = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(m.at("f")).unwrap();
        if replaces {
            fs::write(m.at("g"), "other").unwrap();
            fs::rename(m.at("g"), m.at("f")).unwrap();
        }
        fs::remove_file(m.at("f")).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&found));
        assert_eq!(fs::read_to_string(&path).unwrap(), "here");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let stat = found.metadata().unwrap();
        assert_eq!((stat.nlink(), stat.mode() & 0o777), (0, 0o600));
        // The replacing file is gone as soon as the kernel has sent its release.
        eventually("only that one stays", || count() == 2);
        drop(found);
        eventually("it goes once it is forgotten", || count() == 1);
    }
}

/// Trap: Linux finds a directory that another machine has moved under its old name, and cannot move
/// that while it renames.
#[test]
fn a_directory_that_another_machine_has_moved_can_be_renamed() {
    let Some(m) = Mounted::new() else { return };
    let flags = [
        rustix::fs::RenameFlags::empty(),
        rustix::fs::RenameFlags::NOREPLACE,
        rustix::fs::RenameFlags::EXCHANGE,
    ];
    for (round, flags) in flags.into_iter().enumerate() {
        let at = |name: &str| m.at(&format!("{round}/{name}"));
        for name in ["", "from", "to", "further", "from/x", "from/x/below", "from/y", "further/y"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("from/x/file"), "content").unwrap();
        let inside = File::open(at("from/x")).unwrap();
        let number = fs::metadata(at("from/x")).unwrap().ino();
        let dir = |path: &str| {
            let find = |of: FileId, name: &str| {
                m.memory.elsewhere(|tree| tree.find(&of, &label(name)).unwrap().file)
            };
            path.split('/').fold(FileId::root(), find)
        };
        let (from, to) = (dir(&format!("{round}/from")), dir(&format!("{round}/to")));
        for name in ["x", "y"] {
            let (mode, name) = (namespace::RenameMode::Replace, label(name));
            m.memory.elsewhere(|tree| tree.rename((&from, &name), (&to, &name), mode)).unwrap();
            m.memory.invalidate(&Invalidation::Entry(from.clone(), name.clone()));
            m.memory.invalidate(&Invalidation::Entry(to.clone(), name));
        }
        let rename = |from: &str, to: &str| {
            rustix::fs::renameat_with(rustix::fs::CWD, at(from), rustix::fs::CWD, at(to), flags)
        };
        // The directory is moved; it also is in the way, or is exchanged.
        let exchanges = flags.contains(rustix::fs::RenameFlags::EXCHANGE);
        rename("to/x", if exchanges { "further/y" } else { "further/x" }).unwrap();
        let moved = if exchanges { "further/y" } else { "further/x" };
        assert_eq!(fs::metadata(at(moved)).unwrap().ino(), number);
        assert_eq!(fs::read_to_string(at(moved).join("file")).unwrap(), "content");
        if flags.is_empty() {
            rename("further/y", "to/y").unwrap();
        }
        // A program in the directory stays there.
        fs::write(at(moved).join("new"), "").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&inside));
        let mut within = names(Path::new(&path));
        within.sort();
        assert_eq!(within, ["below", "file", "new"]);
        fs::remove_dir(at(moved).join("below")).unwrap();
        assert!(!Path::new(&path).join("below").exists());
    }
}

#[test]
fn large_requests_and_the_page_cache() {
    let Some(m) = Mounted::new() else { return };
    let content: Vec<u8> = (0..8 << 20).map(|n: u32| (n / 7) as u8).collect();
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(m.at("big")).unwrap();
    file.write_all_at(&content, 0).unwrap();
    assert_eq!(m.memory.count("write"), 8, "1 MiB each");
    file.sync_all().unwrap();
    assert_eq!(m.memory.count("sync"), 1);
    drop(file);
    assert!(fs::read(m.at("big")).unwrap() == content);
    let reads = m.memory.count("read");
    assert!(fs::read(m.at("big")).unwrap() == content);
    assert_eq!(m.memory.count("read"), reads, "pages are kept over opens");
    // O_TRUNC is one request.
    let attributes = m.memory.count("set attributes");
    fs::write(m.at("big"), b"short").unwrap();
    assert_eq!(
        (m.memory.count("set attributes") - attributes, fs::read(m.at("big")).unwrap()),
        (1, b"short".to_vec())
    );
}

#[test]
fn synchronous_writes_are_synced() {
    let Some(m) = Mounted::new() else { return };
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .custom_flags(libc::O_SYNC)
        .open(m.at("f"))
        .unwrap();
    file.write_all(b"1").unwrap();
    file.write_all(b"2").unwrap();
    assert_eq!(m.memory.count("sync"), 2);
    File::open(m.mount.dir()).unwrap().sync_all().unwrap();
    assert_eq!(m.memory.count("sync all"), 1, "fsync of the root is for everything");
}

#[test]
fn times_modes_and_space() {
    let Some(m) = Mounted::new() else { return };
    let file = File::create(m.at("f")).unwrap();
    let before_epoch = UNIX_EPOCH - Duration::new(1, 200_000_000);
    let later = UNIX_EPOCH + Duration::new(5_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_accessed(before_epoch).set_modified(later)).unwrap();
    let stat = fs::metadata(m.at("f")).unwrap();
    assert_eq!((stat.accessed().unwrap(), stat.modified().unwrap()), (before_epoch, later));
    rustix::fs::utimensat(rustix::fs::CWD, m.at("f"), &now_times(), rustix::fs::AtFlags::empty()).unwrap();
    let modified = fs::metadata(m.at("f")).unwrap().modified().unwrap();
    assert!(modified.duration_since(SystemTime::now() - Duration::from_secs(60)).is_ok());
    fs::set_permissions(m.at("f"), fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(m.at("f")).unwrap().mode() & 0o7777, 0o4751);
    let space = rustix::fs::statvfs(m.mount.dir()).unwrap();
    assert_eq!((space.f_blocks * space.f_frsize, space.f_namemax), (1 << 40, 255));
}

fn now_times() -> rustix::fs::Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now, last_modification: now }
}

#[test]
fn extended_attributes() {
    let Some(m) = Mounted::new() else { return };
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    fs::write(m.at("f"), b"").unwrap();
    let f = m.at("f");
    setxattr(&f, "user.one", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(setxattr(&f, "user.one", b"2", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
    assert_eq!(setxattr(&f, "user.two", b"2", XattrFlags::REPLACE), Err(rustix::io::Errno::NODATA));
    let mut value = [0; 100];
    assert_eq!(getxattr(&f, "user.one", &mut value), Ok(1));
    assert_eq!(getxattr(&f, "user.two", &mut value), Err(rustix::io::Errno::NODATA));
    setxattr(&f, "user.two", &[7; 90], XattrFlags::empty()).unwrap();
    assert_eq!(getxattr(&f, "user.two", &mut value[..50]), Err(rustix::io::Errno::RANGE));
    let size = listxattr(&f, &mut value).unwrap();
    assert_eq!(&value[..size], b"user.one\0user.two\0");
    removexattr(&f, "user.one").unwrap();
    assert_eq!(removexattr(&f, "user.one"), Err(rustix::io::Errno::NODATA));
}

#[test]
fn holes_are_made_and_found() {
    let Some(m) = Mounted::new() else { return };
    use rustix::fs::{FallocateFlags, fallocate, seek};
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(m.at("f")).unwrap();
    file.write_all_at(&[1; 1000], 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100, 200).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 2000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2000);
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(100));
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(100)), Ok(300));
    assert_eq!(seek(&file, rustix::fs::SeekFrom::Data(1500)), Err(rustix::io::Errno::NXIO));
    let mut copy = File::create(m.at("copy")).unwrap();
    assert_eq!(
        io::copy(&mut File::open(m.at("f")).unwrap(), &mut copy).unwrap(),
        2000,
        "copy_file_range falls back"
    );
}

/// Runs a program that maps a file of 1 MiB at `name`, writes to the mapping, and then runs `does`.
fn mapping(m: &Mounted, name: &str, does: &str) {
    let program = format!(
        "import mmap, os, sys
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644); os.ftruncate(fd, 1 << 20); m = mmap.mmap(fd, 1 << 20)
m[512 << 10:(512 << 10) + 9] = b'important'
{does}"
    );
    let ran = std::process::Command::new("python3").args(["-c", &program]).arg(m.at(name)).output().unwrap();
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// The kernel tells us of changed pages when it likes, and holes, blocks and times are asked for
/// before.
#[test]
fn what_is_written_to_a_mapping_is_no_hole() {
    let Some(m) = Mounted::new() else { return };
    if std::process::Command::new("python3").arg("-c").output().is_err() {
        return eprintln!("SKIPPED: this test maps files with python3, which is not here");
    }
    mapping(&m, "data", "assert os.lseek(fd, 0, os.SEEK_DATA) == 512 << 10");
    mapping(&m, "hole", "assert os.lseek(fd, 512 << 10, os.SEEK_HOLE) == (512 << 10) + 9");
    // The same in the middle of a hole.
    mapping(&m, "middle", "assert os.lseek(fd, 5000, os.SEEK_HOLE) == 5000");
    // The same once more, after the kernel has dropped its pages.
    mapping(
        &m,
        "twice",
        "assert os.lseek(fd, 0, os.SEEK_DATA) == 512 << 10; m[0] = 1; assert os.lseek(fd, 0, os.SEEK_DATA) == 0",
    );
    mapping(&m, "blocks", "assert os.stat(path).st_blocks > 0");
    mapping(
        &m,
        "again",
        "assert os.stat(path).st_blocks > 0; m[0:4096] = b'x' * 4096; assert os.stat(path).st_blocks >= 8",
    );
    mapping(
        &m,
        "times",
        "os.utime(path, (5, 6)); m.close(); os.close(fd); assert os.stat(path).st_mtime == 6, os.stat(path)",
    );
    // A file from before the open, of which the kernel had been told.
    File::create(m.at("known")).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(fs::metadata(m.at("known")).unwrap().blocks(), 0);
    mapping(&m, "known", "assert os.stat(path).st_blocks > 0");
}

/// Runs a script as `nobody`, with group 4242 in addition.
fn as_nobody(script: &str, dir: &Path) -> std::process::Output {
    let privileges = ["--reuid=65534", "--regid=65534", "--groups=4242"];
    std::process::Command::new("setpriv")
        .args(privileges)
        .args(["sh", "-c", script])
        .current_dir(dir)
        .output()
        .unwrap()
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: this test changes users, which takes root");
    }
    root
}

#[test]
fn supplementary_groups_count_after_a_refusal() {
    let Some(m) = Mounted::new() else { return };
    if !is_root() {
        return;
    }
    fs::set_permissions(m.base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(m.at("shared"), b"for the group\n").unwrap();
    std::os::unix::fs::chown(m.at("shared"), Some(0), Some(4242)).unwrap();
    fs::set_permissions(m.at("shared"), fs::Permissions::from_mode(0o640)).unwrap();
    let opens = m.memory.count("open");
    let output = as_nobody("cat shared", m.mount.dir());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "for the group\n", "{output:?}");
    assert_eq!(m.memory.count("open") - opens, 2, "refused, then asked again with groups");
}

#[test]
fn a_write_by_another_user_clears_set_id_bits() {
    let Some(m) = Mounted::new() else { return };
    if !is_root() {
        return;
    }
    fs::set_permissions(m.base.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mode = |name: &str| fs::metadata(m.at(name)).unwrap().mode() & 0o7777;
    for (name, change) in
        [("written", "echo x >> written"), ("cut", "truncate -s 1 cut"), ("opened", ": > opened")]
    {
        fs::write(m.at(name), b"content").unwrap();
        fs::set_permissions(m.at(name), fs::Permissions::from_mode(0o6777)).unwrap();
        assert!(OpenOptions::new().append(true).open(m.at(name)).unwrap().write(b"by root").is_ok());
        assert_eq!(mode(name), 0o6777, "root's write does not");
        let output = as_nobody(change, m.mount.dir());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(mode(name), 0o777, "{name}");
    }
}

#[test]
fn unmounts_when_dropped_and_in_use() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.mount.dir().to_owned();
    fs::write(dir.join("f"), b"x").unwrap();
    let second = Mount::start(Memory::new(), &dir, &memory::options());
    assert!(matches!(second, Err(fuse::MountError::Taken { .. })));
    let held = File::open(dir.join("f")).unwrap();
    m.mount.unmount().unwrap();
    assert!(!dir.join("f").exists(), "out of the tree");
    let mut byte = [0];
    assert_eq!(held.read_at(&mut byte, 0).unwrap(), 1, "but served");
    drop(held);
    m.mount.wait().unwrap();
    drop(m.mount);

    // Another process unmounts it.
    let again = Mount::start(Memory::new(), &dir, &memory::options()).unwrap();
    rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::empty()).unwrap();
    again.wait().unwrap();
}

/// The path of a test of this module, which may be included in another test: see `memory::options`.
fn named(name: &str) -> String {
    module_path!().split_once("::").map_or(name.to_owned(), |(_, module)| format!("{module}::{name}"))
}

/// Runs one of the tests below in a process of its own.
fn child(name: &str, dir: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", &named(name)]).env("FUSE_TEST_DIR", dir);
    command
}

/// Mounts, reports that, and waits to be killed.
#[test]
#[ignore = "run by other tests, in a process of its own"]
fn mounts_and_waits() {
    let dir = std::env::var("FUSE_TEST_DIR").unwrap();
    let mount = Mount::start(Memory::new(), Path::new(&dir), &memory::options()).unwrap();
    fs::write(mount.dir().join("file"), b"written").unwrap();
    assert_eq!(fs::read(mount.dir().join("file")).unwrap(), b"written");
    println!("mounted on {dir}");
    if std::env::var_os("FUSE_TEST_END").is_none() {
        mount.wait().unwrap();
    }
}

#[test]
fn mounts_over_what_a_killed_process_has_left() {
    let Some(m) = Mounted::new() else { return };
    let dir = m.base.path().join("dead");
    let said = m.base.path().join("said");
    let out = File::create(&said).unwrap();
    let mut mounted = child("mounts_and_waits", &dir).stdout(out).spawn().unwrap();
    // Trap: a process that is killed while it closes a file of its own mount waits for itself for
    // ever.
    eventually("it says that it is mounted", || fs::read_to_string(&said).unwrap().contains("mounted on"));
    assert_eq!(fs::read(dir.join("file")).unwrap(), b"written");
    mounted.kill().unwrap();
    mounted.wait().unwrap();
    let gone = errno(fs::write(dir.join("new"), b""));
    assert!([libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED].contains(&gone), "{gone}");
    let mount = Mount::start(Memory::new(), &dir, &memory::options()).unwrap();
    fs::write(dir.join("new"), b"life").unwrap();
    drop(mount);
    assert_eq!(names(&dir), Vec::<String>::new(), "both mounts are gone");
}

/// fusermount3 mounts for users. On most systems they may open /dev/fuse; here that is arranged for
/// this process only.
#[test]
fn a_user_mounts_with_fusermount() {
    let Some(m) = Mounted::new() else { return };
    if !is_root() {
        return;
    }
    let base = m.base.path();
    fs::set_permissions(base, fs::Permissions::from_mode(0o755)).unwrap();
    let dir = base.join("theirs");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
    // A place where `nobody` can run it.
    let program = base.join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let script = "mknod dev c 10 229 && chmod 666 dev && mount --bind dev /dev/fuse && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups ./test --exact --ignored --nocapture $0";
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, &named("mounts_and_waits")])
        .current_dir(base)
        .env("FUSE_TEST_DIR", &dir)
        .env("FUSE_TEST_END", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("mounted on"), "{output:?}");
}
