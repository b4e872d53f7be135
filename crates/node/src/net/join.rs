//! Becoming a machine of a cluster.

use super::authority::{CertificateError, Credentials};
use super::credential_store::Caller;
use super::link::{End, ask};
use super::{NetThread, Token};
use crate::data::{DataDir, DataError};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use tokio::time::timeout;
use wire::{MachineId, Purpose, Welcome};

/// How long one of the server's addresses is tried.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often servers may say that another one leads, and how long to wait when none does.
const ELSEWHERE_MAX: u32 = 20;
const ELECTION_PAUSE: Duration = Duration::from_millis(500);

/// The machine has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Its data directory.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Its keys.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The server says no.
    #[error("the cluster does not take this machine: {0}")]
    Refused(String),
    /// Nobody answers.
    #[error("the cluster cannot be reached at {}: {why}", addresses.join(" or "))]
    Unreachable {
        /// Where it was looked for.
        addresses: Vec<String>,
        /// What happened last.
        why: String,
    },
}

/// Makes `dir` the data directory of a machine called `name` of the cluster that `token` is of. If that fails it can be repeated, whether or not the
/// server has let the machine in.
pub fn join(dir: &Path, token: &Token, name: &str) -> Result<MachineId, JoinError> {
    let data = DataDir::begin_join(dir)?;
    let key = Credentials::key_to_join(dir)?;
    let config = Caller::stranger(token.authority)?;
    let (told, answer) = mpsc::channel();
    let (addresses, secret, name) = (token.addresses.clone(), token.secret, name.to_owned());
    let thread = NetThread::spawn("join", move || async move {
        let mut why = "the token has no address".to_owned();
        let mut to_ask: VecDeque<String> = addresses.iter().cloned().collect();
        let mut told_elsewhere = 0;
        while let Some(address) = to_ask.pop_front() {
            let purpose = Purpose::Join { secret, name: name.clone(), key };
            let asked = timeout(TIMEOUT, ask(&address, &config, &purpose)).await;
            match asked.map_err(End::from).and_then(|asked| Ok(asked?.2)) {
                Ok(Welcome::Joined { machine, certificates }) => {
                    return drop(told.send(Ok((machine, certificates))));
                }
                Ok(Welcome::Elsewhere { addresses }) if told_elsewhere < ELSEWHERE_MAX => {
                    told_elsewhere += 1;
                    why = "its servers have no leader".to_owned();
                    if addresses.is_empty() {
                        tokio::time::sleep(ELECTION_PAUSE).await;
                        to_ask.push_back(address);
                    }
                    addresses.into_iter().rev().for_each(|leader| to_ask.push_front(leader));
                }
                Ok(_) => why = "its answer is none to this question".to_owned(),
                Err(End::Refused(why)) => return drop(told.send(Err(JoinError::Refused(why)))),
                Err(end) => why = end.to_string(),
            }
        }
        drop(told.send(Err(JoinError::Unreachable { addresses, why })));
    });
    let _thread = thread.map_err(|source| DataError::Io {
        verb: "start a thread for",
        file: "the network".into(),
        source,
    })?;
    let nobody = || JoinError::Unreachable { addresses: token.addresses.clone(), why: "given up".to_owned() };
    let (machine, (certificate, authority)) = answer.recv().map_err(|_| nobody())??;
    Credentials::keep(dir, &certificate, &authority)?;
    data.finish_join(machine, &token.addresses)?;
    Ok(machine)
}
