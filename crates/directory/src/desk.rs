//! The requests that wait, what was recalled for them, and which fields are contended.
//!
//! A request waits for all of its leases and holds none meanwhile, and what is in its way is recalled whoever holds it; so requests wait for
//! one another only in the order of their arrival, and nothing can wait in a circle.

use ident::FileId;
use lease::{Field, Kind, Label, Lease, Released, SessionId, Time};
use namespace::Operation;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::AskMode;

/// Requests of one session that may wait at a time.
pub(crate) const REQUESTS_MAX: usize = 4096;
/// Leases that a client may want at once.
pub(crate) const WANTS_MAX: usize = 256;
/// A holder that is alive must have answered a recall by then: it has had time to publish what it had cached.
pub(crate) const RECALL_MS_MAX: u64 = 5 * 60_000;
/// For so long after a recall a field counts as contended, and is granted narrowly.
const CONTENDED_MS: u64 = 10_000;
/// Contended fields that are remembered.
const CONTENDED_MAX: usize = 4096;

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub session: SessionId,
    /// The client's name for it.
    pub number: u64,
    pub operation: Operation,
    pub wants: Vec<Lease>,
    pub mode: AskMode,
    /// What the decision rested on when it was last tried: all of that has to be free at once.
    pub needs: Vec<Lease>,
    /// Fields that holders were asked to flush, for a report; false until they have.
    pub flushed: BTreeMap<(SessionId, FileId, Field), bool>,
}

/// A recall that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recall {
    keep: Option<Kind>,
    since: Time,
    /// The holder cannot do as it was asked as long as it has a handle open ([`Field::Handles`] only).
    stuck: bool,
}

/// A flush that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Flush {
    session: SessionId,
    arrival: u64,
    file: FileId,
    field: Field,
}

/// See the module. All of it is part of the replicated state, since it decides what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Desk {
    next_arrival: u64,
    next_flush: u64,
    requests: BTreeMap<u64, Request>,
    recalls: BTreeMap<(FileId, Field, SessionId), Recall>,
    flushes: BTreeMap<u64, Flush>,
    contended: BTreeMap<(FileId, Field), Time>,
    /// Requests by the files that they need, so that a release wakes only whom it concerns.
    #[serde(skip)]
    by_file: BTreeMap<FileId, BTreeSet<u64>>,
    /// Requests to be tried again in this turn.
    #[serde(skip)]
    woken: BTreeSet<u64>,
}

