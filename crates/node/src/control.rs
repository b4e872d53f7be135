//! The control socket, by which `leasehold status` and `leasehold fsck` ask a running machine: its
//! side of it.
//!
//! A connection carries one request, a line of JSON. The answers are lines of JSON too, progress
//! first. `admin::socket` says which users may connect.

use crate::backup_source::back_up;
use crate::error::failed;
use crate::fsck;
use crate::membership::Membership;
use crate::status;
use crate::stored::{self, value};
use admin::socket::{accept, bind, connect};
use admin::{ControlNote, ControlProgress, ControlRefusal, ControlReply, ControlRequest, RequestWork};
use backup::BackupProgress;
use data_dir::DataDir;
use net::ask_control;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest request, bytes. A request is a word and a path: none needs more.
const REQUEST_BYTES_MAX: u64 = 16 << 10;
/// The time in which a request finds a leader, if no server leads: an election, and the link's way
/// to its winner.
const LEADER_WITHIN: Duration = Duration::from_secs(20);
/// The pause after a failed accept, since descriptors may be used up, and before a leader is looked
/// for again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long this machine's changes may take to reach the server before a request is answered.
const FLUSH: Duration = Duration::from_secs(10);

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
                    membership.upgrade().filter(|membership| !membership.client_host().is_stopping())
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
    match (read, serde_json::from_str(&line)) {
        (Ok(_), Ok(request)) => {
            if ControlRequest::counts_all(&request) && !membership.client_host().flush(FLUSH) {
                let _ = send(&mut stream, &ControlReply::Note(ControlNote::NotFlushed));
            }
            let until = Instant::now() + LEADER_WITHIN;
            while let Some(leader) = leader_to_ask(membership, &request) {
                let mut tell = |line: &[u8]| {
                    let _ = stream.write_all(line);
                };
                match pass_on(membership, &leader, &line, &mut tell) {
                    Ok(()) => return,
                    // The link is still at the server that led before, and goes to the next one.
                    Err((true, _)) if Instant::now() < until => std::thread::sleep(PAUSE),
                    Err((_, why)) => return drop(send(&mut stream, &ControlReply::Failed(why))),
                }
            }
            // The asker may have gone away.
            let reply = reply(membership, request, &mut |at| {
                let _ = send(&mut stream, &ControlReply::Progress(at.clone()));
            });
            let _ = send(&mut stream, &reply.map_or_else(ControlReply::Failed, ControlReply::Answer));
        }
        (Err(error), _) => drop(send(&mut stream, &ControlReply::Failed(unread(&error)))),
        (Ok(_), Err(error)) => drop(send(&mut stream, &ControlReply::Failed(unread(&error)))),
    }
}

/// The refusal of a request that cannot be read.
fn unread(error: &dyn std::error::Error) -> ControlRefusal {
    ControlRefusal::Failed { doing: RequestWork::Reading, why: error.to_string() }
}

/// Has the leader answer a request, a line of JSON. The lines of its answer go to `tell`.
///
/// # Errors
/// The refusal, and whether another try may find a leader, since none has heard of the request.
fn pass_on(
    membership: &Membership,
    leader: &str,
    request: &str,
    tell: &mut dyn FnMut(&[u8]),
) -> Result<(), (bool, ControlRefusal)> {
    let refusal = |why| ControlRefusal::Failed { doing: RequestWork::AskingLeader, why };
    let own = membership.credentials().map_err(|error| (false, refusal(error.to_string())))?;
    let asked = ask_control(leader, &own.caller(), request.to_owned(), tell);
    asked.map_err(|error| (error.is_before_all(), refusal(error.to_string())))
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
        let mut line = serde_json::to_vec(reply).expect("a reply is JSON");
        line.push(b'\n');
        tell(line);
    };
    let reply = match serde_json::from_str::<ControlRequest>(request) {
        Ok(request) if request.is_local() => Err(ControlRefusal::OnlyHere),
        Ok(request) if leader_to_ask(membership, &request).is_some() => Err(ControlRefusal::AnotherLeads),
        Ok(request) => reply(membership, request, &mut |at| tell(&ControlReply::Progress(at.clone()))),
        Err(error) => Err(unread(&error)),
    };
    tell(&reply.map_or_else(ControlReply::Failed, ControlReply::Answer));
}

fn reply(
    membership: &Membership,
    request: ControlRequest,
    progress: &mut dyn FnMut(&ControlProgress),
) -> Result<Value, ControlRefusal> {
    let server = membership.server();
    let server = server.as_deref().ok_or(ControlRefusal::NoServer);
    match request {
        ControlRequest::Status => value(&status::status(membership)),
        ControlRequest::Live(watches) => value(&status::live(membership, watches)),
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
        ControlRequest::Map(path) => value(&server?.map(path.as_deref())?),
        ControlRequest::Delegate { path, to, pin } => value(&server?.delegate(&path, to, pin, progress)?),
        ControlRequest::Pin { path, pinned } => value(&server?.pin(&path, pinned)?),
        ControlRequest::Balance { acts } => value(&server?.balance_report(acts, progress)?),
        ControlRequest::SwitchBalance(on) => value(&server?.switch_balance(on)?),
        ControlRequest::Backup(order) => {
            let mut tell = |at: &BackupProgress| progress(&ControlProgress::Backup { at: at.clone() });
            let made = back_up(membership, &order, &mut tell);
            value(&made.map_err(|error| failed(RequestWork::BackingUp, &error))?)
        }
        ControlRequest::Shares(request) => stored::reply(server?, request, progress),
    }
}

fn send(stream: &mut UnixStream, reply: &ControlReply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}
