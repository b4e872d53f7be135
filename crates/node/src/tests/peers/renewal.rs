//! A renewal of the authority: machines and servers still recognize each other.

use super::*;
use data_dir::DataDir;
use net::fingerprint;

fn renew(office: &TestCluster) {
    admin::renew_authority(office.dirs[0].path(), &mut |_| {}).unwrap();
}

impl TestCluster {
    fn authority(&self) -> Authority {
        self.server.server().unwrap().authority().unwrap()
    }

    /// Waits until the server shows a certificate of the latest authority itself.
    fn settles(&self) {
        let latest = fingerprint(self.authority().certificate());
        // The test does not read the server's files: opening them repairs them, which must not
        // happen beside the server.
        let server = self.server.server().unwrap();
        while server.credentials().certified_by() != latest {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn known(&self, machine: MachineId) -> directory::MachineCredential {
        self.server.server().unwrap().group().query(|it, store| it.known(machine, store)).unwrap()
    }
}

fn machine_in(dir: &Path) -> MachineId {
    MachineId(DataDir::take(dir, "a test").unwrap().identity().machine)
}

/// A certificate for `machine` by a forger that has the authority's key, but not the machine's.
fn forged(authority: &Authority, dir: &Path, machine: MachineId) -> Caller {
    let credentials = authority.credentials(dir, machine).unwrap();
    CredentialStore::of(dir, credentials).unwrap().caller()
}

#[test]
fn a_machine_has_another_certificate_at_its_next_greeting_and_the_earlier_one_is_refused_then() {
    let mut office = TestCluster::new();
    let address = office.address.clone();
    let config = office.join("clerk");
    let dir = office.dirs[1].path().to_path_buf();
    let earlier = Credentials::open(&dir).unwrap();
    run(async {
        let (mut frames, _) = session(&address, &config).await;
        renew(&office);
        while told(&mut frames).await.is_some() {}
        // A machine that has no connection to lose learns of the renewal as well.
        assert!(matches!(greeted(&address, &config, &Purpose::Content).await, Err(End::Certified)));
    });
    let later = Credentials::open(&dir).unwrap();
    assert!(later.authority != earlier.authority && later.certificate != earlier.certificate);
    assert_eq!(fingerprint(&later.authority), fingerprint(office.authority().certificate()));
    office.settles();
    run(async {
        drop(session(&address, &config).await);
        let quarantine = tempfile::tempdir().unwrap();
        let old = CredentialStore::of(quarantine.path(), earlier).unwrap().caller();
        while office.known(machine_in(&dir)).certified < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let refused = greeted(&address, &old, &began(3, None)).await;
        let says = |why: &str| why.contains("of an authority that was renewed");
        assert!(matches!(&refused, Err(End::Refused(why)) if says(why)), "{refused:?}");
    });
    office.is_unharmed("after");
}

#[test]
fn a_machine_that_was_away_for_many_renewals_comes_back() {
    let mut office = TestCluster::new();
    let (address, config) = (office.address.clone(), office.join("traveller"));
    for _ in 0..5 {
        renew(&office);
        office.settles();
    }
    run(async {
        // The machine trusts the server, though it knows only the first authority.
        assert!(matches!(greeted(&address, &config, &began(1, None)).await, Err(End::Certified)));
        drop(session(&address, &config).await);
    });
    assert_eq!(office.known(machine_in(office.dirs[1].path())).certified, 6);
}

#[test]
fn who_has_an_authoritys_key_is_no_machine_by_that() {
    let mut office = TestCluster::new();
    let (address, mut victim) = (office.address.clone(), office.join("victim"));
    let number = machine_in(office.dirs[1].path());
    let stolen = office.authority();
    for after in 0..2 {
        let (machines, nobodys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (forged, unknown) = (
            forged(&stolen, machines.path(), number),
            forged(&stolen, nobodys.path(), MachineId(number.0 + 7)),
        );
        let founder = tempfile::tempdir().unwrap();
        let as_server = self::forged(&stolen, founder.path(), MachineId(1));
        run(async {
            for (caller, purpose) in [
                (&forged, began(9, None)),
                (&forged, Purpose::Content),
                (&forged, Purpose::Serve),
                (&as_server, Purpose::Peer),
                (&as_server, Purpose::Control { request: "\"Machines\"".to_owned() }),
                (&unknown, began(1, None)),
            ] {
                let refused = greeted(&address, caller, &purpose).await;
                assert!(matches!(refused, Err(End::Refused(_))), "{purpose:?}, {after}: {refused:?}");
            }
            drop(session(&address, &victim).await);
        });
        renew(&office);
        office.settles();
        run(async {
            assert!(matches!(greeted(&address, &victim, &Purpose::Content).await, Err(End::Certified)));
        });
        victim = config_in(office.dirs[1].path());
    }
}

#[test]
fn who_was_a_server_once_passes_for_none_after_the_renewal() {
    let mut office = TestCluster::new();
    let (address, config) = (office.address.clone(), office.join("victim"));
    let before = office.authority();
    let dir = tempfile::tempdir().unwrap();
    let its = before.credentials(dir.path(), MachineId(1)).unwrap();
    let reception = Reception::new(&its, &[], &[]).unwrap();
    let calls = || {
        let acceptor = tokio_rustls::TlsAcceptor::from(reception.tls.clone());
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (called, _) = tokio::join!(call::call(&address, &config), async {
                let (tcp, _) = listener.accept().await.unwrap();
                acceptor.accept(tcp).await.map(drop)
            });
            called.map(drop)
        })
    };
    assert!(calls().is_ok(), "as long as that is the authority");
    renew(&office);
    office.settles();
    run(async {
        assert!(matches!(greeted(&address, &config, &Purpose::Content).await, Err(End::Certified)));
    });
    assert!(calls().is_err());
}

#[test]
fn invitations_from_before_are_void() {
    let mut office = TestCluster::new();
    let token = office.token();
    renew(&office);
    office.settles();
    let dir = tempfile::tempdir().unwrap();
    assert!(join(dir.path(), &token, "late").is_err());
    office.is_unharmed("after");
}

#[test]
fn the_founders_key_is_nowhere_but_in_the_rows() {
    let office = TestCluster::new();
    office.settles();
    let dir = office.dirs[0].path();
    while dir.join("authority.key").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!dir.join("copies/authority.key").exists());
    let before = fingerprint(office.authority().certificate());
    let TestCluster { server, dirs, .. } = office;
    server.stop().unwrap();
    let again = Machine::start(dirs[0].path(), "a test", MachineSettings::default()).unwrap();
    assert_eq!(fingerprint(again.server().unwrap().authority().unwrap().certificate()), before);
}
