//! The session with the server as all of the client sees it: when it counts, how it resumes over a
//! new connection, and how the client starts again after a cut-off (docs/internals/server.md,
//! "Sessions").

use crate::calls::{Caller, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::knowledge::{EvictionClock, Files};
use crate::leases::Revocations;
use crate::server::{Opening, ServerId};
use crate::{Call, Invalidation, Now, Output, Reply, Salvage, call};
use lease::Time;
use namespace::Error;
use wire::ToServer;

/// The machine may have been asleep if the clock was not read for this long, ms. Front doors'
/// cached values may have outlived their time-outs by then.
const GAP_MS: u64 = 3_000;
/// The clock is read at least this often during a session, ms.
const READ_EVERY_MS: u64 = 1_000;
/// The time for which a call waits for a session, ms.
const PATIENCE_MS: u64 = 120_000;

impl Client {
    /// How long front doors may keep answers in their caches from `now` on, ms: the rest of the
    /// session as this client counts it.
    pub fn valid_for_ms(&self, now: Time) -> u64 {
        let term = &self.servers.get(ServerId::ROOT).term;
        if term.is_open() { term.valid_until().ms_since(now) } else { 0 }
    }

    /// Whether a session has begun and is not over, as far as the client knows. Only then a
    /// greeting may name the host's latest session. The client cannot resume a session whose
    /// beginning it never received.
    pub fn has_session(&self) -> bool {
        self.servers.get(ServerId::ROOT).term.is_open()
    }

    /// The last log entry that is durable at the server, by its own report. All entries before are
    /// durable as well.
    pub fn acknowledged(&self) -> u64 {
        self.servers.get(ServerId::ROOT).log.applied()
    }

    /// Since when the server has owed an answer to a renewal or a greeting. The host gives up a
    /// connection that is silent for long.
    pub fn owed_since(&self) -> Option<Time> {
        self.servers.get(ServerId::ROOT).term.owed_since()
    }

    /// Stops a call unless the session is valid: leases count only during the session.
    pub(crate) fn require_session(&self, now: Now) -> Result<(), Stop> {
        let is_valid = self.servers.get(ServerId::ROOT).term.is_valid(now.time);
        if is_valid { Ok(()) } else { Err(Stop::until(WaitingFor::Session)) }
    }

    /// When the sessions want the next tick.
    pub(crate) fn session_deadline(&self) -> Option<Time> {
        let terms = || self.servers.iter().map(|(_, server)| &server.term);
        let watches = !self.calls.is_empty() || terms().any(|term| term.is_open());
        let read = self.clock_read.filter(|_| watches).map(|read| read.after_ms(READ_EVERY_MS));
        terms().filter_map(|term| term.deadline()).chain(read).min()
    }

    /// Reads the clock, before anything is answered. After a gap, and when a session's term has run
    /// out, front doors must revoke everything.
    pub(crate) fn read_clock(&mut self, now: Now, out: &mut Vec<Output>) {
        let slept = self.clock_read.is_some_and(|read| now.time.ms_since(read) > GAP_MS);
        self.clock_read = Some(now.time);
        let mut is_doubtful = false;
        for server in self.servers.iter_mut() {
            is_doubtful |= server.term.runs_out(now.time) || (slept && server.term.is_open());
        }
        if is_doubtful {
            out.push(Output::Invalidate(Invalidation::Everything));
        }
    }

    /// Renews the sessions when that is due. Fails calls that have waited too long for a session.
    pub(crate) fn keep_session(&mut self, now: Now, out: &mut Vec<Output>) {
        self.servers.iter_mut().for_each(|server| server.renew(now.time, out));
        let term = &self.servers.get(ServerId::ROOT).term;
        if term.is_valid(now.time) {
            return;
        }
        let lost = term.valid_until();
        let since = |waiting: &Waiting| waiting.since.max(lost).after_ms(PATIENCE_MS);
        // A close never fails here: a handle that is not closed would stay open for ever. The
        // client's own calls have no caller that waits.
        let waits = |w: &Waiting| w.caller == Caller::FrontDoor && !matches!(w.call, Call::Close { .. });
        self.calls.fail(Error::CutOff, |waiting| waits(waiting) && now.time >= since(waiting), out);
    }

    /// Takes the beginning of a session. An earlier session is over.
    pub(crate) fn on_opened(&mut self, now: Now, server: ServerId, opening: Opening, out: &mut Vec<Output>) {
        let Some(greeted) = self.servers.get_mut(server).term.take_greeting() else { return };
        self.cut_off(now, server, out);
        self.servers.get_mut(server).begin(greeted, opening);
        self.reopen_some(now, out);
    }

    /// Resumes the session. The server reports how much of the log it has, and the client sends
    /// again everything else that was under way.
    pub(crate) fn on_resumed(
        &mut self,
        server: ServerId,
        through: u64,
        rejected: &[(u64, Error)],
        term_ms: u64,
        out: &mut Vec<Output>,
    ) {
        let session = self.servers.get_mut(server);
        if !session.term.is_open() {
            return;
        }
        let Some(greeted) = session.term.take_greeting() else { return };
        session.term.resume(greeted, term_ms);
        self.on_applied(server, through, rejected, out);
        self.write_all_back(server);
        self.forget_reports(server);
        let dirty_bytes = self.publishing.dirty_bytes() as u64;
        let session = self.servers.get_mut(server);
        session.log.rewind();
        session.flush_log(out);
        session.ask_again(dirty_bytes, out);
    }

    /// Ends a session that is over at the server.
    ///
    /// No knowledge counts any more, and no update in the log will be applied. Waiting calls fail.
    /// The client opens the programs' files again in the next session.
    pub(crate) fn cut_off(&mut self, now: Now, server: ServerId, out: &mut Vec<Output>) {
        if !self.servers.get_mut(server).term.end(now.time) {
            return;
        }
        let items = self.what_is_lost();
        self.note_unsaved(&items);
        self.forget_lingering();
        self.accesses.forget();
        self.keep_handles();
        self.forget_session(server);
        out.push(Output::Salvage(Salvage { cut_off: true, items }));
        out.push(Output::Invalidate(Invalidation::Everything));
        for (ticket, waiting) in self.calls.take() {
            match waiting.call {
                _ if waiting.caller != Caller::FrontDoor => {}
                Call::Close(call::Close { file, open }) => {
                    self.close_lost(&file, open);
                    out.push(Output::Answer { ticket, result: Ok(Reply::Nothing) });
                }
                _ => out.push(Output::Answer { ticket, result: Err(Error::CutOff) }),
            }
        }
    }

    /// Forgets everything that counted in the session only.
    fn forget_session(&mut self, server: ServerId) {
        self.files = Files::default();
        self.publishing.abandon();
        self.publishing.settled.extend(self.servers.get_mut(server).forget());
        self.revocations = Revocations::default();
        self.hand = EvictionClock::default();
    }

    /// Ends the sessions in order.
    pub(crate) fn say_goodbye(&mut self, now: Now, out: &mut Vec<Output>) {
        for server in self.servers.iter_mut().filter(|server| server.term.is_open()) {
            server.send(ToServer::Goodbye, out);
            server.term.end(now.time);
        }
    }
}
