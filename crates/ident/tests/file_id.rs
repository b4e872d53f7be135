//! Identifiers are checked against the sequences of integers that they stand for.

use ident::{BITS_MAX, CHILD_BITS_MAX, FileId, INTEGER_MAX, Malformed, OVERFLOW, ServerId};
use proptest::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};

fn id(parts: &[u64]) -> FileId {
    parts.iter().fold(FileId::root(), |id, &n| id.child(n))
}

/// Mostly small integers, so that two sequences often have a common beginning. Some are at powers
/// of two, some where a class of the code begins, and some are huge.
fn part() -> impl Strategy<Value = u64> {
    let begins = |class: usize| 1 + WIDTHS[..class].iter().map(|width| 1u64 << width).sum::<u64>();
    prop_oneof![
        6 => 1..6u64,
        2 => (0..WIDTHS.len(), 0..2u64).prop_map(move |(class, d)| (begins(class) - d).max(1)),
        2 => (0..63u32, 0..3u64).prop_map(|(k, d)| ((1u64 << k) - 1 + d).clamp(1, INTEGER_MAX)),
        1 => 1..=INTEGER_MAX,
    ]
}

fn sequence() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(part(), 0..8)
}

/// Returns `front` and as much of `more` after it as an identifier has room for.
fn joined(front: &[u64], more: &[u64]) -> Vec<u64> {
    let mut parts = front.to_vec();
    let mut bits = code(front).len();
    for &n in more {
        bits += code(&[n]).len() - END_BITS;
        if bits > BITS_MAX {
            break;
        }
        parts.push(n);
    }
    parts
}

