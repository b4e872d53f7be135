//! Requests of people to the machine of a data directory.

use crate::balance::{BalanceReport, BalanceSwitch};
use crate::checks::ScrubReport;
use crate::cluster::{
    AuthorityReport, FileLeases, Invitation, InvitationReport, Invited, MachineName, MachineReport,
    ServerStanding,
};
use crate::map::{MapReport, PinnedFile, RegionMove};
use crate::progress::{ControlNote, ControlProgress};
use crate::protocol::{ControlReply, ControlRequest};
use crate::refusal::ControlRefusal;
use crate::socket::connect;
use crate::status::{LiveReport, StatusReport};
use crate::stored::SharesRequest;
use data_dir::DataDir;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another server may take to lead, and how often it is asked.
const LEADS_WITHIN: Duration = Duration::from_secs(30);
const LEADS_LOOK: Duration = Duration::from_millis(500);

/// Why a machine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The socket broke, or the reply is not this protocol's.
    #[error("the running machine does not answer on {socket}")]
    Socket {
        /// The path of the socket.
        socket: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The machine does not answer the request. The command line has words for the reason.
    #[error("the running machine refuses: {0:?}")]
    Refused(ControlRefusal),
    /// The machine there belongs to another user.
    #[error("the machine on {} is another user's: ask as that user, or as root", data.display())]
    NotYours {
        /// The data directory.
        data: PathBuf,
    },
    /// The machine there is down, and has no server that could answer all the same.
    #[error("the machine on {} has no server: run this on a machine that has one, or bring this one up", data.display())]
    NoServer {
        /// The data directory.
        data: PathBuf,
    },
    /// No machine is up there.
    #[error("no machine is up on {}; start it with: leasehold up", data.display())]
    NotUp {
        /// The data directory.
        data: PathBuf,
    },
    /// No machine is up there, and the data directory cannot be opened either.
    #[error(transparent)]
    Machine(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends a request and reads its answer; `None` if no machine is up on `data`.
pub fn ask<T: DeserializeOwned>(
    data: &Path,
    request: &ControlRequest,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<Option<T>, AskError> {
    let socket = DataDir::control_socket(data);
    let failed = |source| AskError::Socket { socket: socket.clone(), source };
    let mut stream = match connect(&socket) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(AskError::NotYours { data: data.to_path_buf() });
        }
        Err(error) => return Err(failed(error)),
    };
    let mut line = serde_json::to_vec(request).map_err(|e| failed(e.into()))?;
    line.push(b'\n');
    stream.write_all(&line).map_err(failed)?;
    for line in BufReader::new(stream).lines() {
        match serde_json::from_str(&line.map_err(failed)?).map_err(|e| failed(e.into()))? {
            ControlReply::Progress(at) => progress(&at),
            ControlReply::Note(ControlNote::NotFlushed) => tracing::warn!(
                "the server has not got all that was done on this machine: what follows leaves that out"
            ),
            ControlReply::Failed(why) => return Err(AskError::Refused(why)),
            ControlReply::Answer(answer) => {
                return serde_json::from_value(answer).map(Some).map_err(|e| failed(e.into()));
            }
        }
    }
    Err(failed(ErrorKind::UnexpectedEof.into()))
}

/// Sends a request to a machine that must be up.
fn ask_running<T: DeserializeOwned>(
    data: &Path,
    request: &ControlRequest,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<T, AskError> {
    ask(data, request, progress)?.ok_or_else(|| AskError::NotUp { data: data.to_path_buf() })
}

/// Asks for the state of the machine on `data`; `None` if none is up.
pub fn ask_status(data: &Path) -> Result<Option<StatusReport>, AskError> {
    ask(data, &ControlRequest::Status, &mut |_| {})
}

/// Asks for the calls to the machine on `data`, and its counts. With `watches` the machine counts
/// directories for a while.
pub fn ask_live(data: &Path, watches: bool) -> Result<LiveReport, AskError> {
    ask_running(data, &ControlRequest::Live(watches), &mut |_| {})
}

/// Makes the running server on `data` read its whole disk state.
pub fn scrub(data: &Path, progress: &mut dyn FnMut(&ControlProgress)) -> Result<ScrubReport, AskError> {
    ask_running(data, &ControlRequest::Scrub, progress)
}

/// Queries or changes the shares of the server on `data`. [`SharesRequest`] says which `T` the
/// answer to each request is.
pub fn shares<T: DeserializeOwned>(
    data: &Path,
    request: SharesRequest,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<T, AskError> {
    ask_running(data, &ControlRequest::Shares(request), progress)
}

/// Gets a token for a machine to join with, from the machine on `data`.
pub fn invite(data: &Path, invitation: Invitation) -> Result<Invited, AskError> {
    ask_running(data, &ControlRequest::Invite(invitation), &mut |_| {})
}

/// Lists the machines of the cluster, from the machine on `data`.
pub fn machines(data: &Path) -> Result<Vec<MachineReport>, AskError> {
    ask_running(data, &ControlRequest::Machines, &mut |_| {})
}

/// Lists the open invitations, from the machine on `data`.
pub fn invitations(data: &Path) -> Result<Vec<InvitationReport>, AskError> {
    ask_running(data, &ControlRequest::Invitations, &mut |_| {})
}

/// Revokes the invitation of this name: no machine can join by it any more.
pub fn revoke(data: &Path, id: &str) -> Result<(), AskError> {
    ask_running(data, &ControlRequest::Revoke(id.to_owned()), &mut |_| {})
}

/// Expels a machine, by name or number, and returns its name and number.
pub fn expel(data: &Path, who: &str) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::Expel(who.to_owned()), &mut |_| {})
}

/// Lists the machines that hold or await leases on the fields of the file at `path`, from the root
/// of the file system.
pub fn leases(data: &Path, path: &str) -> Result<FileLeases, AskError> {
    ask_running(data, &ControlRequest::Leases(path.to_owned()), &mut |_| {})
}

/// Lists the servers of the cluster, from the machine on `data`.
pub fn servers(data: &Path) -> Result<Vec<ServerStanding>, AskError> {
    ask_running(data, &ControlRequest::Servers, &mut |_| {})
}

/// Makes the machine `who`, by name or number, a server. Returns once the new server has everything
/// that there was at the request.
pub fn add_server(
    data: &Path,
    who: &str,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::AddServer(who.to_owned()), progress)
}

