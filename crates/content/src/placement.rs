//! The hosts that keep a share: weighted rendezvous hashing (Thaler, Ravishankar 1998; weights as
//! Schindelhauer, Schomaker 2005).
//!
//! Each host has a distance to each share, and the nearest hosts keep the share. Twice the weight
//! halves the distance. Every machine that knows the hosts computes the order without asking. A
//! host that comes, goes or changes its weight moves only the shares that it gets or had.

use namespace::ShareId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Copies of a share, if there are so many hosts.
pub const COPIES: usize = 3;

/// Binary places of a logarithm. If two hosts are equal in these, the drawn numbers themselves
/// decide.
const PLACES: u32 = 32;

/// Sorts `hosts` in the order in which they keep `share`; `of` gives the number and the weight of
/// each. The order is part of the format: another order moves all content.
pub fn place<H>(share: &ShareId, hosts: &mut [H], of: impl Fn(&H) -> (u64, u32)) {
    hosts.sort_by_cached_key(|host| distance(share, of(host)));
}

/// Returns the hosts for the `count` fragments of `share`, in the order of the fragments. `hosts`
/// are numbers and weights. Each fragment goes to a host of its own as long as there are any. After
/// that, fragments are spread evenly. A host that comes or goes moves the fragments that it gets or
/// had, and few others. The order is part of the format, like [`place()`].
pub fn place_fragments(share: &ShareId, count: u8, hosts: &[(u64, u32)]) -> Vec<u64> {
    let mut kept: BTreeMap<(u64, u32), u32> = hosts.iter().map(|host| (*host, 0)).collect();
    let slot = |number| {
        let fragment = share.fragment(number);
        let (host, kept) =
            kept.iter_mut().min_by_key(|(host, kept)| (**kept, distance(&fragment, **host)))?;
        *kept += 1;
        Some(host.0)
    };
    (0..count).map_while(slot).collect()
}

/// Returns the bytes for which hosts with `free` bytes each have room. Each byte goes to `copies`
/// of the hosts with room, and to at least `needed`. The true figure differs a little, since hosts
/// do not fill at the same time. That difference does not matter to users.
pub fn room(mut free: Vec<u64>, copies: usize, needed: usize) -> u64 {
    let mut room = 0u64;
    loop {
        free.retain(|free| *free > 0);
        let copies = copies.min(free.len());
        if copies == 0 || copies < needed {
            return room;
        }
        // The most bytes of which no host has more than one copy, as if bytes were poured like
        // water.
        let fits = |bytes: u64| {
            let poured: u128 = free.iter().map(|free| u128::from(*free.min(&bytes))).sum();
            poured >= u128::from(bytes) * copies as u128
        };
        let all: u128 = free.iter().map(|free| u128::from(*free)).sum();
        let (mut least, mut most) = (0, u64::try_from(all / copies as u128).unwrap_or(u64::MAX));
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(middle) { least = middle } else { most = middle - 1 }
        }
        // Less than one byte each.
        if least == 0 {
            return room;
        }
        room = room.saturating_add(least);
        free.iter_mut().for_each(|free| *free = free.saturating_sub(least));
    }
}

/// Returns the distance of the host of this number and weight from `share`. Distances are
/// distributed exponentially, with the weight as the rate. At equal distances the drawn number
/// decides, then the number of the host.
fn distance(share: &ShareId, (host, weight): (u64, u32)) -> (u128, Reverse<u64>, u64) {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&share.0);
    hasher.update(&host.to_le_bytes());
    let mut drawn = [0; 8];
    hasher.finalize_xof().fill(&mut drawn);
    let drawn = u64::from_le_bytes(drawn);
    let distance = (u128::from(logarithm(drawn)) << 64) / u128::from(weight.max(1));
    (distance, Reverse(drawn), host)
}

