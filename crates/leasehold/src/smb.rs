//! SMB: the front door of `up --smb`, and `leasehold smb`, `share` and `user`.

use crate::answer::Answer;
use crate::table::table;
use crate::{Failure, arguments, places};
use admin::socket::{accept, bind, connect};
use clap::{Args, Subcommand};
use objects::Store;
use serde::Serialize;
use smb::accounts::{Share, User, add_share, add_user, remove_share, remove_user, shares, users};
use smb::{Listening, Mechanisms, Server, ServerReport};
use std::io::{BufRead, ErrorKind, IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The socket in the data directory by which `leasehold smb status` asks.
const SOCKET: &str = "smb";
/// The longest report, bytes.
const REPORT_BYTES_MAX: u64 = 64 << 20;

/// A machine that serves SMB. Dropping it ends all connections.
pub struct SmbListener {
    listening: Listening,
    socket: PathBuf,
    stops: Arc<AtomicBool>,
}

impl SmbListener {
    /// Serves the shares of the machine `name` on `data` from now on.
    pub fn open(store: Arc<Store>, data: &Path, name: &str, place: SmbPlace) -> Result<SmbListener, Failure> {
        let SmbPlace { address, mechanisms } = place;
        let server = Server::new(store, data.to_path_buf(), name, mechanisms)?;
        let listening = Listening::start(server.clone(), address)
            .map_err(|error| format!("cannot serve SMB at {address} (--smb): {error}"))?;
        let (socket, stops) = (data.join(SOCKET), Arc::new(AtomicBool::new(false)));
        let (listener, stopping) = (bind(&socket)?, stops.clone());
        std::thread::Builder::new().name("smb-status".to_owned()).spawn(move || {
            while !stopping.load(Relaxed) {
                match accept(&listener) {
                    Ok(mut stream) => {
                        // The asker may have gone away.
                        let _ = serde_json::to_writer(&mut stream, &server.report());
                    }
                    Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                    Err(error) => {
                        tracing::error!(%error, "leasehold smb status is not answered any more");
                        return;
                    }
                }
            }
        })?;
        Ok(SmbListener { listening, socket, stops })
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.listening.address()
    }
}

impl Drop for SmbListener {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        // This wakes the thread.
        let last = connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
        drop(last);
    }
}

/// Whether and how a machine serves SMB.
#[derive(Debug, Args)]
pub struct SmbOptions {
    /// Serve SMB, too, at port 445 of all addresses or at this one: see leasehold share and
    /// leasehold user.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "445", value_parser = arguments::listen_at)]
    smb: Option<SocketAddr>,
    /// Let users log on over SMB with Kerberos, too: the file has the keys of cifs/HOST, and its
    /// owner alone may read it.
    #[arg(long, value_name = "FILE", requires = "smb")]
    keytab: Option<PathBuf>,
    /// Let nobody log on over SMB with a password: Kerberos alone.
    #[arg(long, requires = "keytab")]
    no_ntlm: bool,
}

/// Where SMB is served, and how users log on.
pub struct SmbPlace {
    address: SocketAddr,
    mechanisms: Mechanisms,
}

impl SmbOptions {
    /// Returns where SMB is served, if it is. Fails if the keytab is of no use.
    pub fn place(self) -> Result<Option<SmbPlace>, Failure> {
        let Some(address) = self.smb else { return Ok(None) };
        let keytab = self.keytab.map(std::path::absolute).transpose()?;
        let mechanisms = Mechanisms { ntlm: !self.no_ntlm, keytab };
        mechanisms.check().map_err(|error| format!("{error} (--keytab)"))?;
        Ok(Some(SmbPlace { address, mechanisms }))
    }
}

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum SmbCommand {
    /// The SMB sessions of a running machine: users, addresses, shares, opens, leases.
    Status(DataPlace),
}

