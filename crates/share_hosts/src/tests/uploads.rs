//! Uploads that are never published, and uploads under the names of others' shares.

use super::*;
use crate::peers::fetched;

/// A hostile machine.
const FORGER: MachineId = MachineId(98);

#[test]
fn what_earlier_sessions_left_is_swept_and_what_this_one_uploaded_before_a_host_heard_of_it_is_not() {
    let group = TestGroup::new(2);
    let (old, new) = (SessionId(4), SessionId(9));
    for (session, number) in [(old, 0), (new, 1), (old, 2)] {
        assert!(
            group
                .client()
                .store(session, vec![upload(number, share(number), plain(number))])
                .iter()
                .all(|(_, result)| result.is_ok())
        );
    }
    group.publish(&[share(2)]);
    for at in [0, 1] {
        group.share_host(at).begin(CLIENT, new, true);
        let leases = |number| group.share_host(at).shares().server().leases_of(&share(number)).unwrap().len();
        until("swept", || leases(0) == 0);
        assert_eq!((leases(1), leases(2)), (1, 1));
    }
    // The leader confirms work; until then the work is given out again.
    assert!(group.state.settled.lock().contains(&ShareWork::Adopt(share(2))));
}

/// Stores something else under the name of a share, at one host; returns the host's answer.
fn forge(group: &TestGroup, at: usize, share: ShareId) -> Result<(), Error> {
    forge_in(SESSION, group, at, share)
}

fn forge_in(session: SessionId, group: &TestGroup, at: usize, share: ShareId) -> Result<(), Error> {
    let (peers, dir) = (Peers::new(FORGER), tempfile::tempdir().unwrap());
    peers.know(caller(&group.authority, dir.path(), FORGER));
    peers.hosts().set(group.list(), group.needed());
    let body = Bytes::from_static(b"something else");
    let store = ShareCall::Store { session, shares: vec![(share, body.len() as u32)] };
    let pending = peers.call(&peers.hosts().now(), TestGroup::machine(at), store, vec![body]).unwrap();
    pending.wait(None).unwrap().0.remove(0)
}

/// Whether both hosts have the client's copy, leased by the group alone.
fn both_have(group: &TestGroup, share: &ShareId) -> bool {
    let copy = |at: usize| {
        let server = group.share_host(at).shares().server();
        (server.whole(share).ok(), server.leases_of(share).unwrap().len())
    };
    group.keeping(share) == [0, 1] && copy(0) == copy(1) && copy(0).1 == 1
}

#[test]
fn nobody_stores_by_the_name_of_a_share_that_a_file_refers_to() {
    let mut group = TestGroup::new(2);
    group.stop(0);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [1]));
    group.keeps[0] = false;
    group.start(0);
    assert_eq!(forge(&group, 0, shares[0]), Err(Error::Exists));
    assert!(group.share_host(0).shares().server().share(&shares[0]).unwrap().is_none());
    group.keeps[0] = true;
    group.tell();
    until("fetched", || shares.iter().all(|share| both_have(&group, share)));
}

/// A host that lags hears of the publication when there is already something else by that name
/// here. It hears of it from the log, or only when it compares everything.
#[test]
fn what_others_than_the_publisher_have_uploaded_is_no_copy() {
    for from_the_log in [true, false] {
        let mut group = TestGroup::new(2);
        group.keeps[0] = false;
        group.tell();
        let shares = store(&group.client(), 0..3);
        for share in &shares {
            assert_eq!(forge(&group, 0, *share), Ok(()));
            assert_eq!(group.share_host(0).read(*share, 0, 4).unwrap(), b"some");
        }
        group.keeps[0] = true;
        group.tell();
        if from_the_log {
            group.publish(&shares);
        } else {
            group.stop(0);
            group.publish(&shares);
            group.start(0);
        }
        until("fetched", || shares.iter().all(|share| both_have(&group, share)));
        until("complete", || group.all_complete());
        for number in 0..3 {
            assert_eq!(read(&group.client_of(0), number).unwrap(), plain(number));
        }
    }
}

/// Asks one host for a whole share, as another machine.
fn fetch_as(machine: MachineId, group: &TestGroup, at: usize, share: ShareId) -> Result<Bytes, Error> {
    let (peers, dir) = (Peers::new(machine), tempfile::tempdir().unwrap());
    peers.know(caller(&group.authority, dir.path(), machine));
    peers.hosts().set(group.list(), group.needed());
    let asked = peers.call(&peers.hosts().now(), TestGroup::machine(at), ShareCall::Fetch(share), Vec::new());
    fetched(asked.unwrap().wait(None).unwrap())
}

/// A host that lacks the share would store what it fetches as the group's own.
#[test]
fn what_nobody_has_adopted_is_a_copy_for_its_uploader_alone() {
    let group = TestGroup::new(2);
    let shares = store(&group.client(), 0..1);
    let other = MachineId(97);
    assert!(fetch_as(CLIENT, &group, 0, shares[0]).is_ok());
    assert_eq!(fetch_as(other, &group, 0, shares[0]), Err(Error::CutOff));
    group.publish(&shares);
    until("adopted", || both_have(&group, &shares[0]));
    let whole = group.share_host(0).shares().server().whole(&shares[0]).unwrap().0;
    assert_eq!(fetch_as(other, &group, 0, shares[0]), Ok(whole.into()));
}

