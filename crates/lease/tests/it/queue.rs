//! The queue: the order of requests, a server's use of it, and the turn that every request gets.

use ident::FileId;
use lease::{
    Arrival, Field, Flushes, Holdings, InTheWay, Kind, Label, Lease, Mode, Queue, Recalls, Released, Request,
    RequestKind, SessionId, Time,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

fn file(n: u64) -> FileId {
    FileId::root().child(n)
}

fn child(name: &str) -> Field {
    Field::Child(Label::new(name.as_bytes()).expect("a label"))
}

fn xattr(name: &str) -> Field {
    Field::Xattr(Label::new(name.as_bytes()).expect("a label"))
}

fn request(session: u64, what: RequestKind, wants: &[(u64, Field, Kind)]) -> Request {
    let wants = wants.iter().map(|(n, field, kind)| Lease::new(file(*n), field.clone(), *kind)).collect();
    Request { session: SessionId(session), number: 7, wants, what }
}

fn reload<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    postcard::from_bytes(&postcard::to_stdvec(value).expect("written")).expect("read back")
}

#[test]
fn who_stands_behind_whom() {
    use Kind::{Read, Touch, Write};
    let rows = [
        (Field::Content, Write, Field::Content, Read, true),
        (Field::Content, Read, Field::Content, Read, false),
        (Field::Content, Write, Field::Attributes, Write, false),
        (Field::Times, Touch, Field::Times, Touch, false),
        (Field::Times, Touch, Field::Times, Read, true),
        (child("a"), Write, child("a"), Read, true),
        (child("a"), Write, child("b"), Write, false),
        (child("a"), Write, xattr("a"), Write, false),
        (child("a"), Write, Field::Children, Read, true),
        (child("a"), Read, Field::Children, Read, false),
        (Field::Children, Read, child("a"), Write, true),
        (Field::Children, Write, Field::Children, Read, true),
        (Field::Children, Write, xattr("a"), Write, false),
        (Field::Children, Write, Field::Xattrs, Write, false),
        (Field::Xattrs, Read, xattr("a"), Write, true),
        (xattr("a"), Write, Field::Xattrs, Read, true),
        (xattr("a"), Write, Field::Children, Write, false),
        (Field::Handles, Write, Field::Children, Write, false),
    ];
    for (first, its, second, theirs, behind) in rows {
        let mut queue = Queue::default();
        let earlier =
            queue.push(request(1, RequestKind::Lease, &[(1, Field::Parent, Read), (5, first.clone(), its)]));
        let later = queue.push(request(
            2,
            RequestKind::Lease,
            &[(6, Field::Parent, Read), (5, second.clone(), theirs)],
        ));
        let elsewhere = queue.push(request(2, RequestKind::Lease, &[(4, second.clone(), theirs)]));
        let report = queue.push(request(3, RequestKind::Report, &[(5, second.clone(), theirs)]));
        let after_report = queue.push(request(4, RequestKind::Lease, &[(6, second.clone(), theirs)]));
        let told = format!("{theirs:?} on {second:?} after {its:?} on {first:?}");
        assert_eq!(queue.blocked_by_earlier(later), behind, "{told}");
        assert_eq!(queue.is_wanted_by_others(SessionId(9), &Lease::new(file(5), second.clone(), theirs)), {
            behind || !theirs.agrees_with(theirs)
        });
        for free in [earlier, elsewhere, report, after_report] {
            assert!(!queue.blocked_by_earlier(free), "{told}");
        }
        assert_eq!(queue.waiting_on(&file(5)), BTreeSet::from([earlier, later]));
        let same = queue.push(request(1, RequestKind::Lease, &[(5, second.clone(), theirs)]));
        let others_only = !theirs.agrees_with(theirs);
        assert_eq!(
            queue.blocked_by_earlier(same),
            others_only,
            "{told}: by its own session's nobody is blocked"
        );
        let wants = queue.get(earlier).unwrap().wants.clone();
        queue.replace_wants(earlier, wants, RequestKind::Ship);
        assert_eq!(
            queue.blocked_by_earlier(same),
            behind || others_only,
            "{told}: but by what the server does for it"
        );
        queue.remove(earlier);
        assert!(!queue.blocked_by_earlier(later), "{told}");
    }
}

