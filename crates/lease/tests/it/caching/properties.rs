//! Invariants that hold after any steps, with everything that the interface lets in.

use lease::Time;
use lease::caching::{
    AccessMask, AcknowledgeError, Act, Actor, Asks, Break, CachingState, ClientGuid, Grant, Judgement,
    LeaseHolder, LeaseId, LeaseKey, LeaseVersion, Object, OpenId, Opening, Sharing,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(Opening),
    Act(Act, Actor),
    Recall(CachingState),
    ExtendCover(CachingState),
    /// The number chooses among the holders. The last is one that there is not.
    Acknowledge(usize, CachingState),
    /// The number chooses among the opens.
    Close(usize),
    Expire,
    /// The time of this input and the next.
    Time(u64),
}

fn flags() -> impl Strategy<Value = CachingState> {
    any::<u32>().prop_map(CachingState::from_bits)
}

/// Few keys, so that they are equal often. All zeros are among them.
fn key() -> impl Strategy<Value = Option<LeaseKey>> {
    (0_u8..4).prop_map(|number| LeaseKey::new([number; 16]))
}

fn version() -> impl Strategy<Value = LeaseVersion> {
    let epoch = prop_oneof![Just(u16::MAX), Just(0), any::<u16>()];
    let v2 = (epoch, any::<u32>(), any::<[u8; 16]>());
    prop_oneof![
        Just(LeaseVersion::V1),
        v2.prop_map(|(epoch, flags, parent)| LeaseVersion::v2(epoch, flags, parent))
    ]
}

fn asks() -> impl Strategy<Value = Asks> {
    let lease = (0_u8..2, key(), flags(), version()).prop_map(|(client, key, state, version)| match key {
        Some(key) => Asks::Lease { lease: LeaseId { client: ClientGuid([client; 16]), key }, state, version },
        None => Asks::Nothing,
    });
    prop_oneof![4 => lease, 1 => flags().prop_map(Asks::Oplock), 1 => Just(Asks::Nothing)]
}

/// All masks, and often those with one right, and those that share everything.
fn opening() -> impl Strategy<Value = Opening> {
    let access = prop_oneof![any::<u32>(), (0..32).prop_map(|bit| 1_u32 << bit), Just(0)];
    let sharing = prop_oneof![Just(7), 0_u32..8, any::<u32>()];
    let rest = (prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.1), asks());
    (access, sharing, rest).prop_map(|(access, sharing, (overwrites, locked, deleting, asks))| Opening {
        access: AccessMask(access),
        sharing: Sharing(sharing),
        overwrites,
        locked,
        deleting,
        asks,
    })
}

const ACTS: [Act; 9] = [
    Act::Read,
    Act::Write,
    Act::Resize,
    Act::Lock,
    Act::Rename,
    Act::Link,
    Act::Dispose,
    Act::MoveAbove,
    Act::ChangeListing,
];

fn step() -> impl Strategy<Value = Step> {
    let actor = prop_oneof![
        3 => (0_u64..20).prop_map(|open| Actor::Open(OpenId(open))),
        1 => key().prop_map(Actor::Child),
        1 => Just(Actor::Other),
    ];
    prop_oneof![
        8 => opening().prop_map(Step::Open),
        5 => (prop::sample::select(ACTS.as_slice()), actor).prop_map(|(act, actor)| Step::Act(act, actor)),
        1 => flags().prop_map(Step::Recall),
        2 => flags().prop_map(Step::ExtendCover),
        5 => (0_usize..6, flags()).prop_map(|(at, keeps)| Step::Acknowledge(at, keeps)),
        3 => any::<usize>().prop_map(Step::Close),
        1 => Just(Step::Expire),
        1 => prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)].prop_map(Step::Time),
    ]
}

/// The flags that an act takes, and those that it awaits (MS-SMB2 §3.3.1.4 once more).
fn toll(act: Act) -> (CachingState, CachingState) {
    match act {
        Act::Read => (CachingState::WRITE, CachingState::WRITE),
        Act::Write | Act::Resize | Act::Overwrite | Act::Lock => (CachingState::RWH, CachingState::WRITE),
        Act::Rename | Act::Link | Act::Dispose | Act::MoveAbove => {
            (CachingState::HANDLE, CachingState::HANDLE)
        }
        Act::ChangeListing => (CachingState::RWH, CachingState::NONE),
    }
}

