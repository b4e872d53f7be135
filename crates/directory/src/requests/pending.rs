//! The pending requests with their purposes.

use ident::FileId;
use lease::{Arrival, Field, InTheWay, Kind, Lease, Queue, Released, RequestKind, SessionId, Time};
use namespace::Operation;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::AskMode;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub session: SessionId,
    /// The client's number for it.
    pub number: u64,
    pub operation: Operation,
    /// The leases that the client misses, or doubts: see [`wire::ToServer::Ask`]. The server
    /// decides anew at each try which leases are really needed.
    pub wants: Vec<Lease>,
    pub mode: AskMode,
    /// When the request came.
    pub since: Time,
    /// The files that the request takes ahead of a walk, once that is known.
    pub ahead: Option<usize>,
}

/// The pending requests. They are part of the replicated state, since they decide what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingRequests {
    /// The leases that the requests need, and the recalls and flushes under way for them.
    pub queue: Queue,
    asked: BTreeMap<Arrival, Asked>,
    /// Requests to be tried again in this turn.
    #[serde(skip)]
    woken: BTreeSet<Arrival>,
}

impl PendingRequests {
    /// The number of pending requests.
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Adds a request behind all others.
    pub fn push(&mut self, asked: Asked) -> Arrival {
        let what = what_for(asked.mode);
        let (session, number, wants) = (asked.session, asked.number, Vec::new());
        let arrival = self.queue.push(lease::Request { session, number, wants, what });
        self.asked.insert(arrival, asked);
        arrival
    }

    /// Whether a request of `session` with this number is pending.
    pub fn is_waiting(&self, session: SessionId, number: u64) -> bool {
        let has_number =
            |arrival: Arrival| self.queue.get(arrival).is_some_and(|request| request.number == number);
        self.queue.of_session(session).any(has_number)
    }

    /// The request at this place.
    pub fn asked(&self, arrival: Arrival) -> Option<Asked> {
        self.asked.get(&arrival).cloned()
    }

    /// Notes how many files the request takes ahead.
    pub fn takes_ahead(&mut self, arrival: Arrival, files: usize) {
        if let Some(asked) = self.asked.get_mut(&arrival) {
            asked.ahead = Some(files);
        }
    }

    /// Removes a request that is done; requests that stood behind it are tried again.
    pub fn remove(&mut self, arrival: Arrival) {
        self.asked.remove(&arrival);
        let request = self.queue.remove(arrival).expect("a request that is asked for waits in the queue");
        request.wants.iter().for_each(|want| self.wake(&want.file));
    }

    /// Replaces the leases that a request needs, after deciding again. Requests that stood behind
    /// it for leases that it no longer needs are tried again.
    pub fn replace_wants(&mut self, arrival: Arrival, wants: Vec<Lease>, what: RequestKind) {
        let before = self.queue.get(arrival).expect("a request whose leases change waits in the queue");
        let before = before.wants.clone();
        let dropped: BTreeSet<FileId> =
            before.into_iter().filter(|want| !wants.contains(want)).map(|want| want.file).collect();
        self.queue.replace_wants(arrival, wants, what);
        dropped.iter().for_each(|file| self.wake(file));
    }

    /// Marks the requests that wait for `file` to be tried again: something changed about it.
    pub fn wake(&mut self, file: &FileId) {
        self.woken.extend(self.queue.waiting_on(file));
    }

    /// Marks the operations of `session` to be tried again that need `file`: `session` owes an
    /// answer about the file from now on, and its operations go first
    /// ([`Queue::blocked_by_earlier`]).
    pub fn owes_answer(&mut self, session: SessionId, file: &FileId) {
        let is_its = |arrival: &Arrival| {
            let request = self.queue.get(*arrival);
            request.is_some_and(|it| it.session == session && it.what == RequestKind::Ship)
        };
        self.woken.extend(self.queue.waiting_on(file).into_iter().filter(is_its));
    }

    /// Marks the request at this place to be tried, in its turn.
    pub fn wake_at(&mut self, arrival: Arrival) {
        self.woken.insert(arrival);
    }

    /// Marks the requests of `session` to be tried again.
    pub fn wake_session(&mut self, session: SessionId) {
        self.woken.extend(self.queue.of_session(session));
    }

    /// Marks all requests to be tried again: regions have changed hands.
    pub fn wake_all(&mut self) {
        self.woken.extend(self.asked.keys());
    }

