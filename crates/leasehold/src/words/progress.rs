//! How far a machine is with a request.

use super::Words;
use admin::ControlProgress as Progress;
use figures::size;
use std::fmt;

impl fmt::Display for Words<'_, Progress> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Progress::AskedToServe { machine } => write!(f, "{machine} is asked to serve"),
            Progress::Behind { machine, entries } => {
                let entries = entries.map_or("all".to_owned(), |entries| entries.to_string());
                write!(f, "{machine} is {entries} entries behind")
            }
            Progress::Serves { machine } => write!(f, "{machine} serves"),
            Progress::KeepsAgain { machine } => write!(f, "{machine} keeps content again"),
            Progress::Removed { machine } => write!(f, "{machine} is no server any more"),
            Progress::Draining { machine, left, missing } => {
                let left = left.map_or("unknown".to_owned(), |left| left.to_string());
                write!(f, "{left} shares left at {machine}, {missing} still to be fetched by others")
            }
            Progress::Drained { machine } => write!(f, "{machine} keeps nothing that others do not"),
            Progress::ServerFounded { server } => {
                write!(f, "server {server} of the directory is made, and gets its members")
            }
            Progress::Delegating { region, from, to } => {
                write!(f, "{region} goes from server {from} to server {to}")
            }
            Progress::AuthorityRenewed => f.write_str(
                "another authority certifies machines; those that are up have its certificates in a moment, the others when they are",
            ),
            Progress::AuthorityReplaced => f.write_str(
                "invitations from before are void; backups from before have the earlier authority's key",
            ),
            Progress::CheckedRows { rows } => write!(f, "the tree: {rows} rows"),
            Progress::CheckedContent { pieces, bytes } => {
                write!(f, "content: {pieces} pieces, {}", size(*bytes))
            }
            Progress::ScrubbedRows { bytes } => write!(f, "{} of rows and log read", size(*bytes)),
            Progress::ScrubbedShares { shares, damaged } => {
                write!(f, "{shares} shares read, {damaged} of them damaged")
            }
            Progress::Comparing => f.write_str("looking through what files refer to"),
            Progress::Held => {
                f.write_str("a backup is being made; until it is, nothing that it may need goes")
            }
            Progress::Parcelled { shares, bytes } => write!(f, "{shares} shares, {}", size(*bytes)),
            Progress::Backup { at } => write!(f, "{}", Words(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backup::BackupProgress;

    #[test]
    fn each_progress_is_told_in_words() {
        let machine = || "hall".to_owned();
        let told = [
            (Progress::AskedToServe { machine: machine() }, "hall is asked to serve"),
            (Progress::Behind { machine: machine(), entries: Some(3) }, "hall is 3 entries behind"),
            (Progress::Behind { machine: machine(), entries: None }, "hall is all entries behind"),
            (Progress::Serves { machine: machine() }, "hall serves"),
            (Progress::KeepsAgain { machine: machine() }, "hall keeps content again"),
            (Progress::Removed { machine: machine() }, "hall is no server any more"),
            (
                Progress::Draining { machine: machine(), left: Some(2), missing: 1 },
                "2 shares left at hall, 1 still to be fetched by others",
            ),
            (
                Progress::Draining { machine: machine(), left: None, missing: 0 },
                "unknown shares left at hall, 0 still to be fetched by others",
            ),
            (Progress::Drained { machine: machine() }, "hall keeps nothing that others do not"),
            (
                Progress::ServerFounded { server: 3 },
                "server 3 of the directory is made, and gets its members",
            ),
            (
                Progress::Delegating { region: "1.2".to_owned(), from: 0, to: 3 },
                "1.2 goes from server 0 to server 3",
            ),
            (
                Progress::AuthorityRenewed,
                "another authority certifies machines; those that are up have its certificates in a moment, the others when they are",
            ),
            (
                Progress::AuthorityReplaced,
                "invitations from before are void; backups from before have the earlier authority's key",
            ),
            (Progress::CheckedRows { rows: 7 }, "the tree: 7 rows"),
            (Progress::CheckedContent { pieces: 7, bytes: 2048 }, "content: 7 pieces, 2.0 KiB"),
            (Progress::ScrubbedRows { bytes: 2048 }, "2.0 KiB of rows and log read"),
            (Progress::ScrubbedShares { shares: 7, damaged: 1 }, "7 shares read, 1 of them damaged"),
            (Progress::Comparing, "looking through what files refer to"),
            (Progress::Held, "a backup is being made; until it is, nothing that it may need goes"),
            (Progress::Parcelled { shares: 7, bytes: 2048 }, "7 shares, 2.0 KiB"),
            (Progress::Backup { at: BackupProgress::Pruning }, "removing what is not kept any more"),
        ];
        for (progress, words) in told {
            assert_eq!(Words(&progress).to_string(), words);
        }
    }
}
