//! The extent map, and edits of rows, against an array that says for every byte what is there.

use content::{Edit, ExtentMap, What, affected, edit, replace_range};
use namespace::{ContentChange, Extent, Piece, Place, ShareId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SIZE: u64 = 200;

/// What one byte is: nothing known, a hole, or byte `.1` of piece `.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Unknown,
    Hole,
    Of(u8, u32),
}

fn extent(offset: u64, length: u32, skip: u32, piece: u8) -> Extent {
    let place = match piece % 3 {
        0 => Place::Inline(vec![piece; 4]),
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
                What::Unknown => Byte::Unknown,
                What::Hole => Byte::Hole,
                What::Extent { extent, skip } => Byte::Of(extent.piece.nonce[0], skip + n),
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
            // In order without overlap, some of them reaching out of the range.
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

    #[test]
    fn an_edit_of_rows_is_what_the_map_does(
        rows in prop::collection::vec((0..8u64, 1..12u32), 0..12),
        truncate_to in prop::option::of(0..SIZE),
        punch in prop::collection::vec((0..SIZE, 1..30u64), 0..4),
        put in prop::collection::vec((0..20u64, 1..20u32), 0..6),
    ) {
        let in_order = |list: &[(u64, u32)], piece: u8| {
            let mut at = 0;
            list.iter().enumerate().map(|(n, (gap, length))| {
                let extent = extent(at + gap, *length, n as u32, piece + n as u8);
                at = extent.offset + u64::from(*length);
                extent
            }).collect::<Vec<Extent>>()
        };
        let rows = in_order(&rows, 1);
        let change = ContentChange::Extents { truncate_to, punch, put: in_order(&put, 100), key: None };
        let mut map = ExtentMap::new(rows.clone(), u64::MAX);
        map.apply(&change);

        // Only the rows that were asked for are given.
        let ranges = affected(&change);
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        let reaches = |row: &&Extent| ranges.iter().any(|range| {
            row.offset < range.end && row.offset + u64::from(row.length) > range.start
        });
        let given: Vec<Extent> = rows.iter().filter(reaches).cloned().collect();
        let edit = edit(given, &change);
        let after = carry_out(&rows, &edit);
        prop_assert_eq!(&after, &map.iter().cloned().collect::<Vec<_>>());
        prop_assert_eq!(edit.occupied, map.occupied() as i64 - rows.iter().map(|r| i64::from(r.length)).sum::<i64>());
        let (mut before, after) = (references(&rows), references(&after));
        for (share, by) in &edit.references {
            prop_assert_ne!(*by, 0);
            *before.entry(*share).or_default() += by;
        }
        before.retain(|_, count| *count != 0);
        prop_assert_eq!(before, after);
    }
}

fn carry_out(rows: &[Extent], edit: &Edit) -> Vec<Extent> {
    let mut store: BTreeMap<u64, Extent> = rows.iter().map(|row| (row.offset, row.clone())).collect();
    for offset in &edit.delete {
        assert!(store.remove(offset).is_some(), "only rows that exist are deleted");
    }
    for row in &edit.put {
        assert!(!edit.delete.contains(&row.offset));
        store.insert(row.offset, row.clone());
    }
    store.into_values().collect()
}

fn references(rows: &[Extent]) -> BTreeMap<ShareId, i64> {
    let mut count = BTreeMap::new();
    for row in rows {
        if let Place::Share { share, .. } = row.piece.place {
            *count.entry(share).or_default() += 1;
        }
    }
    count
}

#[test]
fn overwriting_the_middle_splits_in_two() {
    let edit = replace_range(vec![extent(0, 100, 5, 1)], 40..60, &[extent(40, 20, 0, 2)]);
    assert_eq!(edit.delete, Vec::<u64>::new());
    assert_eq!(edit.put, vec![extent(0, 40, 5, 1), extent(40, 20, 0, 2), extent(60, 40, 65, 1)]);
    assert_eq!(edit.references, BTreeMap::from([(ShareId([1; 16]), 1), (ShareId([2; 16]), 1)]));
    assert_eq!(edit.occupied, 0);
}

#[test]
fn inline_content_takes_the_place_of_all_extents() {
    let rows = vec![extent(0, 10, 0, 1), extent(500, 10, 0, 2)];
    let change = ContentChange::Inline(vec![1]);
    assert_eq!(affected(&change), vec![0..u64::MAX]);
    let edit = edit(rows, &change);
    assert_eq!((edit.delete, edit.put, edit.occupied), (vec![0, 500], Vec::new(), -20));
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
