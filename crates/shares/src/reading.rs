//! Reads of shares. A read of present bytes does not touch the database.

use std::sync::Arc;

use namespace::ShareId;

use crate::{
    backend::Backend,
    digest::{Digest, digest},
    error::{Damage, DatabaseError, DiskError, ReadError},
    file::{self, OpenShare},
    leases,
    rows::ShareRow,
    server::SharedState,
    share::{AccountId, Health, Holds, State, file_name},
    shelf::{Look, Withheld},
    transitions,
    tx::Tx,
};

/// The attempts of a read whose share changes under it. Each new attempt means that a whole upload
/// or deletion came between.
const ATTEMPTS: usize = 8;

/// The result of an attempt to read.
enum Attempt<T> {
    Done(T),
    /// To be confirmed: the file may have come or gone during the read.
    Damaged(Damage),
}

/// The database's verdict on a file that seems damaged.
#[derive(Clone, Copy)]
enum Finding {
    /// The share does not exist.
    NoShare,
    /// An upload writes the share, for the first time or as a repair.
    Coming,
    /// The share is being deleted.
    Going,
    /// The share should be sound and is damaged. The damage is noted.
    Confirmed(Damage),
    /// The share is sound after all.
    Sound,
}

impl SharedState {
    pub(crate) fn read(&self, id: &ShareId, at: u32, length: u32) -> Result<Vec<u8>, ReadError> {
        self.attempt(id, || {
            let share = match self.opened(id)? {
                Attempt::Done(share) => share,
                Attempt::Damaged(damage) => return Ok(Attempt::Damaged(damage)),
            };
            let of = share.header.length;
            if at.checked_add(length).is_none_or(|end| end > of) {
                return Err(ReadError::Beyond { share: *id, at, length, of });
            }
            Ok(share.read(at, length)?.map_or_else(Attempt::Damaged, Attempt::Done))
        })
    }

    pub(crate) fn read_unsound(&self, id: &ShareId, at: u32, length: u32) -> Result<Vec<u8>, ReadError> {
        let damaged = |damage| ReadError::Damaged { share: *id, damage };
        let share = OpenShare::open(&*self.backend, id)?.map_err(damaged)?;
        share.read(at, length)?.map_err(damaged)
    }

    pub(crate) fn verify(&self, id: &ShareId) -> Result<u32, ReadError> {
        self.attempt(id, || {
            let was_damaged = match self.shelf.look(id) {
                Look::Withheld(Withheld::Coming) => return Err(ReadError::NotFound(*id)),
                Look::Withheld(Withheld::Going) => return Err(ReadError::Going(*id)),
                Look::Withheld(Withheld::Damaged) => true,
                Look::Open(_) | Look::Closed(_) => false,
            };
            let digest = match self.database.read("looking up a share", |c| transitions::row(c, id))? {
                Some(row) => row.digest,
                None => return Err(ReadError::NotFound(*id)),
            };
            let checked = check(&*self.backend, id, digest.as_ref())?;
            // Without a digest nothing shows that the file is the one that was stored.
            if was_damaged && checked.is_ok() && digest.is_some() {
                self.on_recovery(*id)?;
            }
            Ok(checked.map_or_else(Attempt::Damaged, Attempt::Done))
        })
    }

    /// Reads all of a share and checks it against the database's digest, as [`check`] does.
    pub(crate) fn whole(&self, id: &ShareId) -> Result<(Vec<u8>, Digest), ReadError> {
        self.attempt(id, || {
            let share = match self.opened(id)? {
                Attempt::Done(share) => share,
                Attempt::Damaged(damage) => return Ok(Attempt::Damaged(damage)),
            };
            let body = match share.read(0, share.header.length)? {
                Ok(body) => body,
                Err(damage) => return Ok(Attempt::Damaged(damage)),
            };
            let row = self.database.read("looking up a share", |c| transitions::row(c, id))?;
            let known = row.and_then(|row| row.digest).ok_or(ReadError::NotFound(*id))?;
            let sound = digest(&body) == known;
            Ok(if sound { Attempt::Done((body, known)) } else { Attempt::Damaged(Damage::Digest) })
        })
    }

    fn attempt<T>(
        &self,
        id: &ShareId,
        mut attempt: impl FnMut() -> Result<Attempt<T>, ReadError>,
    ) -> Result<T, ReadError> {
        let mut damage = Damage::Missing;
        for _ in 0..ATTEMPTS {
            damage = match attempt()? {
                Attempt::Done(value) => return Ok(value),
                Attempt::Damaged(damage) => damage,
            };
            return Err(match self.on_damage(*id, damage)? {
                Finding::Sound => continue,
                Finding::NoShare | Finding::Coming => ReadError::NotFound(*id),
                Finding::Going => ReadError::Going(*id),
                Finding::Confirmed(damage) => ReadError::Damaged { share: *id, damage },
            });
        }
        Err(ReadError::Damaged { share: *id, damage })
    }

    fn opened(&self, id: &ShareId) -> Result<Attempt<Arc<OpenShare>>, ReadError> {
        let changes = match self.shelf.look(id) {
            Look::Open(share) => return Ok(Attempt::Done(share)),
            Look::Closed(changes) => changes,
            Look::Withheld(Withheld::Coming) => return Err(ReadError::NotFound(*id)),
            Look::Withheld(Withheld::Going) => return Err(ReadError::Going(*id)),
            Look::Withheld(Withheld::Damaged) => {
                return Err(ReadError::Damaged { share: *id, damage: Damage::Quarantined });
            }
        };
        Ok(match OpenShare::open(&*self.backend, id)? {
            Ok(share) => {
                let share = Arc::new(share);
                self.shelf.keep(&share, changes);
                Attempt::Done(share)
            }
            Err(damage) => Attempt::Damaged(damage),
        })
    }

