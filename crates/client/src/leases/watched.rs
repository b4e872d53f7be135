//! The files that another machine looks at after each change.

use ident::FileId;
use lease::{Recent, Time};

/// The number of requests for a report in a row from which others look at each change.
const LOOKS: u8 = 2;
/// Changes that are sent at once without another look. Then the others have stopped looking.
const UNLOOKED_MAX: u8 = 3;

/// Files whose attributes were asked for lately, and the changes sent at once since the last time.
///
/// A change of such a file is sent before anybody asks. Its way to the disk of the server then
/// overlaps with the question.
#[derive(Debug, Default)]
pub(crate) struct WatchedFiles(Recent<FileId, u8>);

impl WatchedFiles {
    /// Notes that the server asked for the values of `file`, which this client holds to change.
    pub fn note(&mut self, now: Time, file: &FileId) {
        if let Some(unlooked) = self.0.note(now, file, 1) {
            *unlooked = 0;
        }
    }

    /// Whether a change of `file` is to be sent at once. Counts it.
    pub fn goes_at_once(&mut self, now: Time, file: &FileId) -> bool {
        if self.0.count(now, file) < LOOKS {
            return false;
        }
        let unlooked = self.0.get_mut(file).filter(|unlooked| **unlooked < UNLOOKED_MAX);
        unlooked.map(|unlooked| *unlooked += 1).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerId;
    use crate::tests::{at, logged, writer};
    use crate::{Call, Client, Input, Outcome, call};
    use lease::Field;
    use namespace::{AttributeChange, Cred};
    use wire::{LogEntry, ToClient};

    #[test]
    fn changes_go_at_once_as_long_as_somebody_looks_at_them() {
        let (mut watched, file, other) = (WatchedFiles::default(), FileId::root().child(2), FileId::root());
        watched.note(Time(1_000), &file);
        assert!(!watched.goes_at_once(Time(1_001), &file), "one look is none");
        watched.note(Time(1_002), &file);
        assert!(!watched.goes_at_once(Time(1_003), &other));
        for _ in 0..2 {
            (0..UNLOOKED_MAX).for_each(|_| assert!(watched.goes_at_once(Time(1_003), &file)));
            assert!(!watched.goes_at_once(Time(1_003), &file), "nobody looks any more");
            watched.note(Time(1_004), &file);
        }
        assert!(!watched.goes_at_once(Time(60_000), &file), "the last look was long ago");
    }

    #[test]
    fn a_change_that_others_look_at_is_sent_before_they_ask() {
        let (mut client, file) = writer(1 << 20);
        let sent_by_chmod = |client: &mut Client, mode| {
            let mut out = Vec::new();
            let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
            let chmod = call::SetAttributes { file: file.clone(), change, size: None, through_handle: false };
            let done = client.call(at(2), &Cred::default(), Call::SetAttributes(chmod), &mut out);
            assert!(matches!(done, Outcome::Done(Ok(_))));
            logged(&out).iter().any(|entry| matches!(entry, LogEntry::Update { .. }))
        };
        for (mode, goes) in [(0o600, false), (0o601, false), (0o602, true), (0o603, true)] {
            assert_eq!(sent_by_chmod(&mut client, mode), goes, "{mode:o}");
            let asked = ToClient::Flush { number: 7, file: file.clone(), field: Field::Attributes };
            client.handle(at(3), Input::Message(ServerId::ROOT, asked), &mut Vec::new());
        }
    }
}
