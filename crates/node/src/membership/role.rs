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
pub(super) enum RoleChange {
    /// It becomes a server.
    BeginToServe,
    /// It becomes a server again: the others list it, and it does not know of that.
    ServeAnew,
    /// It stops being a server: the others have removed it.
    Retire,
    /// It reports where its server is.
    Announce,
}

impl RoleKnowledge {
    /// The change that follows, if any.
    pub(super) fn demands(self) -> Option<RoleChange> {
        let RoleKnowledge { serves, again, chosen, servers, listed, moved } = self;
        match (serves, again) {
            (false, _) if chosen => Some(RoleChange::BeginToServe),
            (false, again) => (listed && !again).then_some(RoleChange::ServeAnew),
            (true, true) => None,
            (true, false) if !listed && !chosen => servers.then_some(RoleChange::Retire),
            (true, false) => (moved || !listed).then_some(RoleChange::Announce),
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
        assert_eq!(RoleKnowledge { chosen: true, ..machine }.demands(), Some(RoleChange::BeginToServe));
        assert_eq!(RoleKnowledge { listed, ..machine }.demands(), Some(RoleChange::ServeAnew));
        assert_eq!(RoleKnowledge { listed, again: true, ..machine }.demands(), None, "it is at it");
        let server = RoleKnowledge { serves: true, ..machine };
        assert_eq!(RoleKnowledge { chosen: true, ..server }.demands(), Some(RoleChange::Announce));
        assert_eq!(RoleKnowledge { listed, ..server }.demands(), None);
        assert_eq!(RoleKnowledge { listed, moved: true, ..server }.demands(), Some(RoleChange::Announce));
        assert_eq!(server.demands(), Some(RoleChange::Retire));
    }

    #[test]
    fn an_empty_list_and_a_loss_remove_no_server() {
        let server = RoleKnowledge { serves: true, ..RoleKnowledge::default() };
        assert_eq!(server.demands(), None);
        assert_eq!(RoleKnowledge { again: true, servers: true, ..server }.demands(), None);
    }
}
