//! Which change of a machine's part the leader's list of servers demands.

/// The knowledge at the time when the list comes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoleKnowledge {
    /// This machine's server is up.
    pub serves: bool,
    /// This machine was a server, has lost its state, and is being added again.
    pub again: bool,
    /// The leader has chosen this machine as a server.
    pub chosen: bool,
    /// The list has any servers.
    pub servers: bool,
    /// The list has this machine.
    pub listed: bool,
    /// The list has this machine at other addresses than it listens at.
    pub moved: bool,
}

/// A change of a machine's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It becomes a server.
    BeginToServe,
    /// It stops being a server: the others have removed it.
    Retire,
    /// It reports where its server is.
    Announce,
}

impl RoleKnowledge {
    /// The change that follows, if any.
    pub(super) fn demands(self) -> Option<Change> {
        let RoleKnowledge { serves, again, chosen, servers, listed, moved } = self;
        match (serves, again) {
            (false, _) => chosen.then_some(Change::BeginToServe),
            (true, true) => None,
            (true, false) if !listed && !chosen => servers.then_some(Change::Retire),
            (true, false) => (moved || !listed).then_some(Change::Announce),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_serves_once_it_is_chosen_and_until_it_is_removed() {
        let (machine, listed) = (RoleKnowledge { servers: true, ..RoleKnowledge::default() }, true);
        assert_eq!(machine.demands(), None);
        assert_eq!(RoleKnowledge { chosen: true, ..machine }.demands(), Some(Change::BeginToServe));
        let server = RoleKnowledge { serves: true, ..machine };
        assert_eq!(RoleKnowledge { chosen: true, ..server }.demands(), Some(Change::Announce));
        assert_eq!(RoleKnowledge { listed, ..server }.demands(), None);
        assert_eq!(RoleKnowledge { listed, moved: true, ..server }.demands(), Some(Change::Announce));
        assert_eq!(server.demands(), Some(Change::Retire));
    }

    #[test]
    fn an_empty_list_and_a_loss_remove_no_server() {
        let server = RoleKnowledge { serves: true, ..RoleKnowledge::default() };
        assert_eq!(server.demands(), None);
        assert_eq!(RoleKnowledge { again: true, servers: true, ..server }.demands(), None);
    }
}
