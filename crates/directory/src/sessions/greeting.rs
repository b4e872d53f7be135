//! New connections: a machine's session goes on over the next one, or a new one begins
//! (docs/internals/server.md, "Sessions").
//!
//! The lease table with its queues is the outbox. Everything under way when a connection broke is
//! lost in both directions by agreement, whichever end it had reached. The client sends its log and
//! its requests again, and the server knows them by their numbers. Lost grants need nothing: a
//! client answers the recall of a lease that it does not know of like any other.

use crate::io::Output;
use crate::transaction::{TERM_MS, Transaction};
use lease::SessionId;
use wire::{GreetingNumber, MachineId, Rights, ToClient, Version};

impl Transaction<'_> {
    /// Takes in a new connection of a machine, with the version that the machine speaks.
    pub fn greet(
        &mut self,
        (machine, version): (MachineId, Version),
        (incarnation, greeting): (u64, GreetingNumber),
        session: Option<SessionId>,
        connection: u64,
    ) {
        let admitted = self.files.admit(machine);
        let rights = match admitted.and_then(|rights| self.may_speak(version).map(|()| rights)) {
            Ok(rights) => rights,
            Err(why) => return self.out.push(Output::Refused { connection, why }),
        };
        let mut is_late = self.files.started(machine) > incarnation;
        let (mut earlier, mut same) = (Vec::new(), None);
        for (id, known) in self.state.server.sessions.of_machine(machine) {
            // The machine has a later start, or has greeted again and goes by that session: its
            // leases hold.
            is_late |= known.incarnation > incarnation || greeting.is_before(&known.greeted);
            if known.incarnation == incarnation && session == Some(id) {
                same = session;
            } else {
                // The same incarnation opens again when it never heard that a session had begun, or
                // that it was over.
                earlier.push(id);
            }
        }
        if is_late {
            return;
        }
        self.speaks(machine, version);
        self.starts(machine, incarnation);
        earlier.into_iter().for_each(|session| self.fence(session, None));
        match same {
            Some(session) => {
                self.out.push(Output::Opened { machine, incarnation, session, connection });
                self.resume(session, greeting);
            }
            None => self.begin(machine, (incarnation, greeting), connection, rights),
        }
    }

    fn begin(
        &mut self,
        machine: MachineId,
        (incarnation, greeting): (u64, GreetingNumber),
        connection: u64,
        rights: Rights,
    ) {
        let start = (incarnation, greeting);
        let session = self.state.server.sessions.open(self.now, machine, start, rights.clone());
        self.files.live.insert(session);
        let (mut inodes, mut allowance) = (Default::default(), Default::default());
        if !rights.read_only {
            inodes = self.state.server.sessions.reserve_inodes(session, u64::MAX);
            allowance = self.state.server.sessions.first_allowance(session);
        }
        self.out.push(Output::Opened { machine, incarnation, session, connection });
        let space = self.state.server.sessions.space(self.state.region.files);
        let (term_ms, version) = (TERM_MS, self.state.spoken_in(session));
        self.send(session, ToClient::Opened { inodes, allowance, space, term_ms, version, rights });
    }

    /// Repeats everything that the client may have to know and cannot ask for.
    fn resume(&mut self, session: SessionId, greeting: GreetingNumber) {
        let space = self.state.server.sessions.space(self.state.region.files);
        self.state.server.sessions.owed.remove(&session);
        let Some(known) = self.state.server.sessions.all.get_mut(&session) else { return };
        // The client hears its debts anew, perhaps for the first time: its silence counts from now.
        (known.renewed, known.worked) = (self.now, self.now);
        known.greeted = greeting;
        // The client concludes this from the answer.
        self.state.region.write_through.end_session(session);
        let (up_to, rejected) = (known.next_entry - 1, known.refused.iter().copied().collect());
        let forgotten = known.forgotten;
        let shipped: Vec<ToClient> = known.shipped().collect();
        let (term_ms, version) = (TERM_MS, self.state.spoken_in(session));
        self.send(session, ToClient::Resumed { up_to, rejected, forgotten, space, term_ms, version });
        shipped.into_iter().for_each(|message| self.send(session, message));
        let queue = &self.state.region.pending.queue;
        let of_session = queue.recalls.unanswered().filter(|(holder, _)| *holder == session);
        let leases: Vec<_> = of_session.map(|(_, released)| released).collect();
        let of_session = queue.flushes.unanswered().filter(|(holder, ..)| *holder == session);
        let flushes = of_session.map(|(_, number, file, field)| ToClient::Flush {
            number,
            file: file.clone(),
            field: field.clone(),
        });
        let flushes: Vec<ToClient> = flushes.collect();
        self.recall_from(session, leases, Vec::new());
        flushes.into_iter().for_each(|message| self.send(session, message));
    }
}
