//! The control socket, by which `leasehold status` and `leasehold fsck` ask a running machine.
//!
//! A connection carries one request, a line of JSON. The answers are lines of JSON too, progress
//! first. `control_socket` says which users may connect.

use crate::backup::{self, BackupOrder, BackupReport};
use crate::cluster::{FileLeases, Invitation, InvitationReport, Invited, MachineName, MachineReport};
use crate::control_socket::{accept, bind, connect};
use crate::data::{Cluster, DataDir};
use crate::fsck::{self, FsckReport};
use crate::machine::{Machine, MachineError, MachineSettings, STOPPED};
use crate::membership::Membership;
use crate::net::ask_control;
use crate::renewal::AuthorityReport;
use crate::scrub::ScrubReport;
use crate::servers::ServerStanding;
use crate::shares_server::{ShareSettings, Shares, wall_clock};
use crate::status::{LiveReport, StatusReport};
use crate::stored::{self, ParcelReport, SharesRequest};
use raft::FOUNDER;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest request, bytes. A request is a word and a path: none needs more.
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// The pause after a failed accept: descriptors may be used up.
const PAUSE: Duration = Duration::from_millis(100);
/// How long this machine's changes may take to reach the server before a request is answered.
const FLUSH: Duration = Duration::from_secs(10);
const NOT_FLUSHED: &str =
    "the server has not got all that was done on this machine: what follows leaves that out";
/// A server's answer to another server's request that only people on its own machine may make.
const ONLY_HERE: &str = "only on this machine itself can that be asked for";
/// The answer of a machine without a server to a request that only a server can answer.
const NO_SERVER: &str = "this machine has no server; ask on one that has: leasehold status says where it is";

#[derive(Debug, Serialize, Deserialize)]
enum ControlRequest {
    Status,
    /// The live view; `true` has directories counted.
    Live(bool),
    Fsck,
    Scrub,
    Invite(Invitation),
    Invitations,
    Revoke(String),
    Machines,
    Expel(String),
    Leases(String),
    Servers,
    AddServer(String),
    RemoveServer(String),
    Drain(String),
    RenewAuthority,
    Backup(BackupOrder),
    Shares(SharesRequest),
}

#[derive(Debug, Serialize, Deserialize)]
enum ControlReply {
    Progress(String),
    /// A remark for people, with any answer.
    Note(String),
    /// The answer, in the type of the request: each request has a type of its own.
    Answer(Value),
    Failed(String),
}

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
    /// The machine answered with an error.
    #[error("the running machine says: {0}")]
    Failed(String),
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
    Machine(#[from] MachineError),
}

/// The listening side. Dropping it removes its socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: PathBuf,
}

impl Control {
    /// Listens on behalf of the machine of `membership`, as long as that machine lives.
    pub fn serve(dir: &Path, membership: &Arc<Membership>) -> std::io::Result<Control> {
        let socket = DataDir::control_socket(dir);
        let listener = bind(&socket)?;
        let membership = Arc::downgrade(membership);
        std::thread::Builder::new().name("control".into()).spawn(move || {
            loop {
                let accepted = accept(&listener);
                let Some(membership) =
                    membership.upgrade().filter(|membership| !membership.engine().is_stopping())
                else {
                    return;
                };
                let stream = match accepted {
                    Ok(stream) => stream,
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => continue,
                    Err(error) => {
                        tracing::warn!(%error, "nobody can be heard at the control socket for a moment");
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                };
                // Some requests take long, and no other request is to wait for them.
                let answering = std::thread::Builder::new().name("control".into());
                if let Err(error) = answering.spawn(move || answer_stream(&membership, stream)) {
                    tracing::error!(%error, "no thread can be started");
                }
            }
        })?;
        Ok(Control { socket })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // This wakes the thread, which finds nothing left to serve.
        let last = connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
        drop(last);
    }
}

/// Serves one connection.
fn answer_stream(membership: &Membership, mut stream: UnixStream) {
    let mut line = String::new();
    let read = BufReader::new((&stream).take(REQUEST_BYTES_MAX)).read_line(&mut line);
    let failed = |error: &dyn std::fmt::Display| ControlReply::Failed(error.to_string());
    match (read, serde_json::from_str(&line)) {
        (Ok(_), Ok(request)) => {
            if ControlRequest::counts_all(&request) && !membership.engine().flush(FLUSH) {
                let _ = send(&mut stream, &ControlReply::Note(NOT_FLUSHED.to_owned()));
            }
            if let Some(leader) = leader_to_ask(membership, &request) {
                let mut tell = |line: &[u8]| {
                    let _ = stream.write_all(line);
                };
                let asked = membership.credentials().map_err(|error| error.to_string()).and_then(|own| {
                    ask_control(&leader, &own.caller(), line.clone(), &mut tell).map_err(|e| e.to_string())
                });
                if let Err(why) = asked {
                    let _ = send(&mut stream, &ControlReply::Failed(why));
                }
                return;
            }
            // The asker may have gone away.
            let reply = reply(membership, request, &mut |progress| {
                let _ = send(&mut stream, &ControlReply::Progress(progress.to_owned()));
            });
            let _ = send(&mut stream, &reply.map_or_else(ControlReply::Failed, ControlReply::Answer));
        }
        (Err(error), _) => drop(send(&mut stream, &failed(&error))),
        (Ok(_), Err(error)) => drop(send(&mut stream, &failed(&error))),
    }
}

impl ControlRequest {
    /// Whether the answer is about all files. Changes by programs on this machine count too, so
    /// they are sent to the server first.
    fn counts_all(&self) -> bool {
        match self {
            ControlRequest::Fsck | ControlRequest::Leases(_) | ControlRequest::Invite(_) => true,
            ControlRequest::Shares(request) => !matches!(request, SharesRequest::Discover),
            _ => false,
        }
    }

