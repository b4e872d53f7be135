//! Reserves that the servers give this client for use without a request: integers of directories,
//! inode numbers, space.

use super::{Need, Stop, Waiting};
use crate::client::Client;
use crate::server::{AllowanceRequest, ServerId};
use crate::{Now, Output, Reply};
use ident::FileId;
use namespace::Effect;
use std::ops::Range;

type Tried = Result<Reply, Stop>;

/// The time for which a report of free space is good, ms.
const TOLD_MS: u64 = 500;
/// A call waits this long, ms, for space that earlier updates free: those that replaced the same
/// content, or that deleted or cut off any in as long a time before the call. The wait begins with
/// the first answer that there is no space, for a busy server may take as long to answer.
const FREED_PATIENCE_MS: u64 = 20_000;

impl Client {
    /// The next integer of `dir`, which is not used up yet.
    pub(crate) fn integer(&self, dir: &FileId) -> Option<u64> {
        self.files.get(dir)?.children.as_ref()?.integers.first()
    }

    /// Uses up an integer of `dir`, and asks for more in time.
    pub(crate) fn take_integer(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        let Some(children) = self.files.get_mut(dir).and_then(|known| known.children.as_mut()) else {
            return;
        };
        children.integers.take();
        if children.integers_low() {
            self.reserve(dir, out);
        }
    }

    pub(crate) fn reserve(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        let Some(children) = self.files.get_mut(dir).and_then(|known| known.children.as_mut()) else {
            return;
        };
        if !children.integers.is_reserving {
            children.integers.is_reserving = true;
            self.session_of_mut(dir).request_integers(dir, out);
        }
    }

    /// The next inode number for a new file in `dir`, which is not used up yet.
    pub(crate) fn inode(&self, dir: &FileId) -> Result<u64, Stop> {
        let server = self.server_of(dir);
        self.servers.get(server).inodes.first().ok_or(Stop::Need(Need::Inodes(server)))
    }

    /// Uses up an inode number for a new file in `dir`.
    pub(crate) fn take_inode(&mut self, dir: &FileId) {
        self.session_of_mut(dir).inodes.take();
    }

    /// Charges the allowance `cost`, of bytes and files. A call that the client has accepted fits.
    pub(crate) fn charge(
        &mut self,
        now: Now,
        server: ServerId,
        waiting: &Waiting,
        cost: (u64, u64),
    ) -> Result<(), Stop> {
        self.charge_for(now, server, waiting, cost, false)
    }

    /// While earlier updates of this machine still free space, a call that finds none waits for
    /// theirs: programs delete in order to write.
    fn charge_for(
        &mut self,
        now: Now,
        server: ServerId,
        waiting: &Waiting,
        (bytes, files): (u64, u64),
        replaces: bool,
    ) -> Result<(), Stop> {
        let is_last_write = self.takes_last_write(&waiting.call);
        let is_recent = |freed| waiting.since.ms_since(freed) < FREED_PATIENCE_MS;
        let frees = replaces || self.freed.is_some_and(is_recent);
        let allowance = &mut self.servers.get_mut(server).allowance;
        // The client keeps a last write in any case. The server decides later whether there is
        // room.
        if allowance.charge(bytes, files) || is_last_write {
            return Ok(());
        }
        match waiting.asked_allowance {
            // A session gets a part of the remaining space at a time. A call asks again as long as
            // each part brings it closer.
            Some(had) if allowance.asking.is_none() && !allowance.comes_closer(&had, bytes, files) => {
                let full_since = waiting.full_since.unwrap_or(now.time);
                match frees && now.time.ms_since(full_since) < FREED_PATIENCE_MS {
                    true => Err(Stop::Need(Need::Freed)),
                    false => Err(Stop::Error(namespace::Error::NoSpace)),
                }
            }
            _ => Err(Stop::Need(Need::Allowance { server, bytes, files, replaces })),
        }
    }

    /// Notes that deletions free space.
    pub(crate) fn note_freed(&mut self, now: Now, effects: &[Effect]) {
        if effects.iter().any(|effect| matches!(effect, Effect::Death { .. } | Effect::Orphan { .. })) {
            self.freed = Some(now.time);
        }
    }

