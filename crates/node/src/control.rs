//! The control socket: how `leasehold status` and `leasehold fsck` ask a running machine.
//!
//! One request a connection, a line of JSON; answers are lines of JSON, progress first. Who may
//! connect: see `control_socket`.

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

/// A request is a word and a path; nobody needs to send more.
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// How long not to listen where nobody can be accepted: descriptors may be used up.
const PAUSE: Duration = Duration::from_millis(100);
/// How long what was done here may take to get to the server before a question is answered.
const FLUSH: Duration = Duration::from_secs(10);
const NOT_FLUSHED: &str =
    "the server has not got all that was done on this machine: what follows leaves that out";
/// What a server says that is asked by another for what only people on its machine may ask.
const ONLY_HERE: &str = "only on this machine itself can that be asked for";
/// What a machine without a server says to what only a server can answer.
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
    /// Something that people are to know, whatever the answer is.
    Note(String),
    /// The answer, as the one who asks for it reads it: each request has a type of its own.
    Answer(Value),
    Failed(String),
}

/// Why a machine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The socket broke, or what came over it is none of ours.
    #[error("the running machine does not answer on {socket}")]
    Socket {
        /// Where.
        socket: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It answered that it cannot.
    #[error("the running machine says: {0}")]
    Failed(String),
    /// Another user's machine is up there.
    #[error("the machine on {} is another user's: ask as that user, or as root", data.display())]
    NotYours {
        /// The data directory.
        data: PathBuf,
    },
    /// A machine is there, and is not up; its server could be asked all the same, if there were
    /// one.
    #[error("the machine on {} has no server: run this on a machine that has one, or bring this one up", data.display())]
    NoServer {
        /// The data directory.
        data: PathBuf,
    },
    /// There is none.
    #[error("no machine is up on {}; start it with: leasehold up", data.display())]
    NotUp {
        /// The data directory.
        data: PathBuf,
    },
    /// There is none, and the data directory cannot be opened either.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// The listening side. Its socket goes with it.
#[derive(Debug)]
pub(crate) struct Control {
    socket: PathBuf,
}

impl Control {
    /// Listens for the machine whose part this is, as long as it lives.
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
                // Some take long, and nobody else is to wait for them.
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
        // Wakes the thread, which finds nothing left to serve.
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
            // Whoever asked may have gone away.
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
    /// Its answer is about all files: what programs on this machine have done counts, so it goes to
    /// the server first.
    fn counts_all(&self) -> bool {
        match self {
            ControlRequest::Fsck | ControlRequest::Leases(_) | ControlRequest::Invite(_) => true,
            ControlRequest::Shares(request) => !matches!(request, SharesRequest::Discover),
            _ => false,
        }
    }

    /// It is about this machine, or about what is on its disk: for who is on this machine, and for
    /// nobody else. The rest is about the whole cluster.
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

/// Who is to be asked instead of this server: what is about the whole cluster only the leader can
/// say.
fn leader_to_ask(membership: &Membership, request: &ControlRequest) -> Option<String> {
    let follows = membership.server().is_some_and(|server| !server.group().leads());
    (follows && !request.is_local()).then(|| membership.link_status().map(|status| status.server)).flatten()
}

/// Answers what another server passes on, a line of JSON; answers go to `tell`, lines of JSON too.
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

/// An answer on its way to the one who has asked.
pub(crate) fn value(answer: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

/// With all its causes.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn send(stream: &mut UnixStream, reply: &ControlReply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Asks; `None` if no machine is up on `data`.
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

/// Asks a machine that is to be up.
fn ask_running<T: DeserializeOwned>(
    data: &Path,
    request: &ControlRequest,
    progress: &mut dyn FnMut(&str),
) -> Result<T, AskError> {
    ask(data, request, progress)?.ok_or_else(|| AskError::NotUp { data: data.to_path_buf() })
}

/// What the machine on `data` is doing; `None` if none is up.
pub fn ask_status(data: &Path) -> Result<Option<StatusReport>, AskError> {
    ask(data, &ControlRequest::Status, &mut |_| {})
}

/// What the machine on `data` is asked for, and what it has counted. With `watches` it counts
/// directories for a while.
pub fn ask_live(data: &Path, watches: bool) -> Result<LiveReport, AskError> {
    ask_running(data, &ControlRequest::Live(watches), &mut |_| {})
}

/// Has the running server on `data` read all that it has from its disk.
pub fn scrub(data: &Path, progress: &mut dyn FnMut(&str)) -> Result<ScrubReport, AskError> {
    ask_running(data, &ControlRequest::Scrub, progress)
}

/// What is to be known of, or done with, the shares of the server on `data`. [`SharesRequest`] says
/// which `T` the answer to each request is.
pub fn shares<T: DeserializeOwned>(
    data: &Path,
    request: SharesRequest,
    progress: &mut dyn FnMut(&str),
) -> Result<T, AskError> {
    ask_running(data, &ControlRequest::Shares(request), progress)
}

/// Writes shares and paths (`which`; all shares if there are none) of the server on `data` with
/// their leases into `file`: through the running machine, or out of the store of one that is not
/// up.
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

/// Exports shares from the store in `data`, of a machine that is not up: whatever became of its
/// server, or of the others.
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
    // If the database was lost, this is how it is known what there is.
    store.server().finish_discovery().map_err(|error| failed(&error))?;
    stored::export_alone(&store, file, which, progress).map_err(AskError::Failed)
}

/// A token for a machine to join with, from the machine on `data`.
pub fn invite(data: &Path, invitation: Invitation) -> Result<Invited, AskError> {
    ask_running(data, &ControlRequest::Invite(invitation), &mut |_| {})
}

/// The machines of the cluster, from the machine on `data`.
pub fn machines(data: &Path) -> Result<Vec<MachineReport>, AskError> {
    ask_running(data, &ControlRequest::Machines, &mut |_| {})
}

/// The invitations that nobody has joined by, from the machine on `data`.
pub fn invitations(data: &Path) -> Result<Vec<InvitationReport>, AskError> {
    ask_running(data, &ControlRequest::Invitations, &mut |_| {})
}

/// Nobody joins any more by the invitation of this name.
pub fn revoke(data: &Path, id: &str) -> Result<(), AskError> {
    ask_running(data, &ControlRequest::Revoke(id.to_owned()), &mut |_| {})
}

/// Expels a machine, by name or number. Returns which that was.
pub fn expel(data: &Path, who: &str) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::Expel(who.to_owned()), &mut |_| {})
}