#[test]
fn wanting_more_keeps_the_place() {
    let mut queue = Queue::default();
    let first = queue.push(request(1, RequestKind::Lease, &[(1, Field::Content, Kind::Read)]));
    let second = queue.push(request(2, RequestKind::Lease, &[(2, Field::Content, Kind::Write)]));
    assert!(!queue.blocked_by_earlier(second));
    let wants =
        request(1, RequestKind::Lease, &[(2, Field::Content, Kind::Read), (2, Field::Times, Kind::Touch)])
            .wants;
    queue.replace_wants(first, wants, RequestKind::Lease);
    assert!(queue.blocked_by_earlier(second) && !queue.blocked_by_earlier(first));
    assert_eq!(queue.waiting_on(&file(1)), BTreeSet::new());
    assert_eq!(reload(&queue), queue);
    assert_eq!(queue.of_session(SessionId(1)).collect::<Vec<_>>(), [first]);
    assert_eq!(queue.remove(first).map(|request| request.wants.len()), Some(2));
    assert_eq!((queue.iter().len(), queue.of_session(SessionId(1)).len()), (1, 0));
    queue.remove(second);
    let empty = Queue::default();
    assert_eq!((queue.iter().len(), queue.waiting_on(&file(2))), (empty.iter().len(), BTreeSet::new()));
}

#[test]
fn nobody_is_told_twice() {
    let (one, two, now) = (SessionId(1), SessionId(2), Time(1000));
    let mut recalls = Recalls::default();
    assert!(recalls.recall(now, one, &file(2), &Field::Content, Some(Kind::Read)).is_some());
    assert!(recalls.recall(now, one, &file(2), &Field::Content, Some(Kind::Read)).is_none());
    assert!(
        recalls.recall(now, two, &file(2), &Field::Content, Some(Kind::Read)).is_some(),
        "another holder"
    );
    assert!(recalls.recall(Time(2000), one, &file(2), &Field::Content, None).is_some(), "now all of it");
    assert!(
        recalls.recall(now, one, &file(2), &Field::Content, Some(Kind::Read)).is_none(),
        "all of it is more than enough"
    );
    assert_eq!(recalls.unanswered().count(), 2);
    let owed = |recalls: &Recalls| recalls.owed().map(|(session, _)| session).collect::<BTreeSet<_>>();
    // The answer to the first leaves the second open.
    recalls.released(one, &file(2), &Field::Content, Some(Kind::Read));
    assert_eq!(owed(&recalls), BTreeSet::from([one, two]));
    recalls.released(one, &file(2), &Field::Content, None);
    assert_eq!(owed(&recalls), BTreeSet::from([two]));
    let left = Released { file: file(2), field: Field::Content, keep: Some(Kind::Read) };
    assert_eq!(recalls.unanswered().collect::<Vec<_>>(), [(two, left)]);
    assert!(
        recalls.is_owed(two, &file(2), &Field::Content) && !recalls.is_owed(one, &file(2), &Field::Content)
    );
    recalls.released(two, &file(2), &Field::Attributes, None);
    assert_eq!(recalls.unanswered().count(), 1, "another field");
    recalls.granted(two, &file(2), &Field::Content, Kind::Write);
    assert_eq!(recalls.unanswered().count(), 1, "the answer takes back what was granted before it");
    recalls.released(two, &file(2), &Field::Content, None);
    assert_eq!(recalls, Recalls::default());
    // Recalls with different `keep` for different requests: the holder keeps nothing.
    assert!(recalls.recall(now, one, &file(2), &Field::Times, Some(Kind::Read)).is_some());
    let told = recalls.recall(now, one, &file(2), &Field::Times, Some(Kind::Touch));
    assert_eq!(told.map(|released| released.keep), Some(None));
    recalls.released(one, &file(2), &Field::Times, None);
    assert_eq!(recalls, Recalls::default());
    // A holder that releases all labels still owes an answer for one.
    recalls.recall(now, one, &file(2), &child("a"), None);
    recalls.released(one, &file(2), &Field::Children, None);
    assert!(recalls.is_owed(one, &file(2), &child("a")));
    recalls.released(one, &file(2), &child("a"), None);
    assert_eq!(recalls, Recalls::default());
    recalls.recall(now, one, &file(2), &child("a"), None);
    recalls.recall(now, two, &file(3), &child("a"), None);
    recalls.forget(&file(2));
    assert_eq!(recalls.end(two), [file(3)]);
    assert_eq!(recalls, Recalls::default());
}

