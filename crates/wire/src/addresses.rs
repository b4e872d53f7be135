//! Where a server is, by what is told of it at different times.

use std::net::SocketAddr;

/// Returns where a server is that was at `before`, and tells `told` of itself now.
///
/// A server that has just started may have no network yet. It then knows only its loopback
/// addresses, or none, which is no news to other machines.
pub fn latest_addresses(before: &[String], told: Vec<String>) -> Vec<String> {
    let is_good = |address: &String| !is_loopback(address);
    if told.iter().any(is_good) || !before.iter().any(is_good) && !told.is_empty() {
        told
    } else {
        before.to_vec()
    }
}

/// Returns the addresses that a machine tells others: those of its loopback only if it has no other
/// ones.
pub fn told_to_others(mut own: Vec<String>) -> Vec<String> {
    if own.iter().any(|address| !is_loopback(address)) {
        own.retain(|address| !is_loopback(address));
    }
    own
}

fn is_loopback(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(|address| (*address).to_owned()).collect()
    }

    #[test]
    fn a_server_without_a_network_is_where_it_was() {
        let (lo, lo6, old, new) = ("127.0.0.1:1", "[::1]:1", "10.0.0.1:1", "server.example:1");
        let cases: [(&[&str], &[&str], &[&str]); 8] = [
            (&[old], &[new], &[new]),
            (&[old], &[new, lo], &[new, lo]),
            (&[old, lo], &[], &[old, lo]),
            (&[old], &[lo, lo6], &[old]),
            (&[lo], &[lo6], &[lo6]),
            (&[lo], &[], &[lo]),
            (&[], &[lo], &[lo]),
            (&[], &[], &[]),
        ];
        for (before, told, now) in cases {
            assert_eq!(latest_addresses(&at(before), at(told)), at(now), "{before:?}, {told:?}");
        }
    }

    #[test]
    fn others_are_told_the_loopback_only_if_there_is_nothing_else() {
        let (lo, lo6, other) = ("127.0.0.1:1", "[::1]:1", "10.0.0.1:1");
        assert_eq!(told_to_others(at(&[lo, other, lo6])), at(&[other]));
        assert_eq!(told_to_others(at(&[lo, lo6])), at(&[lo, lo6]));
        assert_eq!(told_to_others(Vec::new()), at(&[]));
    }
}
