//! Which sessions walk through files that others hold, and at what pace.
//!
//! Identifiers are in the order in which files were made, each directory before what is below it.
//! That is the order of a listing, and so of most walks. A region of identifiers is one range of
//! rows, and "next" is what follows in it. A directory that was moved keeps its region.

use ident::FileId;
use lease::{Field, Kind, Lease, Recent, SessionId, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Requests of a session that had to wait for leases on files of one directory, or walks of so many
/// directories below one, that make a walk.
const WALK: u8 = 3;
/// Such requests before the files that are to be changed go ahead, too. Those who save files in one
/// directory ask for fewer, and would take each other's.
const CHANGING_WALK: u8 = 8;
/// Files that the first recall of a walk takes along.
const FIRST: usize = 16;
/// Files that one recall takes along at most.
const MOST: usize = 1024;
/// How long a step may take, ms. A walk at that pace takes as many files with its next step, one
/// that is slower takes fewer in proportion, and a faster one takes up to twice as many. So a
/// renewal of either session never stands for long behind what a bad connection carries.
const STEP_MS: u64 = 500;
/// A step that was not granted within this time, ms, no longer keeps others from taking files
/// ahead.
const UNDER_WAY_MS: u64 = 2_000;

/// Fields that are needed of a file, and the strongest kind of each.
pub(crate) type NeededFields = BTreeMap<Field, Kind>;

/// The fields that a walk needs of any file that is no directory, and of any directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WalkedFields {
    pub files: NeededFields,
    directories: NeededFields,
}

/// One walk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Walk {
    /// The fields of all its steps that only read.
    read: WalkedFields,
    /// Its latest step that took files ahead.
    latest: Option<PacedStep>,
}

/// A step, and when it began and was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PacedStep {
    files: usize,
    began: Time,
    granted: Option<Time>,
}

impl Walk {
    /// Begins a step. Returns the number of files that it takes ahead: none while another step of
    /// this walk is under way.
    ///
    /// The time from a step to its grant is that of the holders, and the time from there to the
    /// next step is that of the asker: the connections of both count.
    fn begin(&mut self, now: Time) -> usize {
        let files = match self.latest {
            None => FIRST,
            Some(PacedStep { began, granted: None, .. }) if now.ms_since(began) < UNDER_WAY_MS => return 0,
            Some(PacedStep { files, began, granted }) => {
                let granted = granted.unwrap_or(now);
                let took = granted.ms_since(began).max(now.ms_since(granted)).max(STEP_MS / 2);
                usize::try_from(files as u64 * STEP_MS / took).unwrap_or(MOST).clamp(1, MOST)
            }
        };
        self.latest = Some(PacedStep { files, began: now, granted: None });
        files
    }

    /// Notes that the step is granted.
    fn granted(&mut self, now: Time) {
        if let Some(latest) = &mut self.latest {
            latest.granted.get_or_insert(now);
        }
    }
}

/// The walks of the last seconds, by the session and the top of the region. Part of the replicated
/// state, since it decides what is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Walks(Recent<(SessionId, FileId), Walk>);

impl Walks {
    /// The top of the largest region that `session` walks and that `file` is in.
    pub fn region(&self, now: Time, session: SessionId, file: &FileId) -> Option<FileId> {
        let walked = |dir: &FileId| self.0.count(now, &(session, dir.clone())) >= WALK;
        above(file).filter(walked).last()
    }

    /// Whether the walk that `file` is in has been through several directories, or through enough
    /// of one.
    pub fn goes_on(&self, now: Time, session: SessionId, file: &FileId) -> bool {
        self.region(now, session, file).is_some_and(|region| {
            file.parent().as_ref() != Some(&region) || self.0.count(now, &(session, region)) >= CHANGING_WALK
        })
    }

    /// Notes that `session` had to wait for `file`.
    pub fn note(&mut self, now: Time, session: SessionId, file: &FileId) {
        if let Some(region) = self.region(now, session, file) {
            self.0.note(now, &(session, region), 1);
            return;
        }
        // A directory that begins to be walked counts in the one above, and so on.
        for dir in above(file) {
            let key = (session, dir);
            self.0.note(now, &key, 1);
            if self.0.count(now, &key) != WALK {
                return;
            }
        }
    }

    /// Remembers the fields of a step that only reads.
    pub fn note_read(&mut self, now: Time, walk: &(SessionId, FileId), fields: &WalkedFields) {
        if fields.are_only_read()
            && let Some(walk) = self.0.remember(now, walk)
        {
            walk.read.add(fields);
        }
    }

    /// The fields of the steps of this walk that only read.
    pub fn read(&self, walk: &(SessionId, FileId)) -> Option<&WalkedFields> {
        self.0.get(walk).map(|walk| &walk.read)
    }

