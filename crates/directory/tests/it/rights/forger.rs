//! A client that tries everything.

use super::*;
use proptest::prelude::*;

/// The operations that a subtree's session may do in the property test, by number.
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
        7 => Operation::Open(operation::Open {
            file: x.clone(),
            mask: 4,
            open: OpenModes::posix(true, false),
            own: OpenModes::CLOSED,
            cred: Cred::default(),
        }),
        _ => Operation::ReadLink(operation::ReadLink { file: x.clone() }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A session of a subtree sends arbitrary requests and log entries, while others move files
    /// about. It never learns of a file that is outside at that time.
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
                    world.send(session, ToServer::Log { answer: true, first, entries });
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
                    ToClient::Recall { leases, .. } => {
                        let entries = releasing(leases);
                        let count = entries.len() as u64;
                        world.send(session, ToServer::Log { answer: true, first, entries });
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
                if let ToClient::Recall { leases, .. } = message {
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
