//! Sessions at the server: how the machine greets, and what it is told.

use super::{After, ClientHost, Hosted};
use crate::error::MachineError;
use crate::routes::{Down, HERE, LocalClient};
use crate::server::Server;
use crate::unsent::Whose;
use crate::upstream::Upstream;
use client::{Input, Invalidation};
use ident::ServerId;
use lease::SessionId;
use namespace::Error;
use net::SessionClient;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::{MachineId, Receipt, Start, ToClient};

/// The time after which a start reports that it waits for a server elsewhere, and the time until it
/// repeats that.
const WAITS_FIRST: Duration = Duration::from_secs(2);
const WAITS_AGAIN: Duration = Duration::from_secs(30);
/// How long a start may take until the session is open.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A machine's first message to a server over a new connection.
pub(crate) struct Greeting {
    pub machine: MachineId,
    pub start: Start,
    /// The machine's session until now.
    pub session: Option<SessionId>,
    pub receipt: Option<Receipt>,
}

impl Hosted {
    /// Turns a resumption into a fence if the server has forgotten part of this client's log.
    ///
    /// Such a server has less of the log than it had acknowledged. For this client its session is
    /// over: no later message of that server builds on the forgotten part.
    fn unless_forgotten(&self, message: ToClient) -> ToClient {
        match message {
            ToClient::Resumed { up_to, .. } if up_to < self.client.acknowledged(ServerId::ROOT) => {
                tracing::error!(
                    "the server has forgotten what it had acknowledged: its disk may be an older copy; what it lacks is kept: leasehold salvage list"
                );
                ToClient::Fenced
            }
            message => message,
        }
    }
}

impl ClientHost {
    /// Makes the greeting of a new connection. The client's time counts from here.
    pub(crate) fn greet(&self) -> Greeting {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        hosted.identity.1.greeting += 1;
        if let Some(goes_on) = &hosted.goes_on {
            // The session belongs to the start that opened it. The calling process belongs to this
            // start, and to no copy of the directory.
            let Whose { machine, incarnation, session } = goes_on.unsent.whose;
            let start = Start { incarnation, ..hosted.identity.1.clone() };
            return Greeting { machine, start, session: Some(session), receipt: hosted.receipt };
        }
        self.input(&mut hosted, Input::Greeting(ServerId::ROOT), &mut after);
        let session = hosted.session.filter(|_| hosted.client.has_session(ServerId::ROOT));
        let ((machine, start), receipt) = (hosted.identity.clone(), hosted.receipt);
        drop(hosted);
        self.finish(after, false);
        Greeting { machine, start, session, receipt }
    }

    /// Counts this machine's starts on from `incarnation`, a later start than the greeting's, of
    /// which the server knows a session. Returns the start to greet the server with next. Returns
    /// none if this process has had a session of its own: then another process has started after
    /// it.
    pub(crate) fn counts_from(&self, incarnation: u64) -> Option<u64> {
        let mut hosted = self.hosted.lock();
        if hosted.open {
            return None;
        }
        // The later start's session has ended the session that was to continue.
        if let Some(goes_on) = hosted.goes_on.take() {
            self.stays(&goes_on);
        }
        let start = &mut hosted.identity.1;
        start.incarnation = start.incarnation.max(incarnation + 1);
        Some(start.incarnation)
    }

    /// Waits for the session, unless the server refuses the machine. A server elsewhere may be away
    /// for any time: `waits` is called now and then.
    pub(crate) fn wait_until_open(&self, waits: &mut dyn FnMut()) -> Result<(), MachineError> {
        let mut deadline = Instant::now() + START_TIMEOUT;
        let mut say = Instant::now() + WAITS_FIRST;
        let mut hosted = self.hosted.lock();
        while !hosted.open {
            if self.refused.load(Ordering::SeqCst) {
                return Err(MachineError::NoSession);
            }
            if hosted.goes_on.as_ref().is_some_and(|goes_on| goes_on.renewed.is_some()) {
                // Storing the rest of the log first may take long.
                deadline = Instant::now() + START_TIMEOUT;
            }
            if self.changed.wait_until(&mut hosted, deadline.min(say)).timed_out() {
                let now = Instant::now();
                if now >= deadline && !self.is_remote() {
                    return Err(MachineError::NoSession);
                }
                if now >= say {
                    say = now + WAITS_AGAIN;
                    parking_lot::MutexGuard::unlocked(&mut hosted, &mut *waits);
                }
                if now >= deadline {
                    deadline = now + START_TIMEOUT;
                }
            }
        }
        Ok(())
    }