#[test]
fn of_a_black_box_one_lease_may_be_granted_while_the_other_is_recalled() {
    let (one, now) = (SessionId(1), Time(0));
    let mut recalls = Recalls::default();
    // Its `SelfWrite` is recalled, and then it is granted `OtherRead`.
    assert!(recalls.recall(now, one, &file(2), &Field::Handles, None).is_some());
    recalls.granted(one, &file(2), &Field::Handles, Kind::Read);
    let open: Vec<_> = recalls.unanswered().map(|(_, released)| released.keep).collect();
    assert_eq!(open, [Some(Kind::Read)]);
    recalls.granted(one, &file(2), &Field::Handles, Kind::Touch);
    assert!(recalls.is_owed(one, &file(2), &Field::Handles), "it may keep both, and says so");
    recalls.released(one, &file(2), &Field::Handles, Some(Kind::Read));
    assert_eq!(recalls, Recalls::default());
    // Both are recalled, one after the other.
    let first = recalls.recall(now, one, &file(2), &Field::Handles, Some(Kind::Touch));
    let both = recalls.recall(now, one, &file(2), &Field::Handles, Some(Kind::Read));
    assert_eq!((first.map(|r| r.keep), both.map(|r| r.keep)), (Some(Some(Kind::Touch)), Some(None)));
    recalls.released(one, &file(2), &Field::Handles, Some(Kind::Read));
    assert_eq!(recalls.unanswered().count(), 1);
    recalls.released(one, &file(2), &Field::Handles, None);
    assert_eq!(recalls, Recalls::default());
}

#[test]
fn a_report_waits_for_flushes_of_its_own() {
    let (holder, other) = (SessionId(1), SessionId(2));
    let (first, second) = (Arrival(1), Arrival(2));
    let mut flushes = Flushes::default();
    let a = flushes.flush(Time(7), first, holder, &file(2), &Field::Content).expect("not asked yet");
    assert_eq!(flushes.flush(Time(7), first, holder, &file(2), &Field::Content), None);
    let b = flushes.flush(Time(7), first, other, &file(2), &Field::Content).expect("another holder");
    let c =
        flushes.flush(Time(7), second, holder, &file(2), &Field::Content).expect("a report that came later");
    assert_eq!(flushes.unanswered().map(|(_, number, ..)| number).collect::<Vec<_>>(), [a, b, c]);
    assert_eq!(flushes.flushed(other, a), None, "not its number");
    assert_eq!(flushes.flushed(holder, a), None, "one more to come");
    assert_eq!(flushes.flushed(holder, a), None);
    let mut saved = reload(&flushes);
    assert_eq!(saved, flushes);
    assert_eq!(saved.flushed(other, b), Some(first));
    assert!(!saved.is_waiting(first));
    assert_eq!(
        saved.flush(Time(7), first, holder, &file(2), &Field::Content),
        None,
        "came already; it would be asked for ever"
    );
    // A holder that is over has nothing left to flush.
    assert_eq!(flushes.end(other), BTreeSet::from([first]));
    assert!(flushes.is_waiting(second));
    flushes.forget(second);
    assert_eq!(flushes.flushed(holder, c), None);
    assert_eq!(flushes.unanswered().count(), 0);
}