    /// Whether the request is about this machine, or about its disk. Only a user on this machine
    /// may make it. The other requests are about the whole cluster.
    fn is_local(&self) -> bool {
        match self {
            ControlRequest::Status
            | ControlRequest::Live(_)
            | ControlRequest::Fsck
            | ControlRequest::Scrub
            | ControlRequest::Backup(_)
            | ControlRequest::Shares(_) => true,
            ControlRequest::Invite(_)
            | ControlRequest::Invitations
            | ControlRequest::Revoke(_)
            | ControlRequest::Machines
            | ControlRequest::Expel(_)
            | ControlRequest::Leases(_)
            | ControlRequest::Servers
            | ControlRequest::AddServer(_)
            | ControlRequest::RemoveServer(_)
            | ControlRequest::Drain(_)
            | ControlRequest::RenewAuthority => false,
        }
    }
}

/// The address of the leader, if this server must pass `request` on. Only the leader can answer
/// requests about the whole cluster.
fn leader_to_ask(membership: &Membership, request: &ControlRequest) -> Option<String> {
    let follows = membership.server().is_some_and(|server| !server.group().leads());
    (follows && !request.is_local()).then(|| membership.link_status().map(|status| status.server)).flatten()
}

/// Answers a request that another server passes on, a line of JSON. The answers go to `tell`, as
/// lines of JSON too.
pub(crate) fn answer_server(membership: &Membership, request: &str, tell: &mut dyn FnMut(Vec<u8>)) {
    let mut tell = |reply: &ControlReply| {
        let mut line = serde_json::to_vec(reply).unwrap_or_default();
        line.push(b'\n');
        tell(line);
    };
    let reply = match serde_json::from_str::<ControlRequest>(request) {
        Ok(request) if request.is_local() => Err(ONLY_HERE.to_owned()),
        Ok(request) if leader_to_ask(membership, &request).is_some() => {
            Err("another server leads now".to_owned())
        }
        Ok(request) => {
            reply(membership, request, &mut |progress| tell(&ControlReply::Progress(progress.to_owned())))
        }
        Err(error) => Err(error.to_string()),
    };
    tell(&reply.map_or_else(ControlReply::Failed, ControlReply::Answer));
}

fn reply(
    membership: &Membership,
    request: ControlRequest,
    progress: &mut dyn FnMut(&str),
) -> Result<Value, String> {
    let server = membership.server();
    let server = server.as_deref().ok_or_else(|| NO_SERVER.to_owned());
    match request {
        ControlRequest::Status => value(&StatusReport::of(membership)),
        ControlRequest::Live(watches) => value(&LiveReport::of(membership, watches)),
        ControlRequest::Fsck => value(&fsck::run(server?, progress)),
        ControlRequest::Scrub => {
            let server = server?;
            value(&server.scrub().run_now(server, progress)?)
        }
        ControlRequest::Invite(invitation) => {
            value(&server?.invite(invitation, &*membership.begin_to_listen()?)?)
        }
        ControlRequest::Invitations => value(&server?.invitations()),
        ControlRequest::Revoke(id) => value(&server?.revoke(&id)?),
        ControlRequest::Machines => value(&server?.machines()),
        ControlRequest::Expel(who) => value(&server?.expel(&who)?),
        ControlRequest::Leases(path) => value(&server?.leases(&path)?),
        ControlRequest::Servers => value(&server?.server_standings()),
        ControlRequest::AddServer(who) => {
            value(&server?.add_server(&who, membership.addresses(), progress)?)
        }
        ControlRequest::RemoveServer(who) => value(&server?.remove_server(&who, progress)?),
        ControlRequest::Drain(who) => value(&server?.drain(&who, progress)?),
        ControlRequest::RenewAuthority => value(&server?.renew_authority(progress)?),
        ControlRequest::Backup(order) => {
            value(&backup::run(membership, &order, progress).map_err(|error| in_words(&error))?)
        }
        ControlRequest::Shares(request) => stored::reply(server?, request, progress),
    }
}

/// Turns an answer into JSON for the asker.
pub(crate) fn value(answer: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

/// The text of an error, with all its causes.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn send(stream: &mut UnixStream, reply: &ControlReply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Sends a request and reads its answer; `None` if no machine is up on `data`.
fn ask<T: DeserializeOwned>(
    data: &Path,
    request: &ControlRequest,
    progress: &mut dyn FnMut(&str),
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
            ControlReply::Progress(text) => progress(&text),
            ControlReply::Note(text) => tracing::warn!("{text}"),
            ControlReply::Failed(why) => return Err(AskError::Failed(why)),
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
    progress: &mut dyn FnMut(&str),
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
pub fn scrub(data: &Path, progress: &mut dyn FnMut(&str)) -> Result<ScrubReport, AskError> {
    ask_running(data, &ControlRequest::Scrub, progress)
}

/// Queries or changes the shares of the server on `data`. [`SharesRequest`] says which `T` the
/// answer to each request is.
pub fn shares<T: DeserializeOwned>(
    data: &Path,
    request: SharesRequest,
    progress: &mut dyn FnMut(&str),
) -> Result<T, AskError> {
    ask_running(data, &ControlRequest::Shares(request), progress)
}

/// Writes shares and paths of the server on `data`, with their leases, into `file`. `which` names
/// them; an empty list means all shares. The running machine does this. If the machine is down,
/// this process reads its store.
pub fn export_shares(
    data: &Path,
    file: &Path,
    which: &[String],
    progress: &mut dyn FnMut(&str),
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
    progress: &mut dyn FnMut(&str),
) -> Result<ParcelReport, AskError> {
    let failed = |error: &dyn std::error::Error| AskError::Failed(in_words(error));
    let _held = DataDir::hold(data, "leasehold shares export").map_err(MachineError::from)?;
    let dir = data.join("shares");
    if !dir.exists() {
        return Err(AskError::Failed(format!("there are no shares in {}", data.display())));
    }
    let store = Shares::open(&dir, ShareSettings::default(), wall_clock(), Arc::new(|_| ()))
        .map_err(MachineError::from)?;
    // This finds the shares if the database was lost.
    store.server().finish_discovery().map_err(|error| failed(&error))?;
    stored::export_alone(&store, file, which, progress).map_err(AskError::Failed)
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
pub fn add_server(data: &Path, who: &str, progress: &mut dyn FnMut(&str)) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::AddServer(who.to_owned()), progress)
}

/// Makes the server `who` an ordinary machine again.
pub fn remove_server(
    data: &Path,
    who: &str,
    progress: &mut dyn FnMut(&str),
) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::RemoveServer(who.to_owned()), progress)
}

