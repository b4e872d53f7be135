//! What members say to each other when several of them say it.

use super::*;
use crate::group::{FOUNDER, Group, GroupSettings, Place};
use namespace::{Attributes, FileKind, Timestamp};
use openraft::async_runtime::WatchReceiver;

struct Nobody;

impl Wires for Nobody {
    fn to(&self, _: u64, _: &Host) -> Box<dyn Wire> {
        Box::new(Nobody)
    }

    fn speaks(&self, _: u64) -> Option<Version> {
        None
    }
}

impl Wire for Nobody {
    fn ask(&mut self, _: Bytes) -> Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + '_>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

fn open(dir: &Path, member: u64) -> Group {
    let now = Timestamp::default();
    let root = Attributes {
        kind: FileKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: now,
        btime: now,
        atime: now,
    };
    let place = Place { member, host: Host::default(), founds: member == FOUNDER, knows: Versions::KNOWN };
    let deliver = Box::new(|_| ());
    let group = Group::open(dir, GroupSettings::default(), root, place, Arc::new(Nobody), deliver).unwrap();
    group.begin();
    group
}

fn say(conversation: &mut Conversation, member: u64, call: &Call) -> Answer {
    let call = postcard::to_allocvec(&(member, call)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    postcard::from_bytes(&runtime.block_on(conversation.hear(&call))).unwrap()
}

/// A leader that was given up may be in the middle of its snapshot when the next one begins its own (seed 48 of `simulate --raft`, in which rows of one were installed as the other's).
#[test]
fn snapshots_of_two_conversations_do_not_mix() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let founder = open(dirs[0].path(), FOUNDER);
    let (rows, _) = founder.freeze().unwrap();
    let position = rows.position().unwrap().to_vec();
    let vote = founder.ear.raft.metrics().borrow_watched().vote;
    let applied = founder.machine.read().position.clone();
    let meta = SnapshotMeta { last_log_id: applied.applied, last_membership: applied.membership };
    let all = rows.page(None, usize::MAX).unwrap();

    let learner = open(dirs[1].path(), FOUNDER + 1);
    let (mut first, mut second) = (learner.listen(), learner.listen());
    let tell = |conversation: &mut Conversation, call: Call| say(conversation, FOUNDER + 1, &call);
    assert!(matches!(tell(&mut first, Call::Begin(meta.clone())), Answer::Taken));
    assert!(matches!(tell(&mut first, Call::Rows(all.clone())), Answer::Taken));
    assert!(matches!(tell(&mut second, Call::Begin(meta)), Answer::Taken));
    let installed = tell(&mut first, Call::Install(vote, position.clone()));
    assert!(matches!(installed, Answer::Installed(_)), "{installed:?}");
    assert_eq!(learner.rows().page(None, usize::MAX).unwrap(), all);
    // Nothing of the other one has come yet: that is no state, and no reason to stop.
    let installed = tell(&mut second, Call::Install(vote, position));
    assert!(matches!(installed, Answer::Failed(_)), "{installed:?}");
}
