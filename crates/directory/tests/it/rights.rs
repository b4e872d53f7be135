//! What a machine may do: a subtree, reading only, as one user. The clients here forge what they send.

use crate::support::*;
use ident::FileId;
use lease::{Field, Kind, Lease, Open, SessionId};
use namespace::{
    AttributeChange, ContentChange, Cred, Error, FileKind, Link, LockChange, LockKind, LockRange, LockSpace,
    Operation, RenameMode, SetTime,
};
use proptest::prelude::*;
use wire::{AskMode, FileGrant, Rights, ToClient, ToServer};

const ROOT: FileId = FileId::root();
const MODES: [AskMode; 4] = [AskMode::Lease, AskMode::Page { after: 0 }, AskMode::Report, AskMode::Ship];

/// `/in/f`, `/in/sub/g`, `/out/secret`, `/out/dir`, and `/out/both`, which is `/in/both` too. Nobody holds anything.
struct Tree {
    inside: FileId,
    f: FileId,
    sub: FileId,
    g: FileId,
    outside: FileId,
    secret: FileId,
    dir: FileId,
    both: FileId,
}

impl Tree {
    fn build(world: &mut World) -> Tree {
        let session = world.open(1, 1);
        let n = world.take_root(session);
        let mut make = |dir: &FileId, name: &str, kind, position| {
            let create = world.create(session, dir, name, kind, position);
            let file = made(&create);
            world.update(session, create).unwrap();
            if kind == FileKind::Regular {
                let bytes = ContentChange::Inline(name.as_bytes().to_vec());
                world.update(session, publish(&file, 1, name.len() as u64, bytes)).unwrap();
            }
            file
        };
        let inside = make(&ROOT, "in", FileKind::Directory, n);
        let f = make(&inside, "f", FileKind::Regular, 1);
        let sub = make(&inside, "sub", FileKind::Directory, 2);
        let g = make(&sub, "g", FileKind::Regular, 1);
        let outside = make(&ROOT, "out", FileKind::Directory, n + 1);
        let secret = make(&outside, "secret", FileKind::Regular, 1);
        let dir = make(&outside, "dir", FileKind::Directory, 2);
        let both = make(&outside, "both", FileKind::Regular, 3);
        world.update(session, link(&both, &inside, "both", 3)).unwrap();
        world.send(session, ToServer::Goodbye);
        Tree { inside, f, sub, g, outside, secret, dir, both }
    }
}

fn link(file: &FileId, dir: &FileId, name: &str, position: u64) -> Operation {
    let (file, dir, label) = (file.clone(), dir.clone(), label(name));
    Operation::Link { file, dir, label, position, cred: Cred::default(), time: at(20) }
}

/// A tree, and a session of a machine with these rights.
fn with(rights: impl FnOnce(&Tree) -> Rights) -> (World, Tree, SessionId) {
    let mut world = World::new();
    let tree = Tree::build(&mut world);
    let machine = world.enrol(rights(&tree)).unwrap();
    let session = world.open(machine.0, 1);
    (world, tree, session)
}

fn below(root: &FileId) -> Rights {
    Rights { root: root.clone(), ..Rights::FULL }
}

fn squashed(_: &Tree) -> Rights {
    Rights { squash: Some(1000), ..Rights::FULL }
}

fn read_only(_: &Tree) -> Rights {
    Rights { read_only: true, ..Rights::FULL }
}

fn user(id: u32) -> Cred {
    Cred { uid: id, gid: id, groups: Default::default() }
}

/// The answer to a request that must come at once.
fn answer(
    world: &mut World,
    session: SessionId,
    operation: Operation,
    wants: Vec<Lease>,
    mode: AskMode,
) -> ToClient {
    let number = world.ask(session, operation, wants, mode);
    let told = world.told(session);
    let answers = told.into_iter().filter(|message| match message {
        ToClient::Granted { number: n, .. }
        | ToClient::Shipped { number: n, .. }
        | ToClient::Reported { number: n, .. } => *n == number,
        _ => false,
    });
    answers.last().expect("no answer at once")
}

