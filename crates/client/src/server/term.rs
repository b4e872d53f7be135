//! The term of a session: how long its leases count, and over which connection it goes on
//! (docs/internals/server.md, "Sessions").

use lease::Time;

/// The clocks of client and server drift apart by at most one part in this many.
const DRIFT: u64 = 100;

/// The state of a session with one server.
#[derive(Debug, Default)]
pub(crate) struct Term {
    /// Whether there is a session, as far as the client knows.
    open: bool,
    /// Whether the server has answered the greeting of the current connection.
    connected: bool,
    term_ms: u64,
    /// When the last answered renewal or greeting was sent. Leases hold for a term from there, less
    /// the drift bound.
    renewed: Time,
    /// When the renewal under way was sent.
    renewing: Option<Time>,
    /// When the greeting under way was sent.
    greeted: Option<Time>,
    /// When the last session was cut off.
    ended: Time,
    /// The term ran out, and front doors' cached values were revoked for that.
    ran_out: bool,
}

impl Term {
    /// Whether a session has begun and is not over, as far as the client knows.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether messages can be sent.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// When leases cease to count, or have ceased.
    pub fn valid_until(&self) -> Time {
        if self.open { self.renewed.after_ms(self.term_ms - self.term_ms / DRIFT) } else { self.ended }
    }

    /// Whether leases count.
    pub fn is_valid(&self, now: Time) -> bool {
        self.open && now < self.valid_until()
    }

    /// When the next renewal is to be sent, if none is under way.
    pub fn renewal_due(&self) -> Option<Time> {
        let may_renew = self.connected && self.renewing.is_none();
        may_renew.then(|| self.renewed.after_ms(self.term_ms / 3))
    }

    /// Since when the server has owed an answer to a renewal or a greeting.
    pub fn owed_since(&self) -> Option<Time> {
        self.greeted.or(self.renewing)
    }

    /// When a renewal is due, or the term runs out.
    pub fn deadline(&self) -> Option<Time> {
        let runs_out = (self.open && !self.ran_out).then(|| self.valid_until());
        [self.renewal_due(), runs_out].into_iter().flatten().min()
    }

    /// Whether the term has run out since the last look.
    pub fn runs_out(&mut self, now: Time) -> bool {
        let runs_out = self.open && !self.ran_out && now >= self.valid_until();
        self.ran_out |= runs_out;
        runs_out
    }

    /// Notes a new connection, over which the host greets the server.
    pub fn greet(&mut self, now: Time) {
        (self.greeted, self.connected, self.renewing) = (Some(now), false, None);
    }

    /// Takes the greeting under way, which is answered now: when it was sent.
    pub fn take_greeting(&mut self) -> Option<Time> {
        self.greeted.take()
    }

    /// Begins a session, whose greeting was sent at `greeted`.
    pub fn begin(&mut self, greeted: Time, term_ms: u64) {
        *self = Term { open: true, connected: true, term_ms, renewed: greeted, ..Term::default() };
    }

    /// Resumes the session, by a greeting that was sent at `greeted`.
    pub fn resume(&mut self, greeted: Time, term_ms: u64) {
        (self.connected, self.term_ms) = (true, term_ms);
        self.renew(greeted);
    }

    /// Notes that a renewal is sent.
    pub fn begin_renewal(&mut self, now: Time) {
        self.renewing = Some(now);
    }

    /// Takes the answer to the renewal under way.
    pub fn end_renewal(&mut self) {
        if let Some(sent) = self.renewing.take() {
            self.renew(sent);
        }
    }

    /// Takes the answer to a message sent at `sent`.
    fn renew(&mut self, sent: Time) {
        self.renewed = self.renewed.max(sent);
        self.ran_out = false;
    }

    /// Ends the session and the connection. Returns whether there was a session.
    pub fn end(&mut self, now: Time) -> bool {
        (self.connected, self.renewing) = (false, None);
        let was_open = std::mem::take(&mut self.open);
        if was_open {
            self.ended = now;
        }
        was_open
    }
}
