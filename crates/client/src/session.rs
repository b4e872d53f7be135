//! The session with the server: its term, how a session resumes over a new connection, and how the
//! client starts again after a cut-off (docs/internals/server.md, "Sessions").

use crate::client::{Allowance, Client};
use crate::evict::EvictionClock;
use crate::known::Files;
use crate::log::OperationLog;
use crate::promised::Promised;
use crate::requests::Requests;
use crate::waiting::{Need, Stop};
use crate::{Call, Invalidation, Now, Output, Reply, Salvage, Ticket};
use lease::Time;
use namespace::Error;
use wire::{Space, ToServer};

/// The clocks of client and server drift apart by at most one part in this many.
const DRIFT: u64 = 100;
/// The machine may have been asleep if the clock was not read for this long, ms. Front doors'
/// cached values may have outlived their time-outs by then.
const GAP_MS: u64 = 3_000;
/// The clock is read at least this often during a session, ms.
const READ_EVERY_MS: u64 = 1_000;
/// The time for which a call waits for a session, ms.
const PATIENCE_MS: u64 = 120_000;

/// The state of the session.
#[derive(Debug, Default)]
pub(crate) struct Session {
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
    /// When the clock was read last.
    read: Option<Time>,
    /// When the last session was cut off.
    ended: Time,
    /// The session's term ran out, and front doors' cached values were revoked for that.
    ran_out: bool,
}

impl Session {
    /// Whether messages can be sent.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    fn valid_until(&self) -> Time {
        if self.open { self.renewed.after_ms(self.term_ms - self.term_ms / DRIFT) } else { self.ended }
    }

    fn is_valid(&self, now: Now) -> bool {
        self.open && now.time < self.valid_until()
    }

    fn renewal_due(&self) -> Option<Time> {
        let may_renew = self.connected && self.renewing.is_none();
        may_renew.then(|| self.renewed.after_ms(self.term_ms / 3))
    }

    /// Takes the answer to a message sent at `sent`.
    fn renew(&mut self, sent: Time) {
        self.renewed = self.renewed.max(sent);
        self.ran_out = false;
    }
}

impl Client {
    /// How long front doors may keep answers in their caches from `now` on, ms: the rest of the
    /// session as this client counts it.
    pub fn valid_for_ms(&self, now: Time) -> u64 {
        if self.session.open { self.session.valid_until().ms_since(now) } else { 0 }
    }

    /// Whether a session has begun and is not over, as far as the client knows. Only then a
    /// greeting may name the host's latest session. The client cannot resume a session whose
    /// beginning it never received.
    pub fn has_session(&self) -> bool {
        self.session.open
    }

    /// The last log entry that is durable at the server, by its own report. All entries before are
    /// durable as well.
    pub fn acknowledged(&self) -> u64 {
        self.log.applied()
    }

    /// Since when the server has owed an answer to a renewal or a greeting. The host gives up a
    /// connection that is silent for long.
    pub fn owed_since(&self) -> Option<Time> {
        self.session.greeted.or(self.session.renewing)
    }

    /// Stops a call unless the session is valid: leases count only during the session.
    pub(crate) fn require_session(&self, now: Now) -> Result<(), Stop> {
        if self.session.is_valid(now) { Ok(()) } else { Err(Stop::Need(Need::Session)) }
    }

    /// When the session wants the next tick.
    pub(crate) fn session_deadline(&self) -> Option<Time> {
        let session = &self.session;
        let runs_out = (session.open && !session.ran_out).then(|| session.valid_until());
        let watches = session.open || !self.waiting.is_empty();
        let read = session.read.filter(|_| watches).map(|read| read.after_ms(READ_EVERY_MS));
        [session.renewal_due(), runs_out, read].into_iter().flatten().min()
    }

    /// Reads the clock, before anything is answered. After a gap, and when the session's term has
    /// run out, front doors must revoke everything.
    pub(crate) fn read_clock(&mut self, now: Now, out: &mut Vec<Output>) {
        let session = &mut self.session;
        let slept = session.read.is_some_and(|read| now.time.ms_since(read) > GAP_MS);
        let runs_out = session.open && !session.ran_out && now.time >= session.valid_until();
        if session.open && (slept || runs_out) {
            out.push(Output::Invalidate(Invalidation::Everything));
        }
        session.ran_out |= runs_out;
        session.read = Some(now.time);
    }

