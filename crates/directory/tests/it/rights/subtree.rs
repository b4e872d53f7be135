//! Outside a machine's subtree there is nothing for it.

use super::*;

#[test]
fn outside_its_subtree_there_is_nothing_for_a_machine() {
    let (mut world, tree, session) = with(|tree| below(&tree.inside));
    for mode in MODES {
        for file in [&ROOT, &tree.outside, &tree.secret, &tree.dir, &ROOT.child(4711)] {
            // The answers are the same for a file that exists and for one that does not.
            for operation in [stat(file), list(file), lookup(file, "secret")] {
                let told = answer(&mut world, session, operation, vec![], mode);
                assert_eq!(refusal(&told), Some(Error::Stale), "{file} {mode:?}");
            }
            // Nor is there an answer under the pretext of a file within.
            let told = answer(&mut world, session, stat(&tree.f), everything(file), mode);
            if let ToClient::Granted { gone, .. } | ToClient::Reported { gone, .. } = &told {
                assert_eq!(gone, std::slice::from_ref(file));
            }
            assert!(grants_of(told).iter().all(|grant| grant.file == tree.f));
        }
    }
    // A file within is whole.
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
        Operation::Rename(operation::Rename {
            from_dir: tree.inside.clone(),
            from: label("f"),
            to_dir: tree.outside.clone(),
            to: label("secret"),
            mode: RenameMode::Exchange,
            position: 50,
            whiteout: None,
            open: false,
            cred: Cred::default(),
            time: at(30),
            source: None,
            replaced: None,
        }),
        create(&tree.outside, "new", FileKind::Regular, 50, 4000),
        unlink(&tree.outside, "secret", false),
        Operation::SetAttributes(operation::SetAttributes {
            file: tree.secret.clone(),
            change: AttributeChange { mode: Some(0o777), ..AttributeChange::default() },
            cred: Cred::default(),
            time: at(30),
        }),
        Operation::SetDisposition(operation::SetDisposition {
            file: tree.both.clone(),
            link: Some(Link { dir: tree.outside.clone(), label: label("both") }),
            own: {
                let mut own = OpenModes::CLOSED;
                own.set(&Field::Mode(lease::Mode::AccessDelete), true);
                own
            },
            cred: Cred::default(),
            time: at(30),
        }),
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
    assert_eq!(grant.values.inline, Some(sealed(b"both")));
    assert_eq!(grant.values.links, None);
    // Another machine deletes it by the other name: this machine learns that it goes, and not its
    // name there.
    let other = world.open(1, 2);
    let mut own = OpenModes::CLOSED;
    own.set(&Field::Mode(lease::Mode::AccessDelete), true);
    let name = Link { dir: tree.outside.clone(), label: label("both") };
    let (file, cred, time) = (tree.both.clone(), Cred::default(), at(30));
    let delete =
        Operation::SetDisposition(operation::SetDisposition { file, link: Some(name), own, cred, time });
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
    // A machine with all rights moves the directory out.
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
    // The machine has the lease for the content that it wrote. It can make no name there any more,
    // and it hears that something is lost.
    let content = inline(b"written");
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
    let closes =
        Operation::Access(operation::Access { file: tree.g.clone(), mask: 0, cred: Cred::default() });
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
