//! Releases: what a host lets go of, and when.

use super::*;

#[test]
fn nothing_is_released_by_a_state_that_is_too_old() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 2));
    group.state.old.store(true, Ordering::SeqCst);
    for at in [0, 1] {
        group.stop(at);
    }
    // The state is as of before the publications: it is unknown yet whether the log is committed.
    let later = std::mem::take(&mut *group.state.referenced.lock());
    for at in [0, 1] {
        group.start(at);
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(shares.iter().all(|share| group.keeping(share).len() == 2));
    *group.state.referenced.lock() = later.into_iter().take(2).collect();
    group.state.old.store(false, Ordering::SeqCst);
    until("complete", || group.all_complete());
    let copies: usize = shares.iter().map(|share| group.keeping(share).len()).sum();
    assert_eq!(copies, 4);
}

#[test]
fn of_two_hosts_that_each_rely_on_the_other_none_lets_go() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 2));
    // Each host is told that it is the one to be drained.
    for at in [0, 1] {
        group.keeps = vec![at != 0, at != 1];
        group.hosts[at].as_ref().unwrap().peers.hosts().set(group.list(), 1);
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(shares.iter().all(|share| group.keeping(share).len() == 2));
    group.tell();
    until("drained", || shares.iter().all(|share| group.keeping(share) == [0]));
}

/// The first host is promised a share by the second. Then a list comes by which the second may go,
/// since the first keeps it; and then the list of before comes again.
#[test]
fn a_promise_counts_no_more_when_its_list_of_hosts_comes_again() {
    let mut group = TestGroup::new(2);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 2));
    // The repair of the first host must not act before the test does: by an older state it waits.
    group.state.old.store(true, Ordering::SeqCst);
    group.keeps = vec![false, true];
    group.tell();
    let first = group.hosts[0].as_ref().unwrap().peers.hosts().now();
    let keep = ShareCall::Keep(shares.clone());
    let (promised, _) = group.share_host(1).answer(TestGroup::machine(0), keep, Bytes::new(), &*group.state);
    assert_eq!(promised, [Ok(()); 3]);
    group.keeps = vec![true, false];
    group.tell();
    group.state.old.store(false, Ordering::SeqCst);
    until("left by the second", || shares.iter().all(|share| group.keeping(share) == [0]));
    group.state.old.store(true, Ordering::SeqCst);
    group.keeps = vec![false, true];
    group.tell();
    let again = group.hosts[0].as_ref().unwrap().peers.hosts().now();
    assert_eq!(first.fingerprint(), again.fingerprint());
    assert!(!group.share_host(0).leave(&first, &shares).unwrap());
    group.state.old.store(false, Ordering::SeqCst);
    until("moved", || shares.iter().all(|share| group.keeping(share) == [1]));
    for number in 0..3 {
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
}

#[test]
fn a_host_that_is_another_machine_is_not_talked_to() {
    let group = TestGroup::new(2);
    let mut list = group.list();
    // Both addresses are the first host's.
    list[1].addresses = list[0].addresses.clone();
    let peers = Peers::new(CLIENT);
    peers.know(caller(&group.authority, group.dirs[0].path(), CLIENT));
    peers.hosts().set(list, 1);
    let (hosts, ask) = (peers.hosts().now(), |machine| {
        let hosts = peers.hosts().now();
        peers.call(&hosts, machine, ShareCall::Standing, Vec::new())
    });
    let second = hosts.all()[1].machine;
    assert!(ask(hosts.all()[0].machine).unwrap().wait(None).is_ok());
    assert!(ask(second).is_none_or(|pending| pending.wait(None).is_err()));
}

const DAY: u64 = 24 * 3600;

/// Leaves a share at a host that the group has leased and that nothing refers to, as another server
/// might.
fn leave_behind(group: &TestGroup, at: usize, number: u64) -> ShareId {
    let left = NewShare { id: share(number), parts: vec![plain(number)] };
    assert_eq!(group.share_host(at).shares().store_for_group(vec![left]), [Ok(())]);
    share(number)
}

#[test]
fn a_host_that_was_off_for_months_lets_go_of_nothing_that_is_referred_to_and_of_all_else() {
    for count in [1, 3] {
        let mut group = TestGroup::new(count);
        let shares = store(&group.client(), 0..5);
        group.publish(&shares);
        until("adopted", || shares.iter().all(|share| group.keeping(share).len() == count));
        let left = leave_behind(&group, 0, 9);
        group.stop(0);
        group.now.fetch_add(62 * DAY, Ordering::SeqCst);
        // It is unknown yet what is committed.
        group.state.old.store(true, Ordering::SeqCst);
        let referenced = std::mem::take(&mut *group.state.referenced.lock());
        group.start(0);
        let server = || group.share_host(0).shares().server();
        let all =
            || shares.iter().chain([&left]).filter(|share| server().share(share).unwrap().is_some()).count();
        std::thread::sleep(Duration::from_millis(300));
        server().confirm_clock().unwrap();
        server().expire().unwrap();
        group.now.fetch_add(2 * DAY, Ordering::SeqCst);
        server().confirm_clock().unwrap();
        server().expire().unwrap();
        server().reap().unwrap();
        assert_eq!((all(), server().vouched()), (6, None), "{count} hosts");
        *group.state.referenced.lock() = referenced;
        group.state.old.store(false, Ordering::SeqCst);
        until("vouched for", || server().vouched().is_some());
        server().expire().unwrap();
        server().reap().unwrap();
        until("gone", || server().share(&left).unwrap().is_none());
        assert_eq!(all(), 5);
        // All that files refer to is leased for another term.
        let end = server().lease_end();
        for share in &shares {
            let leases = server().leases_of(share).unwrap();
            assert_eq!(leases.iter().map(|lease| lease.expires_at).collect::<Vec<_>>(), [Some(end)]);
        }
    }
}

