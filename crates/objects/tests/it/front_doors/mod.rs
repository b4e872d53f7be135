//! Random acts through both front doors of two machines, against a model: SMB clients that cache
//! all that they may, and programs under FUSE. Nothing that anyone is shown is stale, and nothing
//! is lost.
//!
//! Acts come one after the other; breaks are answered beside them. More of one seed:
//! `PROPTEST_RNG_SEED=1 DOORS_ACTS=1000000`.

mod client;
mod plain;

use crate::bed::{ALL, Bed, READ, open_if, request, state};
use ::client::call;
use client::{Client, ROOT};
use file_service::{FileCall, FileService, LookupReply};
use ident::FileId;
use lease::Label;
use lease::caching::{CachingState, ClientGuid, LeaseVersion, Sharing};
use namespace::{Cred, Error, FileKind, FileSpec, RenameMode};
use objects::{
    Caching, CreateOptions, Deletion, Granted, Listing, ObjectPath, OpenRequest, Opened, StoreError, Target,
};
use plain::Plain;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Longer than a break lasts: an act that takes so long is lost.
const LONGEST: Duration = Duration::from_secs(30);
/// Names that fold alike are one over SMB, and two under FUSE.
const NAMES: [&str; 7] = ["One", "ONE", "two", "d\\one", "d\\One", "d\\three", "d\\four"];
/// A label that SMB cannot say.
const ODD: &[u8] = b"\xff";
/// Runs of the test command, and the acts of each.
const SEEDS: u64 = 3;
const ACTS: u64 = 2000;
/// Acts that are told when the test fails.
const TOLD: usize = 40;
const WRITE: CachingState = CachingState::WRITE;
const HANDLE: CachingState = CachingState::HANDLE;

fn chance(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move |end| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % end
    }
}

/// A machine, with its clients.
struct Side {
    bed: Bed,
    service: Arc<dyn FileService>,
    clients: Vec<Arc<Client>>,
}

impl Side {
    fn new(bed: Bed, numbers: [u8; 2]) -> Side {
        let service = bed.store.file_service();
        let clients = numbers.map(|number| Client::connect(&bed, number)).to_vec();
        Side { bed, service, clients }
    }

    async fn ask<C: FileCall>(&self, call: C) -> Result<C::Reply, Error> {
        let (tell, told) = oneshot::channel();
        self.service.ask(&Cred::default(), call, move |reply| _ = tell.send(reply));
        told.await.unwrap()
    }

    /// The directory and the label of a path, as FUSE comes to them.
    async fn at(&self, path: &str) -> (FileId, Label) {
        let (mut dir, mut rest) = (self.bed.root.dir.clone(), path);
        while let Some((first, after)) = rest.split_once('\\') {
            dir = self.find(&dir, first).await.expect("the directory is there");
            rest = after;
        }
        (dir, Label::new(rest.as_bytes()).unwrap())
    }

    async fn find(&self, dir: &FileId, name: &str) -> Option<FileId> {
        let label = Label::new(name.as_bytes()).unwrap();
        match self.ask(call::Lookup { dir: dir.clone(), label }).await {
            Ok(LookupReply::Leased(node)) => Some(node.value.0.file),
            Ok(LookupReply::Glimpsed(node)) => node.map(|node| node.0.file),
            Err(Error::NotFound) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn file(&self, path: &str) -> Option<FileId> {
        let (dir, label) = self.at(path).await;
        self.find(&dir, &String::from_utf8_lossy(label.as_bytes())).await
    }
}

/// The truth: names, and the content of every file that there was.
struct World {
    sides: [Side; 2],
    names: BTreeMap<String, usize>,
    contents: Vec<Vec<u8>>,
    /// The directory's name now.
    dir: &'static str,
    /// Whether [`ODD`] is there.
    is_odd: bool,
    plain: Vec<Plain>,
    /// Names that go with the last handle.
    pending: BTreeSet<String>,
    /// Deleted names that may be found still: until when, and when to look next.
    fading: BTreeMap<String, (Instant, Instant)>,
    last: VecDeque<String>,
    /// The numbers of acts that came to something, by kind.
    done: BTreeMap<&'static str, usize>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.last.iter().for_each(|act| println!("{act}"));
        }
    }
}

