//! Requests to hosts by programs with an account's key.

use super::*;
use crate::account_client::{AccountClient, AccountClientError, KeyFile};
use crypto::SecretKey;
use shares::{AccountKey, Signed, Usage};
use wire::{AccountAnswer, AccountCall, AccountRefusal, AccountRequest};

#[test]
fn a_program_with_an_accounts_key_has_shares_of_its_own_within_its_quota() {
    let mut group = TestGroup::new(2);
    let key = |name: &str| {
        let file = group.dirs[0].path().join(name);
        let public = KeyFile::generate(&file).unwrap();
        assert_eq!(KeyFile::public(&file).unwrap(), public);
        let bytes = data_encoding::HEXLOWER.decode(public.as_bytes()).unwrap();
        (file, AccountKey(bytes.try_into().unwrap()))
    };
    let ((mine, my_key), (other, other_key)) = (key("mine"), key("other"));
    let connect = |group: &TestGroup, at: usize, key: &Path| {
        AccountClient::connect(group.dirs[0].path(), &group.addresses[at].to_string(), key).unwrap()
    };
    let refusal = |result: Result<ShareId, AccountClientError>| match result {
        Err(AccountClientError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut account = connect(&group, 0, &mine);
    assert_eq!(refusal(account.store(b"early")), AccountRefusal::Unknown);
    let quota = Usage { shares: 3, bytes: 40_000 };
    let add = |at: usize, key, name, quota| {
        group.share_host(at).shares().server().key_account(key, name, quota).unwrap().unwrap()
    };
    let mine_id = add(0, my_key, "mine", Some(quota));
    add(0, other_key, "other", None);
    let first = account.store(&plain(1)).unwrap();
    let second = account.store(&plain(2)).unwrap();
    assert_eq!(account.read(first).unwrap(), plain(1));
    assert_eq!(refusal(account.store(&vec![0; 30_000])), AccountRefusal::Quota);
    assert_eq!(account.usage().unwrap(), (Usage { shares: 2, bytes: 20_003 }, Some(quota)));
    let mut all = vec![first, second];
    all.sort_unstable();
    assert_eq!(account.list().unwrap(), all);
    let (held, end) = account.lease(vec![first, share(77)]).unwrap();
    assert_eq!((held, end), (vec![first], group.share_host(0).shares().server().lease_end()));
    // Another account can read and lease the share, but releases only its own lease.
    let mut others = connect(&group, 0, &other);
    assert_eq!(others.read(second).unwrap(), plain(2));
    others.release(vec![first, second]).unwrap();
    assert_eq!(others.lease(vec![second]).unwrap().0, [second]);
    account.release(vec![first, second]).unwrap();
    let server = group.share_host(0).shares().server();
    until("gone", || server.share(&first).unwrap().is_none());
    assert!(server.share(&second).unwrap().is_some());
    assert_eq!((account.list().unwrap(), others.list().unwrap()), (vec![], vec![second]));
    assert!(matches!(account.read(first), Err(AccountClientError::NotFound { .. })));
    // A request is valid for this store only. A replay is refused, and so is a request without a
    // signature.
    let carry = |at: usize, request: AccountRequest, body: &[u8]| {
        let body = Bytes::copy_from_slice(body);
        let (results, told) =
            group.share_host(at).answer(CLIENT, ShareCall::Account(request), body, &*group.state);
        assert_eq!(results, [Ok(())]);
        wire::decode::<AccountAnswer>(&told).unwrap()
    };
    let secret = SecretKey::read(&std::fs::read(&mine).unwrap()).unwrap();
    let signed = |call: Vec<u8>, nonce: u64| {
        let signed = Signed::by(&secret, &server.id().unwrap(), nonce, call);
        let (first, second) = signed.signature.split_at(32);
        let signature = (first.try_into().unwrap(), second.try_into().unwrap());
        AccountRequest { key: my_key.0, nonce, signature, call: signed.request }
    };
    let refused = |request: AccountRequest, body: &[u8]| match carry(0, request, body) {
        AccountAnswer::Refused(why) => why,
        other => panic!("{other:?}"),
    };
    let nonce = 1 << 62;
    let usage = || signed(wire::encode(&AccountCall::Usage), nonce);
    assert_eq!(carry(1, usage(), b""), AccountAnswer::Refused(AccountRefusal::Signature));
    assert_eq!(carry(0, usage(), b""), AccountAnswer::Usage { usage: (0, 0), quota: Some((3, 40_000)) });
    assert_eq!(refused(usage(), b""), AccountRefusal::Replayed);
    let changed = AccountRequest { nonce: nonce + 1, ..usage() };
    assert_eq!(refused(changed, b""), AccountRefusal::Signature);
    assert_eq!(refused(signed(b"nothing".to_vec(), nonce + 2), b""), AccountRefusal::Malformed);
    // The name must be the account's own, and the body must be the one that was signed for, of the
    // stated length.
    let hash = *crypto::hash(b"body").as_bytes();
    let store = |name, length, at| {
        let call = AccountCall::Store { shares: vec![(name, length)], body: hash };
        signed(wire::encode(&call), nonce + at)
    };
    let name = my_key.name([9; 8]);
    assert_eq!(refused(store(share(5), 4, 3), b"body"), AccountRefusal::Malformed);
    assert_eq!(refused(store(other_key.name([9; 8]), 4, 4), b"body"), AccountRefusal::Malformed);
    assert_eq!(refused(store(name, 4, 5), b"else"), AccountRefusal::Malformed);
    assert_eq!(refused(store(name, 5, 6), b"body"), AccountRefusal::Malformed);
    assert_eq!(refused(store(name, u32::MAX, 7), b"body"), AccountRefusal::Malformed);
    assert!(matches!(carry(0, store(name, 4, 8), b"body"), AccountAnswer::Held { .. }));
    // The account keeps its leases, also on shares that files refer to.
    group.publish(&[name]);
    until("adopted", || server.leases_of(&name).unwrap().len() == 2);
    group.state.referenced.lock().remove(&name);
    group.share_host(0).work(ServerId::ROOT, vec![ShareWork::Drop(name)]);
    until("let go", || server.leases_of(&name).unwrap().len() == 1);
    assert_eq!(server.usage(mine_id).unwrap().shares, 1);
    group.stop(1);
}