/// The object, and what the test knows of it.
struct Run {
    object: Object,
    is_directory: bool,
    cover: CachingState,
    recalling: Option<CachingState>,
    now: Time,
    opens: BTreeMap<OpenId, (Option<LeaseHolder>, AccessMask, Sharing)>,
    numbers: u64,
}

/// Returns the key of a lease, or nothing of an open that is by itself.
fn key_of(holder: Option<LeaseHolder>) -> Option<LeaseKey> {
    match holder {
        Some(LeaseHolder::Lease(lease)) => Some(lease.key),
        _ => None,
    }
}

/// Whether Windows would let both be open (MS-FSA §2.1.5.1.2.2).
fn excludes(one: (AccessMask, Sharing), other: (AccessMask, Sharing)) -> bool {
    let needs = |access: AccessMask| {
        [0x21, 0x06, 0x1_0000]
            .into_iter()
            .enumerate()
            .map(|(at, rights)| u32::from(access.0 & rights != 0) << at)
            .sum::<u32>()
    };
    let (one_needs, other_needs) = (needs(one.0), needs(other.0));
    one_needs != 0 && other_needs != 0 && (one_needs & !other.1.0 & 7 != 0 || other_needs & !one.1.0 & 7 != 0)
}

impl Run {
    fn new(is_directory: bool) -> Run {
        let object =
            if is_directory { Object::directory(CachingState::RWH) } else { Object::file(CachingState::RWH) };
        let (cover, opens) = (CachingState::RWH, BTreeMap::new());
        Run { object, is_directory, cover, recalling: None, now: Time(0), opens, numbers: 0 }
    }

    fn holders(&self) -> BTreeMap<LeaseHolder, Grant> {
        let holders = self.opens.values().filter_map(|(holder, ..)| *holder);
        holders.filter_map(|holder| Some((holder, self.object.held(holder)?))).collect()
    }

    fn step(&mut self, step: Step) {
        let (before, mut out) = (self.holders(), Vec::new());
        match step {
            Step::Open(opening) => self.open(opening, &before, &mut out),
            Step::Act(act, actor) => {
                let judged = self.object.act(self.now, act, actor, &mut out);
                // Level II goes with any change of the data, by its own open as well.
                let is_level_ii = |holder: LeaseHolder| {
                    let was = before.get(&holder).map(|it| it.state);
                    matches!(holder, LeaseHolder::Oplock(_))
                        && was == Some(CachingState::READ)
                        && toll(act).0.has(CachingState::READ)
                        && act != Act::Overwrite
                };
                let own = |holder: LeaseHolder| match actor {
                    Actor::Open(open) => self.opens.get(&open).and_then(|it| it.0).is_some_and(|its| {
                        (its == holder && !is_level_ii(holder))
                            || (key_of(Some(its)).is_some() && key_of(Some(its)) == key_of(Some(holder)))
                    }),
                    Actor::Child(parent) => parent.is_some() && parent == key_of(Some(holder)),
                    Actor::Other => false,
                };
                self.is_judged_well(judged.clone(), toll(act), own);
                let mut again = Vec::new();
                assert_eq!(self.object.act(self.now, act, actor, &mut again), judged, "judged again");
                assert_eq!(again, [], "sent again");
                assert!(out.iter().all(|it| !own(it.holder)), "breaks its own");
            }
            Step::Recall(keep) => {
                let kept = if keep.has(CachingState::READ) { keep } else { CachingState::NONE };
                self.cover = self.cover.and(kept);
                let judged = self.object.recall(self.now, keep, &mut out);
                self.is_judged_well(
                    judged.clone(),
                    (CachingState::RWH.but(kept), CachingState::RWH.but(kept)),
                    |_| false,
                );
                self.recalling = (judged != Judgement::Go(())).then_some(keep);
                if self.recalling.is_none() {
                    assert!(self.holders().values().all(|it| kept.has(it.state)));
                }
            }
            Step::ExtendCover(state) => {
                if self
                    .recalling
                    .is_none_or(|keep| self.object.recall(self.now, keep, &mut out) == Judgement::Go(()))
                {
                    self.recalling = None;
                    self.object.extend_cover(state);
                    self.cover = self.cover.or(state);
                }
            }
            Step::Acknowledge(at, keeps) => {
                let unknown = LeaseHolder::Oplock(OpenId(u64::MAX));
                let holder = before.keys().nth(at).copied().unwrap_or(unknown);
                let result = self.object.acknowledge(self.now, holder, keeps, &mut out);
                match before.get(&holder) {
                    None => assert_eq!(result, Err(AcknowledgeError::Unknown)),
                    Some(it) if !it.is_breaking => assert_eq!(result, Err(AcknowledgeError::NotBreaking)),
                    Some(it) => match result {
                        Ok(kept) => assert!(keeps.has(kept) && it.state != kept && it.state.has(kept)),
                        Err(error) => {
                            assert!(
                                matches!(error, AcknowledgeError::MoreThanTold { told } if !told.has(keeps))
                            );
                            assert_eq!(self.holders(), before, "the break stays open");
                        }
                    },
                }
                assert!(out.iter().all(|it| it.holder == holder));
            }
            Step::Close(at) => {
                if let Some(open) = self.opens.keys().copied().nth(at % self.opens.len().max(1)) {
                    let (holder, ..) = self.opens.remove(&open).expect("it is open");
                    let is_last =
                        holder.is_some_and(|it| self.opens.values().all(|other| other.0 != Some(it)));
                    let ended = self.object.close(open).map(LeaseHolder::Lease);
                    assert_eq!(ended, holder.filter(|it| is_last && matches!(it, LeaseHolder::Lease(_))));
                    assert_eq!(self.object.close(open), None, "it is closed");
                }
            }
            Step::Expire => {
                for holder in self.object.expire(self.now) {
                    assert!(before[&holder].is_breaking);
                    assert_eq!(
                        self.object.held(holder).map(|it| (it.state, it.is_breaking)),
                        Some((CachingState::NONE, false))
                    );
                }
                assert!(self.object.next_deadline().is_none_or(|deadline| deadline > self.now));
            }
            Step::Time(now) => self.now = Time(now),
        }
        self.holds(&before, &out);
    }