/// The data directory of a machine.
#[derive(Debug, Args)]
pub struct DataPlace {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl DataPlace {
    /// Returns the directory, which is a machine's.
    fn find(self) -> Result<PathBuf, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        if data.join("format").exists() {
            return Ok(data);
        }
        let text = format!("{} is no machine's data directory: leasehold up makes one", data.display());
        Err(text.into())
    }
}

impl SmbCommand {
    /// Prints the sessions.
    pub fn run(self) -> Result<Answer, Failure> {
        let SmbCommand::Status(place) = self;
        let data = place.find()?;
        let stream = connect(&data.join(SOCKET)).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                "this machine does not serve SMB: leasehold up --smb".to_owned()
            }
            _ => format!("the machine cannot be asked: {error}"),
        })?;
        let mut text = String::new();
        stream.take(REPORT_BYTES_MAX).read_to_string(&mut text)?;
        let report: ServerReport = serde_json::from_str(&text)?;
        let rows = report.sessions.iter().map(|session| {
            let encrypted = if session.encrypted { "yes" } else { "no" };
            [
                session.user.clone(),
                session.address.clone(),
                session.dialect.clone(),
                encrypted.to_owned(),
                session.opens.to_string(),
                session.shares.join(" "),
            ]
        });
        let mut words =
            table(["USER", "ADDRESS", "DIALECT", "ENCRYPTED", "OPENS", "SHARES"], rows.collect::<Vec<_>>());
        words.push_str(&format!(
            "{} connections, {} opens, {} leases and oplocks, {} breaks under way",
            report.connections, report.opens, report.leases, report.breaks
        ));
        Answer::told(&report, words)
    }
}

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum ShareCommand {
    /// Share a directory over SMB. Clients see it at once.
    Add {
        /// The share's name: \\MACHINE\NAME.
        name: String,
        /// The directory, by its path below the mount, or from the root of the file system.
        path: String,
        /// Let nobody change anything through it.
        #[arg(long)]
        read_only: bool,
        /// Refuse clients that do not encrypt.
        #[arg(long)]
        encrypt: bool,
        /// Let opens outlive this machine's process: clients that ask for that (SMB 3) find them
        /// again after a restart. Each change through them is durable before it is answered.
        #[arg(long)]
        continuous: bool,
        /// Leave out of listings what their user may not read (access-based enumeration).
        #[arg(long)]
        hide_unreadable: bool,
        #[command(flatten)]
        place: DataPlace,
    },
    /// Print the shares.
    List(DataPlace),
    /// Share a directory no more. Clients that are connected go on until they disconnect.
    Remove {
        /// The share's name.
        name: String,
        #[command(flatten)]
        place: DataPlace,
    },
}

impl ShareCommand {
    /// Changes or prints the shares.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            ShareCommand::Add { name, path, read_only, encrypt, continuous, hide_unreadable, place } => {
                let data = place.find()?;
                let path = shared_directory(&data, path)?;
                let share = Share { name, path, read_only, encrypt, continuous, hide_unreadable };
                add_share(&data, share.clone())?;
                Answer::told(&share, format!("{} is shared as {}", share.path, share.name))
            }
            ShareCommand::List(place) => {
                let all = shares(&place.find()?)?;
                let flag = |is: bool| if is { "yes" } else { "no" }.to_owned();
                let row = |share: &Share| {
                    [
                        share.name.clone(),
                        share.path.clone(),
                        flag(share.read_only),
                        flag(share.encrypt),
                        flag(share.continuous),
                        flag(share.hide_unreadable),
                    ]
                };
                let columns = ["NAME", "PATH", "READ-ONLY", "ENCRYPT", "CONTINUOUS", "HIDES"];
                let words = table(columns, all.iter().map(row));
                Answer::told(&all, words)
            }
            ShareCommand::Remove { name, place } => {
                remove_share(&place.find()?, &name)?;
                Answer::told(&Removed { name: &name }, format!("{name} is shared no more"))
            }
        }
    }
}

