//! The bytes that a file takes.

use crate::support::*;
use ident::FileId;
use namespace::{ContentChange, FileKind};

const ROOT: FileId = FileId::root();

/// Bytes that redb takes beside key and value of a row (the ends of both), and the fill of its
/// pages.
const ROW_BYTES: usize = 8;
const FILL: f64 = 0.67;

#[test]
fn a_small_file_takes_less_than_400_bytes_of_store() {
    let mut world = World::new();
    let session = world.open(1, 1);
    let n = world.take_root(session);
    let dir = world.create(session, &ROOT, "some-directory", FileKind::Directory, n);
    let dir_id = made(&dir);
    world.input_unchecked(directory::Input::Message {
        session,
        message: wire::ToServer::Log { answer: true, first: 1, entries: vec![update(dir)] },
    });
    world.told(session);
    let before = (world.store.bytes(), world.store.rows.len());
    let count = 2000;
    let mut position = 1;
    let mut entries = Vec::new();
    let mut block = (1, 65);
    for i in 0..count {
        if position == block.1 {
            world.send(session, wire::ToServer::Reserve { dir: dir_id.clone() });
            let Some(wire::ToClient::Reserved { first, end, .. }) = world.told(session).pop() else {
                panic!()
            };
            block = (first, end);
            position = first;
        }
        let op = world.create(session, &dir_id, &format!("file-number-{i}.txt"), FileKind::Regular, position);
        position += 1;
        let file = made(&op);
        entries.push(update(op));
        entries.push(update(publish(&file, 1, 0, ContentChange::None)));
    }
    let message = wire::ToServer::Log { answer: true, first: 2, entries };
    world.input_unchecked(directory::Input::Message { session, message });
    let Some(wire::ToClient::Applied { rejected, .. }) = world.told(session).pop() else { panic!() };
    assert_eq!(rejected, []);
    // A leased file has one row more, which goes with the lease.
    world.send(session, wire::ToServer::Goodbye);
    let after = (world.store.bytes(), world.store.rows.len());
    let (bytes, rows) = (after.0 - before.0, after.1 - before.1);
    let each = (bytes + rows * ROW_BYTES) as f64 / FILL / f64::from(count);
    assert!(each < 400.0, "{each} bytes");
}
