//! The file map is checked against the definition of the longest match.

use ident::{FileId, FileMap};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn id(parts: &[u64]) -> FileId {
    parts.iter().fold(FileId::root(), |id, &n| id.child(n))
}

fn identifier() -> impl Strategy<Value = FileId> {
    prop::collection::vec(1..5u64, 0..6).prop_map(|parts| id(&parts))
}

fn longest_match(map: &BTreeMap<FileId, u32>, file: &FileId) -> Option<u32> {
    map.iter()
        .filter(|(prefix, _)| prefix.is_prefix_of(file))
        .max_by_key(|(prefix, _)| prefix.bit_len())
        .map(|(_, server)| *server)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_longest_match_counts(
        changes in prop::collection::vec((identifier(), prop::option::weighted(0.7, 0..100u32)), 0..40),
        files in prop::collection::vec(identifier(), 1..40),
    ) {
        let mut map = FileMap::new(0);
        let mut naive = BTreeMap::from([(FileId::root(), 0)]);
        for (prefix, server) in changes {
            match server {
                Some(server) => prop_assert_eq!(map.insert(prefix.clone(), server), naive.insert(prefix, server)),
                None if prefix == FileId::root() => prop_assert_eq!(map.remove(&prefix), None),
                None => prop_assert_eq!(map.remove(&prefix), naive.remove(&prefix)),
            }
            for file in files.iter().chain(naive.keys()) {
                prop_assert_eq!(Some(*map.lookup(file)), longest_match(&naive, file), "{}", file);
            }
        }
        prop_assert_eq!(map.regions().map(|(id, s)| (id, *s)).collect::<Vec<_>>(), naive.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_region_is_less_what_was_delegated_further() {
    let mut map = FileMap::new("a");
    map.insert(id(&[3]), "b");
    map.insert(id(&[3, 2]), "c");
    for (file, server) in [
        (id(&[]), "a"),
        (id(&[2, 9]), "a"),
        (id(&[3]), "b"),
        (id(&[3, 1, 7]), "b"),
        (id(&[3, 2]), "c"),
        (id(&[3, 2, 8]), "c"),
        (id(&[3, 3]), "b"),
        (id(&[4]), "a"),
    ] {
        assert_eq!(*map.lookup(&file), server, "{file}");
    }
    assert_eq!(map.remove(&id(&[3])), Some("b"));
    assert_eq!((*map.lookup(&id(&[3, 3])), *map.lookup(&id(&[3, 2, 8]))), ("a", "c"));
}
