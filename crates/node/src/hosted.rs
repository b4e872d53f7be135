//! A server of the directory at this machine: the machine's member of the server's group, and the
//! connections of clients, which the member serves while it leads.

use crate::receipts::Receipts;
use crate::routes::Routes;
use crate::space::Measured;
use directory::Input;
use ident::{FileId, ServerId};
use lease::SessionId;
use parking_lot::Mutex;
use raft::{Group, GroupId};
use std::mem;
use std::time::Instant;
use wire::{MachineId, Receipt, ServerAt, Start, ToClient, Version};

/// One server of the directory, as this machine hosts it.
pub(crate) struct HostedServer {
    id: ServerId,
    group: Group,
    routes: Mutex<Routes>,
    receipts: Receipts,
    /// The last news to clients: whether this member leads, and which members there are.
    told: Mutex<(bool, Vec<ServerAt>)>,
    /// The free space that was proposed last.
    measured: Mutex<Measured>,
    /// When this machine opened its member.
    since: Instant,
}

/// The change of the lead that a look at the standing of a server found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeadChange {
    /// This member leads, and did not before.
    Begins,
    /// It does not lead.
    Follows,
    /// It leads as before.
    GoesOn,
}

impl HostedServer {
    /// Makes the server `id`, whose member here is that of `group`.
    pub(crate) fn new(id: ServerId, group: Group, receipts: Receipts) -> HostedServer {
        let (routes, told, measured) = Default::default();
        HostedServer { id, group, routes, receipts, told, measured, since: Instant::now() }
    }

    /// The server's number.
    pub(crate) fn id(&self) -> ServerId {
        self.id
    }

    /// Whether it is the root server, which has the registry of machines and servers.
    pub(crate) fn is_root(&self) -> bool {
        self.id == ServerId::ROOT
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn routes(&self) -> &Mutex<Routes> {
        &self.routes
    }

    pub(crate) fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    pub(crate) fn measured(&self) -> &Mutex<Measured> {
        &self.measured
    }

    /// When this machine opened its member, which has counted files in use since.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// All members, as clients know them.
    pub(crate) fn members(&self) -> Vec<ServerAt> {
        self.told.lock().1.clone()
    }

    /// Takes in the leader and the members as they are now. It disconnects the clients if these
    /// have changed: their next greeting finds the leader and all members.
    pub(crate) fn look(&self, now: (bool, Vec<ServerAt>)) -> LeadChange {
        let before = mem::replace(&mut *self.told.lock(), now.clone());
        if before.0 && !now.0 || before.1 != now.1 && !before.1.is_empty() {
            self.routes.lock().hang_up();
        }
        match (before.0, now.0) {
            (false, true) => {
                *self.measured.lock() = Measured::default();
                LeadChange::Begins
            }
            (true, true) => LeadChange::GoesOn,
            (_, false) => LeadChange::Follows,
        }
    }

    /// The files that the server manages, as far as this machine's replica knows.
    pub(crate) fn files(&self) -> u64 {
        let time = self.group().status().time;
        self.group().query(|directory, _| directory.status(time).files)
    }

    /// Whether the server manages the file, as far as this machine's replica knows.
    pub(crate) fn manages(&self, file: &FileId) -> bool {
        self.group().query(|directory, _| directory.manages(file))
    }

    /// Notes a connection for the session of a machine, and the version that the machine speaks.
    /// Never blocks.
    pub(crate) fn open(
        &self,
        (machine, version): (MachineId, Version),
        start: &Start,
        session: Option<SessionId>,
        connection: u64,
    ) {
        let (incarnation, greeting) = (start.incarnation, start.number());
        let open = Input::Open { machine, incarnation, greeting, session, connection, version };
        self.group.propose(open);
    }

    /// Sends the receipts that are due. With them machines can prove how far their logs have come.
    pub(crate) fn give_receipts(&self) {
        let own = (self.group.member(), self.group.drawn());
        let mut routes = self.routes.lock();
        for receipt in self.receipts.due(own) {
            routes.send(receipt.session, ToClient::Receipt(receipt));
        }
    }

    /// Returns what this server has forgotten of its acknowledgements, if the receipt proves that.
    pub(crate) fn has_forgotten(&self, receipt: &Receipt) -> Option<&'static str> {
        if !self.receipts.are_of(receipt) {
            return None;
        }
        let (begun, up_to) = self.group.query(|directory, _| {
            (directory.has_begun(receipt.session), directory.has_through(receipt.session))
        });
        let (member, drawn) = receipt.server;
        match up_to {
            None if !begun => Some("a machine has a session that this server does not know to have begun"),
            Some(up_to) if up_to < receipt.up_to => {
                Some("a machine was told that more of its log is durable than this server has")
            }
            Some(_) if member == self.group.member() && !self.group.remembers(drawn) => {
                Some("a machine was told something in a start of this server that its disk does not know")
            }
            _ => None,
        }
    }
}

/// The group of a server of the directory. The two have one number.
pub(crate) fn group_of(server: ServerId) -> GroupId {
    GroupId(u64::from(server.0))
}
