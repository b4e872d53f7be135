//! Users and shares of a machine: two small files of its data directory, which only its owner can
//! read. The commands write them; the server reads them at each logon and tree connect.

use crypto::smb::nt_hash;
use data_dir::{DataError, read_file, replace_file};
use namespace::Cred;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

const USERS: &str = "smb-users.json";
const SHARES: &str = "smb-shares.json";

/// A user who may log on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The name, which is matched without regard to case.
    pub name: String,
    /// The user on the file system.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// None if the user has no password, and logs on with Kerberos alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nt_hash: Option<NtHash>,
}

/// The hash of a password. It is as good as the password for whoever reads it, so no log has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct NtHash([u8; 16]);

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(..)")
    }
}

impl User {
    /// Makes a user. One without a password logs on with Kerberos alone.
    pub fn new(name: &str, password: Option<&str>, uid: u32, gid: u32, groups: Vec<u32>) -> User {
        User { name: name.to_owned(), uid, gid, groups, nt_hash: password.map(nt_hash).map(NtHash) }
    }

    /// Returns the hash of the password.
    pub(crate) fn hash(&self) -> Option<[u8; 16]> {
        Some(self.nt_hash.as_ref()?.0)
    }

    /// Returns the user as the file system knows users.
    pub fn cred(&self) -> Cred {
        let groups = self.groups.iter().copied().collect();
        Cred { uid: self.uid, gid: self.gid, groups, ..Cred::default() }
    }
}

/// A directory that is shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The name, which is matched without regard to case.
    pub name: String,
    /// The directory, from the root of the file system.
    pub path: String,
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// Messages must be encrypted.
    pub encrypt: bool,
    /// Clients get persistent handles: their opens outlive the server.
    #[serde(default)]
    pub continuous: bool,
    /// Listings have only what their user may read.
    #[serde(default)]
    pub hide_unreadable: bool,
}

impl Share {
    /// The share of a directory for all that its users may do there.
    pub fn new(name: &str, path: &str) -> Share {
        Share {
            name: name.to_owned(),
            path: path.to_owned(),
            read_only: false,
            encrypt: false,
            continuous: false,
            hide_unreadable: false,
        }
    }
}

/// A failure to read or change users or shares.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// A file of the data directory cannot be read or written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file of the data directory has other content.
    #[error("{file} in the data directory cannot be understood: {source}")]
    Format {
        /// The file.
        file: &'static str,
        /// The cause.
        source: serde_json::Error,
    },
    /// There is one already.
    #[error("there is {0} already; remove it first")]
    Exists(String),
    /// There is none.
    #[error("there is no {0}")]
    Unknown(String),
    /// The name cannot be one.
    #[error("{0:?} is no name: 1 to 80 characters, none of them a control or one of \\ / : * ? \" < > | $")]
    BadName(String),
}

fn read<T: for<'a> Deserialize<'a>>(data: &Path, file: &'static str) -> Result<Vec<T>, AccountError> {
    let Some(bytes) = read_file(data, file)? else { return Ok(Vec::new()) };
    serde_json::from_slice(&bytes).map_err(|source| AccountError::Format { file, source })
}

fn write<T: Serialize>(data: &Path, file: &'static str, all: &[T]) -> Result<(), AccountError> {
    let bytes = serde_json::to_vec(all).map_err(|source| AccountError::Format { file, source })?;
    Ok(replace_file(data, file, &bytes)?)
}

fn is_name(name: &str) -> bool {
    let forbidden = |c: char| c.is_control() || "\\/:*?\"<>|$".contains(c);
    (1..=80).contains(&name.chars().count()) && !name.contains(forbidden) && !are_same(name, "IPC")
}

/// Returns whether two names are one.
pub(crate) fn are_same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

/// Returns the users.
pub fn users(data: &Path) -> Result<Vec<User>, AccountError> {
    read(data, USERS)
}

/// Adds a user.
pub fn add_user(data: &Path, user: User) -> Result<(), AccountError> {
    let mut all = users(data)?;
    if !is_name(&user.name) {
        return Err(AccountError::BadName(user.name));
    }
    if all.iter().any(|other| are_same(&other.name, &user.name)) {
        return Err(AccountError::Exists(format!("a user {}", user.name)));
    }
    all.push(user);
    write(data, USERS, &all)
}

/// Removes a user. Sessions go on until they end.
pub fn remove_user(data: &Path, name: &str) -> Result<(), AccountError> {
    let mut all = users(data)?;
    let before = all.len();
    all.retain(|user| !are_same(&user.name, name));
    if all.len() == before {
        return Err(AccountError::Unknown(format!("user {name}")));
    }
    write(data, USERS, &all)
}

/// Returns the shares.
pub fn shares(data: &Path) -> Result<Vec<Share>, AccountError> {
    read(data, SHARES)
}

/// Adds a share.
pub fn add_share(data: &Path, share: Share) -> Result<(), AccountError> {
    let mut all = shares(data)?;
    if !is_name(&share.name) {
        return Err(AccountError::BadName(share.name));
    }
    if all.iter().any(|other| are_same(&other.name, &share.name)) {
        return Err(AccountError::Exists(format!("a share {}", share.name)));
    }
    all.push(share);
    write(data, SHARES, &all)
}

/// Removes a share. Tree connects go on until they end.
pub fn remove_share(data: &Path, name: &str) -> Result<(), AccountError> {
    let mut all = shares(data)?;
    let before = all.len();
    all.retain(|share| !are_same(&share.name, name));
    if all.len() == before {
        return Err(AccountError::Unknown(format!("share {name}")));
    }
    write(data, SHARES, &all)
}

/// The accounts as the server needs them: none can be used as long as their file cannot be read.
pub(crate) struct Accounts(PathBuf);

impl Accounts {
    /// Returns those of a data directory.
    pub(crate) fn new(data: PathBuf) -> Accounts {
        Accounts(data)
    }

    /// Returns the user of this name.
    pub(crate) fn user(&self, name: &str) -> Option<User> {
        let all = users(&self.0).inspect_err(|error| tracing::error!(%error, "nobody can log on over SMB"));
        all.ok()?.into_iter().find(|user| are_same(&user.name, name))
    }

    /// Returns the shares.
    pub(crate) fn shares(&self) -> Vec<Share> {
        let all =
            shares(&self.0).inspect_err(|error| tracing::error!(%error, "no share can be used over SMB"));
        all.unwrap_or_default()
    }
}