    fn open(&mut self, opening: Opening, before: &BTreeMap<LeaseHolder, Grant>, out: &mut Vec<Break>) {
        self.numbers += 1;
        let open = OpenId(self.numbers);
        let holder = match opening.asks {
            Asks::Lease { lease, .. } => Some(LeaseHolder::Lease(lease)),
            Asks::Oplock(_) => Some(LeaseHolder::Oplock(open)),
            Asks::Nothing => None,
        };
        let own = |it: LeaseHolder| {
            Some(it) == holder || (key_of(holder).is_some() && key_of(Some(it)) == key_of(holder))
        };
        let its = (opening.access, opening.sharing);
        let excluded = self.opens.values().any(|(_, access, sharing)| excludes(its, (*access, *sharing)));
        let result = self.object.open(self.now, open, opening, out);
        assert!(out.iter().all(|it| !own(it.holder)), "breaks its own");
        match result {
            Ok(Judgement::Go(grant)) => {
                assert!(!excluded);
                let stat = |it| if matches!(it, LeaseHolder::Oplock(_)) { 0x10_0180 } else { 0x12_0180 };
                let is_stat = |it| !opening.overwrites && opening.access.0 & !stat(it) == 0;
                let takes = toll(if opening.overwrites { Act::Write } else { Act::Read });
                self.is_judged_well(Judgement::Go(()), takes, |it| own(it) || is_stat(it));
                let noted = self.object.held(holder.unwrap_or(LeaseHolder::Oplock(open)));
                self.opens.insert(open, (noted.and(holder), opening.access, opening.sharing));
                let had = holder.and_then(|it| before.get(&it)).map_or(CachingState::NONE, |it| it.state);
                let asked = match opening.asks {
                    Asks::Lease { state, .. } | Asks::Oplock(state) => state,
                    Asks::Nothing => CachingState::NONE,
                };
                assert!(grant.state.has(had), "lowered");
                assert!(had.or(asked).has(grant.state), "more than asked for");
                assert!(grant.state == had || !opening.locked || opening.overwrites, "granted beside a lock");
            }
            Ok(Judgement::Waits(holders)) => {
                assert!(!holders.is_empty() && !holders.iter().any(|it| own(*it)));
                assert!(holders.iter().all(|it| self.object.held(*it).is_some_and(|it| it.is_breaking)));
                let again = self.object.open(self.now, open, opening, out);
                assert_eq!(again, Ok(Judgement::Waits(holders)), "judged again");
            }
            Err(_) => assert!(excluded),
        }
    }

