//! Waiting calls that begin again in the next session, after their session is over.
//!
//! A call that waits has done nothing, or the server does it, or it has come some way (`Progress`).
//! A call that has done nothing is no different from the same call a moment later, which would find
//! the next session. So the program need not hear of the end of a session. It must hear of what is
//! lost with the session, and no change may build on that.

use super::{Progress, Waiting, WaitingFor};
use crate::Call;
use crate::client::Client;

impl Client {
    /// Whether this call, which waits, can begin again in the next session. `is_lost`: changes that
    /// were done here are lost with this one.
    pub(crate) fn begins_again(&self, waiting: &Waiting, is_lost: bool) -> bool {
        let has_come_some_way = match &waiting.progress {
            // An operation that is the server's to do, and waits for its turn.
            Progress::Nothing | Progress::Publishing(_) | Progress::Ordering(_) | Progress::Inquired(_) => {
                false
            }
            Progress::Syncing { .. } | Progress::Written(_) | Progress::Shipped(_) => true,
        };
        if has_come_some_way || self.may_be_done(waiting) {
            return false;
        }
        match &waiting.call {
            // A sync says what is lost. A lock belongs to its session, as all of its owner do.
            Call::Sync { .. } | Call::SyncAll | Call::Lock { .. } => false,
            call if only_asks(call) => !call.file().is_some_and(|file| self.unsaved.contains(file)),
            // A rename, for instance, may be to put in place what is lost.
            _ => !is_lost,
        }
    }

    /// Whether the server may have done the call's operation.
    fn may_be_done(&self, waiting: &Waiting) -> bool {
        let WaitingFor::Number(number) = waiting.on else { return false };
        let server = self.servers.asked(number).map(|server| &self.servers.get(server).requests);
        server.is_some_and(|requests| requests.is_shipped(number) && !requests.is_held(number))
    }
}

impl Waiting {
    /// The call as it came. Answers of the session that is over do not count.
    pub fn begun_anew(self) -> Waiting {
        let Waiting { cred, call, caller, since, .. } = self;
        Waiting::untried(since, caller, cred, call)
    }
}