impl World {
    /// The name by which SMB finds a file: the exact one, or the first that folds alike.
    fn resolve(&self, name: &str) -> Option<String> {
        let alike = self.names.keys().find(|other| other.eq_ignore_ascii_case(name));
        if self.names.contains_key(name) { Some(name.to_owned()) } else { alike.cloned() }
    }

    fn tell(&mut self, act: String) {
        self.last.push_back(act);
        if self.last.len() > TOLD {
            self.last.pop_front();
        }
    }

    fn path(&self, name: &str) -> String {
        name.replace("d\\", &format!("{}\\", self.dir))
    }

    fn note(&mut self, kind: &'static str) {
        *self.done.entry(kind).or_default() += 1;
        self.tell(format!("  {kind}"));
    }

    /// Whether a program of a client has the file open.
    fn is_used(&self, file: usize) -> bool {
        let mut clients = self.sides.iter().flat_map(|side| &side.clients);
        clients.any(|client| client.with(file, |had| had.is_used) == Some(true))
    }

    /// Whether any client has the file open, or its handle cached.
    fn is_had(&self, file: usize) -> bool {
        self.sides.iter().flat_map(|side| &side.clients).any(|client| client.has(file))
    }

    /// The names that the root directory shows, as text: also those fading names that `copy` has.
    fn listed(&self, copy: &[u8]) -> Vec<u8> {
        let mut shown: Vec<&str> =
            self.names.keys().filter(|name| !name.contains('\\')).map(|name| &**name).collect();
        shown.push(self.dir);
        let has = |name: &&str| copy.split(|byte| *byte == b' ').any(|shown| shown == name.as_bytes());
        shown.extend(self.fading.keys().map(|name| &**name).filter(has));
        shown.sort_unstable();
        shown.join(" ").into_bytes()
    }

    fn truth(&self, file: usize, copy: &[u8]) -> Vec<u8> {
        if file == ROOT { self.listed(copy) } else { self.contents[file].clone() }
    }

    /// Nobody has a copy under a lease that is not the truth.
    fn check(&self, act: &str) {
        for (at, side) in self.sides.iter().enumerate() {
            for client in &side.clients {
                for file in client.files() {
                    let copy = client.with(file, |had| (had.copy.clone(), had.state));
                    let Some((Some(copy), state)) = copy else { continue };
                    let truth = self.truth(file, &copy);
                    let shown = String::from_utf8_lossy(&copy);
                    assert_eq!(
                        copy, truth,
                        "after {act}: client {} of machine {at} has {state} on file {file}, and {shown}",
                        client.number
                    );
                }
            }
        }
    }

    async fn open(&mut self, at: usize, client: usize, name: &str, asks: CachingState) {
        let found = self.resolve(name);
        let path = self.path(name);
        let known = found.as_ref().map(|name| self.names[name]);
        let file = known.unwrap_or(self.contents.len());
        let holder = self.sides[at].clients[client].clone();
        if holder.with(file, |had| had.is_used = true).is_some() {
            return self.note("opened again");
        }
        let version = LeaseVersion::V2 { epoch: 0, parent: None };
        let caching = Caching::Lease { key: holder.key(file), state: asks, version };
        let client = ClientGuid([holder.number; 16]);
        let opened = self.sides[at].bed.open(&path, OpenRequest { client, caching, ..open_if() }).await;
        let is_pending = found.is_some_and(|name| self.pending.contains(&name));
        if is_pending || self.is_refused(file, ALL, Sharing::ALL) {
            let error = opened.err();
            let expected = [StoreError::DeletePending, StoreError::SharingViolation];
            assert!(
                error.is_some_and(|error| expected.contains(&error)),
                "{path} on machine {at}: {error:?}"
            );
            return self.note("refused to a client");
        }
        let Opened { open, granted, .. } = opened.unwrap();
        if known.is_none() {
            self.names.insert(name.to_owned(), file);
            self.contents.push(Vec::new());
        }
        // While a break is under way the answer has the state before it.
        let is_breaking = matches!(granted, Granted::Lease { is_breaking: true, .. });
        let granted = if is_breaking { CachingState::NONE } else { state(granted) };
        holder.note(file, open, granted);
        self.note(if granted.has(WRITE) { "opened with W" } else { "opened" });
    }