#[test]
fn the_end_of_a_session_says_who_is_to_be_tried_again() {
    let mut queue = Queue::default();
    let gone = queue.push(request(1, RequestKind::Lease, &[(1, Field::Content, Kind::Write)]));
    let behind = queue.push(request(2, RequestKind::Lease, &[(1, Field::Content, Kind::Read)]));
    let awaiting = queue.push(request(2, RequestKind::Lease, &[(2, Field::Content, Kind::Read)]));
    let report = queue.push(request(3, RequestKind::Report, &[(3, Field::Content, Kind::Read)]));
    let unconcerned = queue.push(request(3, RequestKind::Lease, &[(4, Field::Content, Kind::Read)]));
    queue.recalls.recall(Time(0), SessionId(1), &file(2), &Field::Content, None);
    queue.flushes.flush(Time(7), report, SessionId(1), &file(3), &Field::Content);
    assert_eq!(queue.end(SessionId(1)), BTreeSet::from([behind, awaiting, report]));
    assert!(queue.get(gone).is_none() && queue.get(unconcerned).is_some());
    assert_eq!(queue.recalls.unanswered().count() + queue.flushes.unanswered().count(), 0);
}

/// A server reduced to its table and its queue, and clients reduced to answering recalls at some
/// time.
#[derive(Default)]
struct World {
    files: BTreeMap<FileId, Holdings>,
    queue: Queue,
    /// Recalls that clients have not answered.
    told: BTreeMap<SessionId, VecDeque<Released>>,
    granted: Vec<Arrival>,
    /// Breaks the rule of first come, first served, to see that it is noticed.
    impatient: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Ask(SessionId, Vec<Lease>),
    /// Asks for more, if a request of the session waits.
    AskMore(SessionId, Lease),
    /// Answers its oldest recall.
    Answer(SessionId),
    LetGo(SessionId, FileId, Field),
    End(SessionId),
    /// The server stops and starts again from what it saved.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let session = || (1..4u64).prop_map(SessionId);
    let name = || (2..4u64).prop_map(file);
    let fields = vec![
        Field::Content,
        Field::Times,
        Field::Handles,
        Field::Mode(Mode::AccessRead),
        child("a"),
        child("b"),
        Field::Children,
        xattr("a"),
        Field::Xattrs,
    ];
    let field = || prop::sample::select(fields.clone());
    let lease = || {
        let kind = prop::sample::select(vec![Kind::Read, Kind::Touch, Kind::Write]);
        let leases = (name(), field(), kind).prop_map(|(file, field, kind)| Lease { file, field, kind });
        leases.prop_filter("no such lease", |lease| lease.field.admits(lease.kind))
    };
    prop_oneof![
        6 => (session(), prop::collection::vec(lease(), 1..4)).prop_map(|(session, wants)| Step::Ask(session, wants)),
        1 => (session(), lease()).prop_map(|(session, want)| Step::AskMore(session, want)),
        4 => session().prop_map(Step::Answer),
        1 => (session(), name(), field()).prop_map(|(session, file, field)| Step::LetGo(session, file, field)),
        1 => session().prop_map(Step::End),
        1 => Just(Step::Restart),
    ]
}

/// Returns whether the two wants are about one thing and cannot be granted to two sessions.
fn collide(a: &Lease, b: &Lease) -> bool {
    a.file == b.file && a.field.overlaps(&b.field) && (a.field.is_black_box() || !a.kind.agrees_with(b.kind))
}

impl World {
    /// Grants all of it, or sends recalls to the holders in the way.
    fn try_again(&mut self, arrival: Arrival) {
        let Some(request) = self.queue.get(arrival).cloned() else { return };
        let mut free = self.impatient || !self.queue.blocked_by_earlier(arrival);
        for want in &request.wants {
            let holdings = self.files.entry(want.file.clone()).or_default();
            for InTheWay { session, field, keep } in
                holdings.in_the_way(request.session, &want.field, want.kind)
            {
                free = false;
                let told = self.queue.recalls.recall(Time(0), session, &want.file, &field, keep);
                self.told.entry(session).or_default().extend(told);
            }
        }
        if free {
            self.grant(arrival, &request);
        }
    }

