//! The orderly end: the server gets what it can, and the rest is kept for the next start.

use super::{After, ClientHost, TICK};
use crate::clock;
use crate::salvage::LeftBehind;
use crate::unsent::Whose;
use client::Input;
use data_dir::DataError;
use ident::ServerId;
use namespace::Error;
use os::STOP_LOOK;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long an orderly end waits for a server that cannot be reached (`AWAY`), and for one that
/// makes no progress (`STUCK`). The changes left then are kept.
const AWAY: Duration = Duration::from_secs(5);
const STUCK: Duration = Duration::from_secs(20);

/// The result of an orderly end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The server has everything.
    Clean,
    /// The rest of `count` changes is kept under this number. `goes_on` says whether the next start
    /// continues with it.
    Kept { number: u64, count: usize, goes_on: bool },
    /// The rest could not be kept.
    Lost { count: usize, why: DataError },
}

impl ClientHost {
    /// Begins the end: the mount is about to go, and only the kernel's last writes follow.
    pub(crate) fn begin_ending(&self) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        hosted.client.begin_ending();
        self.input(&mut hosted, Input::Tick, &mut after);
        drop(hosted);
        self.finish(after, true);
    }

    /// Sends everything to the server until `deadline`, as long as that makes progress. Returns
    /// whether the server has it all.
    pub(crate) fn close_client(&self, deadline: Instant) -> bool {
        let (mut progress, mut moved, mut heard) = ((0, 0), Instant::now(), Instant::now());
        loop {
            let mut after = After::default();
            let mut hosted = self.hosted.lock();
            let mut out = Vec::new();
            let clean = hosted.client.close(clock::now(), &mut out);
            self.carry_out(&mut hosted, out, &mut after);
            if !clean {
                self.changed.wait_for(&mut hosted, TICK);
            }
            let now = Instant::now();
            if hosted.client.progress() != progress {
                (progress, moved) = (hosted.client.progress(), now);
            }
            if hosted.client.is_connected(ServerId::ROOT) {
                heard = now;
            }
            drop(hosted);
            self.finish(after, true);
            let in_vain = now > deadline || now - heard > AWAY || now - moved > STUCK;
            if clean || in_vain || self.refused.load(Ordering::SeqCst) {
                return clean;
            }
        }
    }

    /// Waits until all salvage is written to disk, while its content can still be read.
    pub(crate) fn finish_salvaging(&self, deadline: Instant) {
        while self.salvaging.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            std::thread::sleep(STOP_LOOK / 4);
        }
    }

    /// Keeps the changes that the server may not have, and reads them back. The client does nothing
    /// more after this.
    pub(crate) fn keep_what_is_left(&self) -> Ended {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        hosted.ended = true;
        let mut items = hosted.client.unapplied();
        hosted.fill_in(&mut items);
        let mut keeping = self.salvage.begin();
        // Uploads on their way to the share servers, or waiting for that, become publications here.
        // One upload may bring the next.
        loop {
            let mut out = Vec::new();
            let clean = hosted.client.close(clock::now(), &mut out);
            self.carry_out(&mut hosted, out, &mut after);
            if clean {
                let _ = self.salvage.drop_one(keeping.number());
                return Ended::Clean;
            }
            let Some((upload, plan)) = hosted.unstored.first_key_value() else { break };
            let (upload, share) = (*upload, plan.share);
            let pieces = plan.pieces.iter().map(|(nonce, plain)| (*nonce, plain));
            let (bytes, hashes) = content::seal_share(&plan.key, pieces);
            keeping.share(share, &bytes);
            self.stored(&mut hosted, upload, Ok(hashes), &mut after);
        }
        let whole = hosted.client.is_all_logged(ServerId::ROOT);
        let whose = hosted.session(ServerId::ROOT).map(|session| {
            let (machine, start) = &hosted.identity;
            Whose { machine: *machine, incarnation: start.incarnation, session }
        });
        let (first, entries) = hosted.client.log_left(ServerId::ROOT);
        let count = items.len().max(entries.len());
        let left = whose.filter(|_| whole && hosted.client.has_session(ServerId::ROOT));
        let left = left.map(|whose| LeftBehind { whose, first, entries });
        let reaches = hosted.client.is_connected(ServerId::ROOT);
        drop(hosted);
        // Content that is elsewhere is not waited for while the server is away.
        let gather = |parts: Vec<content::ReadPart>| {
            let is_here = |part: &content::ReadPart| !matches!(part, content::ReadPart::Piece { .. });
            if reaches || parts.iter().all(is_here) {
                self.pieces.gather(self.copies(), parts)
            } else {
                Err(Error::CutOff)
            }
        };
        match self.salvage.finish(keeping, items, left.as_ref(), gather) {
            Ok((number, goes_on)) => Ended::Kept { number, count, goes_on },
            Err(why) => Ended::Lost { count, why },
        }
    }
}
