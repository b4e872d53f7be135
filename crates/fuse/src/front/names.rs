//! Names: looking them up, making, moving and removing them.

use client::{Call, Reply};
use lease::{Label, Open};
use namespace::{Entry, Error, FileKind, RenameMode, Stat};
use node::Told;
use std::sync::Arc;
use std::time::Duration;

use super::content::opening;
use super::{Front, Outcome, Shown, done, unexpected};
use crate::errno::Errno;
use crate::groups::Asker;

/// What a lookup comes to.
#[derive(Debug)]
pub(crate) enum Found {
    /// A file.
    File(Shown),
    /// Known to be nothing, for so long.
    Missing(Duration),
}

/// What a request wants made.
#[derive(Clone, Debug)]
pub(crate) struct NewNode {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) umask: u16,
    pub(crate) rdev: u32,
    pub(crate) target: Vec<u8>,
}

impl NewNode {
    /// Of `kind`, with the permission bits that are left of a kernel's `mode`.
    pub(crate) fn new(kind: FileKind, mode: u32, umask: u32) -> NewNode {
        NewNode {
            kind,
            mode: (mode & 0o7777) as u16,
            umask: (umask & 0o777) as u16,
            rdev: 0,
            target: Vec::new(),
        }
    }
}

impl Front {
    pub(crate) fn lookup(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        name: &[u8],
        reply: impl FnOnce(Outcome<Found>) + Send + 'static,
    ) {
        let (file, label) = match self.place(dir, name) {
            Ok(place) => place,
            Err(errno) => return reply(Err(errno)),
        };
        let since = self.nodes.missed();
        self.ask(dir, asker, Call::Lookup { dir: file, label: label.clone() }, move |front, told| {
            reply(match told {
                Err(Error::NotFound) => {
                    if front.nodes.is_contended(dir) {
                        Ok(Found::Missing(Duration::ZERO))
                    } else {
                        front.nodes.give_entry(dir, &label);
                        Ok(Found::Missing(front.door.valid_for()))
                    }
                }
                // Whatever was called `label` in a directory that is gone, by another machine perhaps, is gone.
                Err(Error::Stale) => Ok(Found::Missing(Duration::ZERO)),
                told => front.node_of(told, dir, &label, since).map(Found::File),
            });
        });
    }

    /// mknod, mkdir, symlink.
    pub(crate) fn make(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        name: &[u8],
        new: NewNode,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let (file, label) = match self.place(dir, name) {
            Ok(place) => place,
            Err(errno) => return reply(Err(errno)),
        };
        let call = create(file, label.clone(), new, None);
        let since = self.nodes.missed();
        self.ask(dir, asker, call, move |front, told| {
            reply(match told {
                // The directory is gone: of that Linux says ENOENT, and ESTALE only of what it may look up anew.
                Err(Error::Stale) => Err(Error::NotFound.into()),
                told => front.node_of(told, dir, &label, since),
            });
        });
    }

    /// creat: makes a file and opens it. Without `O_EXCL` in `flags`, opens what is there if somebody else was faster.
    pub(crate) fn create(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        name: &[u8],
        new: NewNode,
        flags: i32,
        reply: impl FnOnce(Outcome<(Shown, super::Opened)>) + Send + 'static,
    ) {
        let (file, label) = match self.place(dir, name) {
            Ok(place) => place,
            Err(errno) => return reply(Err(errno)),
        };
        let within = file.clone();
        let call = create(file, label.clone(), new, Some(opening(flags).0));
        let since = self.nodes.missed();
        let name = label.clone();
        self.ask(dir, asker, call, move |front, told| match told {
            // Another machine made it after the kernel's lookup.
            Err(Error::Exists) if flags & libc::O_EXCL == 0 => {
                front.open_existing(asker, dir, name.as_bytes(), flags, reply)
            }
            // What was made may be gone before it was opened (then the kernel tries again), or the directory was.
            Err(Error::Stale) => front.call(dir, asker, Call::Stat { file: within }, move |_, told| {
                let gone = matches!(told, Err(Error::Stale));
                reply(Err(if gone { Error::NotFound.into() } else { Errno::STALE }));
            }),
            told => reply(front.node_of(told, dir, &label, since).map(|shown| {
                let handle = front.handles.next(flags, false);
                (shown, super::Opened { handle, keep_pages: true })
            })),
        });
    }

