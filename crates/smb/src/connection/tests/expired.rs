//! A session whose user's proof has ended: it lets go of what it has, and goes on once it is
//! renewed.

use super::block_on;
use super::late::Session;
use super::samples::{create, tree_connect};
use crate::auth::tests::Client;
use crate::connection::binding::tests::Bed;
use crate::wire::bodies::{Empty, FileId, FileRequest, LockElement, LockRequest};
use crate::wire::{Command, NtStatus, Writer};
use node::{Machine, MachineSettings};

/// A LOCK of the first byte.
fn lock(file: FileId, flags: u32) -> Vec<u8> {
    let mut body = LockRequest { count: 1, sequence: 0, file }.to_bytes();
    body.u64(0);
    body.u64(1);
    body.u32(flags);
    body.u32(0);
    body
}

#[test]
fn a_session_that_has_expired_does_nothing_but_let_go_until_it_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    block_on(async {
        let bed = Bed::sharing(machine.store().clone(), false);
        let (mut session, files) = Session::begin(&bed, "f").await;
        let (tree, id) = (session.tree, session.id);
        let close = FileRequest { file: files.file, ..FileRequest::default() }.to_bytes();
        let (exclusive, unlock) = (LockElement::EXCLUSIVE | LockElement::AT_ONCE, LockElement::UNLOCK);
        session.does(Command::Lock, tree, &lock(files.file, exclusive)).await;
        let of_dir = FileRequest { file: files.dir, ..FileRequest::default() }.to_bytes();
        bed.server.session(id).unwrap().holds_until(Some(0));
        for (command, body) in [
            (Command::Create, create("f", 1, 0x40, &[])),
            (Command::TreeConnect, tree_connect("share")),
            (Command::Flush, of_dir),
            (Command::Lock, lock(files.file, exclusive)),
            (Command::TreeDisconnect, Empty::default().to_bytes()),
        ] {
            let (header, _) = session.asks(command, tree, &body).await;
            assert_eq!(header.status, NtStatus::NETWORK_SESSION_EXPIRED, "{command:?}");
        }
        session.does(Command::Echo, 0, &Empty::default().to_bytes()).await;
        session.does(Command::Lock, tree, &lock(files.file, unlock)).await;
        session.does(Command::Close, tree, &close).await;
        let user = Client::of("root", "secret");
        let (header, _) = session.peer.log_on((id, 0), &user, Some(&session.key)).await;
        assert_eq!((header.status, header.session_id), (NtStatus::SUCCESS, id));
        session.opens(tree, "f", 1, 0x40).await;
        bed.server.session(id).unwrap().holds_until(Some(0));
        session.does(Command::Logoff, 0, &Empty::default().to_bytes()).await;
        session.peer.connection.close().await;
    });
    machine.stop().unwrap();
}
