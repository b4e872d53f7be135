//! Machines of this version and of the next one, which only tests have.

use super::*;

/// A machine that has joined, and that knows the next version.
fn later(office: &mut TestCluster) -> Caller {
    office.join("later");
    let dir = office.dirs.last().unwrap().path();
    CredentialStore::open(dir, Versions::WITH_NEXT).unwrap().caller()
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
