//! Machines whose users all count as one.

use super::*;

#[test]
fn who_is_squashed_acts_as_that_user_only() {
    let (mut world, tree, session) = with(squashed);
    let asks = |cred: Cred| {
        Operation::Lookup(operation::Lookup { dir: tree.inside.clone(), label: label("f"), cred })
    };
    let mut in_group = user(1000);
    in_group.groups.push(0);
    let able = Cred { capabilities: Capabilities::NONE.with(Capability::Chown), ..user(1000) };
    for cred in [Cred::default(), user(1001), in_group, able] {
        for mode in MODES {
            let told = answer(&mut world, session, asks(cred.clone()), vec![], mode);
            assert_eq!(refusal(&told), Some(Error::AccessDenied));
        }
        let remove = Operation::Unlink(operation::Unlink {
            dir: tree.inside.clone(),
            label: label("f"),
            directory: false,
            open: false,
            cred,
            time: at(20),
            pending: None,
        });
        assert_eq!(world.update(session, remove), Err(Error::AccessDenied));
    }
    assert_eq!(refusal(&answer(&mut world, session, asks(user(1000)), vec![], AskMode::Lease)), None);
    // As that user the machine may do only what the user may: nothing in root's directory.
    let remove = Operation::Unlink(operation::Unlink {
        dir: tree.inside.clone(),
        label: label("f"),
        directory: false,
        open: false,
        cred: user(1000),
        time: at(20),
        pending: None,
    });
    let told = answer(&mut world, session, remove, vec![], AskMode::Ship);
    assert_eq!(refusal(&told), Some(Error::AccessDenied));
}

#[test]
fn who_is_squashed_gets_no_content_that_its_user_may_not_read_and_none_to_write_that_he_may_not() {
    let (mut world, tree, session) = with(squashed);
    let chmod = |world: &mut World, holder: SessionId, mode| {
        let other = world.open(1, 2);
        let change =
            AttributeChange { mode: Some(mode), mtime: None::<SetTime>, ..AttributeChange::default() };
        let set = Operation::SetAttributes(operation::SetAttributes {
            file: tree.f.clone(),
            change,
            cred: Cred::default(),
            time: at(50),
        });
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
    assert_eq!(grants[0].values.inline, Some(sealed(b"f")));
    assert!(!grants[0].whole && grants[0].fields.contains(&(Field::Content, Kind::Read)));
    let write = publish(&tree.f, 2, 1, inline(b"x"));
    assert_eq!(
        refusal(&answer(&mut world, session, write.clone(), vec![], AskMode::Ship)),
        Some(Error::AccessDenied)
    );
    assert!(matches!(
        world.server.query(session, &extents, &world.store),
        Some(ToClient::Extents { inline: Some(_), .. })
    ));
    // Only root may read it: the machine gets the values of stat, and nothing of the content.
    chmod(&mut world, session, 0o600);
    let grants = grants_of(answer(&mut world, session, stat(&tree.f), content(Kind::Read), AskMode::Lease));
    let values = &grants[0].values;
    assert_eq!(values.content.map(|head| (head.size, head.key)), Some((1, None)));
    assert_eq!((&values.inline, &values.extents), (&None, &None));
    let refused = ToClient::Shipped { number: 9, result: Err(Error::AccessDenied) };
    assert_eq!(world.server.query(session, &extents, &world.store), Some(refused.clone()));
    world.send(session, extents);
    assert_eq!(world.told(session), [refused]);
    // Nor does the content come unasked, with the directory, once the file is no longer contended.
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

#[test]
fn who_is_squashed_moves_no_access_time_of_what_its_user_may_not_read() {
    let (mut world, tree, session) = with(squashed);
    let accessed = || Operation::Accessed(operation::Accessed { file: tree.f.clone(), time: at(1 << 33) });
    let attributes = |world: &mut World| {
        let wants = vec![want(&tree.f, Field::Attributes, Kind::Write)];
        grants_of(answer(world, session, stat(&tree.f), wants, AskMode::Lease))
    };
    attributes(&mut world);
    assert_eq!(world.update(session, accessed()), Ok(()), "everybody may read it");
    // Root makes it his own.
    let root = world.open(1, 9);
    let change = AttributeChange { mode: Some(0o620), ..AttributeChange::default() };
    let set = Operation::SetAttributes(operation::SetAttributes {
        file: tree.f.clone(),
        change,
        cred: Cred::default(),
        time: at(50),
    });
    world.ask(root, set, vec![], AskMode::Ship);
    while world.yields(session) > 0 {}
    world.send(root, ToServer::Goodbye);
    attributes(&mut world);
    assert_eq!(world.update(session, accessed()), Err(Error::AccessDenied));
}