    fn grant(&mut self, arrival: Arrival, request: &Request) {
        let before =
            self.queue.iter().filter(|(earlier, it)| *earlier < arrival && it.session != request.session);
        for (_, earlier) in before {
            let overtaken = earlier.wants.iter().any(|a| request.wants.iter().any(|b| collide(a, b)));
            assert!(!overtaken, "{request:?} overtakes {earlier:?}");
        }
        for Lease { file, field, kind } in &request.wants {
            self.files.entry(file.clone()).or_default().grant(request.session, field, *kind, []);
            self.queue.recalls.granted(request.session, file, field, *kind);
        }
        for Lease { file, field, kind } in &request.wants {
            assert!(self.files[file].covers(request.session, field, *kind), "all or nothing");
        }
        self.queue.remove(arrival);
        self.granted.push(arrival);
        let files: BTreeSet<&FileId> = request.wants.iter().map(|want| &want.file).collect();
        files.into_iter().for_each(|file| self.wake(file));
    }

    fn wake(&mut self, file: &FileId) {
        for arrival in self.queue.waiting_on(file) {
            self.try_again(arrival);
        }
    }

    fn released(&mut self, session: SessionId, Released { file, field, keep }: &Released) {
        self.files.entry(file.clone()).or_default().release(session, field, *keep);
        self.queue.recalls.released(session, file, field, *keep);
        self.wake(file);
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Ask(session, wants) => {
                let arrival =
                    self.queue.push(Request { session, number: 0, wants, what: RequestKind::Lease });
                self.try_again(arrival);
            }
            Step::AskMore(session, want) => {
                let Some(arrival) = self.queue.of_session(session).last() else { return };
                let mut wants = self.queue.get(arrival).expect("it waits").wants.clone();
                wants.push(want);
                self.queue.replace_wants(arrival, wants, RequestKind::Lease);
                self.try_again(arrival);
            }
            Step::Answer(session) => {
                if let Some(released) = self.told.entry(session).or_default().pop_front() {
                    self.released(session, &released);
                }
            }
            Step::LetGo(session, file, field) => {
                self.released(session, &Released { file, field, keep: None })
            }
            Step::End(session) => {
                self.told.remove(&session);
                self.files.values_mut().for_each(|holdings| holdings.end(session));
                for arrival in self.queue.end(session) {
                    self.try_again(arrival);
                }
                assert_eq!(self.queue.of_session(session).len(), 0);
            }
            Step::Restart => {
                let saved = reload(&self.queue);
                assert_eq!(saved, self.queue);
                self.queue = saved;
            }
        }
    }

    fn check(&self) {
        for holdings in self.files.values() {
            assert_eq!(holdings.check(), Ok(()));
        }
        // Every waiting request waits for an earlier request, or for an answer.
        for (arrival, request) in self.queue.iter() {
            let awaited = request.wants.iter().any(|want| {
                let in_the_way = self.files[&want.file].in_the_way(request.session, &want.field, want.kind);
                in_the_way.iter().any(|it| self.told.get(&it.session).is_some_and(|told| !told.is_empty()))
            });
            assert!(awaited || self.queue.blocked_by_earlier(arrival), "nobody will ever wake {request:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn first_come_first_served_all_or_nothing_and_everybody_in_the_end(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::default();
        for step in steps {
            world.apply(step);
            world.check();
        }
        // Holders answer in any order, and no new request comes. Everything that waited is granted,
        // each once.
        let waiting: Vec<Arrival> = world.queue.iter().map(|(arrival, _)| arrival).collect();
        for session in (1..4).cycle().take(1000).map(SessionId) {
            world.apply(Step::Answer(session));
            world.check();
        }
        prop_assert_eq!(world.queue.iter().len(), 0);
        let granted: BTreeSet<Arrival> = world.granted.iter().copied().collect();
        prop_assert_eq!(granted.len(), world.granted.len());
        prop_assert!(waiting.iter().all(|arrival| granted.contains(arrival)));
        prop_assert_eq!(world.queue.recalls.unanswered().count(), 0);
    }
}

#[test]
#[should_panic(expected = "overtakes")]
fn a_server_that_serves_out_of_turn_is_caught() {
    let mut world = World { impatient: true, ..World::default() };
    let ask = |session, field, kind| Step::Ask(SessionId(session), vec![Lease::new(file(2), field, kind)]);
    world.apply(ask(1, child("a"), Kind::Read));
    world.apply(ask(2, Field::Children, Kind::Write));
    world.apply(ask(3, child("a"), Kind::Read));
}