/// Whether the call changes nothing but, perhaps, which handles this machine has.
fn only_asks(call: &Call) -> bool {
    match call {
        Call::Lookup { .. }
        | Call::Find { .. }
        | Call::Spellings { .. }
        | Call::Parent { .. }
        | Call::Links { .. }
        | Call::Stat { .. }
        | Call::Glance { .. }
        | Call::Peek { .. }
        | Call::Access { .. }
        | Call::ReadLink { .. }
        | Call::OpenFile { .. }
        | Call::Read { .. }
        | Call::Seek { .. }
        | Call::List { .. }
        | Call::GetXattr { .. }
        | Call::ListXattrs { .. }
        | Call::GetLock { .. }
        | Call::Space => true,
        Call::Create { .. }
        | Call::Link { .. }
        | Call::Unlink { .. }
        | Call::Rename { .. }
        | Call::SetAttributes { .. }
        | Call::Cover { .. }
        | Call::SetDisposition { .. }
        | Call::Accessed { .. }
        | Call::Close { .. }
        | Call::Write { .. }
        | Call::Allocate { .. }
        | Call::Sync { .. }
        | Call::SyncAll
        | Call::SetXattr { .. }
        | Call::RemoveXattr { .. }
        | Call::Lock { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerId;
    use crate::tests::{at, empty, opened, writer};
    use crate::{Input, Outcome, Output, Settings, Ticket, call};
    use ident::FileId;
    use lease::{Label, OpenModes};
    use namespace::{AttributeChange, Cred, Error};
    use wire::{AskMode, ToClient, ToServer};

    fn label() -> Label {
        Label::new(b"paper").unwrap()
    }

    fn lookup() -> Call {
        Call::Lookup(call::Lookup { dir: FileId::root(), label: label() })
    }

    fn unlink() -> Call {
        Call::Unlink(call::Unlink { dir: FileId::root(), label: label(), pending: None, directory: false })
    }

    fn write(file: &FileId, data: &'static str) -> Call {
        Call::Write(call::Write { file: file.clone(), offset: 0, data: data.into(), append: false })
    }

    fn waits(client: &mut Client, call: Call, out: &mut Vec<Output>) -> Ticket {
        match client.call(at(2), &Cred::default(), call, out) {
            Outcome::Waiting(ticket) => ticket,
            done => panic!("{done:?}"),
        }
    }

    /// The server was away for long, and another session begins.
    fn begins_anew(client: &mut Client, out: &mut Vec<Output>) {
        client.handle(at(50_000), Input::Tick, out);
        client.handle(at(60_000), Input::Greeting(ServerId::ROOT), out);
        client.handle(at(60_001), Input::Message(ServerId::ROOT, opened()), out);
    }

    fn answer(out: &[Output], of: Ticket) -> Option<Result<(), Error>> {
        out.iter().find_map(|output| match output {
            Output::Answer { ticket, result } if *ticket == of => Some(result.clone().map(drop)),
            _ => None,
        })
    }

    fn asked(out: &[Output]) -> Vec<(u64, AskMode)> {
        let asked = |output: &Output| match output {
            Output::Send(_, ToServer::Ask { number, mode, .. }) => Some((*number, *mode)),
            _ => None,
        };
        out.iter().filter_map(asked).collect()
    }

    /// A client with a session and no leases.
    fn idle() -> Client {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        client
    }

    #[test]
    fn what_was_asked_is_asked_again_in_the_next_session() {
        let root = FileId::root;
        let open =
            Call::OpenFile(call::OpenFile { file: root(), open: OpenModes::posix(true, false), mask: 4 });
        for call in [lookup(), unlink(), open, Call::Stat(call::Stat { file: root() })] {
            let (mut client, mut out) = (idle(), Vec::new());
            let ticket = waits(&mut client, call.clone(), &mut out);
            let first = asked(&out);
            assert_eq!(first.len(), 1, "{call:?}");
            out.clear();
            begins_anew(&mut client, &mut out);
            assert_eq!(answer(&out, ticket), None, "{call:?}");
            let again = asked(&out);
            assert_eq!(again.len(), 1, "{call:?}");
            assert!(again[0].0 > first[0].0, "a request of the new session");
            out.clear();
            let (number, grants) = (again[0].0, vec![empty(&root())]);
            let granted = ToClient::Granted { number, grants, gone: Vec::new() };
            client.handle(at(60_002), Input::Message(ServerId::ROOT, granted), &mut out);
            if matches!(call, Call::Lookup { .. }) {
                assert_eq!(answer(&out, ticket), Some(Err(Error::NotFound)), "{call:?}");
            }
        }
    }

    #[test]
    fn what_waits_for_a_session_waits_for_the_next_one() {
        let (mut client, mut out) = (idle(), Vec::new());
        client.handle(at(40_000), Input::Tick, &mut out);
        let Outcome::Waiting(ticket) = client.call(at(40_000), &Cred::default(), lookup(), &mut out) else {
            panic!("without a session")
        };
        client.handle(at(60_000), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(60_001), Input::Message(ServerId::ROOT, opened()), &mut out);
        assert_eq!(answer(&out, ticket), None);
        assert_eq!(asked(&out).len(), 1);
        // It does not wait for ever.
        client.handle(at(60_002), Input::Message(ServerId::ROOT, ToClient::Fenced), &mut out);
        client.handle(at(400_000), Input::Tick, &mut out);
        assert_eq!(answer(&out, ticket), Some(Err(Error::CutOff)));
    }

    /// The program may have removed what it has put elsewhere, and that is lost.
    #[test]
    fn a_change_ends_where_something_is_lost_and_so_does_what_is_about_that() {
        let (mut client, file) = writer(1 << 20);
        let mut out = Vec::new();
        let written = client.call(at(2), &Cred::default(), write(&file, "lost"), &mut out);
        assert!(matches!(written, Outcome::Done(Ok(_))), "{written:?}");
        let change = waits(&mut client, unlink(), &mut out);
        let other = waits(&mut client, lookup(), &mut out);
        let sync = waits(&mut client, Call::Sync(call::Sync { file: file.clone() }), &mut out);
        let xattr = call::GetXattr { file, name: Label::attribute(b"user.x").unwrap() };
        let about_it = client.call(at(2), &Cred::default(), Call::GetXattr(xattr), &mut out);
        out.clear();
        begins_anew(&mut client, &mut out);
        assert_eq!(answer(&out, change), Some(Err(Error::CutOff)));
        assert_eq!(answer(&out, sync), Some(Err(Error::CutOff)));
        assert_eq!(answer(&out, other), None);
        if let Outcome::Waiting(ticket) = about_it {
            assert_eq!(answer(&out, ticket), Some(Err(Error::CutOff)));
        }
    }

    /// The server was given the operation, and may have done it.
    #[test]
    fn what_the_server_may_have_done_is_not_done_again() {
        let (mut client, mut out) = (idle(), Vec::new());
        let change = AttributeChange { mode: Some(0o700), ..AttributeChange::default() };
        let set = call::SetAttributes { file: FileId::root(), change, size: None, through_handle: false };
        let ticket = waits(&mut client, Call::SetAttributes(set), &mut out);
        // Its grants are recalled again and again, so that the server does it.
        for _ in 0..4 {
            let Some((number, mode)) = asked(&out).pop() else { break };
            if mode == AskMode::Ship {
                break;
            }
            out.clear();
            let none = ToClient::Granted { number, grants: Vec::new(), gone: Vec::new() };
            client.handle(at(3), Input::Message(ServerId::ROOT, none), &mut out);
        }
        let held = out.iter().filter_map(|output| match output {
            Output::Revoke { number, .. } => Some(*number),
            _ => None,
        });
        for number in held.collect::<Vec<_>>() {
            client.handle(at(4), Input::Revoked { number, kept: Default::default() }, &mut out);
        }
        assert_eq!(asked(&out).last().map(|(_, mode)| *mode), Some(AskMode::Ship));
        out.clear();
        begins_anew(&mut client, &mut out);
        assert_eq!(answer(&out, ticket), Some(Err(Error::CutOff)));
    }
}
