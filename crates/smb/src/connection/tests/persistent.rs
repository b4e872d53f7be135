//! Persistent opens, over the end of a server above a real machine.

use super::block_on;
use super::late::Session;
use super::samples::create;
use crate::connection::binding::tests::Bed;
use crate::mechanisms::Mechanisms;
use crate::records::restore;
use crate::server::Server;
use crate::wire::bodies::{CreateResponse, FileId, FileRequest};
use crate::wire::contexts::{LeaseContext, LeaseV2};
use crate::wire::{Command, NtStatus, Writer};
use node::{Machine, MachineSettings};
use objects::{
    AccessMask, Caching, ClientGuid, CreateDisposition, CreateOptions, ObjectPath, OpenRequest, Sharing,
    Store,
};

const GUID: [u8; 16] = [5; 16];

fn lease() -> (&'static [u8], Vec<u8>) {
    let v2 = Some(LeaseV2 { parent: None, epoch: 0 });
    (b"RqLs", LeaseContext { key: [9; 16], state: 7, flags: 0, v2 }.to_bytes())
}

fn persistent() -> Vec<u8> {
    let mut data = Vec::new();
    data.u32(60_000);
    data.u32(2);
    data.u64(0);
    data.put(&GUID);
    create("kept", 3, 0x40, &[lease(), (b"DH2Q", data)])
}

fn comes_back(file: FileId, guid: [u8; 16], flags: u32) -> Vec<u8> {
    let mut data = Vec::new();
    data.u64(file.persistent);
    data.u64(file.volatile);
    data.put(&guid);
    data.u32(flags);
    create("kept", 3, 0x40, &[lease(), (b"DH2C", data)])
}

/// The state and the epoch of the lease in an answer to a create.
fn leased(answer: &[u8]) -> (u32, u16) {
    let fixed = CreateResponse::parse(answer).unwrap();
    let at = fixed.context_offset as usize;
    let contexts = &answer[at..at + fixed.context_length as usize];
    let name = contexts.windows(4).position(|window| window == b"RqLs").unwrap();
    let lease = LeaseContext::parse(&contexts[name + 8..name + 60]).unwrap();
    (lease.state, lease.v2.unwrap().epoch)
}

fn records(bed: &Bed) -> usize {
    let Ok(entries) = std::fs::read_dir(bed.data.join("smb-opens")) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_file()).count()
}

/// A server of a machine, whose share is continuously available or not.
fn bed(machine: &Machine, continuous: bool) -> Bed {
    Bed::sharing(Store::new(machine.file_service()), continuous)
}

/// Ends the server as a process ends that is killed, and starts the next one.
async fn restart(bed: &mut Bed, machine: &Machine) {
    let store = Store::new(machine.file_service());
    bed.server = Server::new(store, bed.data.clone(), "box", Mechanisms::default()).unwrap();
    restore(&bed.server).await;
}

async fn opened(bed: &Bed) -> FileId {
    let (mut session, _) = Session::begin(bed, "one").await;
    let tree = session.tree;
    let (_, answer) = session.does(Command::Create, tree, &persistent()).await;
    assert_eq!(leased(&answer), (7, 1));
    CreateResponse::parse(&answer).unwrap().file
}

#[test]
fn a_client_finds_its_persistent_open_at_the_next_server() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    block_on(async {
        let mut bed = bed(&machine, true);
        let file = opened(&bed).await;
        assert_eq!(records(&bed), 2);
        restart(&mut bed, &machine).await;
        let (mut session, _) = Session::begin(&bed, "two").await;
        let tree = session.tree;
        let mut status = async |body: Vec<u8>| session.asks(Command::Create, tree, &body).await;
        assert_eq!(status(create("kept", 1, 0, &[])).await.0.status, NtStatus::FILE_NOT_AVAILABLE);
        let not_found = NtStatus::OBJECT_NAME_NOT_FOUND;
        assert_eq!(status(comes_back(file, GUID, 0)).await.0.status, not_found, "it does not say persistent");
        assert_eq!(status(comes_back(file, [6; 16], 2)).await.0.status, not_found);
        // By its number, or by its create alone.
        let (header, answer) = status(comes_back(FileId { persistent: 1, volatile: 1 }, GUID, 2)).await;
        assert_eq!(header.status, NtStatus::SUCCESS);
        assert_eq!(CreateResponse::parse(&answer).unwrap().file, file);
        assert_eq!(leased(&answer), (7, 1), "the lease is as it was");
        let body = FileRequest { file, ..FileRequest::default() }.to_bytes();
        session.does(Command::Close, tree, &body).await;
        assert_eq!(records(&bed), 0, "nothing is kept of what is closed");
    });
    machine.stop().unwrap();
}

#[test]
fn a_lease_does_not_outlive_a_change_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    block_on(async {
        let mut bed = bed(&machine, true);
        let file = opened(&bed).await;
        let store = Store::new(machine.file_service());
        bed.server = Server::new(store.clone(), bed.data.clone(), "box", Mechanisms::default()).unwrap();
        // Somebody writes before the next server has come so far.
        let root = store.root(b"/").await.unwrap();
        let request = OpenRequest {
            client: ClientGuid([3; 16]),
            access: AccessMask::WRITE_DATA,
            sharing: Sharing::ALL,
            disposition: CreateDisposition::Open,
            options: CreateOptions(0),
            attributes: Default::default(),
            allocation: 0,
            eas: Vec::new(),
            security: None,
            caching: Caching::Nothing,
            mode: None,
            leases_directories: true,
            is_posix: false,
        };
        let path = ObjectPath::parse("kept", false).unwrap();
        let other = store.open(&Default::default(), &root, &path, request).await.unwrap().open;
        other.write(0, b"else".as_slice().into(), true).await.unwrap();
        other.close(false).await.unwrap();
        restore(&bed.server).await;
        let (mut session, _) = Session::begin(&bed, "two").await;
        let tree = session.tree;
        let (_, answer) = session.does(Command::Create, tree, &comes_back(file, GUID, 2)).await;
        assert_eq!(leased(&answer), (0, 3));
    });
    machine.stop().unwrap();
}

#[test]
fn only_a_share_that_is_continuously_available_has_persistent_opens() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    block_on(async {
        let mut bed = bed(&machine, false);
        let file = opened(&bed).await;
        assert_eq!(records(&bed), 0);
        restart(&mut bed, &machine).await;
        let (mut session, _) = Session::begin(&bed, "two").await;
        let tree = session.tree;
        let (header, _) = session.asks(Command::Create, tree, &comes_back(file, GUID, 2)).await;
        assert_eq!(header.status, NtStatus::INVALID_PARAMETER);
    });
    machine.stop().unwrap();
}

#[test]
fn a_damaged_record_is_a_lost_open_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    block_on(async {
        let mut bed = bed(&machine, true);
        let file = opened(&bed).await;
        let opens = bed.data.join("smb-opens");
        let name = format!("{:016x}", file.persistent);
        for file in [opens.join(&name), opens.join("copies").join(&name)] {
            std::fs::write(file, b"{}").unwrap();
        }
        restart(&mut bed, &machine).await;
        let (mut session, _) = Session::begin(&bed, "two").await;
        let tree = session.tree;
        let (header, _) = session.asks(Command::Create, tree, &comes_back(file, GUID, 2)).await;
        assert_eq!(header.status, NtStatus::OBJECT_NAME_NOT_FOUND);
        let (header, _) = session.asks(Command::Create, tree, &create("kept", 1, 0, &[])).await;
        assert_eq!(header.status, NtStatus::SUCCESS);
    });
    machine.stop().unwrap();
}
