//! A file system in memory behind `FileService`. It is small but complete enough to mount and run
//! programs on.

#![allow(dead_code, reason = "each test crate uses a part of it")]

mod locks;
mod tree;

use bytes::Bytes;
use client::{AllocateMode, Call, Invalidation, Reply, Ticket, call};
use file_service::{CacheHolder, FileService, Responder, Response};
use ident::FileId;
use namespace::{Cred, Error, FileSpec};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

pub use locks::Locking;
pub use tree::Tree;

/// A file service in memory, with counts of its calls.
pub struct Memory {
    tree: Mutex<Tree>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    cache: Mutex<Option<Arc<dyn CacheHolder>>>,
    /// Calls of this name are answered that much later, by a thread of their own.
    delays: Mutex<BTreeMap<&'static str, Duration>>,
    /// Calls that have a ticket until they are answered.
    late: Arc<Mutex<(u64, BTreeMap<Ticket, Responder>)>>,
    /// The answers that came late, and not to a call that had given way.
    came_late: Arc<AtomicUsize>,
    locking: Mutex<Locking>,
    ttl: Duration,
    counting: bool,
}

/// The options of a mount: over rings, except in `tests/device.rs`.
pub fn options() -> fuse::Options {
    fuse::Options { rings: !module_path!().starts_with("device::"), ..fuse::Options::default() }
}

impl Memory {
    /// A file system whose root anybody may write to.
    pub fn new() -> Arc<Memory> {
        Memory::build(true)
    }

    /// The same without counts and delays, as fast as possible.
    pub fn uncounted() -> Arc<Memory> {
        Memory::build(false)
    }

    fn build(counting: bool) -> Arc<Memory> {
        let ttl = Duration::from_secs(3600);
        let (counts, cache, delays, late, came_late, locking) = Default::default();
        Arc::new(Memory {
            tree: Mutex::new(Tree::new()),
            counts,
            cache,
            delays,
            late,
            came_late,
            locking,
            ttl,
            counting,
        })
    }

    /// The number of calls of this name.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.lock().get(name).copied().unwrap_or(0)
    }

    /// Answers calls of this name late, from another thread.
    pub fn delay(&self, name: &'static str, by: Duration) {
        self.delays.lock().insert(name, by);
    }

    /// How many answers have come late.
    pub fn came_late(&self) -> usize {
        self.came_late.load(SeqCst)
    }

    /// Changes the tree unknown to the mount, as another machine would.
    pub fn elsewhere<T>(&self, change: impl FnOnce(&mut Tree) -> T) -> T {
        change(&mut self.tree.lock())
    }

    /// Looks at the locks, or changes those of other machines. Locks that no longer have to wait
    /// are answered.
    pub fn locking<T>(&self, change: impl FnOnce(&mut Locking) -> T) -> T {
        let mut locking = self.locking.lock();
        let result = change(&mut locking);
        let granted = locking.settle();
        drop(locking);
        granted.into_iter().for_each(|answer| answer(Ok(Response::Reply(Reply::Nothing))));
        result
    }

    /// Has the call wait, and returns its ticket.
    fn wait(&self, answer: Responder) -> Ticket {
        let mut late = self.late.lock();
        late.0 += 1;
        let ticket = Ticket(late.0);
        late.1.insert(ticket, answer);
        ticket
    }

    /// Revokes, as the machine does when a lease is recalled.
    pub fn invalidate(&self, what: &Invalidation) {
        let cache = self.cache.lock().clone();
        (cache.expect("a mount has registered").revoke(std::slice::from_ref(what), &[]).seal)()();
    }
}

impl FileService for Memory {
    fn call(&self, cred: &Cred, call: Call, answer: Responder) -> Option<Ticket> {
        let name = name_of(&call);
        if self.counting {
            *self.counts.lock().entry(name).or_default() += 1;
            if let Some(by) = self.delays.lock().get(name).copied() {
                let told = self.tree.lock().answer(cred, call);
                let (ticket, late) = (self.wait(answer), Arc::clone(&self.late));
                let came_late = Arc::clone(&self.came_late);
                std::thread::spawn(move || {
                    std::thread::sleep(by);
                    let answer = late.lock().1.remove(&ticket);
                    came_late.fetch_add(usize::from(answer.is_some()), SeqCst);
                    answer.into_iter().for_each(|answer| answer(told.clone()));
                });
                return Some(ticket);
            }
        }
        let told = match call {
            Call::Lock(call::Lock { file, change, wait }) => {
                match self.locking(|locking| locking.lock(&file, change)) {
                    Err(Error::WouldBlock) if wait => {
                        let mut locking = self.locking.lock();
                        return Some(locking.wait(file, change, answer));
                    }
                    locked => locked.map(|()| Response::Reply(Reply::Nothing)),
                }
            }
            Call::GetLock(call::GetLock { file, owner, space, range, kind }) => {
                let conflict = self.locking(|locking| locking.conflict(&file, owner, space, range, kind));
                Ok(Response::Reply(Reply::Lock(conflict)))
            }
            call => self.tree.lock().answer(cred, call),
        };
        answer(told);
        None
    }

