//! Recalls: revoking, publishing and releasing the leases that other clients need.

use super::revocations::{Cause, Flushing, ReleaseUnderway, answers};
use crate::client::Client;
use crate::knowledge::KnownContent;
use crate::server::ServerId;
use crate::{Invalidation, Now, Output};
use ident::FileId;
use lease::caching::CachingState;
use lease::{Field, Kind, Label, Released};
use namespace::Knowledge;
use std::collections::{BTreeMap, BTreeSet};
use wire::LogEntry;

impl Client {
    pub(crate) fn on_recall(
        &mut self,
        now: Now,
        server: ServerId,
        leases: Vec<Released>,
        mut ahead: Vec<Released>,
        out: &mut Vec<Output>,
    ) {
        leases
            .iter()
            .filter(|it| it.field == Field::Content)
            .for_each(|it| self.note_ping_pong(now, &it.file));
        let (answered, due): (Vec<_>, Vec<_>) =
            leases.into_iter().partition(|it| self.is_answered(server, it));
        if !answered.is_empty() {
            self.servers.get_mut(server).send_log_first(out);
        }
        self.revocations.recall(server, due);
        ahead.retain(|released| self.holds_more(released));
        self.revocations.offer(server, ahead, Cause::WishedFor);
        self.revoke_recalled(now, out);
    }

    /// Releases all single names of `dir` if they are too many. The client holds them one by one
    /// because other clients work there, too.
    ///
    /// The server reads and writes all of these names with each request on the directory. A call
    /// that needs one again asks for it. The names go as if they were recalled, after the calls
    /// that wait for one of them have been tried.
    pub(crate) fn release_names(&mut self, dir: &FileId) {
        let Some(known) = self.files.get(dir) else { return };
        if known.held.named().count() > self.settings.names_max {
            let keep = known.held.kind(&Field::Children);
            let name =
                |label: &Label| Released { file: dir.clone(), field: Field::Child(label.clone()), keep };
            let names = known.held.named().map(name).collect();
            self.revocations.offer(known.server, names, Cause::TooMany);
        }
    }

    /// Moves the releases on. Content under the lease is published first. Then front doors revoke
    /// their cached values. Then the log is flushed up to the release, which stands behind every
    /// update that used the lease.
    pub(crate) fn revoke_recalled(&mut self, now: Now, out: &mut Vec<Output>) {
        let (mut ready, mut dropping, mut handles) = (Vec::new(), Vec::new(), Vec::new());
        let (mut what, mut offered) = (Vec::new(), Vec::new());
        for mut underway in self.revocations.take_publishing() {
            let Released { file, field, .. } = &underway.released;
            if *field == Field::Content && self.publish_before(now, file, out).is_err() {
                self.revocations.publish(underway);
            } else if let Some(invalidation) = self.below(&underway.released) {
                if underway.is_recalled() { &mut what } else { &mut offered }.push(invalidation);
                underway.rounds = underway.rounds.saturating_add(1);
                dropping.push(underway);
            } else if *field == Field::Handles && !underway.is_recalled() {
                handles.push(underway);
            } else {
                ready.push(underway);
            }
        }
        // Whether a file is in use is known once its names have gone.
        if dropping.is_empty() { &mut ready } else { &mut dropping }.append(&mut handles);
        if !dropping.is_empty() {
            let number = self.number();
            // Several fields of one file go with its attributes.
            offered.dedup();
            out.push(Output::Revoke { number, what, offered });
            self.revocations.drop_at(number, dropping);
        }
        self.release_ready(now, ready, out);
        self.finish_flushes(now, out);
    }

    /// Takes the end of the revocation `number`. Content written meanwhile is published first, and
    /// its pages go as well. Offered leases stay here if their files are in use.
    pub(crate) fn on_revoked(
        &mut self,
        now: Now,
        number: u64,
        kept: &BTreeSet<FileId>,
        out: &mut Vec<Output>,
    ) {
        self.evict_picked(now, number);
        if let Some(report) = self.revocations.reporting.remove(&number) {
            self.revocations.flushing.push(report);
        }
        self.ship_revoked(number, out);
        let mut ready = Vec::new();
        for underway in self.revocations.take_dropped(number) {
            let Released { file, field, .. } = &underway.released;
            let is_dirty = *field == Field::Content && self.is_content_dirty(file);
            if !underway.is_recalled() && (is_dirty || kept.contains(file)) {
                continue;
            }
            if is_dirty { self.revocations.publish(underway) } else { ready.push(underway) }
        }
        self.release_ready(now, ready, out);
        self.revoke_recalled(now, out);
    }

