//! A region is one contiguous range of keys (Farsite §4.1.3).

use crate::support::*;
use directory::{Input, MemoryStore, Store};
use ident::FileId;
use lease::{Field, Kind, SessionId};
use namespace::{Effect, FileKind, LockChange, LockKind, LockRange, LockSpace, Operation, operation};
use std::collections::BTreeSet;
use wire::{AskMode, ToClient, ToServer};

const ROOT: FileId = FileId::root();
/// The rows behind the region: the server's and the cluster's.
const BEYOND: &[u8] = &[0xff; 8];
/// The table of sessions behind the region: a session remembers results, which name files.
const SESSION: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x21];

/// Rows behind the region that name one of these files.
fn strays(store: &MemoryStore, files: &[FileId]) -> Vec<Vec<u8>> {
    let names = |bytes: &[u8]| {
        files.iter().any(|file| bytes.windows(file.as_bytes().len()).any(|part| part == file.as_bytes()))
    };
    let outside = store.scan(BEYOND, &[0xff; 40], usize::MAX).into_iter();
    let named = outside.filter(|(key, row)| names(key) || !key.starts_with(SESSION) && names(row));
    named.map(|(key, _)| key).collect()
}

/// Sessions at work, and every file so far.
struct Work {
    world: World,
    sessions: Vec<SessionId>,
    dir: FileId,
    /// Files of `dir` so far, with their names.
    files: Vec<(String, FileId)>,
    /// Creates so far.
    creates: u64,
    /// Starts of all machines so far.
    starts: u64,
    state: u64,
    /// The tables of the region that had rows.
    tables: BTreeSet<u8>,
}