/// Makes the server `who` an ordinary machine again. One that leads is asked again until another
/// does.
pub fn remove_server(
    data: &Path,
    who: &str,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<MachineName, AskError> {
    let begun = Instant::now();
    loop {
        match ask_running(data, &ControlRequest::RemoveServer(who.to_owned()), progress) {
            Err(AskError::Refused(ControlRefusal::LeadsYet { .. })) if begun.elapsed() < LEADS_WITHIN => {
                std::thread::sleep(LEADS_LOOK);
            }
            answer => return answer,
        }
    }
}

/// Moves all shares off the server `who`.
pub fn drain(
    data: &Path,
    who: &str,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::Drain(who.to_owned()), progress)
}

/// Reports which server of the directory manages which regions, or the file at `path`.
pub fn map(data: &Path, path: Option<String>) -> Result<MapReport, AskError> {
    ask_running(data, &ControlRequest::Map(path), &mut |_| {})
}

/// Hands the region that begins at `path` over to the server `to` of the directory, or to a new
/// one, and pins it there if `pin`. Blocks until the region is there.
pub fn delegate(
    data: &Path,
    (path, to, pin): (String, Option<u16>, bool),
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<RegionMove, AskError> {
    ask_running(data, &ControlRequest::Delegate { path, to, pin }, progress)
}

/// Pins the file at `path` to its server, or takes the pin away.
pub fn pin(data: &Path, path: String, pinned: bool) -> Result<PinnedFile, AskError> {
    ask_running(data, &ControlRequest::Pin { path, pinned }, &mut |_| {})
}

/// Reports the loads of the servers of the directory, and what the balance would do about them. If
/// `acts`, the first exchange that is due is made.
pub fn balance(
    data: &Path,
    acts: bool,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<BalanceReport, AskError> {
    ask_running(data, &ControlRequest::Balance { acts }, progress)
}

/// Has regions move by themselves, or not.
pub fn switch_balance(data: &Path, on: bool) -> Result<BalanceSwitch, AskError> {
    ask_running(data, &ControlRequest::SwitchBalance(on), &mut |_| {})
}

/// Replaces the authority that certifies machines by one with a new key.
pub fn renew_authority(
    data: &Path,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<AuthorityReport, AskError> {
    ask_running(data, &ControlRequest::RenewAuthority, progress)
}