    fn release_ready(&mut self, now: Now, ready: Vec<ReleaseUnderway>, out: &mut Vec<Output>) {
        let wanted = ready.iter().filter(|y| y.cause != Cause::TooMany);
        let waiting: BTreeSet<ServerId> = wanted.map(|y| y.server).collect();
        let (recalled, mut others): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(ReleaseUnderway::is_recalled);
        self.release_looked_up(now, recalled);
        // Trap: nothing is owed for these, so each has to release something when its turn comes.
        // Single names go before all names, which would take them along.
        let names =
            others.iter().filter(|y| y.released.field == Field::Children && y.released.keep.is_none());
        let names: BTreeSet<FileId> = names.map(|y| y.released.file.clone()).collect();
        others.retain(|y| self.holds_more(&y.released) && !self.may_be_used(now, &y.released, &names));
        others.sort_by_key(|y| matches!(y.released.field, Field::Children | Field::Xattrs));
        self.release_looked_up(now, others);
        waiting.into_iter().for_each(|server| self.servers.get_mut(server).send_log_first(out));
    }

    fn release_looked_up(&mut self, now: Now, ready: Vec<ReleaseUnderway>) {
        if !ready.is_empty() {
            let mut by_server: BTreeMap<ServerId, Vec<Released>> = BTreeMap::new();
            for ReleaseUnderway { released, server, .. } in ready {
                by_server.entry(server).or_default().push(released);
            }
            by_server.values().for_each(|leases| self.linger_if_looked_up(now, leases));
            by_server.into_iter().for_each(|(server, leases)| self.release(now, server, leases));
        }
    }

    /// Whether a release in the log, or on its way to the server, answers a recall of a lease that
    /// is not held.
    ///
    /// The server recalled before it saw that release. A grant made after it would have come after
    /// its acknowledgment. So the server expects no other answer, and counts a second one as a
    /// release of a lease that is not held.
    fn is_answered(&self, server: ServerId, recalled: &Released) -> bool {
        let server = self.servers.get(server);
        !self.holds_more(recalled)
            && server.is_releasing(&recalled.file)
            && server.log.any_release(|released| answers(&released, recalled))
    }

    /// Whether the client holds more than it may keep.
    fn holds_more(&self, released: &Released) -> bool {
        let held = self.files.get(&released.file).and_then(|known| known.held.kind(&released.field));
        held.and_then(|kind| kind.within(released.keep)) != held
    }

    fn is_content_dirty(&self, file: &FileId) -> bool {
        match self.files.get(file).map(|known| &known.content) {
            Some(KnownContent::Open(content)) => content.is_dirty() || !content.is_settled(),
            _ => false,
        }
    }

    fn finish_flushes(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut flushed = Vec::new();
        for flushing in std::mem::take(&mut self.revocations.flushing) {
            if self.publish_before(now, &flushing.file, out).is_err() {
                self.revocations.flushing.push(flushing);
                continue;
            }
            let Flushing { server, number, file, write_through } = flushing;
            let begins = write_through && self.begin_write_through(&file);
            flushed.push(match begins {
                true => (server, LogEntry::WritesThrough { number, file }),
                false => (server, LogEntry::Flushed { number }),
            });
        }
        self.answer_flushes(flushed, out);
    }

    /// Prepares a report: pending changes of the field go to the server, and the lease stays.
    pub(crate) fn on_flush(
        &mut self,
        now: Now,
        (server, number): (ServerId, u64),
        file: FileId,
        field: &Field,
        out: &mut Vec<Output>,
    ) {
        if *field == Field::Content {
            return self.on_flush_content(now, Flushing { server, number, file, write_through: false }, out);
        }
        if *field == Field::Locks {
            self.write_down_locks(now, &file);
        }
        if matches!(field, Field::Attributes | Field::Times) {
            self.watched.note(now.time, &file);
        }
        // Of a black box the one thing to tell is that this client's value is false, and then the
        // asker may know it. Beside a handle that caches nobody else writes behind a cache, so such
        // a handle tells nothing.
        let own = self.own(&file);
        let caches = self.covered.contains(&file) && own.has(&Field::Handles);
        if field.is_black_box() && !own.has(field) && !caches && self.files.holds(&file, field, Kind::Touch) {
            let keep = self.files.holds(&file, field, Kind::Read).then_some(Kind::Read);
            self.release(now, server, vec![Released { file, field: field.clone(), keep }]);
        }
        self.answer_flushes(vec![(server, LogEntry::Flushed { number })], out);
    }

