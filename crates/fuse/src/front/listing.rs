//! Reading directories.

use client::{Listed, Upto, call};
use file_service::{Listing, Observed};
use ident::FileId;
use namespace::{Entry, Error, FileKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::{Front, ListingLine, Outcome, Page, Shown};
use crate::errno::Errno;
use crate::groups::Asker;
use crate::nodes::Since;

/// Cookies of `.` and `..`; an entry's cookie is its position plus these. Positions stay far below
/// 2^63, where cookies would turn negative for the kernel.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Entries that a page's second call asks for, when the first did not fill it. Each further call
/// asks for twice as many.
const FURTHER_ENTRIES: usize = 32;

/// The most entries of one call.
const ENTRIES_MAX: usize = 8192;

/// The most stats that are fetched one by one for a page. Each is answered inside the answer to the
/// last.
const FETCHED_MAX: usize = 64;

impl Front {
    /// Lists the entries behind cookie `after` in `dir`, as many as fit, up to where the listing by
    /// `handle` ends. Every page asks anew, so entries are current when returned.
    ///
    /// Handles of directories hold nothing else, and the kernel caches no listings
    /// (`FOPEN_CACHE_DIR`). It would go on returning entries from its copy to a program that is
    /// already reading, after they are gone.
    pub(crate) fn list<P: Page>(
        self: &Arc<Self>,
        asker: Asker,
        dir: u64,
        (handle, after): (u64, u64),
        page: P,
    ) {
        let file = match self.nodes.file(dir) {
            Ok(file) => file,
            Err(errno) => return page.finish(Err(errno)),
        };
        let ask_for = self.page_lines.of(page.plus()).load(Relaxed);
        let mut to = Filling {
            asker,
            dir,
            file,
            handle,
            upto: self.listings.upto(handle, after),
            since: self.nodes.since(dir),
            page,
            given: false,
            lines: 0,
            cookie: after,
            after: after.saturating_sub(DOT_DOT),
            ask_for,
            calls: 0,
            fetched: 0,
        };
        if after >= DOT_DOT {
            return self.list_entries(to);
        }
        let call = call::Stat { file: to.file.clone() };
        self.call_listing(&to.file.clone(), dir, asker, call, move |front, told| match told {
            Ok(Observed { value: own, .. }) => {
                let own = front.show(dir, own);
                let parent = call::Parent { dir: to.file.clone() };
                front.call_listing(&to.file.clone(), dir, asker, parent, move |front, told| {
                    let parent = match told {
                        Ok(Observed { value: (entry, _), .. }) => entry.ino,
                        Err(error @ Error::Interrupted) => return to.give_up(error.into()),
                        // It was removed meanwhile: its own number is as good as any.
                        Err(_) => own.stat.attributes.ino,
                    };
                    if to.add_dots(after, own, parent) {
                        front.list_entries(to)
                    } else {
                        to.page.finish(Ok(()))
                    }
                });
            }
            // The directory was removed, perhaps by another machine, and has no entries.
            Err(Error::Stale) => to.page.finish(Ok(())),
            Err(error) => to.give_up(error.into()),
        });
    }

    fn list_entries<P: Page>(self: &Arc<Self>, mut to: Filling<P>) {
        let limit = to.ask_for.clamp(1, ENTRIES_MAX);
        if to.page.plus() && self.may_keep_entries(to.dir) {
            to.given = true;
        }
        let (after, upto, stat) = (to.after, to.upto, to.page.plus());
        let call = call::List { dir: to.file.clone(), after, upto, limit, stat };
        self.ask(to.dir, to.asker, call, move |front, told| match told {
            Ok(Listing { entries, upto, end }) => {
                if to.upto.replace(upto).is_none() {
                    front.listings.begin(to.handle, upto);
                }
                front.fill(to, entries, 0, end)
            }
            Err(Error::Stale) => to.page.finish(Ok(())),
            Err(error) => to.give_up(error.into()),
        });
    }

    /// Writes `entries` from index `at` on while there is room. Then it asks for more, unless these
    /// were the last.
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
        let Listed { label, entry, stat, uncached } = listed;
        let cookie = entry.position.checked_add(DOT_DOT).ok_or(Errno::IO)?;
        let place = (to.asker, to.dir, label);
        let stat = stat.filter(|_| to.page.plus());
        // Trap: it counts as given before it is a node, so that a revocation finds either.
        let kept = to.given && !uncached && stat.is_some() && self.nodes.give_entry(to.dir, label, to.since);
        let given = |value| self.give(place, entry, Observed { value, uncached: !kept }, false, to.since);
        let shown = stat.map(given).transpose()?.flatten();
        let shown =
            shown.map(|shown| if kept { shown } else { Shown { entry_ttl: Duration::ZERO, ..shown } });
        if to.page.push(&ListingLine {
            name: label.as_bytes(),
            ino: entry.ino,
            kind: entry.kind,
            cookie,
            shown,
        }) {
            (to.lines, to.after, to.cookie) = (to.lines + 1, entry.position, cookie);
            return Ok(true);
        }
        if let Some(shown) = shown {
            self.forget([(shown.node, 1)]);
        }
        Ok(false)
    }

    /// Fetches the stat of the entry at `at`, which came without. A line without one costs a
    /// further request.
    fn fetch<P: Page>(self: &Arc<Self>, mut to: Filling<P>, mut entries: Vec<Listed>, at: usize, end: bool) {
        let Some(Entry { file, position, .. }) = entries.get(at).map(|listed| listed.entry.clone()) else {
            return to.give_up(Errno::IO);
        };
        to.fetched += 1;
        self.call_listing(&to.file.clone(), to.dir, to.asker, call::Stat { file }, move |front, told| {
            match told {
                Ok(Observed { value: stat, uncached }) => {
                    if let Some(listed) = entries.get_mut(at) {
                        (listed.stat, listed.uncached) = (Some(stat), uncached);
                    }
                    front.fill(to, entries, at, end);
                }
                // The file was removed after it was listed.
                Err(Error::Stale) => {
                    to.after = position;
                    front.fill(to, entries, at + 1, end);
                }
                Err(error) => to.give_up(error.into()),
            }
        });
    }
}