    /// Renews the session when that is due. Fails calls that have waited too long for a session.
    pub(crate) fn keep_session(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.session.renewal_due().is_some_and(|due| now.time >= due) {
            self.session.renewing = Some(now.time);
            self.send(ToServer::Renew, out);
        }
        if self.session.is_valid(now) {
            return;
        }
        let lost = self.session.valid_until();
        let since = |waiting: &crate::waiting::Waiting| waiting.since.max(lost).after_ms(PATIENCE_MS);
        // A close never fails here: a handle that is not closed would stay open for ever. The
        // client's own calls have no caller that waits.
        let waits = |w: &crate::waiting::Waiting| {
            w.reopens.is_none() && !w.is_own && !matches!(w.call, Call::Close { .. })
        };
        let tired: Vec<Ticket> = self
            .waiting
            .iter()
            .filter(|(_, w)| waits(w) && now.time >= since(w))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in tired {
            self.waiting.remove(&ticket);
            out.push(Output::Answer { ticket, result: Err(Error::CutOff) });
        }
    }

    /// Notes a new connection, over which the host greets the server.
    pub(crate) fn on_greeting(&mut self, now: Now) {
        self.session.greeted = Some(now.time);
        self.session.connected = false;
        self.session.renewing = None;
    }

    pub(crate) fn on_renewed(&mut self, now: Now, space: Space) {
        self.learn_space(now, space);
        if let Some(sent) = self.session.renewing.take() {
            self.session.renew(sent);
        }
    }

    /// Takes the beginning of a session. An earlier session is over.
    pub(crate) fn on_opened(
        &mut self,
        now: Now,
        inodes: (u64, u64),
        allowance: (u64, u64),
        term_ms: u64,
        out: &mut Vec<Output>,
    ) {
        let Some(greeted) = self.session.greeted.take() else { return };
        self.cut_off(now, out);
        (self.inodes, self.inodes_known) = (inodes, inodes.1);
        self.allowance = Allowance { bytes: allowance.0, files: allowance.1, asking: None };
        let read = self.session.read;
        self.session =
            Session { open: true, connected: true, term_ms, renewed: greeted, read, ..Session::default() };
        self.reopen_some(now, out);
    }

    /// Resumes the session. The server reports how much of the log it has, and the client sends
    /// again everything else that was under way.
    pub(crate) fn on_resumed(
        &mut self,
        through: u64,
        rejected: &[(u64, Error)],
        term_ms: u64,
        out: &mut Vec<Output>,
    ) {
        if !self.session.open {
            return;
        }
        let Some(greeted) = self.session.greeted.take() else { return };
        (self.session.connected, self.session.term_ms) = (true, term_ms);
        self.session.renew(greeted);
        self.on_applied(through, rejected, out);
        self.log.rewind();
        self.write_all_back();
        self.flushing.clear();
        self.yields.forget_reports();
        self.flush_log(out);
        self.ask_again(out);
    }

    /// Ends a session that is over at the server.
    ///
    /// No knowledge counts any more, and no update in the log will be applied. Waiting calls fail.
    /// The client opens the programs' files again in the next session.
    pub(crate) fn cut_off(&mut self, now: Now, out: &mut Vec<Output>) {
        (self.session.connected, self.session.renewing) = (false, None);
        if !std::mem::take(&mut self.session.open) {
            return;
        }
        self.session.ended = now.time;
        let items = self.what_is_lost();
        self.note_unsaved(&items);
        self.forget_lingering();
        self.accesses.forget();
        self.keep_handles();
        self.forget_session();
        out.push(Output::Salvage(Salvage { cut_off: true, items }));
        out.push(Output::Invalidate(Invalidation::Everything));
        for (ticket, waiting) in std::mem::take(&mut self.waiting) {
            match waiting.call {
                _ if waiting.reopens.is_some() || waiting.is_own => {}
                Call::Close { file, open } => {
                    self.close_lost(&file, open);
                    out.push(Output::Answer { ticket, result: Ok(Reply::Nothing) });
                }
                _ => out.push(Output::Answer { ticket, result: Err(Error::CutOff) }),
            }
        }
    }

    /// Forgets everything that counted in the session only.
    fn forget_session(&mut self) {
        self.files = Files::default();
        self.log = OperationLog::new();
        self.unsent_since = None;
        self.requests = Requests::default();
        self.publishing.abandon();
        (self.inodes, self.inodes_next, self.reserving_inodes) = Default::default();
        self.allowance = Allowance::default();
        self.promised = Promised::default();
        self.yields.clear();
        self.letting_go.clear();
        self.touches.clear();
        self.flushing.clear();
        self.unheard.clear();
        self.tombstones.clear();
        self.hand = EvictionClock::default();
    }

    /// Ends the session in order, if there is one.
    pub(crate) fn say_goodbye(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.session.open {
            self.send(ToServer::Goodbye, out);
            (self.session.open, self.session.connected, self.session.ended) = (false, false, now.time);
        }
    }
}