    /// Charges a write of `range` of `file`, which costs `cost`.
    ///
    /// A range that is all promised, or that has content everywhere, is written however little is
    /// left. The server has a reserve for the small additional cost, and for the time until the
    /// replaced content is free.
    pub(crate) fn charge_write(
        &mut self,
        now: Now,
        waiting: &Waiting,
        file: &FileId,
        range: &Range<u64>,
        cost: u64,
    ) -> Result<(), Stop> {
        let id = self.server_of(file);
        let server = self.servers.get_mut(id);
        let promised = server.promised.covers(file, range);
        let rest = cost.saturating_sub(promised);
        if promised > 0 && promised == range.end - range.start {
            server.allowance.bytes = server.allowance.bytes.saturating_sub(rest);
            return Ok(());
        }
        let replaces = server.allowance.bytes < rest && self.is_written(file, range)?;
        self.charge_for(now, id, waiting, (rest, 0), replaces)
    }

    /// Requests more allowance.
    pub(crate) fn ask_allowance(
        &mut self,
        server: ServerId,
        request: AllowanceRequest,
        out: &mut Vec<Output>,
    ) {
        let dirty_bytes = self.publishing.dirty_bytes() as u64;
        self.servers.get_mut(server).ask_allowance(request, dirty_bytes, out);
    }

