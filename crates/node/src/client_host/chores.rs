//! Work that may wait for the disk or the network, and the client's clock.

use super::{After, ClientHost, TICK};
use crate::clock;
use crate::waits::{LONG_MS, LongWaits};
use client::{Input, Salvage};
use file_service::{Responder, Response};
use namespace::ShareId;
use os::STOP_LOOK;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

/// Work that may block, and so has threads of its own.
pub(crate) enum Chore {
    Unneeded(Vec<ShareId>),
    /// The reply to a waiting read, whose pieces must be fetched.
    Gather(Vec<content::ReadPart>, Responder),
    /// Changes that could not be applied, to write to disk.
    Salvage(Salvage),
    /// The session of an earlier start continues.
    GoOn,
}

impl ClientHost {
    pub(super) fn chore(&self, chore: Chore) {
        // The threads outlive the owner of the last sender.
        let _ = self.chores.send(chore);
    }

    /// Does chores until the machine stops. Several threads do this, since a chore may wait for the
    /// network.
    pub(crate) fn do_chores(&self, chores: &Mutex<Receiver<Chore>>) {
        loop {
            let chore = chores.lock().recv_timeout(STOP_LOOK);
            match chore {
                Ok(Chore::Unneeded(shares)) => self.copies().release(&shares),
                Ok(Chore::Gather(parts, answer)) => {
                    answer(self.pieces.gather(self.copies(), parts).map(Response::Data));
                }
                Ok(Chore::Salvage(salvage)) => {
                    self.salvage.keep(salvage, |parts| self.pieces.gather(self.copies(), parts));
                    self.salvaging.fetch_sub(1, Ordering::SeqCst);
                }
                Ok(Chore::GoOn) => self.go_on(),
                Err(_) if self.is_stopping() => return,
                Err(_) => {}
            }
        }
    }

    /// Ticks the client and renews sessions until the machine stops.
    pub(crate) fn tick(&self) {
        let mut said = LongWaits::default();
        while !self.is_stopping() {
            std::thread::sleep(TICK);
            let now = clock::time();
            let mut after = After::default();
            let waits = {
                let mut hosted = self.hosted.lock();
                if hosted.client.deadline().is_some_and(|deadline| deadline <= now) {
                    self.input(&mut hosted, Input::Tick, &mut after);
                }
                self.renews(&mut hosted);
                hosted.client.waits(now, LONG_MS)
            };
            self.finish(after, true);
            if !self.is_remote() {
                // This machine's member of a server that was made just now may not be open yet.
                self.open_beside();
            }
            for wait in said.due(waits, |wait| (wait.ticket.0, wait.for_ms)) {
                let seconds = wait.for_ms as f64 / 1e3;
                tracing::warn!(call = wait.call, seconds, waits_for = ?wait.reason, "a call waits");
            }
        }
    }
}