fn refusal(message: &ToClient) -> Option<Error> {
    match message {
        ToClient::Shipped { result: Err(error), .. } => Some(*error),
        _ => None,
    }
}

/// Every kind of lease on every field.
fn everything(file: &FileId) -> Vec<Lease> {
    let fields = [
        Field::Attributes,
        Field::Content,
        Field::Times,
        Field::Disposition,
        Field::Parent,
        Field::Children,
        Field::Xattrs,
        Field::Child(label("secret")),
    ];
    fields.into_iter().chain(Field::BLACK_BOXES).map(|field| want(file, field, Kind::Write)).collect()
}

fn grants_of(message: ToClient) -> Vec<FileGrant> {
    match message {
        ToClient::Granted { grants, .. } | ToClient::Reported { values: grants, .. } => grants,
        _ => Vec::new(),
    }
}

#[test]
fn outside_its_subtree_there_is_nothing_for_a_machine() {
    let (mut world, tree, session) = with(|tree| below(&tree.inside));
    for mode in MODES {
        for file in [&ROOT, &tree.outside, &tree.secret, &tree.dir, &ROOT.child(4711)] {
            // Of what is there no more is told than of what is not.
            for operation in [stat(file), list(file), lookup(file, "secret")] {
                let told = answer(&mut world, session, operation, vec![], mode);
                assert_eq!(refusal(&told), Some(Error::Stale), "{file} {mode:?}");
            }
            // Nor under the pretext of something within.
            let told = answer(&mut world, session, stat(&tree.f), everything(file), mode);
            if let ToClient::Granted { gone, .. } | ToClient::Reported { gone, .. } = &told {
                assert_eq!(gone, std::slice::from_ref(file));
            }
            assert!(grants_of(told).iter().all(|grant| grant.file == tree.f));
        }
    }
    // What is within is whole.
    let grants = world.granted(session, list(&tree.inside), AskMode::Lease);
    let files: Vec<&FileId> = grants.iter().map(|grant| &grant.file).collect();
    for file in [&tree.inside, &tree.sub, &tree.both] {
        assert!(files.contains(&file), "{file}");
    }
    assert!(!files.contains(&&tree.outside));
}

#[test]
fn nothing_goes_in_or_out_of_a_subtree() {
    let (mut world, tree, session) = with(|tree| below(&tree.inside));
    let operations = [
        link(&tree.secret, &tree.inside, "stolen", 50),
        link(&tree.f, &tree.outside, "dropped", 50),
        rename(&tree.outside, "secret", &tree.inside, "stolen", 50),
        rename(&tree.inside, "f", &tree.outside, "dropped", 50),
        rename(&tree.inside, "sub", &tree.outside, "dropped", 50),
        Operation::Rename {
            from_dir: tree.inside.clone(),
            from: label("f"),
            to_dir: tree.outside.clone(),
            to: label("secret"),
            mode: RenameMode::Exchange,
            position: 50,
            back_position: 50,
            open: false,
            cred: Cred::default(),
            time: at(30),
        },
        create(&tree.outside, "new", FileKind::Regular, 50, 4000),
        unlink(&tree.outside, "secret", false),
        Operation::SetAttributes {
            file: tree.secret.clone(),
            change: AttributeChange { mode: Some(0o777), ..AttributeChange::default() },
            cred: Cred::default(),
            time: at(30),
        },
        Operation::SetDisposition {
            file: tree.both.clone(),
            link: Some(Link { dir: tree.outside.clone(), label: label("both") }),
            own: {
                let mut own = Open::CLOSED;
                own.set(&Field::Mode(lease::Mode::AccessDelete), true);
                own
            },
            cred: Cred::default(),
            time: at(30),
        },
    ];
    world.granted(session, list(&tree.inside), AskMode::Lease);
    for operation in operations {
        let rows = world.store.clone();
        for mode in MODES {
            let told = answer(&mut world, session, operation.clone(), vec![], mode);
            assert_eq!(refusal(&told), Some(Error::Stale), "{operation:?} {mode:?}");
        }
        // Not a misdeed: a file may have been moved away since.
        assert_eq!(world.update(session, operation.clone()), Err(Error::Stale), "{operation:?}");
        assert!(rows == world.store, "{operation:?}");
    }
    assert_eq!(world.server.misdeeds(), []);
}