    /// Handles the server's refusal of this machine, which has been expelled. The client's state
    /// counts no more, and all waiting calls end.
    pub(crate) fn refuse(&self) {
        if self.refused.swap(true, Ordering::SeqCst) {
            return;
        }
        // The session is over, even if the connection broke before the server's message. Changes
        // that could not be applied are salvaged.
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        if let Some(goes_on) = hosted.goes_on.take() {
            self.stays(&goes_on);
        }
        self.input(&mut hosted, Input::Message(ServerId::ROOT, ToClient::Fenced), &mut after);
        let answers = std::mem::take(&mut hosted.answers);
        // No call begins again of which the program hears below that it has failed.
        let mut unheard = Vec::new();
        answers.keys().for_each(|ticket| _ = hosted.client.cancel(*ticket, &mut unheard));
        hosted.session = None;
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
        for answer in answers.into_values() {
            answer(Err(Error::CutOff));
        }
        for cache in self.caches.read().iter() {
            cache.revoke_soon(vec![Invalidation::Everything]);
        }
    }

    /// Opens another session, since there is none, or it is over.
    pub(crate) fn open_again(&self) {
        match self.upstream() {
            Upstream::Here(server) => {
                if let Some(server) = server.upgrade() {
                    self.open_here(&server);
                }
            }
            Upstream::There(link) => link.begin_again(),
        }
    }

    /// Opens a session of this machine's client at its own server.
    fn open_here(&self, server: &Server) {
        let mut greeting = self.greet();
        let latest = server.group().query(|directory, _| directory.latest_start(greeting.machine));
        let is_later = |latest: &u64| *latest > greeting.start.incarnation;
        // The directory of keys is older than the server's, or a copy.
        if latest.filter(is_later).is_some_and(|latest| self.counts_from(latest).is_some()) {
            greeting = self.greet();
        }
        let Greeting { machine, start, session, .. } = greeting;
        server.open((machine, server.knows().newest), &start, session, HERE);
    }

    /// Hands the server's messages to the client.
    pub(crate) fn deliver(&self, told: Vec<Down>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        if hosted.ended {
            return;
        }
        for told in told {
            match told {
                Down::Opened(session) => {
                    (hosted.welcomed, hosted.deaf) = (Some(session), false);
                    self.refused.store(false, Ordering::SeqCst);
                }
                Down::Message(ToClient::Receipt(receipt)) => hosted.receipt = Some(receipt),
                Down::Message(_) if hosted.deaf => {}
                Down::Message(message) if hosted.goes_on.is_some() => {
                    self.goes_on_hears(&mut hosted, &message, &mut after);
                }
                Down::Message(message) => {
                    let message = hosted.unless_forgotten(message);
                    if let Some(tap) = self.tap.get() {
                        tap(&message);
                    }
                    if matches!(message, ToClient::Recall { .. }) {
                        self.recalls.fetch_add(1, Ordering::Relaxed);
                    }
                    hosted.open |= matches!(message, ToClient::Opened { .. });
                    if matches!(message, ToClient::Opened { .. } | ToClient::Resumed { .. }) {
                        hosted.session = hosted.welcomed;
                    }
                    if matches!(message, ToClient::Fenced) {
                        hosted.session = None;
                        after.fenced = true;
                    }
                    self.input(&mut hosted, Input::Message(ServerId::ROOT, message), &mut after);
                }
                Down::Refused(_) | Down::Enrolled(_) => {}
            }
        }
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
    }
}

impl SessionClient for ClientHost {
    fn greeting(&self) -> (Start, Option<SessionId>, Option<Receipt>) {
        let Greeting { start, session, receipt, .. } = self.greet();
        (start, session, receipt)
    }

    fn opened(&self, session: SessionId) {
        ClientHost::deliver(self, vec![Down::Opened(session)]);
    }

    fn deliver(&self, messages: Vec<ToClient>) {
        ClientHost::deliver(self, messages.into_iter().map(Down::Message).collect());
    }

    fn refused(&self) {
        self.refuse();
    }
}

impl LocalClient for ClientHost {
    fn is_remote(&self) -> bool {
        ClientHost::is_remote(self)
    }

    fn session(&self) -> Option<SessionId> {
        ClientHost::session(self)
    }

    fn deliver(&self, told: Vec<Down>) {
        ClientHost::deliver(self, told);
    }

    fn open_again(&self) {
        ClientHost::open_again(self);
    }
}