/// Who has to do with the fields of the file at `path`, from the root of the file system.
pub fn leases(data: &Path, path: &str) -> Result<FileLeases, AskError> {
    ask_running(data, &ControlRequest::Leases(path.to_owned()), &mut |_| {})
}

/// The servers of the cluster, from the machine on `data`.
pub fn servers(data: &Path) -> Result<Vec<ServerStanding>, AskError> {
    ask_running(data, &ControlRequest::Servers, &mut |_| {})
}

/// Makes the machine `who`, by name or number, a server. Returns when it has learnt all that there
/// was when it was asked.
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

/// Empties the server `who` of shares.
pub fn drain(data: &Path, who: &str, progress: &mut dyn FnMut(&str)) -> Result<MachineName, AskError> {
    ask_running(data, &ControlRequest::Drain(who.to_owned()), progress)
}

/// Has another authority certify machines from now on, with a key that nobody had before.
pub fn renew_authority(data: &Path, progress: &mut dyn FnMut(&str)) -> Result<AuthorityReport, AskError> {
    ask_running(data, &ControlRequest::RenewAuthority, progress)
}

/// Makes a backup of what the server on `data` has: through the running machine, or by bringing one
/// up without a mount for as long as it takes.
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

/// Checks everything on `data`: through the running machine, or by bringing one up without a mount
/// for as long as it takes.
pub fn fsck(data: &Path, progress: &mut dyn FnMut(&str)) -> Result<FsckReport, AskError> {
    if let Some(report) = ask(data, &ControlRequest::Fsck, progress)? {
        return Ok(report);
    }
    let machine = start_stopped(data, STOPPED)?;
    let report = machine.server().map(|server| fsck::run(&server, progress));
    machine.stop()?;
    report.ok_or_else(|| AskError::NoServer { data: data.to_path_buf() })
}

/// Brings up the machine on `data`, which is not up, for some `purpose` and without a mount.
fn start_stopped(data: &Path, purpose: &str) -> Result<Machine, AskError> {
    if !data.join("format").exists() {
        return Err(AskError::NotUp { data: data.to_path_buf() });
    }
    // The founder may be a server that others do not need to be up for.
    let cluster = Cluster::of(data).map_err(MachineError::from)?;
    if cluster.is_some_and(|cluster| cluster.member != Some(FOUNDER)) {
        return Err(AskError::NoServer { data: data.to_path_buf() });
    }
    Ok(Machine::start(data, purpose, MachineSettings { raises: false, ..MachineSettings::default() })?)
}