/// A page being filled.
struct Filling<P> {
    asker: Asker,
    dir: u64,
    file: FileId,
    handle: u64,
    /// Where the listing ends: see [`Listings`](super::listings::Listings).
    upto: Option<Upto>,
    /// The argument `since` of [`Front::give`].
    since: Since,
    page: P,
    /// Whether the kernel may keep entries.
    given: bool,
    /// The number of lines in the page.
    lines: usize,
    /// Position of the last entry in the page, and the cookie at which the listing goes on after
    /// it.
    after: u64,
    cookie: u64,
    /// How many entries the next call asks for.
    ask_for: usize,
    /// Calls that did not fill the page.
    calls: u32,
    /// Stats fetched one by one.
    fetched: usize,
}

impl<P: Page> Filling<P> {
    /// Adds the first two lines, as far as they come after `after`. Whether there was room.
    fn add_dots(&mut self, after: u64, own: Shown, parent: u64) -> bool {
        let dots: [(&[u8], u64, u64); 2] = [(b".", own.stat.attributes.ino, DOT), (b"..", parent, DOT_DOT)];
        dots.into_iter().filter(|(.., cookie)| *cookie > after).all(|(name, ino, cookie)| {
            (self.lines, self.cookie) = (self.lines + 1, cookie);
            self.page.push(&ListingLine { name, ino, kind: FileKind::Directory, cookie, shown: Some(own) })
        })
    }

    /// Ends the page at an error. The lines so far are answered, and the error comes again with the
    /// next page. An empty page of a listing that gives way gets one line of no file, so that the
    /// listing can go on after it. C libraries skip lines without a number, and programs skip lines
    /// of this name.
    fn give_up(mut self, errno: Errno) {
        let gives_way = errno == Errno(libc::EINTR);
        if gives_way && self.lines == 0 {
            let (kind, cookie) = (FileKind::Directory, self.cookie);
            self.page.push(&ListingLine { name: b".", ino: 0, kind, cookie, shown: None });
        }
        self.page.finish(if gives_way || self.lines > 0 { Ok(()) } else { Err(errno) });
    }
}