impl Desk {
    /// Restores what is not written down.
    pub fn index(&mut self) {
        let needs: Vec<_> =
            self.requests.iter().map(|(arrival, request)| (*arrival, request.needs.clone())).collect();
        for (arrival, needs) in needs {
            self.index_request(arrival, &needs);
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// How many of `session` wait.
    pub fn count(&self, session: SessionId) -> usize {
        self.requests.values().filter(|request| request.session == session).count()
    }

    /// A place in the order of arrival.
    pub fn arrive(&mut self) -> u64 {
        self.next_arrival += 1;
        self.next_arrival
    }

    /// Puts a request (back) in its place.
    pub fn wait(&mut self, arrival: u64, request: Request) {
        self.index_request(arrival, &request.needs);
        self.requests.insert(arrival, request);
    }

    fn index_request(&mut self, arrival: u64, needs: &[Lease]) {
        for need in needs {
            if !self.by_file.get(&need.file).is_some_and(|arrivals| arrivals.contains(&arrival)) {
                self.by_file.entry(need.file.clone()).or_default().insert(arrival);
            }
        }
    }

    /// Takes a request out.
    pub fn take(&mut self, arrival: u64) -> Option<Request> {
        let request = self.requests.remove(&arrival)?;
        for need in &request.needs {
            if let Some(arrivals) = self.by_file.get_mut(&need.file) {
                arrivals.remove(&arrival);
                if arrivals.is_empty() {
                    self.by_file.remove(&need.file);
                }
            }
        }
        Some(request)
    }

    /// Something changed about `file`: who waits for it is tried again.
    pub fn wake(&mut self, file: &FileId) {
        if let Some(arrivals) = self.by_file.get(file) {
            self.woken.extend(arrivals);
        }
    }

    /// Everybody is tried again.
    pub fn wake_all(&mut self) {
        self.woken.extend(self.requests.keys());
    }

    /// The request to try next.
    pub fn next_woken(&mut self) -> Option<u64> {
        self.woken.pop_first()
    }

    /// Whether a request that came before `arrival` waits for what goes ill with `need`: first come, first served.
    pub fn comes_first(&self, arrival: u64, session: SessionId, need: &Lease) -> bool {
        let Some(arrivals) = self.by_file.get(&need.file) else { return false };
        arrivals.range(..arrival).any(|earlier| {
            self.requests.get(earlier).is_some_and(|request| {
                request.session != session
                    && request.mode != AskMode::Report
                    && request.needs.iter().any(|other| collide(need, other))
            })
        })
    }

    /// Whether anybody but `session` waits for anything of `file`.
    pub fn others_wait(&self, file: &FileId, session: SessionId) -> bool {
        let Some(arrivals) = self.by_file.get(file) else { return false };
        arrivals
            .iter()
            .any(|arrival| self.requests.get(arrival).is_some_and(|request| request.session != session))
    }

    /// Notes that `session` is told to let go; false if it was told already.
    pub fn recall(&mut self, now: Time, session: SessionId, released: &Released) -> bool {
        self.contend(now, &released.file, &released.field);
        let key = (released.file.clone(), released.field.clone(), session);
        let keep = released.keep;
        if self.recalls.get(&key).is_some_and(|recall| recall.keep == keep || recall.keep.is_none()) {
            return false;
        }
        self.recalls.insert(key, Recall { keep, since: now, stuck: false });
        true
    }

    /// Whether `session` has said that it cannot let go of its lease on the file's handles.
    pub fn is_stuck(&self, session: SessionId, file: &FileId) -> bool {
        let key = (file.clone(), Field::Handles, session);
        self.recalls.get(&key).is_some_and(|recall| recall.stuck)
    }

    /// `session` lets go: recalls of that are answered.
    pub fn released(&mut self, session: SessionId, released: &Released) {
        let handles = (released.file.clone(), Field::Handles, session);
        if released.field == Field::Handles
            && released.keep.is_some()
            && let Some(recall) = self.recalls.get_mut(&handles)
            && recall.keep.is_none()
        {
            recall.stuck = true;
            return;
        }
        self.forget_recalls(&released.file, |field, holder| {
            holder == session && field.overlaps(&released.field)
        });
    }

    /// `session` is granted these fields: whatever was recalled of them before is history.
    pub fn granted(&mut self, session: SessionId, file: &FileId, granted: impl Fn(&Field) -> bool) {
        self.forget_recalls(file, |field, holder| holder == session && granted(field));
    }

    /// `file` is no more.
    pub fn died(&mut self, file: &FileId) {
        self.forget_recalls(file, |_, _| true);
        self.contended.retain(|(other, _), _| other != file);
        self.wake(file);
    }

    fn forget_recalls(&mut self, file: &FileId, which: impl Fn(&Field, SessionId) -> bool) {
        if self.recalls.is_empty() {
            return;
        }
        let of_file = self.recalls.range((file.clone(), Field::Attributes, SessionId(0))..);
        let of_file = of_file.take_while(|((other, ..), _)| other == file);
        let forgotten: Vec<_> = of_file
            .filter(|((_, field, holder), _)| which(field, *holder))
            .map(|(key, _)| key.clone())
            .collect();
        for key in forgotten {
            self.recalls.remove(&key);
        }
    }

    /// All recalls that are not answered, for a leader that does not know which were sent.
    pub fn unanswered(&self) -> impl Iterator<Item = (SessionId, Released)> + '_ {
        let unanswered = self.recalls.iter().filter(|(_, recall)| !recall.stuck);
        unanswered.map(|((file, field, session), recall)| {
            (*session, Released { file: file.clone(), field: field.clone(), keep: recall.keep })
        })
    }

    /// All flushes that are not answered.
    pub fn unflushed(&self) -> impl Iterator<Item = (SessionId, u64, FileId, Field)> + '_ {
        let flushes = self.flushes.iter();
        flushes.map(|(number, flush)| (flush.session, *number, flush.file.clone(), flush.field.clone()))
    }