#[test]
fn a_file_with_names_in_and_out_is_within_and_its_other_names_are_not_told() {
    let (mut world, tree, session) = with(|tree| below(&tree.inside));
    let wants =
        vec![want(&tree.both, Field::Parent, Kind::Read), want(&tree.both, Field::Content, Kind::Read)];
    let grants = grants_of(answer(&mut world, session, stat(&tree.both), wants, AskMode::Lease));
    let [grant] = grants.as_slice() else { panic!("{grants:?}") };
    assert_eq!(grant.values.inline.as_deref(), Some(b"both".as_slice()));
    assert_eq!(grant.values.links, None);
    // Somebody deletes it by the other name: that it goes is told, and not how it is called there.
    let other = world.open(1, 2);
    let mut own = Open::CLOSED;
    own.set(&Field::Mode(lease::Mode::AccessDelete), true);
    let name = Link { dir: tree.outside.clone(), label: label("both") };
    let (file, cred, time) = (tree.both.clone(), Cred::default(), at(30));
    let delete = Operation::SetDisposition { file, link: Some(name), own, cred, time };
    // It goes when this machine has closed it.
    world.returns(session, &tree.both, None, true);
    let number = world.ask(other, delete, vec![], AskMode::Ship);
    while world.yields(session) > 0 {}
    let done = |m: &ToClient| matches!(m, ToClient::Shipped { number: n, result: Ok(_) } if *n == number);
    assert!(world.told(other).iter().any(done));
    let disposition = vec![want(&tree.both, Field::Disposition, Kind::Read)];
    let grants = grants_of(answer(&mut world, session, stat(&tree.both), disposition, AskMode::Lease));
    let pending = grants.iter().find_map(|grant| grant.values.disposition.clone()).flatten();
    assert_eq!(pending.map(|pending| pending.link.dir), Some(tree.both.clone()));
    let handles = vec![want(&tree.both, Field::Handles, Kind::Touch)];
    answer(&mut world, session, stat(&tree.both), handles, AskMode::Lease);
    world.returns(session, &tree.both, None, false);
    while world.yields(session) > 0 {}
    world.settle();
    assert_eq!(world.server.resolve(&world.store, b"/out/both"), None);
    assert_eq!(world.server.resolve(&world.store, b"/in/both"), Some(tree.both));
}

