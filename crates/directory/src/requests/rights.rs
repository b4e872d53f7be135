//! The rights of machines, which the server enforces when it grants and when it replays. It never
//! believes the client about them (docs/internals/security.md, "Rights of machines").
//!
//! *A subtree*: nothing above its root or beside it exists for the machine. A file is within if a
//! walk up from it reaches that root, by any one of its names. Where the walk leaves the server,
//! the request waits for a path lease. *Read only*: no lease to write or touch a shared value but
//! locks, no update but of those. *One user*: every request must come from that user. The machine
//! gets no content of files that this user may not read, and no write lease on content that this
//! user may not write.
//!
//! A lease granted while the machine had the right to it stays until it is recalled, like any
//! other. So content written into a file that was then moved out of the subtree is not lost. Other
//! unsent changes in a directory that is moved out can be lost; the client hears of that, and keeps
//! them.

use crate::paths::WayUp;
use crate::requests::authority::Authority;
use crate::requests::pending::Asked;
use crate::requests::subtrees::Subtrees;
use crate::rows::files::Files;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Kind, Label, Lease, SessionId};
use namespace::{ContentHead, Cred, Disposition, Effect, Error, Link, Operation, Verdict, decide, operation};
use wire::{AskMode, FileGrant, Rights, ToClient, Values};

/// Permission bits, as in one digit of the mode.
const WRITE: u8 = 2;
const READ_OR_EXECUTE: [u8; 2] = [4, 1];
const ANY: [u8; 3] = [4, WRITE, 1];

impl Files<'_> {
    /// Whether the machine's one user, if it has but one, may use the content of `file` in one of
    /// these ways. The file's owner may, who can change its mode.
    fn may_use(&self, rights: &Rights, session: SessionId, file: &FileId, masks: &[u8]) -> bool {
        let Some(uid) = rights.squash.filter(|uid| *uid != 0) else { return true };
        let cred = rights.cred(&Cred { uid, ..Cred::default() });
        let authority = Authority { files: self, session, for_itself: false };
        let may = |mask: &u8| {
            let operation =
                Operation::Access(operation::Access { file: file.clone(), mask: *mask, cred: cred.clone() });
            matches!(decide(&operation, &authority), Verdict::Done { .. })
        };
        self.record(file).is_some_and(|record| record.attributes.uid == uid) || masks.iter().any(may)
    }

    /// Why the content of `file` is withheld from `session`, whatever the session holds of it.
    pub fn withheld(
        &self,
        subtrees: &mut Subtrees,
        rights: &Rights,
        session: SessionId,
        file: &FileId,
    ) -> Option<Error> {
        if rights.are_of_subtree() {
            match self.is_within(subtrees, rights, session, file) {
                Some(true) => {}
                Some(false) => return Some(Error::Stale),
                // The session has something of the file, so the file was within.
                None if self.has_something_of(session, file) => {}
                None => return Some(Error::NotSupported),
            }
        }
        (!self.may_use(rights, session, file, &ANY)).then_some(Error::AccessDenied)
    }

    /// Whether the file exists for a machine with these rights. A file that has lost its last name
    /// is where it was, for sessions that have something of it. None: as in
    /// [`Subtrees::is_within`].
    fn is_within(
        &self,
        subtrees: &mut Subtrees,
        rights: &Rights,
        session: SessionId,
        file: &FileId,
    ) -> Option<bool> {
        let orphaned = || self.record(file).is_some_and(|record| record.links.is_empty());
        match subtrees.is_within(self, &rights.root, file) {
            Some(false) => Some(orphaned() && self.has_something_of(session, file)),
            known => known,
        }
    }

    fn has_something_of(&self, session: SessionId, file: &FileId) -> bool {
        self.holdings(file).held(session).is_some() || self.has_open(session, file)
    }

    fn has_open(&self, session: SessionId, file: &FileId) -> bool {
        self.holdings(file).stuck().iter().any(|(stuck, _)| *stuck == session)
    }
}

