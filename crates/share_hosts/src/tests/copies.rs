//! Copies are stored, found, repaired and moved.

use super::*;

#[test]
fn a_share_is_stored_where_it_is_to_be_and_read_from_anywhere() {
    let group = TestGroup::new(4);
    let shares = store(&group.client(), 0..20);
    for share in &shares {
        let has = |at: &usize| group.share_host(*at).shares().server().share(share).unwrap().is_some();
        let mut placed = group.placed(share);
        placed.sort_unstable();
        assert_eq!((0..4).filter(has).collect::<Vec<_>>(), placed);
    }
    group.publish(&shares);
    for (number, share) in (0..).zip(&shares) {
        until("adopted", || group.keeping(share).len() == 3);
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
        assert_eq!(read(&group.client_of(0), number).unwrap(), plain(number));
    }
    // The reader does not wait for a share that no host has.
    assert_eq!(read(&group.client(), 1_000), Err(Error::Damaged));
    // A share that a client does not need is released everywhere.
    let unneeded = store(&group.client(), 100..101);
    group.client().release(&unneeded);
    until("let go", || {
        (0..4).all(|at| group.share_host(at).shares().server().share(&unneeded[0]).unwrap().is_none())
    });
}

#[test]
fn a_host_that_is_down_is_passed_over_and_fetches_what_it_missed() {
    let mut group = TestGroup::new(3);
    let before = store(&group.client(), 0..5);
    group.publish(&before);
    until("adopted", || before.iter().all(|share| group.keeping(share).len() == 3));
    group.stop(1);
    let shares = store(&group.client(), 5..10);
    group.publish(&shares);
    for number in 10..30 {
        group.publish(&store(&group.client(), number..number + 1));
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
    // One share is gone by the time that the host is back.
    let gone = share(7);
    group.state.referenced.lock().remove(&gone);
    for at in [0, 2] {
        group.share_host(at).work(ServerId::ROOT, vec![ShareWork::Drop(gone)]);
    }
    group.start(1);
    until("complete", || group.all_complete());
    for number in 0..30 {
        let copies = group.keeping(&share(number)).len();
        assert_eq!(copies, if share(number) == gone { 0 } else { 3 }, "{number}");
    }
    // This host alone has all that the others have.
    let client = group.client_of(1);
    group.stop(0);
    group.stop(2);
    assert_eq!(read(&client, 20).unwrap(), plain(20));
}

#[test]
fn the_next_host_in_order_takes_the_place_of_one_that_is_down_and_gives_it_up_again() {
    let mut group = TestGroup::new(4);
    let number = (0..).find(|number| group.placed(&share(*number)).contains(&2)).unwrap();
    let (placed, share) = (group.placed(&share(number)), share(number));
    let stands_in = (0..4).find(|at| !placed.contains(at)).unwrap();
    group.stop(2);
    group.publish(&store(&group.client(), number..number + 1));
    until("taken", || group.keeping(&share).len() == 3);
    assert!(group.keeping(&share).contains(&stands_in));
    group.start(2);
    until("moved", || {
        let mut keeping = group.keeping(&share);
        keeping.sort_by_key(|at| placed.iter().position(|placed| placed == at));
        keeping == placed
    });
    assert_eq!(read(&group.client(), number).unwrap(), plain(number));
}

#[test]
fn a_lone_host_whose_lease_database_is_lost_leases_all_that_files_refer_to() {
    let mut group = TestGroup::new(1);
    let shares = store(&group.client(), 0..20);
    group.publish(&shares[..15]);
    until("adopted", || shares[..15].iter().all(|share| group.keeping(share) == [0]));
    group.stop(0);
    std::fs::remove_file(group.dir(0).join("shares/leases.sqlite")).unwrap();
    group.start(0);
    until("leased anew", || shares[..15].iter().all(|share| group.keeping(share) == [0]));
    let server = group.share_host(0).shares().server();
    until("known", || server.suspended().unwrap().is_none());
    let starter = AccountId::STARTER;
    let found = |share: &ShareId| server.leases_of(share).unwrap()[0].account == starter;
    assert!(shares[15..].iter().all(found), "nothing refers to these: they stay for a while");
    assert_eq!(server.usage(starter).unwrap().shares, 5);
    for number in 0..20 {
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
}

#[test]
fn a_host_that_says_nothing_costs_one_wait() {
    let group = TestGroup::new(3);
    let shares = store(&group.client(), 0..5);
    group.publish(&shares);
    let other = Peers::new(CLIENT);
    other.know(caller(&group.authority, group.dirs[0].path(), CLIENT));
    other.hosts().set(group.list(), 2);
    let client = Copies::new(other.clone());
    let is_down = || {
        let hosts = other.hosts().now();
        other.call(&hosts, hosts.all()[1].machine, ShareCall::Standing, Vec::new()).is_none()
    };
    group.frozen[1].store(true, Ordering::SeqCst);
    store(&client, 5..6);
    assert!(is_down(), "nobody waits for it again");
    store(&client, 6..20);
    for number in 0..20 {
        assert_eq!(read(&client, number).unwrap(), plain(number));
    }
    assert!(is_down());
    // The host takes what it was sent, and is asked again.
    group.frozen[1].store(false, Ordering::SeqCst);
    until("heard of", || group.share_host(1).shares().server().share(&share(5)).unwrap().is_some());
    until("asked again", || {
        let at = store(&client, 20..21).remove(0);
        group.share_host(1).shares().server().share(&at).unwrap().is_some()
    });
}

/// There is no other host, so the callers are ready to wait.
#[test]
fn no_call_waits_for_ever_for_a_host_that_is_up_and_answers_nothing() {
    let group = TestGroup::new(1);
    let shares = store(&group.client(), 0..1);
    group.publish(&shares);
    group.frozen[0].store(true, Ordering::SeqCst);
    let other = Peers::answered_within(CLIENT, Duration::from_secs(2));
    other.know(caller(&group.authority, group.dirs[0].path(), CLIENT));
    other.hosts().set(group.list(), 1);
    let (hosts, began) = (other.hosts().now(), Instant::now());
    let ask = || other.call(&hosts, TestGroup::machine(0), ShareCall::Standing, Vec::new());
    assert_eq!(ask().unwrap().wait(None).err(), Some(Unanswered::Unreachable));
    assert!((2..60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // A reader and a writer ask again and again, until the host answers.
    let client = Copies::new(other.clone());
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&client, 0));
        let writing = scope.spawn(|| store(&client, 1..2));
        std::thread::sleep(Duration::from_secs(5));
        assert!(!reading.is_finished() && !writing.is_finished());
        group.frozen[0].store(false, Ordering::SeqCst);
        assert_eq!(reading.join().unwrap().unwrap(), plain(0));
        writing.join().unwrap();
    });
}

