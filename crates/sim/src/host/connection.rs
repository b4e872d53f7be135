//! A machine's connection to a server, and the session that goes over it.

use lease::SessionId;

/// A connection, as the machine knows it.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The connection's number, while there is one.
    pub number: Option<u64>,
    /// The connection's session. Its beginning may still be under way.
    opened: Option<SessionId>,
    /// The client's session: the one whose beginning the client has received. Only that one can go
    /// on over the next connection.
    pub session: Option<SessionId>,
}

impl Connection {
    /// A new connection, in the place of an earlier one.
    pub fn dial(&mut self, number: u64) {
        (self.number, self.opened) = (Some(number), None);
    }

    /// The connection has ended.
    pub fn hang_up(&mut self) {
        (self.number, self.opened) = (None, None);
    }

    /// The server has opened this session on that connection. Returns whether the connection is
    /// still the machine's.
    pub fn open(&mut self, number: u64, session: SessionId) -> bool {
        let is_it = self.number == Some(number);
        if is_it {
            self.opened = Some(session);
        }
        is_it
    }

    /// Whether messages of this session are for the machine: the connection's, or the client's
    /// while the server has opened none.
    pub fn is_of(&self, session: SessionId) -> bool {
        self.opened.or(self.session) == Some(session)
    }

    /// The session that the server has opened on the connection.
    pub fn opened(&self) -> Option<SessionId> {
        self.opened
    }

    /// The client receives the beginning of the connection's session, or that it goes on.
    pub fn begin(&mut self) {
        self.session = self.opened;
    }
}
