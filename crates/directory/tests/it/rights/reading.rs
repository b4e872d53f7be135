//! Machines that may only read.

use super::*;

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
    let open = OpenModes::posix(true, false);
    let opens = Operation::Open(operation::Open {
        file: tree.f.clone(),
        mask: 4,
        open,
        own: OpenModes::CLOSED,
        cred: Cred::default(),
    });
    assert_eq!(refusal(&answer(&mut world, session, opens, vec![], AskMode::Lease)), None);
    let lock = LockChange {
        owner: 1,
        pid: 1,
        space: LockSpace::Posix,
        range: LockRange::WHOLE,
        kind: Some(LockKind::Read),
    };
    let locks = Operation::Lock(operation::Lock { file: tree.f.clone(), change: lock });
    assert_eq!(refusal(&answer(&mut world, session, locks.clone(), vec![], AskMode::Lease)), None);
    assert_eq!(world.update(session, locks), Ok(()));
    let operations = [
        create(&tree.inside, "new", FileKind::Regular, 50, 4000),
        unlink(&tree.inside, "f", false),
        rename(&tree.inside, "f", &tree.inside, "h", 50),
        link(&tree.f, &tree.inside, "again", 50),
        publish(&tree.f, 2, 1, inline(b"x")),
        Operation::Accessed(operation::Accessed { file: tree.f.clone(), time: at(90) }),
        Operation::Dispose(operation::Dispose { file: tree.f.clone(), time: at(90) }),
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
    world.send(session, ToServer::Allow { held: (0, 0), want: (1 << 20, 10), replaces: 0 });
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
