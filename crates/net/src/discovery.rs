//! Discovery on the local network, by multicast DNS (RFC 6762, RFC 6763). A machine that listens
//! announces its address. A machine whose servers have all moved asks. An answer is only a place to
//! call: TLS proves whether a server of the cluster is there.

use data_encoding::HEXLOWER;
use mdns_sd::{ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The service's name in DNS, for all clusters.
const SERVICE: &str = "_leasehold._tcp.local.";
/// The property that tells clusters apart.
const AUTHORITY: &str = "authority";
/// Bytes of a fingerprint in a name: enough to tell two apart.
const SHOWN_BYTES: usize = 8;
/// How long a machine waits for answers. A responder may wait 120 ms (RFC 6762 §6), and one packet
/// may get lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many addresses are taken in: any machine in the network may answer.
const ADDRESSES_MAX: usize = 16;

/// Answers queries until it is dropped.
pub(crate) struct Announcement {
    daemon: ServiceDaemon,
}

impl Announcement {
    /// Announces that a machine listens at `listens`. Its public key is `key`, and its cluster's
    /// authority has the fingerprint `authority`. `None` if no other machine can call there, or the
    /// network has no multicast.
    pub(crate) fn begin(authority: &[u8; 32], key: &[u8; 32], listens: SocketAddr) -> Option<Announcement> {
        if listens.ip().is_loopback() {
            return None;
        }
        let begun = announce(&shown(authority), &shown(crypto::hash(key).as_bytes()), listens);
        begun.inspect_err(|error| tracing::info!(%error, "this machine is not announced in its network")).ok()
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Without a goodbye, others forget the machine when its records expire.
        let _ = self.daemon.shutdown();
    }
}

impl std::fmt::Debug for Announcement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Announcement")
    }
}

fn announce(cluster: &str, machine: &str, listens: SocketAddr) -> Result<Announcement, mdns_sd::Error> {
    let host = format!("leasehold-{machine}.local.");
    let (ip, port, about) = (listens.ip(), listens.port(), [(AUTHORITY, cluster)]);
    let service = if ip.is_unspecified() {
        ServiceInfo::new(SERVICE, machine, &host, (), port, &about[..])?.enable_addr_auto()
    } else {
        ServiceInfo::new(SERVICE, machine, &host, ip, port, &about[..])?
    };
    let announcement = Announcement { daemon: ServiceDaemon::new()? };
    announcement.daemon.register(service)?;
    Ok(announcement)
}

/// Addresses where servers may listen, independent of what servers report: all may have moved.
#[derive(Debug, Default)]
pub struct Places {
    /// The addresses that the machine was given at its start.
    said: Vec<String>,
    discovered: Mutex<Vec<String>>,
}

impl Places {
    /// Starts with the addresses that the machine was given.
    pub fn new(said: Vec<String>) -> Places {
        Places { said, discovered: Mutex::default() }
    }

    /// All known addresses.
    pub fn all(&self) -> Vec<String> {
        self.said.iter().chain(&*self.discovered.lock()).cloned().collect()
    }

    /// Asks the network; the answers replace the earlier ones.
    pub(crate) async fn discover(&self, authority: &[u8; 32]) {
        let discovered = discover(authority).await;
        *self.discovered.lock() = discovered;
    }
}

/// The announced addresses of servers of the cluster whose authority has this fingerprint.
pub(crate) async fn discover(authority: &[u8; 32]) -> Vec<String> {
    let Ok(daemon) = ServiceDaemon::new() else { return Vec::new() };
    let mut found = Vec::new();
    if let Ok(answers) = daemon.browse(SERVICE) {
        let (cluster, until) = (shown(authority), Instant::now() + PATIENCE);
        while let Ok(Ok(answer)) = timeout_at(until, answers.recv_async()).await {
            if let ServiceEvent::ServiceResolved(service) = answer {
                take_in(&mut found, &service, &cluster);
            }
        }
    }
    // The daemon ends with its last handle at the latest.
    let _ = daemon.shutdown();
    found
}

/// Adds the addresses of `service` to `found`, each once, if the service is of this cluster.
fn take_in(found: &mut Vec<String>, service: &ResolvedService, cluster: &str) {
    if service.get_property_val_str(AUTHORITY) != Some(cluster) {
        return;
    }
    // A link-local address means nothing without its interface.
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local() && !ip.is_loopback(),
        IpAddr::V6(ip) => !ip.is_unicast_link_local() && !ip.is_loopback(),
    };
    let mut addresses: Vec<IpAddr> =
        service.addresses.iter().map(|ip| ip.to_ip_addr()).filter(usable).collect();
    addresses.sort_unstable();
    for ip in addresses {
        let address = SocketAddr::new(ip, service.port).to_string();
        if found.len() < ADDRESSES_MAX && !found.contains(&address) {
            found.push(address);
        }
    }
}

fn shown(fingerprint: &[u8; 32]) -> String {
    HEXLOWER.encode(fingerprint.split_at(SHOWN_BYTES).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resolved service of a machine of this cluster that answers with these addresses.
    fn service(authority: &[u8; 32], addresses: &str) -> ResolvedService {
        let about = [(AUTHORITY, shown(authority))];
        let service = ServiceInfo::new(SERVICE, "m", "m.local.", addresses, 4470, &about[..]).unwrap();
        service.as_resolved_service()
    }

    #[test]
    fn addresses_are_taken_in_of_the_same_cluster_only_and_up_to_a_limit() {
        let (ours, theirs, mut found) = ([1; 32], [2; 32], Vec::new());
        let cluster = shown(&ours);
        take_in(&mut found, &service(&theirs, "10.0.0.1"), &cluster);
        assert!(found.is_empty(), "of another cluster");
        take_in(&mut found, &service(&ours, "127.0.0.1,169.254.1.1,fe80::1,::1"), &cluster);
        assert!(found.is_empty(), "good for nothing elsewhere");
        take_in(&mut found, &service(&ours, "2001:db8::7,10.0.0.2,10.0.0.1"), &cluster);
        take_in(&mut found, &service(&ours, "10.0.0.1"), &cluster);
        assert_eq!(found, ["10.0.0.1:4470", "10.0.0.2:4470", "[2001:db8::7]:4470"]);
        let many: Vec<String> = (0..99).map(|at| format!("10.1.0.{at}")).collect();
        take_in(&mut found, &service(&ours, &many.join(",")), &cluster);
        assert_eq!(found.len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_machine_that_only_itself_can_call_is_not_announced() {
        assert!(Announcement::begin(&[1; 32], &[2; 32], ([127, 0, 0, 1], 4470).into()).is_none());
    }
}