    /// Prepares a report of content, which may have to be published first.
    pub(crate) fn on_flush_content(&mut self, now: Now, report: Flushing, out: &mut Vec<Output>) {
        if self.may_be_mapped(&report.file) {
            // The client learns changes that a program made in mapped pages only when these are
            // dropped. Clients of front doors that cache have no such pages.
            let number = self.number();
            let what = vec![Invalidation::Caching(report.file.clone(), CachingState::RWH)];
            out.push(Output::Revoke { number, what, offered: Vec::new() });
            self.revocations.reporting.insert(number, report);
        } else {
            self.revocations.flushing.push(report);
            self.finish_flushes(now, out);
        }
    }

    fn answer_flushes(&mut self, answers: Vec<(ServerId, LogEntry)>, out: &mut Vec<Output>) {
        let mut answered = BTreeSet::new();
        for (server, answer) in answers {
            self.servers.get_mut(server).log.push(answer, 16);
            answered.insert(server);
        }
        answered.into_iter().for_each(|server| self.servers.get_mut(server).send_log_first(out));
    }

    /// Forgets the server's requests for reports. Over a new connection it asks again for those
    /// that it still wants.
    pub(crate) fn forget_reports(&mut self, server: ServerId) {
        let is_its = |report: &Flushing| report.server == server;
        self.revocations.flushing.retain(|report| !is_its(report));
        self.revocations.reporting.retain(|_, report| !is_its(report));
    }

