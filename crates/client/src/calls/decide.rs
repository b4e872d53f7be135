//! Operations decided on what the client knows, and done here.

use super::{Need, Stop};
use crate::client::Client;
use crate::server::ServerId;
use crate::{Now, Reply};
use ident::FileId;
use lease::Time;
use namespace::{Answer, Effects, Operation, Verdict, decide, operation};

impl Client {
    /// Decides on what the client knows. A successful update is done here and logged.
    pub(crate) fn decide(&mut self, now: Now, operation: Operation) -> Result<Answer, Stop> {
        match decide(&operation, &self.files) {
            Verdict::Done { effects, .. } if self.spans_servers(&operation, &effects) => {
                Err(Stop::Need(Need::Ship { operation: Box::new(operation) }))
            }
            Verdict::Done { answer, effects } => {
                if operation.is_update() {
                    self.commit(now, operation, &effects);
                }
                Ok(answer)
            }
            Verdict::Refused { error, .. } => Err(Stop::Error(error)),
            Verdict::Unknown { wants } => {
                Err(Stop::Need(Need::Leases { operation: Box::new(operation), wants }))
            }
        }
    }

    /// Whether an update is on files of several servers. Then the server that leads the operation
    /// does it together with the others. A rename of one name of a file to another has no effects,
    /// and rests on what is known of both directories all the same.
    fn spans_servers(&self, operation: &Operation, effects: &Effects) -> bool {
        if self.servers.is_one() || !operation.is_update() {
            return false;
        }
        let leads = self.leader_of(operation);
        let mut files = operation.files().into_iter().chain(effects.iter().map(namespace::Effect::file));
        files.any(|file| self.server_of(file) != leads)
    }

    fn commit(&mut self, now: Now, operation: Operation, effects: &Effects) {
        let server = self.leader_of(&operation);
        let sequence = self.servers.get_mut(server).push_update(now.time, operation);
        self.note_freed(now, effects);
        for effect in effects {
            self.files.apply(effect, true);
            if self.watched.goes_at_once(now.time, effect.file()) {
                self.servers.get_mut(server).log.hurry();
            }
            match effect {
                namespace::Effect::Death { file } => {
                    self.bury(server, sequence, file);
                    let session = self.servers.get_mut(server);
                    if session.is_short_of_space() {
                        // Another machine may wait for the freed space.
                        session.log.age_from(Time(0));
                    }
                }
                namespace::Effect::Birth { file, .. } => {
                    self.hand.add(file.clone());
                    if let Some(known) = self.files.get_mut(file) {
                        known.server = server;
                    }
                }
                // Many clients touch a directory's times without knowing them.
                namespace::Effect::Touch { dir, time } if !self.knows_times(dir) => {
                    self.servers.get_mut(server).touches.push(sequence, (dir.clone(), *time));
                }
                _ => {}
            }
        }
    }

    /// Buries `file`, whose death is this entry of the server's log.
    pub(crate) fn bury(&mut self, server: ServerId, sequence: u64, file: &FileId) {
        self.forget_content(file);
        self.session_of_mut(file).break_promise(file, 0..u64::MAX);
        self.servers.get_mut(server).tombstones.push(sequence, file.clone());
    }

    /// A reply without its leases: see [`Reply::Node`].
    pub(crate) fn node(&mut self, now: Now, entry: namespace::Entry) -> Result<Reply, Stop> {
        let stat = self.stat(now, &entry.file)?;
        Ok(Reply::Node(entry, stat))
    }

    pub(crate) fn stat(&mut self, now: Now, file: &FileId) -> Result<namespace::Stat, Stop> {
        let Answer::Stat(stat) = self.decide(now, operation::Stat { file: file.clone() }.into())? else {
            unreachable!("a stat answers with a stat")
        };
        let occupied = stat.occupied.saturating_add(self.session_of(file).promised.of(file));
        let atime = self.accesses.shown(file, &stat.attributes);
        let attributes = namespace::Attributes { atime, ..stat.attributes };
        Ok(namespace::Stat { attributes, occupied, ..stat })
    }
}
