//! Backups of a running machine, and their restores.

mod extracting;

use crate::backup_source::back_up as run;
use crate::fsck;
use crate::salvage::SalvageStore;
use crate::{Listen, Machine, MachineError, MachineSettings};
use admin::{FsckFault, Invitation};
use backup::{Archive, BackupError, BackupOrder, BackupReport, Restoring, list, restore};
use client::call;
use data_dir::DataError;
use file_service::{FileCall, LookupReply, Observed};
use ident::FileId;
use lease::{Label, OpenModes};
use namespace::{Cred, Error, FileKind, FileSpec};
use net::join;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// More bytes than a sync sends with the log, so they go into shares.
const BYTES: usize = 300_000;

pub(crate) fn start(dir: &Path) -> Machine {
    Machine::start(dir, "a test", MachineSettings::default()).unwrap()
}

/// Makes a call, and waits for its reply.
pub(crate) fn ask<C: FileCall>(machine: &Machine, call: C) -> Result<C::Reply, Error> {
    let (tell, told) = channel();
    machine.file_service().ask(&Cred::default(), call, move |result| tell.send(result).unwrap_or_default());
    told.recv().unwrap()
}

fn create(machine: &Machine, create: call::Create) -> Result<FileId, Error> {
    Ok(ask(machine, create)?.value.0.file)
}

fn find(machine: &Machine, dir: FileId, label: Label) -> Result<FileId, Error> {
    match ask(machine, call::Lookup { dir, label })? {
        LookupReply::Leased(Observed { value: (entry, _), .. }) | LookupReply::Glimpsed(Some((entry, _))) => {
            Ok(entry.file)
        }
        LookupReply::Glimpsed(None) => Err(Error::NotFound),
    }
}

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

/// Content of this file alone. A small file's content is a piece of a share.
pub(crate) fn content(name: &str) -> Vec<u8> {
    let mut bytes = vec![0; if name.starts_with("small") { 20_000 } else { BYTES }];
    crypto::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Makes a file, durably.
pub(crate) fn write(machine: &Machine, name: &str) -> Result<(), Error> {
    let dir = machine.file_service().root();
    let open = OpenModes::posix(true, true);
    let call = call::Create {
        dir,
        label: label(name),
        spec: FileSpec::new(FileKind::Regular, 0o644, 0),
        open: Some(open),
    };
    let file = create(machine, call)?;
    let data = content(name).into();
    ask(machine, call::Write { file: file.clone(), offset: 0, data, append: false })?;
    ask(machine, call::Sync { file: file.clone() })?;
    ask(machine, call::Close { file, open }).map(drop)
}

pub(crate) fn read(machine: &Machine, name: &str) -> Result<Vec<u8>, Error> {
    let file = find(machine, machine.file_service().root(), label(name))?;
    let open = OpenModes::posix(true, false);
    ask(machine, call::OpenFile { file: file.clone(), open, mask: 4 })?;
    let read = ask(
        machine,
        call::Read { file: file.clone(), offset: 0, length: 1 << 20, kept: false, quietly: false },
    )?;
    ask(machine, call::Close { file, open })?;
    Ok(read.concat())
}

fn remove(machine: &Machine, name: &str) {
    let dir = machine.file_service().root();
    ask(machine, call::Unlink { dir, label: label(name), directory: false, pending: None }).unwrap();
}

fn is_clean(machine: &Machine) {
    let report = fsck::run(&machine.server().unwrap(), &mut |_| {});
    assert!(report.faults.is_empty(), "{report:?}");
}

/// A machine, and a place for its backups.
struct Site {
    machine: Machine,
    data: TempDir,
    kept: TempDir,
}

impl Site {
    fn new() -> Site {
        let (data, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Site { machine: start(data.path()), data, kept }
    }

    fn backups(&self) -> PathBuf {
        self.kept.path().join("backups-of-it")
    }

    fn back_up(&self, keep: Option<usize>) -> BackupReport {
        let order = BackupOrder { dir: self.backups(), keep };
        let report = run(self.machine.membership(), &order, &mut |_| {}).unwrap();
        assert!(report.faults.is_empty(), "{report:?}");
        report
    }

    fn restoring(&self, name: Option<&str>, data: &Path) -> Restoring {
        let name = name.map(str::to_owned);
        Restoring { dir: self.backups(), name, data: data.to_path_buf(), content: None, incomplete: false }
    }

    /// Restores a backup and starts the restored machine.
    fn restored(&self, name: Option<&str>) -> (Machine, TempDir) {
        let dir = tempfile::tempdir().unwrap();
        restore(&self.restoring(name, dir.path()), &mut |_| {}).unwrap();
        let machine = start(dir.path());
        is_clean(&machine);
        (machine, dir)
    }

    /// The files of all copies of shares.
    fn copies(&self) -> Vec<PathBuf> {
        let shelves = fs::read_dir(self.backups().join("shares")).unwrap();
        let shelves = shelves.flat_map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap());
        shelves.map(|copy| copy.unwrap().path()).collect()
    }
}

#[test]
fn a_backup_has_what_was_there_when_it_began_while_writing_goes_on() {
    let site = Site::new();
    (0..5).for_each(|n| write(&site.machine, &format!("before-{n}")).unwrap());
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (certain, first) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                write(&site.machine, &format!("during-{n}")).unwrap();
                written.store(n + 1, SeqCst);
                // Shares to which the backup refers are released while it is made.
                if n % 3 == 2 {
                    remove(&site.machine, &format!("during-{}", n - 1));
                }
                if stop.load(SeqCst) {
                    return;
                }
            }
        });
        while written.load(SeqCst) < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let first = site.back_up(None);
        let certain = written.load(SeqCst);
        for _ in 0..3 {
            site.back_up(None);
        }
        stop.store(true, SeqCst);
        (certain.min(3), first)
    });
    assert!(first.shares >= 5 && first.new_shares == first.shares && first.files >= 6);
    let (restored, _dir) = site.restored(Some(&first.name));
    for name in (0..5).map(|n| format!("before-{n}")).chain([format!("during-{}", certain - 3)]) {
        assert!(read(&restored, &name) == Ok(content(&name)), "{name}");
    }
    // The restored file system works like any other.
    write(&restored, "after").unwrap();
    assert!(read(&restored, "after") == Ok(content("after")));
    restored.stop().unwrap();
    for name in list(&site.backups()).unwrap() {
        drop(site.restored(Some(&name)));
    }
    is_clean(&site.machine);
}

