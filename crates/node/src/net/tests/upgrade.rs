//! Machines of this version and of the next one, which only tests have.

use super::*;
use crate::net::{CarrierError, NetThread, ShareCarrier, ShareClient};
use namespace::ShareId;
use wire::ShareCall;

/// A stand-in for a call that the next version adds: see [`crate::net::content::since`].
pub(in crate::net) const OF_NEXT: ShareCall =
    ShareCall::Read { share: ShareId(*b"the next version"), at: 0, length: 1 };

/// A machine that has joined, and that knows the next version.
fn later(office: &mut TestCluster) -> Caller {
    office.join("later");
    let dir = office.dirs.last().unwrap().path();
    CredentialStore::open(dir, Versions::WITH_NEXT).unwrap().caller()
}

#[test]
fn what_only_the_next_version_has_is_not_said_to_a_host_that_speaks_this_one() {
    for (knows, is_said) in [(Versions::KNOWN, false), (Versions::WITH_NEXT, true)] {
        let mut office = TestCluster::that_knows(knows);
        let (caller, address) = (later(&mut office), office.address.clone());
        let mut carrier = ShareCarrier::connect(&address, &caller).unwrap();
        let asked = carrier.call(OF_NEXT, &[]);
        assert!(if is_said { asked.is_ok() } else { matches!(asked, Err(CarrierError::TooOld { .. })) });
        assert!(carrier.call(ShareCall::Which, &[]).is_ok());
        // The client asks before there is a connection, and over one.
        let (client, link) = ShareClient::new(directory::FOUNDER, Arc::default());
        let _keeps = NetThread::spawn("a test", move || link.keep(vec![address], caller)).unwrap();
        for (call, is_said) in [(OF_NEXT, is_said), (ShareCall::Which, true), (OF_NEXT, is_said)] {
            let answer = client.call(call, Vec::new()).unwrap().wait_once(None);
            assert_eq!(answer.is_ok(), is_said, "{knows}");
        }
    }
}

#[test]
fn who_is_older_than_the_cluster_is_refused_and_told_so() {
    let mut office = TestCluster::that_knows(Versions::WITH_NEXT);
    let (old, later, address) = (office.join("old"), later(&mut office), office.address.clone());
    run(async {
        for (purpose, words) in [
            (began(1, None), "is too old: it speaks version 1, and the cluster none before 2"),
            (Purpose::Serve, "is too old to be a server: it speaks version 1, and the cluster is at 2"),
        ] {
            let refused = greeted(&address, &old, &purpose).await;
            assert!(matches!(&refused, Err(End::Refused(why)) if why.contains(words)), "{refused:?}");
        }
        assert!(matches!(greeted(&address, &later, &began(1, None)).await, Ok(Welcome::Session { .. })));
    });
}