#[test]
fn what_was_moved_away_is_out_of_reach_and_what_was_written_before_is_not_lost() {
    let (mut world, tree, session) = with(|tree| below(&tree.inside));
    world.granted(session, list(&tree.sub), AskMode::Lease);
    let wants = vec![want(&tree.g, Field::Content, Kind::Write)];
    assert!(!grants_of(answer(&mut world, session, stat(&tree.g), wants, AskMode::Lease)).is_empty());
    // Somebody with all rights moves the directory out.
    let other = world.open(1, 2);
    let number =
        world.ask(other, rename(&tree.inside, "sub", &tree.outside, "sub", 0), vec![], AskMode::Ship);
    while world.yields(session) > 0 {}
    let told = world.told(other);
    assert!(
        told.iter().any(|m| matches!(m, ToClient::Shipped { number: n, result: Ok(_), .. } if *n == number)),
        "{told:?}"
    );
    for mode in MODES {
        let told = answer(&mut world, session, stat(&tree.g), vec![], mode);
        assert_eq!(refusal(&told), Some(Error::Stale), "{mode:?}");
    }
    let query = ToServer::Extents { number: 77, file: tree.g.clone(), from: 0 };
    let refused = ToClient::Shipped { number: 77, result: Err(Error::Stale) };
    assert_eq!(world.server.query(session, &query, &world.store), Some(refused));
    // What it wrote it has the lease for; a name it can make there no more, and it knows that something is lost.
    let content = ContentChange::Inline(b"written".to_vec());
    assert_eq!(world.update(session, publish(&tree.g, 2, 7, content)), Ok(()));
    let late = world.create(session, &tree.sub, "late", FileKind::Regular, 2);
    assert_eq!(world.update(session, late), Err(Error::AccessDenied));
    // Moved back, it is there again.
    let number =
        world.ask(other, rename(&tree.outside, "sub", &tree.inside, "sub", 0), vec![], AskMode::Ship);
    while world.yields(session) > 0 {}
    assert!(
        world.told(other).iter().any(|m| matches!(m, ToClient::Shipped { number: n, .. } if *n == number))
    );
    assert_eq!(
        refusal(&answer(&mut world, session, lookup(&tree.inside, "sub"), vec![], AskMode::Ship)),
        None
    );
}

#[test]
fn what_a_machine_has_open_it_may_close_wherever_it_is() {
    let (mut world, tree, session) = with(|tree| below(&tree.inside));
    let handles = want(&tree.g, Field::Handles, Kind::Touch);
    world.granted(session, lookup(&tree.sub, "g"), AskMode::Lease);
    answer(&mut world, session, stat(&tree.g), vec![handles.clone()], AskMode::Lease);
    world.returns(session, &tree.g, None, true);
    let other = world.open(1, 2);
    world.ask(other, rename(&tree.inside, "sub", &tree.outside, "sub", 0), vec![], AskMode::Ship);
    while world.yields(session) > 0 {}
    let closes = Operation::Access { file: tree.g.clone(), mask: 0, cred: Cred::default() };
    let wants = vec![handles, want(&tree.g, Field::Content, Kind::Read)];
    let grants = grants_of(answer(&mut world, session, closes, wants, AskMode::Lease));
    let [grant] = grants.as_slice() else { panic!("{grants:?}") };
    assert_eq!(
        (&grant.file, grant.whole, grant.fields.as_slice()),
        (&tree.g, false, [(Field::Handles, Kind::Touch)].as_slice())
    );
    assert_eq!(grant.values, wire::Values::default());
    world.returns(session, &tree.g, None, false);
}