#[test]
fn the_next_backup_copies_what_is_new_only_and_what_no_backup_needs_is_removed() {
    let site = Site::new();
    ["a", "b"].iter().for_each(|name| write(&site.machine, name).unwrap());
    let first = site.back_up(None);
    assert_eq!((first.new_shares, first.new_bytes), (first.shares, first.bytes));
    let same = site.back_up(None);
    assert_eq!((same.shares, same.bytes, same.new_shares), (first.shares, first.bytes, 0));
    assert!(same.name > first.name);
    write(&site.machine, "c").unwrap();
    let more = site.back_up(None);
    assert_eq!(more.new_shares, more.shares - first.shares);
    assert!(more.new_shares > 0 && more.new_bytes < first.bytes);
    // One backup has been renamed by its users, and stays.
    fs::rename(site.backups().join("backups").join(&same.name), site.backups().join("backups/mine")).unwrap();
    ["a", "c"].iter().for_each(|name| remove(&site.machine, name));
    let last = site.back_up(Some(1));
    assert_eq!(last.removed, 2);
    assert_eq!(last.removed_shares, more.new_shares);
    assert_eq!(list(&site.backups()).unwrap(), [last.name.as_str(), "mine"]);
    assert_eq!(site.copies().len() as u64, first.shares);
    let (restored, _dir) = site.restored(None);
    assert!(read(&restored, "b") == Ok(content("b")));
    assert_eq!(read(&restored, "a"), Err(Error::NotFound));
    let (restored, _dir) = site.restored(Some("mine"));
    assert!(read(&restored, "a") == Ok(content("a")));
    assert!(matches!(
        restore(&site.restoring(Some(&first.name), site.kept.path()), &mut |_| {}),
        Err(BackupError::NoBackup { .. })
    ));
}

