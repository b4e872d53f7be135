//! The reasons why a machine does not answer.

use super::Words;
use admin::{AskError, ControlRefusal as Refused};
use std::fmt;

impl fmt::Display for Words<'_, AskError> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            AskError::Refused(refusal) => write!(f, "the running machine says: {}", Words(refusal)),
            error => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for Words<'_, Refused> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Refused::NoServer => {
                "this machine has no server; ask on one that has: leasehold status says where it is"
            }
            Refused::ServerGone => "this machine has no server",
            Refused::ServerEnded => "this server has ended; its log says why",
            Refused::Stopping => "this machine is being stopped",
            Refused::OnlyHere => "only on this machine itself can that be asked for",
            Refused::AnotherLeads => "another server leads now",
            Refused::LeadLostAdding => "another server leads now; look at: leasehold server list",
            Refused::LeadLostDraining => "another server leads now; ask again to hear how far it is",
            Refused::NotListening => "this machine does not listen: start it with --listen ADDRESS:PORT",
            Refused::AuthorityUnanswered => "the directory does not answer",
            Refused::JustBegun => "this server has only just begun; try again",
            Refused::RenewedMeanwhile => "the authority was renewed by somebody else at the same time",
            Refused::OnlyServer => {
                "the only server cannot be removed, since it has everything: leasehold server add MACHINE makes another first"
            }
            Refused::OnlyKeeper => {
                "there is no other server that keeps content: leasehold server add MACHINE makes one first"
            }
            Refused::DiskFull => "the disk is full",
            Refused::Failed { why, .. } => why,
            Refused::NoDirectory { path } => {
                return write!(
                    f,
                    "there is no directory {path} (paths begin at the root of the file system)"
                );
            }
            Refused::NoFile { path } => {
                return write!(f, "there is no file {path} (paths begin at the root of the file system)");
            }
            Refused::NoMachine { machine } => {
                return write!(f, "there is no machine {machine}: leasehold machines lists them");
            }
            Refused::NoInvitation { id } => {
                return write!(f, "no invitation {id} is open: leasehold invitations list has them");
            }
            Refused::Invite { why } => return write!(f, "{why}"),
            Refused::Revoke { why } => return write!(f, "{why}"),
            Refused::Expel { why } => return write!(f, "{why}"),
            Refused::DirectorySilent { within_s } => {
                return write!(
                    f,
                    "the directory does not answer within {within_s} s: leasehold status says why"
                );
            }
            Refused::IsServer { machine } => {
                return write!(f, "{machine} is a server: leasehold server remove {machine} first");
            }
            Refused::ServesAlready { machine } => {
                return write!(f, "{machine} is a server already: leasehold server list says how it stands");
            }
            Refused::DoesNotServe { machine } => {
                return write!(f, "{machine} does not begin to serve; its log says why (is it up?)");
            }
            Refused::NoSuchServer { server } => {
                return write!(f, "the directory has no server {server}: leasehold map lists them");
            }
            Refused::ServerNotReady { server } => {
                return write!(
                    f,
                    "server {server} of the directory has no leader, or fewer members that vote than server 0: leasehold map shows them; try again"
                );
            }
            Refused::RegionStays { path } => {
                return write!(
                    f,
                    "{path} stays where it is: a file in it is open or locked, or a machine has not released it in time (leasehold leases PATH); try again"
                );
            }
            Refused::NotPinned { path } => {
                return write!(f, "{path} is not pinned: leasehold map lists what is");
            }
            Refused::LeadsYet { machine } => {
                return write!(f, "{machine} leads, and another server will in a moment: try again");
            }
            Refused::ServersStay { machine } => {
                return write!(
                    f,
                    "servers of the directory still have a member on {machine}, and the others do not take over: leasehold map shows them; try again"
                );
            }
            Refused::NotServer { machine } => return write!(f, "{machine} is no server"),
            Refused::NoKey { key } => return write!(f, "{key} is no key: one has 64 hexadecimal digits"),
            Refused::NoAccount { account } => return write!(f, "there is no key's account {account} here"),
            Refused::NoShare { name } => {
                return write!(
                    f,
                    "{name} is no share, which has 32 hexadecimal digits; files have paths only while the machine is up"
                );
            }
            Refused::NoShareOrFile { name } => {
                return write!(f, "{name} is neither a share, which has 32 hexadecimal digits, nor a file (paths begin at the root of the file system)");
            }
            Refused::NoShares { data } => return write!(f, "there are no shares in {data}"),
            Refused::Exists { file } => return write!(f, "{file} is there already"),
            Refused::File { file, why } => return write!(f, "{file}: {why}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{ExpelError, InviteError, RequestWork, RevokeError};

    /// Every refusal with its words. Documents and scripts have these, too.
    fn refusals() -> Vec<(Refused, &'static str)> {
        let name = || "hall".to_owned();
        let path = || "/a".to_owned();
        vec![
            (
                Refused::NoServer,
                "this machine has no server; ask on one that has: leasehold status says where it is",
            ),
            (Refused::ServerGone, "this machine has no server"),
            (Refused::ServerEnded, "this server has ended; its log says why"),
            (Refused::Stopping, "this machine is being stopped"),
            (Refused::OnlyHere, "only on this machine itself can that be asked for"),
            (Refused::AnotherLeads, "another server leads now"),
            (Refused::LeadLostAdding, "another server leads now; look at: leasehold server list"),
            (Refused::LeadLostDraining, "another server leads now; ask again to hear how far it is"),
            (Refused::NotListening, "this machine does not listen: start it with --listen ADDRESS:PORT"),
            (
                Refused::NoDirectory { path: path() },
                "there is no directory /a (paths begin at the root of the file system)",
            ),
            (
                Refused::NoFile { path: path() },
                "there is no file /a (paths begin at the root of the file system)",
            ),
            (
                Refused::NoMachine { machine: name() },
                "there is no machine hall: leasehold machines lists them",
            ),
            (
                Refused::NoInvitation { id: "0a1b".to_owned() },
                "no invitation 0a1b is open: leasehold invitations list has them",
            ),
            (
                Refused::DirectorySilent { within_s: 30 },
                "the directory does not answer within 30 s: leasehold status says why",
            ),
            (Refused::AuthorityUnanswered, "the directory does not answer"),
            (Refused::JustBegun, "this server has only just begun; try again"),
            (Refused::RenewedMeanwhile, "the authority was renewed by somebody else at the same time"),
            (Refused::IsServer { machine: name() }, "hall is a server: leasehold server remove hall first"),
            (
                Refused::ServesAlready { machine: name() },
                "hall is a server already: leasehold server list says how it stands",
            ),
            (
                Refused::DoesNotServe { machine: name() },
                "hall does not begin to serve; its log says why (is it up?)",
            ),
            (Refused::NoSuchServer { server: 9 }, "the directory has no server 9: leasehold map lists them"),
            (
                Refused::ServerNotReady { server: 2 },
                "server 2 of the directory has no leader, or fewer members that vote than server 0: leasehold map shows them; try again",
            ),
            (
                Refused::RegionStays { path: path() },
                "/a stays where it is: a file in it is open or locked, or a machine has not released it in time (leasehold leases PATH); try again",
            ),
            (Refused::NotPinned { path: path() }, "/a is not pinned: leasehold map lists what is"),
            (
                Refused::LeadsYet { machine: name() },
                "hall leads, and another server will in a moment: try again",
            ),
            (
                Refused::ServersStay { machine: name() },
                "servers of the directory still have a member on hall, and the others do not take over: leasehold map shows them; try again",
            ),
            (Refused::NotServer { machine: name() }, "hall is no server"),
            (
                Refused::OnlyServer,
                "the only server cannot be removed, since it has everything: leasehold server add MACHINE makes another first",
            ),
            (
                Refused::OnlyKeeper,
                "there is no other server that keeps content: leasehold server add MACHINE makes one first",
            ),
            (Refused::NoKey { key: "k".to_owned() }, "k is no key: one has 64 hexadecimal digits"),
            (Refused::NoAccount { account: name() }, "there is no key's account hall here"),
            (
                Refused::NoShare { name: path() },
                "/a is no share, which has 32 hexadecimal digits; files have paths only while the machine is up",
            ),
            (
                Refused::NoShareOrFile { name: path() },
                "/a is neither a share, which has 32 hexadecimal digits, nor a file (paths begin at the root of the file system)",
            ),
            (Refused::NoShares { data: path() }, "there are no shares in /a"),
            (Refused::Exists { file: path() }, "/a is there already"),
            (Refused::File { file: path(), why: "broken".to_owned() }, "/a: broken"),
            (Refused::DiskFull, "the disk is full"),
            (Refused::Failed { doing: RequestWork::BackingUp, why: "broken".to_owned() }, "broken"),
        ]
    }

    #[test]
    fn each_refusal_is_told_in_words() {
        for (refusal, words) in refusals() {
            assert_eq!(Words(&refusal).to_string(), words);
            let asked = AskError::Refused(refusal);
            assert_eq!(Words(&asked).to_string(), format!("the running machine says: {words}"));
        }
    }

    /// The directory's own reasons keep their words.
    #[test]
    fn the_directory_says_why_it_refuses() {
        let refusals = [
            (
                Refused::Invite { why: InviteError::TooMany },
                "too many invitations are open: wait until some have expired",
            ),
            (Refused::Revoke { why: RevokeError::Unknown }, "there is no such invitation"),
            (Refused::Expel { why: ExpelError::Expelled }, "the machine has been expelled already"),
        ];
        for (refusal, words) in refusals {
            assert_eq!(Words(&refusal).to_string(), words);
        }
    }
}