#[test]
fn who_may_only_read_is_granted_nothing_to_write_and_changes_nothing() {
    let (mut world, tree, session) = with(read_only);
    let grants = world.granted(session, list(&tree.inside), AskMode::Lease);
    assert!(grants.iter().any(|grant| grant.file == tree.f), "neighbours come along");
    let advisory = |field: &Field| field.is_black_box() || *field == Field::Locks;
    let shared = |(field, kind): &(Field, Kind)| !advisory(field) && *kind != Kind::Read;
    assert!(!grants.iter().any(|grant| grant.whole || grant.fields.iter().any(shared)), "{grants:#?}");
    assert!(grants.iter().all(|grant| grant.values.reservation.is_none()));
    // It opens and closes, and locks.
    let open = Open::posix(true, false);
    let opens =
        Operation::Open { file: tree.f.clone(), mask: 4, open, own: Open::CLOSED, cred: Cred::default() };
    assert_eq!(refusal(&answer(&mut world, session, opens, vec![], AskMode::Lease)), None);
    let lock = LockChange {
        owner: 1,
        pid: 1,
        space: LockSpace::Posix,
        range: LockRange::WHOLE,
        kind: Some(LockKind::Read),
    };
    let locks = Operation::Lock { file: tree.f.clone(), change: lock };
    assert_eq!(refusal(&answer(&mut world, session, locks.clone(), vec![], AskMode::Lease)), None);
    assert_eq!(world.update(session, locks), Ok(()));
    let operations = [
        create(&tree.inside, "new", FileKind::Regular, 50, 4000),
        unlink(&tree.inside, "f", false),
        rename(&tree.inside, "f", &tree.inside, "h", 50),
        link(&tree.f, &tree.inside, "again", 50),
        publish(&tree.f, 2, 1, ContentChange::Inline(b"x".to_vec())),
        Operation::Accessed { file: tree.f.clone(), time: at(90) },
        Operation::Dispose { file: tree.f.clone(), time: at(90) },
    ];
    for operation in operations {
        for mode in MODES {
            let told = answer(&mut world, session, operation.clone(), vec![], mode);
            assert_eq!(refusal(&told), Some(Error::ReadOnly), "{operation:?} {mode:?}");
        }
        assert_eq!(world.update(session, operation.clone()), Err(Error::ReadOnly), "{operation:?}");
    }
    for want in everything(&tree.f).into_iter().filter(|want| !want.field.is_black_box()) {
        let told = answer(&mut world, session, stat(&tree.f), vec![want], AskMode::Lease);
        assert_eq!(refusal(&told), Some(Error::ReadOnly));
    }
    world.send(session, ToServer::Reserve { dir: tree.inside.clone() });
    world.send(session, ToServer::ReserveInodes { known: 0 });
    world.send(session, ToServer::Allow { held: (0, 0), want: (1 << 20, 10) });
    let told = world.told(session);
    assert!(matches!(
        told.as_slice(),
        [
            ToClient::Reserved { first: 0, end: 0, .. },
            ToClient::ReservedInodes { first: 0, end: 0 },
            ToClient::Allowance { bytes: 0, files: 0, .. }
        ]
    ));
}

#[test]
fn two_that_only_read_are_not_in_each_others_way() {
    let (mut world, tree, one) = with(read_only);
    let machine = world.enrol(read_only(&tree)).unwrap();
    let other = world.open(machine.0, 1);
    for session in [one, other, one] {
        let grants = world.granted(session, stat(&tree.f), AskMode::Lease);
        assert!(!grants.is_empty());
    }
    assert_eq!((world.told(one), world.told(other)), (vec![], vec![]));
}

#[test]
fn who_is_squashed_acts_as_that_user_only() {
    let (mut world, tree, session) = with(squashed);
    let asks = |cred: Cred| Operation::Lookup { dir: tree.inside.clone(), label: label("f"), cred };
    let mut in_group = user(1000);
    in_group.groups.push(0);
    for cred in [Cred::default(), user(1001), in_group] {
        for mode in MODES {
            let told = answer(&mut world, session, asks(cred.clone()), vec![], mode);
            assert_eq!(refusal(&told), Some(Error::AccessDenied));
        }
        let remove = Operation::Unlink {
            dir: tree.inside.clone(),
            label: label("f"),
            directory: false,
            open: false,
            cred,
            time: at(20),
        };
        assert_eq!(world.update(session, remove), Err(Error::AccessDenied));
    }
    assert_eq!(refusal(&answer(&mut world, session, asks(user(1000)), vec![], AskMode::Lease)), None);
    // As that user it may do what that user may: nothing in root's directory.
    let remove = Operation::Unlink {
        dir: tree.inside.clone(),
        label: label("f"),
        directory: false,
        open: false,
        cred: user(1000),
        time: at(20),
    };
    let told = answer(&mut world, session, remove, vec![], AskMode::Ship);
    assert_eq!(refusal(&told), Some(Error::AccessDenied));
}