    fn open_existing(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        name: &[u8],
        flags: i32,
        reply: impl FnOnce(Outcome<(Shown, super::Opened)>) + Send + 'static,
    ) {
        let front = Arc::clone(self);
        self.lookup(asker, dir, name, move |found| match found {
            Ok(Found::File(shown)) => {
                let node = shown.stat.attributes.ino;
                let again = Arc::clone(&front);
                front.open(asker, node, flags, move |opened| {
                    if opened.is_err() {
                        // The kernel is not told of the node after all.
                        again.nodes.forget(node, 1);
                    }
                    reply(opened.map(|opened| (shown, opened)));
                });
            }
            Ok(Found::Missing(_)) => reply(Err(Errno::STALE)),
            Err(errno) => reply(Err(errno)),
        });
    }

    pub(crate) fn link(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        dir: u64,
        name: &[u8],
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let found = self.nodes.file(node).and_then(|file| self.place(dir, name).map(|place| (file, place)));
        let (file, (to, label)) = match found {
            Ok(found) => found,
            Err(errno) => return reply(Err(errno)),
        };
        let call = Call::Link { file, dir: to, label: label.clone() };
        let since = self.nodes.missed();
        self.ask(dir, asker, call, move |front, told| reply(front.node_of(told, dir, &label, since)));
    }

    pub(crate) fn unlink(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        name: &[u8],
        directory: bool,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        match self.place(dir, name) {
            Ok((file, label)) => {
                self.ask(dir, asker, Call::Unlink { dir: file, label, directory }, move |_, told| {
                    reply(done(told))
                });
            }
            Err(errno) => reply(Err(errno)),
        }
    }

    pub(crate) fn rename(
        self: &Arc<Self>,
        asker: Asker,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let places = self.place(from.0, from.1).and_then(|place| Ok((place, self.place(to.0, to.1)?)));
        let ((from_dir, from_label), (to_dir, to_label)) = match places {
            Ok(places) => places,
            Err(errno) => return reply(Err(errno)),
        };
        // The kernel moves its own entries when this succeeds.
        self.nodes.give_entry(from.0, &from_label);
        self.nodes.give_entry(to.0, &to_label);
        let call = Call::Rename { from_dir, from: from_label, to_dir, to: to_label, mode };
        self.ask(to.0, asker, call, move |_, told| reply(done(told)));
    }

    pub(crate) fn readlink(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Vec<u8>>) + Send + 'static,
    ) {
        match self.nodes.file(node) {
            Ok(file) => self.call(node, asker, Call::ReadLink { file }, move |_, told| {
                reply(match told {
                    Ok(Told::Reply(Reply::Bytes(target))) => Ok(target),
                    Ok(other) => Err(unexpected(&other)),
                    Err(error) => Err(error.into()),
                });
            }),
            Err(errno) => reply(Err(errno)),
        }
    }

    /// The kernel forgets `node` so many times.
    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        self.nodes.forget(node, lookups);
    }

    /// Too long a name is refused here, before anything is asked; the kernel itself resolves `.` and `..`.
    fn place(&self, dir: u64, name: &[u8]) -> Outcome<(ident::FileId, Label)> {
        Ok((self.nodes.file(dir)?, Label::new(name)?))
    }

    /// The kernel is about to be given what `told` names, as `label` in `dir`. `since`: see [`Front::give`].
    fn node_of(&self, told: Result<Told, Error>, dir: u64, label: &Label, since: u64) -> Outcome<Shown> {
        let (entry, stat, passing) = match told? {
            Told::Reply(Reply::Node(entry, stat)) => (entry, stat, false),
            Told::Passing(Reply::Node(entry, stat)) => (entry, stat, true),
            other => return Err(unexpected(&other)),
        };
        let contended = self.nodes.is_contended(dir);
        if !contended {
            self.nodes.give_entry(dir, label);
        }
        let mut shown = self.give(&entry, stat, since)?;
        if contended {
            shown = Shown { entry_ttl: Duration::ZERO, ..shown };
        }
        Ok(if contended || passing { shown.passing() } else { shown })
    }

    /// The kernel is about to be given a file, of which was asked when there had been so many [`Nodes::missed`](crate::nodes::Nodes::missed). Trap: what is taken back between that it is decided and that it is given is
    /// taken back of nobody. So if anything was, the file is given for no time.
    pub(super) fn give(&self, entry: &Entry, mut stat: Stat, since: u64) -> Outcome<Shown> {
        stat.attributes.ino = entry.ino;
        self.nodes.give(&entry.file, &stat)?;
        let shown = self.show(stat);
        Ok(if self.nodes.missed() == since { shown } else { shown.passing() })
    }
}

fn create(dir: ident::FileId, label: Label, new: NewNode, open: Option<Open>) -> Call {
    let NewNode { kind, mode, umask, rdev, target } = new;
    Call::Create { dir, label, kind, mode, umask, rdev, target, open }
}
