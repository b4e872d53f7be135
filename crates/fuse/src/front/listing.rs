//! Reading directories.

use client::{Call, Listed, Reply};
use ident::FileId;
use namespace::{Entry, Error, FileKind};
use node::Told;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use super::{Front, Outcome, Shown, unexpected};
use crate::errno::Errno;
use crate::groups::Asker;

/// Cookies of `.` and `..`; an entry's is its position plus these. Positions stay far below 2^63, where cookies would turn negative for the kernel.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Entries of a page's second call, when the first did not fill it; each further call asks for twice as many.
const FURTHER_ENTRIES: usize = 32;

/// Entries of one call at most.
const ENTRIES_MAX: usize = 8192;

/// Stats fetched one by one for a page: each is answered inside the last one's answer.
const FETCHED_MAX: usize = 64;

/// One line of a listing.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
    /// Where to go on after it.
    pub(crate) cookie: u64,
    /// What readdirplus says beside; for `.` and `..`, which the kernel does not take, the directory's own.
    pub(crate) shown: Option<Shown>,
}

/// The kernel's buffer.
pub(crate) trait Page: Send + 'static {
    /// Whether attributes are wanted, and each file counts as given.
    fn plus(&self) -> bool;
    /// Adds a line; `false` if there is no room for it.
    fn push(&mut self, line: &Line<'_>) -> bool;
    /// Hands it over.
    fn finish(self, outcome: Outcome<()>);
}

/// How many lines the last full pages held, plain and plus: how many there is room for depends on their names.
#[derive(Debug)]
pub(crate) struct PageLines([AtomicUsize; 2]);

impl PageLines {
    pub(crate) fn new() -> PageLines {
        PageLines([AtomicUsize::new(128), AtomicUsize::new(64)])
    }

    fn of(&self, plus: bool) -> &AtomicUsize {
        &self.0[usize::from(plus)]
    }
}

impl Front {
    /// What follows cookie `after` in `dir`, as much as fits. Every page asks anew, so entries are current when returned.
    ///
    /// Handles of directories hold nothing, and the kernel caches no listings (`FOPEN_CACHE_DIR`): it would go on returning entries from its
    /// copy to whoever is reading already, after they are gone.
    pub(crate) fn list<P: Page>(self: &Arc<Self>, asker: Asker, dir: u64, after: u64, page: P) {
        let file = match self.nodes.file(dir) {
            Ok(file) => file,
            Err(errno) => return page.finish(Err(errno)),
        };
        let ask_for = self.page_lines.of(page.plus()).load(Relaxed);
        let mut to = Filling {
            asker,
            dir,
            file,
            since: self.nodes.missed(),
            page,
            given: false,
            lines: 0,
            after: after.saturating_sub(DOT_DOT),
            ask_for,
            calls: 0,
            fetched: 0,
        };
        if after >= DOT_DOT {
            return self.list_entries(to);
        }
        self.call(dir, asker, Call::Stat { file: to.file.clone() }, move |front, told| match told {
            Ok(Told::Reply(Reply::Stat(own)) | Told::Passing(Reply::Stat(own))) => {
                let own = front.show(own);
                front.call(dir, asker, Call::Parent { dir: to.file.clone() }, move |front, told| {
                    let parent = match told {
                        Ok(Told::Reply(Reply::Node(entry, _)) | Told::Passing(Reply::Node(entry, _))) => {
                            entry.ino
                        }
                        // Removed meanwhile: its own number is as good as any.
                        _ => own.stat.attributes.ino,
                    };
                    if to.add_dots(after, own, parent) {
                        front.list_entries(to)
                    } else {
                        to.page.finish(Ok(()))
                    }
                });
            }
            Ok(other) => to.give_up(unexpected(&other)),
            // The directory was removed, by another machine perhaps: it has no entries.
            Err(Error::Stale) => to.page.finish(Ok(())),
            Err(error) => to.give_up(error.into()),
        });
    }

    fn list_entries<P: Page>(self: &Arc<Self>, mut to: Filling<P>) {
        let limit = to.ask_for.clamp(1, ENTRIES_MAX);
        if to.page.plus() && !self.nodes.is_contended(to.dir) {
            self.nodes.give_every_entry(to.dir);
            to.given = true;
        }
        let call = Call::List { dir: to.file.clone(), after: to.after, limit, stat: to.page.plus() };
        self.ask(to.dir, to.asker, call, move |front, told| match told {
            Ok(Told::Reply(Reply::Listing { entries, end })) => front.fill(to, entries, 0, end),
            Ok(other) => to.give_up(unexpected(&other)),
            Err(Error::Stale) => to.page.finish(Ok(())),
            Err(error) => to.give_up(error.into()),
        });
    }