    /// Whether a share that should be sound is damaged, by its row and its file as they are now.
    pub(crate) fn confirm_damage(&self, id: ShareId, damage: Damage) -> Result<bool, ReadError> {
        Ok(matches!(self.on_damage(id, damage)?, Finding::Confirmed(_)))
    }

    /// The relation of an account to a share. A share without a row may be there all the same
    /// (leasedb, fault 10).
    pub(crate) fn holds(&self, account: AccountId, id: &ShareId) -> Result<Holds, DatabaseError> {
        let by_row = self
            .database
            .read("looking up leases", |c| leases::holds(c, account, id, (self.settings.clock)()))?;
        let lies_there = || matches!(OpenShare::open(&*self.backend, id), Ok(Ok(_)));
        Ok(by_row.unwrap_or_else(|| if lies_there() { Holds::Unleased } else { Holds::Nothing }))
    }

    /// Confirms damage with the database. A share that should be there goes into quarantine, and
    /// its row stays (leasedb, faults 2 and 3). The file is checked again under the lock, when no
    /// operation changes it (leasedb, fault 5).
    fn on_damage(&self, id: ShareId, damage: Damage) -> Result<Finding, ReadError> {
        let row = || self.database.read("looking up a share", |c| transitions::row(c, &id));
        if let Err(finding) = to_be_sound(row()?) {
            return Ok(finding);
        }
        let _turn = self.file_locks.take(&[id]);
        let known = match to_be_sound(row()?) {
            Ok(row) => row.digest,
            Err(finding) => return Ok(finding),
        };
        let again = if matches!(damage, Damage::Digest | Damage::Unreadable) {
            check(&*self.backend, &id, known.as_ref())?.map(|_| ())
        } else {
            OpenShare::open(&*self.backend, &id)?.map(|_| ())
        };
        let Err(damage) = again else { return Ok(Finding::Sound) };
        let shelf = self.shelf.clone();
        let finding = self.database.write_then(
            "looking into damage",
            move |tx| note(tx, &id, damage),
            move |finding| {
                if matches!(finding, Finding::Confirmed(_)) {
                    shelf.withhold(&[id], Withheld::Damaged);
                }
            },
        )?;
        if let Finding::Confirmed(damage) = finding {
            tracing::error!(share = file_name(&id), %damage, "a share is damaged");
            (self.settings.on_damage)(id);
        }
        Ok(finding)
    }

    fn on_recovery(&self, id: ShareId) -> Result<(), ReadError> {
        let shelf = self.shelf.clone();
        self.database.write_then(
            "taking a share out of quarantine",
            move |tx| transitions::note_health(tx, &id, Health::Ok, ""),
            move |noted| {
                if *noted {
                    shelf.release(&[id]);
                }
            },
        )?;
        Ok(())
    }
}

/// Reads all of a share and returns its length. `digest` is the database's: the digest in the
/// header is in the same file as the body, and proves nothing if the whole file is another one.
fn check(
    backend: &dyn Backend,
    id: &ShareId,
    digest: Option<&Digest>,
) -> Result<Result<u32, Damage>, DiskError> {
    let header = match file::verify(backend, id)? {
        Ok(header) => header,
        Err(damage) => return Ok(Err(damage)),
    };
    let same = digest.is_none_or(|digest| *digest == header.digest);
    Ok(if same { Ok(header.length) } else { Err(Damage::Digest) })
}

/// The row, if its file should be whole and in its place now.
fn to_be_sound(row: Option<ShareRow>) -> Result<ShareRow, Finding> {
    let row = row.ok_or(Finding::NoShare)?;
    match row.state {
        State::Going => Err(Finding::Going),
        State::Coming => Err(Finding::Coming),
        State::Stable if row.upload.is_some() => Err(Finding::Coming),
        State::Stable => Ok(row),
    }
}

/// Notes damage, unless the share has been doomed meanwhile.
fn note(tx: &mut Tx<'_>, id: &ShareId, damage: Damage) -> rusqlite::Result<Finding> {
    if let Err(finding) = to_be_sound(tx.share(id)?) {
        return Ok(finding);
    }
    let health = if damage == Damage::Missing { Health::Missing } else { Health::Corrupt };
    transitions::note_health(tx, id, health, &damage.to_string())?;
    Ok(Finding::Confirmed(damage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountId, NewShare, ShareServerSettings};

    /// The first look for the file comes before it is in its place. By the time of the database
    /// query, it is.
    #[test]
    fn damage_that_is_not_there_any_more_is_not_noted() {
        let dir = tempfile::tempdir().unwrap();
        let server = SharedState::open(dir.path(), ShareServerSettings::new(Arc::new(|| 1))).unwrap();
        let id = ShareId([1; 16]);
        let share = NewShare { id, parts: vec!["body".into()] };
        server.store_many(vec![share], AccountId::ANONYMOUS, None).unwrap();
        for damage in [Damage::Missing, Damage::Length, Damage::Digest] {
            assert!(matches!(server.on_damage(id, damage).unwrap(), Finding::Sound), "{damage}");
        }
        assert_eq!(server.read(&id, 0, 4).unwrap(), b"body");
    }
}
