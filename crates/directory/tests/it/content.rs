//! Publications: extents, what they overwrite, and the shares behind them.

use crate::support::*;
use directory::{Input, ShareWork};
use ident::FileId;
use lease::SessionId;
use namespace::{ContentChange, Error, Extent, FileKind, Operation, Spread, operation};
use wire::{ToClient, ToServer};

const ROOT: FileId = FileId::root();

/// A session and two files that it has just made.
fn with_files() -> (World, SessionId, FileId, FileId) {
    with_files_of(1)
}

/// The same of that machine.
fn with_files_of(machine: u64) -> (World, SessionId, FileId, FileId) {
    let mut world = World::new();
    let session = world.open(machine, 1);
    let n = world.take_root(session);
    let one = world.create(session, &ROOT, "one", FileKind::Regular, n);
    let two = world.create(session, &ROOT, "two", FileKind::Regular, n + 1);
    let (first, second) = (made(&one), made(&two));
    assert_eq!(world.log(session, vec![update(one), update(two)]), []);
    (world, session, first, second)
}

/// All extents and the inline content, as the session may fetch them.
fn content(world: &World, session: SessionId, file: &FileId) -> (Vec<Extent>, Option<Vec<u8>>) {
    let query = ToServer::Extents { number: 1, file: file.clone(), from: 0 };
    match world.server.query(session, &query, &world.store) {
        Some(ToClient::Extents { extents, inline, to, .. }) => {
            assert_eq!(to, u64::MAX);
            (extents, inline)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn overwriting_the_middle_leaves_both_ends() {
    let (mut world, session, file, _) = with_files();
    let whole = extents(vec![extent(0, 100, share(1))], true);
    assert_eq!(world.update(session, publish(&file, 1, 100, whole)), Ok(()));
    assert_eq!(world.shares, [ShareWork::Adopt(share(1))]);
    let middle = extents(vec![extent(40, 20, share(2))], false);
    assert_eq!(world.update(session, publish(&file, 2, 100, middle)), Ok(()));
    let (extents, _) = content(&world, session, &file);
    let ranges: Vec<_> = extents.iter().map(|e| (e.offset, e.length, e.skip)).collect();
    assert_eq!(ranges, [(0, 40, 0), (40, 20, 0), (60, 40, 60)]);
    assert_eq!(
        world.shares,
        [ShareWork::Adopt(share(1)), ShareWork::Adopt(share(2))],
        "the first is still referred to"
    );
}

#[test]
fn the_last_reference_drops_the_share() {
    let (mut world, session, file, _) = with_files();
    let whole = extents(vec![extent(0, 100, share(1)), extent(100, 100, share(1))], true);
    assert_eq!(world.update(session, publish(&file, 1, 200, whole)), Ok(()));
    world.shares.clear();
    let punch = |version, range, size| {
        let (put, key) = (Vec::new(), None);
        publish(
            &file,
            version,
            size,
            ContentChange::Extents { truncate_to: None, punch: vec![range], put, key },
        )
    };
    assert_eq!(world.update(session, punch(2, (0, 150), 200)), Ok(()));
    assert_eq!(world.shares, []);
    assert_eq!(world.update(session, punch(3, (150, 50), 200)), Ok(()));
    assert_eq!(world.shares, [ShareWork::Drop(share(1))]);
    // While the share is being dropped, no file may refer to it, not even its own.
    let again = extents(vec![extent(0, 100, share(1))], false);
    assert_eq!(world.update(session, publish(&file, 4, 200, again)), Err(Error::Invalid));
    // Until it is confirmed it is given out again; then it is forgotten.
    world.shares.clear();
    world.input(Input::Lead);
    assert_eq!(world.shares, [ShareWork::Drop(share(1))]);
    // Late news of its adoption changes nothing.
    world.input(Input::SharesSettled(vec![ShareWork::Adopt(share(1)), ShareWork::Drop(share(1))]));
    world.shares.clear();
    world.input(Input::Lead);
    assert_eq!(world.shares, []);
}

#[test]
fn truncation_and_growth_leave_a_hole() {
    let (mut world, session, file, _) = with_files();
    let whole = extents(vec![extent(0, 100, share(1))], true);
    assert_eq!(world.update(session, publish(&file, 1, 100, whole)), Ok(()));
    let (punch, put, key) = Default::default();
    let cut = ContentChange::Extents { truncate_to: Some(30), punch, put, key };
    assert_eq!(world.update(session, publish(&file, 2, 500, cut)), Ok(()));
    let (extents, _) = content(&world, session, &file);
    assert_eq!(extents.iter().map(|e| (e.offset, e.length)).collect::<Vec<_>>(), [(0, 30)]);
}

#[test]
fn inline_content_comes_and_goes() {
    let (mut world, session, file, _) = with_files();
    let bytes = vec![9; 1000];
    assert_eq!(world.update(session, publish(&file, 1, 1000, inline(&bytes))), Ok(()));
    assert_eq!(content(&world, session, &file), (vec![], Some(sealed(&bytes))));
    let grown = extents(vec![extent(0, 8000, share(1))], true);
    assert_eq!(world.update(session, publish(&file, 2, 8000, grown)), Ok(()));
    assert_eq!(content(&world, session, &file), (vec![extent(0, 8000, share(1))], None));
    assert_eq!(world.update(session, publish(&file, 3, 5, inline(&[1; 5]))), Ok(()));
    assert_eq!(content(&world, session, &file), (vec![], Some(sealed(&[1; 5]))));
    assert_eq!(world.shares, [ShareWork::Adopt(share(1)), ShareWork::Drop(share(1))]);
}

#[test]
fn a_share_belongs_to_one_file() {
    let (mut world, session, one, two) = with_files();
    let mine =
        |file: &FileId, version, n| publish(file, version, 10, extents(vec![extent(0, 10, share(n))], true));
    assert_eq!(world.update(session, mine(&one, 1, 1)), Ok(()));
    assert_eq!(world.update(session, mine(&two, 1, 1)), Err(Error::Invalid));
    assert_eq!(world.update(session, mine(&two, 1, 2)), Ok(()));
    // Death of one drops its own only.
    world.shares.clear();
    assert_eq!(world.update(session, unlink(&ROOT, "one", false)), Ok(()));
    assert_eq!(world.shares, [ShareWork::Drop(share(1))]);
}

/// Hosts believe no other machine's upload of the share.
#[test]
fn the_state_says_whose_update_was_the_first_to_refer_to_a_share() {
    let (mut world, session, file, _) = with_files_of(3);
    let publishers = |world: &World| {
        [1, 2].map(|n| directory::publisher(&world.store, &share(n)).map(|machine| machine.0))
    };
    let whole = extents(vec![extent(0, 100, share(1))], true);
    assert_eq!(world.update(session, publish(&file, 1, 100, whole)), Ok(()));
    assert_eq!(publishers(&world), [Some(3), None]);
    // A row that is written again keeps its publisher.
    let middle = extents(vec![extent(40, 20, share(2))], false);
    assert_eq!(world.update(session, publish(&file, 2, 100, middle)), Ok(()));
    assert_eq!(publishers(&world), [Some(3); 2]);
    world.check();
    assert_eq!(world.update(session, unlink(&ROOT, "one", false)), Ok(()));
    world.settle();
    assert_eq!(publishers(&world), [None; 2]);
}

/// Such a reference could have another machine's fragments released.
#[test]
fn nothing_refers_to_a_fragment() {
    let (mut world, session, one, two) = with_files();
    let coded = share(1).spread_as(Spread::Code { data: 2, parity: 1 });
    let mine = |file: &FileId, share| publish(file, 1, 10, extents(vec![extent(0, 10, share)], true));
    assert_eq!(world.update(session, mine(&one, coded)), Ok(()));
    assert_eq!(world.update(session, mine(&two, coded.fragment(0))), Err(Error::Invalid));
    assert_eq!(world.shares, [ShareWork::Adopt(coded)]);
}

#[test]
fn only_who_holds_the_content_is_told_it() {
    let (mut world, session, file, _) = with_files();
    let stranger = world.open(2, 1);
    let query = ToServer::Extents { number: 1, file: file.clone(), from: 0 };
    let nothing =
        ToClient::Extents { number: 1, file: file.clone(), from: 0, to: 0, extents: vec![], inline: None };
    assert_eq!(world.server.query(stranger, &query, &world.store), Some(nothing.clone()));
    assert_eq!(world.server.query(session, &ToServer::Renew, &world.store), None);
    world.open(1, 2);
    assert_eq!(world.server.query(session, &query, &world.store), Some(ToClient::Fenced));
    // Through the log it is answered the same.
    world.send(stranger, query);
    assert_eq!(world.told(stranger), [nothing]);
}

#[test]
fn a_publication_of_an_older_version_is_refused() {
    let (mut world, session, file, _) = with_files();
    let content = || inline(&[1; 3]);
    assert_eq!(world.update(session, publish(&file, 2, 3, content())), Err(Error::Invalid));
    assert_eq!(world.update(session, publish(&file, 1, 3, content())), Ok(()));
    assert_eq!(world.update(session, publish(&file, 1, 3, content())), Err(Error::Invalid));
    let gone = Operation::Dispose(operation::Dispose { file, time: namespace::Timestamp::default() });
    assert_eq!(world.update(session, gone), Err(Error::Invalid), "it has a name");
}

#[test]
fn the_shares_of_a_file_and_of_all_below_a_directory_are_told_once_each() {
    let (mut world, session, one, two) = with_files();
    let pieces = |from: u8| (0..4).map(|n| extent(u64::from(n) * 100, 100, share(from + n / 2))).collect();
    assert_eq!(world.update(session, publish(&one, 1, 400, extents(pieces(1), true))), Ok(()));
    assert_eq!(world.update(session, publish(&two, 1, 400, extents(pieces(5), true))), Ok(()));
    let below = |path: &str| {
        let shares = world.server.shares_below(&world.store, path.as_bytes());
        shares.map(|shares| shares.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(below("/one"), Some(vec![share(1), share(2)]));
    assert_eq!(below("two"), Some(vec![share(5), share(6)]));
    assert_eq!(below("/"), Some(vec![share(1), share(2), share(5), share(6)]));
    assert_eq!(below("/three"), None);
}
