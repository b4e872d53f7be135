//! Programs over SMB that cache nothing: share modes, byte-range locks, and deletion while others
//! have the file open.

use super::{Side, World};
use crate::bed::{ALL, DELETE, READ, WRITE, content, request};
use lease::caching::Sharing;
use objects::{ByteRange, CreateOptions, Deletion, Open, OpenRequest, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The locks are far behind the content, which everybody reads.
const FAR: u64 = 1 << 40;
/// A name that is deleted is gone within this time. A machine that has looked the name up lately
/// keeps the file for a kernel that may come back for it, and nobody waits for that.
const GONE_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks at such a name: longer than a machine keeps what was looked up.
const LOOK_AGAIN: Duration = Duration::from_millis(2500);
const ACCESSES: [u32; 4] = [READ, WRITE, READ | WRITE, ALL];

pub struct Plain {
    /// The machine.
    pub at: usize,
    pub file: usize,
    pub sharing: Sharing,
    access: u32,
    open: Arc<Open>,
    locks: Vec<(ByteRange, bool)>,
}

/// The sharing that somebody needs of others, to access so.
fn needs(access: u32) -> u32 {
    let reads = if access & 0x1 != 0 { Sharing::READ.0 } else { 0 };
    let writes = if access & 0x2 != 0 { Sharing::WRITE.0 } else { 0 };
    let deletes = if access & DELETE != 0 { Sharing::DELETE.0 } else { 0 };
    reads | writes | deletes
}

impl Plain {
    fn excludes(&self, access: u32, sharing: Sharing) -> bool {
        needs(access) & !self.sharing.0 != 0 || needs(self.access) & !sharing.0 != 0
    }
}

fn overlap(a: ByteRange, b: ByteRange) -> bool {
    a.offset < b.offset + b.length && b.offset < a.offset + a.length
}

impl World {
    /// Whether such a program has the file open in a way that refuses a handle.
    pub fn is_refused(&self, file: usize, access: u32, sharing: Sharing) -> bool {
        self.plain.iter().any(|plain| plain.file == file && plain.excludes(access, sharing))
    }

    pub fn is_plain(&self, file: usize) -> bool {
        self.plain.iter().any(|plain| plain.file == file)
    }

    /// One act of such a program.
    pub async fn act_plainly(&mut self, at: usize, name: &str, chance: &mut impl FnMut(u64) -> u64) {
        let count = self.plain.len() as u64;
        let drawn = chance(12);
        if count == 0 || drawn < 3 && count < 6 {
            let access = ACCESSES[chance(4) as usize];
            // Most share all, or little would ever be open twice.
            let sharing = if chance(2) == 0 { Sharing::ALL } else { Sharing(chance(8) as u32) };
            return self.open_plainly(at, name, access, sharing).await;
        }
        let index = chance(count) as usize;
        let byte = b'A' + chance(26) as u8;
        match drawn {
            0..5 => self.close_plainly(index).await,
            5..7 => self.lock_plainly(index, chance(8), chance(2) == 0).await,
            7 => self.delete_on_close(at, name).await,
            8 => self.keep(index).await,
            9 => self.read_plainly(index).await,
            10 => self.write_plainly(index, byte).await,
            _ => self.resize_plainly(index, chance(64) as usize).await,
        }
    }

    async fn open_plainly(&mut self, at: usize, name: &str, access: u32, sharing: Sharing) {
        let Some(name) = self.resolve(name) else { return };
        let file = self.names[&name];
        // Clients have all rights and share all.
        let excludes_clients = needs(ALL) & !sharing.0 != 0;
        let is_refused = self.is_refused(file, access, sharing) || excludes_clients && self.is_used(file);
        // A handle that is only cached is closed for it. Another machine may be refused all the
        // same.
        let may_be_refused = is_refused || excludes_clients && self.is_had(file);
        let opened = self.sides[at].bed.open(&self.path(&name), request(access, sharing)).await;
        if self.pending.contains(&name) {
            let error = opened.err();
            let is_right = error == Some(StoreError::DeletePending)
                || is_refused && error == Some(StoreError::SharingViolation);
            assert!(is_right, "{name} is to be deleted: {error:?}");
            return self.note("refused: is deleted");
        }
        match opened {
            Err(StoreError::SharingViolation) if may_be_refused => self.note("refused: share mode"),
            Ok(opened) if !is_refused => {
                let (open, locks) = (opened.open, Vec::new());
                self.plain.push(Plain { at, file, access, sharing, open, locks });
                self.note("opened plainly");
            }
            Ok(_) => {
                panic!("{name} on machine {at} by {access:x}, sharing {sharing:?}: a share mode is lost")
            }
            Err(error) => panic!("{name} on machine {at}: {error}"),
        }
    }

    pub async fn close_plainly(&mut self, index: usize) {
        let Plain { file, open, .. } = self.plain.swap_remove(index);
        open.close(false).await.unwrap();
        self.note("closed plainly");
        self.closed_of(file).await;
    }

    /// A handle on the file is closed: its deletion may have waited for that.
    async fn closed_of(&mut self, file: usize) {
        let name = self.pending.iter().find(|name| self.names[*name] == file).cloned();
        let Some(name) = name.filter(|_| !self.is_plain(file)) else { return };
        self.pending.remove(&name);
        self.is_deleted(name).await;
        self.note("deleted by the last close");
    }

    /// A name is deleted by its file's last close. It is gone at once, or fades.
    pub async fn is_deleted(&mut self, name: String) {
        self.names.remove(&name);
        if self.is_found(&name).await {
            let now = Instant::now();
            self.fading.insert(name, (now + GONE_WITHIN, now + LOOK_AGAIN));
            self.note("fades");
        }
    }

    async fn is_found(&self, name: &str) -> bool {
        let path = self.path(name);
        let [one, other] = &self.sides;
        one.file(&path).await.is_some() || other.file(&path).await.is_some()
    }

    /// Looks whether fading names are gone.
    pub async fn fade(&mut self) {
        let now = Instant::now();
        let due = self.fading.iter().find(|(_, (_, look))| now >= *look);
        let Some((name, end)) = due.map(|(name, (end, _))| (name.clone(), *end)) else { return };
        if self.is_found(&name).await {
            assert!(now < end, "{name} is deleted, and does not go");
            self.fading.insert(name, (end, now + LOOK_AGAIN));
        } else {
            self.fading.remove(&name);
        }
    }

    /// Whether a name that folds so is fading. It is used again when it is gone.
    pub fn is_fading(&self, name: &str) -> bool {
        self.fading.keys().any(|fading| fading.eq_ignore_ascii_case(name))
    }

    async fn lock_plainly(&mut self, index: usize, place: u64, exclusive: bool) {
        let Plain { file, ref open, ref mut locks, .. } = self.plain[index];
        let (open, range) = (open.clone(), ByteRange { offset: FAR + place, length: 2 });
        if let Some(at) = locks.iter().position(|(theirs, _)| overlap(*theirs, range)) {
            let (range, _) = locks.swap_remove(at);
            open.unlock(range).await.unwrap();
            return self.note("unlocked");
        }
        let others = self.plain.iter().filter(|plain| plain.file == file).flat_map(|plain| &plain.locks);
        let is_locked = others
            .into_iter()
            .any(|(theirs, is_exclusive)| overlap(*theirs, range) && (exclusive || *is_exclusive));
        let locked = open.lock(range, exclusive, false).await;
        let expected = if is_locked { Err(StoreError::LockNotGranted) } else { Ok(()) };
        assert_eq!(locked, expected, "lock of file {file}");
        if is_locked {
            return self.note("refused: lock");
        }
        self.plain[index].locks.push((range, exclusive));
        self.note("locked");
    }

    /// Opens to delete on close, and closes. The file goes with its last handle.
    async fn delete_on_close(&mut self, at: usize, name: &str) {
        let Some(name) = self.resolve(name).filter(|name| !self.pending.contains(name)) else { return };
        let file = self.names[&name];
        if self.is_had(file) {
            return;
        }
        let options = CreateOptions(CreateOptions::DELETE_ON_CLOSE);
        let request = OpenRequest { options, ..request(DELETE, Sharing::ALL) };
        let opened = self.sides[at].bed.open(&self.path(&name), request).await;
        if self.is_refused(file, DELETE, Sharing::ALL) {
            assert_eq!(opened.err(), Some(StoreError::SharingViolation), "{name}");
            return self.note("refused: share mode");
        }
        opened.unwrap().open.close(false).await.unwrap();
        self.pending.insert(name);
        self.note("deletes on close");
        self.closed_of(file).await;
    }

    /// Takes a deletion back.
    async fn keep(&mut self, index: usize) {
        let Plain { file, access, ref open, .. } = self.plain[index];
        let pending = self.pending.iter().find(|name| self.names[*name] == file).cloned();
        let Some(name) = pending.filter(|_| access & DELETE != 0) else { return };
        open.clone().set_deletion(Deletion::default()).await.unwrap();
        self.pending.remove(&name);
        self.note("kept after all");
    }

    async fn read_plainly(&mut self, index: usize) {
        let Plain { at, file, access, ref open, .. } = self.plain[index];
        if access & 0x1 != 0 {
            assert_eq!(content(open).await, self.contents[file], "machine {at} reads file {file}");
            self.note("read plainly");
        }
    }

    async fn write_plainly(&mut self, index: usize, byte: u8) {
        let Plain { file, access, ref open, .. } = self.plain[index];
        if access & 0x2 != 0 {
            open.write(0, vec![byte].into(), false).await.unwrap();
            let truth = &mut self.contents[file];
            truth.resize(truth.len().max(1), 0);
            truth[0] = byte;
            self.note("written plainly");
        }
    }

    async fn resize_plainly(&mut self, index: usize, size: usize) {
        let Plain { file, access, ref open, .. } = self.plain[index];
        if access & 0x2 != 0 {
            open.set_end(size as u64).await.unwrap();
            self.contents[file].resize(size, 0);
            self.note("resized");
        }
    }

    /// The client logs off, and on again.
    pub async fn log_off(&mut self, at: usize, client: usize) {
        let Side { bed, clients, .. } = &self.sides[at];
        let client = clients[client].clone();
        for file in client.files() {
            client.close(file).await;
        }
        bed.store.disconnect(client.guid());
        bed.store.connect(client.guid(), client.clone());
        self.note("logged off");
    }
}