#[test]
fn damage_is_found_by_the_reader_repaired_from_another_host_and_never_served() {
    let group = TestGroup::new(3);
    let shares = store(&group.client(), 0..6);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 3));
    let (flipped, cut, missing, head) = (share(0), share(1), share(2), share(3));
    let change = |share: &ShareId, at: u64| {
        let file = OpenOptions::new().write(true).open(group.file(0, share)).unwrap();
        file.write_at(&[0xff, 0x5a, 0xff, 0x5a, 0x77], at).unwrap();
        file
    };
    change(&flipped, HEADER + 1_000);
    change(&cut, 0).set_len(500).unwrap();
    std::fs::remove_file(group.file(0, &missing)).unwrap();
    change(&head, 3);
    // The host reads its own copies first.
    let client = group.client_of(0);
    for number in 0..6 {
        assert_eq!(read(&client, number).unwrap(), plain(number), "{number}");
        assert_eq!(read(&group.client(), number).unwrap(), plain(number), "{number}");
    }
    for share in &shares {
        let server = group.share_host(0).shares().server();
        until("repaired", || server.share(share).unwrap().is_some_and(|row| row.health == Health::Ok));
        assert!(server.verify(share).is_ok());
    }
    until("complete", || group.all_complete());
}

#[test]
fn a_host_is_drained_and_comes_back() {
    let mut group = TestGroup::new(4);
    let shares = store(&group.client(), 0..40);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share).len() == 3));
    group.keeps[3] = false;
    group.tell();
    until("drained", || group.all_complete() && group.share_host(3).standing().unwrap().kept == 0);
    assert!(shares.iter().all(|share| group.keeping(share) == [0, 1, 2]));
    group.keeps = vec![true; 4];
    group.tell();
    until("back", || group.all_complete());
    for (number, share) in (0..).zip(&shares) {
        let mut placed = group.placed(share);
        placed.sort_unstable();
        until("moved", || group.keeping(share) == placed);
        assert_eq!(read(&group.client(), number).unwrap(), plain(number));
    }
}

#[test]
fn a_second_host_gets_a_copy_of_all_that_there_is() {
    let mut group = TestGroup::new(2);
    group.stop(1);
    let lone = group.client_of(0);
    let peers = &group.hosts[0].as_ref().unwrap().peers;
    peers.hosts().set(vec![group.list().remove(0)], 1);
    let shares = store(&lone, 0..300);
    group.publish(&shares);
    until("adopted", || shares.iter().all(|share| group.keeping(share) == [0]));
    assert!(group.share_host(0).standing().unwrap().complete);
    group.start(1);
    until("complete", || group.all_complete());
    assert!(shares.iter().all(|share| group.keeping(share) == [0, 1]));
}

#[test]
fn a_host_starts_while_the_last_work_of_its_former_run_is_under_way() {
    let mut group = TestGroup::new(1);
    let under_way = group.hosts[0].as_ref().unwrap().share_host.clone();
    group.stop(0);
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(under_way);
    });
    group.start(0);
    ends.join().unwrap();
}