    /// Writes `entries` from the one at `at` on, while there is room, then asks for more unless they were the last.
    fn fill<P: Page>(self: &Arc<Self>, mut to: Filling<P>, entries: Vec<Listed>, at: usize, end: bool) {
        let none = entries.is_empty();
        for (at, listed) in entries.iter().enumerate().skip(at) {
            if to.page.plus() && listed.stat.is_none() {
                if to.fetched == FETCHED_MAX {
                    return to.page.finish(Ok(()));
                }
                return self.fetch(to, entries, at, end);
            }
            match self.add(&mut to, listed) {
                Ok(true) => {}
                Ok(false) => {
                    self.page_lines.of(to.page.plus()).store(to.lines, Relaxed);
                    return to.page.finish(Ok(()));
                }
                Err(errno) => return to.give_up(errno),
            }
        }
        if end || none {
            return to.page.finish(Ok(()));
        }
        to.calls += 1;
        to.ask_for = FURTHER_ENTRIES << to.calls.min(8);
        self.list_entries(to);
    }

    /// Adds one line, if there is room.
    fn add<P: Page>(&self, to: &mut Filling<P>, listed: &Listed) -> Outcome<bool> {
        let Listed { label, entry, stat, passing } = listed;
        let cookie = entry.position.checked_add(DOT_DOT).ok_or(Errno::IO)?;
        let shown =
            stat.filter(|_| to.page.plus()).map(|stat| self.give(entry, stat, to.since)).transpose()?;
        let kept = to.given && !passing;
        let shown = shown
            .map(|shown| if kept { shown } else { Shown { entry_ttl: Duration::ZERO, ..shown.passing() } });
        if to.page.push(&Line { name: label.as_bytes(), ino: entry.ino, kind: entry.kind, cookie, shown }) {
            (to.lines, to.after) = (to.lines + 1, entry.position);
            return Ok(true);
        }
        if shown.is_some() {
            self.nodes.forget(entry.ino, 1);
        }
        Ok(false)
    }

    /// The stat of the entry at `at`, which came without: a line that leaves it out costs a request more.
    fn fetch<P: Page>(self: &Arc<Self>, mut to: Filling<P>, mut entries: Vec<Listed>, at: usize, end: bool) {
        let Some(Entry { file, position, .. }) = entries.get(at).map(|listed| listed.entry.clone()) else {
            return to.give_up(Errno::IO);
        };
        to.fetched += 1;
        self.call(to.dir, to.asker, Call::Stat { file }, move |front, told| match told {
            Ok(told @ (Told::Reply(Reply::Stat(stat)) | Told::Passing(Reply::Stat(stat)))) => {
                let passing = matches!(told, Told::Passing(_));
                if let Some(listed) = entries.get_mut(at) {
                    (listed.stat, listed.passing) = (Some(stat), passing);
                }
                front.fill(to, entries, at, end);
            }
            // Gone since it was listed.
            Err(Error::Stale) => {
                to.after = position;
                front.fill(to, entries, at + 1, end);
            }
            Ok(other) => to.give_up(unexpected(&other)),
            Err(error) => to.give_up(error.into()),
        });
    }
}

/// A page being filled.
struct Filling<P> {
    asker: Asker,
    dir: u64,
    file: FileId,
    /// See [`Front::give`].
    since: u64,
    page: P,
    /// Whether the kernel may keep entries.
    given: bool,
    /// Lines that it has.
    lines: usize,
    /// Position of the last entry in it.
    after: u64,
    /// How many entries the next call asks for.
    ask_for: usize,
    /// Calls that did not fill it.
    calls: u32,
    /// Stats fetched one by one.
    fetched: usize,
}

impl<P: Page> Filling<P> {
    /// The two first lines, as far as they come after `after`; whether there was room.
    fn add_dots(&mut self, after: u64, own: Shown, parent: u64) -> bool {
        let dots: [(&[u8], u64, u64); 2] = [(b".", own.stat.attributes.ino, DOT), (b"..", parent, DOT_DOT)];
        dots.into_iter().filter(|(.., cookie)| *cookie > after).all(|(name, ino, cookie)| {
            self.lines += 1;
            self.page.push(&Line { name, ino, kind: FileKind::Directory, cookie, shown: Some(own) })
        })
    }

    /// What is there goes out; the error comes again with the next page.
    fn give_up(self, errno: Errno) {
        let outcome = if self.lines > 0 { Ok(()) } else { Err(errno) };
        self.page.finish(outcome);
    }
}
