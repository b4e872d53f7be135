//! Several servers of the directory on one machine.

use super::backups::{self, content, start};
use crate::{Machine, fsck};
use admin::{ControlRefusal, MapReport, RequestWork};
use backup::{BackupError, BackupOrder};
use client::call;
use directory::Input;
use ident::{FileId, ServerId};
use lease::{Label, OpenModes};
use namespace::{Error, FileKind, FileSpec, RenameMode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use wire::{MachineId, Rights, ToClient};

pub(crate) fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

pub(crate) fn make(machine: &Machine, dir: &FileId, name: &str, kind: FileKind) -> FileId {
    let spec = FileSpec::new(kind, 0o755, 0);
    let create = call::Create { dir: dir.clone(), label: label(name), spec, open: None };
    backups::ask(machine, create).unwrap().value.0.file
}

/// Makes a file with the content of that name, durably.
fn write(machine: &Machine, dir: &FileId, name: &str) -> FileId {
    let file = make(machine, dir, name, FileKind::Regular);
    let open = OpenModes::posix(true, true);
    backups::ask(machine, call::OpenFile { file: file.clone(), open, mask: 6 }).unwrap();
    let write = call::Write { file: file.clone(), offset: 0, data: content(name).into(), append: false };
    backups::ask(machine, write).unwrap();
    backups::ask(machine, call::Sync { file: file.clone() }).unwrap();
    backups::ask(machine, call::Close { file: file.clone(), open }).unwrap();
    file
}

fn read(machine: &Machine, file: &FileId) -> Result<Vec<u8>, Error> {
    let open = OpenModes::posix(true, false);
    backups::ask(machine, call::OpenFile { file: file.clone(), open, mask: 4 })?;
    let read = call::Read { file: file.clone(), offset: 0, length: 1 << 20, kept: false, quietly: false };
    let read = backups::ask(machine, read);
    backups::ask(machine, call::Close { file: file.clone(), open })?;
    Ok(read?.concat())
}

pub(crate) fn delegate(machine: &Machine, path: &str, to: Option<u16>) -> Result<u16, ControlRefusal> {
    assert!(machine.client_host().flush(std::time::Duration::from_secs(60)));
    machine.server().unwrap().delegate(path, to, true, &mut |_| {}).map(|moved| moved.to)
}

pub(crate) fn map(machine: &Machine) -> MapReport {
    machine.server().unwrap().map(None).unwrap()
}

/// The paths of the regions of each server.
pub(crate) fn regions(machine: &Machine) -> Vec<Vec<String>> {
    let servers = map(machine).servers.into_iter();
    servers.map(|server| server.regions.into_iter().map(|region| region.path).collect()).collect()
}

pub(crate) fn is_clean(machine: &Machine) {
    let report = fsck::run(&machine.server().unwrap(), &mut |_| {});
    assert!(report.faults.is_empty(), "{report:?}");
}

/// The machine looks every 100 ms for servers at which it has no session. One that has much to do
/// has not opened it by then, and must not be asked twice: the second session would end the first.
#[test]
fn a_slow_server_is_asked_for_one_session() {
    let data = tempfile::tempdir().unwrap();
    let machine = start(data.path());
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    machine.tap(move |message| {
        counted.fetch_add(usize::from(matches!(message, ToClient::Fenced)), Ordering::Relaxed);
    });
    let root = machine.file_service().root();
    let a = make(&machine, &root, "a", FileKind::Directory);
    assert_eq!(delegate(&machine, "/a", None), Ok(1));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                machine.client_host().open_beside();
            }
        });
        let file = write(&machine, &a, "file");
        assert_eq!(read(&machine, &file).unwrap(), content("file"));
        done.store(true, Ordering::Relaxed);
        looks.join().unwrap();
    });
    assert_eq!(ended.load(Ordering::Relaxed), 0, "sessions were ended");
    machine.stop().unwrap();
}

