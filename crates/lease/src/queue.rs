//! Waiting requests (Farsite §7.2.1).

use crate::{Field, Flushes, Kind, Lease, Recalls, SessionId};
use ident::FileId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The most leases that one request may want. An operation rests on some twenty fields of up to
/// five files; the rest is room for the pages of a listing. A request costs a few hundred bytes for
/// each lease.
pub const WANTS_MAX: usize = 256;

/// The most requests of one session that may wait at a time. A kernel has fewer under way on one
/// mount.
pub const REQUESTS_MAX: usize = 4096;

/// A request's place in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Arrival(pub u64);

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// Leases for the client to act under: all of them at once, or none.
    Lease,
    /// Leases for the server to act under. The client's own leases may be in the way, too.
    Ship,
    /// The values as they are now. A report waits for flushes, not for leases. No request is before
    /// it, and it is in the way of none.
    Report,
}

/// A request in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The asker.
    pub session: SessionId,
    /// The session's number for the request.
    pub number: u64,
    /// All leases that it needs at one time.
    pub wants: Vec<Lease>,
    /// Its purpose.
    pub what: RequestKind,
}

/// All waiting requests, and the recalls and flushes sent to holders for them.
///
/// A request holds nothing while it waits. Leases in its way are recalled from any holder, and
/// holders release them even while they wait themselves. So requests wait for one another in the
/// order of arrival only. No circle of waits exists. The first request is never overtaken on any of
/// its fields, and each request becomes the first one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Saved", into = "Saved")]
pub struct Queue {
    /// The latest place given.
    last: u64,
    requests: BTreeMap<Arrival, Request>,
    /// The requests that want each field, derived from `requests`.
    wanted: BTreeMap<FileId, BTreeMap<Field, BTreeMap<Arrival, Wanted>>>,
    /// The requests of each session, likewise.
    sessions: BTreeMap<SessionId, BTreeSet<Arrival>>,
    /// Recalls under way.
    pub recalls: Recalls,
    /// Flushes under way.
    pub flushes: Flushes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    session: SessionId,
    kind: Kind,
}

/// The parts that are not derived from others.
#[derive(Serialize, Deserialize)]
struct Saved {
    last: u64,
    requests: BTreeMap<Arrival, Request>,
    recalls: Recalls,
    flushes: Flushes,
}

impl From<Queue> for Saved {
    fn from(queue: Queue) -> Saved {
        let Queue { last, requests, recalls, flushes, .. } = queue;
        Saved { last, requests, recalls, flushes }
    }
}

impl From<Saved> for Queue {
    fn from(saved: Saved) -> Queue {
        let Saved { last, requests, recalls, flushes } = saved;
        let mut queue = Queue { last, recalls, flushes, ..Queue::default() };
        for (arrival, request) in requests {
            queue.insert(arrival, request);
        }
        queue
    }
}

impl Queue {
    /// Adds the request behind all others.
    pub fn push(&mut self, request: Request) -> Arrival {
        self.last += 1;
        self.insert(Arrival(self.last), request);
        Arrival(self.last)
    }

    /// Returns the request at this place.
    pub fn get(&self, arrival: Arrival) -> Option<&Request> {
        self.requests.get(&arrival)
    }

    /// Replaces the wants and the purpose of a request after it was decided again. It keeps its
    /// place.
    pub fn replace_wants(&mut self, arrival: Arrival, wants: Vec<Lease>, what: RequestKind) {
        let mut request = self.take(arrival).expect("a request whose wants change waits here");
        (request.wants, request.what) = (wants, what);
        self.insert(arrival, request);
    }

    /// Removes a request that is done, or that no client waits for any more.
    pub fn remove(&mut self, arrival: Arrival) -> Option<Request> {
        self.flushes.forget(arrival);
        self.take(arrival)
    }

    /// Returns whether an earlier request of another session conflicts with a want of this one:
    /// first come, first served. An earlier request of the same session blocks it, too, if the
    /// server does that one (`RequestKind::Ship`). Otherwise the session would be granted what that
    /// one needs, release it for that one, and ask again for ever.
    ///
    /// An operation that the server does goes before the others' requests while its session owes an
    /// answer about a file that it needs. Trap: a program may keep a directory locked in its kernel
    /// until the operation is done. Its machine cannot answer before, and the others' requests wait
    /// for that answer.
    pub fn blocked_by_earlier(&self, arrival: Arrival) -> bool {
        let Some(request) = self.requests.get(&arrival).filter(|it| it.what != RequestKind::Report) else {
            return false;
        };
        let is_shipped =
            |other: &Arrival| self.requests.get(other).is_some_and(|other| other.what == RequestKind::Ship);
        let yields = request.what != RequestKind::Ship || !self.owes_answer(request);
        let blocked = |want: &Lease| {
            self.conflicts(want).any(|(other, it)| {
                let blocks = if it.session == request.session { is_shipped(&other) } else { yields };
                other < arrival && blocks
            })
        };
        request.wants.iter().any(blocked)
    }

