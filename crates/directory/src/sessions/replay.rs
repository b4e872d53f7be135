//! Replays a client's log: every update is decided again on the knowledge that its leases give the
//! client (Farsite §6).

use crate::requests::ask::may_be_leased;
use crate::requests::authority::{Authority, Replay};
use crate::sessions::session::Misdeed;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Kind, OpenModes, Released, SessionId};
use namespace::{Error, Operation, Verdict, decide, operation};
use wire::{LOG_ENTRIES_MAX, LogEntry, ToClient, Version};

impl Transaction<'_> {
    /// Takes in a part of a client's log. Entries seen already are skipped; none may be missing.
    pub fn on_log(
        &mut self,
        session: SessionId,
        first: u64,
        entries: Vec<LogEntry>,
        answer: bool,
    ) -> Result<(), Misdeed> {
        if entries.len() > LOG_ENTRIES_MAX {
            return Err(Misdeed::TooManyEntries);
        }
        let Some(known) = self.state.server.sessions.all.get(&session) else { return Ok(()) };
        let expected = known.next_entry;
        if first > expected {
            return Err(Misdeed::LogGap { expected, first });
        }
        // If the client sends this again, the answer was lost, and with it the refusals.
        let mut rejected: Vec<(u64, Error)> = known.refused_from(first);
        let forgotten = if first <= known.forgotten { known.forgotten } else { 0 };
        let seen = usize::try_from(expected - first).unwrap_or(usize::MAX);
        let mut wrote = Vec::new();
        for (number, entry) in (expected..).zip(entries.into_iter().skip(seen)) {
            match entry {
                LogEntry::Update { version, operation } => {
                    if let Err(error) = self.replay(session, version, &operation)? {
                        rejected.push((number, error));
                        self.refuse(session, number, error);
                    }
                }
                LogEntry::Release(released) => {
                    released.iter().try_for_each(|released| self.on_release(session, released))?;
                }
                LogEntry::Return { file, fields, own } => self.on_return(session, &file, fields, own)?,
                LogEntry::Flushed { number } => self.state.region.pending.flushed(session, number),
                LogEntry::WritesThrough { number, file } => {
                    self.on_flushed_through(session, number, &file);
                }
                LogEntry::Wrote { file } => wrote.push(file),
            }
            if let Some(known) = self.state.server.sessions.all.get_mut(&session) {
                (known.next_entry, known.worked) = (number + 1, self.now);
            }
        }
        wrote.into_iter().for_each(|file| self.on_wrote(session, file));
        self.again |= self.files.regions.are_awaited();
        if answer || !rejected.is_empty() {
            self.acknowledge(session, (rejected, forgotten));
        } else if self.state.server.sessions.all.contains_key(&session) {
            self.state.server.sessions.owed.insert(session);
        }
        Ok(())
    }

    /// Tells a client how far its log has come. The refusals are those of entries that it has not
    /// been told of, and the latest of these whose refusal is forgotten.
    pub fn acknowledge(&mut self, session: SessionId, (rejected, forgotten): (Vec<(u64, Error)>, u64)) {
        self.state.server.sessions.owed.remove(&session);
        if let Some(known) = self.state.server.sessions.all.get(&session) {
            let up_to = known.next_entry - 1;
            self.send(session, ToClient::Applied { up_to, rejected, forgotten });
        }
    }

    fn refuse(&mut self, session: SessionId, number: u64, error: Error) {
        if let Some(known) = self.state.server.sessions.all.get_mut(&session) {
            known.refuse(number, error);
        }
    }

    /// Decides an update again, and carries it out if the result is the same.
    fn replay(
        &mut self,
        session: SessionId,
        version: Version,
        operation: &Operation,
    ) -> Result<Result<(), Error>, Misdeed> {
        // The client may have decided before it knew the version that the session speaks now.
        if !(Version::OLDEST..=self.state.spoken_in(session)).contains(&version) {
            return Err(Misdeed::OtherVersion(version));
        }
        if !operation.is_update() {
            return Err(Misdeed::QuestionLogged);
        }
        // An access time may rest on values that were reported without a lease. So its file may
        // have gone to another server meanwhile, and may have come back.
        let rests_on_leases = !matches!(operation, Operation::Accessed(_));
        if !self.files.regions.manage(operation.leading_file()) {
            return if rests_on_leases { Err(Misdeed::NotHere) } else { Ok(Err(Error::Stale)) };
        }
        if let Some(error) = self.refusal_of_update(session, operation) {
            return Ok(Err(error));
        }
        let authority = Authority { files: &self.files, session, for_itself: false };
        let effects = match decide(operation, &Replay { authority }) {
            Verdict::Done { effects, .. } => effects,
            Verdict::Refused { error, .. } => return Ok(Err(error)),
            Verdict::Unknown { .. } if !rests_on_leases => return Ok(Err(Error::Stale)),
            // The session had no right to know what it claims.
            Verdict::Unknown { .. } => return Err(Misdeed::NoLease),
        };
        if let Err(error) = self.may_be_done(operation) {
            return Ok(Err(error));
        }
        if let Some(error) = self.refusal_of_effects(session, &effects) {
            return Ok(Err(error));
        }
        let made = match operation {
            Operation::Create(operation::Create { new, .. }) => Some(new.ino),
            Operation::Rename(operation::Rename { whiteout, .. }) => whiteout.map(|left| left.ino),
            _ => None,
        };
        if let Some(ino) = made {
            let fresh =
                self.state.server.sessions.all.get_mut(&session).is_some_and(|known| known.take_inode(ino));
            if !fresh {
                return Ok(Err(Error::Invalid));
            }
        }
        if let Err(error) = self.state.server.sessions.spend(session, wire::cost(operation)) {
            return Ok(Err(error));
        }
        for file in self.carry_out(session, operation, &effects) {
            // The creator's birthright: everything in the new file.
            if self.policy.birthright {
                self.files.change_holdings(&file, |holdings| holdings.grant_whole(session));
            }
        }
        Ok(Ok(()))
    }

    /// Takes in the release of a shared value.
    fn on_release(&mut self, session: SessionId, released: &Released) -> Result<(), Misdeed> {
        let Released { file, field, keep } = released;
        if field.is_black_box() {
            return Err(Misdeed::OtherKindOfField);
        }
        if !may_be_leased(field, *keep) {
            return Err(Misdeed::NoSuchLease);
        }
        self.may_release(session, file, field, *keep)?;
        self.files.change_holdings(file, |holdings| holdings.release(session, field, *keep));
        if *field == Field::Content && *keep != Some(Kind::Write) {
            self.state.region.write_through.end(file, session);
        }
        self.released(session, released);
        if *field == Field::Locks {
            self.clear_departed(file);
        }
        Ok(())
    }

    /// Whether `session` may release a lease: it must hold the lease. Two cases are exceptions. An
    /// answer to a recall is owed whatever is held: the label may have been released with all
    /// labels, or for an earlier recall for another session. And the client may not know yet that a
    /// file no longer exists, or that its creation was refused.
    fn may_release(
        &self,
        session: SessionId,
        file: &FileId,
        field: &Field,
        keep: Option<Kind>,
    ) -> Result<(), Misdeed> {
        let holdings = self.files.holdings(file);
        let held = holdings.held(session).and_then(|held| held.kind(field));
        let lets_go = held != held.and_then(|held| held.within(keep));
        let excused = || {
            self.state.region.pending.queue.recalls.is_owed(session, file, field)
                || self.files.record(file).is_none()
        };
        if lets_go || excused() { Ok(()) } else { Err(Misdeed::NotHeld) }
    }

    /// Takes in the release of leases on a file's black boxes.
    fn on_return(
        &mut self,
        session: SessionId,
        file: &FileId,
        fields: Vec<(Field, Option<Kind>)>,
        own: OpenModes,
    ) -> Result<(), Misdeed> {
        if !fields.iter().all(|(field, _)| field.is_black_box()) {
            return Err(Misdeed::OtherKindOfField);
        }
        fields.iter().try_for_each(|(field, keep)| self.may_release(session, file, field, *keep))?;
        self.files.change_holdings(file, |holdings| {
            for (field, keep) in &fields {
                holdings.return_black_box(session, field, *keep, own.has(field));
            }
        });
        for (field, keep) in fields {
            self.released(session, &Released { file: file.clone(), field, keep });
        }
        self.clear_departed(file);
        self.dispose_unless_open(file);
        Ok(())
    }

    fn released(&mut self, session: SessionId, released: &Released) {
        self.state.region.released(self.now, session, released);
    }
}