#[test]
fn what_a_session_left_behind_that_is_over_is_no_copy() {
    let mut group = TestGroup::new(2);
    group.keeps[0] = false;
    group.tell();
    let (shares, forgers) = (store(&group.client(), 0..3), SessionId(6));
    shares.iter().for_each(|share| assert_eq!(forge_in(forgers, &group, 0, *share), Ok(())));
    group.state.over.lock().insert((FORGER, forgers));
    group.share_host(0).compare();
    let server = group.share_host(0).shares().server();
    until("swept", || shares.iter().all(|share| server.leases_of(share).unwrap().is_empty()));
    assert!(shares.iter().all(|share| server.share(share).unwrap().is_some()), "they stay for a while");
    assert_eq!(fetch_as(MachineId(97), &group, 0, shares[0]), Err(Error::CutOff));
    group.keeps[0] = true;
    group.tell();
    group.publish(&shares);
    until("fetched", || shares.iter().all(|share| both_have(&group, share)));
}

#[test]
fn a_host_sweeps_the_uploads_of_sessions_whose_end_it_missed_and_keeps_what_they_published() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    let leases = |group: &TestGroup, n: usize| {
        group.share_host(1).shares().server().leases_of(&shares[n]).unwrap().len()
    };
    group.stop(1);
    group.publish(&shares[..1]);
    group.start(1);
    until("adopted", || group.keeping(&shares[0]) == [0, 1]);
    assert_eq!([0, 1, 2].map(|n| leases(&group, n)), [1; 3], "it may come back");
    group.state.over.lock().insert((CLIENT, SESSION));
    group.share_host(1).compare();
    until("swept", || leases(&group, 1) + leases(&group, 2) == 0);
    assert_eq!(group.keeping(&shares[0]), [0, 1]);
    assert_eq!(group.share_host(1).shares().sessions(), []);
}

#[test]
fn uploads_of_an_expelled_machine_go_and_what_it_has_published_stays() {
    let group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares[..1]);
    let leases = |at, n: usize| group.share_host(at).shares().server().leases_of(&shares[n]).unwrap().len();
    until("adopted", || group.keeping(&shares[0]) == [0, 1]);
    (0..2).for_each(|at| group.share_host(at).expelled(CLIENT));
    until("swept", || (0..2).all(|at| leases(at, 1) + leases(at, 2) == 0));
    assert_eq!((group.keeping(&shares[0]), leases(0, 0), leases(1, 0)), (vec![0, 1], 1, 1));
}

#[test]
fn nothing_is_taken_of_a_machine_that_may_store_nothing() {
    let group = TestGroup::new(2);
    group.state.readers.lock().insert(FORGER);
    assert_eq!(forge(&group, 0, share(0)), Err(Error::NotPermitted));
    assert_eq!(group.share_host(0).shares().sessions(), []);
    assert!(group.share_host(0).shares().server().share(&share(0)).unwrap().is_none());
}

/// The machine's last upload is under way while its others are swept.
#[test]
fn what_a_machine_stores_that_is_expelled_meanwhile_goes_too() {
    let group = TestGroup::new(2);
    // The host asks first, while the machine may still upload. The sweep of the expulsion has found
    // nothing, and does not come again.
    *group.state.storing.lock() = Some(Box::new(|state: &ReplicaState| {
        *state.storing.lock() = Some(Box::new(|state: &ReplicaState| {
            state.readers.lock().insert(FORGER);
        }));
    }));
    assert_eq!(forge(&group, 0, share(0)), Ok(()));
    until("swept", || group.share_host(0).shares().server().leases_of(&share(0)).unwrap().is_empty());
}

/// The session would end when the number is another's, which may be never.
#[test]
fn nothing_is_taken_of_a_session_that_has_not_begun() {
    let group = TestGroup::new(2);
    let made_up = SessionId(u64::MAX);
    group.state.unknown.lock().insert(made_up);
    assert_eq!(forge_in(made_up, &group, 0, share(0)), Err(Error::CutOff));
    assert_eq!(group.share_host(0).shares().sessions(), []);
    assert!(group.share_host(0).shares().server().share(&share(0)).unwrap().is_none());
}

#[test]
fn who_uploads_before_the_hosts_have_heard_of_his_session_waits_until_enough_have() {
    let group = TestGroup::new(3);
    group.state.unknown.lock().insert(SESSION);
    let stored = std::thread::scope(|scope| {
        let storing = scope.spawn(|| store(&group.client(), 0..3));
        // Each host has refused once.
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!storing.is_finished());
        group.state.unknown.lock().clear();
        storing.join().unwrap()
    });
    group.publish(&stored);
    until("adopted", || stored.iter().all(|share| group.keeping(share).len() == 3));
}