    /// An act goes on when nobody else has what it awaits, and what it takes is asked for.
    fn is_judged_well(
        &self,
        judged: Judgement<()>,
        (takes, awaits): (CachingState, CachingState),
        own: impl Fn(LeaseHolder) -> bool,
    ) {
        let holders = self.holders();
        let others = || holders.iter().filter(|(holder, _)| !own(**holder));
        match judged {
            Judgement::Go(()) => {
                assert!(others().all(|(_, it)| !it.state.meets(awaits)));
                let kept = |(holder, it): (&LeaseHolder, &Grant)| {
                    let is_lease = matches!(holder, LeaseHolder::Lease(_));
                    // An exclusive oplock has no flag for handles to lose.
                    !it.is_breaking && it.state.meets(takes) && (is_lease || takes != CachingState::HANDLE)
                };
                assert!(!others().any(kept));
            }
            Judgement::Waits(waits) => {
                assert!(!waits.is_empty());
                assert!(waits.iter().all(|it| !own(*it) && holders[it].is_breaking));
            }
        }
    }

    fn holds(&self, before: &BTreeMap<LeaseHolder, Grant>, out: &[Break]) {
        let holders = self.holders();
        for (holder, it) in &holders {
            let legal: &[CachingState] = match (self.is_directory, holder) {
                (false, LeaseHolder::Lease(_)) => &super::STATES,
                (false, LeaseHolder::Oplock(_)) => {
                    &[CachingState::NONE, CachingState::READ, CachingState::RW, CachingState::RWH]
                }
                (true, LeaseHolder::Lease(_)) => &[CachingState::NONE, CachingState::READ, CachingState::RH],
                (true, LeaseHolder::Oplock(_)) => &[CachingState::NONE],
            };
            assert!(legal.contains(&it.state), "{holder:?} {it:?}");
            assert!(it.is_breaking || self.cover.has(it.state), "{it:?} without cover");
            if it.state.has(CachingState::WRITE) {
                let key = key_of(Some(*holder));
                let is_other = |other: Option<LeaseHolder>| {
                    other != Some(*holder) && (key.is_none() || key_of(other) != key)
                };
                let other_states = holders.iter().filter(|(other, _)| is_other(Some(**other)));
                assert!(other_states.clone().all(|(_, it)| it.state == CachingState::NONE), "{holders:?}");
                let is_stat = |access: AccessMask| access.0 & !0x12_0180 == 0;
                assert!(self.opens.values().all(|(other, access, _)| is_stat(*access) || !is_other(*other)));
            }
            if let Some(had) = before.get(holder) {
                let moved = it.version.epoch().wrapping_sub(had.version.epoch());
                let grew = it.state.has(had.state) && it.state != had.state;
                let began = out.iter().any(|sent| sent.holder == *holder) && !had.is_breaking;
                let v2 = matches!(it.version, LeaseVersion::V2 { .. });
                assert_eq!(moved, u16::from(v2 && (grew || began)), "{had:?} {it:?}");
            }
        }
        assert_eq!(self.object.next_deadline().is_some(), holders.values().any(|it| it.is_breaking));
        for it in out {
            assert!(it.from.has(it.to) && it.from != it.to, "{it:?}");
            assert_eq!(it.acknowledge, it.from != CachingState::READ);
            assert_eq!(it.epoch, holders[&it.holder].version.epoch());
        }
        assert_eq!(self.object.is_open(), !self.opens.is_empty());
    }

    /// However it stands, time lets every act go on.
    fn ends(mut self) {
        for act in ACTS {
            let first = self.object.act(Time(0), act, Actor::Other, &mut Vec::new());
            self.object.expire(Time(u64::MAX));
            let second = self.object.act(Time(0), act, Actor::Other, &mut Vec::new());
            assert_eq!(second, Judgement::Go(()), "{act:?}, {first:?} before");
        }
        for open in self.opens.keys() {
            self.object.close(*open);
        }
        assert_eq!(
            self.object,
            if self.is_directory { Object::directory(self.cover) } else { Object::file(self.cover) }
        );
    }
}

proptest! {
    #[test]
    fn the_invariants_hold_after_any_steps(is_directory: bool, steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run::new(is_directory);
        steps.into_iter().for_each(|step| run.step(step));
        run.ends();
    }
}
