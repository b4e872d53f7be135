//! Calls of the next version, which only tests have, between programs of both versions.

use super::*;
use crate::listener::{Greeted, Listener};
use namespace::ShareId;
use std::path::Path;
use std::sync::Arc;
use wire::{FOUNDER, MachineId, ShareCall, ShareReply, ShareRequest, Versions, Welcome};

/// A stand-in for a call that the next version adds: see [`crate::content::since`].
pub(crate) const OF_NEXT: ShareCall =
    ShareCall::Read { share: ShareId(*b"the next version"), at: 0, length: 1 };

/// A host of shares that knows these versions, and answers every call.
fn host(dir: &Path, knows: Versions) -> Listener {
    let credentials = CredentialStore::open(dir, knows).unwrap();
    let serve = async |greeted| {
        let Greeted { mut frames, version, .. } = greeted;
        frames::send(&mut frames, wire::answer(version, &Welcome::Content)).await?;
        frames::messages(&mut frames);
        loop {
            let request = frames::receive(&mut frames).await?;
            let (ShareRequest { number, .. }, _) = wire::decode_with_body(&request)?;
            let reply = ShareReply { number, results: vec![Ok(())] };
            frames::send(&mut frames, wire::encode(&reply)).await?;
        }
    };
    Listener::start(credentials, "127.0.0.1:0".parse().unwrap(), serve).unwrap()
}

/// A machine that has joined, and that knows the next version.
fn later(authority: &Authority, dir: &Path) -> Caller {
    let key = Credentials::key_to_join(dir).unwrap();
    let (certificate, of) = authority.certify(MachineId(2), key, false).unwrap();
    Credentials::keep(dir, &certificate, &of).unwrap();
    CredentialStore::open(dir, Versions::WITH_NEXT).unwrap().caller()
}

#[test]
fn what_only_the_next_version_has_is_not_said_to_a_host_that_speaks_this_one() {
    for (knows, is_said) in [(Versions::KNOWN, false), (Versions::WITH_NEXT, true)] {
        let (of_host, of_caller) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let authority = Authority::found(of_host.path()).unwrap();
        authority.credentials(of_host.path(), FOUNDER).unwrap();
        let host = host(of_host.path(), knows);
        let (caller, address) = (later(&authority, of_caller.path()), host.address().to_string());
        let mut carrier = ShareCarrier::connect(&address, &caller).unwrap();
        let asked = carrier.call(OF_NEXT, &[]);
        assert!(if is_said { asked.is_ok() } else { matches!(asked, Err(CarrierError::TooOld { .. })) });
        assert!(carrier.call(ShareCall::Which, &[]).is_ok());
        // The client asks before there is a connection, and over one.
        let (client, link) = ShareClient::new(FOUNDER, Arc::default(), ANSWERED_WITHIN);
        let _keeps = NetThread::spawn("a test", move || link.keep(vec![address], caller)).unwrap();
        for (call, is_said) in [(OF_NEXT, is_said), (ShareCall::Which, true), (OF_NEXT, is_said)] {
            let answer = client.call(call, Vec::new()).unwrap().wait_once(None);
            assert_eq!(answer.is_ok(), is_said, "{knows}");
        }
    }
}
