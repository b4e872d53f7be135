//! Conversations of several members with one.

use super::*;
use crate::group::tests::{Nobody, open_alone, root};
use crate::starts::Starts;
use crate::{FOUNDER, Group, GroupSettings, MemberPlace};
use openraft::async_runtime::WatchReceiver;

/// Opens a member that has heard nothing yet.
fn open_learner(dir: &Path) -> Group {
    let place = MemberPlace {
        member: FOUNDER + 1,
        host: Host { name: "second".to_owned(), ..Host::default() },
        founds: false,
        knows: Versions::KNOWN,
        mark: None,
        moved: false,
    };
    let (settings, wires) = (GroupSettings::default(), Arc::new(Nobody));
    let group = Group::open(dir, settings, root(), place, wires, Box::new(|_| ())).unwrap();
    group.begin();
    group
}

fn say(conversation: &mut Conversation, member: u64, call: &PeerCall) -> PeerAnswer {
    let starts = started();
    let mut said = |call: &PeerCall| {
        let call = postcard::to_allocvec(&(member, (FOUNDER, starts.own()), call)).unwrap();
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

/// A deposed leader may be in the middle of its snapshot when the next leader begins its own.
#[test]
fn snapshots_of_two_conversations_do_not_mix() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let founder = open_alone(dirs[0].path(), GroupSettings::default(), Box::new(|_| ()));
    let (rows, _) = founder.freeze().unwrap();
    let position = rows.position().unwrap().to_vec();
    let vote = founder.ear.raft.metrics().borrow_watched().vote;
    let applied = founder.machine.read().position.clone();
    let meta = SnapshotMeta { last_log_id: applied.applied, last_membership: applied.membership };
    let all = rows.page(None, usize::MAX).unwrap();

    let learner = open_learner(dirs[1].path());
    let (mut first, mut second) = (learner.listen(), learner.listen());
    let tell = |conversation: &mut Conversation, call: PeerCall| say(conversation, FOUNDER + 1, &call);
    assert!(matches!(tell(&mut first, PeerCall::Begin(meta.clone())), PeerAnswer::Taken));
    assert!(matches!(tell(&mut first, PeerCall::Rows(all.clone())), PeerAnswer::Taken));
    assert!(matches!(tell(&mut second, PeerCall::Begin(meta)), PeerAnswer::Taken));
    let installed = tell(&mut first, PeerCall::Install(vote, position.clone()));
    assert!(matches!(installed, PeerAnswer::Installed(_)), "{installed:?}");
    assert_eq!(learner.rows().page(None, usize::MAX).unwrap(), all);
    // No row of the second one has come yet. That is no state, and no reason to stop.
    let installed = tell(&mut second, PeerCall::Install(vote, position));
    assert!(matches!(installed, PeerAnswer::Failed(_)), "{installed:?}");
}
