//! People's requests to a machine, and its reports to them. Reports are data; the command line puts
//! them into words. The crate has the protocol and its socket. It cannot reach the machine, which
//! answers.

mod asking;
mod balance;
mod checks;
mod cluster;
mod map;
mod progress;
mod protocol;
mod refusal;
mod salvage;
pub mod socket;
mod status;
mod stored;

pub use asking::{
    AskError, add_server, ask, ask_live, ask_status, balance, delegate, drain, expel, invitations, invite,
    leases, machines, map, pin, remove_server, renew_authority, revoke, scrub, servers, shares,
    switch_balance,
};
pub use balance::{BalanceReport, BalanceSwitch, KeptWhy, LoadPair, ServerLoad};
pub use checks::{FsckFault, FsckReport, ScrubReport};
pub use cluster::{
    AuthorityReport, ContentKeeping, FileLeases, Invitation, InvitationReport, Invited, LeaseLine,
    LeaseRight, LeaseStanding, MachineName, MachineReport, MachineStanding, RightsReport, ServerStanding,
};
pub use map::{MapEntry, MapReport, MovedWhy, PinnedFile, RegionMove, ServerOfMap};
pub use progress::{ControlNote, ControlProgress};
pub use protocol::{ControlReply, ControlRequest};
pub use refusal::{ControlRefusal, RequestWork};
pub use salvage::{Change, Existing, Salvaged, SalvagedChange, SalvagedContent, SalvagedItem};
pub use status::{
    CallReport, CallWait, ClientReport, Hint, HostReport, LinkReport, LiveReport, Role, ServerReport,
    StatusReport, TrafficReport, UnresponsiveReport, VersionReport, VersionWait,
};
pub use stored::{
    AccountReport, Allowance, DeletionReport, EndedLeases, GarbageReport, HostStore, KeptBy, KeptShares,
    LeasesReport, ParcelFault, ParcelReport, ShareAccount, ShareLeaseReport, ShareReport, SharesRequest,
    StoredState, StoresReport, UsageReport,
};
pub use wire::{ExpelError, InviteError, RevokeError};

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use std::fmt::Debug;

    /// Holds a value to its JSON, in both directions.
    fn is<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, json: serde_json::Value) {
        assert_eq!(serde_json::to_value(value).unwrap(), json);
        assert_eq!(serde_json::from_value::<T>(json).unwrap(), *value);
    }

    #[test]
    fn tags_stand_beside_the_fields_of_a_report() {
        let (lease, of) = (LeaseRight::Read, Some("a".to_owned()));
        let line = |standing| LeaseLine {
            field: "child".to_owned(),
            of: of.clone(),
            machine: "hall".to_owned(),
            standing,
            last_recall_ms: None,
        };
        is(
            &line(LeaseStanding::Holds { lease, left_ms: 9 }),
            json!({"field": "child", "of": "a", "machine": "hall", "standing": "holds", "lease": "read", "left_ms": 9, "last_recall_ms": null}),
        );
        is(
            &line(LeaseStanding::Excluded),
            json!({"field": "child", "of": "a", "machine": "hall", "standing": "excluded", "last_recall_ms": null}),
        );
        let kept = |by| KeptShares { by, sum: Default::default(), until: Some(1) };
        let account = ShareAccount::Uploads { machine: 3, machine_name: None, session: 7 };
        is(
            &kept(KeptBy::Lease { account }),
            json!({"by": "lease", "account": "uploads", "machine": 3, "machine_name": null, "session": 7, "shares": 0, "bytes": 0, "until": 1}),
        );
        is(&kept(KeptBy::GracePeriod), json!({"by": "grace_period", "shares": 0, "bytes": 0, "until": 1}));
    }

    #[test]
    fn refusals_and_progress_are_known_by_their_kinds() {
        let machine = || "hall".to_owned();
        is(&ControlRefusal::NoServer, json!({"kind": "no_server"}));
        is(
            &ControlRefusal::NoMachine { machine: machine() },
            json!({"kind": "no_machine", "machine": "hall"}),
        );
        is(
            &ControlRefusal::Failed { doing: RequestWork::BackingUp, why: "broken".to_owned() },
            json!({"kind": "failed", "doing": "backing_up", "why": "broken"}),
        );
        let why = RevokeError::Used(wire::MachineId(3));
        is(&ControlRefusal::Revoke { why }, json!({"kind": "revoke", "why": {"Used": 3}}));
        is(
            &ControlProgress::Behind { machine: machine(), entries: None },
            json!({"kind": "behind", "machine": "hall", "entries": null}),
        );
        let at = backup::BackupProgress::Pruning;
        is(&ControlProgress::Backup { at }, json!({"kind": "backup", "at": {"kind": "pruning"}}));
        is(&ControlNote::NotFlushed, json!("not_flushed"));
    }
}
