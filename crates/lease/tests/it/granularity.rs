//! Coarser leases: conflicts, the rounding of needs, and the check of holdings.

use ident::FileId;
use lease::Granularity::{Fields, Files, SingleWriter};
use lease::Kind::{Read, Touch, Write};
use lease::{Field, Granularity, Holdings, Kind, Label, Lease, SessionId};

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const KINDS: [Kind; 3] = [Read, Touch, Write];

fn child(name: &str) -> Field {
    Field::Child(Label::new(name.as_bytes()).unwrap())
}

fn held(holdings: &[(SessionId, Field, Kind)]) -> Holdings {
    let mut all = Holdings::default();
    for (session, field, kind) in holdings {
        all.grant(*session, field, *kind, []);
    }
    all
}

/// Returns what B may keep of its lease `has` on handles when A asks for `asked`; `None` if nothing
/// is in the way.
fn kept(granularity: Granularity, has: Kind, asked: Kind) -> Option<Option<Kind>> {
    let holdings = held(&[(B, Field::Handles, has)]);
    let in_the_way = granularity.in_the_way(&holdings, A, &Field::Handles, asked);
    assert!(in_the_way.iter().all(|it| it.session == B && it.field == Field::Handles));
    assert!(
        granularity.in_the_way(&holdings, B, &Field::Handles, asked).is_empty(),
        "nobody is in their own way"
    );
    in_the_way.first().map(|it| it.keep)
}

#[test]
fn of_a_black_box_there_is_one_writer_or_many_readers() {
    for granularity in [SingleWriter, Files] {
        for has in KINDS {
            for asked in KINDS {
                let expected = match (has, asked) {
                    (Read, Read) => None,
                    (Write, Read) => Some(Some(Read)),
                    _ => Some(None),
                };
                assert_eq!(
                    kept(granularity, has, asked),
                    expected,
                    "{granularity:?}: {has:?}, then {asked:?}"
                );
            }
        }
    }
    // This is intended: clients that only change their own values do not conflict.
    assert_eq!(kept(Fields, Touch, Touch), None);
}

#[test]
fn shared_fields_are_as_they_are() {
    let holdings = held(&[(B, Field::Times, Touch), (B, child("b"), Write)]);
    for (field, kind) in
        [(Field::Times, Touch), (Field::Times, Read), (child("b"), Read), (child("c"), Write)]
    {
        for granularity in [SingleWriter, Files] {
            let in_the_way = granularity.in_the_way(&holdings, A, &field, kind);
            assert_eq!(
                in_the_way,
                holdings.in_the_way(A, &field, kind),
                "{granularity:?}: {field:?} {kind:?}"
            );
        }
    }
}

#[test]
fn a_need_is_rounded_to_the_file() {
    let (dir, file) = (FileId::root(), FileId::root().child(5));
    let needs = vec![
        Lease::new(dir.clone(), Field::Attributes, Read),
        Lease::new(dir.clone(), Field::Times, Touch),
        Lease::new(dir.clone(), child("b"), Read),
        Lease::new(file.clone(), Field::Content, Read),
    ];
    for granularity in [Fields, SingleWriter] {
        assert_eq!(granularity.rounded(needs.clone()), needs);
    }
    let rounded = Files.rounded(needs);
    assert!(rounded.is_sorted());
    // The operation changes something of the directory, and nothing of the file.
    let all_of =
        |file: &FileId| rounded.iter().filter(|need| need.file == *file).cloned().collect::<Vec<_>>();
    assert!(all_of(&dir).iter().all(|need| need.kind == Write));
    assert!(all_of(&file).iter().all(|need| need.kind == Read));
    assert!(rounded.contains(&Lease::new(dir.clone(), child("b"), Write)), "its value is to be told");
    // A session that is granted all of it to write holds it whole.
    let mut holdings = Holdings::default();
    all_of(&dir).iter().for_each(|need| holdings.grant(A, &need.field, need.kind, []));
    assert!(holdings.held(A).unwrap().is_whole());
}

/// When no lease is in the way of a rounded need, other sessions have no leases left, or leases to
/// read.
#[test]
fn nobody_is_beside_a_writer_of_a_file() {
    for (asked, left) in [(Write, None), (Read, Some(Read))] {
        let mut holdings = Holdings::default();
        holdings.grant_whole(B);
        let needs = Files.rounded(vec![Lease::new(FileId::root(), Field::Attributes, asked)]);
        for need in &needs {
            for it in Files.in_the_way(&holdings, A, &need.field, need.kind) {
                holdings.release(it.session, &it.field, it.keep);
            }
        }
        for field in [Field::Attributes, Field::Content, Field::Handles, Field::Children, child("b")] {
            assert_eq!(holdings.held(B).and_then(|held| held.kind(&field)), left, "{field:?}");
        }
        needs.iter().for_each(|need| holdings.grant(A, &need.field, need.kind, []));
        assert_eq!((holdings.check(), Files.check(&holdings)), (Ok(()), Ok(())));
    }
}

#[test]
fn what_coarser_leases_do_not_come_to_is_found() {
    let readers = held(&[(A, Field::Attributes, Read), (B, Field::Attributes, Read)]);
    let beside = held(&[(A, Field::Attributes, Write), (B, Field::Content, Read)]);
    let openers = held(&[(A, Field::Handles, Touch), (B, Field::Handles, Touch)]);
    for (holdings, sound) in
        [(&readers, [true, true, true]), (&beside, [true, true, false]), (&openers, [true, false, false])]
    {
        assert_eq!(holdings.check(), Ok(()));
        for (granularity, sound) in [Fields, SingleWriter, Files].into_iter().zip(sound) {
            assert_eq!(granularity.check(holdings).is_ok(), sound, "{granularity:?}: {holdings:?}");
        }
    }
}