#[test]
fn leases_are_renewed_when_they_are_due_and_not_while_somebody_copies_what_was_there() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..3);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    let server = group.share_host(0).shares().server();
    let renewed = |at: u64| server.leases_of(&share(at)).unwrap()[0].renewed_at;
    // The session that uploaded the shares has leases, too, until it is swept.
    let own = group.share_host(0).shares().group;
    until("leased by the group alone", || {
        (0..3)
            .all(|at| matches!(server.leases_of(&share(at)).as_deref(), Ok([lease]) if lease.account == own))
    });
    let begin = renewed(0);
    let look = |days: u64| {
        group.now.fetch_add(days * DAY, Ordering::SeqCst);
        server.confirm_clock().unwrap();
        group.share_host(0).compare();
        until("looked", || server.vouched() == Some(server.now()));
    };
    look(6);
    assert_eq!(renewed(0), begin);
    look(1);
    assert_eq!(renewed(0), begin + 7 * DAY);
    // A damaged share may be the last remainder of its data.
    std::fs::write(group.file(0, &share(1)), b"else").unwrap();
    assert!(server.verify(&share(1)).is_err());
    look(7);
    assert_eq!(renewed(1), begin + 14 * DAY);
    // A share that goes while it is being copied stays until the copy is done.
    let hold = group.hosts[0].as_ref().unwrap().share_host.hold();
    group.state.referenced.lock().remove(&share(2));
    group.share_host(0).work(ServerId::ROOT, vec![ShareWork::Drop(share(2))]);
    let vouched = server.vouched();
    for _ in 0..40 {
        group.now.fetch_add(DAY, Ordering::SeqCst);
        server.confirm_clock().unwrap();
    }
    group.share_host(0).compare();
    std::thread::sleep(Duration::from_millis(300));
    server.expire().unwrap();
    server.reap().unwrap();
    assert_eq!((server.vouched(), server.share(&share(2)).unwrap().is_some()), (vouched, true));
    drop(hold);
    until("let go", || server.share(&share(2)).unwrap().is_none());
    until("looked", || server.vouched() > vouched);
    assert!(server.now() - renewed(0) < 7 * DAY);
}

/// The copy begins while the host compares: after the check for copies, and before the query of
/// references.
#[test]
fn what_goes_after_somebody_has_begun_to_copy_it_stays_whatever_a_look_is_at() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..2);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    let (share_host, gone) = (group.hosts[0].as_ref().unwrap().share_host.clone(), shares[1]);
    let (holds, held) = std::sync::mpsc::channel();
    *group.state.meanwhile.lock() = Some(Box::new(move |state| {
        holds.send(share_host.hold()).unwrap();
        state.referenced.lock().remove(&gone);
    }));
    let server = group.share_host(0).shares().server();
    group.now.fetch_add(1, Ordering::SeqCst);
    group.share_host(0).compare();
    let hold = held.recv().unwrap();
    until("looked", || server.vouched() == Some(server.now()));
    assert_eq!(group.keeping(&gone), [0]);
    drop(hold);
    until("let go", || server.share(&gone).unwrap().is_none());
    assert_eq!(group.keeping(&shares[0]), [0]);
}

/// A region moves while the host looks: the replica of the server before has lost its rows, and
/// that of the next one, which was asked first, had not got them.
#[test]
fn what_moves_past_a_look_stays_and_its_lease_is_not_taken_for_renewed() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..2);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    let moves = shares[1];
    let (arrives, asked) = std::sync::mpsc::channel();
    *group.state.meanwhile.lock() = Some(Box::new(move |state| {
        state.moves.fetch_add(1, Ordering::SeqCst);
        let publisher = state.referenced.lock().remove(&moves).unwrap();
        arrives.send(publisher).unwrap();
    }));
    let server = group.share_host(0).shares().server();
    let vouched = server.vouched();
    group.now.fetch_add(1, Ordering::SeqCst);
    group.share_host(0).compare();
    let publisher = asked.recv().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((group.keeping(&moves), server.vouched()), (vec![0], vouched));
    // It has arrived, and the next look finds everything.
    group.state.referenced.lock().insert(moves, publisher);
    group.share_host(0).compare();
    until("looked", || server.vouched() == Some(server.now()));
    assert!(shares.iter().all(|share| group.keeping(share) == [0]));
}
