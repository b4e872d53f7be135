//! `leasehold authority`: what certifies the cluster's machines.

use crate::answer::Answer;
use crate::progress::step_of;
use crate::{Failure, places};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// See the command's help.
#[derive(Debug, Subcommand)]
pub enum AuthorityCommand {
    /// Have another key certify machines from now on. Nobody has had it but the servers that there
    /// are.
    ///
    /// For when a server's disk was stolen or copied. Removing a server does so by itself. Machines
    /// that are up have new certificates at once, others when they are up again; earlier ones are
    /// refused then. Invitations from before are void. A machine that was away while the key was
    /// renewed sixteen times joins anew.
    Renew(Renew),
}

/// See the command's help.
#[derive(Debug, Args)]
pub struct Renew {
    /// The data directory of a server on this machine.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl AuthorityCommand {
    /// Renews the authority.
    pub fn run(self) -> Result<Answer, Failure> {
        let AuthorityCommand::Renew(Renew { data }) = self;
        let renewed = admin::renew_authority(&data.map_or_else(places::data, Ok)?, &mut step_of)?;
        // The steps are already reported.
        Answer::told(&renewed, "")
    }
}
