//! `leasehold policy`: how content is spread over machines.

use crate::answer::say;
use crate::{Failure, places};
use clap::{Args, Subcommand};
use namespace::{NoPolicy, POLICY, Spread};
use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use std::ffi::CString;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Set how many copies or fragments of a file's content are kept; for a directory, of the files
    /// made in it from now on.
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

/// A policy cannot be set or told.
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

impl PolicyCommand {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            PolicyCommand::Get { path } => say(get(&path)?)?,
            PolicyCommand::Set(set) => set.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Set {
    fn run(self) -> Result<(), Failure> {
        set(&self.path, self.policy)?;
        if self.recursive && self.path.symlink_metadata()?.is_dir() {
            set_below(&self.path, self.policy)?;
        }
        let machines = match self.policy {
            Spread::Usual => 1,
            Spread::Copies(copies) => copies.into(),
            Spread::Code { data, parity } => usize::from(data + parity),
        };
        let note = match node::servers(&self.data.map_or_else(places::data, Ok)?) {
            Ok(servers) if servers.len() < machines => format!(
                "note: that is for {machines} servers and there are {}; what is written is spread further once there are more: leasehold server add",
                servers.len()
            ),
            Err(_) if machines > 1 => format!(
                "note: that is for {machines} servers; how many there are is known on a server: leasehold server list"
            ),
            _ => return Ok(()),
        };
        writeln!(std::io::stderr(), "{note}")?;
        Ok(())
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

/// All files and directories below. What goes meanwhile is left out.
fn set_below(dir: &Path, policy: Spread) -> Result<(), PolicyError> {
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
        if kind.is_dir() {
            set_below(&path, policy)?;
        }
    }
    Ok(())
}

fn name() -> CString {
    CString::new(POLICY).unwrap_or_default()
}
