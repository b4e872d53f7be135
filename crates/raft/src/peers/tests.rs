//! Conversations of several members with one.

use super::*;
use crate::group::tests::{Nobody, files, input, open_alone, root};
use crate::starts::Starts;
use crate::{FOUNDER, Group, GroupHost, GroupSettings, MemberPlace};
use openraft::async_runtime::WatchReceiver;

/// Opens a member of each of these groups that has heard nothing yet.
fn open_learners(dir: &Path, groups: &[GroupId]) -> (GroupHost, Vec<Group>) {
    let host = GroupHost::open(files(dir), GroupSettings::default()).unwrap();
    let learners = groups.iter().map(|group| open_learner(&host, *group)).collect();
    (host, learners)
}

fn open_learner(host: &GroupHost, group: GroupId) -> Group {
    let place = MemberPlace {
        member: LEARNER,
        host: Host { name: "second".to_owned(), ..Host::default() },
        founds: false,
        knows: Versions::KNOWN,
    };
    let learner = host.group(group, root(), place, Arc::new(Nobody), Box::new(|_| ())).unwrap();
    learner.begin();
    learner
}

/// The number of a learner in its group.
const LEARNER: u64 = FOUNDER + 1;

/// Says it to a member of that group.
fn say(conversation: &mut Conversation, to: (GroupId, u64), call: &PeerCall) -> PeerAnswer {
    let starts = started();
    let mut said = |call: &PeerCall| {
        let call = postcard::to_allocvec(&(to.0, to.1, (FOUNDER, starts.own()), call)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        postcard::from_bytes::<(Start, PeerAnswer)>(&runtime.block_on(conversation.hear(&call))).unwrap().1
    };
    match said(call) {
        PeerAnswer::Stranger => {
            let introduced = said(&PeerCall::Introduces(starts.introduce(FOUNDER, None, None)));
            assert!(matches!(introduced, PeerAnswer::Judged(Ok(_))), "{introduced:?}");
            said(call)
        }
        answer => answer,
    }
}

fn started() -> Starts {
    let mut starts = Starts::default();
    starts.begin(7);
    starts
}

/// The state of a founder of a group, as it sends it.
struct FoundersRows {
    vote: Vote,
    position: Vec<u8>,
    meta: SnapshotMeta,
    rows: Vec<Row>,
}

impl FoundersRows {
    /// Founds a group that opens so many sessions.
    fn new(dir: &Path, sessions: u64) -> FoundersRows {
        let founder = open_alone(dir, GroupSettings::default(), Box::new(|_| ()));
        (1..=sessions).for_each(|incarnation| founder.propose(input(incarnation)));
        let (view, _) = founder.freeze().unwrap();
        let applied = founder.machine.read().position.clone();
        FoundersRows {
            vote: founder.ear.raft.metrics().borrow_watched().vote,
            position: view.position().unwrap().to_vec(),
            meta: SnapshotMeta { last_log_id: applied.applied, last_membership: applied.membership },
            rows: view.page(None, usize::MAX).unwrap(),
        }
    }
}

/// A deposed leader may be in the middle of its snapshot when the next leader begins its own.
#[test]
fn snapshots_of_two_conversations_do_not_mix() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let FoundersRows { vote, position, meta, rows } = FoundersRows::new(dirs[0].path(), 0);
    let (host, learners) = open_learners(dirs[1].path(), &[GroupId::FIRST]);
    let (mut first, mut second) = (host.listen(), host.listen());
    let tell =
        |conversation: &mut Conversation, call: PeerCall| say(conversation, (GroupId::FIRST, LEARNER), &call);
    assert!(matches!(tell(&mut first, PeerCall::Begin(meta.clone())), PeerAnswer::Taken));
    assert!(matches!(tell(&mut first, PeerCall::Rows(rows.clone())), PeerAnswer::Taken));
    assert!(matches!(tell(&mut second, PeerCall::Begin(meta)), PeerAnswer::Taken));
    let installed = tell(&mut first, PeerCall::Install(vote, position.clone()));
    assert!(matches!(installed, PeerAnswer::Installed(_)), "{installed:?}");
    assert_eq!(learners[0].rows().page(None, usize::MAX).unwrap(), rows);
    // No row of the second one has come yet. That is no state, and no reason to stop.
    let installed = tell(&mut second, PeerCall::Install(vote, position));
    assert!(matches!(installed, PeerAnswer::Failed(_)), "{installed:?}");
}

/// Two groups send snapshots to one machine at a time. Each gets its own rows, and those of the
/// other group stay.
#[test]
fn snapshots_of_two_groups_do_not_mix() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let sent = [FoundersRows::new(dirs[0].path(), 3), FoundersRows::new(dirs[1].path(), 5)];
    assert_ne!(sent[0].rows, sent[1].rows);
    let groups = [GroupId(3), GroupId(4)];
    let (host, learners) = open_learners(dirs[2].path(), &groups);
    let has = |group: usize| learners[group].rows().page(None, usize::MAX).unwrap();
    let before = has(1);
    let mut conversations = [host.listen(), host.listen()];
    let mut tell =
        |with: usize, group: usize, call| say(&mut conversations[with], (groups[group], LEARNER), &call);
    for (group, rows) in sent.iter().enumerate() {
        assert!(matches!(tell(group, group, PeerCall::Begin(rows.meta.clone())), PeerAnswer::Taken));
    }
    for group in [1, 0] {
        assert!(matches!(tell(group, group, PeerCall::Rows(sent[group].rows.clone())), PeerAnswer::Taken));
    }
    // The other group's member has not begun a snapshot in this conversation.
    let others = tell(0, 1, PeerCall::Rows(sent[1].rows.clone()));
    assert!(matches!(others, PeerAnswer::Failed(_)), "{others:?}");
    for (group, FoundersRows { rows, vote, position, .. }) in sent.iter().enumerate() {
        let others = tell(group, 1 - group, PeerCall::Install(*vote, position.clone()));
        assert!(matches!(others, PeerAnswer::Failed(_)), "{others:?}");
        let installed = tell(group, group, PeerCall::Install(*vote, position.clone()));
        assert!(matches!(installed, PeerAnswer::Installed(_)), "{installed:?}");
        assert_eq!(has(group), *rows);
        assert!(group == 1 || has(1) == before);
    }
    assert_eq!(has(0), sent[0].rows);
}

/// A member of another group may have the same number, and an earlier member of the group another.
#[test]
fn a_call_reaches_the_member_of_its_group_or_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (host, learners) = open_learners(dir.path(), &[GroupId(3), GroupId(4)]);
    let mut conversation = host.listen();
    for learner in &learners {
        match say(&mut conversation, (learner.id(), LEARNER), &PeerCall::Asks) {
            PeerAnswer::Introduces(it) => assert_eq!(it.start, learner.ear.trust.own()),
            other => panic!("{other:?}"),
        }
    }
    for to in [(GroupId(5), LEARNER), (GroupId(4), LEARNER + 1)] {
        let nobody = say(&mut conversation, to, &PeerCall::Asks);
        assert!(matches!(nobody, PeerAnswer::Failed(_)), "{to:?}: {nobody:?}");
    }
}