    /// How much space there is. The client asks the server if the last report is old and there is a
    /// connection. So the space of a recent deletion shows.
    pub(crate) fn space(&self, now: Now, waiting: &Waiting) -> Tried {
        let server = self.servers.get(ServerId::ROOT);
        let is_old = now.time.ms_since(server.space_told) >= TOLD_MS && server.is_connected();
        if is_old && waiting.asked_allowance.is_none() {
            return Err(Stop::Need(Need::Space));
        }
        let free = server.space.free + server.space.elsewhere + server.allowance.bytes;
        let files = self.servers.iter().map(|(_, server)| server.space.files).sum();
        Ok(Reply::Space { total: server.space.total, free, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{at, writer};
    use crate::{AllocateMode, Call, Input, Outcome, Ticket, call};
    use namespace::{Cred, Error};
    use wire::{Space, ToClient, ToServer};

    const MIB: u64 = 1 << 20;

    fn call(client: &mut Client, call: Call, out: &mut Vec<Output>) -> Outcome {
        client.call(at(10), &Cred::default(), call, out)
    }

    fn write(file: &FileId, offset: u64, bytes: u64) -> Call {
        Call::Write(call::Write {
            file: file.clone(),
            offset,
            data: vec![1; bytes as usize].into(),
            append: false,
        })
    }

    fn allocate(file: &FileId, length: u64) -> Call {
        let what = AllocateMode::Reserve { keep_size: false };
        Call::Allocate(call::Allocate { file: file.clone(), offset: 0, length, what })
    }

    /// The server grants that much more.
    fn allows(client: &mut Client, bytes: u64, out: &mut Vec<Output>) {
        let space = Space { total: 1 << 30, free: 0, files: 0, lends: 0, elsewhere: 0 };
        client.handle(
            at(11),
            Input::Message(ServerId::ROOT, ToClient::Allowance { bytes, files: 0, space }),
            out,
        );
    }

    fn answer(out: &[Output], ticket: Ticket) -> Option<Result<Reply, Error>> {
        out.iter().find_map(|output| match output {
            Output::Answer { ticket: of, result } if *of == ticket => Some(result.clone()),
            _ => None,
        })
    }

    /// No other write can have the space, and promised ranges can be written when no allowance is
    /// left.
    #[test]
    fn what_was_allocated_is_written_when_nothing_is_left() {
        let (mut client, file) = writer(9 * MIB);
        let mut out = Vec::new();
        assert!(matches!(call(&mut client, allocate(&file, 8 * MIB), &mut out), Outcome::Done(Ok(_))));
        let Outcome::Done(Ok(Reply::Stat(stat))) =
            call(&mut client, Call::Stat(call::Stat { file: file.clone() }), &mut out)
        else {
            panic!("no stat")
        };
        assert_eq!((stat.size, stat.occupied), (8 * MIB, 8 * MIB));
        let other = call(&mut client, write(&file, 8 * MIB, 2 * MIB), &mut out);
        let Outcome::Waiting(ticket) = other else { panic!("{other:?}") };
        allows(&mut client, 0, &mut out);
        assert!(matches!(answer(&out, ticket), Some(Err(Error::NoSpace))), "{out:?}");
        client.server_mut().allowance.bytes = 0;
        for at in (0..8 * MIB).step_by(8 << 10) {
            let called = call(&mut client, write(&file, at, 8 << 10), &mut out);
            assert!(matches!(called, Outcome::Done(Ok(_))), "at {at}: {called:?}");
        }
        assert_eq!(client.server().promised.bytes(), 0);
        let again = call(&mut client, write(&file, 0, 8 << 10), &mut out);
        assert!(matches!(again, Outcome::Waiting(_)), "it was promised once: {again:?}");
    }

    #[test]
    fn what_was_allocated_is_still_held_until_it_is_written_or_cut_off() {
        let (mut client, file) = writer(9 * MIB);
        let mut out = Vec::new();
        call(&mut client, allocate(&file, 8 * MIB), &mut out);
        out.clear();
        client.ask_allowance(ServerId::ROOT, AllowanceRequest::default(), &mut out);
        let held = out.iter().find_map(|output| match output {
            Output::Send(_, ToServer::Allow { held, .. }) => Some(held.0),
            _ => None,
        });
        assert!(held.is_some_and(|held| (8 * MIB..=9 * MIB).contains(&held)), "{held:?}");
        let before = client.server().allowance.bytes;
        let change = namespace::AttributeChange::default();
        let cut = Call::SetAttributes(call::SetAttributes {
            file,
            change,
            size: Some(2 * MIB),
            through_handle: true,
        });
        assert!(matches!(call(&mut client, cut, &mut out), Outcome::Done(Ok(_))));
        assert_eq!(
            (client.server().promised.bytes(), client.server().allowance.bytes),
            (2 * MIB, before + 6 * MIB)
        );
    }

    /// A session gets a part of the remaining space at a time.
    #[test]
    fn who_needs_more_asks_until_no_more_comes() {
        for (grants, fits) in [(&[3, 2, 1, 1, 1, 1][..], true), (&[3, 2, 0][..], false)] {
            let (mut client, file) = writer(0);
            let mut out = Vec::new();
            let Outcome::Waiting(ticket) = call(&mut client, allocate(&file, 8 * MIB), &mut out) else {
                panic!("nothing was set aside")
            };
            for (index, grant) in grants.iter().enumerate() {
                assert_eq!(answer(&out, ticket).map(drop), None, "after {index}");
                allows(&mut client, grant * MIB, &mut out);
            }
            match answer(&out, ticket) {
                Some(Ok(_)) if fits => {}
                Some(Err(Error::NoSpace)) if !fits => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A call does not wait for a server without a connection.
    #[test]
    fn how_much_room_there_is_is_asked_for_unless_that_was_said_lately() {
        let (mut client, _) = writer(MIB);
        let mut out = Vec::new();
        let told = |outcome: Outcome| match outcome {
            Outcome::Done(Ok(Reply::Space { total, .. })) => Some(total),
            Outcome::Waiting(_) => None,
            other => panic!("{other:?}"),
        };
        let ask = |client: &mut Client, ms, out: &mut Vec<Output>| {
            told(client.call(at(ms), &Cred::default(), Call::Space, out))
        };
        assert!(ask(&mut client, 5, &mut out).is_some());
        assert!(ask(&mut client, 5 + TOLD_MS, &mut out).is_none());
        let asked = out.iter().find_map(|output| match output {
            Output::Send(_, ToServer::Allow { held, want, .. }) => Some((*held, *want)),
            _ => None,
        });
        assert!(asked.is_some_and(|(held, want)| held == want), "{asked:?}");
        out.clear();
        let space = Space { total: 77, free: 7, ..Space::default() };
        let answered = Input::Message(ServerId::ROOT, ToClient::Allowance { bytes: 0, files: 0, space });
        client.handle(at(6 + TOLD_MS), answered, &mut out);
        let total = |out: &[Output]| {
            out.iter().find_map(|output| match output {
                Output::Answer { result: Ok(Reply::Space { total, .. }), .. } => Some(*total),
                _ => None,
            })
        };
        assert_eq!(total(&out), Some(77));
        assert_eq!(ask(&mut client, 7 + TOLD_MS, &mut out), Some(77));
        out.clear();
        assert!(ask(&mut client, 3 * TOLD_MS, &mut out).is_none());
        client.handle(at(3 * TOLD_MS + 1), Input::Greeting(ServerId::ROOT), &mut out);
        assert_eq!(total(&out), Some(77), "{out:?}");
    }

    /// Programs delete in order to write. Their next write waits for the space that they freed. A
    /// busy server takes half of the patience for each answer, and that is not the wait for space.
    #[test]
    fn what_is_deleted_makes_room_for_what_is_written_next() {
        const QUICK_MS: u64 = FREED_PATIENCE_MS / 40;
        const BUSY_MS: u64 = FREED_PATIENCE_MS / 2 + 1000;
        for (frees, answers_ms, room_at) in [
            (true, QUICK_MS, Some(1000)),
            (true, QUICK_MS, None),
            (false, QUICK_MS, None),
            (true, BUSY_MS, Some(BUSY_MS + FREED_PATIENCE_MS / 2)),
            (true, BUSY_MS, None),
            (false, BUSY_MS, None),
        ] {
            let (mut client, file) = writer(9 * MIB);
            let mut out = Vec::new();
            call(&mut client, write(&file, 0, 64 << 10), &mut out);
            if frees {
                let change = namespace::AttributeChange::default();
                let cut =
                    call::SetAttributes { file: file.clone(), change, size: Some(7), through_handle: true };
                call(&mut client, Call::SetAttributes(cut), &mut out);
            }
            client.server_mut().allowance.bytes = 0;
            let Outcome::Waiting(written) = call(&mut client, write(&file, 80 << 10, 8 << 10), &mut out)
            else {
                panic!("there is nothing left")
            };
            let mut now = 11;
            while answer(&out, written).is_none() {
                out.clear();
                now += answers_ms;
                assert!(now < 2 * FREED_PATIENCE_MS + BUSY_MS, "it hangs");
                let space = Space { total: 1 << 30, free: 0, files: 0, lends: 0, elsewhere: 0 };
                let bytes = if room_at.is_some_and(|at| now > at) { 16 << 10 } else { 0 };
                let allowed = ToClient::Allowance { bytes, files: 0, space };
                for message in [ToClient::Renewed { space }, allowed] {
                    client.handle(at(now), Input::Message(ServerId::ROOT, message), &mut out);
                }
                if answer(&out, written).is_none() {
                    now += FREED_PATIENCE_MS / 40;
                    client.handle(at(now), Input::Tick, &mut out);
                }
            }
            match (answer(&out, written), room_at) {
                (Some(Ok(_)), Some(room_at)) => assert!(now < room_at + 2 * answers_ms, "{now}"),
                (Some(Err(Error::NoSpace)), None) if frees => {
                    assert!(now > answers_ms + FREED_PATIENCE_MS, "{now}")
                }
                (Some(Err(Error::NoSpace)), None) => {
                    assert!(now < 2 * answers_ms, "nothing is being freed: {now}")
                }
                other => panic!("{other:?} with {answers_ms}"),
            }
        }
    }

    /// The server's answer frees nothing by itself. A call that replaces content asks again until
    /// the replaced content is free.
    #[test]
    fn content_is_replaced_on_a_full_disk_as_soon_as_what_was_replaced_is_free() {
        for freed in [true, false] {
            let (mut client, file) = writer(9 * MIB);
            let mut out = Vec::new();
            call(&mut client, write(&file, 0, 64 << 10), &mut out);
            client.server_mut().allowance.bytes = 0;
            out.clear();
            let Outcome::Waiting(beyond) = call(&mut client, write(&file, 60 << 10, 8 << 10), &mut out)
            else {
                panic!("a part of it replaces nothing")
            };
            allows(&mut client, 0, &mut out);
            assert!(matches!(answer(&out, beyond), Some(Err(Error::NoSpace))), "{out:?}");
            out.clear();
            let Outcome::Waiting(over) = call(&mut client, write(&file, 4 << 10, 8 << 10), &mut out) else {
                panic!("there is nothing left")
            };
            let asks = |out: &[Output]| {
                out.iter().any(|output| match output {
                    Output::Send(_, ToServer::Allow { replaces, .. }) => {
                        (8 << 10..16 << 10).contains(replaces)
                    }
                    _ => false,
                })
            };
            assert!(asks(&out), "{out:?}");
            allows(&mut client, 0, &mut out);
            assert!(answer(&out, over).is_none());
            out.clear();
            let mut now = 11;
            while answer(&out, over).is_none() {
                now += FREED_PATIENCE_MS / 40;
                assert!(now < 2 * FREED_PATIENCE_MS, "it hangs");
                client.handle(at(now), Input::Tick, &mut out);
                let space = Space { total: 1 << 30, free: 0, files: 0, lends: 0, elsewhere: 0 };
                let bytes = if freed && now > 1000 { 16 << 10 } else { 0 };
                if asks(&std::mem::take(&mut out)) {
                    client.handle(
                        at(now),
                        Input::Message(ServerId::ROOT, ToClient::Allowance { bytes, files: 0, space }),
                        &mut out,
                    );
                }
            }
            match answer(&out, over) {
                Some(Ok(_)) if freed => assert!(now < 2000, "{now}"),
                Some(Err(Error::NoSpace)) if !freed => assert!(now > FREED_PATIENCE_MS, "{now}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