    /// Begins a step of the walk. Returns the number of files that it takes ahead.
    pub fn begin(&mut self, now: Time, walk: &(SessionId, FileId)) -> usize {
        self.0.remember(now, walk).map_or(0, |walk| walk.begin(now))
    }

    /// Notes that the latest step of the walk is granted.
    pub fn granted(&mut self, now: Time, walk: &(SessionId, FileId)) {
        if let Some(walk) = self.0.remember(now, walk) {
            walk.granted(now);
        }
    }

    /// Ends the walk.
    pub fn end(&mut self, walk: &(SessionId, FileId)) {
        self.0.forget(walk);
    }
}

/// The directories that `file` was made in, from the nearest to the root.
fn above(file: &FileId) -> impl Iterator<Item = FileId> {
    std::iter::successors(file.parent(), FileId::parent)
}

impl WalkedFields {
    pub fn of_kind(&self, is_directory: bool) -> &NeededFields {
        if is_directory { &self.directories } else { &self.files }
    }

    /// The fields that `needs` name of `file` and of the directory in which it is looked up.
    ///
    /// One extended attribute stands for all: `ls -l` asks each file for the same ones, and files
    /// have few or none.
    pub fn of(file: &FileId, is_directory: bool, needs: &[Lease]) -> WalkedFields {
        let mut fields = WalkedFields::default();
        for need in needs {
            let of_file = if is_directory { &mut fields.directories } else { &mut fields.files };
            match &need.field {
                Field::Path => {}
                Field::Xattr(_) if need.file != *file => {}
                Field::Xattr(_) => strengthen(of_file, &Field::Xattrs, need.kind),
                Field::Child(_) => strengthen(&mut fields.directories, &Field::Children, need.kind),
                field if need.file == *file => strengthen(of_file, field, need.kind),
                field if names_in(&need.file, needs) => {
                    strengthen(&mut fields.directories, field, need.kind);
                }
                _ => {}
            }
        }
        fields
    }

    pub fn add(&mut self, other: &WalkedFields) {
        other.files.iter().for_each(|(field, kind)| strengthen(&mut self.files, field, *kind));
        other.directories.iter().for_each(|(field, kind)| strengthen(&mut self.directories, field, *kind));
    }

    /// Whether a session that needs these fields changes nothing.
    pub fn are_only_read(&self) -> bool {
        let mut fields = self.files.iter().chain(&self.directories);
        fields.all(|(field, kind)| *kind == Kind::Read || field.is_black_box())
    }
}

pub(crate) fn strengthen(fields: &mut NeededFields, field: &Field, kind: Kind) {
    fields.entry(field.clone()).and_modify(|known| *known = known.and(kind)).or_insert(kind);
}

/// Whether `needs` name a label of `dir`.
fn names_in(dir: &FileId, needs: &[Lease]) -> bool {
    needs.iter().any(|need| need.file == *dir && matches!(need.field, Field::Child(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A walk whose latest step took 64 files and was granted after `granted` ms; the files of the
    /// step that follows `next` ms after that.
    fn after_a_step(granted: u64, next: u64) -> usize {
        let latest = PacedStep { files: 64, began: Time(7), granted: None };
        let mut walk = Walk { latest: Some(latest), ..Walk::default() };
        walk.granted(Time(7 + granted));
        walk.begin(Time(7 + granted + next))
    }

    #[test]
    fn a_walk_takes_what_its_connections_carry_in_half_a_second() {
        assert_eq!(Walk::default().begin(Time(9)), FIRST);
        assert_eq!([after_a_step(0, 0), after_a_step(250, 250)], [128, 128]);
        assert_eq!([after_a_step(500, 1), after_a_step(1, 500)], [64, 64]);
        assert_eq!([after_a_step(1_000, 5), after_a_step(5, 4_000)], [32, 8]);
        assert_eq!(after_a_step(9_000_000, 0), 1);
        let mut walk = Walk::default();
        for step in 0..20 {
            walk.begin(Time(step));
            walk.granted(Time(step));
        }
        assert_eq!(walk.begin(Time(20)), MOST);
    }

    #[test]
    fn one_step_of_a_walk_at_a_time_takes_files_ahead() {
        let mut walk = Walk::default();
        assert_eq!(walk.begin(Time(0)), FIRST);
        assert_eq!(walk.begin(Time(UNDER_WAY_MS - 1)), 0);
        // A step that is not granted at all holds nothing up, and counts as slow.
        assert_eq!(walk.begin(Time(UNDER_WAY_MS)), FIRST / 4);
        walk.granted(Time(UNDER_WAY_MS));
        assert_eq!(walk.begin(Time(UNDER_WAY_MS)), FIRST / 2);
    }
}