    /// The request to try next.
    pub fn next_woken(&mut self) -> Option<Arrival> {
        self.woken.pop_first()
    }

    /// Whether a session other than `session` waits for anything of `file`.
    pub fn others_wait(&self, file: &FileId, session: SessionId) -> bool {
        let waiting = self.queue.waiting_on(file);
        waiting
            .into_iter()
            .any(|arrival| self.queue.get(arrival).is_some_and(|request| request.session != session))
    }

    /// The leases on `file` that sessions other than `session` wait for.
    pub fn wants_of_others(&self, file: &FileId, session: SessionId) -> Vec<(SessionId, Lease)> {
        let waiting = self.queue.waiting_on(file).into_iter().filter_map(|arrival| self.queue.get(arrival));
        let of_others = waiting.filter(|request| request.session != session);
        let wants =
            of_others.flat_map(|request| request.wants.iter().map(|want| (request.session, want.clone())));
        wants.filter(|(_, want)| want.file == *file).collect()
    }

    /// Forgets `file`, which no longer exists.
    pub fn died(&mut self, file: &FileId) {
        self.queue.recalls.forget(file);
        self.wake(file);
    }

    /// Sessions that requests wait for.
    pub fn awaited(&self) -> BTreeSet<SessionId> {
        let recalled = self.queue.recalls.owed().map(|(session, _)| session);
        recalled.chain(self.queue.flushes.unanswered().map(|(session, ..)| session)).collect()
    }

    /// Notes that `session` has flushed.
    pub fn flushed(&mut self, session: SessionId, number: u64) {
        self.woken.extend(self.queue.flushes.flushed(session, number));
    }

    /// Removes the requests of `session`, which is over; no request waits for its answers any more.
    pub fn end_session(&mut self, session: SessionId) {
        for arrival in self.queue.of_session(session) {
            self.asked.remove(&arrival);
        }
        let again = self.queue.end(session);
        self.woken.extend(again);
    }

    /// The leases on `file` that are waited for: the session, the field, the kind, and since when.
    pub fn waits_on(&self, file: &FileId) -> Vec<(SessionId, Field, Kind, Time)> {
        let mut waits = Vec::new();
        for arrival in self.queue.waiting_on(file) {
            let (Some(request), Some(asked)) = (self.queue.get(arrival), self.asked.get(&arrival)) else {
                continue;
            };
            let wants = request.wants.iter().filter(|want| want.file == *file);
            waits.extend(wants.map(|want| (request.session, want.field.clone(), want.kind, asked.since)));
        }
        waits
    }

    /// All pending requests, in the order of arrival.
    pub fn waiting(&self) -> impl Iterator<Item = (Arrival, &Asked)> {
        self.asked.iter().map(|(arrival, asked)| (*arrival, asked))
    }

    /// The sessions that have not answered a recall or a flush for this request; since when.
    pub fn awaited_by(&self, arrival: Arrival) -> BTreeMap<SessionId, Time> {
        let mut awaited = BTreeMap::new();
        let (Some(request), Some(asked)) = (self.queue.get(arrival), self.asked.get(&arrival)) else {
            return awaited;
        };
        awaited.extend(self.queue.flushes.awaited_by(arrival).map(|holder| (holder, asked.since)));
        for want in &request.wants {
            for (holder, field, _, since) in self.queue.recalls.unanswered_of(&want.file) {
                if holder != request.session && field.overlaps(&want.field) {
                    let first = awaited.entry(holder).or_insert(since);
                    *first = since.min(*first);
                }
            }
        }
        awaited
    }
}

/// The kind that a request of this mode has in the queue.
pub(crate) fn what_for(mode: AskMode) -> RequestKind {
    match mode {
        AskMode::Report => RequestKind::Report,
        AskMode::Ship => RequestKind::Ship,
        AskMode::Lease
        | AskMode::LeaseOrReport
        | AskMode::LeaseIfFree
        | AskMode::Values
        | AskMode::Page { .. } => RequestKind::Lease,
    }
}

/// The conflicting leases, in the form in which their holders are asked for them.
pub(crate) fn to_recall(
    file: &FileId,
    in_the_way: impl IntoIterator<Item = InTheWay>,
) -> impl Iterator<Item = (SessionId, Released)> {
    let released =
        |InTheWay { session, field, keep }| (session, Released { file: file.clone(), field, keep });
    in_the_way.into_iter().map(released)
}