    async fn read(&mut self, at: usize, client: usize, file: usize) {
        let read = self.sides[at].clients[client].read(file).await;
        assert_eq!(read, self.contents[file], "client {client} of machine {at} reads file {file}");
        self.note("read");
    }

    async fn write(&mut self, at: usize, client: usize, file: usize, (place, byte): (usize, u8)) {
        let holder = self.sides[at].clients[client].clone();
        let truth = &mut self.contents[file];
        let place = place.min(truth.len());
        let change = |content: &mut Vec<u8>| {
            content.resize(content.len().max(place + 1), 0);
            content[place] = byte;
        };
        // The change is in the cache alone if there is a copy, and W.
        let cached = holder.with(file, |had| match &mut had.copy {
            Some(copy) if had.state.has(WRITE) => {
                change(copy);
                had.is_dirty = true;
                true
            }
            _ => false,
        });
        if cached == Some(true) {
            change(truth);
            return self.note("written to a cache");
        }
        holder.write_back(file).await;
        let open = holder.with(file, |had| had.open.clone()).unwrap();
        open.write(place as u64, vec![byte].into(), false).await.unwrap();
        change(&mut self.contents[file]);
        // The client's own copy follows, and its own lease stays.
        holder.with(file, |had| had.copy.as_mut().map(change));
        self.note("written");
    }

    async fn close(&mut self, at: usize, client: usize, file: usize, keeps: bool) {
        let holder = self.sides[at].clients[client].clone();
        let keep = |had: &mut client::Had| {
            let keeps = had.state.has(HANDLE);
            had.is_used &= !keeps;
            keeps
        };
        if keeps && holder.with(file, keep) == Some(true) {
            return self.note("closed and kept");
        }
        holder.close(file).await;
        self.note("closed");
    }

    async fn list(&mut self, at: usize, client: usize) {
        let holder = self.sides[at].clients[client].clone();
        if holder.with(ROOT, |had| had.state.has(CachingState::READ)) == Some(false) {
            holder.close(ROOT).await;
        }
        if holder.with(ROOT, |_| ()).is_none() {
            let options = CreateOptions(CreateOptions::DIRECTORY);
            let version = LeaseVersion::V2 { epoch: 0, parent: None };
            let caching = Caching::Lease { key: holder.key(ROOT), state: CachingState::RH, version };
            let client = ClientGuid([holder.number; 16]);
            let request = OpenRequest { client, caching, options, ..request(READ, Sharing::ALL) };
            let opened = self.sides[at].bed.open("", request).await.unwrap();
            holder.note(ROOT, opened.open, state(opened.granted));
        }
        let (copy, open) = holder.with(ROOT, |had| (had.copy.clone(), had.open.clone())).unwrap();
        let names = match copy {
            Some(copy) => copy,
            None => {
                let all = Listing { restart: true, limit: 100, ..Listing::default() };
                let mut names: Vec<String> =
                    open.list(all).await.unwrap().into_iter().map(|entry| entry.name).collect();
                names.retain(|name| !name.starts_with('.'));
                names.sort_unstable();
                let names = names.join(" ").into_bytes();
                holder.with(ROOT, |had| {
                    if had.state.has(CachingState::READ) {
                        had.copy = Some(names.clone());
                    }
                });
                names
            }
        };
        assert_eq!(names, self.listed(&names), "client {client} of machine {at} lists");
        self.note("listed");
    }