#[test]
fn who_is_squashed_gets_no_content_that_its_user_may_not_read_and_none_to_write_that_he_may_not() {
    let (mut world, tree, session) = with(squashed);
    let chmod = |world: &mut World, holder: SessionId, mode| {
        let other = world.open(1, mode as u64 + 2);
        let change =
            AttributeChange { mode: Some(mode), mtime: None::<SetTime>, ..AttributeChange::default() };
        let set =
            Operation::SetAttributes { file: tree.f.clone(), change, cred: Cred::default(), time: at(50) };
        world.ask(other, set, vec![], AskMode::Ship);
        while world.yields(holder) > 0 {}
        assert!(world.told(other).iter().any(|m| matches!(m, ToClient::Shipped { result: Ok(_), .. })));
        world.send(other, ToServer::Goodbye);
    };
    let content = |kind| vec![want(&tree.f, Field::Content, kind)];
    let extents = ToServer::Extents { number: 9, file: tree.f.clone(), from: 0 };
    // Everybody may read.
    chmod(&mut world, session, 0o644);
    let told = answer(&mut world, session, stat(&tree.f), content(Kind::Write), AskMode::Lease);
    assert_eq!(refusal(&told), Some(Error::AccessDenied));
    let grants = grants_of(answer(&mut world, session, stat(&tree.f), content(Kind::Read), AskMode::Lease));
    assert_eq!(grants[0].values.inline.as_deref(), Some(b"f".as_slice()));
    assert!(!grants[0].whole && grants[0].fields.contains(&(Field::Content, Kind::Read)));
    let write = publish(&tree.f, 2, 1, ContentChange::Inline(b"x".to_vec()));
    assert_eq!(
        refusal(&answer(&mut world, session, write.clone(), vec![], AskMode::Ship)),
        Some(Error::AccessDenied)
    );
    assert!(matches!(
        world.server.query(session, &extents, &world.store),
        Some(ToClient::Extents { inline: Some(_), .. })
    ));
    // Only root may: what stat shows is told, and nothing of the content.
    chmod(&mut world, session, 0o600);
    let grants = grants_of(answer(&mut world, session, stat(&tree.f), content(Kind::Read), AskMode::Lease));
    let values = &grants[0].values;
    assert_eq!(values.content.map(|head| (head.size, head.key)), Some((1, None)));
    assert_eq!((&values.inline, &values.extents), (&None, &None));
    let refused = ToClient::Shipped { number: 9, result: Err(Error::AccessDenied) };
    assert_eq!(world.server.query(session, &extents, &world.store), Some(refused.clone()));
    world.send(session, extents);
    assert_eq!(world.told(session), [refused]);
    // Nor unasked, with the directory, once the file is no longer contended.
    world.now = world.now.after_ms(11_000);
    let machine = world.enrol(squashed(&tree)).unwrap();
    let next = world.open(machine.0, 1);
    world.send(session, ToServer::Goodbye);
    let grants = world.granted(next, list(&tree.inside), AskMode::Lease);
    let f = grants.iter().find(|grant| grant.file == tree.f).unwrap();
    assert!(f.values.inline.is_none() && f.values.attributes.is_some() && !f.whole);
    // Everybody may write.
    chmod(&mut world, next, 0o666);
    let told = answer(&mut world, next, stat(&tree.f), content(Kind::Write), AskMode::Lease);
    assert_eq!(refusal(&told), None);
    assert_eq!(world.update(next, write), Ok(()));
}

