//! Which hosts keep which shares: rendezvous hashing (Thaler, Ravishankar 1998).
//!
//! Each host has a weight for each share, and the heaviest keep it. Whoever knows the hosts knows the order without asking, and a host that comes or goes
//! moves only the shares that it gets or had.

use namespace::ShareId;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Copies of a share, if there are so many hosts.
pub const COPIES: usize = 3;

/// Puts `hosts`, which are numbered by `number`, in the order in which they are to keep `share`. Part of the format: another order moves all content.
pub fn place<H>(share: &ShareId, hosts: &mut [H], number: impl Fn(&H) -> u64) {
    hosts.sort_by_cached_key(|host| {
        let number = number(host);
        // The number only decides between equal weights.
        (Reverse(weight(share, number)), number)
    });
}

/// The hosts that are to keep the `count` fragments of `share`, in their order: each its own host, as long as there are others; then each host as few as may be. A host that comes or goes
/// moves what it gets or had, and little else. Part of the format, like [`place()`].
pub fn place_fragments(share: &ShareId, count: u8, hosts: &[u64]) -> Vec<u64> {
    let mut kept: BTreeMap<u64, u32> = hosts.iter().map(|host| (*host, 0)).collect();
    let slot = |number| {
        let fragment = share.fragment(number);
        let (host, kept) =
            kept.iter_mut().min_by_key(|(host, kept)| (**kept, Reverse(weight(&fragment, **host))))?;
        *kept += 1;
        Some(*host)
    };
    (0..count).map_while(slot).collect()
}

fn weight(share: &ShareId, host: u64) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&share.0);
    hasher.update(&host.to_le_bytes());
    let mut weight = [0; 8];
    hasher.finalize_xof().fill(&mut weight);
    u64::from_le_bytes(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use namespace::Spread;
    use std::collections::BTreeSet;

    fn order(share: u32, hosts: &[u64]) -> Vec<u64> {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&share.to_le_bytes());
        let mut hosts = hosts.to_vec();
        place(&ShareId(id), &mut hosts, |host| *host);
        hosts
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
        let mut moved = 0;
        for share in 0..1_000u32 {
            let mut name = [0; 16];
            name[..4].copy_from_slice(&share.to_le_bytes());
            let share = ShareId(name).spread_as(Spread::Code { data: 2, parity: 1 });
            let all = place_fragments(&share, 3, &[1, 2, 3, 4, 5]);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 3);
            let left = place_fragments(&share, 3, &[1, 2, 3, 4]);
            assert_eq!(left.iter().collect::<BTreeSet<_>>().len(), 3);
            moved += all.iter().zip(&left).filter(|(before, after)| before != after).count();
            let few = place_fragments(&share, 6, &[1, 2]);
            assert_eq!([1, 2].map(|host| few.iter().filter(|kept| **kept == host).count()), [3, 3]);
            assert_eq!(place_fragments(&share, 3, &[]), []);
        }
        // 600 were on the fifth host; where its place is taken by the host of a later fragment, that moves too.
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
