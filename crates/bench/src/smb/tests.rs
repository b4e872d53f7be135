//! The client against our server, in this process.

use super::client::{OpenPurpose, PASSWORD, READ_AND_HANDLE, SHARE, SmbClient, USER};
use super::protection::Way;
use node::{Machine, MachineSettings};
use smb::accounts::{Share, User, add_share, add_user};
use smb::{Listening, Mechanisms, Server};

const MIB: usize = 1 << 20;

/// Serves a new machine, and calls `what` with its address.
fn served(what: impl FnOnce(std::net::SocketAddr)) {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start(dir.path(), "a test", MachineSettings::default()).unwrap();
    add_user(dir.path(), User::new(USER, Some(PASSWORD), 0, 0, Vec::new())).unwrap();
    add_share(dir.path(), Share::new(SHARE, "/")).unwrap();
    let ntlm = Mechanisms::default();
    let server = Server::new(machine.store().clone(), dir.path().to_path_buf(), "box", ntlm).unwrap();
    let listening = Listening::start(server, ([127, 0, 0, 1], 0).into()).unwrap();
    what(listening.address());
    drop(listening);
    machine.stop().unwrap();
}

#[test]
fn files_are_written_read_and_listed_both_ways() {
    served(|address| {
        for (way, name) in [(Way::Signed, "signed"), (Way::Encrypted, "encrypted")] {
            let mut client = SmbClient::connect(address, way).unwrap();
            let (dir, lease) = client.open(name, OpenPurpose::MakeDirectory).unwrap();
            assert_eq!(lease, 0);
            client.close(dir).unwrap();
            let path = format!("{name}\\file");
            let (file, _) = client.open(&path, OpenPurpose::Replace).unwrap();
            let data = (0..MIB).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
            client.write(file, 0, &data).unwrap();
            client.write(file, MIB as u64, b"more").unwrap();
            client.flush(file).unwrap();
            client.close(file).unwrap();
            let (file, _) = client.open(&path, OpenPurpose::Read).unwrap();
            assert_eq!(client.read(file, 0, MIB).unwrap(), MIB);
            assert_eq!(client.content(), data);
            assert_eq!(client.read(file, MIB as u64, MIB).unwrap(), 4);
            assert_eq!(client.content(), b"more");
            client.close(file).unwrap();
            let (dir, lease) = client.open(name, OpenPurpose::ListUnderLease).unwrap();
            assert_eq!((client.list(dir).unwrap(), lease), (3, READ_AND_HANDLE));
            client.close(dir).unwrap();
            assert!(client.open("missing", OpenPurpose::Read).is_err());
            if way == Way::Signed {
                client.open_and_close(&path, OpenPurpose::Read).unwrap();
                assert!(client.open_and_close("missing", OpenPurpose::Read).is_err());
            }
            client.log_off().unwrap();
        }
    });
}
