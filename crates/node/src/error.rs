//! Why a machine does not start or stop.

use admin::{ControlRefusal, RequestWork};
use crypto::NoKey;
use data_dir::DataError;
use net::{CertificateError, ListenError};
use raft::GroupError;
use share_hosts::SharesError;
use std::path::PathBuf;
use std::thread::JoinHandle;
use wire::EnrolError;

/// Why a machine does not start or stop.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The directory server does not start.
    #[error("the directory server in {dir} does not start")]
    Group {
        /// Its directory.
        dir: PathBuf,
        /// The group's error.
        #[source]
        source: GroupError,
    },
    /// The share server does not start.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// Keys or certificates cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The name is not valid for a machine.
    #[error(transparent)]
    Name(#[from] EnrolError),
    /// This machine cannot listen for other machines.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The only server has lost its state.
    #[error(
        "{0}. There is no other server to have it from: keep this data directory as it is, and restore the latest backup into another (leasehold restore)"
    )]
    Alone(String),
    /// The only server has an older state than it once had.
    #[error(
        "{0}: this server's disk is an older copy. Put back the latest state; or go on with this one, which ends all sessions and does without what was acknowledged since (leasehold up --accept-older-state)"
    )]
    Older(String),
    /// Another error of the operating system.
    #[error("cannot {verb}")]
    Io {
        /// The operation.
        verb: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// No session opened in time.
    #[error("the directory server does not answer; its log says why (RUST_LOG=info)")]
    NoSession,
    /// No session opened in time, for a known reason.
    #[error("the server at {server} cannot be reached: {why}")]
    Unreachable {
        /// Its address.
        server: String,
        /// The latest failure.
        why: String,
    },
    /// The machine has ended before all changes were applied. The rest is on its disk.
    #[error(
        "{count} changes could not be applied at the server; they are kept in {dir} with their content, and the next start goes on with them, unless the machine's session is over by then (leasehold salvage list)"
    )]
    LeftForNextStart {
        /// The number of changes.
        count: usize,
        /// The directory of the salvage.
        dir: PathBuf,
    },
    /// The machine has ended, and some changes made on it will not be applied.
    #[error(
        "not everything could be applied at the server; what is missing is kept in {dir} (leasehold salvage list)"
    )]
    Salvaged {
        /// The directory of the salvage.
        dir: PathBuf,
    },
    /// The machine has ended, and the changes that were not applied are lost.
    #[error(
        "{count} changes could not be applied at the server, and could not be kept either: they are lost"
    )]
    Lost {
        /// The number of changes.
        count: usize,
        /// The reason why they could not be kept, if it is known here.
        #[source]
        why: Option<DataError>,
    },
}

impl MachineError {
    /// Whether this machine's server has lost its state, so that it cannot be the member it was.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, MachineError::Group { source, .. } if source.is_damage())
    }
}

/// Why a server has no authority to certify machines with, or cannot certify one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    /// The server does not know an authority yet.
    #[error("this server has only just begun; try again")]
    JustBegun,
    /// The authority's row holds no usable key.
    #[error(transparent)]
    Key(#[from] NoKey),
    /// No certificate can be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

impl From<AuthorityError> for ControlRefusal {
    fn from(error: AuthorityError) -> ControlRefusal {
        match error {
            AuthorityError::JustBegun => ControlRefusal::JustBegun,
            AuthorityError::Key(_) | AuthorityError::Certificate(_) => {
                ControlRefusal::Failed { doing: RequestWork::Certifying, why: error.to_string() }
            }
        }
    }
}

/// The refusal of a request because some of its work has failed, with all causes.
pub(crate) fn failed(doing: RequestWork, error: &dyn std::error::Error) -> ControlRefusal {
    ControlRefusal::Failed { doing, why: in_words(error) }
}

/// Starts a thread of the machine.
pub(crate) fn thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, MachineError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|source| MachineError::Io { verb: "start a thread", source })
}

/// The text of an error, with all its causes.
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