impl Transaction<'_> {
    /// The rights of the machine of `session`, if they restrict anything.
    pub fn limits(&self, session: SessionId) -> Option<&Rights> {
        self.state
            .server
            .sessions
            .all
            .get(&session)
            .map(|known| &known.rights)
            .filter(|rights| !rights.are_full())
    }

    /// Whether the file does not exist for the machine of `session`, or may not.
    pub fn is_outside(&self, session: SessionId, file: &FileId) -> bool {
        self.within(session, file) != Some(true)
    }

    /// Whether the file exists for the machine of `session`. None: a path lease would tell.
    fn within(&self, session: SessionId, file: &FileId) -> Option<bool> {
        let Some(rights) = self.limits(session).filter(|rights| rights.are_of_subtree()) else {
            return Some(true);
        };
        self.files.is_within(&mut self.subtrees.borrow_mut(), rights, session, file)
    }

    /// Whether the rights to a request depend on what is above other servers' directories, on which
    /// no path leases are held. Asks for them.
    pub fn waits_for_ways(&mut self, asked: &Asked) -> bool {
        let named = asked.operation.files().into_iter().chain(asked.wants.iter().map(|want| &want.file));
        let unknown: Vec<FileId> =
            named.filter(|file| self.within(asked.session, file).is_none()).cloned().collect();
        let mut waits = false;
        for file in unknown {
            let Some(record) = self.files.record(&file) else { continue };
            for link in &record.links {
                if let WayUp::Elsewhere(dir) = self.files.climb(&link.dir, |_| false) {
                    self.ask_path(dir, None);
                    waits = true;
                }
            }
        }
        waits
    }

    /// Tries requests again that may wait for path leases.
    pub fn wake_the_limited(&mut self) {
        if self.state.server.sessions.all.values().any(|known| known.rights.are_of_subtree()) {
            self.state.region.pending.wake_all();
        }
    }

    /// Why a request is refused, whatever the state of the files that it names.
    pub fn refusal(
        &self,
        session: SessionId,
        operation: &Operation,
        wants: &[Lease],
        mode: AskMode,
    ) -> Option<Error> {
        let rights = self.limits(session)?;
        if let Some(error) = unfit(rights, operation) {
            return Some(error);
        }
        // The machine may close what it has open, wherever the file is by now.
        let closes = matches!(operation, Operation::Access(operation::Access { mask: 0, .. }));
        let known =
            |file: &FileId| !self.is_outside(session, file) || closes && self.files.has_open(session, file);
        if let Some(unknown) = operation.files().into_iter().find(|file| !known(file)) {
            // Of a file that another server manages this one cannot tell.
            let is_here = self.files.regions.manage(unknown);
            return Some(if is_here { Error::Stale } else { Error::NotSupported });
        }
        let excess = |want: &Lease| self.most(session, &want.file, &want.field, want.kind) != want.kind;
        // In mode `Ship` the wants only say what the client doubts.
        if mode != AskMode::Ship && wants.iter().any(excess) {
            return Some(if rights.read_only { Error::ReadOnly } else { Error::AccessDenied });
        }
        match operation {
            Operation::Publish(operation::Publish { file, .. }) if mode == AskMode::Ship => {
                (!self.files.may_use(rights, session, file, &[WRITE])).then_some(Error::AccessDenied)
            }
            _ => None,
        }
    }

    /// Why an update is refused, though leases cover it.
    pub fn refusal_of_update(&self, session: SessionId, operation: &Operation) -> Option<Error> {
        let rights = self.limits(session)?;
        if let Some(error) = unfit(rights, operation) {
            return Some(error);
        }
        // The lease covered everything that changes with the access time, and that user may not
        // have read at all.
        if let Operation::Accessed(operation::Accessed { file, .. }) = operation {
            return (!self.files.may_use(rights, session, file, &READ_OR_EXECUTE))
                .then_some(Error::AccessDenied);
        }
        // The right to do this was checked when the machine got the lease, and only that counts.
        if matches!(operation, Operation::Publish { .. } | Operation::Lock { .. }) {
            return None;
        }
        let files = operation.files();
        // Of leases that were granted when it was known, some are to go soon. They cover this
        // still.
        let outside = files.into_iter().find(|file| self.within(session, file) == Some(false))?;
        // A session that has something of the file knew it when it was within. So the error reveals
        // nothing new, and an update is lost.
        let lost = self.files.has_something_of(session, outside);
        Some(if lost { Error::AccessDenied } else { Error::Stale })
    }

    /// Why decided effects are not carried out: they reach into directories that the operation does
    /// not name (by the deletion of a name that another session asked for).
    pub fn refusal_of_effects(&self, session: SessionId, effects: &[Effect]) -> Option<Error> {
        self.limits(session).filter(|rights| rights.are_of_subtree())?;
        let outside = effects.iter().any(|effect| match effect {
            Effect::Bind { dir, .. }
            | Effect::Unbind { dir, .. }
            | Effect::Touch { dir, .. }
            | Effect::Times { dir, .. } => self.is_outside(session, dir),
            _ => false,
        });
        outside.then_some(Error::AccessDenied)
    }

    /// The part of a need that `session` may be granted: nothing of a file outside, except to close
    /// it.
    pub fn within_rights(&self, session: SessionId, need: Lease) -> Option<Lease> {
        if self.limits(session).is_none() {
            return Some(need);
        }
        if self.is_outside(session, &need.file) {
            let closes = need.field.is_black_box() && self.files.has_open(session, &need.file);
            return closes.then_some(Lease { kind: Kind::Touch, ..need });
        }
        let kind = self.most(session, &need.file, &need.field, need.kind);
        Some(Lease { kind, ..need })
    }

    /// The most that `session` may hold of a field, up to `kind`.
    pub fn most(&self, session: SessionId, file: &FileId, field: &Field, kind: Kind) -> Kind {
        let Some(rights) = self.limits(session).filter(|_| kind != Kind::Read) else { return kind };
        if field.is_black_box() {
            return if self.is_outside(session, file) { Kind::Touch } else { kind };
        }
        let writes = *field != Field::Content || self.files.may_use(rights, session, file, &[WRITE]);
        let reads_only = rights.read_only && *field != Field::Locks;
        if reads_only || !writes { Kind::Read } else { kind }
    }

    /// Whether `session` may hold everything of `file` in write.
    pub fn may_hold_whole(&self, session: SessionId, file: &FileId) -> bool {
        self.most(session, file, &Field::Content, Kind::Write) == Kind::Write
            && !self.is_outside(session, file)
    }

    /// Whether `session` may change anything at all.
    pub fn may_write(&self, session: SessionId) -> bool {
        self.limits(session).is_none_or(|rights| !rights.read_only)
    }

    /// Removes the values that are not for the machine of `session`: names outside, and content
    /// that its user may not read.
    pub fn confine(&self, session: SessionId, grants: &mut [FileGrant]) {
        let Some(rights) = self.limits(session) else { return };
        for FileGrant { file, values, .. } in grants {
            if self.is_outside(session, file) {
                *values = Values::default();
            }
            if rights.are_of_subtree() {
                // All names or none: a client that knows none cannot mistake some for all.
                values.links = values
                    .links
                    .take()
                    .filter(|links| !links.iter().any(|link| self.is_outside(session, &link.dir)));
                if let Some(Some(disposition)) = &mut values.disposition
                    && self.is_outside(session, &disposition.link.dir)
                {
                    *disposition = elsewhere(file, disposition);
                }
            }
            if rights.squash.is_some() && !self.files.may_use(rights, session, file, &ANY) {
                (values.inline, values.extents) = (None, None);
                values.content = values.content.map(|head| ContentHead { key: None, ..head });
            }
        }
    }

    /// Answers a request for extents.
    pub fn extents_for(&self, session: SessionId, number: u64, file: &FileId, from: u64) -> ToClient {
        if let Some(elsewhere) = self.files.regions.elsewhere(number, file) {
            return elsewhere;
        }
        let limits = self.limits(session);
        let withheld = limits
            .and_then(|rights| self.files.withheld(&mut self.subtrees.borrow_mut(), rights, session, file));
        match withheld {
            Some(error) => ToClient::Shipped { number, result: Err(error) },
            None => self.files.content_from(session, number, file, from),
        }
    }
}

/// Why an operation is refused without looking at any file.
fn unfit(rights: &Rights, operation: &Operation) -> Option<Error> {
    // A lock changes nothing that others read: a user who may open a file may lock it.
    if rights.read_only && operation.is_update() && !matches!(operation, Operation::Lock { .. }) {
        return Some(Error::ReadOnly);
    }
    (!rights.admit_user_of(operation)).then_some(Error::AccessDenied)
}

/// A stand-in for the deletion of a name that must stay unknown: no file is linked in itself.
fn elsewhere(file: &FileId, disposition: &Disposition) -> Disposition {
    let label = Label::new(b"-").unwrap_or_else(|_| disposition.link.label.clone());
    Disposition { link: Link { dir: file.clone(), label }, ..disposition.clone() }
}