fn hash(id: &FileId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// The bits of the end of a code.
const END_BITS: usize = 2;

/// The bits of an integer's number within its class, class by class.
const WIDTHS: [u32; 15] = [0, 1, 2, 3, 5, 8, 12, 16, 21, 27, 34, 42, 51, 61, 63];

/// Returns the code by its definition, one bit at a time.
fn code(parts: &[u64]) -> Vec<bool> {
    let mut bits = Vec::new();
    for &n in parts {
        let (mut class, mut within) = (0, n - 1);
        while within >> WIDTHS[class] > 0 {
            within -= 1 << WIDTHS[class];
            class += 1;
        }
        match class {
            0 => bits.extend([false, true]),
            _ => bits.extend((0..class).map(|_| true).chain([false])),
        }
        bits.extend((0..WIDTHS[class]).rev().map(|bit| within >> bit & 1 == 1));
    }
    bits.extend([false, false]);
    bits
}

fn padded(bits: &[bool]) -> Vec<u8> {
    bits.chunks(8)
        .map(|byte| byte.iter().enumerate().map(|(at, &bit)| u8::from(bit) << (7 - at)).sum())
        .collect()
}

/// Checks that identifiers at or below `a` are in its region, and that others are not.
fn check_region(a: &[u64], b: &[u64], tail: &[u8]) {
    let (start, end) = id(a).region_range();
    for other in [b.to_vec(), joined(a, b)] {
        let key = [id(&other).as_bytes(), tail].concat();
        let inside = start <= key && end.as_ref().is_none_or(|end| key < *end);
        assert_eq!(inside, other.starts_with(a), "{other:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_code_is_the_one_defined(parts in sequence()) {
        let (id, bits) = (id(&parts), code(&parts));
        prop_assert_eq!(id.bit_len(), bits.len());
        prop_assert_eq!(id.as_bytes(), padded(&bits));
        prop_assert_eq!(id.parts().collect::<Vec<_>>(), parts);
    }

    #[test]
    fn order_and_equality_are_those_of_the_sequences(a in sequence(), b in sequence()) {
        let (x, y) = (id(&a), id(&b));
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        prop_assert_eq!(x.as_bytes().cmp(y.as_bytes()), a.cmp(&b));
        prop_assert_eq!(x == y, a == b);
        prop_assert_eq!(hash(&x) == hash(&y), a == b);
    }

    #[test]
    fn no_code_is_the_beginning_of_another(a in sequence(), b in sequence()) {
        if a != b {
            prop_assert!(!id(&a).as_bytes().starts_with(id(&b).as_bytes()));
        }
    }

    #[test]
    fn a_prefix_is_a_beginning_of_the_sequence(a in sequence(), b in sequence(), more in sequence()) {
        prop_assert_eq!(id(&a).is_prefix_of(&id(&b)), b.starts_with(&a));
        prop_assert!(id(&a).is_prefix_of(&id(&joined(&a, &more))));
    }

    #[test]
    fn a_region_is_one_range_of_keys(a in sequence(), b in sequence(), tail in prop::collection::vec(any::<u8>(), 0..4)) {
        check_region(&a, &b, &tail);
    }

    #[test]
    fn bytes_and_parent_come_back(parts in sequence(), tail in prop::collection::vec(any::<u8>(), 0..4)) {
        let whole = id(&parts);
        prop_assert_eq!(FileId::from_bytes(whole.as_bytes()), Ok(whole.clone()));
        let key = [whole.as_bytes(), &tail].concat();
        prop_assert_eq!(FileId::split_from(&key), Ok((whole.clone(), tail.as_slice())));
        prop_assert_eq!(whole.parent(), parts.split_last().map(|(_, front)| id(front)));
        let row = postcard::to_stdvec(&whole).unwrap();
        prop_assert_eq!(row.len(), whole.as_bytes().len() + 1);
        prop_assert_eq!(postcard::from_bytes::<FileId>(&row).unwrap(), whole.clone());
        let text = serde_json::to_string(&whole).unwrap();
        prop_assert_eq!(serde_json::from_str::<FileId>(&text).unwrap(), whole);
    }

    #[test]
    fn whatever_is_read_is_what_would_be_written(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((id, rest)) = FileId::split_from(&bytes) {
            prop_assert_eq!([id.as_bytes(), rest].concat(), bytes.clone());
            prop_assert!(id.bit_len() <= BITS_MAX);
            prop_assert!(id.parts().all(|n| (1..=INTEGER_MAX).contains(&n)));
        }
        let _ = postcard::from_bytes::<FileId>(&bytes);
    }

    #[test]
    fn a_damaged_bit_is_another_identifier_or_none(parts in sequence(), bit in 0..600usize) {
        let id = id(&parts);
        let mut bytes = id.as_bytes().to_vec();
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        prop_assert!(FileId::from_bytes(&bytes) != Ok(id));
    }

    #[test]
    fn a_childs_identifier_always_fits(parts in sequence(), n in any::<u64>(), ino in any::<u64>()) {
        let parent = id(&parts);
        let child = FileId::for_child(&parent, n, ino);
        prop_assert!(child.bit_len() <= CHILD_BITS_MAX);
        let (server, count) = ServerId::of(ino.clamp(1, INTEGER_MAX));
        let overflow = id(&[OVERFLOW, u64::from(server.0) + 1, count.max(1)]);
        prop_assert!(child == overflow || child == parent.child(n));
        if child == overflow {
            prop_assert_eq!(ServerId::of_overflow(&child), Some(server));
        }
    }

    /// Numbers of different servers differ, and each tells its server. All are integers of
    /// identifiers.
    #[test]
    fn a_number_tells_the_server_that_gave_it_out(server in any::<u16>(), count in 0..=ServerId::COUNT_MAX) {
        let number = ServerId(server).number(count);
        prop_assert!(number <= INTEGER_MAX);
        prop_assert_eq!(ServerId::of(number), (ServerId(server), count));
    }

    /// The server of an overflow prefix has all that is below it, and no other file is taken for
    /// one of those.
    #[test]
    fn only_files_below_an_overflow_prefix_are_of_one(parts in sequence(), server in any::<u16>()) {
        let (file, prefix) = (id(&parts), ServerId(server).overflow());
        prop_assert_eq!(ServerId::of_overflow(&file) == Some(ServerId(server)), prefix.is_prefix_of(&file));
        let below = parts.iter().take(8).fold(prefix, |id, &n| id.child(n));
        prop_assert_eq!(ServerId::of_overflow(&below), Some(ServerId(server)));
    }
}

/// The code of the integer 1, four times.
const ONES: [u8; 1] = [0b0101_0101];

#[test]
fn what_is_malformed_is_refused_by_its_reason() {
    let refused = |bytes: &[u8]| FileId::from_bytes(bytes).unwrap_err();
    assert_eq!(refused(b""), Malformed::Truncated);
    assert_eq!(refused(&ONES), Malformed::Truncated, "four integers and no end");
    assert_eq!(refused(&[0b1111_0101]), Malformed::Truncated, "in the middle of low bits");
    assert_eq!(refused(&[0xff]), Malformed::Truncated, "in the middle of the unary part");
    assert_eq!(refused(&[0xff; 40]), Malformed::Integer, "there is no such class");
    let mut beyond = vec![0xff, 0b1111_1101];
    beyond.extend([0xff; 8]);
    assert_eq!(refused(&beyond), Malformed::Integer, "2^63 or more");
    assert_eq!(refused(&[0b0000_0001]), Malformed::Padding);
    assert_eq!(refused(&[0b0100_1000]), Malformed::Padding);
    assert_eq!(refused(&[0, 0]), Malformed::Trailing(1));
    assert_eq!(refused(&ONES.repeat(150)), Malformed::TooLong);
}

#[test]
fn decoding_stops_at_the_bound() {
    // Integer 1 takes two bits, and so does the end.
    let longest = id(&vec![1; BITS_MAX / 2 - 1]);
    assert_eq!(longest.bit_len(), BITS_MAX);
    assert_eq!(FileId::from_bytes(longest.as_bytes()), Ok(longest.clone()));
    let mut one_more = longest.as_bytes().to_vec();
    *one_more.last_mut().unwrap() |= 1;
    one_more.push(0);
    assert_eq!(FileId::from_bytes(&one_more), Err(Malformed::TooLong));
    assert!(serde_json::from_str::<FileId>(&format!("[{}0]", "85,".repeat(150))).is_err());
}

#[test]
fn a_region_of_the_longest_identifiers_is_one_range_too() {
    // Together they have one bit more than an identifier may have. Random identifiers once did.
    let (a, b) = (vec![INTEGER_MAX; 6], vec![INTEGER_MAX; 7]);
    let just = [&[1, 8][..], &b].concat();
    assert_eq!(id(&a).bit_len() + id(&just).bit_len() - END_BITS, BITS_MAX + 1);
    check_region(&a, &just, &[0xff]);
    assert_eq!(joined(&a, &just).len(), 14);
    check_region(&joined(&a, &just), &just, &[]);
}

#[test]
fn codes_have_the_lengths_of_their_classes() {
    let small = [(1, 2), (2, 3), (3, 3), (4, 5), (7, 5), (8, 7), (15, 7), (16, 10), (47, 10)];
    let large = [(48, 14), (303, 14), (304, 19), (1_025, 19), (4_400, 24), (INTEGER_MAX, 78)];
    for (n, bits) in small.into_iter().chain(large) {
        assert_eq!(FileId::root().child(n).bit_len(), bits + END_BITS, "{n}");
        let deep = id(&[5, 5]);
        assert_eq!(deep.child(n).bit_len() - deep.bit_len(), bits, "{n}");
    }
    assert_eq!(FileId::root().bit_len(), END_BITS);
    assert_eq!(FileId::root().as_bytes(), [0]);
}

#[test]
fn small_identifiers_take_sixteen_bytes_and_no_allocation() {
    assert_eq!(size_of::<FileId>(), 16);
    // The address of the bytes shows whether they are inline.
    let inline =
        |id: &FileId| std::ptr::from_ref(id).cast::<u8>().addr().abs_diff(id.as_bytes().as_ptr().addr()) < 16;
    let fits = id(&vec![1; 58]);
    assert_eq!((fits.bit_len(), inline(&fits)), (118, true));
    assert!(inline(&fits.child(1)));
    let just = fits.child(2);
    assert_eq!((just.bit_len(), inline(&just)), (121, false));
    assert!(inline(&just.parent().unwrap()), "short again");
    // Eleven levels of directories with up to 47 files each fit, and so do eight with up to 303.
    assert!(inline(&id(&[47; 11])) && inline(&id(&[303; 8])));
}

#[test]
fn long_lines_of_descent_go_below_the_roots_first_integer() {
    let mut dir = FileId::root();
    for depth in 0..1000u64 {
        let child = FileId::for_child(&dir, 100, 7000 + depth);
        assert!(child.parent() == Some(dir.clone()) || child == id(&[OVERFLOW, 1, 7000 + depth]));
        dir = child;
    }
    assert_eq!(dir.parts().next(), Some(OVERFLOW));
    let root = FileId::root();
    assert_eq!(FileId::for_child(&root, OVERFLOW, 9), id(&[OVERFLOW, 1, 9]), "reserved in the root");
    assert_eq!(FileId::for_child(&root, 2, 9), id(&[2]));
    assert_eq!(FileId::for_child(&id(&[2]), OVERFLOW, 9), id(&[2, OVERFLOW]), "elsewhere it is as any other");
    assert_eq!(FileId::for_child(&id(&[2]), 0, 0), id(&[OVERFLOW, 1, 1]));
    let seventh = ServerId(6).number(9);
    assert_eq!(FileId::for_child(&root, OVERFLOW, seventh), id(&[OVERFLOW, 7, 9]), "at the server's own");
}

#[test]
#[should_panic(expected = "0 is not an integer")]
fn zero_is_no_integer() {
    FileId::root().child(0);
}

#[test]
fn shown_as_the_seed_writes_them() {
    assert_eq!(FileId::root().to_string(), "⟨⟩");
    assert_eq!(id(&[1, 3]).to_string(), "⟨1.3⟩");
}
