//! Operations that the server does for this client, and what is answered when it has.

use crate::client::Client;
use crate::waiting::{On, Stop, Waiting};
use crate::{Call, Now, Output, Reply};
use ident::FileId;
use lease::Kind;
use namespace::{Answer, Attributes, Effect, Error, Knowledge, Known, Operation, Stat};

/// What became of an operation that the server has done.
#[derive(Clone, Debug)]
pub(crate) struct Shipped {
    answer: Answer,
    /// The attributes that it gave the file which it made, linked or changed.
    attributes: Option<Attributes>,
    /// What the server said when it was asked for what the reply takes besides: the file is gone by then, or where this machine may not look.
    refused: Option<Error>,
}

impl Client {
    /// The shipped operation `number` was done, or refused.
    pub(crate) fn on_shipped(&mut self, number: u64, result: Result<(Answer, Vec<Effect>), Error>) {
        let looked_at = match self.requests.operation(number) {
            Some(Operation::Stat { file }) if result == Err(Error::Stale) => Some(file.clone()),
            _ => None,
        };
        // What was told before is told again over a new connection; by now more may have happened.
        if !self.requests.answered(number) {
            return;
        }
        let result = result.map(|(answer, effects)| {
            effects.iter().for_each(|effect| self.files.apply(effect, false));
            let attributes = effects.iter().rev().find_map(|effect| match effect {
                Effect::Birth { attributes, .. } | Effect::Attributes { attributes, .. } => Some(*attributes),
                _ => None,
            });
            Shipped { answer, attributes, refused: None }
        });
        for waiting in self.waiting.values_mut() {
            if matches!(waiting.on, On::Number(n) if n == number) {
                waiting.on = On::Answered;
                // What was found by a name is gone, or where this machine may not look; if the name is not its own any more, it is looked up again.
                if let (Call::Lookup { dir, label }, Some(file), None) =
                    (&waiting.call, &looked_at, &waiting.shipped)
                    && dir != file
                    && !matches!(self.files.child(dir, label, Kind::Read), Known::Used(entry) if entry.file == *file)
                {
                    continue;
                }
                match (&mut waiting.shipped, &result) {
                    // What was done is not refused any more.
                    (Some(Ok(done)), Err(error)) => done.refused = Some(*error),
                    (shipped, _) => *shipped = Some(result.clone()),
                }
            }
        }
    }

    /// The reply to a call whose operation the server has done. What it says beyond the answer comes by the ordinary way, and by then the file may be gone.
    pub(crate) fn reply_to_shipped(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        shipped: Shipped,
        out: &mut Vec<Output>,
    ) -> Result<Reply, Stop> {
        // What the server said is so; what is added to it from here only while leases count.
        self.require_session(now)?;
        let Shipped { answer, attributes, refused } = shipped;
        let entry = if let Answer::Entry(entry) = &answer { Some(entry.clone()) } else { None };
        let reply = match refused {
            Some(error) => Err(Stop::Error(error)),
            None => self.reply_from(now, waiting, answer),
        };
        match (reply, attributes, &waiting.call) {
            (Err(Stop::Error(Error::Stale)), _, Call::Lookup { .. } | Call::Parent { .. }) => {
                waiting.shipped = None;
                self.attempt(now, waiting, out)
            }
            (Err(Stop::Error(Error::Stale)), Some(attributes), Call::SetAttributes { size: None, .. }) => {
                Ok(Reply::Stat(last_seen(attributes)))
            }
            (
                Err(Stop::Error(Error::Stale)),
                Some(attributes),
                Call::Create { open: None, .. } | Call::Link { .. },
            ) => match entry {
                Some(entry) => Ok(Reply::Node(entry, last_seen(attributes))),
                None => Err(Stop::Error(Error::Stale)),
            },
            (reply, ..) => reply,
        }
    }

    fn reply_from(&mut self, now: Now, waiting: &Waiting, answer: Answer) -> Result<Reply, Stop> {
        match answer {
            Answer::Stat(stat) => Ok(Reply::Stat(stat)),
            Answer::Bytes(bytes) => Ok(Reply::Bytes(bytes)),
            Answer::Names(names) => Ok(Reply::Names(names)),
            Answer::Lock(conflict) => Ok(Reply::Lock(conflict)),
            // Where a call wants a stat or a handle as well, their leases come by the ordinary way.
            Answer::Nothing if let Call::SetAttributes { file, size, through_handle, .. } = &waiting.call => {
                let size = size.map(|size| (size, *through_handle));
                self.set_size(now, waiting, file, size)
            }
            Answer::Entry(entry) if let Call::Create { open: Some(open), .. } = waiting.call => {
                self.open_shipped(now, entry, open)
            }
            Answer::Entry(_) if matches!(waiting.call, Call::Rename { .. }) => Ok(Reply::Nothing),
            Answer::Entry(entry) => self.node(now, entry),
            Answer::Nothing => Ok(Reply::Nothing),
        }
    }

    /// What is left of setting attributes once those are set: in one step, so that it is not done twice.
    fn set_size(
        &mut self,
        now: Now,
        waiting: &Waiting,
        file: &FileId,
        size: Option<(u64, bool)>,
    ) -> Result<Reply, Stop> {
        let stat = self.stat(now, file)?;
        let Some((size, through_handle)) = size else { return Ok(Reply::Stat(stat)) };
        self.truncate(now, waiting, file, size, through_handle)?;
        Ok(Reply::Stat(self.stat(now, file)?))
    }
}

/// What stat shows of a file that is gone by now.
fn last_seen(attributes: Attributes) -> Stat {
    Stat { attributes, size: 0, occupied: 0, mtime: attributes.ctime }
}