    /// The item that front doors revoke when the lease goes.
    fn below(&self, released: &Released) -> Option<Invalidation> {
        let file = released.file.clone();
        let keeps = |kind: Kind| released.keep.is_some_and(|keep| keep.covers(kind));
        let is_cached = self.covered.contains(&file);
        let caching = |state: CachingState| is_cached.then(|| Invalidation::Caching(file.clone(), state));
        match &released.field {
            Field::Content if keeps(Kind::Read) && is_cached => caching(CachingState::RH),
            // A program must not write to mapped pages any more. The next read requests them anew.
            Field::Content if released.keep.is_none() || self.may_be_mapped(&file) => {
                Some(Invalidation::Pages(file))
            }
            // Another machine is about to lock. Its lock takes what is cached, and a look takes
            // only what is written and locked behind the cache (MS-SMB2 §3.3.1.4).
            Field::Locks => caching(if keeps(Kind::Read) { CachingState::RH } else { CachingState::NONE }),
            // Another machine wants to know how the file is open here. Handles that are only cached
            // are closed before it hears.
            field @ (Field::Handles | Field::Mode(_))
                if !keeps(Kind::Touch) && self.own(&file).has(field) =>
            {
                caching(CachingState::RW)
            }
            // Clients write streams behind their caches, too.
            Field::Xattr(_) | Field::Xattrs if is_cached => Some(Invalidation::Attributes(file)),
            // A machine that may still read keeps its cached values, because other machines only
            // read from now on. It revokes them if the server is just changing the field for it.
            // Trap: a machine that keeps `Touch` may not read.
            field if keeps(Kind::Read) && !self.is_lease_in_doubt(&file, field) => None,
            Field::Child(label) => Some(Invalidation::Entry(file, label.clone())),
            Field::Children => Some(Invalidation::Entries(file)),
            Field::Attributes | Field::Times | Field::Parent => Some(Invalidation::Attributes(file)),
            Field::Xattr(_) | Field::Xattrs => Some(Invalidation::Attributes(file)),
            Field::Content | Field::Disposition | Field::Handles | Field::Mode(_) => None,
            Field::Path => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, empty, opened};
    use crate::{Input, Settings};
    use lease::OpenModes;
    use wire::{FileGrant, ToClient, ToServer, Values};

    /// A client that holds four single names of a directory, where two are many. Also the number of
    /// their revocation.
    fn crowded(dir: &FileId) -> (Client, u64) {
        let (mut client, mut out) =
            (Client::new(Settings { names_max: 2, ..Settings::new([0; 32]) }), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        for (number, names) in [(1, [b"a", b"b"]), (2, [b"c", b"d"])] {
            assert!(revocations(&out).is_empty(), "two are not many");
            let told = names.map(|name| Label::new(name).unwrap()).to_vec();
            let fields = told.iter().map(|name| (Field::Child(name.clone()), Kind::Write)).collect();
            let values = Values { told, children_up_to: None, ..empty(dir).values };
            let grant = FileGrant { fields, values, ..empty(dir) };
            let granted = ToClient::Granted { number, grants: vec![grant], gone: Vec::new() };
            client.handle(at(number), Input::Message(ServerId::ROOT, granted), &mut out);
        }
        // The kernel's entries are revoked first.
        let [(number, 4)] = revocations(&out)[..] else { panic!("{out:?}") };
        assert_eq!(client.files.get(dir).unwrap().held.named().count(), 4);
        (client, number)
    }

    /// The revocations in `out`: number, and how many items.
    fn revocations(out: &[Output]) -> Vec<(u64, usize)> {
        let of = |output: &Output| match output {
            Output::Revoke { number, what, offered } => Some((*number, what.len() + offered.len())),
            _ => None,
        };
        out.iter().filter_map(of).collect()
    }

    /// A recall is answered even if nothing is known of its file. So the end of the session ends it
    /// by its server, not by its file.
    #[test]
    fn what_a_session_that_is_over_recalled_is_not_released_in_the_next() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        let hears = |client: &mut Client, message, out: &mut Vec<Output>| {
            client.handle(at(1), Input::Message(ServerId::ROOT, message), out);
        };
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        hears(&mut client, opened(), &mut out);
        let content = Released { file: FileId::root().child(2), field: Field::Content, keep: None };
        hears(&mut client, ToClient::Recall { leases: vec![content], ahead: Vec::new() }, &mut out);
        let [(number, 1)] = revocations(&out)[..] else { panic!("{out:?}") };
        hears(&mut client, ToClient::Fenced, &mut out);
        client.handle(at(2), Input::Revoked { number, kept: BTreeSet::new() }, &mut out);
        client.handle(at(3), Input::Greeting(ServerId::ROOT), &mut out);
        out.clear();
        hears(&mut client, opened(), &mut out);
        let logs = |output: &Output| matches!(output, Output::Send(_, ToServer::Log { .. }));
        assert!(!out.iter().any(logs) && client.server().log.len() == 0, "{out:?}");
    }

    #[test]
    fn names_that_are_held_one_by_one_are_let_go_when_they_are_many() {
        let (dir, mut out) = (FileId::root().child(2), Vec::new());
        let (mut client, number) = crowded(&dir);
        client.handle(at(3), Input::Revoked { number, kept: Default::default() }, &mut out);
        let known = client.files.get(&dir).unwrap();
        assert_eq!(known.held.named().count(), 0);
        assert!(known.children.as_ref().unwrap().told.is_empty(), "no knowledge without a lease");
        assert!(client.server().is_releasing(&dir), "the server is told");
        assert!(
            !out.iter().any(|output| matches!(output, Output::Send(..))),
            "with whatever comes next: {out:?}"
        );
    }

    #[test]
    fn what_was_recalled_meanwhile_is_let_go_once() {
        let (dir, mut out) = (FileId::root().child(2), Vec::new());
        let (mut client, number) = crowded(&dir);
        let all = Released { file: dir.clone(), field: Field::Children, keep: None };
        client.handle(
            at(3),
            Input::Message(ServerId::ROOT, ToClient::Recall { leases: vec![all], ahead: Vec::new() }),
            &mut out,
        );
        let [(recalled, 1)] = revocations(&out)[..] else { panic!("{out:?}") };
        client.handle(at(4), Input::Revoked { number: recalled, kept: Default::default() }, &mut out);
        assert_eq!(client.files.get(&dir).unwrap().held.named().count(), 0, "with all go those of their own");
        let last = client.server().log.last();
        client.handle(at(5), Input::Revoked { number, kept: Default::default() }, &mut out);
        assert_eq!(client.server().log.last(), last, "the server would take that for a misdeed");
        // The server waits for an answer to a recall, although it is the same release again.
        let (mut client, number) = crowded(&dir);
        let one = Released { file: dir.clone(), field: Field::Child(Label::new(b"a").unwrap()), keep: None };
        out.clear();
        client.handle(
            at(3),
            Input::Message(ServerId::ROOT, ToClient::Recall { leases: vec![one], ahead: Vec::new() }),
            &mut out,
        );
        let [(recalled, 1)] = revocations(&out)[..] else { panic!("{out:?}") };
        client.handle(at(4), Input::Revoked { number, kept: Default::default() }, &mut out);
        assert_eq!(client.files.get(&dir).unwrap().held.named().count(), 1, "the recall is not answered yet");
        client.handle(at(5), Input::Revoked { number: recalled, kept: Default::default() }, &mut out);
        assert_eq!(client.files.get(&dir).unwrap().held.named().count(), 0);
    }

    /// A wish for the attributes of a directory, and the number of the revocation for it.
    fn wished_for() -> (Client, FileId, Released, u64) {
        let (dir, mut out) = (FileId::root().child(2), Vec::new());
        let mut client = Client::new(Settings::new([0; 32]));
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let granted = ToClient::Granted { number: 1, grants: vec![empty(&dir)], gone: Vec::new() };
        client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
        out.clear();
        let attributes = Released { file: dir.clone(), field: Field::Attributes, keep: None };
        let (leases, ahead) = (Vec::new(), vec![attributes.clone()]);
        client.handle(at(2), Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead }), &mut out);
        let [Output::Revoke { number, ref what, ref offered }] = out[..] else { panic!("{out:?}") };
        assert!(what.is_empty() && *offered == [Invalidation::Attributes(dir.clone())], "{out:?}");
        (client, dir, attributes, number)
    }

    fn holds_attributes(client: &Client, dir: &FileId) -> bool {
        client.files.get(dir).unwrap().held.kind(&Field::Attributes).is_some()
    }

    #[test]
    fn what_is_wished_for_goes_unless_it_is_in_use() {
        for in_use in [false, true] {
            let ((mut client, dir, _, number), mut out) = (wished_for(), Vec::new());
            let kept = BTreeSet::from_iter(in_use.then(|| dir.clone()));
            client.handle(at(3), Input::Revoked { number, kept }, &mut out);
            assert_eq!(holds_attributes(&client, &dir), in_use);
            let told = out.iter().any(|output| matches!(output, Output::Send(_, ToServer::Log { .. })));
            assert_eq!(told, !in_use, "{out:?}");
            assert!(client.revocations.all().next().is_none(), "nothing is owed");
        }
        // Of what it does not hold a client owes nothing either.
        let (mut client, dir, wished, number) = wished_for();
        client.handle(at(3), Input::Revoked { number, kept: BTreeSet::new() }, &mut Vec::new());
        let (last, mut out) = (client.server().log.last(), Vec::new());
        let again = ToClient::Recall { leases: Vec::new(), ahead: vec![wished] };
        client.handle(at(4), Input::Message(ServerId::ROOT, again), &mut out);
        assert!(client.server().log.last() == last && revocations(&out).is_empty(), "{dir}: {out:?}");
    }

    #[test]
    fn what_is_wished_for_and_then_recalled_goes_even_if_it_is_in_use() {
        let (mut client, dir, recalled, wished) = wished_for();
        let mut out = Vec::new();
        let recall = ToClient::Recall { leases: vec![recalled], ahead: Vec::new() };
        client.handle(at(3), Input::Message(ServerId::ROOT, recall), &mut out);
        let [(number, 1)] = revocations(&out)[..] else { panic!("{out:?}") };
        let kept = BTreeSet::from([dir.clone()]);
        client.handle(at(4), Input::Revoked { number: wished, kept: kept.clone() }, &mut out);
        assert!(holds_attributes(&client, &dir), "front doors are still asked");
        client.handle(at(5), Input::Revoked { number, kept }, &mut out);
        assert!(!holds_attributes(&client, &dir));
    }

    /// With the lease on all names go those on single ones. The server counts a release of what is
    /// not held, and not recalled, as a misdeed.
    #[test]
    fn no_wish_is_fulfilled_twice() {
        let dir = FileId::root().child(2);
        let released = |field| Released { file: dir.clone(), field, keep: None };
        let all = released(Field::Children);
        let one = released(Field::Child(Label::new(b"a").unwrap()));
        for (leases, ahead, logged) in [
            (vec![all.clone()], vec![one.clone()], vec![vec![all.clone()]]),
            (vec![], vec![all.clone(), one.clone(), all.clone()], vec![vec![one, all]]),
        ] {
            let ((mut client, _, _, _), mut out) = (wished_for(), Vec::new());
            let granted = FileGrant { values: Values::default(), ..empty(&dir) };
            let fields = vec![(Field::Child(Label::new(b"a").unwrap()), Kind::Write)];
            let grants = vec![FileGrant { fields, ..granted }];
            let granted = ToClient::Granted { number: 2, grants, gone: Vec::new() };
            client.handle(at(3), Input::Message(ServerId::ROOT, granted), &mut out);
            client.handle(
                at(4),
                Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead }),
                &mut out,
            );
            let Some(&(number, _)) = revocations(&out).last() else { panic!("{out:?}") };
            client.handle(at(5), Input::Revoked { number, kept: BTreeSet::new() }, &mut out);
            let entries = out.into_iter().filter_map(|output| match output {
                Output::Send(_, ToServer::Log { entries, .. }) => Some(entries),
                _ => None,
            });
            let releases = entries.flatten().filter_map(|entry| match entry {
                LogEntry::Release(released) => Some(released),
                _ => None,
            });
            assert_eq!(releases.collect::<Vec<_>>(), logged);
        }
    }

    /// Several clients may touch a directory's times at once, and then none of them may read the
    /// times. The kernel would go on showing old ones.
    #[test]
    fn times_that_may_only_be_touched_are_taken_back_below() {
        for (keep, goes) in [(None, true), (Some(Kind::Touch), true), (Some(Kind::Read), false)] {
            let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
            client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
            client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
            let dir = FileId::root().child(2);
            let fields = vec![(Field::Times, Kind::Write)];
            let values = Values { times: Some(namespace::Times::default()), ..empty(&dir).values };
            let grant = FileGrant { fields, values, ..empty(&dir) };
            let granted = ToClient::Granted { number: 1, grants: vec![grant], gone: Vec::new() };
            client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
            out.clear();
            let leases = vec![Released { file: dir.clone(), field: Field::Times, keep }];
            client.handle(
                at(2),
                Input::Message(ServerId::ROOT, ToClient::Recall { leases, ahead: Vec::new() }),
                &mut out,
            );
            let taken = Invalidation::Attributes(dir.clone());
            let is_taken =
                |output: &Output| matches!(output, Output::Revoke { what, .. } if what.contains(&taken));
            assert_eq!(out.iter().any(is_taken), goes, "{keep:?}: {out:?}");
        }
    }

    /// The client sees at once what a program writes to a file that it cannot have mapped. A report
    /// of such a file waits for no front door.
    #[test]
    fn what_may_be_mapped_to_write_is_taken_back_before_it_is_told() {
        for (open, drops) in [(OpenModes::posix(false, true), false), (OpenModes::posix(true, true), true)] {
            let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
            client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
            client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
            let file = FileId::root().child(2);
            let granted = ToClient::Granted { number: 1, grants: vec![empty(&file)], gone: Vec::new() };
            client.handle(at(1), Input::Message(ServerId::ROOT, granted), &mut out);
            client.files.get_mut(&file).unwrap().add_handle(open);
            out.clear();
            let asked = ToClient::Flush { number: 7, file: file.clone(), field: Field::Content };
            client.handle(at(2), Input::Message(ServerId::ROOT, asked), &mut out);
            let pages = |output: &Output| matches!(output, Output::Revoke { what, .. } if *what == [Invalidation::Caching(file.clone(), CachingState::RWH)]);
            assert_eq!(out.iter().any(pages), drops, "{out:?}");
            let told = |output: &Output| matches!(output, Output::Send(..));
            assert_eq!(out.iter().any(told), !drops, "{out:?}");
        }
    }
}
