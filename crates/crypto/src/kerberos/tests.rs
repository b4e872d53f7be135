//! The examples of the documents, and what no key but the right one opens.

use super::sha1::fold;
use super::{EncryptionKey, EncryptionType, OtherKey, cts};
use EncryptionType::{Aes128Sha1, Aes128Sha256, Aes256Sha1, Aes256Sha384};
use proptest::prelude::*;

fn bytes(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter(|byte| *byte != b' ').collect::<Vec<u8>>();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// Checks both directions of one example.
fn is_example(key: &EncryptionKey, usage: u32, confounder: &str, message: &[u8], sealed: &str) {
    let confounder = bytes(confounder).try_into().unwrap();
    assert_eq!(key.encrypt(usage, confounder, message), bytes(sealed), "{key:?}, {} bytes", message.len());
    assert_eq!(key.decrypt(usage, &bytes(sealed)).as_deref(), Ok(message));
}

/// RFC 3961 §A.1.
#[test]
fn folding_is_that_of_rfc_3961() {
    assert_eq!(fold(b"kerberos").to_vec(), bytes("6b65726265726f737b9b5b2b93132b93"));
}

/// RFC 3962 §B.
#[test]
fn stealing_is_that_of_rfc_3962() {
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    for (length, sealed) in [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
        (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
    ] {
        let mut message = text[..length].to_vec();
        cts::encrypt(b"chicken teriyaki", &mut message);
        assert_eq!(message, bytes(sealed), "{length} bytes");
        cts::decrypt(b"chicken teriyaki", &mut message);
        assert_eq!(message, text[..length]);
    }
}

/// As impacket 0.13 encrypts them: RFC 3962 has no example with a confounder.
#[test]
fn another_program_encrypts_with_sha1_alike() {
    let number = (0..32).collect::<Vec<u8>>();
    let short = EncryptionKey::new(Aes128Sha1, &number[..16]).unwrap();
    let long = EncryptionKey::new(Aes256Sha1, &number).unwrap();
    let ticket = b"a ticket of 24 bytes ...";
    for (key, message, sealed) in [
        (&short, &b""[..], "39249ad69b614f68ad4cfb9930f6d1a5d64a9b72714b731eed7d9a54"),
        (
            &short,
            b"0123456789abcdef",
            "9a2bf64eee34eba6702ca7c15cd3539239249ad69b614f68ad4cfb9930f6d1a5c41042e6e57095f6e7cbd470",
        ),
        (
            &short,
            ticket,
            "39249ad69b614f68ad4cfb9930f6d1a51db3f6d3b0a3d18b2d411c708a5771b9e5ef4bf87bd501fc12a27d7e3a7cef266713a091",
        ),
        (&long, b"", "56d20cf379e2e2921a22ef1b11e6cae45d4e76e70ac30770a784a165"),
        (
            &long,
            ticket,
            "56d20cf379e2e2921a22ef1b11e6cae4b55c3e9d1ec2f8ae24bb1695c27f70762a36d14414c042ff6bac41321c8840ef6947a3fe",
        ),
    ] {
        is_example(key, 11, "6465666768696a6b6c6d6e6f70717273", message, sealed);
    }
    let list: &[&[u8]] = &[b"list of ", b"mechanisms"];
    assert_eq!(short.checksum(25, list), bytes("fa2954f4b94baba134bc9df1"));
    assert_eq!(long.checksum(25, list), bytes("b64e328e18099f9f46a1032d"));
}

/// RFC 8009 §A.
#[test]
fn the_examples_of_rfc_8009_come_out() {
    let message = (0..21).collect::<Vec<u8>>();
    let short = EncryptionKey::new(Aes128Sha256, &bytes("3705D96080C17728A0E800EAB6E0D23C")).unwrap();
    let long = bytes("6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52");
    let long = EncryptionKey::new(Aes256Sha384, &long).unwrap();
    for (key, length, confounder, sealed) in [
        (
            &short,
            6,
            "7BCA285E2FD4130FB55B1A5C83BC5B24",
            "84D7F30754ED987BAB0BF3506BEB09CFB55402CEF7E6877CE99E247E52D16ED4421DFDF8976C",
        ),
        (
            &short,
            16,
            "56AB21713FF62C0A1457200F6FA9948F",
            "3517D640F50DDC8AD3628722B3569D2AE07493FA8263254080EA65C1008E8FC295FB4852E7D83E1E7C48C37EEBE6B0D3",
        ),
        (
            &short,
            21,
            "A7A4E29A4728CE10664FB64E49AD3FAC",
            "720F73B18D9859CD6CCB4346115CD336C70F58EDC0C4437C5573544C31C813BCE1E6D072C186B39A413C2F92CA9B8334A287FFCBFC",
        ),
        (
            &long,
            0,
            "F764E9FA15C276478B2C7D0C4E5F58E4",
            "41F53FA5BFE7026D91FAF9BE959195A058707273A96A40F0A01960621AC612748B9BBFBE7EB4CE3C",
        ),
        (
            &long,
            16,
            "53BF8A0D105265D4E276428624CE5E63",
            "BC47FFEC7998EB91E8115CF8D19DAC4BBBE2E163E87DD37F49BECA92027764F68CF51F14D798C2273F35DF574D1F932E40C4FF255B36A266",
        ),
        (
            &long,
            21,
            "763E65367E864F02F55153C7E3B58AF1",
            "40013E2DF58E8751957D2878BCD2D6FE101CCFD556CB1EAE79DB3C3EE86429F2B2A602AC86FEF6ECB647D6295FAE077A1FEB517508D2C16B4192E01F62",
        ),
    ] {
        is_example(key, 2, confounder, &message[..length], sealed);
    }
    assert_eq!(short.checksum(2, &[&message]), bytes("D783671866 43D67B411CBA9139FC1DEE"));
    assert_eq!(long.checksum(2, &[&message]), bytes("45EE791567EEFCA37F4AC1E0222DE80D43C3BFA06699672A"));
}

#[test]
fn weak_types_are_none() {
    // DES, triple DES, RC4, and types that nobody has.
    for number in [-1, 0, 1, 2, 3, 5, 7, 16, 23, 24, 25, 26, 65, i32::MIN, i32::MAX] {
        assert_eq!(EncryptionType::of(number), None);
    }
    assert_eq!(EncryptionType::of(18), Some(Aes256Sha1));
    assert_eq!(EncryptionKey::new(Aes256Sha1, &[0; 16]), None);
    assert_eq!(
        format!("{:?}", EncryptionKey::new(Aes128Sha1, &[7; 16]).unwrap()),
        "EncryptionKey(Aes128Sha1, ..)"
    );
}

proptest! {
    #[test]
    fn only_the_right_key_and_usage_open(
        number in 17..21, fill: u8, usage in 0..64_u32, other in 0..64_u32, confounder: [u8; 16],
        message in proptest::collection::vec(any::<u8>(), 0..100), at: proptest::sample::Index, bit in 0..8,
    ) {
        let kind = EncryptionType::of(number).unwrap();
        let key = EncryptionKey::new(kind, &vec![fill; kind.key_bytes()]).unwrap();
        let mut sealed = key.encrypt(usage, confounder, &message);
        prop_assert_eq!(key.decrypt(usage, &sealed), Ok(message));
        prop_assert_eq!(key.decrypt(other, &sealed).is_ok(), other == usage);
        let stranger = EncryptionKey::new(kind, &vec![!fill; kind.key_bytes()]).unwrap();
        prop_assert_eq!(stranger.decrypt(usage, &sealed), Err(OtherKey));
        prop_assert_eq!(key.decrypt(usage, &sealed[..at.index(sealed.len())]), Err(OtherKey));
        let at = at.index(sealed.len());
        sealed[at] ^= 1_u8 << bit;
        prop_assert_eq!(key.decrypt(usage, &sealed), Err(OtherKey));
    }
}