impl Work {
    fn new(seed: u64) -> Work {
        let mut world = World::new();
        let session = world.open(1, 1);
        world.take_root(session);
        let mut dir = ROOT;
        // Identifiers that are long enough not to turn up in other bytes by chance.
        for position in [60, 1000, 1000, 1000] {
            let op = world.create(session, &dir, "dir", FileKind::Directory, position);
            dir = made(&op);
            assert_eq!(world.update(session, op), Ok(()));
        }
        assert!(dir.as_bytes().len() >= 8);
        let sessions = vec![session, world.open(2, 1), world.open(3, 1)];
        let (files, tables) = (Vec::new(), BTreeSet::new());
        Work { world, sessions, dir, files, creates: 0, starts: 1, state: seed, tables }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    /// Has a session make the next file.
    fn create(&mut self, session: SessionId) {
        self.creates += 1;
        let name = format!("{}", self.creates);
        let op = self.world.create(session, &self.dir, &name, FileKind::Regular, 1);
        self.ask(session, op, Vec::new());
    }

    /// Has the server do an operation, or report why not.
    fn ask(&mut self, session: SessionId, operation: Operation, wants: Vec<lease::Lease>) {
        let mode = if wants.is_empty() { AskMode::Ship } else { AskMode::Lease };
        self.world.ask(session, operation, wants, mode);
        self.answer();
    }

    /// Has the sessions answer what is recalled. One that has a file open says so.
    fn answer(&mut self) {
        for _ in 0..4 {
            for session in self.sessions.clone() {
                for message in self.world.told(session) {
                    if let ToClient::Shipped { result: Ok((_, effects)), .. } = &message {
                        // The server has chosen the identifier.
                        let born = effects.iter().find_map(|effect| match effect {
                            Effect::Birth { file, .. } => Some(file.clone()),
                            _ => None,
                        });
                        self.files.extend(born.map(|file| (self.creates.to_string(), file)));
                    }
                    let ToClient::Recall { leases, .. } = message else { continue };
                    let open = self.draw(2) == 0;
                    let entries = leases.into_iter().map(|released| match released.field {
                        Field::Handles => returning(released, open),
                        _ => releasing(vec![released]).remove(0),
                    });
                    let entries = entries.collect();
                    self.world.send_log(session, entries, false);
                }
            }
        }
    }

    fn step(&mut self) {
        let session = self.draw(3) as usize;
        let session = self.sessions[session];
        let number = self.draw(self.files.len() as u64) as usize;
        let (name, file) = self.files[number].clone();
        let dir = self.dir.clone();
        match self.draw(10) {
            0 | 1 => self.create(session),
            2 => {
                let open = self.draw(2) == 0;
                self.ask(session, unlink(&dir, &name, open), Vec::new());
            }
            3 => {
                let stat = Operation::Access(operation::Access {
                    file: file.clone(),
                    mask: 0,
                    cred: Default::default(),
                });
                self.ask(session, stat, vec![want(&file, Field::Handles, Kind::Touch)]);
            }
            4 | 5 => {
                let (space, range, kind) = (LockSpace::Posix, LockRange::WHOLE, Some(LockKind::Write));
                let change = LockChange { space, owner: 7, range, kind, pid: 77 };
                let lock = Operation::Lock(operation::Lock { file: file.clone(), change });
                self.ask(session, lock, Vec::new());
            }
            6 => {
                let (count, share) = (self.draw(700) + 1, share(number as u8));
                let put = (0..count).map(|i| extent(i * 16, 16, share)).collect();
                let op = publish(&file, 1, count * 16, extents(put, true));
                self.ask(session, stat(&file), vec![want(&file, Field::Content, Kind::Write)]);
                self.log(session, op);
            }
            7 => {
                let name = lease::Label::attribute(b"user.name").unwrap();
                let (value, mode) = (vec![1, 2, 3], namespace::XattrMode::Set);
                let (cred, time) = (namespace::Cred::default(), at(50));
                let set = Operation::SetXattr(operation::SetXattr { file, name, value, mode, cred, time });
                self.ask(session, set, Vec::new());
            }
            8 => self.world.input(Input::Tick),
            _ if self.draw(4) == 0 => {
                let at = self.draw(3) as usize;
                self.world.send(self.sessions[at], ToServer::Goodbye);
                self.starts(at);
            }
            _ => self.world.server.checkpoint(&mut self.world.store),
        }
    }

    /// Logs an update; a session that lacks the leases for it is fenced, and begins anew.
    fn log(&mut self, session: SessionId, operation: Operation) {
        self.world.send_log(session, vec![update(operation)], false);
        if !self.world.server.misdeeds().is_empty() {
            let at = self.sessions.iter().position(|it| *it == session).unwrap();
            self.starts(at);
        }
    }

    /// A machine starts anew.
    fn starts(&mut self, at: usize) {
        self.starts += 1;
        self.sessions[at] = self.world.open(at as u64 + 1, self.starts);
    }

    fn ids(&self) -> Vec<FileId> {
        self.files.iter().map(|(_, file)| file.clone()).collect()
    }

    fn check(&mut self) {
        let rows = self.world.store.scan(&[0, 0x10], &[0, 0xff], usize::MAX);
        self.tables.extend(rows.iter().map(|(key, _)| key[1]));
        let strays = strays(&self.world.store, &self.ids());
        assert!(strays.is_empty(), "{}", strays.concat().escape_ascii());
    }
}

#[test]
fn every_row_of_a_file_is_in_its_regions_range() {
    let mut tables = BTreeSet::new();
    for seed in 0..12 {
        let mut work = Work::new(seed);
        work.world.checks = false;
        work.create(work.sessions[0]);
        for _ in 0..80 {
            work.step();
            work.check();
        }
        work.world.check();
        work.world.server.checkpoint(&mut work.world.store);
        work.check();
        tables.extend(work.tables);
    }
    assert_eq!(tables, BTreeSet::from_iter(0x10..=0x18), "each table was in use");
}

#[test]
fn a_row_of_a_file_outside_its_regions_range_is_found() {
    let mut work = Work::new(1);
    work.create(work.sessions[0]);
    assert_eq!(strays(&work.world.store, &work.ids()), Vec::<Vec<u8>>::new());
    let id = work.files[0].1.as_bytes();
    for (key, row) in [([BEYOND, &[0x22], id].concat(), vec![]), ([BEYOND, &[0x22]].concat(), id.to_vec())] {
        let mut store = work.world.store.clone();
        store.rows.insert(key.clone(), row);
        assert_eq!(strays(&store, &work.ids()), [key]);
    }
}
