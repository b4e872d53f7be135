//! Requests of people that this process carries out itself if no machine is up.

use crate::backup_source;
use crate::error::{MachineError, failed};
use crate::machine::Machine;
use crate::settings::MachineSettings;
use crate::stored;
use admin::{
    AskError, ControlProgress, ControlRefusal, ControlRequest, FsckReport, ParcelReport, RequestWork,
    SharesRequest, ask,
};
use backup::{BackupOrder, BackupProgress, BackupReport};
use data_dir::{Cluster, DataDir};
use raft::FOUNDER;
use share_hosts::{ShareSettings, Shares, wall_clock};
use std::path::Path;
use std::sync::Arc;

/// The purpose of a machine that is up only to be checked.
const STOPPED: &str = "leasehold fsck";

/// Writes shares and paths of the server on `data`, with their leases, into `file`. `which` names
/// them; an empty list means all shares. The running machine does this. If the machine is down,
/// this process reads its store.
pub fn export_shares(
    data: &Path,
    file: &Path,
    which: &[String],
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<ParcelReport, AskError> {
    let request = SharesRequest::Export { file: file.to_path_buf(), which: which.to_vec() };
    match ask(data, &ControlRequest::Shares(request), progress)? {
        Some(report) => Ok(report),
        None => export_stopped(data, file, which, progress),
    }
}

/// Exports shares from the store in `data`, of a machine that is down. This works in any state of
/// its server and of the others.
fn export_stopped(
    data: &Path,
    file: &Path,
    which: &[String],
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<ParcelReport, AskError> {
    let _held = DataDir::hold(data, "leasehold shares export").map_err(machine)?;
    let dir = data.join("shares");
    if !dir.exists() {
        return Err(AskError::Refused(ControlRefusal::NoShares { data: data.display().to_string() }));
    }
    let store =
        Shares::open(&dir, ShareSettings::default(), wall_clock(), Arc::new(|_| ())).map_err(machine)?;
    // This finds the shares if the database was lost.
    let found = store.server().finish_discovery();
    found.map_err(|error| AskError::Refused(failed(RequestWork::UsingShares, &error)))?;
    stored::export_alone(&store, file, which, progress).map_err(AskError::Refused)
}

/// Makes a backup of the state of the server on `data`. The running machine makes it. If the
/// machine is down, this process runs it without a mount for that time.
pub fn back_up(
    data: &Path,
    order: &BackupOrder,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<BackupReport, AskError> {
    if let Some(report) = ask(data, &ControlRequest::Backup(order.clone()), progress)? {
        return Ok(report);
    }
    let machine = start_stopped(data, "leasehold backup")?;
    let mut tell = |at: &BackupProgress| progress(&ControlProgress::Backup { at: at.clone() });
    let report = backup_source::back_up(machine.membership(), order, &mut tell);
    machine.stop().map_err(self::machine)?;
    report.map_err(|error| AskError::Refused(failed(RequestWork::BackingUp, &error)))
}

/// Checks everything on `data`. The running machine checks. If the machine is down, this process
/// runs it without a mount for that time.
pub fn fsck(data: &Path, progress: &mut dyn FnMut(&ControlProgress)) -> Result<FsckReport, AskError> {
    if let Some(report) = ask(data, &ControlRequest::Fsck, progress)? {
        return Ok(report);
    }
    let machine = start_stopped(data, STOPPED)?;
    let report = machine.server().map(|server| crate::fsck::run(&server, progress));
    machine.stop().map_err(self::machine)?;
    report.ok_or_else(|| AskError::NoServer { data: data.to_path_buf() })
}

/// Starts the machine on `data`, which is down, for some `purpose` and without a mount.
fn start_stopped(data: &Path, purpose: &str) -> Result<Machine, AskError> {
    if !data.join("format").exists() {
        return Err(AskError::NotUp { data: data.to_path_buf() });
    }
    // The founder may be a server that needs no other server up.
    let cluster = Cluster::of(data).map_err(machine)?;
    if cluster.is_some_and(|cluster| cluster.member != Some(FOUNDER)) {
        return Err(AskError::NoServer { data: data.to_path_buf() });
    }
    let settings = MachineSettings { raises: false, ..MachineSettings::default() };
    Machine::start(data, purpose, settings).map_err(machine)
}

fn machine(error: impl Into<MachineError>) -> AskError {
    AskError::Machine(Box::new(error.into()))
}
