//! Eviction: forgetting the least used files.

use super::{KnownContent, KnownFile};
use crate::client::Client;
use crate::{Invalidation, Now, Output};
use ident::FileId;
use lease::Released;

/// How many files the hand looks at after one input.
const STEPS: usize = 64;

impl KnownFile {
    /// Everything that front doors may have cached of `file`, which is this one.
    pub(crate) fn handed_out(&self, file: &FileId) -> impl Iterator<Item = Invalidation> {
        // All entries are revoked: front doors may have cached the absence of labels that are not
        // known here.
        let entries = self.children.is_some().then(|| Invalidation::Entries(file.clone()));
        entries.into_iter().chain([Invalidation::Pages(file.clone())])
    }
}

impl Client {
    /// Keeps the number of known files within bounds.
    ///
    /// The hand picks files that were not used since it last passed. The client forgets them and
    /// releases their leases once front doors have revoked them.
    pub(crate) fn evict(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.files.all.len().saturating_sub(self.hand.picked()) <= self.settings.files_max {
            return;
        }
        let (mut picked, mut what) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let Some(file) = self.hand.ahead.pop_front() else { break };
            let Some(known) = self.files.get_mut(&file) else { continue };
            let was_used = std::mem::take(&mut known.recent);
            match self.files.get(&file).filter(|known| !was_used && !self.is_in_use(now, &file, known)) {
                Some(known) => {
                    what.extend(known.handed_out(&file));
                    picked.push(file);
                }
                None => self.hand.ahead.push_back(file),
            }
        }
        if !picked.is_empty() {
            let number = self.number();
            out.push(Output::Revoke { number, what, offered: Vec::new() });
            self.hand.picked.insert(number, picked);
        }
    }

    /// Forgets the picked files whose revocation `number` is done. Files that were used meanwhile
    /// stay.
    pub(crate) fn evict_picked(&mut self, now: Now, number: u64) {
        for file in self.hand.picked.remove(&number).unwrap_or_default() {
            let Some(known) = self.files.get(&file) else { continue };
            if known.recent || self.is_in_use(now, &file, known) {
                self.hand.ahead.push_back(file);
                continue;
            }
            let fields = known.to_release();
            self.write_down_locks(now, &file);
            let released =
                fields.into_iter().map(|field| Released { file: file.clone(), field, keep: None }).collect();
            self.publishing.orphan(&file);
            self.push_release(self.server_of(&file), released, Vec::new());
            self.files.all.remove(&file);
        }
    }

    /// Whether forgetting the file would lose something. With its leases goes the promise that a
    /// file just looked up can still be used, whatever happens to its name meanwhile.
    fn is_in_use(&self, now: Now, file: &FileId, known: &KnownFile) -> bool {
        let content_busy = match &known.content {
            KnownContent::Open(content) => {
                content.is_dirty() || !content.is_settled() || content.is_folding()
            }
            KnownContent::Unknown | KnownContent::Head(..) => false,
        };
        known.gone
            || self.session_of(file).promised.of(file) > 0
            || known.handles.is_some()
            || known.looked_up.is_recent(now.time)
            || content_busy
            || self.session_of(file).requests.want(file)
            || file == self.root()
            || self.is_waited_for(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerId;
    use crate::tests::{at, empty, opened};
    use crate::{Call, Input, Outcome, Settings, call};
    use lease::Label;
    use namespace::{Cred, Error};
    use wire::ToClient;

    #[test]
    fn what_was_not_there_is_taken_back_before_the_directory_is_forgotten() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let dir = FileId::root().child(2);
        let granted = ToClient::Granted { number: 1, grants: vec![empty(&dir)], gone: Vec::new() };
        client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
        let look = |client: &mut Client| {
            let call = Call::Lookup(call::Lookup { dir: dir.clone(), label: Label::new(b"absent").unwrap() });
            let told = client.call(at(2), &Cred::default(), call, &mut Vec::new());
            assert!(matches!(told, Outcome::Done(Err(Error::NotFound))), "{told:?}");
        };
        // The kernel has cached the name from now on.
        look(&mut client);
        client.settings.files_max = 0;
        let mut pick = |client: &mut Client| {
            out.clear();
            client.handle(at(3), Input::Tick, &mut out);
            // The hand passes a used file once.
            client.handle(at(3), Input::Tick, &mut out);
            let entries = Invalidation::Entries(dir.clone());
            let number = out.iter().find_map(|output| match output {
                Output::Revoke { number, what, .. } if what.contains(&entries) => Some(*number),
                _ => None,
            });
            number.unwrap_or_else(|| panic!("{out:?}"))
        };
        let number = pick(&mut client);
        // The kernel may cache the entry again before the revocation is done. Then the file stays.
        look(&mut client);
        client.handle(at(4), Input::Revoked { number, kept: Default::default() }, &mut Vec::new());
        assert!(client.files.get(&dir).is_some());
        let number = pick(&mut client);
        client.handle(at(5), Input::Revoked { number, kept: Default::default() }, &mut Vec::new());
        assert!(client.files.get(&dir).is_none() && client.server().is_releasing(&dir));
    }
}