    /// Returns whether the session of `request` owes an answer about a file of its wants.
    fn owes_answer(&self, request: &Request) -> bool {
        let owes = |want: &Lease| {
            self.recalls.unanswered_of(&want.file).any(|(holder, ..)| holder == request.session)
        };
        request.wants.iter().any(owes)
    }

    /// Returns whether another session waits for a lease that conflicts with `lease`. If so,
    /// `session` should not get it without need.
    pub fn is_wanted_by_others(&self, session: SessionId, lease: &Lease) -> bool {
        self.conflicts(lease).any(|(_, it)| it.session != session)
    }

    /// Returns the requests for leases on `file`, in the order of arrival. They are tried again
    /// when a lease on the file is released, and when one of them is done.
    pub fn waiting_on(&self, file: &FileId) -> BTreeSet<Arrival> {
        let fields = self.wanted.get(file);
        fields.into_iter().flat_map(BTreeMap::values).flat_map(|wanted| wanted.keys().copied()).collect()
    }

    /// Returns the requests of `session`, in the order of arrival.
    pub fn of_session(&self, session: SessionId) -> impl ExactSizeIterator<Item = Arrival> + '_ {
        self.sessions.get(&session).unwrap_or(const { &BTreeSet::new() }).iter().copied()
    }

    /// Returns all requests, in the order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Arrival, &Request)> {
        self.requests.iter().map(|(arrival, request)| (*arrival, request))
    }

    /// Removes the requests of `session`, which is over, and forgets the answers that it owes.
    /// Returns the requests to be tried again, in the order of arrival.
    pub fn end(&mut self, session: SessionId) -> BTreeSet<Arrival> {
        let mut files = self.recalls.end(session);
        let its: Vec<Arrival> = self.of_session(session).collect();
        for request in its.into_iter().filter_map(|arrival| self.remove(arrival)) {
            files.extend(request.wants.into_iter().map(|want| want.file));
        }
        let mut again = self.flushes.end(session);
        for file in files {
            again.extend(self.waiting_on(&file));
        }
        again
    }

    fn insert(&mut self, arrival: Arrival, request: Request) {
        let session = request.session;
        self.sessions.entry(session).or_default().insert(arrival);
        if request.what != RequestKind::Report {
            for Lease { file, field, kind } in &request.wants {
                let fields = self.wanted.entry(file.clone()).or_default();
                let wanted = fields.entry(field.clone()).or_default().entry(arrival);
                let wanted = wanted.or_insert(Wanted { session, kind: *kind });
                wanted.kind = wanted.kind.and(*kind);
            }
        }
        let before = self.requests.insert(arrival, request);
        assert!(before.is_none(), "two requests at place {}", arrival.0);
    }

    fn take(&mut self, arrival: Arrival) -> Option<Request> {
        let request = self.requests.remove(&arrival)?;
        for Lease { file, field, .. } in &request.wants {
            let Some(fields) = self.wanted.get_mut(file) else { continue };
            if let Some(wanted) = fields.get_mut(field) {
                wanted.remove(&arrival);
                if wanted.is_empty() {
                    fields.remove(field);
                }
            }
            if fields.is_empty() {
                self.wanted.remove(file);
            }
        }
        if let Some(its) = self.sessions.get_mut(&request.session) {
            its.remove(&arrival);
            if its.is_empty() {
                self.sessions.remove(&request.session);
            }
        }
        Some(request)
    }

    /// Returns all waiting wants that conflict with `lease`. On a black-box field the result of
    /// earlier requests decides that, so nothing is granted there past the first.
    fn conflicts(&self, lease: &Lease) -> impl Iterator<Item = (Arrival, Wanted)> {
        let (kind, in_line) = (lease.kind, lease.field.is_black_box());
        let fields =
            self.wanted.get(&lease.file).into_iter().flat_map(|fields| overlapping(fields, &lease.field));
        fields
            .flatten()
            .map(|(arrival, wanted)| (*arrival, *wanted))
            .filter(move |(_, it)| in_line || !it.kind.agrees_with(kind))
    }
}

/// Returns the entries whose fields overlap `field`. In the order of fields all labels stand
/// together, right before the field of all labels.
fn overlapping<'a, T>(
    fields: &'a BTreeMap<Field, T>,
    field: &Field,
) -> impl Iterator<Item = &'a T> + use<'a, T> {
    let (one, all, range) = match field {
        Field::Children => {
            (None, None, Some((Bound::Excluded(Field::Path), Bound::Included(Field::Children))))
        }
        Field::Xattrs => {
            (None, None, Some((Bound::Excluded(Field::Children), Bound::Included(Field::Xattrs))))
        }
        Field::Child(_) => (fields.get(field), fields.get(&Field::Children), None),
        Field::Xattr(_) => (fields.get(field), fields.get(&Field::Xattrs), None),
        _ => (fields.get(field), None, None),
    };
    let range = range.into_iter().flat_map(|range| fields.range(range)).map(|(_, entry)| entry);
    one.into_iter().chain(all).chain(range)
}
