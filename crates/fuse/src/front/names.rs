//! Names: looks them up, makes, moves and removes them.

use client::{Call, Reply};
use file_service::Response;
use lease::{Label, Open};
use namespace::{Entry, Error, FileKind, RenameMode, Stat};
use std::sync::Arc;
use std::time::Duration;

use super::content::opening;
use super::{Front, Outcome, Shown, done, unexpected};
use crate::errno::Errno;
use crate::flight::{RENAMES, Whose};
use crate::groups::Asker;
use crate::nodes::Since;
use crate::syscall;
use crate::watches::Noted;

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum LookedUp {
    /// A file.
    File(Shown),
    /// There is no such name, and the kernel may cache that for so long.
    Missing(Duration),
}

/// A file that a request makes.
#[derive(Clone, Debug)]
pub(crate) struct NewNode {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) umask: u16,
    pub(crate) rdev: u32,
    pub(crate) target: Vec<u8>,
}

impl NewNode {
    /// A new file of `kind`, with the permission bits of the kernel's `mode`.
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
        reply: impl FnOnce(Outcome<LookedUp>) + Send + 'static,
    ) {
        if matches!(name, b"." | b"..") {
            return self.lookup_node(asker, dir, name == b"..", reply);
        }
        let (file, label) = match self.place(dir, name) {
            Ok(place) => place,
            Err(errno) => return reply(Err(errno)),
        };
        let (since, within) = (self.nodes.since(dir), file.clone());
        self.ask(dir, asker, Call::Lookup { dir: file, label: label.clone() }, move |front, told| {
            let found = match told {
                Ok(Response::Reply(Reply::Glimpsed(None))) => Ok(LookedUp::Missing(Duration::ZERO)),
                Err(Error::NotFound) => {
                    let may = !front.nodes.is_contended(dir) && front.nodes.give_entry(dir, &label, since);
                    Ok(LookedUp::Missing(if may { front.door.valid_for() } else { Duration::ZERO }))
                }
                // If the directory is gone, perhaps removed by another machine, its name `label` is
                // gone as well. If only a file was replaced, ESTALE has the kernel ask once more.
                Err(Error::Stale) => {
                    return front.call(dir, asker, Call::Stat { file: within }, move |_, told| {
                        let gone = matches!(told, Err(Error::Stale));
                        reply(if gone { Ok(LookedUp::Missing(Duration::ZERO)) } else { Err(Errno::STALE) });
                    });
                }
                told => front.node_of(told, (asker, dir, &label), since).map(LookedUp::File),
            };
            reply(found);
        });
    }

    /// Looks up `.` or `..` of a node. A user of a file handle (`open_by_handle_at`, nfsd) has a
    /// node's number, which the kernel may have forgotten. On its way to the root it asks for each
    /// parent.
    fn lookup_node(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        parent: bool,
        reply: impl FnOnce(Outcome<LookedUp>) + Send + 'static,
    ) {
        let file = match self.nodes.file_of_handle(node) {
            Ok(file) => file,
            Err(errno) => return reply(Err(errno)),
        };
        let since = self.nodes.since(node);
        let call = match parent {
            true => Call::Parent { dir: file.clone() },
            false => Call::Stat { file: file.clone() },
        };
        self.call(node, asker, call, move |front, told| {
            let passing = matches!(told, Ok(Response::Uncached(_)));
            let (entry, stat) = match told {
                Ok(
                    Response::Reply(Reply::Node(entry, stat)) | Response::Uncached(Reply::Node(entry, stat)),
                ) => (entry, stat),
                Ok(Response::Reply(Reply::Stat(stat)) | Response::Uncached(Reply::Stat(stat))) => {
                    let (kind, ino) = (stat.attributes.kind, stat.attributes.ino);
                    (Entry { file, kind, ino, position: 0 }, stat)
                }
                Ok(other) => return reply(Err(unexpected(&other))),
                Err(error) => return reply(Err(error.into())),
            };
            let shown = front.nodes.give(&entry.file, &stat).map(|node| front.show(node, stat));
            let passing =
                passing || front.nodes.is_barred(&entry.file, since) || front.mapped.hides(entry.ino, &stat);
            reply(shown.map(|shown| LookedUp::File(if passing { shown.passing() } else { shown })));
        });
    }

    /// Makes a file or directory: mknod, mkdir, symlink.
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
        let noted = self.watches.begins([(&file, &label)]);
        let call = create(file, label.clone(), new, None);
        let since = self.nodes.since(dir);
        self.ask(dir, asker, call, move |front, told| {
            noted.into_iter().for_each(|noted| noted.bound(&told));
            reply(match told {
                // The directory is gone. Linux reports ENOENT for that. It takes ESTALE only where
                // it may look a name up anew.
                Err(Error::Stale) => Err(Error::NotFound.into()),
                told => front.node_of(told, (asker, dir, &label), since),
            });
        });
    }

    /// creat: makes a file and opens it. If another program was faster, it opens the existing file,
    /// unless `flags` has `O_EXCL`.
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
        let noted = self.watches.begins([(&file, &label)]);
        let call = create(file, label.clone(), new, Some(opening(flags).0));
        let since = self.nodes.since(dir);
        let name = label.clone();
        self.ask(dir, asker, call, move |front, told| {
            noted.into_iter().for_each(|noted| noted.bound(&told));
            match told {
                // Another machine made the file after the kernel's lookup.
                Err(Error::Exists) if flags & libc::O_EXCL == 0 => {
                    front.open_existing(asker, dir, name.as_bytes(), flags, reply)
                }
                // Either the new file was gone before it was opened, and the kernel tries again, or
                // the directory is gone.
                Err(Error::Stale) => front.call(dir, asker, Call::Stat { file: within }, move |_, told| {
                    let gone = matches!(told, Err(Error::Stale));
                    reply(Err(if gone { Error::NotFound.into() } else { Errno::STALE }));
                }),
                told => reply(front.node_of(told, (asker, dir, &label), since).map(|shown| {
                    front.mapped.opened(shown.stat.attributes.ino, opening(flags).0);
                    let handle = front.handles.next(flags, false);
                    (shown, super::Opened { handle, keep_pages: true })
                })),
            }
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
            Ok(LookedUp::File(shown)) => {
                let node = shown.node;
                let again = Arc::clone(&front);
                front.open(asker, node, flags, move |opened| {
                    if opened.is_err() {
                        // The kernel is not given the node after all.
                        again.forget([(node, 1)]);
                    }
                    reply(opened.map(|opened| (shown, opened)));
                });
            }
            Ok(LookedUp::Missing(_)) => reply(Err(Errno::STALE)),
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
        let noted = self.watches.begins([(&to, &label)]);
        let call = Call::Link { file, dir: to, label: label.clone() };
        let since = self.nodes.since(dir);
        self.ask(dir, asker, call, move |front, told| {
            noted.into_iter().for_each(|noted| noted.bound(&told));
            reply(front.node_of(told, (asker, dir, &label), since))
        });
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
                let noted = self.watches.begins([(&file, &label)]);
                let call = Call::Unlink { dir: file, label: label.clone(), directory };
                self.ask(dir, asker, call, move |front, told| {
                    if told.is_ok() {
                        noted.into_iter().for_each(Noted::gone);
                    }
                    front.lingers(&told);
                    let outcome = done(told);
                    if outcome.is_ok() {
                        // The kernel drops its entry by itself.
                        front.nodes.drop_entry(dir, &label);
                    }
                    reply(outcome);
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
        (mode, whiteout): (RenameMode, bool),
        reply: impl FnOnce(Outcome<()>) + Send + 'static,
    ) {
        let places = self.place(from.0, from.1).and_then(|place| Ok((place, self.place(to.0, to.1)?)));
        let ((from_dir, from_label), (to_dir, to_label)) = match places {
            Ok(places) => places,
            Err(errno) => return reply(Err(errno)),
        };
        // The kernel moves its own entries when this succeeds.
        self.nodes.move_entry((from.0, &from_label), (to.0, &to_label));
        if mode == RenameMode::Exchange {
            self.nodes.move_entry((to.0, &to_label), (from.0, &from_label));
        }
        let (from, to) = (from.0, to.0);
        let (from_name, to_name) = (from_label.clone(), to_label.clone());
        let noted = self.watches.begins([(&from_dir, &from_label), (&to_dir, &to_label)]);
        let dirs = noted.as_ref().map(|_| (from_dir.clone(), to_dir.clone()));
        let call = Call::Rename { from_dir, from: from_label, to_dir, to: to_label, mode, whiteout };
        self.ask(to, asker, call, move |front, told| {
            if told.is_ok() {
                if let (Some(noted), Some((from_dir, to_dir))) = (noted, dirs) {
                    let (from, to) = ((&from_dir, &from_name), (&to_dir, &to_name));
                    noted.renamed(from, to, mode == RenameMode::Exchange, whiteout);
                }
                front.nodes.moved((from, &from_name), (to, &to_name), mode == RenameMode::Exchange);
            }
            front.lingers(&told);
            reply(done(told));
        });
    }

    /// Notes that a file has lost its last name, and lingers until the kernel forgets it. The
    /// kernel cannot forget a file that it does not have, because another machine has given the
    /// name to another file. Such a file counts as forgotten at once.
    fn lingers(&self, told: &Result<Response, Error>) {
        if let Ok(Response::Reply(Reply::Lingers(file))) = told
            && !self.nodes.linger(file)
        {
            self.door.forgotten(vec![file.clone()]);
        }
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
                    Ok(Response::Reply(Reply::Bytes(target))) => Ok(target),
                    Ok(other) => Err(unexpected(&other)),
                    Err(error) => Err(error.into()),
                });
            }),
            Err(errno) => reply(Err(errno)),
        }
    }

    /// The kernel forgets nodes, each a number of times.
    pub(crate) fn forget(&self, nodes: impl IntoIterator<Item = (u64, u64)>) {
        let lingered: Vec<ident::FileId> =
            nodes.into_iter().filter_map(|(node, lookups)| self.forget_one(node, lookups)).collect();
        if !lingered.is_empty() {
            self.door.forgotten(lingered);
        }
    }

    fn forget_one(&self, node: u64, lookups: u64) -> Option<ident::FileId> {
        let lingered = self.nodes.forget(node, lookups);
        self.removed.forget(node, || self.nodes.file(node).is_err());
        self.beside.forget(node, || self.nodes.file(node).is_err());
        lingered
    }

    /// The file of `dir`, and the label for `name`. A name that is too long is refused here, before
    /// any call. The kernel itself resolves `.` and `..`.
    fn place(&self, dir: u64, name: &[u8]) -> Outcome<(ident::FileId, Label)> {
        Ok((self.nodes.file(dir)?, Label::new(name)?))
    }

    /// Gives the kernel the file in answer `told` as `label` in `dir`. `since`: see
    /// [`Front::give`].
    fn node_of(
        &self,
        told: Result<Response, Error>,
        (asker, dir, label): (Asker, u64, &Label),
        since: Since,
    ) -> Outcome<Shown> {
        let (entry, stat, passing, glimpsed) = match told? {
            Response::Reply(Reply::Node(entry, stat)) => (entry, stat, false, false),
            Response::Uncached(Reply::Node(entry, stat)) => (entry, stat, true, false),
            Response::Reply(Reply::Glimpsed(Some((entry, stat)))) => (entry, stat, true, true),
            other => return Err(unexpected(&other)),
        };
        // Trap: it counts as given before it is a node, so that a revocation finds either.
        let may = !glimpsed && !self.nodes.is_contended(dir) && self.nodes.give_entry(dir, label, since);
        let shown = self.give((asker, dir, label), &entry, stat, true, since)?;
        // With `anew` a file is always given a node.
        let mut shown = shown.ok_or(Errno::STALE)?;
        if !may {
            shown = Shown { entry_ttl: Duration::ZERO, ..shown };
        }
        Ok(if !may || passing { shown.passing() } else { shown })
    }

    /// Gives the kernel a file as `label` in `dir`. `since` is
    /// from before the file was asked for. Trap: an
    /// invalidation that comes between the decision and this finds no node. So if there was any,
    /// the file is given with a time-out of 0. A directory that the kernel has elsewhere and cannot
    /// move is given only if it may get another node (`anew`).
    pub(super) fn give(
        &self,
        (asker, dir, label): (Asker, u64, &Label),
        entry: &Entry,
        mut stat: Stat,
        anew: bool,
        since: Since,
    ) -> Outcome<Option<Shown>> {
        stat.attributes.ino = entry.ino;
        let can_splice = |from: u64| self.can_splice(asker, from, dir);
        let Some(node) = self.nodes.give_at((dir, label), &entry.file, &stat, anew, can_splice)? else {
            return Ok(None);
        };
        let shown = self.show(node, stat);
        let keeps = !self.nodes.is_barred(&entry.file, since) && !self.mapped.hides(entry.ino, &shown.stat);
        Ok(Some(if keeps { shown } else { shown.passing() }))
    }

    /// Whether the kernel can move an entry from `from` to `to` when it is answered. It can if no
    /// thread renames, the asker included, and no request is under way in `from`.
    fn can_splice(&self, asker: Asker, from: u64, to: u64) -> bool {
        let is_idle = |whose| self.flight.idle(Whose::Node(whose));
        is_idle(RENAMES) && (from == to || is_idle(from)) && !syscall::may_rename(asker.pid)
    }
}

fn create(dir: ident::FileId, label: Label, new: NewNode, open: Option<Open>) -> Call {
    let NewNode { kind, mode, umask, rdev, target } = new;
    Call::Create { dir, label, kind, mode, umask, rdev, target, open }
}