/// Moves all shares off the server `who`.
pub fn drain(data: &Path, who: &str, progress: &mut dyn FnMut(&str)) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::Drain(who.to_owned()), progress)
}

/// Replaces the authority that certifies machines by one with a new key.
pub fn renew_authority(data: &Path, progress: &mut dyn FnMut(&str)) -> Result<AuthorityReport, AskError> {
    ask_running(data, &ControlRequest::RenewAuthority, progress)
}

/// Makes a backup of the state of the server on `data`. The running machine makes it. If the
/// machine is down, this process runs it without a mount for that time.
pub fn back_up(
    data: &Path,
    order: &BackupOrder,
    progress: &mut dyn FnMut(&str),
) -> Result<BackupReport, AskError> {
    if let Some(report) = ask(data, &ControlRequest::Backup(order.clone()), progress)? {
        return Ok(report);
    }
    let machine = start_stopped(data, "leasehold backup")?;
    let report = backup::run(machine.membership(), order, progress);
    machine.stop()?;
    report.map_err(|error| AskError::Failed(in_words(&error)))
}

/// Checks everything on `data`. The running machine checks. If the machine is down, this process
/// runs it without a mount for that time.
pub fn fsck(data: &Path, progress: &mut dyn FnMut(&str)) -> Result<FsckReport, AskError> {
    if let Some(report) = ask(data, &ControlRequest::Fsck, progress)? {
        return Ok(report);
    }
    let machine = start_stopped(data, STOPPED)?;
    let report = machine.server().map(|server| fsck::run(&server, progress));
    machine.stop()?;
    report.ok_or_else(|| AskError::NoServer { data: data.to_path_buf() })
}

/// Starts the machine on `data`, which is down, for some `purpose` and without a mount.
fn start_stopped(data: &Path, purpose: &str) -> Result<Machine, AskError> {
    if !data.join("format").exists() {
        return Err(AskError::NotUp { data: data.to_path_buf() });
    }
    // The founder may be a server that needs no other server up.
    let cluster = Cluster::of(data).map_err(MachineError::from)?;
    if cluster.is_some_and(|cluster| cluster.member != Some(FOUNDER)) {
        return Err(AskError::NoServer { data: data.to_path_buf() });
    }
    Ok(Machine::start(data, purpose, MachineSettings { raises: false, ..MachineSettings::default() })?)
}
