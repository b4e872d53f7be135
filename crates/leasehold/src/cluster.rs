//! `leasehold invite`, `invitations`, `join`, `leave`, `machines`, `expel`.

use crate::answer::Answer;
use crate::confirm::Confirm;
use crate::table::table;
use crate::words::Words;
use crate::{Failure, arguments, places, service};
use admin::{Invitation, InvitationReport, MachineReport};
use clap::{Args, Subcommand};
use figures::date;
use node::SalvageStore;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// See the command's help.
#[derive(Debug, Args)]
pub struct Invite {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The only directory that the machine may see, by its path from the root of the file system.
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
    /// The machine may change nothing.
    #[arg(long)]
    read_only: bool,
    /// All users of the machine count as this one.
    #[arg(long, value_name = "UID", value_parser = arguments::user)]
    squash: Option<u32>,
    /// Hours until the token expires.
    #[arg(long, value_name = "HOURS", default_value_t = 24.0, value_parser = arguments::hours)]
    hours: f64,
    /// Where the machine is to call this one (again for more); the addresses of this machine if
    /// there is none.
    #[arg(long = "address", value_name = "HOST:PORT", value_parser = arguments::host_and_port)]
    addresses: Vec<String>,
}

impl Invite {
    /// Prints the token, and nothing else on standard output.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let invitation = Invitation {
            path: places::below_root(&data, self.path),
            read_only: self.read_only,
            squash: self.squash,
            good_for_s: (self.hours * 3600.0) as u64,
            addresses: self.addresses,
        };
        let invited = admin::invite(&data, invitation)?;
        Answer::told(&invited, &invited.token)
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Join {
    /// The token that `leasehold invite` printed; - reads it from standard input, @FILE from a
    /// file.
    token: String,
    /// A name for this machine; its host name if absent.
    #[arg(long)]
    name: Option<String>,
    /// Where this machine is to keep its part. Made for this.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Join {
    /// Joins.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        Answer::of(&join(&data, &self.token, self.name)?)
    }
}

/// A machine that has joined.
#[derive(Debug, Serialize)]
pub struct Joined {
    /// Its number.
    machine: u64,
    /// Its name.
    name: String,
    /// Its data directory.
    data: String,
}

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "joined as {}, machine {}; next: leasehold up", self.name, self.machine)
    }
}

/// Makes `data` a machine of the token's cluster, called `name`, or by its host's name.
pub fn join(data: &Path, token: &str, name: Option<String>) -> Result<Joined, Failure> {
    let token = crate::token::token(token)?;
    let name = name.unwrap_or_else(places::host_name);
    let machine = node::join(data, &token, &name)?.0;
    let joined = Joined { machine, name, data: data.display().to_string() };
    service::has_come_to(&joined.to_string());
    Ok(joined)
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Machines {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Machines {
    /// Lists the machines.
    pub fn run(self) -> Result<Answer, Failure> {
        let machines = admin::machines(&self.data.map_or_else(places::data, Ok)?)?;
        let row = |machine: &MachineReport| {
            let number = machine.machine.to_string();
            [number, machine.name.clone(), Words(&machine.rights).to_string(), Words(machine).to_string()]
        };
        Answer::told(&machines, table(["NUMBER", "NAME", "MAY", "STANDING"], machines.iter().map(row)))
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Expel {
    /// The machine's name, or its number.
    machine: String,
    /// This machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    confirm: Confirm,
}

impl Expel {
    /// Expels the machine.
    pub fn run(self) -> Result<Answer, Failure> {
        let who = &self.machine;
        self.confirm.ask(&format!(
            "{who} will be out at once, what it has not sent will not be applied, and it cannot come back as the same machine."
        ))?;
        let expelled = admin::expel(&self.data.map_or_else(places::data, Ok)?, &self.machine)?;
        Answer::told(&expelled, format!("{} is no machine of this cluster any more", self.machine))
    }
}

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum Invitations {
    /// The invitations that nobody has joined by.
    List {
        /// The machine's data directory.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Nobody is to join by an invitation any more.
    Revoke {
        /// The invitation, as `list` names it.
        id: String,
        /// The machine's data directory.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

/// A revoked invitation.
#[derive(Serialize)]
struct Revoked<'a> {
    id: &'a str,
}

impl Invitations {
    /// Lists the invitations, or revokes one.
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            Invitations::List { data } => {
                let invitations = admin::invitations(&data.map_or_else(places::data, Ok)?)?;
                let row = |invitation: &InvitationReport| {
                    let InvitationReport { id, rights, until, expired } = invitation;
                    let over = if *expired { "expired" } else { "" };
                    [id.clone(), Words(rights).to_string(), date(*until), over.to_owned()]
                };
                let rows = invitations.iter().map(row);
                Answer::told(&invitations, table(["INVITATION", "MAY", "UNTIL", ""], rows))
            }
            Invitations::Revoke { id, data } => {
                admin::revoke(&data.map_or_else(places::data, Ok)?, &id)?;
                let words = format!("nobody joins by invitation {id} any more");
                Answer::told(&Revoked { id: &id }, words)
            }
        }
    }
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Leave {
    /// The machine's data directory, which goes.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    confirm: Confirm,
}

/// A machine that has left the cluster.
#[derive(Serialize)]
struct Left {
    data: String,
}

impl Leave {
    /// Leaves.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let kept = SalvageStore::open(&data)?.count();
        if kept > 0 && !self.confirm.is_given() {
            let text = format!(
                "{kept} times something of this machine could not be applied, and its content is in {} alone: leasehold salvage list, then leasehold leave --yes, which deletes it",
                data.display()
            );
            return Err(text.into());
        }
        self.confirm.ask(&format!(
            "This machine will be none of the cluster, and {} will be gone.",
            data.display()
        ))?;
        node::leave(&data)?;
        let left = Left { data: data.display().to_string() };
        Answer::told(&left, "this machine has left; what it had stored is at the servers")
    }
}
