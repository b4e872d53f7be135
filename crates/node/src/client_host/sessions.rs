//! Sessions at the server: how the machine greets, and what it is told.

use super::{After, ClientHost, Hosted};
use crate::error::MachineError;
use crate::hosted::HostedServer;
use crate::routes::{Down, HERE, LocalClient};
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
/// The time in which this machine's own member opens a session. After that, the request was lost
/// with a member that has ended meanwhile.
const OPENED_WITHIN: Duration = Duration::from_secs(60);

/// A machine's first message to a server over a new connection.
pub(crate) struct Greeting {
    pub machine: MachineId,
    pub start: Start,
    /// The machine's session until now.
    pub session: Option<SessionId>,
    pub receipt: Option<Receipt>,
}

impl Hosted {
    /// The client's session at `server`.
    pub(super) fn session(&self, server: ServerId) -> Option<SessionId> {
        self.servers.get(&server)?.session
    }

    /// Turns a resumption into a fence if the server has forgotten part of this client's log.
    ///
    /// Such a server has less of the log than it had acknowledged. For this client its session is
    /// over: no later message of that server builds on the forgotten part.
    fn unless_forgotten(&self, server: ServerId, message: ToClient) -> ToClient {
        match message {
            ToClient::Resumed { up_to, .. } if up_to < self.client.acknowledged(server) => {
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
    /// Makes the greeting of a new connection to `server`. The client's time counts from here.
    pub(crate) fn greet(&self, server: ServerId) -> Greeting {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        hosted.identity.1.greeting += 1;
        let receipt = hosted.servers.entry(server).or_default().receipt;
        if let Some(goes_on) = hosted.goes_on.as_ref().filter(|_| server == ServerId::ROOT) {
            // The session belongs to the start that opened it. The calling process belongs to this
            // start, and to no copy of the directory.
            let Whose { machine, incarnation, session } = goes_on.unsent.whose;
            let start = Start { incarnation, ..hosted.identity.1.clone() };
            return Greeting { machine, start, session: Some(session), receipt };
        }
        self.input(&mut hosted, Input::Greeting(server), &mut after);
        let session = hosted.session(server).filter(|_| hosted.client.has_session(server));
        let (machine, start) = hosted.identity.clone();
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
        for server in hosted.servers.keys().copied().collect::<Vec<_>>() {
            self.input(&mut hosted, Input::Message(server, ToClient::Fenced), &mut after);
        }
        let answers = std::mem::take(&mut hosted.answers);
        // No call begins again of which the program hears below that it has failed.
        let mut unheard = Vec::new();
        answers.keys().for_each(|ticket| _ = hosted.client.cancel(*ticket, &mut unheard));
        hosted.servers.values_mut().for_each(|connection| connection.session = None);
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

    /// Opens another session at `server`, since there is none, or it is over.
    pub(crate) fn open_again(&self, server: ServerId) {
        match self.upstream() {
            Upstream::Here(here) => {
                if let Some(hosted) = here.upgrade().and_then(|here| here.hosted(server)) {
                    self.open_here(&hosted);
                }
            }
            Upstream::There(links) => {
                if let Err(error) = links.open(server) {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, server = server.0, "a server cannot be called");
                }
            }
        }
    }

    /// Opens a session of this machine's client at a server of which this machine has the only
    /// member, unless that is under way: the member may have much else to do first.
    fn open_here(&self, hosted: &HostedServer) {
        {
            let mut known = self.hosted.lock();
            let asked = &mut known.servers.entry(hosted.id()).or_default().asked;
            if asked.is_some_and(|asked| asked.elapsed() < OPENED_WITHIN) {
                return;
            }
            *asked = Some(Instant::now());
        }
        let mut greeting = self.greet(hosted.id());
        let latest = hosted.group().query(|directory, store| directory.latest_start(greeting.machine, store));
        let is_later = |latest: &u64| *latest > greeting.start.incarnation;
        // The directory of keys is older than the server's, or a copy.
        if latest.filter(is_later).is_some_and(|latest| self.counts_from(latest).is_some()) {
            greeting = self.greet(hosted.id());
        }
        let Greeting { machine, start, session, .. } = greeting;
        hosted.open((machine, hosted.group().knows().newest), &start, session, HERE);
    }

    /// Opens sessions at the servers beside the root server with which the client has to do, and
    /// has none.
    pub(crate) fn open_beside(&self) {
        let lacking: Vec<ServerId> = {
            let hosted = self.hosted.lock();
            let beside = hosted.servers.keys().filter(|server| **server != ServerId::ROOT);
            beside.copied().filter(|server| !hosted.client.is_connected(*server)).collect()
        };
        lacking.into_iter().for_each(|server| self.open_again(server));
    }

    /// Hands the server's messages to the client.
    pub(crate) fn deliver(&self, server: ServerId, told: Vec<Down>) {
        let mut after = After::default();
        let mut hosted = self.hosted.lock();
        if hosted.ended {
            return;
        }
        for told in told {
            let is_root = server == ServerId::ROOT;
            let connection = hosted.servers.entry(server).or_default();
            match told {
                Down::Opened(session) => {
                    (connection.welcomed, connection.deaf) = (Some(session), false);
                    connection.asked = None;
                    if is_root {
                        self.refused.store(false, Ordering::SeqCst);
                    }
                }
                Down::Message(ToClient::Receipt(receipt)) => connection.receipt = Some(receipt),
                Down::Message(_) if connection.deaf => {}
                Down::Message(message) if is_root && hosted.goes_on.is_some() => {
                    self.goes_on_hears(&mut hosted, &message, &mut after);
                }
                Down::Message(message) => {
                    let message = hosted.unless_forgotten(server, message);
                    if let Some(tap) = self.tap.get() {
                        tap(&message);
                    }
                    if matches!(message, ToClient::Recall { .. }) {
                        self.recalls.fetch_add(1, Ordering::Relaxed);
                    }
                    hosted.open |= is_root && matches!(message, ToClient::Opened { .. });
                    let connection = hosted.servers.entry(server).or_default();
                    if matches!(message, ToClient::Opened { .. } | ToClient::Resumed { .. }) {
                        connection.session = connection.welcomed;
                    }
                    if matches!(message, ToClient::Fenced) {
                        connection.session = None;
                        after.fenced.insert(server);
                    }
                    self.input(&mut hosted, Input::Message(server, message), &mut after);
                }
                Down::Refused(_) => hosted.servers.entry(server).or_default().asked = None,
                Down::Enrolled(_) => {}
            }
        }
        self.changed.notify_all();
        drop(hosted);
        self.finish(after, false);
    }
}

impl SessionClient for ClientHost {
    fn greeting(&self, server: ServerId) -> (Start, Option<SessionId>, Option<Receipt>) {
        let Greeting { start, session, receipt, .. } = self.greet(server);
        (start, session, receipt)
    }

    fn opened(&self, server: ServerId, session: SessionId) {
        ClientHost::deliver(self, server, vec![Down::Opened(session)]);
    }

    fn deliver(&self, server: ServerId, messages: Vec<ToClient>) {
        ClientHost::deliver(self, server, messages.into_iter().map(Down::Message).collect());
    }

    fn refused(&self, server: ServerId, why: &str) {
        // The root server alone says who belongs to the cluster.
        if server == ServerId::ROOT {
            return self.refuse();
        }
        tracing::warn!(server = server.0, why, "a server refuses this machine; it is asked again");
    }
}

impl LocalClient for ClientHost {
    fn is_remote(&self) -> bool {
        ClientHost::is_remote(self)
    }

    fn session(&self, server: ServerId) -> Option<SessionId> {
        self.hosted.lock().session(server)
    }

    fn deliver(&self, server: ServerId, told: Vec<Down>) {
        ClientHost::deliver(self, server, told);
    }

    fn open_again(&self, server: ServerId) {
        ClientHost::open_again(self, server);
    }
}
