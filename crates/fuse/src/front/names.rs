//! Names: looks them up, makes, moves and removes them.

use client::call;
use file_service::{LookupReply, Observed};
use ident::FileId;
use lease::Label;
use namespace::{Entry, Error, FileSpec, RenameMode, Stat};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::opening;
use super::{CreateRequest, Front, LookedUp, Opened, Outcome, Shown, or_reply};
use crate::errno::Errno;
use crate::flight::{RENAMES, Whose};
use crate::groups::Asker;
use crate::nodes::Since;
use crate::syscall;
use crate::watches::Noted;

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
        let Some(((file, label), reply)) = or_reply(self.place(dir, name), reply) else { return };
        if !self.gave.has(asker.pid, Instant::now) {
            return self.lookup_now(asker, dir, (file, label), reply);
        }
        let (front, within) = (Arc::clone(self), file.clone());
        let lookup = Box::new(move || front.lookup_now(asker, dir, (file, label), reply));
        if let Some(lookup) = self.barrier.hold_up(&within, lookup) {
            lookup();
        }
    }

    /// Looks a name up without being held up.
    fn lookup_now(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        (file, label): (FileId, Label),
        reply: impl FnOnce(Outcome<LookedUp>) + Send + 'static,
    ) {
        let (since, within) = (self.nodes.since(dir), file.clone());
        self.ask(dir, asker, call::Lookup { dir: file, label: label.clone() }, move |front, told| {
            let found = match told {
                Ok(LookupReply::Leased(node)) => {
                    front.node_of(node, true, (asker, dir, &label), since).map(LookedUp::File)
                }
                Ok(LookupReply::Glimpsed(Some(value))) => {
                    let node = Observed { value, uncached: true };
                    front.node_of(node, false, (asker, dir, &label), since).map(LookedUp::File)
                }
                Ok(LookupReply::Glimpsed(None)) => Ok(LookedUp::Missing(Duration::ZERO)),
                Err(Error::NotFound) => {
                    let may = front.may_keep_entries(dir) && front.nodes.give_entry(dir, &label, since);
                    Ok(LookedUp::Missing(if may { front.service.valid_for() } else { Duration::ZERO }))
                }
                // If the directory is gone, perhaps removed by another machine, its name `label` is
                // gone as well. If only a file was replaced, ESTALE has the kernel ask once more.
                Err(Error::Stale) => {
                    return front.call(dir, asker, call::Stat { file: within }, move |_, told| {
                        let gone = matches!(told, Err(Error::Stale));
                        reply(if gone { Ok(LookedUp::Missing(Duration::ZERO)) } else { Err(Errno::STALE) });
                    });
                }
                Err(error) => Err(error.into()),
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
        let Some((file, reply)) = or_reply(self.nodes.file_of_handle(node), reply) else { return };
        let since = self.nodes.since(node);
        let give = move |front: &Front, file: &FileId, ino: u64, observed: Observed<Stat>| {
            let Observed { value: stat, uncached } = observed;
            let node = front.nodes.give(file, &stat)?;
            let hides = uncached || front.mapped.hides(ino, &stat);
            let keeps = !hides && front.nodes.may_keep(node, file, since);
            let shown = front.show(node, stat);
            Ok(LookedUp::File(if keeps { shown } else { shown.uncached() }))
        };
        if parent {
            self.call(node, asker, call::Parent { dir: file }, move |front, told| {
                reply(told.map_err(Errno::from).and_then(|Observed { value: (entry, stat), uncached }| {
                    give(front, &entry.file, entry.ino, Observed { value: stat, uncached })
                }));
            });
        } else {
            self.call(node, asker, call::Stat { file: file.clone() }, move |front, told| {
                reply(
                    told.map_err(Errno::from)
                        .and_then(|stat| give(front, &file, stat.value.attributes.ino, stat)),
                );
            });
        }
    }

    /// Makes a file or directory: mknod, mkdir, symlink.
    pub(crate) fn make(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        name: &[u8],
        spec: FileSpec,
        reply: impl FnOnce(Outcome<Shown>) + Send + 'static,
    ) {
        let Some(((file, label), reply)) = or_reply(self.place(dir, name), reply) else { return };
        let noted = self.watches.begins([(&file, &label)]);
        let call = call::Create { dir: file, label: label.clone(), spec, open: None };
        let since = self.nodes.since(dir);
        self.ask(dir, asker, call, move |front, told| {
            bound(noted, &told);
            reply(match told {
                Err(error) => Err(of_name(error)),
                Ok(node) => front.node_of(node, true, (asker, dir, &label), since),
            });
        });
    }

    /// creat: makes a file and opens it. If another program was faster, it opens the existing file,
    /// unless `flags` has `O_EXCL`.
    pub(crate) fn create(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        CreateRequest { name, spec, flags }: CreateRequest<'_>,
        reply: impl FnOnce(Outcome<(Shown, Opened)>) + Send + 'static,
    ) {
        let Some(((file, label), reply)) = or_reply(self.place(dir, name), reply) else { return };
        let within = file.clone();
        let noted = self.watches.begins([(&file, &label)]);
        let open = Some(opening(flags).0);
        let call = call::Create { dir: file, label: label.clone(), spec, open };
        let since = self.nodes.since(dir);
        let name = label.clone();
        self.ask(dir, asker, call, move |front, told| {
            bound(noted, &told);
            match told {
                // Another machine made the file after the kernel's lookup.
                Err(Error::Exists) if flags & libc::O_EXCL == 0 => {
                    front.open_existing(asker, dir, name.as_bytes(), flags, reply)
                }
                // Either the new file was gone before it was opened, and the kernel tries again, or
                // the directory is gone.
                Err(Error::Stale) => front.call(dir, asker, call::Stat { file: within }, move |_, told| {
                    let gone = matches!(told, Err(Error::Stale));
                    reply(Err(if gone { Error::NotFound.into() } else { Errno::STALE }));
                }),
                Err(error) => reply(Err(error.into())),
                Ok(node) => reply(front.node_of(node, true, (asker, dir, &label), since).map(|shown| {
                    front.mapped.opened(shown.stat.attributes.ino, opening(flags).0);
                    let handle = front.handles.next(flags, false);
                    (shown, Opened { handle, keep_pages: true })
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
        reply: impl FnOnce(Outcome<(Shown, Opened)>) + Send + 'static,
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
        let Some(((file, (to, label)), reply)) = or_reply(found, reply) else { return };
        let noted = self.watches.begins([(&to, &label)]);
        let call = call::Link { file, dir: to, label: label.clone(), replaced: None };
        let since = self.nodes.since(dir);
        self.ask(dir, asker, call, move |front, told| {
            bound(noted, &told);
            let node = told.map_err(of_name);
            reply(node.and_then(|node| front.node_of(node, true, (asker, dir, &label), since)));
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
        let Some(((file, label), reply)) = or_reply(self.place(dir, name), reply) else { return };
        let noted = self.watches.begins([(&file, &label)]);
        let call = call::Unlink { dir: file, label: label.clone(), directory, pending: None };
        self.ask(dir, asker, call, move |front, told| {
            reply(told.map_err(of_name).map(|lingering| {
                noted.into_iter().for_each(Noted::gone);
                if let Some(file) = &lingering {
                    front.lingers(file);
                }
                // The kernel drops its entry by itself.
                front.nodes.drop_entry(dir, &label);
            }));
        });
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
        let Some((places, reply)) = or_reply(places, reply) else { return };
        let ((from_dir, from_label), (to_dir, to_label)) = places;
        // The kernel moves its own entries when this succeeds.
        self.nodes.move_entry((from.0, &from_label), (to.0, &to_label));
        if mode == RenameMode::Exchange {
            self.nodes.move_entry((to.0, &to_label), (from.0, &from_label));
        }
        let (from, to) = (from.0, to.0);
        let (from_name, to_name) = (from_label.clone(), to_label.clone());
        let noted = self.watches.begins([(&from_dir, &from_label), (&to_dir, &to_label)]);
        let dirs = noted.as_ref().map(|_| (from_dir.clone(), to_dir.clone()));
        let call = call::Rename {
            from_dir,
            from: from_label,
            to_dir,
            to: to_label,
            mode,
            whiteout,
            source: None,
            replaced: None,
        };
        self.ask(to, asker, call, move |front, told| {
            reply(told.map_err(of_name).map(|lingering| {
                if let (Some(noted), Some((from_dir, to_dir))) = (noted, dirs) {
                    let (from, to) = ((&from_dir, &from_name), (&to_dir, &to_name));
                    noted.renamed(from, to, mode == RenameMode::Exchange, whiteout);
                }
                front.nodes.moved((from, &from_name), (to, &to_name), mode == RenameMode::Exchange);
                if let Some(file) = &lingering {
                    front.lingers(file);
                }
            }));
        });
    }

    /// Notes that a file has lost its last name, and lingers until the kernel forgets it. The
    /// kernel cannot forget a file that it does not have, because another machine has given the
    /// name to another file. Such a file counts as forgotten at once.
    fn lingers(&self, file: &FileId) {
        if !self.nodes.linger(file) {
            self.service.forgotten(vec![file.clone()]);
        }
    }

    pub(crate) fn readlink(
        self: &Arc<Self>,
        asker: Asker,
        node: u64,
        reply: impl FnOnce(Outcome<Vec<u8>>) + Send + 'static,
    ) {
        let Some((file, reply)) = or_reply(self.nodes.file(node), reply) else { return };
        self.call(node, asker, call::ReadLink { file }, move |_, told| reply(told.map_err(Errno::from)));
    }

    /// The kernel forgets nodes, each a number of times.
    pub(crate) fn forget(&self, nodes: impl IntoIterator<Item = (u64, u64)>) {
        let lingered: Vec<FileId> =
            nodes.into_iter().filter_map(|(node, lookups)| self.forget_one(node, lookups)).collect();
        if !lingered.is_empty() {
            self.service.forgotten(lingered);
        }
    }

    fn forget_one(&self, node: u64, lookups: u64) -> Option<FileId> {
        let lingered = self.nodes.forget(node, lookups);
        self.removed.forget(node, || self.nodes.file(node).is_err());
        self.beside.forget(node, || self.nodes.file(node).is_err());
        lingered
    }

    /// The file of `dir`, and the label for `name`. A name that is too long is refused here, before
    /// any call. The kernel itself resolves `.` and `..`.
    fn place(&self, dir: u64, name: &[u8]) -> Outcome<(FileId, Label)> {
        Ok((self.nodes.file(dir)?, Label::new(name)?))
    }

    /// Gives the kernel the file in a reply as `label` in `dir`. `is_leased` says that the entry
    /// is. `since`: see [`Front::give`].
    fn node_of(
        &self,
        Observed { value: (entry, stat), uncached }: Observed<(Entry, Stat)>,
        is_leased: bool,
        (asker, dir, label): (Asker, u64, &Label),
        since: Since,
    ) -> Outcome<Shown> {
        // Trap: it counts as given before it is a node, so that a revocation finds either.
        let may = is_leased && self.may_keep_entries(dir) && self.nodes.give_entry(dir, label, since);
        let value = Observed { value: stat, uncached: uncached || !may };
        let shown = self.give((asker, dir, label), &entry, value, true, since)?;
        // With `anew` a file is always given a node.
        let mut shown = shown.ok_or(Errno::STALE)?;
        if !may {
            shown = Shown { entry_ttl: Duration::ZERO, ..shown };
        }
        Ok(shown)
    }

    /// Whether the kernel may keep entries of `dir` that it is given now. Trap: to expire an entry
    /// the kernel takes the directory's lock. A change that waits there holds this lock, and may be
    /// one that cannot give way ([`crate::way`]). It found no entry there, or had all expired. So
    /// none is given until the change is answered.
    pub(super) fn may_keep_entries(&self, dir: u64) -> bool {
        !self.nodes.is_contended(dir) && !self.waits.is_changing(|| self.nodes.file(dir).ok())
    }

    /// Gives the kernel a file as `label` in `dir`. `since` is from before the file was asked for.
    /// Trap: an invalidation that comes between the decision and this finds no node. So if there
    /// was any, the file is given with a time-out of 0. A directory that the kernel has elsewhere
    /// and cannot move is given only if it may get another node (`anew`).
    pub(super) fn give(
        &self,
        (asker, dir, label): (Asker, u64, &Label),
        entry: &Entry,
        Observed { value: mut stat, uncached }: Observed<Stat>,
        anew: bool,
        since: Since,
    ) -> Outcome<Option<Shown>> {
        stat.attributes.ino = entry.ino;
        let can_splice = |from: u64| self.can_splice(asker, from, dir);
        let asks = || Some((asker.pid, syscall::of(asker.pid)?));
        let Some(node) = self.nodes.give_at((dir, label), &entry.file, &stat, anew, can_splice, asks)? else {
            return Ok(None);
        };
        let shown = self.show(node, stat);
        let hides = uncached || self.mapped.hides(entry.ino, &shown.stat);
        let keeps = !hides && self.nodes.may_keep(node, &entry.file, since);
        Ok(Some(if keeps { shown } else { shown.uncached() }))
    }

    /// Whether the kernel can move an entry from `from` to `to` when it is answered. It can if no
    /// thread renames, the asker included, and no request is under way in `from`. A thread that
    /// gave way may have locked everything for its rename again, and its request is still to come.
    fn can_splice(&self, asker: Asker, from: u64, to: u64) -> bool {
        let is_idle = |whose| self.flight.idle(Whose::Node(whose));
        is_idle(RENAMES)
            && self.gave.is_empty(Instant::now)
            && (from == to || is_idle(from))
            && !syscall::may_rename(asker.pid)
    }
}

/// The error of a call that binds or unbinds names. Another program has removed a directory, or the
/// file to be linked, since the kernel found it. Linux reports ENOENT for that, as on a local disk.
/// It takes ESTALE only where it may look a name up anew.
fn of_name(error: Error) -> Errno {
    match error {
        Error::Stale => Error::NotFound.into(),
        error => error.into(),
    }
}

/// Tells `noted` which file its name is now, if the call has bound the name.
fn bound(noted: Option<Noted>, told: &Result<Observed<(Entry, Stat)>, Error>) {
    if let (Some(noted), Ok(Observed { value: (entry, stat), .. })) = (noted, told) {
        noted.bound(entry, stat);
    }
}