    fn cancel(&self, ticket: Ticket) {
        let late = self.late.lock().1.remove(&ticket);
        let answer = late.or_else(|| self.locking.lock().give_up(ticket));
        answer.into_iter().for_each(|answer| answer(Err(Error::Interrupted)));
    }

    fn give_way(&self, ticket: Ticket) {
        self.cancel(ticket);
    }

    fn forgotten(&self, files: Vec<FileId>) {
        let mut tree = self.tree.lock();
        files.iter().for_each(|file| drop(tree.close(file).unwrap()));
    }

    fn root(&self) -> FileId {
        FileId::root()
    }

    fn valid_for(&self) -> Duration {
        self.ttl
    }

    fn register_cache(&self, cache: Arc<dyn CacheHolder>) {
        *self.cache.lock() = Some(cache);
    }
}

fn name_of(call: &Call) -> &'static str {
    match call {
        Call::Lookup { .. } => "lookup",
        Call::Find { .. } => "find",
        Call::Peek { .. } => "peek",
        Call::Spellings { .. } => "spellings",
        Call::Cover { .. } => "cover",
        Call::Parent { .. } => "parent",
        Call::Links { .. } => "links",
        Call::Stat { .. } => "stat",
        Call::Glance { .. } => "glance",
        Call::Access { .. } => "access",
        Call::ReadLink { .. } => "readlink",
        Call::Create { .. } => "create",
        Call::Link { .. } => "link",
        Call::Unlink { .. } => "unlink",
        Call::Rename { .. } => "rename",
        Call::SetAttributes { .. } => "set attributes",
        Call::OpenFile { .. } => "open",
        Call::Accessed { .. } => "accessed",
        Call::SetDisposition { .. } => "set disposition",
        Call::Close { .. } => "close",
        Call::Read { .. } => "read",
        Call::Write { .. } => "write",
        Call::Allocate { .. } => "allocate",
        Call::Seek { .. } => "seek",
        Call::Sync { .. } => "sync",
        Call::SyncAll => "sync all",
        Call::List { .. } => "list",
        Call::GetXattr { .. } => "get xattr",
        Call::ListXattrs { .. } => "list xattrs",
        Call::SetXattr { .. } => "set xattr",
        Call::RemoveXattr { .. } => "remove xattr",
        Call::Space => "space",
        Call::Lock { .. } => "lock",
        Call::GetLock { .. } => "get lock",
    }
}

