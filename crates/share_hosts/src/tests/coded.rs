//! Shares that are kept in fragments.

use super::*;

fn coded(number: u64) -> ShareId {
    share(number).spread_as(Spread::Code { data: 2, parity: 1 })
}

fn large(number: u64) -> Bytes {
    Bytes::from((0..150_000 + number).map(|at| (at.wrapping_mul(number + 3) >> 5) as u8).collect::<Vec<u8>>())
}

fn store_coded(client: &Copies, numbers: std::ops::Range<u64>) -> Vec<ShareId> {
    store_all(client, numbers.map(|number| (coded(number), large(number))))
}

fn read_coded(client: &Copies, number: u64) -> Result<Vec<u8>, Error> {
    read_all(client, coded(number), &large(number))
}

impl TestGroup {
    fn all_read(&self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            assert_eq!(read_coded(&self.client(), number).unwrap(), large(number), "{number}");
        }
    }

    /// Whether each fragment is where it is to be and nowhere else.
    fn is_settled(&self, shares: &[ShareId]) -> bool {
        let is_placed = |fragment: ShareId| {
            let mut placed = self.placed(&fragment);
            placed.sort_unstable();
            self.keeping(&fragment) == placed
        };
        shares.iter().flat_map(ShareId::kept_as).all(is_placed)
    }

    fn bytes(&self) -> u64 {
        let usage =
            |at| self.share_host(at).shares().server().usage(self.share_host(at).shares().group).unwrap();
        (0..self.hosts.len()).map(|at| usage(at).bytes).sum()
    }
}

#[test]
fn fragments_are_apart_and_any_that_are_enough_are_read() {
    let mut group = TestGroup::new(5);
    let shares = store_coded(&group.client(), 0..10);
    group.publish(&shares);
    until("adopted", || group.is_settled(&shares));
    let plain: u64 = (0..10).map(|number| large(number).len() as u64).sum();
    let ratio = group.bytes() as f64 / plain as f64;
    assert!((1.5..1.65).contains(&ratio), "{ratio}");
    for share in &shares {
        let hosts: BTreeSet<usize> = share.kept_as().flat_map(|fragment| group.keeping(&fragment)).collect();
        assert_eq!(hosts.len(), 3);
    }
    group.all_read(0..10);
    for down in 0..5 {
        group.stop(down);
        group.all_read(0..10);
        group.start(down);
    }
    assert_eq!(read_coded(&group.client(), 1_000), Err(Error::Damaged));
    let unneeded = store_coded(&group.client(), 100..101);
    group.client().release(&unneeded);
    let is_gone = |at: usize, name| group.share_host(at).shares().server().share(&name).unwrap().is_none();
    until("let go", || (0..5).all(|at| unneeded[0].kept_as().all(|name| is_gone(at, name))));
}

#[test]
fn what_is_written_while_a_host_is_down_survives_the_next_and_moves_when_it_is_back() {
    let mut group = TestGroup::new(3);
    group.stop(1);
    let shares = store_coded(&group.client(), 0..4);
    group.publish(&shares);
    let adopted =
        |at: usize| shares.iter().flat_map(ShareId::kept_as).all(|name| group.keeping(&name).contains(&at));
    until("adopted", || adopted(0) && adopted(2));
    for lost in [0, 2] {
        group.stop(lost);
        group.all_read(0..4);
        group.start(lost);
    }
    group.start(1);
    until("complete", || group.all_complete());
    until("one of each", || group.is_settled(&shares));
    group.stop(0);
    group.all_read(0..4);
}

#[test]
fn fragments_that_are_lost_or_damaged_are_made_anew() {
    let mut group = TestGroup::new(4);
    let shares = store_coded(&group.client(), 0..12);
    group.publish(&shares);
    until("adopted", || group.is_settled(&shares));
    // All shares of a host.
    let had: Vec<(ShareId, Vec<u8>)> = shares
        .iter()
        .flat_map(ShareId::kept_as)
        .filter(|name| group.placed(name) == [2])
        .map(|name| (name, group.share_host(2).shares().server().whole(&name).unwrap().0))
        .collect();
    assert!(had.len() >= 4, "{}", had.len());
    group.stop(2);
    std::fs::remove_dir_all(group.dir(2).join("shares")).unwrap();
    group.start(2);
    until("complete", || group.all_complete() && group.is_settled(&shares));
    for (name, body) in had {
        assert_eq!(group.share_host(2).shares().server().whole(&name).unwrap().0, body);
    }
    // The damage is to a byte of a data fragment.
    let name = shares[5].fragment(1);
    let at = group.placed(&name)[0];
    let file = group.file(at, &name);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    group.all_read(5..6);
    until("made anew", || group.share_host(at).shares().server().verify(&name).is_ok());
}

#[test]
fn a_host_that_is_drained_hands_its_fragments_on() {
    let mut group = TestGroup::new(4);
    let shares = store_coded(&group.client(), 0..12);
    group.publish(&shares);
    until("adopted", || group.is_settled(&shares));
    group.keeps[3] = false;
    group.tell();
    until("drained", || group.all_complete() && group.is_settled(&shares));
    assert!(shares.iter().flat_map(ShareId::kept_as).all(|name| !group.keeping(&name).contains(&3)));
    group.stop(3);
    group.all_read(0..12);
}

#[test]
fn a_lone_host_keeps_all_fragments_and_a_second_one_takes_its_part() {
    let mut group = TestGroup::new(2);
    group.keeps[1] = false;
    group.tell();
    let shares = store_coded(&group.client_of(0), 0..4);
    group.publish_by(TestGroup::machine(0), &shares);
    until("adopted", || group.is_settled(&shares));
    for number in 0..4 {
        assert_eq!(read_coded(&group.client_of(0), number).unwrap(), large(number));
    }
    group.keeps[1] = true;
    group.tell();
    until("moved", || group.all_complete() && group.is_settled(&shares));
    group.all_read(0..4);
}