    /// Sessions that have not answered a recall for too long.
    pub fn overdue(&self, now: Time) -> BTreeSet<SessionId> {
        let unanswered = self.recalls.iter().filter(|(_, recall)| !recall.stuck);
        let overdue = unanswered.filter(|(_, recall)| now.ms_since(recall.since) > RECALL_MS_MAX);
        overdue.map(|((_, _, session), _)| *session).collect()
    }

    /// Sessions that somebody waits for.
    pub fn awaited(&self) -> BTreeSet<SessionId> {
        let recalled =
            self.recalls.iter().filter(|(_, recall)| !recall.stuck).map(|((_, _, session), _)| *session);
        recalled.chain(self.flushes.values().map(|flush| flush.session)).collect()
    }

    /// The number under which `session` is asked to flush `field` for a request.
    pub fn flush(&mut self, session: SessionId, arrival: u64, file: &FileId, field: &Field) -> u64 {
        self.next_flush += 1;
        let flush = Flush { session, arrival, file: file.clone(), field: field.clone() };
        self.flushes.insert(self.next_flush, flush);
        self.next_flush
    }

    /// `session` has flushed.
    pub fn flushed(&mut self, session: SessionId, number: u64) {
        let Some(flush) = self.flushes.get(&number).filter(|flush| flush.session == session).cloned() else {
            return;
        };
        self.flushes.remove(&number);
        if let Some(request) = self.requests.get_mut(&flush.arrival) {
            request.flushed.insert((session, flush.file, flush.field), true);
            self.woken.insert(flush.arrival);
        }
    }

    /// `session` is over: its requests go, and nobody waits for its answers any more.
    pub fn end_session(&mut self, session: SessionId) {
        let own = self.requests.iter().filter(|(_, request)| request.session == session);
        let own: Vec<u64> = own.map(|(arrival, _)| *arrival).collect();
        for arrival in &own {
            self.take(*arrival);
        }
        self.recalls.retain(|(_, _, holder), _| *holder != session);
        self.flushes.retain(|_, flush| flush.session != session && !own.contains(&flush.arrival));
        self.wake_all();
    }

    fn contend(&mut self, now: Time, file: &FileId, field: &Field) {
        if self.contended.len() >= CONTENDED_MAX {
            self.contended.retain(|_, since| now.ms_since(*since) < CONTENDED_MS);
        }
        if self.contended.len() < CONTENDED_MAX {
            self.contended.insert((file.clone(), field.clone()), now);
        }
    }

    /// Whether this field was recalled lately.
    pub fn is_contended(&self, now: Time, file: &FileId, field: &Field) -> bool {
        let since = self.contended.get(&(file.clone(), field.clone()));
        since.is_some_and(|since| now.ms_since(*since) < CONTENDED_MS)
    }

    /// The labels of `file` that were recalled lately.
    pub fn contended_labels(&self, now: Time, file: &FileId) -> Vec<Label> {
        let of_file = self.contended.range((file.clone(), Field::Attributes)..);
        let of_file = of_file.take_while(|((other, _), _)| other == file);
        let labels = of_file.filter_map(|((_, field), since)| match field {
            Field::Child(label) if now.ms_since(*since) < CONTENDED_MS => Some(label.clone()),
            _ => None,
        });
        labels.collect()
    }

    /// Whether any field of `file` was recalled lately.
    pub fn is_contended_anywhere(&self, now: Time, file: &FileId) -> bool {
        let of_file = self.contended.range((file.clone(), Field::Attributes)..);
        let mut of_file = of_file.take_while(|((other, _), _)| other == file);
        of_file.any(|(_, since)| now.ms_since(*since) < CONTENDED_MS)
    }
}

/// Whether two clients could not hold both.
fn collide(a: &Lease, b: &Lease) -> bool {
    a.file == b.file && a.field.overlaps(&b.field) && !a.kind.agrees_with(b.kind)
}
