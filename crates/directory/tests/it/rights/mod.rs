//! The rights of a machine: a subtree, reading only, as one user. The clients here forge their
//! messages.

mod forger;
mod one_user;
mod reading;
mod subtree;

use crate::support::*;
use ident::FileId;
use lease::{Field, Kind, Lease, OpenModes, SessionId};
use namespace::{
    AttributeChange, Capabilities, Capability, Cred, Error, FileKind, Link, LockChange, LockKind, LockRange,
    LockSpace, Operation, RenameMode, SetTime, operation,
};
use wire::{AskMode, FileGrant, Rights, ToClient, ToServer};

const ROOT: FileId = FileId::root();
const MODES: [AskMode; 4] = [AskMode::Lease, AskMode::Page { after: 0 }, AskMode::Report, AskMode::Ship];

/// `/in/f`, `/in/sub/g`, `/out/secret`, `/out/dir`, and `/out/both`, which is `/in/both` too. No
/// session has leases.
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
                let bytes = inline(name.as_bytes());
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
    Operation::Link(operation::Link {
        file,
        dir,
        label,
        position,
        cred: Cred::default(),
        time: at(20),
        replaced: None,
        open: false,
    })
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
    Cred { uid: id, gid: id, ..Cred::default() }
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