#[test]
fn nothing_is_let_go_while_a_backup_holds_it() {
    let site = Site::new();
    write(&site.machine, "a").unwrap();
    let server = site.machine.server().unwrap();
    let stored = || server.shares().server().stored().unwrap().shares;
    let hold = server.share_host().hold();
    let before = stored();
    assert!(before > 0);
    remove(&site.machine, "a");
    ask(&site.machine, call::SyncAll).unwrap();
    // Later changes are settled as usual.
    write(&site.machine, "b").unwrap();
    is_clean_but_for_what_is_held(&site.machine);
    std::thread::sleep(Duration::from_millis(300));
    assert!(stored() > before);
    drop(hold);
    let begun = Instant::now();
    while stored() > before {
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "hangs: {} shares are stored, {before} before",
            stored()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    is_clean(&site.machine);
}

fn is_clean_but_for_what_is_held(machine: &Machine) {
    let report = fsck::run(&machine.server().unwrap(), &mut |_| {});
    assert!(report.faults.iter().all(|fault| matches!(fault, FsckFault::Unreferenced { .. })), "{report:?}");
}

/// Runs with the S3 server of the environment, in the bucket `leasehold-test`.
mod on_foreign_s3 {
    use super::*;

    #[test]
    #[ignore = "needs an S3 server: tests/s3"]
    fn what_is_restored_is_kept_where_it_is_said() {
        let site = Site::new();
        ["a", "b"].iter().for_each(|name| write(&site.machine, name).unwrap());
        site.back_up(None);
        let dir = tempfile::tempdir().unwrap();
        let place = format!("s3://leasehold-test/restored-{}", std::process::id());
        let order = Restoring { content: Some(place.parse().unwrap()), ..site.restoring(None, dir.path()) };
        // The restore is interrupted with some content stored. The next run recognizes it as its
        // own.
        let gone = &site.copies()[1];
        let saved = fs::read(gone).unwrap();
        fs::remove_file(gone).unwrap();
        let refused = restore(&order, &mut |_| {}).unwrap_err();
        assert!(matches!(refused, BackupError::Incomplete { count: 1, .. }), "{refused}");
        fs::write(gone, saved).unwrap();
        restore(&order, &mut |_| {}).unwrap();
        assert!(!dir.path().join("shares/shares").exists(), "content is on this disk");
        let machine = start(dir.path());
        is_clean(&machine);
        for name in ["a", "b"] {
            assert!(read(&machine, name) == Ok(content(name)));
        }
        machine.stop().unwrap();
        // No other store may claim it.
        let other = tempfile::tempdir().unwrap();
        let order = Restoring { data: other.path().to_path_buf(), ..order };
        assert!(matches!(restore(&order, &mut |_| {}), Err(BackupError::Shares(_))));
    }
}

#[test]
fn what_is_not_whole_is_not_restored_and_does_not_start() {
    let site = Site::new();
    ["a", "b"].iter().for_each(|name| write(&site.machine, name).unwrap());
    let report = site.back_up(None);
    let dir = tempfile::tempdir().unwrap();
    // One share is missing, and one is damaged.
    let copies = site.copies();
    let (gone, rotten) = (&copies[0], &copies[1]);
    let saved = (fs::read(gone).unwrap(), fs::read(rotten).unwrap());
    fs::remove_file(gone).unwrap();
    let mut bytes = saved.1.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(rotten, &bytes).unwrap();
    let order = site.restoring(None, dir.path());
    let refused = restore(&order, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Incomplete { count: 2, .. }), "{refused}");
    let refused = Machine::start(dir.path(), "a test", MachineSettings::default()).err().unwrap();
    assert!(matches!(refused, MachineError::Data(DataError::Restoring { .. })), "{refused}");
    // With `incomplete` the available content is restored. The file system knows which content is
    // missing.
    let lost = restore(&Restoring { incomplete: true, ..order.clone() }, &mut |_| {}).unwrap().lost;
    assert_eq!(lost.len(), 2);
    let machine = start(dir.path());
    assert_eq!(fsck::run(&machine.server().unwrap(), &mut |_| {}).faults.len(), 2);
    drop(machine);
    // A missing share is copied anew. The length does not reveal a rotten one.
    assert_eq!(site.back_up(None).new_shares, 1);
    fs::write(rotten, saved.1).unwrap();
    let refused = restore(&order, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Data(DataError::Joined { .. })), "{refused}");
    // The restore is interrupted and run again.
    let other = tempfile::tempdir().unwrap();
    let file = site.backups().join("backups").join(&report.name);
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 50]).unwrap();
    let order = site.restoring(Some(&report.name), other.path());
    let refused = restore(&order, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Damaged { .. }), "{refused}");
    assert!(Machine::start(other.path(), "a test", MachineSettings::default()).is_err());
    fs::write(&file, &whole).unwrap();
    restore(&order, &mut |_| {}).unwrap();
    let machine = start(other.path());
    is_clean(&machine);
    assert!(read(&machine, "a") == Ok(content("a")));
    // A newer format is refused by name.
    let mut newer = whole.clone();
    newer[8] = 77;
    fs::write(&file, &newer).unwrap();
    let order = site.restoring(Some(&report.name), &other.path().join("new"));
    let refused = restore(&order, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Newer { found: 77, .. }), "{refused}");
}

