//! Recall by the directory. A machine that takes one file after another from others walks through what they hold, and
//! wants more of it soon. So what it takes in a directory next is asked back together with the same of the files that
//! stand behind it there: one message, and one flush of the holder's log, for all of them. What nobody holds any more
//! by the time of a grant comes along with it.
//!
//! Labels of directories are left out: how many there are is another question (`ask::crowded`), and a grant of many
//! directories with all their entries has no bound.

use crate::ask::{Holders, to_let_go};
use crate::desk::Asked;
use crate::turn::Turn;
use ident::FileId;
use lease::{Field, Lease, SessionId, Time};
use namespace::Link;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Files that a machine takes from others, none of them twice and each within that time of the one before, until it
/// counts as walking.
const WALKING: u8 = 3;
const WALKS_MS: u64 = 10_000;

/// Files that are asked back ahead: few enough that their holder's own work goes on meanwhile.
const AHEAD: usize = 128;

/// Which sessions walk through what others hold. Part of the replicated state, since it decides what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Walks(BTreeMap<SessionId, (Time, u8)>);

impl Walks {
    /// `session` takes a file from another that nobody has taken lately.
    fn takes(&mut self, now: Time, session: SessionId) {
        let (at, files) = self.0.entry(session).or_insert((now, 0));
        let goes_on = now.ms_since(*at) < WALKS_MS;
        (*at, *files) = (now, if goes_on { files.saturating_add(1) } else { 1 });
    }

    fn is_walking(&self, now: Time, session: SessionId) -> bool {
        self.0.get(&session).is_some_and(|(at, files)| *files >= WALKING && now.ms_since(*at) < WALKS_MS)
    }

    /// The session is over.
    pub fn end(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

impl Turn<'_> {
    /// What is to be asked back ahead, with what is in the way of a request and has not been asked back before.
    pub fn recalled_ahead(&mut self, asked: &Asked, needs: &[Lease], holders: &Holders) -> Holders {
        let is_taken = |file: &FileId| holders.iter().any(|(_, released)| released.file == *file);
        let Some((file, _)) = self.walked(asked, needs).filter(|(file, _)| is_taken(file)) else {
            return Holders::new();
        };
        if self.state.desk.is_contended_anywhere(self.now, &file) {
            return Holders::new();
        }
        self.state.desk.walks.takes(self.now, asked.session);
        let mut ahead = Holders::new();
        for Lease { file, field, kind } in self.wanted_ahead(asked, needs) {
            let holdings = self.files.holdings(&file);
            let in_the_way = self.policy.granularity.in_the_way(&holdings, asked.session, &field, kind);
            ahead.extend(to_let_go(&file, in_the_way).filter(|(holder, _)| !self.is_lapsed(*holder)));
        }
        ahead
    }

    /// What comes along with a grant, since its asker walks and nobody is in the way.
    pub fn granted_ahead(&self, asked: &Asked, needs: &[Lease]) -> Vec<Lease> {
        let mut ahead = self.wanted_ahead(asked, needs);
        ahead.retain(|Lease { file, field, kind }| {
            let holdings = self.files.holdings(file);
            let in_the_way = self.policy.granularity.in_the_way(&holdings, asked.session, field, *kind);
            in_the_way.is_empty() && !self.has_unanswered(file)
        });
        ahead
    }

    /// What a walker needs of one file, of each of those behind it that others neither wait for nor have taken lately.
    fn wanted_ahead(&self, asked: &Asked, needs: &[Lease]) -> Vec<Lease> {
        if !self.policy.generous || !self.state.desk.walks.is_walking(self.now, asked.session) {
            return Vec::new();
        }
        let Some((walked, link)) = self.walked(asked, needs) else { return Vec::new() };
        let Some(entry) = self.files.child(&link.dir, &link.label) else { return Vec::new() };
        let of_one: Vec<&Lease> =
            needs.iter().filter(|need| need.file == walked && !is_of_labels(&need.field)).collect();
        let mut wanted = Vec::new();
        for (_, behind) in self.files.page(&link.dir, entry.position, AHEAD) {
            let is_free = behind.kind == entry.kind
                && !self.state.desk.others_wait(&behind.file, asked.session)
                && !self.state.desk.is_contended_anywhere(self.now, &behind.file)
                && self.files.xattrs_fit(&behind.file);
            let same = of_one.iter().filter(|_| is_free).filter_map(|need| {
                let same = Lease { file: behind.file.clone(), ..(*need).clone() };
                self.within_rights(asked.session, same)
            });
            wanted.extend(same);
        }
        wanted
    }

    /// The file that a request is about, with the place where it is looked for.
    fn walked(&self, asked: &Asked, needs: &[Lease]) -> Option<(FileId, Link)> {
        let places = needs.iter().filter(|need| !is_of_labels(&need.field)).filter_map(|need| {
            let record = self.files.record(&need.file)?;
            let is_named = |link: &&Link| needs.iter().any(|need| need.file == link.dir);
            let link = record.links.iter().find(is_named).or(record.links.first())?;
            Some((need.file.clone(), link.clone()))
        });
        // Of a directory and a file in it the file is what is walked.
        let named = asked.operation.files();
        let mut places: Vec<(FileId, Link)> = places.collect();
        places.sort_by_key(|(file, link)| (!needs.iter().any(|need| need.file == link.dir), named.contains(file)));
        places.into_iter().next()
    }

    fn has_unanswered(&self, file: &FileId) -> bool {
        self.state.desk.queue.recalls.unanswered_of(file).next().is_some()
    }
}

fn is_of_labels(field: &Field) -> bool {
    matches!(field, Field::Child(_) | Field::Children)
}
