//! Properties of all parsers: they answer to any bytes, and what they read is what was written.

use super::bodies::{self, CreateRequest, NegotiateRequest};
use super::contexts::{self, CreateContexts, DurableV2, LeaseContext, LeaseV2, ReconnectV2};
use super::negotiate::{Offer, POSIX_GUID, context, emit_context, numbers_data, preauth_data};
use super::{Flags, HEADER_BYTES, Header, NtStatus, TransformHeader, Writer};
use proptest::prelude::*;

fn parse_everything(message: &[u8]) {
    let _ = Header::parse(message);
    let _ = TransformHeader::parse(message);
    if message.len() >= HEADER_BYTES {
        bodies::parse_all(message);
    }
    if let Ok(fixed) = NegotiateRequest::parse(message) {
        let _ = Offer::parse(message, &fixed);
    }
    if let Ok(fixed) = CreateRequest::parse(message) {
        let _ = CreateContexts::parse(message, &fixed);
    }
    let _ = bodies::LockElement::parse_all(message, 64);
    let _ = LeaseContext::parse(message);
}

fn create_with(list: &[(&[u8], Vec<u8>)]) -> Vec<u8> {
    let contexts = contexts::to_bytes(list);
    let mut message = vec![0; HEADER_BYTES];
    let fixed =
        CreateRequest { context_offset: 120, context_length: contexts.len() as u32, ..Default::default() };
    fixed.emit(&mut message);
    message.put(&contexts);
    message
}

fn all_contexts() -> Vec<(&'static [u8], Vec<u8>)> {
    let mut durable = Vec::new();
    durable.u32(60_000);
    durable.u32(0);
    durable.u64(0);
    durable.put(&[3; 16]);
    let mut reconnect = Vec::new();
    reconnect.u64(1);
    reconnect.u64(2);
    reconnect.put(&[3; 16]);
    reconnect.u32(0);
    let lease = LeaseContext {
        key: [1; 16],
        state: 7,
        flags: 0,
        v2: Some(LeaseV2 { parent: Some([2; 16]), epoch: 9 }),
    };
    vec![
        (b"MxAc", Vec::new()),
        (b"QFid", Vec::new()),
        (b"RqLs", lease.to_bytes()),
        (b"DH2Q", durable),
        (b"DH2C", reconnect),
        (b"AlSi", 4096_u64.to_le_bytes().to_vec()),
        (&POSIX_GUID, 0o644_u32.to_le_bytes().to_vec()),
        (b"none", vec![1, 2, 3]),
    ]
}

#[test]
fn each_context_is_read_as_it_was_written() {
    let message = create_with(&all_contexts());
    let fixed = CreateRequest::parse(&message).unwrap();
    let contexts = CreateContexts::parse(&message, &fixed).unwrap();
    let file = bodies::FileId { persistent: 1, volatile: 2 };
    assert_eq!(
        contexts,
        CreateContexts {
            maximal_access: true,
            disk_id: true,
            lease: Some(LeaseContext {
                key: [1; 16],
                state: 7,
                flags: contexts::LEASE_PARENT,
                v2: Some(LeaseV2 { parent: Some([2; 16]), epoch: 9 }),
            }),
            durable_v2: Some(DurableV2 { timeout_ms: 60_000, flags: 0, create_guid: [3; 16] }),
            reconnect_v2: Some(ReconnectV2 { file, create_guid: [3; 16], flags: 0 }),
            allocation: Some(4096),
            posix_mode: Some(0o644),
            ..CreateContexts::default()
        }
    );
}

fn negotiate() -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    let fixed =
        NegotiateRequest { dialect_count: 2, context_offset: 104, context_count: 3, ..Default::default() };
    fixed.emit(&mut message);
    message.u16(0x302);
    message.u16(0x311);
    for (kind, data) in [
        (context::PREAUTH, preauth_data(&[5; 32])),
        (context::ENCRYPTION, numbers_data(&[2, 1])),
        (context::SIGNING, numbers_data(&[2, 1, 0])),
    ] {
        message.pad(0, 8);
        emit_context(&mut message, kind, &data);
    }
    message
}

#[test]
fn the_contexts_of_negotiate_are_read_and_may_not_be_there_twice() {
    let message = negotiate();
    let fixed = NegotiateRequest::parse(&message).unwrap();
    let offer = Offer::parse(&message, &fixed).unwrap();
    let want = Offer {
        dialects: vec![0x302, 0x311],
        hashes: Some(vec![1]),
        ciphers: Some(vec![2, 1]),
        signing: Some(vec![2, 1, 0]),
        posix: false,
    };
    assert_eq!(offer, want);
    let mut twice = message.clone();
    twice.pad(0, 8);
    emit_context(&mut twice, context::SIGNING, &numbers_data(&[1]));
    let fixed = NegotiateRequest { context_count: 4, ..fixed };
    assert!(Offer::parse(&twice, &fixed).is_err());
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(
        numbers in any::<(u16, u32, u16, u16, u32, u32)>(), ids in any::<(u64, u64, u64)>(), signature: [u8; 16]
    ) {
        let (charge, status, command, credits, flags, next) = numbers;
        let (message_id, tree_or_async, session_id) = ids;
        let header = Header {
            charge, status: NtStatus(status), command, credits, flags: Flags(flags), next, message_id,
            tree_or_async, session_id, signature,
        };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        prop_assert_eq!(bytes.len(), HEADER_BYTES);
        prop_assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn random_bytes_are_no_trouble(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), size in 0..bodies::SIZES.len()) {
        parse_everything(&bytes);
        if bytes.len() > HEADER_BYTES + 2 {
            bytes[..4].copy_from_slice(b"\xfeSMB");
            bytes[HEADER_BYTES..HEADER_BYTES + 2].copy_from_slice(&bodies::SIZES[size].to_le_bytes());
            parse_everything(&bytes);
        }
    }

    #[test]
    fn mutated_messages_are_no_trouble(at in 0..1000_usize, byte: u8, cut in 0..1000_usize) {
        for mut message in [create_with(&all_contexts()), negotiate()] {
            let at = at % message.len();
            message[at] = byte;
            parse_everything(&message);
            message.truncate(cut);
            parse_everything(&message);
        }
    }
}