/// Returns `-log2(drawn / 2^64)` in units of `2^-PLACES`, rounded up by less than two. A larger
/// number never gives more. It computes in integers, since all machines must get the same result.
fn logarithm(drawn: u64) -> u64 {
    let zeros = drawn.leading_zeros();
    // A number between 1 and 2 in units of 2^-63. Each square gives a binary place of its
    // logarithm.
    let (mut number, mut places) = (u128::from(drawn.checked_shl(zeros).unwrap_or(0)), 0u64);
    for _ in 0..PLACES {
        number = (number * number) >> 63;
        places <<= 1;
        if number >> 64 != 0 {
            places |= 1;
            number >>= 1;
        }
    }
    (u64::from(zeros + 1) << PLACES) - places
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::Spread;
    use std::collections::BTreeSet;

    fn name(share: u32) -> ShareId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&share.to_le_bytes());
        ShareId(id)
    }

    fn order(share: u32, hosts: &[u64]) -> Vec<u64> {
        let mut hosts = hosts.to_vec();
        place(&name(share), &mut hosts, |host| (*host, 931));
        hosts
    }

    #[test]
    fn hosts_keep_by_their_weights() {
        let hosts = [(1, 500), (2, 1000), (3, 2000), (4, 4000)];
        let (mut first, mut fragments) = (BTreeMap::<u64, u32>::new(), BTreeMap::<u64, u32>::new());
        for share in 0..7_500 {
            let mut order = hosts;
            place(&name(share), &mut order, |host| *host);
            *first.entry(order[0].0).or_default() += 1;
            for host in place_fragments(&name(share), 1, &hosts) {
                *fragments.entry(host).or_default() += 1;
            }
        }
        for kept in [first, fragments] {
            for (host, weight) in hosts {
                // As many as its weight; standard deviations are 22 to 43.
                assert!(kept[&host].abs_diff(weight) < 130, "{kept:?}");
            }
        }
    }

    #[test]
    fn a_host_that_grows_only_gets() {
        let mut got = 0;
        for share in 0..1_000 {
            let order = |third| {
                let mut order = [(1, 100), (2, 100), (3, third), (4, 100)];
                place(&name(share), &mut order, |host| *host);
                order.map(|host| host.0)
            };
            let (before, after) = (order(100), order(300));
            let others = |order: [u64; 4]| order.into_iter().filter(|host| *host != 3).collect::<Vec<_>>();
            assert_eq!(others(before), others(after));
            assert!(!before[..2].contains(&3) || after[..2].contains(&3));
            got += u32::from(before[0] != 3 && after[0] == 3);
        }
        // From a quarter to a half.
        assert!((200..=300).contains(&got), "{got}");
    }

    #[test]
    fn logarithms_are_right_and_in_order() {
        let mut last = u64::MAX;
        let drawn = (3..64).flat_map(|bit| (8..16).map(move |eighths| eighths << (bit - 3)));
        for drawn in drawn.chain([u64::MAX]) {
            let logarithm = logarithm(drawn);
            assert!(logarithm <= last, "{drawn}");
            last = logarithm;
            let right = 64.0 - (drawn as f64).log2();
            assert!((logarithm as f64 / (1u64 << PLACES) as f64 - right).abs() < 1e-9, "{drawn}");
        }
        assert!(logarithm(0) >= logarithm(1));
    }

    #[test]
    fn there_is_room_while_enough_hosts_have_some() {
        let cases: [(&[u64], u64); 9] = [
            (&[10, 10, 10], 10),
            (&[10, 10, 0], 10),
            (&[10, 10, 1], 10),
            (&[10, 5, 1], 5),
            (&[10, 0, 0], 0),
            (&[10, 10, 10, 10, 10, 10], 20),
            (&[100, 1, 1, 1], 1),
            (&[u64::MAX, u64::MAX, u64::MAX], u64::MAX),
            (&[], 0),
        ];
        for (free, bytes) in cases {
            assert_eq!(room(free.to_vec(), 3, 2), bytes, "{free:?}");
        }
        assert_eq!((room(vec![7], 1, 1), room(vec![7, 9], 2, 2), room(vec![7, 9], 1, 1)), (7, 7, 16));
    }

    #[test]
    fn shares_are_spread_evenly_over_hosts() {
        let hosts = [1, 2, 3, 7, 300];
        let mut kept = BTreeMap::<u64, u32>::new();
        for share in 0..10_000 {
            for host in order(share, &hosts).into_iter().take(COPIES) {
                *kept.entry(host).or_default() += 1;
            }
        }
        // 6,000 each; a standard deviation is 49.
        assert!(kept.values().all(|count| (5_800..=6_200).contains(count)), "{kept:?}");
    }

    #[test]
    fn a_host_that_comes_or_goes_moves_only_what_it_gets_or_had() {
        let (before, after) = ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]);
        let mut moved = 0;
        for share in 0..1_000 {
            let (with, without) = (order(share, &after), order(share, &before));
            let others: Vec<u64> = with.iter().copied().filter(|host| *host != 6).collect();
            assert_eq!(others, without);
            moved += u32::from(with.iter().take(COPIES).any(|host| *host == 6));
        }
        // Half of the shares have a copy on the sixth of six.
        assert!((430..=570).contains(&moved), "{moved}");
    }

    #[test]
    fn fragments_are_apart_and_those_of_a_host_that_goes_move_with_few_others() {
        let hosts = |hosts: &[u64]| hosts.iter().map(|host| (*host, 7)).collect::<Vec<_>>();
        let mut moved = 0;
        for share in 0..1_000u32 {
            let share = name(share).spread_as(Spread::Code { data: 2, parity: 1 });
            let all = place_fragments(&share, 3, &hosts(&[1, 2, 3, 4, 5]));
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 3);
            let left = place_fragments(&share, 3, &hosts(&[1, 2, 3, 4]));
            assert_eq!(left.iter().collect::<BTreeSet<_>>().len(), 3);
            moved += all.iter().zip(&left).filter(|(before, after)| before != after).count();
            let few = place_fragments(&share, 6, &hosts(&[1, 2]));
            assert_eq!([1, 2].map(|host| few.iter().filter(|kept| **kept == host).count()), [3, 3]);
            assert_eq!(place_fragments(&share, 3, &[]), []);
        }
        // 600 were on the fifth host. If the host of a later fragment takes such a place, that
        // later fragment moves too.
        assert!((600..=1_000).contains(&moved), "{moved}");
    }

    #[test]
    fn the_order_does_not_depend_on_that_of_the_list_and_never_changes() {
        assert_eq!(order(7, &[3, 1, 2, 5, 4]), order(7, &[1, 2, 3, 4, 5]));
        let orders: Vec<_> = (0..4).map(|share| order(share, &[1, 2, 3, 4, 5])).collect();
        assert_eq!(orders, ORDERS);
    }

    const ORDERS: [[u64; 5]; 4] = [[1, 4, 5, 2, 3], [2, 4, 5, 3, 1], [3, 2, 4, 5, 1], [4, 5, 2, 3, 1]];
}