impl Tree {
    fn answer(&mut self, cred: &Cred, call: Call) -> Result<Response, Error> {
        let reply = match call {
            Call::Lookup(call::Lookup { dir, label }) => self.lookup(cred, &dir, &label)?,
            Call::Parent(call::Parent { dir }) => self.parent(&dir)?,
            Call::Links(call::Links { file }) => Reply::Links(self.links(&file)?),
            Call::Stat(call::Stat { file }) => Reply::Stat(self.stat(&file)?),
            Call::Glance(call::Glance { file }) => {
                return Ok(Response::Uncached(Reply::Stat(self.stat(&file)?)));
            }
            Call::Access(call::Access { file, mask }) => {
                self.check(cred, &file, mask).map(|()| Reply::Nothing)?
            }
            Call::ReadLink(call::ReadLink { file }) => Reply::Bytes(self.file(&file)?.content.clone()),
            Call::Create(call::Create {
                dir,
                label,
                spec: FileSpec { kind, mode, umask, rdev, target },
                open,
            }) => self.create(cred, &dir, &label, (kind, mode & !umask, rdev), target, open.is_some())?,
            Call::Link(call::Link { file, dir, label, .. }) => self.link(&file, &dir, &label)?,
            Call::Unlink(call::Unlink { dir, label, directory, .. }) => {
                self.lingering((&dir, &label), |tree| tree.unlink(&dir, &label, directory))?
            }
            Call::Rename(call::Rename { from_dir, from, to_dir, to, mode, whiteout, .. }) => {
                let renamed = self.lingering((&to_dir, &to), |tree| {
                    tree.rename((&from_dir, &from), (&to_dir, &to), mode)
                })?;
                if whiteout {
                    let device = (namespace::FileKind::CharDevice, 0, 0);
                    self.create(cred, &from_dir, &from, device, Vec::new(), false)?;
                }
                renamed
            }
            Call::SetAttributes(call::SetAttributes { file, change, size, .. }) => {
                self.set_attributes(cred, &file, change, size)?
            }
            Call::Accessed { .. } | Call::SetDisposition { .. } => return Err(Error::NotSupported),
            Call::OpenFile(call::OpenFile { file, mask, .. }) => self.open(cred, &file, mask)?,
            Call::Close(call::Close { file, .. }) => self.close(&file)?,
            Call::Read(call::Read { file, offset, length, .. }) => {
                return self.read(&file, offset, length).map(Response::Data);
            }
            Call::Write(call::Write { file, offset, data, append }) => {
                self.write(&file, offset, &data, append)?
            }
            Call::Allocate(call::Allocate { file, offset, length, what }) => {
                self.allocate(&file, offset, length, what)?
            }
            Call::Seek(call::Seek { file, offset, hole }) => self.seek(&file, offset, hole)?,
            Call::Sync { .. } | Call::SyncAll => Reply::Nothing,
            Call::List(call::List { dir, after, upto, limit, stat }) => {
                self.list(&dir, (after, upto), limit, stat)?
            }
            Call::GetXattr(call::GetXattr { file, name }) => {
                Reply::Bytes(self.file(&file)?.xattrs.get(&name).cloned().ok_or(Error::NoAttribute)?)
            }
            Call::ListXattrs(call::ListXattrs { file }) => {
                Reply::Names(self.file(&file)?.xattrs.keys().cloned().collect())
            }
            Call::SetXattr(call::SetXattr { file, name, value, mode }) => {
                self.set_xattr(&file, name, value, mode)?
            }
            Call::RemoveXattr(call::RemoveXattr { file, name }) => self
                .file_mut(&file)?
                .xattrs
                .remove(&name)
                .ok_or(Error::NoAttribute)
                .map(|_| Reply::Nothing)?,
            Call::Space => Reply::Space { total: 1 << 40, free: 1 << 39, files: self.len() },
            Call::Lock { .. }
            | Call::GetLock { .. }
            | Call::Find { .. }
            | Call::Peek { .. }
            | Call::Spellings { .. }
            | Call::Cover { .. } => return Err(Error::NotSupported),
        };
        Ok(Response::Reply(reply))
    }

    fn read(&self, file: &FileId, offset: u64, length: u32) -> Result<Vec<Bytes>, Error> {
        let content = &self.file(file)?.content;
        let from = content.len().min(offset as usize);
        let to = content.len().min(from + length as usize);
        // In two parts, as partly cached content comes.
        let middle = if to - from > 4096 { from + 1000 } else { to };
        let part = |from, to| Bytes::copy_from_slice(&content[from..to]);
        Ok(if middle < to { vec![part(from, middle), part(middle, to)] } else { vec![part(from, to)] })
    }

    fn allocate(
        &mut self,
        file: &FileId,
        offset: u64,
        length: u64,
        what: AllocateMode,
    ) -> Result<Reply, Error> {
        let content = &mut self.file_mut(file)?.content;
        let (from, to) = (offset as usize, (offset + length) as usize);
        match what {
            AllocateMode::Reserve { keep_size: false } if to > content.len() => content.resize(to, 0),
            AllocateMode::Reserve { .. } => {}
            AllocateMode::Punch | AllocateMode::Zero { keep_size: true } => {
                let (from, to) = (from.min(content.len()), to.min(content.len()));
                content[from..to].fill(0);
            }
            AllocateMode::Zero { keep_size: false } => {
                content.resize(content.len().max(to), 0);
                content[from..to].fill(0);
            }
        }
        Ok(Reply::Nothing)
    }

    /// Every zero byte counts as a hole.
    fn seek(&self, file: &FileId, offset: u64, hole: bool) -> Result<Reply, Error> {
        let content = &self.file(file)?.content;
        let rest = content.get(offset as usize..).filter(|rest| !rest.is_empty()).ok_or(Error::NotFound)?;
        let found = rest.iter().position(|byte| (*byte == 0) == hole);
        match found {
            Some(at) => Ok(Reply::Offset(offset + at as u64)),
            None if hole => Ok(Reply::Offset(content.len() as u64)),
            None => Err(Error::NotFound),
        }
    }
}