/// What a subtree's session may do in the property test below, by number.
fn operation(tree: &Tree, kind: u8, a: usize, b: usize) -> Operation {
    let files = [
        &ROOT,
        &tree.inside,
        &tree.f,
        &tree.sub,
        &tree.g,
        &tree.outside,
        &tree.secret,
        &tree.dir,
        &tree.both,
    ];
    let names = ["in", "out", "f", "sub", "g", "secret", "dir", "both", "new"];
    let (x, y) = (files[a % files.len()], files[b % files.len()]);
    let (n, m) = (names[b % names.len()], names[a % names.len()]);
    match kind % 9 {
        0 => stat(x),
        1 => list(x),
        2 => lookup(x, n),
        3 => rename(x, n, y, m, 60),
        4 => link(x, y, n, 61),
        5 => unlink(x, n, false),
        6 => create(x, n, FileKind::Regular, 62, 4000),
        7 => Operation::Open {
            file: x.clone(),
            mask: 4,
            open: Open::posix(true, false),
            own: Open::CLOSED,
            cred: Cred::default(),
        },
        _ => Operation::ReadLink { file: x.clone() },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever a session of a subtree asks for or logs, while others move things about, nothing is told of any file that is outside at that time.
    #[test]
    fn no_sequence_of_requests_tells_of_a_file_outside(
        steps in proptest::collection::vec((0..12u8, 0..9usize, 0..9usize, 0..4usize), 1..40),
    ) {
        let (mut world, tree, mut session) = with(|tree| below(&tree.inside));
        let (other, mut first, mut incarnation) = (world.open(1, 2), 1, 1);
        for (kind, a, b, mode) in steps {
            let op = operation(&tree, kind, a, b);
            match kind {
                0..9 => {
                    let wants = if a % 2 == 0 { vec![] } else { everything(op.files()[0]) };
                    world.ask(session, op, wants, MODES[mode]);
                }
                9 => {
                    let entries = vec![update(operation(&tree, 3 + a as u8 % 4, a, b))];
                    world.send(session, ToServer::Log { first, entries });
                    first += 1;
                }
                10 => {
                    let file = operation(&tree, 0, a, b).files()[0].clone();
                    world.send(session, ToServer::Extents { number: 1, file, from: 0 });
                }
                _ => _ = world.ask(other, operation(&tree, 3 + a as u8 % 3, a, b), vec![], AskMode::Ship),
            }
            let within = |world: &World, file: &FileId| is_within(world, &tree.inside, file);
            for message in world.told(session) {
                match message {
                    ToClient::Granted { grants, .. } | ToClient::Reported { values: grants, .. } => {
                        for grant in grants {
                            prop_assert!(within(&world, &grant.file), "{grant:?}");
                            for (label, entry) in &grant.values.children {
                                prop_assert!(within(&world, &entry.file), "{label} {entry:?}");
                            }
                            for link in grant.values.links.iter().flatten() {
                                // The root's own name is above it.
                                prop_assert!(within(&world, &link.dir), "{link:?}");
                            }
                        }
                    }
                    ToClient::Extents { file, inline, extents, .. } => {
                        prop_assert!(within(&world, &file) || inline.is_none() && extents.is_empty());
                    }
                    ToClient::Shipped { result: Ok((namespace::Answer::Entry(entry), _)), .. } => {
                        prop_assert!(within(&world, &entry.file), "{entry:?}");
                    }
                    ToClient::Recall { leases } => {
                        let entries = letting_go(leases);
                        let count = entries.len() as u64;
                        world.send(session, ToServer::Log { first, entries });
                        first += count;
                    }
                    // An update without a lease ends the session; the machine comes again.
                    ToClient::Fenced => {
                        incarnation += 1;
                        (session, first) = (world.open(2, incarnation), 1);
                    }
                    _ => {}
                }
            }
            for message in world.told(other) {
                if let ToClient::Recall { leases } = message {
                    world.release(other, leases);
                }
            }
        }
    }
}

/// By looking through all paths.
fn is_within(world: &World, root: &FileId, file: &FileId) -> bool {
    let mut paths = vec![(String::new(), ROOT)];
    let mut at = 0;
    while let Some((path, _)) = paths.get(at).cloned() {
        for name in ["in", "out", "f", "sub", "g", "secret", "dir", "both", "new"] {
            let path = format!("{path}/{name}");
            paths.extend(world.server.resolve(&world.store, path.as_bytes()).map(|file| (path, file)));
        }
        at += 1;
    }
    let roots: Vec<&str> = paths.iter().filter(|(_, f)| f == root).map(|(path, _)| path.as_str()).collect();
    let below = |path: &str| {
        roots
            .iter()
            .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    paths.iter().any(|(path, found)| found == file && below(path))
}
