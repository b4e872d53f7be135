//! The session with the server as all of the client sees it: when it counts, how it resumes over a
//! new connection, and how the client starts again after a cut-off (docs/internals/server.md,
//! "Sessions").

use crate::calls::{Caller, Stop, Waiting, WaitingFor};
use crate::client::Client;
use crate::knowledge::KnownFile;
use crate::server::{Opening, Refusals, ServerId, ServerSession};
use crate::{Call, Invalidation, Now, Output, Reply, Salvage, Ticket, call};
use ident::FileId;
use lease::{Held, Time};
use namespace::{Error, Operation};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
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
    /// first session to end, as this client counts it. An answer rests on leases of sessions that
    /// are valid.
    pub fn valid_for_ms(&self, now: Time) -> u64 {
        let valid = self.servers.iter().filter(|(_, server)| server.term.is_valid(now));
        valid.map(|(_, server)| server.term.valid_until().ms_since(now)).min().unwrap_or(0)
    }

    /// Whether a session with this server has begun and is not over, as far as the client knows.
    /// Only then a greeting may name the host's latest session there. The client cannot resume a
    /// session whose beginning it never received.
    pub fn has_session(&self, server: ServerId) -> bool {
        self.servers.get(server).term.is_open()
    }

    /// The last log entry that is durable at this server, by its own report. All entries before are
    /// durable as well.
    pub fn acknowledged(&self, server: ServerId) -> u64 {
        self.servers.get(server).log.applied()
    }

    /// Since when this server has owed an answer to a renewal or a greeting. The host gives up a
    /// connection that is silent for long.
    pub fn owed_since(&self, server: ServerId) -> Option<Time> {
        self.servers.get(server).term.owed_since()
    }

    /// Stops a call unless the session with the server of its file is valid: leases count only
    /// during their session. Decisions look at the sessions of further files
    /// ([`crate::knowledge::Files::lapsed`]).
    pub(crate) fn require_session(&self, now: Now, call: &Call) -> Result<(), Stop> {
        if self.files.lapsed.is_empty() && !self.ending {
            return Ok(());
        }
        let server = call.file().map_or(ServerId::ROOT, |file| self.server_of(file));
        let is_valid = self.servers.get(server).term.is_valid(now.time);
        if is_valid { Ok(()) } else { Err(Stop::until(WaitingFor::Session(server))) }
    }

    /// The server that has granted leases on `file`. If nothing is held of the file, the server
    /// that manages it by the last that was said.
    pub(crate) fn server_of(&self, file: &FileId) -> ServerId {
        if self.servers.is_one() {
            return ServerId::ROOT;
        }
        let is_held = |known: &&KnownFile| known.handles.is_some() || known.held != Held::default();
        match self.files.get(file).filter(is_held) {
            Some(known) => known.server,
            None => self.servers.id_of(file),
        }
    }

    /// The session with that server.
    pub(crate) fn session_of(&self, file: &FileId) -> &ServerSession {
        self.servers.get(self.server_of(file))
    }

    /// The same, to be changed.
    pub(crate) fn session_of_mut(&mut self, file: &FileId) -> &mut ServerSession {
        let server = self.server_of(file);
        self.servers.get_mut(server)
    }

    /// The server that is asked for `operation`, or whose log has it.
    pub(crate) fn leader_of(&self, operation: &Operation) -> ServerId {
        self.server_of(operation.leading_file())
    }

    /// The event that a request to this server waits for, unless the server can be asked now.
    pub(crate) fn needs_session(&mut self, server: ServerId, out: &mut Vec<Output>) -> Option<WaitingFor> {
        let session = self.servers.get_mut(server);
        if session.term.is_open() {
            return None;
        }
        session.connect(out);
        Some(WaitingFor::Session(server))
    }

    /// Notes which servers' leases count.
    pub(crate) fn count_leases(&mut self, now: Now) {
        let lapsed = |(server, session): (ServerId, &ServerSession)| {
            (!session.term.is_valid(now.time) && !self.ending).then_some(server)
        };
        if !self.servers.iter().filter_map(lapsed).eq(self.files.lapsed.iter().copied()) {
            self.files.lapsed = self.servers.iter().filter_map(lapsed).collect();
        }
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
        self.count_leases(now);
        if is_doubtful {
            out.push(Output::RevokeUncovered(Invalidation::Everything));
        }
    }

    /// Renews the sessions when that is due. Fails calls that have waited too long for a session.
    pub(crate) fn keep_session(&mut self, now: Now, out: &mut Vec<Output>) {
        self.servers.iter_mut().for_each(|server| server.renew(now.time, out));
        for server in self.files.lapsed.clone() {
            let lost = self.servers.get(server).term.valid_until();
            let is_late = |waiting: &Waiting| now.time >= waiting.since.max(lost).after_ms(PATIENCE_MS);
            // A close never fails here: a handle that is not closed would stay open for ever. The
            // client's own calls have no caller that waits.
            let waits = |w: &Waiting| w.caller == Caller::FrontDoor && !matches!(w.call, Call::Close { .. });
            let late = self.calls.iter().filter(|(_, w)| waits(w) && is_late(w) && self.concerns(w, server));
            let late: BTreeSet<Ticket> = late.map(|(ticket, _)| ticket).collect();
            self.calls.fail(Error::CutOff, |ticket, _| late.contains(&ticket), out);
        }
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
        (up_to, refusals): (u64, Refusals<'_>),
        term_ms: u64,
        out: &mut Vec<Output>,
    ) {
        let session = self.servers.get_mut(server);
        if !session.term.is_open() {
            return;
        }
        let Some(greeted) = session.term.take_greeting() else { return };
        session.term.resume(greeted, term_ms);
        self.on_applied(server, up_to, refusals, out);
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
    /// No knowledge counts any more, and no update in the log will be applied. Waiting calls fail,
    /// except for those that can begin again in the next session. There the client opens the
    /// programs' files again.
    pub(crate) fn cut_off(&mut self, now: Now, server: ServerId, out: &mut Vec<Output>) {
        if !self.servers.get_mut(server).term.end(now.time) {
            return;
        }
        let items = self.what_is_lost(server);
        self.note_unsaved(&items);
        self.forget_lingering(server);
        self.accesses.forget();
        self.keep_handles(server);
        let concerned = self.calls.iter().filter(|(_, waiting)| self.concerns(waiting, server));
        let is_lost = !items.is_empty();
        let concerned = concerned.map(|(ticket, waiting)| (ticket, self.begins_again(waiting, is_lost)));
        let concerned: Vec<(Ticket, bool)> = concerned.collect();
        self.forget_session(server);
        self.count_leases(now);
        out.push(Output::Salvage(Salvage { cut_off: true, items }));
        out.push(Output::RevokeUncovered(Invalidation::Everything));
        for (ticket, begins_again) in concerned {
            let waiting = self.calls.remove(ticket).expect("it was there");
            match waiting.call {
                _ if waiting.caller != Caller::FrontDoor => {}
                Call::Close(call::Close { file, open }) => {
                    self.close_lost(&file, open);
                    out.push(Output::Answer { ticket, result: Ok(Reply::Nothing) });
                }
                _ if begins_again => self.calls.insert(ticket, waiting.begun_anew()),
                _ => out.push(Output::Answer { ticket, result: Err(Error::CutOff) }),
            }
        }
    }

    /// Whether the end of the session with `server` ends this call: the call waits for the server,
    /// or is about a file there.
    fn concerns(&self, waiting: &Waiting, server: ServerId) -> bool {
        let at_server = |file: &FileId| self.server_of(file) == server;
        match &waiting.on {
            WaitingFor::Session(of)
            | WaitingFor::Inodes(of)
            | WaitingFor::Allowance(of)
            | WaitingFor::Applied(of, _)
            | WaitingFor::Heard(of, _) => *of == server,
            WaitingFor::Number(number) => self.servers.asked(*number) == Some(server),
            WaitingFor::Published(barriers) => barriers.keys().any(at_server),
            _ => at_server(waiting.call.file().unwrap_or(self.root())),
        }
    }

    /// Forgets everything that counted in the session only.
    fn forget_session(&mut self, server: ServerId) {
        let is_over = |known: &KnownFile| known.server == server;
        let over: FxHashSet<FileId> =
            self.files.all.iter().filter(|(_, known)| is_over(known)).map(|(file, _)| file.clone()).collect();
        self.files.all.retain(|_, known| !is_over(known));
        self.publishing.abandon(|file| over.contains(file));
        let session = self.servers.get_mut(server);
        self.revocations.forget(server, |number| session.requests.has(number));
        self.publishing.settled.extend(session.forget());
        self.hand.ahead.retain(|file| !over.contains(file));
        self.hand.picked.values_mut().for_each(|picked| picked.retain(|file| !over.contains(file)));
    }

    /// Ends the sessions in order.
    pub(crate) fn say_goodbye(&mut self, now: Now, out: &mut Vec<Output>) {
        for server in self.servers.iter_mut().filter(|server| server.term.is_open()) {
            server.send(ToServer::Goodbye, out);
            server.term.end(now.time);
        }
    }
}
