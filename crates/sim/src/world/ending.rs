//! Machines that end in order and begin again later. Updates that the server has not applied stay
//! on their disks meanwhile, and go on in their own session (`client::Continuation`). In the end
//! all updates of such a session must be there. The exception is a session that had ended at the
//! server before the machine came back.

use super::events::Event;
use super::state::machine::Left;
use super::{Mutation, Violation, World};
use crate::host::connection::Connection;
use crate::kernel::Kernel;
use client::{Continuation, Heard, Input};
use ident::ServerId;
use std::collections::BTreeMap;
use wire::{ToClient, ToServer};

/// Time that a machine is away, ms at most: sometimes longer than its term.
const AWAY_MS: u64 = 60_000;

impl World {
    /// The machine's process ends in order, and begins again after a while.
    pub(super) fn ends(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        if machine.left.is_some() || machine.frozen.is_some() || !machine.client.has_session(ServerId::ROOT) {
            return self.crashes(at);
        }
        self.happened.ends += 1;
        machine.client.begin_ending();
        // The mount is gone, and with it all that the kernel had still to drop.
        let mut shares = BTreeMap::new();
        let clean = loop {
            let now = self.read_clocks(at);
            let mut out = Vec::new();
            let clean = self.machines[at].client.close(now, &mut out);
            self.carry_out(at, now, out)?;
            let Some((number, upload)) = self.machines[at].unstored.pop_first() else { break clean };
            let pieces = upload.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
            let (bytes, hashes) = content::seal_share(&upload.key, pieces);
            shares.insert(upload.share, bytes);
            self.input(at, Input::Stored { upload: number, result: Ok(hashes) })?;
        };
        if !self.machines[at].client.is_all_logged(ServerId::ROOT) {
            return Err(format!("machine {at} ends, and not all that it wrote is in its log"));
        }
        let (first, entries) = self.machines[at].client.log_left(ServerId::ROOT);
        let life = self.machines[at].life;
        let session = self.machines[at].connection.session;
        self.begins_anew(at, AWAY_MS);
        let machine = &mut self.machines[at];
        if clean {
            self.history.is_whole(life);
            machine.incarnation += 1;
            machine.connection.session = None;
        } else {
            let continuation = Continuation::new(first, entries.clone());
            machine.connection.session = session;
            machine.left = Some(Left { life, first, entries, shares, continuation });
        }
        machine.life = self.history.next_life(at);
        Ok(())
    }

    /// The machine ends before its next start has sent all that was left. The rest is still there.
    pub(super) fn crashes_going_on(&mut self, at: usize) {
        let session = self.machines[at].connection.session;
        self.begins_anew(at, AWAY_MS);
        let machine = &mut self.machines[at];
        machine.connection.session = session;
        if let Some(left) = &mut machine.left {
            left.continuation = Continuation::new(left.first, left.entries.clone());
        }
    }

    /// The server sends a message in the session of the machine's last start.
    pub(super) fn goes_on_hears(&mut self, at: usize, message: &ToClient) -> Result<(), Violation> {
        let Some(left) = &mut self.machines[at].left else { return Ok(()) };
        match left.continuation.hear(message) {
            Heard::Nothing => {}
            Heard::GoesOn => {
                for share in left.continuation.shares() {
                    if let Some(bytes) = left.shares.get(&share) {
                        self.shares.insert(share, bytes.clone());
                    }
                }
                let said = left.continuation.say();
                said.into_iter().for_each(|message| self.says(at, message));
            }
            Heard::Done => {
                let (life, refused) = (left.life, left.continuation.refused().to_vec());
                if !refused.is_empty() && !self.is_limited(at) {
                    return Err(format!("what machine {at} had left was refused: {refused:?}"));
                }
                self.happened.went_on += 1;
                match refused.is_empty() {
                    true => self.history.is_whole(life),
                    false => self.history.is_over(life),
                }
                self.says(at, ToServer::Goodbye);
                self.own_session(at);
            }
            Heard::Over => {
                let life = left.life;
                self.happened.fenced += 1;
                self.history.is_over(life);
                self.own_session(at);
            }
        }
        Ok(())
    }

    /// The machine begins a session of its present start.
    fn own_session(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.left = None;
        machine.incarnation += 1;
        machine.connection.session = None;
        self.leaves(at);
    }

    /// The process and its connection are gone. The next process begins within that time.
    pub(super) fn begins_anew(&mut self, at: usize, within_ms: u64) {
        self.links[at].loses();
        self.programs_end(at);
        let (client, lie) = (self.new_client(), self.weather.lie);
        let machine = &mut self.machines[at];
        let calls = std::mem::take(&mut machine.calls);
        machine.client = client;
        machine.kernel = Kernel::new(lie == Some(Mutation::FoldedBelow));
        machine.gave_way.clear();
        machine.unstored.clear();
        (machine.connection, machine.steady) = (Connection::default(), None);
        let programs: Vec<usize> = calls.into_values().map(|(_, program)| program).collect();
        let pause = 10 + self.some_time(within_ms);
        self.later(pause, Event::Dials(at));
        for program in programs {
            self.later(pause, Event::Calls(at, program));
        }
    }
}