    /// Deletes over SMB what nobody has open.
    async fn delete(&mut self, at: usize, name: &str) {
        let Some(name) = self.resolve(name) else { return };
        let file = self.names[&name];
        if self.is_had(file) || self.is_plain(file) {
            return;
        }
        let path = self.path(&name);
        let open = self.sides[at].bed.open(&path, request(ALL, Sharing::ALL)).await.unwrap().open;
        open.set_deletion(Deletion { delete: true, ..Deletion::default() }).await.unwrap();
        open.close(false).await.unwrap();
        self.is_deleted(name).await;
        self.note("deleted");
    }

    async fn rename(&mut self, at: usize, (from, to): (&str, &str), replace: bool) {
        let Some(from) = self.resolve(from) else { return };
        let (file, found) = (self.names[&from], self.resolve(to));
        let replaced = found.filter(|found| *found != from);
        let target = replaced.as_ref().map(|name| self.names[name]);
        if self.is_plain(file) || target.is_some_and(|file| self.is_had(file) || self.is_plain(file)) {
            return;
        }
        let (old, new) = (self.path(&from), self.path(to));
        let open = self.sides[at].bed.open(&old, request(ALL, Sharing::ALL)).await.unwrap().open;
        let path = ObjectPath::parse(&new, false).unwrap();
        let renamed = open.rename(Target { path, replace, posix: false, ignore_read_only: false }).await;
        open.close(false).await.unwrap();
        let collides = replaced.is_some() && !replace;
        let expected = if collides { Err(StoreError::NameCollision) } else { Ok(()) };
        assert_eq!(renamed, expected, "{old} to {new} on machine {at}, {:?}", self.names);
        if collides {
            return self.note("refused: name");
        }
        replaced.into_iter().chain([from]).for_each(|name| _ = self.names.remove(&name));
        self.names.insert(to.to_owned(), file);
        self.note("renamed");
    }

