//! `leasehold policy`: how content is spread over machines.

use crate::answer::Answer;
use crate::progress::step;
use crate::{Failure, places};
use clap::{Args, Subcommand};
use namespace::{NoPolicy, POLICY, Spread};
use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::CString;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Set how many copies or fragments of a file's content are kept. For a directory, this is
    /// about files that are made in it from now on.
    ///
    /// Content that is stored already stays as it is until it is written again. Only the owner may
    /// set a policy.
    Set(Set),
    /// Print the policy of a file, or of the files made in a directory.
    Get {
        /// The file or directory, below a mount.
        path: PathBuf,
    },
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Set {
    /// The file or directory, below a mount.
    path: PathBuf,
    /// copies=N: so many servers have all of it. code=K+M: it is cut into K fragments with M more
    /// made of these, each at a server of its own; any K of them are enough. usual: three copies,
    /// or as many as there are servers.
    #[arg(value_parser = policy)]
    policy: Spread,
    /// Set the policy of everything below the directory, too.
    #[arg(long, short)]
    recursive: bool,
    /// The machine's data directory, where it says how many servers there are.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

fn policy(text: &str) -> Result<Spread, NoPolicy> {
    if text == "usual" { Ok(Spread::Usual) } else { text.parse() }
}

/// Why a policy cannot be set or read.
#[derive(Debug, thiserror::Error)]
enum PolicyError {
    #[error("{0}: no file system of leasehold")]
    Elsewhere(PathBuf),
    #[error("{0}: only the owner may say how it is kept")]
    NotOwner(PathBuf),
    #[error("{path}")]
    Path { path: PathBuf, source: std::io::Error },
}

impl PolicyError {
    fn at(path: &Path, error: Errno) -> PolicyError {
        match error {
            Errno::OPNOTSUPP => PolicyError::Elsewhere(path.to_owned()),
            Errno::PERM | Errno::ACCESS => PolicyError::NotOwner(path.to_owned()),
            error => PolicyError::Path { path: path.to_owned(), source: error.into() },
        }
    }
}

/// A policy.
#[derive(Serialize)]
struct PolicyAnswer {
    path: String,
    policy: String,
}

/// A policy that was set.
#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    told: PolicyAnswer,
    /// Files and directories that have the policy now.
    files: u64,
    /// Servers that the policy needs.
    needs: usize,
    /// Servers that there are; known on servers only.
    servers: Option<usize>,
}

impl PolicyCommand {
    /// Sets or prints a policy.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            PolicyCommand::Get { path } => {
                let told = PolicyAnswer { policy: get(&path)?.to_string(), path: path.display().to_string() };
                Answer::told(&told, &told.policy)
            }
            PolicyCommand::Set(set) => set.run(),
        }
    }
}

impl Set {
    fn run(self) -> Result<Answer, Failure> {
        set(&self.path, self.policy)?;
        let mut files = 1;
        if self.recursive && self.path.symlink_metadata()?.is_dir() {
            files += set_below(&self.path, self.policy)?;
        }
        let needs = match self.policy {
            Spread::Usual => 1,
            Spread::Copies(copies) => copies.into(),
            Spread::Code { data, parity } => usize::from(data + parity),
        };
        let servers = admin::servers(&self.data.map_or_else(places::data, Ok)?).ok();
        let servers = servers.map(|servers| servers.len());
        match servers {
            Some(servers) if servers < needs => step(&format!(
                "note: that is for {needs} servers and there are {servers}; what is written is spread further once there are more: leasehold server add"
            )),
            None if needs > 1 => step(&format!(
                "note: that is for {needs} servers; how many there are is known on a server: leasehold server list"
            )),
            _ => {}
        }
        let told = PolicyAnswer { path: self.path.display().to_string(), policy: self.policy.to_string() };
        Answer::told(&Done { told, files, needs, servers }, "")
    }
}

fn get(path: &Path) -> Result<Spread, PolicyError> {
    let mut value = [0; 32];
    match lgetxattr(path, name(), &mut value) {
        Ok(length) => Ok(Spread::of_policy(value.get(..length))),
        Err(Errno::NODATA) => Ok(Spread::Usual),
        Err(error) => Err(PolicyError::at(path, error)),
    }
}

fn set(path: &Path, policy: Spread) -> Result<(), PolicyError> {
    let done = match policy {
        Spread::Usual => lremovexattr(path, name())
            .or_else(|error| if error == Errno::NODATA { Ok(()) } else { Err(error) }),
        policy => lsetxattr(path, name(), policy.to_string().as_bytes(), XattrFlags::empty()),
    };
    done.map_err(|error| PolicyError::at(path, error))
}

/// Sets the policy of all files and directories below `dir`. Files that vanish meanwhile are left
/// out. Returns how many there are.
fn set_below(dir: &Path, policy: Spread) -> Result<u64, PolicyError> {
    let mut files = 0;
    let error = |source| PolicyError::Path { path: dir.to_owned(), source };
    for entry in dir.read_dir().map_err(error)? {
        let entry = entry.map_err(error)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(error)?);
        if kind.is_symlink()
            || kind.is_fifo()
            || kind.is_socket()
            || kind.is_char_device()
            || kind.is_block_device()
        {
            continue;
        }
        match set(&path, policy) {
            Err(PolicyError::Path { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                continue;
            }
            done => done?,
        }
        files += 1;
        if kind.is_dir() {
            files += set_below(&path, policy)?;
        }
    }
    Ok(files)
}

fn name() -> CString {
    CString::new(POLICY).expect("a name without a zero")
}
