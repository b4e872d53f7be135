//! Authorities, and the keys by which machines are known.

use crate::support::*;
use directory::{CertificateAuthority, FOUNDER, Input, MachineCredential};
use wire::{EnrolError, MachineId, Rights};

fn authority(number: u64) -> CertificateAuthority {
    CertificateAuthority {
        certificate: vec![number as u8; 100],
        key: vec![number as u8; 40],
        cluster: [7; 32],
    }
}

/// Another authority begins, if it may.
fn authorize(world: &mut World, number: u64) -> bool {
    world.input(Input::Authorize { number, authority: authority(number) });
    world.authorized.pop() == Some((number, true))
}

fn shows(world: &mut World, machine: MachineId, key: u8, certified: u64, itself: bool) -> MachineCredential {
    world.input(Input::Known {
        machine,
        known: MachineCredential { key: Some([key; 32]), certified, holds: 0 },
        itself,
    });
    world.server.known(machine, &world.store).unwrap()
}

fn numbers(world: &World) -> Vec<u64> {
    let authorities = world.server.authorities(&world.store);
    assert!(authorities.iter().all(|(number, kept)| *kept == authority(*number)));
    authorities.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn the_next_authority_is_the_next_one_whoever_makes_another_meanwhile() {
    let mut world = World::new();
    assert!(!authorize(&mut world, 2));
    assert!(authorize(&mut world, 1));
    assert!(!authorize(&mut world, 1));
    assert!(authorize(&mut world, 2));
    let huge = CertificateAuthority { certificate: vec![0; 5000], key: Vec::new(), cluster: [7; 32] };
    world.input(Input::Authorize { number: 3, authority: huge });
    assert_eq!(world.authorized.pop(), Some((3, false)));
    world.restart();
    assert_eq!(numbers(&world), [1, 2]);
}

#[test]
fn an_authority_is_kept_until_every_machine_has_a_certificate_of_a_later_one() {
    let mut world = World::new();
    assert!(authorize(&mut world, 1));
    let machine = world.enrol(Rights::FULL).unwrap();
    let late = world.enrol(Rights::FULL).unwrap();
    assert_eq!(
        world.server.known(machine, &world.store),
        Some(MachineCredential { key: Some([0; 32]), certified: 1, holds: 0 })
    );
    assert_eq!(
        shows(&mut world, FOUNDER, 9, 1, true),
        MachineCredential { key: Some([9; 32]), certified: 1, holds: 0 }
    );
    assert!(authorize(&mut world, 2));
    assert_eq!(shows(&mut world, FOUNDER, 9, 2, true).certified, 2);
    assert_eq!(shows(&mut world, machine, 0, 2, false).certified, 2);
    assert_eq!(numbers(&world), [1, 2], "one has nothing newer");
    // No number goes back, and no authority counts that does not exist.
    assert_eq!(shows(&mut world, machine, 0, 1, false).certified, 2);
    assert_eq!(shows(&mut world, machine, 0, 3, false).certified, 2);
    world.input(Input::Expel { machine: late });
    assert_eq!(numbers(&world), [2]);
    // A machine that joins gets a certificate of the latest authority.
    let next = world.enrol(Rights::FULL).unwrap();
    assert_eq!(world.server.known(next, &world.store).unwrap().certified, 2);
    // For a machine that stays away for ever, as many authorities are kept as it may need.
    (3..30).for_each(|number| assert!(authorize(&mut world, number)));
    assert_eq!(numbers(&world), (14..30).collect::<Vec<_>>());
}

#[test]
fn a_machine_is_known_by_the_key_it_joined_with() {
    let mut world = World::new();
    assert!(authorize(&mut world, 1));
    let machine = world.enrol(Rights::FULL).unwrap();
    assert!(authorize(&mut world, 2));
    // A forger has made a certificate for it, with the authority's key.
    assert_eq!(
        shows(&mut world, machine, 7, 2, false),
        MachineCredential { key: Some([0; 32]), certified: 1, holds: 0 }
    );
    // The founder names its own key; after a restoration from a backup it has another one.
    assert_eq!(shows(&mut world, FOUNDER, 1, 1, true).key, Some([1; 32]));
    assert_eq!(
        shows(&mut world, FOUNDER, 2, 2, false),
        MachineCredential { key: Some([1; 32]), certified: 1, holds: 0 }
    );
    assert_eq!(
        shows(&mut world, FOUNDER, 3, 2, true),
        MachineCredential { key: Some([3; 32]), certified: 2, holds: 0 }
    );
    world.input(Input::Expel { machine });
    assert_eq!(shows(&mut world, machine, 0, 2, false).certified, 1, "it does not belong any more");
}

#[test]
fn nobody_joins_by_a_token_that_names_an_earlier_authority() {
    let mut world = World::new();
    assert!(authorize(&mut world, 1));
    world.input(Input::Invite { token: [5; 32], rights: Rights::FULL, at: 0, until: 9 });
    assert!(authorize(&mut world, 2));
    let name = "late".to_owned();
    world.input(Input::Enrol { token: [5; 32], name, key: [3; 32], at: 1, connection: 77 });
    assert_eq!(world.enrolled.pop(), Some(Err(EnrolError::UnknownToken)));
}

#[test]
fn who_has_had_a_key_is_remembered_as_long_as_the_machine() {
    let mut world = World::new();
    assert!(authorize(&mut world, 1));
    let machine = world.enrol(Rights::FULL).unwrap();
    let holds = |world: &mut World, holds| {
        let before = world.server.known(machine, &world.store).unwrap();
        world.input(Input::Known { machine, known: MachineCredential { holds, ..before }, itself: false });
        world.server.all_known(&world.store)[1].1.holds
    };
    assert_eq!(holds(&mut world, 1), 1);
    assert_eq!(holds(&mut world, 0), 1);
    assert_eq!(holds(&mut world, 2), 1, "there is none");
    world.input(Input::Expel { machine });
    world.restart();
    assert_eq!(world.server.all_known(&world.store)[1].1.holds, 1);
}