#[test]
fn a_directory_is_for_the_backups_of_one_cluster_and_one_at_a_time() {
    let site = Site::new();
    site.back_up(None);
    let other = Site::new();
    let order = |dir: &Path| BackupOrder { dir: dir.to_path_buf(), keep: None };
    let refused = run(other.machine.membership(), &order(&site.backups()), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::OtherCluster { .. }), "{refused}");
    let foreign = tempfile::tempdir().unwrap();
    fs::write(foreign.path().join("thesis.tex"), "...").unwrap();
    let refused = run(other.machine.membership(), &order(foreign.path()), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Foreign { .. }), "{refused}");
    let held = Archive::open_to_read(&site.backups()).unwrap();
    let refused = run(site.machine.membership(), &order(&site.backups()), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, BackupError::Busy { .. }), "{refused}");
    drop(held);
    // A list and a backup under way do not wait for each other.
    let (_, authority) = site.machine.server().unwrap().latest_authority().unwrap();
    let made = Archive::open_to_write(&site.backups(), &authority.cluster).unwrap();
    assert_eq!(list(&site.backups()).unwrap().len(), 1);
    drop(made);
    // The cluster's own authority remains after the restore.
    let (restored, _dir) = site.restored(None);
    let report = run(restored.membership(), &order(&site.backups()), &mut |_| {}).unwrap();
    assert_eq!(report.new_shares, 0);
    drop(site.data);
}

#[test]
fn machines_go_on_with_a_restored_server() {
    let data = tempfile::tempdir().unwrap();
    let on = |host: &str, at: std::net::SocketAddr| MachineSettings {
        name: host.to_owned(),
        listen: Listen::At(at),
        ..Default::default()
    };
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let server = Machine::start(data.path(), "a test", on("first", anywhere)).unwrap();
    let at = server.listens().unwrap();
    let joined = {
        let invitation = Invitation {
            path: "/".into(),
            read_only: false,
            squash: None,
            good_for_s: 60,
            addresses: vec![at.to_string()],
        };
        let token = admin::invite(data.path(), invitation).unwrap().token.parse().unwrap();
        let dir = tempfile::tempdir().unwrap();
        join(dir.path(), &token, "second").unwrap();
        dir
    };
    // The place for its content, should it become a server. Nothing contacts this store before.
    let settings = MachineSettings {
        shares: crate::ShareSettings { content: Some("s3://somewhere/hall".parse().unwrap()), expiry: None },
        ..Default::default()
    };
    Machine::start(joined.path(), "a test", settings).unwrap().stop().unwrap();
    let said = fs::read_to_string(joined.path().join("shares/content")).unwrap();
    assert!(said.starts_with("s3://somewhere/hall\n") && said.ends_with("wanted\n"), "{said}");
    let client = start(joined.path());
    write(&client, "small-before").unwrap();
    let kept = tempfile::tempdir().unwrap();
    let order = BackupOrder { dir: kept.path().to_path_buf(), keep: None };
    let report = run(server.membership(), &order, &mut |_| {}).unwrap();
    write(&client, "small-after").unwrap();
    server.stop().unwrap();
    drop(data);
    let dir = tempfile::tempdir().unwrap();
    let order = Restoring {
        dir: kept.path().to_path_buf(),
        name: None,
        data: dir.path().to_path_buf(),
        content: None,
        incomplete: false,
    };
    assert_eq!(restore(&order, &mut |_| {}).unwrap().name, report.name);
    let restored = Machine::start(dir.path(), "a test", on("spare", at)).unwrap();
    // It has the first machine's place, and so its name.
    let servers = restored.server().unwrap().server_standings();
    assert_eq!((restored.name().as_str(), servers[0].name.as_str()), ("first", "first"));
    // The client's session is over; it goes on with a new one.
    let begun = Instant::now();
    while write(&client, "small-again").is_err() {
        assert!(begun.elapsed() < Duration::from_secs(300), "hangs: the client gets no new session");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(read(&client, "small-before") == Ok(content("small-before")));
    assert_eq!(read(&client, "small-after"), Err(Error::NotFound));
    assert!(read(&restored, "small-again") == Ok(content("small-again")));
    is_clean(&restored);
    // Only the operations that it tried before it knew of that are salvaged.
    let salvaged = SalvageStore::open(joined.path()).unwrap().list().unwrap();
    let items: Vec<_> = salvaged.iter().flat_map(|one| &one.items).collect();
    assert!(items.iter().all(|item| item.path.contains("again")), "{items:?}");
    client.stop().unwrap();
    restored.stop().unwrap();
}
