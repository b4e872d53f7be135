//! The cost of leases that three members grant:
//! `cargo test --release -p raft grants_of_three -- --ignored --nocapture`.

use super::figures::cpu;
use super::several::TestGroup;
use super::*;
use ident::FileId;
use lease::Label;
use namespace::{Cred, FileKind, FileSpec, NewFile, Operation, Timestamp, operation};
use wire::{AskMode, LogEntry, Space};

/// Requests under way.
const AHEAD: usize = 64;
/// Log entries that are sent together.
const TOGETHER: usize = 500;

/// A session, and its side of the conversation with the leader.
struct Talk {
    leader: Arc<Group>,
    delivered: Delivered,
    session: SessionId,
    inodes: (u64, u64),
    entries: u64,
    requests: u64,
}

impl Talk {
    /// Begins an incarnation of a machine. Its earlier session is over.
    fn open(building: &TestGroup, incarnation: u64) -> Talk {
        let (leader, delivered) = (building.leader(), building.delivered.clone());
        let mut talk =
            Talk { leader, delivered, session: SessionId(0), inodes: (0, 0), entries: 0, requests: 0 };
        talk.leader.propose(input(incarnation));
        let mut own = None;
        wait_until("a session", || {
            for output in std::mem::take(&mut *talk.delivered.lock()) {
                match output {
                    Output::Opened { incarnation: of, session, .. } if of == incarnation => {
                        own = Some(session)
                    }
                    Output::Send { session, message: ToClient::Opened { inodes, .. } }
                        if own == Some(session) =>
                    {
                        (talk.session, talk.inodes) = (session, inodes);
                    }
                    _ => {}
                }
            }
            talk.session != SessionId(0)
        });
        talk
    }

    fn say(&self, message: ToServer) {
        self.leader.propose(Input::Message { session: self.session, message });
    }

    /// Returns the first answer that `pick` takes.
    fn hear<T>(&self, pick: impl Fn(ToClient) -> Option<T>) -> T {
        let mut heard = None;
        wait_until("an answer", || {
            let told = std::mem::take(&mut *self.delivered.lock());
            let messages = told.into_iter().filter_map(|output| match output {
                Output::Send { message, .. } => Some(message),
                _ => None,
            });
            heard = messages.filter_map(&pick).next();
            heard.is_some()
        });
        heard.unwrap()
    }

    fn lookup(&mut self, dir: &FileId, name: &str) {
        self.requests += 1;
        let operation = Operation::Lookup(operation::Lookup {
            dir: dir.clone(),
            label: label(name),
            cred: Cred::default(),
        });
        self.say(ToServer::Ask { number: self.requests, operation, wants: Vec::new(), mode: AskMode::Lease });
    }

    /// Makes `count` files in `dir`, whose labels the session may write.
    fn make(&mut self, dir: &FileId, kind: FileKind, count: u64) -> Vec<FileId> {
        let (mut made, mut entries, mut block) = (Vec::new(), Vec::new(), (0, 0));
        for number in 0..count {
            if block.0 == block.1 {
                self.say(ToServer::Reserve { dir: dir.clone() });
                block = self.hear(|message| match message {
                    ToClient::Reserved { first, end, .. } => Some((first, end)),
                    _ => None,
                });
            }
            if self.inodes.0 == self.inodes.1 {
                self.say(ToServer::ReserveInodes { known: self.inodes.1 });
                self.inodes = self.hear(|message| match message {
                    ToClient::ReservedInodes { first, end } => Some((first, end)),
                    _ => None,
                });
            }
            let (position, ino) = (block.0, self.inodes.0);
            (block.0, self.inodes.0) = (position + 1, ino + 1);
            let file = FileId::for_child(dir, position, ino);
            made.push(file.clone());
            let new = NewFile { file, ino, spec: FileSpec::new(kind, 0o755, 0) };
            let (dir, label, time) = (dir.clone(), label(&number.to_string()), Timestamp::default());
            let operation = Operation::Create(operation::Create {
                dir,
                label,
                position,
                new,
                cred: Cred::default(),
                time,
            });
            entries.push(LogEntry::Update { version: Version::NEWEST, operation });
            if entries.len() == TOGETHER || number + 1 == count {
                let (first, entries) = (self.entries + 1, std::mem::take(&mut entries));
                self.entries += entries.len() as u64;
                self.say(ToServer::Log { answer: true, first, entries });
                let rejected = self.hear(|message| match message {
                    ToClient::Applied { rejected, .. } => Some(rejected),
                    _ => None,
                });
                assert_eq!(rejected, []);
            }
        }
        made
    }
}

fn label(name: &str) -> Label {
    Label::new(name.as_bytes()).unwrap()
}

/// Another session of the machine looks up one name in each of the directories that the first has
/// made, and is granted all of it. Members, their logs and the rows are those that ship. Wires are
/// within the process, so TLS and sockets are not counted. The client is not counted either.
#[test]
#[ignore = "measures"]
fn grants_of_three() {
    for (dirs, files) in [(200, 500), (20_000, 1)] {
        let building = TestGroup::new(3);
        building.leader().propose(Input::Space(Space {
            total: 1 << 40,
            free: 1 << 40,
            files: 0,
            lends: 0,
            elsewhere: 0,
        }));
        let mut maker = Talk::open(&building, 1 << 20);
        maker.lookup(&FileId::root(), "none");
        maker.hear(|message| matches!(message, ToClient::Granted { .. }).then_some(()));
        let made = maker.make(&FileId::root(), FileKind::Directory, dirs);
        for dir in &made {
            maker.make(dir, FileKind::Regular, files);
        }
        maker.say(ToServer::Goodbye);
        let mut talk = Talk::open(&building, 1 << 21);
        building.agree();
        let (begun, before, mut answers, mut granted) = (Instant::now(), cpu(), 0, 0);
        let mut left = made.iter();
        while answers < made.len() {
            while talk.requests as usize - answers < AHEAD
                && let Some(dir) = left.next()
            {
                talk.lookup(dir, "0");
            }
            let told = std::mem::take(&mut *talk.delivered.lock());
            if told.is_empty() {
                std::thread::sleep(Duration::from_micros(200));
            }
            for output in told {
                if let Output::Send { message: ToClient::Granted { grants, .. }, .. } = output {
                    answers += 1;
                    granted += grants.len();
                }
            }
        }
        let (elapsed, used) = (begun.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
        assert!(granted >= made.len());
        println!(
            "{dirs} directories of {files}: {answers} requests, {granted} files granted whole; a CPU second of all three: {:.0} requests, {:.0} files; a second: {:.0} files",
            answers as f64 / used,
            granted as f64 / used,
            granted as f64 / elapsed,
        );
    }
}
