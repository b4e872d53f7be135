//! How a machine joins a cluster, and leaves it.

use crate::authority::{CertificateError, Credentials};
use crate::call::{End, ask};
use crate::credential_store::{Caller, CredentialStore};
use crate::discovery::discover;
use crate::thread::NetThread;
use crate::token::Token;
use data_dir::{Cluster, DataDir, DataError};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::time::timeout;
use wire::{MachineId, Purpose, Versions, Welcome};

/// How long each of the server's addresses is tried.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often servers may say that another one leads, and how long to wait when none does.
const ELSEWHERE_MAX: u32 = 20;
const ELECTION_PAUSE: Duration = Duration::from_millis(500);

/// Why the machine has not joined, or not left.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Its data directory cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Its keys cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The server refuses.
    #[error("the cluster does not take this machine: {0}")]
    Refused(String),
    /// The machine is a server, or has the only one.
    #[error(
        "{} is a server's: another server removes it first (leasehold server remove); the only server is the file system itself, so it cannot leave",
        dir.display()
    )]
    Serves {
        /// The data directory.
        dir: PathBuf,
    },
    /// No server answers.
    #[error("the cluster cannot be reached at {} ({why}), and no server of it answers in the local network: is a server up there, and does a firewall let its port pass? leasehold invite --address HOST:PORT on a server says another",
        addresses.join(" or "))]
    Unreachable {
        /// The addresses that were tried.
        addresses: Vec<String>,
        /// The last failure.
        why: String,
    },
}

/// Makes `dir` the data directory of a machine called `name` in the cluster of `token`. After a
/// failure it can be repeated, whether or not the server has let the machine in.
pub fn join(dir: &Path, token: &Token, name: &str) -> Result<MachineId, JoinError> {
    let data = DataDir::begin_join(dir)?;
    let key = Credentials::key_to_join(dir)?;
    let purpose = Purpose::Join { secret: token.secret, name: name.to_owned(), key };
    let asked = ask_cluster(&token.addresses, Caller::stranger(token.authority)?, purpose)?;
    let Welcome::Joined { machine, certificates: (certificate, authority) } = asked else {
        return Err(unanswered(&token.addresses));
    };
    Credentials::keep(dir, &certificate, &authority)?;
    data.finish_join(machine, name, &token.addresses)?;
    Ok(machine)
}

/// Takes the machine of `dir` out of its cluster and removes `dir`. The machine must not be up, and
/// must be no server. An expelled machine may leave, too.
///
/// # Errors
/// If no leader can be reached: then nothing has changed.
pub fn leave(dir: &Path) -> Result<(), JoinError> {
    let held = DataDir::hold(dir, "leasehold leave")?;
    let known = Cluster::of(dir)?.filter(|known| known.member.is_none());
    let addresses = known.ok_or_else(|| JoinError::Serves { dir: dir.to_path_buf() })?.addresses;
    let caller = CredentialStore::open(dir, Versions::KNOWN)?.caller();
    match ask_cluster(&addresses, caller, Purpose::Leave)? {
        Welcome::Done => {}
        _ => return Err(unanswered(&addresses)),
    }
    let removed = std::fs::remove_dir_all(dir);
    drop(held);
    Ok(removed.map_err(|source| DataError::Io { verb: "remove", file: dir.to_path_buf(), source })?)
}

fn unanswered(addresses: &[String]) -> JoinError {
    let why = "its answer is none to this question".to_owned();
    JoinError::Unreachable { addresses: addresses.to_vec(), why }
}

/// Asks the leader. It tries these addresses, then the addresses that servers name, and without an
/// answer the local network.
fn ask_cluster(addresses: &[String], caller: Caller, purpose: Purpose) -> Result<Welcome, JoinError> {
    let (told, answer) = mpsc::channel();
    let mut to_ask: VecDeque<String> = addresses.iter().cloned().collect();
    let thread = NetThread::spawn("join", move || async move {
        let mut why = None;
        let (mut told_elsewhere, mut has_looked) = (0, false);
        loop {
            if to_ask.is_empty() && !std::mem::replace(&mut has_looked, true) {
                to_ask.extend(discover(&caller.authority()).await);
            }
            let Some(address) = to_ask.pop_front() else { break };
            let asked = timeout(TIMEOUT, ask(&address, &caller, &purpose)).await;
            match asked.map_err(End::from).and_then(|asked| Ok(asked?.2)) {
                Ok(Welcome::Elsewhere { addresses }) if told_elsewhere < ELSEWHERE_MAX => {
                    told_elsewhere += 1;
                    why = Some(format!("{address}: its servers have no leader"));
                    if addresses.is_empty() {
                        tokio::time::sleep(ELECTION_PAUSE).await;
                        to_ask.push_back(address);
                    }
                    addresses.into_iter().rev().for_each(|leader| to_ask.push_front(leader));
                }
                Ok(Welcome::Elsewhere { .. }) => {}
                Ok(welcome) => return drop(told.send(Ok(welcome))),
                Err(End::Refused(why)) => return drop(told.send(Err(Unanswered::Refused(why)))),
                // The loopback address comes last, and is this machine's own. The failure at
                // another address says more.
                Err(_) if why.is_some() && is_loopback(&address) => {}
                Err(end) => why = Some(format!("{address}: {end}")),
            }
        }
        let why = why.unwrap_or_else(|| "no address is known".to_owned());
        drop(told.send(Err(Unanswered::Unreachable(why))));
    });
    let _thread = thread.map_err(|source| DataError::Io {
        verb: "start a thread for",
        file: "the network".into(),
        source,
    })?;
    let addresses = addresses.to_vec();
    match answer.recv() {
        Ok(Ok(welcome)) => Ok(welcome),
        Ok(Err(Unanswered::Refused(why))) => Err(JoinError::Refused(why)),
        Ok(Err(Unanswered::Unreachable(why))) => Err(JoinError::Unreachable { addresses, why }),
        Err(_) => Err(JoinError::Unreachable { addresses, why: "given up".to_owned() }),
    }
}

/// Why there is no answer.
enum Unanswered {
    Refused(String),
    Unreachable(String),
}

fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}