    /// Renames the directory: over SMB, which files that are open below may prevent, or by FUSE.
    async fn rename_dir(&mut self, at: usize, by_fuse: bool) {
        let to = if self.dir == "d" { "e" } else { "d" };
        let side = &self.sides[at];
        if by_fuse {
            let root = side.bed.root.dir.clone();
            let (from, to) = (Label::new(self.dir.as_bytes()).unwrap(), Label::new(to.as_bytes()).unwrap());
            let mode = RenameMode::NoReplace;
            let call = call::Rename {
                from_dir: root.clone(),
                from,
                to_dir: root,
                to,
                mode,
                whiteout: false,
                source: None,
                replaced: None,
            };
            side.ask(call).await.unwrap();
        } else {
            let options = CreateOptions(CreateOptions::DIRECTORY);
            let open = side.bed.open(self.dir, OpenRequest { options, ..request(ALL, Sharing::ALL) }).await;
            let open = open.unwrap().open;
            let path = ObjectPath::parse(to, false).unwrap();
            let target = Target { path, replace: false, posix: false, ignore_read_only: false };
            let renamed = open.rename(target).await;
            open.close(false).await.unwrap();
            let below: Vec<usize> =
                self.names.iter().filter(|(name, _)| name.contains('\\')).map(|(_, file)| *file).collect();
            let is_open_here = self.plain.iter().any(|plain| plain.at == at && below.contains(&plain.file));
            let is_held = below.iter().any(|file| self.is_had(*file) || self.is_plain(*file));
            match renamed {
                Ok(()) => assert!(!is_open_here, "a directory above an open file is renamed"),
                Err(StoreError::AccessDenied) if is_held => {
                    return self.note("directory held");
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.dir = to;
        self.note(if by_fuse { "directory renamed by FUSE" } else { "directory renamed" });
    }

    async fn fuse(&mut self, at: usize, name: &str, kind: u64, (place, byte): (usize, u8)) {
        let path = self.path(name);
        let side = &self.sides[at];
        let found = side.file(&path).await;
        let file = self.names.get(name).copied();
        assert_eq!(found.is_some(), file.is_some(), "FUSE of machine {at} looks up {name}");
        let (dir, label) = side.at(&path).await;
        let (Some(id), Some(file)) = (found, file) else {
            let spec = FileSpec::new(FileKind::Regular, 0o666, 0);
            side.ask(call::Create { dir, label, spec, open: None }).await.unwrap();
            self.names.insert(name.to_owned(), self.contents.len());
            self.contents.push(Vec::new());
            return self.note("made by FUSE");
        };
        if self.pending.contains(name) {
            return;
        }
        if kind >= 7 {
            if !self.is_plain(file) {
                side.ask(call::Unlink { dir, label, directory: false, pending: None }).await.unwrap();
                self.names.remove(name);
                self.note("unlinked by FUSE");
            }
            return;
        }
        let writes = kind >= 4;
        let open = lease::OpenModes::posix(!writes, writes);
        let opened = side.ask(call::OpenFile { file: id.clone(), open, mask: 0 }).await;
        let access = if writes { 0x2 } else { 0x1 };
        if self.is_refused(file, access, Sharing::ALL) {
            assert_eq!(opened.err(), Some(Error::SharingViolation), "FUSE of machine {at} opens {name}");
            return self.note("refused: FUSE");
        }
        opened.unwrap();
        if writes {
            let place = place.min(self.contents[file].len());
            let data = vec![byte].into();
            let write = call::Write { file: id.clone(), offset: place as u64, data, append: false };
            side.ask(write).await.unwrap();
            let truth = &mut self.contents[file];
            truth.resize(truth.len().max(place + 1), 0);
            truth[place] = byte;
        } else {
            let read = call::Read { file: id.clone(), offset: 0, length: 1000, kept: false, quietly: false };
            let read = side.ask(read).await.unwrap().concat();
            assert_eq!(read, self.contents[file], "FUSE of machine {at} reads {name}");
        }
        self.sides[at].ask(call::Close { file: id, open }).await.unwrap();
        self.note(if writes { "written by FUSE" } else { "read by FUSE" });
    }

    /// Makes or unlinks what SMB cannot name, and must not show.
    async fn odd(&mut self, at: usize) {
        let side = &self.sides[at];
        let (dir, label) = (side.bed.root.dir.clone(), Label::new(ODD).unwrap());
        if self.is_odd {
            side.ask(call::Unlink { dir, label, directory: false, pending: None }).await.unwrap();
        } else {
            let spec = FileSpec::new(FileKind::Regular, 0o666, 0);
            side.ask(call::Create { dir, label, spec, open: None }).await.unwrap();
        }
        self.is_odd = !self.is_odd;
        self.note("a name that SMB cannot say");
    }

    async fn act(&mut self, chance: &mut impl FnMut(u64) -> u64) -> &'static str {
        let (at, client) = (chance(2) as usize, chance(2) as usize);
        self.fade().await;
        let [name, to] = [(); 2].map(|()| NAMES[chance(NAMES.len() as u64) as usize]);
        if self.is_fading(name) || self.is_fading(to) {
            return "nothing";
        }
        let change = (chance(64) as usize, b'a' + chance(26) as u8);
        let mut used = self.sides[at].clients[client].files();
        used.retain(|file| *file != ROOT);
        used.retain(|file| self.sides[at].clients[client].with(*file, |had| had.is_used) == Some(true));
        let file = if used.is_empty() { None } else { Some(used[chance(used.len() as u64) as usize]) };
        let drawn = chance(28);
        self.tell(format!("{drawn} by client {client} of machine {at}: {name}, file {file:?}"));
        match (drawn, file) {
            (0..4, _) | (4..10, None) => {
                let asks = [CachingState::RWH, CachingState::RWH, CachingState::RW, CachingState::RH];
                self.open(at, client, name, asks[chance(4) as usize]).await;
                "an open"
            }
            (4..6, Some(file)) => {
                self.read(at, client, file).await;
                "a read"
            }
            (6..8, Some(file)) => {
                self.write(at, client, file, change).await;
                "a write"
            }
            (8..10, Some(file)) => {
                self.close(at, client, file, chance(2) == 0).await;
                "a close"
            }
            (10..12, _) => {
                self.list(at, client).await;
                "a listing"
            }
            (12, _) => {
                self.delete(at, name).await;
                "a deletion"
            }
            (13, _) => {
                self.rename(at, (name, to), chance(2) == 0).await;
                "a rename"
            }
            (14, _) => {
                self.rename_dir(at, chance(2) == 0).await;
                "a rename of the directory"
            }
            (15..21, _) => {
                self.act_plainly(at, name, chance).await;
                "an act without a cache"
            }
            (21, _) if chance(8) == 0 => {
                self.log_off(at, client).await;
                "a logoff"
            }
            (22, _) if chance(4) == 0 => {
                self.odd(at).await;
                "an odd name"
            }
            _ => {
                let kind = chance(8);
                self.fuse(at, name, kind, change).await;
                "an act of FUSE"
            }
        }
    }
}

/// One run, of its own two machines.
async fn run(seed: u64, acts: u64) {
    let here = Bed::new().await;
    let there = here.another().await;
    here.directory("d").await.close(false).await.unwrap();
    // The other machine ends first.
    let sides = [Side::new(there, [3, 4]), Side::new(here, [1, 2])];
    let mut answers = tokio::task::JoinSet::new();
    for client in sides.iter().flat_map(|side| &side.clients) {
        answers.spawn(client.clone().answer(chance(seed << 8 | u64::from(client.number))));
    }
    let mut world = World {
        sides,
        names: BTreeMap::new(),
        contents: Vec::new(),
        dir: "d",
        is_odd: false,
        plain: Vec::new(),
        pending: BTreeSet::new(),
        fading: BTreeMap::new(),
        last: VecDeque::new(),
        done: BTreeMap::new(),
    };
    let mut chance = chance(seed);
    for number in 0..acts {
        let act = timeout(LONGEST, world.act(&mut chance)).await;
        let act = act.unwrap_or_else(|_| panic!("act {number} of seed {seed} hangs"));
        world.check(&format!("act {number} of seed {seed}, {act}"));
        // A client that fails to answer ends the test.
        if let Some(ended) = answers.try_join_next() {
            ended.unwrap();
        }
    }
    let breaks: usize = world.sides.iter().flat_map(|side| &side.clients).map(|client| client.breaks()).sum();
    println!("{breaks} breaks; {:?}", world.done);
    // Runs without events prove nothing.
    let came_to_something: usize = world.done.values().sum();
    assert!(breaks > came_to_something / 50, "only {breaks} breaks");
    assert!(world.done.len() >= 25, "{} kinds: {:?}", world.done.len(), world.done);
    while !world.plain.is_empty() {
        world.close_plainly(0).await;
    }
    for side in &world.sides {
        for client in &side.clients {
            for file in client.files() {
                client.close(file).await;
            }
        }
    }
    for (name, file) in &world.names {
        let side = &world.sides[file % 2];
        let open = side.bed.open(&world.path(name), request(READ, Sharing::ALL)).await.unwrap().open;
        assert_eq!(crate::bed::content(&open).await, world.contents[*file], "{name} at the end");
    }
    answers.shutdown().await;
    for side in &world.sides {
        assert_eq!(side.bed.store.counts(), (0, 0, 0));
    }
}

#[tokio::test]
async fn nothing_is_stale_and_nothing_lost_through_any_door() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("PROPTEST_RNG_SEED") {
        Some(seed) => run(seed, number("DOORS_ACTS").unwrap_or(ACTS)).await,
        None => {
            for seed in 0..SEEDS {
                run(seed, number("DOORS_ACTS").unwrap_or(ACTS)).await;
            }
        }
    }
}