/// Returns the path, from the root of the file system, of a directory to share. It must be there if
/// the machine is up; otherwise it is found when a client connects.
fn shared_directory(data: &Path, path: String) -> Result<String, Failure> {
    let path = places::below_root(data, path);
    let Some(below) = path.strip_prefix('/') else {
        return Err(format!("{path} is neither on the mount nor a path from its root: /projects, say").into());
    };
    let mounted_on = admin::ask_status(data).ok().flatten().and_then(|status| status.mounted_on);
    match mounted_on.map(PathBuf::from) {
        Some(mount) if !mount.join(below).is_dir() => {
            let missing = format!("there is no directory {path} on {}: make it first", mount.display());
            Err(missing.into())
        }
        _ => Ok(path),
    }
}

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Let a user log on over SMB. The password is read from standard input, one line. With
    /// Kerberos the user is the principal of the same name.
    Add {
        /// The user's name.
        name: String,
        /// The user's number on the file system.
        #[arg(long, value_name = "N")]
        uid: u32,
        /// The number of the user's group; that of the user if absent.
        #[arg(long, value_name = "N")]
        gid: Option<u32>,
        /// Numbers of further groups.
        #[arg(long, value_name = "N,...", value_delimiter = ',')]
        groups: Vec<u32>,
        /// Give no password: the user logs on with Kerberos alone.
        #[arg(long)]
        no_password: bool,
        #[command(flatten)]
        place: DataPlace,
    },
    /// Print the users.
    List(DataPlace),
    /// Let a user log on no more. Sessions go on until they end.
    Remove {
        /// The user's name.
        name: String,
        #[command(flatten)]
        place: DataPlace,
    },
}

/// A user or share that is there no more.
#[derive(Serialize)]
struct Removed<'a> {
    name: &'a str,
}

/// A user, without the password's hash.
#[derive(Serialize)]
struct UserAnswer {
    name: String,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl From<&User> for UserAnswer {
    fn from(user: &User) -> UserAnswer {
        UserAnswer { name: user.name.clone(), uid: user.uid, gid: user.gid, groups: user.groups.clone() }
    }
}

impl UserCommand {
    /// Changes or prints the users.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            UserCommand::Add { name, uid, gid, groups, no_password, place } => {
                let data = place.find()?;
                let password = if no_password { None } else { Some(password()?) };
                let user = User::new(&name, password.as_deref(), uid, gid.unwrap_or(uid), groups);
                let answer = UserAnswer::from(&user);
                add_user(&data, user)?;
                Answer::told(&answer, format!("{name} can log on over SMB"))
            }
            UserCommand::List(place) => {
                let all = users(&place.find()?)?.iter().map(UserAnswer::from).collect::<Vec<UserAnswer>>();
                let row = |user: &UserAnswer| {
                    let groups = user.groups.iter().map(u32::to_string).collect::<Vec<String>>().join(" ");
                    [user.name.clone(), user.uid.to_string(), user.gid.to_string(), groups]
                };
                let words = table(["NAME", "UID", "GID", "GROUPS"], all.iter().map(row));
                Answer::told(&all, words)
            }
            UserCommand::Remove { name, place } => {
                remove_user(&place.find()?, &name)?;
                Answer::told(&Removed { name: &name }, format!("{name} can log on over SMB no more"))
            }
        }
    }
}

/// Reads a password from standard input. A terminal does not show it.
fn password() -> Result<String, Failure> {
    let input = std::io::stdin();
    let echo = |on: &str| Command::new("stty").arg(on).status();
    let is_terminal = input.is_terminal();
    if is_terminal {
        write!(std::io::stderr(), "Password: ")?;
        echo("-echo")?;
    }
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if is_terminal {
        echo("echo")?;
        writeln!(std::io::stderr())?;
    }
    read?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        Err("a password is needed, on standard input".into())
    } else {
        Ok(password.to_owned())
    }
}
