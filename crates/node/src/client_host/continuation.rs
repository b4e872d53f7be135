//! The session of an earlier start, whose end left changes: it goes on until the server has them,
//! and this start's own session begins after that.

use super::chores::Chore;
use super::{After, ClientHost, Hosted};
use crate::unsent::Unsent;
use client::{Continuation, Heard};
use ident::ServerId;
use lease::SessionId;
use namespace::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{ToClient, ToServer};

/// The interval of renewals of an earlier start's session, in which only the rest of that start's
/// log is left to apply.
const RENEWAL: Duration = Duration::from_secs(5);

/// A session of an earlier start, whose end left changes.
pub(super) struct GoesOn {
    pub(super) number: u64,
    pub(super) unsent: Arc<Unsent>,
    pub(super) continuation: Continuation,
    /// The time of the session's last renewal, once it continues.
    pub(super) renewed: Option<Instant>,
}

impl ClientHost {
    /// Makes the machine begin with the changes that its last end left. To be called before the
    /// machine connects to any server.
    pub(crate) fn go_on_with(&self, number: u64, unsent: Unsent) {
        let continuation = Continuation::new(unsent.first, unsent.entries.clone());
        let goes_on = GoesOn { number, unsent: Arc::new(unsent), continuation, renewed: None };
        self.hosted.lock().goes_on = Some(goes_on);
    }

    /// Handles a message of the server in the session of an earlier start.
    pub(super) fn goes_on_hears(&self, hosted: &mut Hosted, message: &ToClient, after: &mut After) {
        let Some(goes_on) = &mut hosted.goes_on else { return };
        match goes_on.continuation.hear(message) {
            Heard::Nothing => {}
            Heard::GoesOn => {
                goes_on.renewed = Some(Instant::now());
                self.chore(Chore::GoOn);
            }
            Heard::Done => {
                let (number, session) = (goes_on.number, goes_on.unsent.whose.session);
                // This comes first: the next start must not take applied changes for lost.
                let kept = self.salvage.applied(number, goes_on.continuation.refused());
                if let Err(error) = kept {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, number, "what the server has now is still among the salvage");
                }
                tracing::info!("what the last end of this machine had left is applied");
                self.begins(hosted, Some(session), after);
            }
            Heard::Over => {
                if let Some(goes_on) = hosted.goes_on.take() {
                    self.stays(&goes_on);
                }
                self.begins(hosted, None, after);
            }
        }
    }

    /// Ends the session of an earlier start, and begins the client's own.
    pub(super) fn begins(&self, hosted: &mut Hosted, ends: Option<SessionId>, after: &mut After) {
        if let Some(session) = ends {
            self.upstream().send(ServerId::ROOT, Some(session), ToServer::Goodbye);
        }
        hosted.goes_on = None;
        hosted.servers.entry(ServerId::ROOT).or_default().deaf = true;
        after.begins.insert(ServerId::ROOT);
    }

    /// Marks the changes of `goes_on` as never to be applied.
    pub(super) fn stays(&self, goes_on: &GoesOn) {
        let number = goes_on.number;
        match self.salvage.stays(number) {
            Ok(()) => tracing::error!(
                number,
                "the session in which the last end of this machine has left something is over; that is kept: leasehold salvage list"
            ),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                number,
                "what the last end of this machine has left cannot be applied, and cannot be noted either"
            ),
        }
    }

    /// Stores the shares that the rest of the log refers to, then sends that rest. Runs on a thread
    /// that may wait.
    pub(super) fn go_on(&self) {
        let (unsent, shares) = match &self.hosted.lock().goes_on {
            Some(goes_on) => (goes_on.unsent.clone(), goes_on.continuation.shares()),
            None => return,
        };
        let stored = shares.into_iter().try_for_each(|share| {
            let Some(bytes) = unsent.share(share).map_err(|error| error.to_string())? else { return Ok(()) };
            let stored = self.copies().store_sealed(unsent.whose.session, vec![(share, bytes)]);
            stored.into_iter().collect::<Result<(), Error>>().map_err(|error| error.to_string())
        });
        if self.is_stopping() {
            return;
        }
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        match (stored, &mut hosted.goes_on) {
            (Ok(()), Some(goes_on)) => {
                let session = Some(unsent.whose.session);
                let say = |it| self.upstream().send(ServerId::ROOT, session, it);
                goes_on.continuation.say().into_iter().for_each(say);
            }
            (Err(why), Some(_)) => {
                tracing::error!(why, "what the last end of this machine has left cannot be stored");
                if let Some(goes_on) = hosted.goes_on.take() {
                    self.stays(&goes_on);
                }
                self.begins(&mut hosted, Some(unsent.whose.session), &mut after);
            }
            (_, None) => {}
        }
        drop(hosted);
        self.finish(after, true);
    }

    /// Renews the earlier start's session while its shares are stored: that session must not lapse.
    pub(super) fn renews(&self, hosted: &mut Hosted) {
        if let Some(goes_on) = &mut hosted.goes_on
            && let Some(renewed) = &mut goes_on.renewed
            && renewed.elapsed() >= RENEWAL
        {
            *renewed = Instant::now();
            self.upstream().send(ServerId::ROOT, Some(goes_on.unsent.whose.session), ToServer::Renew);
        }
    }
}
