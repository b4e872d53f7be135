//! The extent map is checked against an array with an entry for every byte.

use content::{ExtentMap, SpanContent};
use namespace::{ContentChange, Extent, Piece, Place, ShareId};
use proptest::prelude::*;

const SIZE: u64 = 200;

/// The state of one byte: unknown, a hole, or byte `.1` of piece `.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Unknown,
    Hole,
    Of(u8, u32),
}

fn extent(offset: u64, length: u32, skip: u32, piece: u8) -> Extent {
    let place = match piece % 3 {
        0 => Place::Inline(vec![piece; 4].into()),
        share => Place::Share { share: ShareId([share; 16]), at: u32::from(piece) },
    };
    Extent {
        offset,
        length,
        skip,
        piece: Piece { length: 300, nonce: [piece; 12], hash: [piece; 32], place },
    }
}

fn bytes_of(map: &ExtentMap, offset: u64, length: u64) -> Vec<Byte> {
    let mut bytes = Vec::new();
    for span in map.spans(offset, length) {
        assert_eq!(span.offset, offset + bytes.len() as u64, "spans follow each other");
        assert!(span.length > 0);
        for n in 0..span.length as u32 {
            bytes.push(match span.what {
                SpanContent::Unknown => Byte::Unknown,
                SpanContent::Hole => Byte::Hole,
                SpanContent::Extent { extent, skip } => Byte::Of(extent.piece.nonce[0], skip + n),
            });
        }
    }
    assert_eq!(bytes.len() as u64, length);
    bytes
}

fn put_naively(model: &mut [Byte], extent: &Extent) {
    for n in 0..extent.length {
        model[(extent.offset + u64::from(n)) as usize] = Byte::Of(extent.piece.nonce[0], extent.skip + n);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u32, u32),
    Punch(u64, u64),
    Truncate(u64),
    Learn(u64, u64, Vec<(u64, u32)>),
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..SIZE).prop_flat_map(|from| (Just(from), 0..=(SIZE - from)));
    prop_oneof![
        4 => (0..SIZE - 40, 1..40u32, 0..5u32).prop_map(|(offset, length, skip)| Step::Put(offset, length, skip)),
        2 => range.clone().prop_map(|(from, length)| Step::Punch(from, length)),
        1 => (0..SIZE).prop_map(Step::Truncate),
        2 => (range, prop::collection::vec((0..10u64, 1..20u32), 0..12)).prop_map(|((from, length), list)| {
            // In order and without overlap. Some reach out of the range.
            let mut at = from.saturating_sub(10);
            let mut extents = Vec::new();
            for (gap, length) in list {
                extents.push((at + gap, length));
                at += gap + u64::from(length);
            }
            Step::Learn(from, from + length, extents)
        }),
    ]
}

fn fits(extents: &[(u64, u32)]) -> Vec<(u64, u32)> {
    extents.iter().copied().filter(|(offset, length)| offset + u64::from(*length) <= SIZE).collect()
}

fn check_counters(map: &ExtentMap) {
    let inline = |extent: &&Extent| matches!(extent.piece.place, Place::Inline(_));
    assert_eq!(map.occupied(), map.iter().map(|extent| u64::from(extent.length)).sum::<u64>());
    assert!(map.inline_extents().eq(map.iter().filter(inline)));
    assert_eq!(map.inline_bytes(), map.inline_pieces() as u64 * 300);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_map_is_what_was_done_to_it(known in 0..SIZE, steps in prop::collection::vec(step(), 1..40), from in 0..SIZE) {
        let mut map = ExtentMap::new(Vec::new(), known);
        let mut model = vec![Byte::Unknown; SIZE as usize];
        model[..known as usize].fill(Byte::Hole);
        for (n, step) in steps.into_iter().enumerate() {
            let n = n as u8 + 1;
            match step {
                Step::Put(offset, length, skip) => {
                    let extent = extent(offset, length, skip, n);
                    put_naively(&mut model, &extent);
                    map.put(extent);
                }
                Step::Punch(offset, length) => {
                    model[offset as usize..(offset + length) as usize].fill(Byte::Hole);
                    map.punch(offset, length);
                }
                Step::Truncate(size) => {
                    model[size as usize..].fill(Byte::Hole);
                    map.truncate(size);
                }
                Step::Learn(from, to, extents) => {
                    let page: Vec<Extent> = fits(&extents).iter().map(|(o, l)| extent(*o, *l, 0, n)).collect();
                    let mut learnt = vec![Byte::Hole; SIZE as usize];
                    page.iter().for_each(|extent| put_naively(&mut learnt, extent));
                    for at in from as usize..to as usize {
                        if model[at] == Byte::Unknown {
                            model[at] = learnt[at];
                        }
                    }
                    map.learn(from, to, page);
                }
            }
            prop_assert_eq!(bytes_of(&map, 0, SIZE), model.clone());
            check_counters(&map);
        }
        let part = (SIZE - from).min(33);
        prop_assert_eq!(bytes_of(&map, from, part), &model[from as usize..(from + part) as usize]);
    }
}

#[test]
fn overwriting_the_middle_splits_in_two() {
    let mut map = ExtentMap::whole_hole();
    map.put(extent(0, 100, 5, 1));
    map.put(extent(40, 20, 0, 2));
    let parts: Vec<Extent> = map.iter().cloned().collect();
    assert_eq!(parts, vec![extent(0, 40, 5, 1), extent(40, 20, 0, 2), extent(60, 40, 65, 1)]);
}

#[test]
fn a_publication_cuts_then_punches_then_puts() {
    let mut map = ExtentMap::new(vec![extent(0, 100, 0, 1)], 150);
    let put = vec![extent(45, 10, 0, 2), extent(70, 30, 0, 3)];
    map.apply(&ContentChange::Extents { truncate_to: Some(60), punch: vec![(40, 20)], put, key: None });
    let of = |piece, from: u32, to: u32| (from..to).map(move |n| Byte::Of(piece, n));
    let holes = |count| std::iter::repeat_n(Byte::Hole, count);
    let expected = of(1, 0, 40).chain(holes(5)).chain(of(2, 0, 10)).chain(holes(15)).chain(of(3, 0, 30));
    // The range beyond the cut is known to be gone, although it was unknown before.
    assert_eq!(bytes_of(&map, 0, SIZE), expected.chain(holes(100)).collect::<Vec<_>>());
    map.apply(&ContentChange::None);
    assert_eq!(map.occupied(), 80);
    map.apply(&ContentChange::Inline { sealed: vec![1; 29], key: None });
    assert_eq!((map.occupied(), map.iter().count()), (0, 0));
}

#[test]
fn overlapping_extents_of_a_broken_server_neither_panic_nor_loop() {
    let rows =
        vec![extent(0, 100, 0, 1), extent(10, 5, 0, 2), extent(90, 30, 0, 3), extent(u64::MAX - 1, 9, 0, 4)];
    let mut map = ExtentMap::new(rows, u64::MAX);
    assert_eq!(map.spans(0, u64::MAX).map(|span| span.length).sum::<u64>(), u64::MAX);
    map.punch(5, 100);
    map.truncate(2);
    assert_eq!(map.spans(0, 50).map(|span| span.length).collect::<Vec<_>>(), vec![2, 48]);
}