#[test]
fn what_is_delegated_is_there_after_a_restart_and_comes_home() {
    let (data, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = start(data.path());
    let root = machine.file_service().root();
    let (a, b) =
        (make(&machine, &root, "a", FileKind::Directory), make(&machine, &root, "b", FileKind::Directory));
    let before = write(&machine, &a, "before");
    assert_eq!(delegate(&machine, "/a", None), Ok(1));
    assert_eq!(regions(&machine), [vec!["/"], vec!["/a"]]);
    // The client finds the server by itself, for what was there and for what is new.
    assert_eq!(read(&machine, &before).unwrap(), content("before"));
    let after = write(&machine, &a, "after");
    assert_eq!(delegate(&machine, "/b", None), Ok(2));
    // From server to server.
    let rename = call::Rename {
        from_dir: a.clone(),
        from: label("after"),
        to_dir: b.clone(),
        to: label("other"),
        source: None,
        mode: RenameMode::Replace,
        replaced: None,
        whiteout: false,
    };
    backups::ask(&machine, rename).unwrap();
    is_clean(&machine);
    assert_eq!(map(&machine).servers.iter().map(|server| server.files).collect::<Vec<_>>(), [1, 3, 1]);
    let order = BackupOrder { dir: kept.path().join("backups"), keep: None };
    let backed_up =
        |machine: &Machine| crate::backup_source::back_up(machine.membership(), &order, &mut |_| {});
    assert!(matches!(backed_up(&machine), Err(BackupError::SeveralServers)));
    machine.stop().unwrap();

    let machine = start(data.path());
    assert_eq!(regions(&machine), [vec!["/"], vec!["/a"], vec!["/b"]]);
    assert_eq!(read(&machine, &before).unwrap(), content("before"));
    assert_eq!(read(&machine, &after).unwrap(), content("after"));
    is_clean(&machine);
    assert_eq!(delegate(&machine, "/a", Some(0)), Ok(0));
    assert_eq!(delegate(&machine, "/b", Some(1)), Ok(1));
    assert_eq!(delegate(&machine, "/b", Some(0)), Ok(0));
    assert_eq!(regions(&machine), [vec!["/"], vec![], vec![]]);
    assert_eq!(read(&machine, &after).unwrap(), content("after"));
    is_clean(&machine);
    assert!(backed_up(&machine).unwrap().faults.is_empty());
    machine.stop().unwrap();
}

/// Nobody is told that a machine is out before it is out at every server.
#[test]
fn a_machine_that_is_expelled_is_out_everywhere() {
    let data = tempfile::tempdir().unwrap();
    let machine = start(data.path());
    make(&machine, &machine.file_service().root(), "a", FileKind::Directory);
    assert_eq!(delegate(&machine, "/a", None), Ok(1));
    let (server, token) = (machine.server().unwrap(), [7; 32]);
    let invite = Input::Invite { token, rights: Rights::FULL, at: 0, until: 1 };
    let enrol = Input::Enrol { token, name: "other".to_owned(), key: [9; 32], at: 0, connection: u64::MAX };
    [invite, enrol].into_iter().for_each(|input| server.group().propose(input));
    let beside = server.hosted(ServerId(1)).unwrap();
    let belongs = || beside.group().query(|directory, store| directory.admits(MachineId(2), store).is_ok());
    super::wait_until("known to the other server", belongs);
    server.leave(MachineId(2)).unwrap();
    assert!(!belongs());
    machine.stop().unwrap();
}

#[test]
fn what_is_in_use_stays_and_nonsense_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let machine = start(data.path());
    let root = machine.file_service().root();
    let a = make(&machine, &root, "a", FileKind::Directory);
    let file = write(&machine, &a, "open");
    assert_eq!(delegate(&machine, "/a", Some(7)), Err(ControlRefusal::NoSuchServer { server: 7 }));
    assert_eq!(delegate(&machine, "/x", None), Err(ControlRefusal::NoFile { path: "/x".to_owned() }));
    let refused = |refusal: Result<u16, ControlRefusal>| {
        matches!(refusal, Err(ControlRefusal::Failed { doing: RequestWork::Delegating, .. }))
    };
    assert_eq!(delegate(&machine, "/a", None), Ok(1));
    assert!(refused(delegate(&machine, "/", Some(1))), "the root stays");
    assert!(refused(delegate(&machine, "/a", Some(1))), "it is there already");
    let open = OpenModes::posix(true, true);
    backups::ask(&machine, call::OpenFile { file: file.clone(), open, mask: 6 }).unwrap();
    let stays = delegate(&machine, "/a", Some(0));
    assert!(refused(stays.clone()) || matches!(stays, Err(ControlRefusal::RegionStays { .. })), "{stays:?}");
    assert_eq!(read(&machine, &file).unwrap(), content("open"));
    backups::ask(&machine, call::Close { file, open }).unwrap();
    assert_eq!(delegate(&machine, "/a", Some(0)), Ok(0));
    machine.stop().unwrap();
}
