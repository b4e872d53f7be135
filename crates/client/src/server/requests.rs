//! Requests that the server has not answered. The client sends all of them again over a new
//! connection, since their fate on the last one is unknown.

use super::ServerSession;
use crate::Output;
use ident::FileId;
use namespace::Operation;
use std::collections::{BTreeMap, BTreeSet};
use wire::{AskMode, ToServer};

/// Requests with a number, and requests for integers. Requests for inode numbers and space stand
/// with their blocks and the allowance.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// By number.
    numbered: BTreeMap<u64, RequestUnderWay>,
    /// Operations that the server is doing for this client. Updates wait until their effects are
    /// known here.
    ships: BTreeSet<u64>,
    /// Directories for which integers are requested.
    reserving: BTreeSet<FileId>,
}

#[derive(Debug)]
struct RequestUnderWay {
    message: ToServer,
    /// The last log entry before the request, if the server takes the request after that entry, and
    /// this connection is the first that the request went over.
    behind: Option<u64>,
    /// The request is not sent before front doors have revoked its files.
    held: bool,
}

impl RequestUnderWay {
    fn wants(&self, file: &FileId) -> bool {
        matches!(&self.message, ToServer::Ask { wants, .. } if wants.iter().any(|want| want.file == *file))
    }
}

impl Requests {
    /// The last log entry that an answer to the request `number` acknowledges. Departs from Farsite
    /// §6, as `directory::Turn::will_acknowledge` says.
    ///
    /// The server saw the entries that were sent before the request, and has reported every refusal
    /// among them. A request that was repeated over a new connection acknowledges nothing: the
    /// answer may be to the first sending. Neither does a question about extents: the server's host
    /// answers it beside the log, perhaps before it has applied what was sent earlier.
    pub fn applied_by(&self, number: u64) -> Option<u64> {
        self.numbered.get(&number)?.behind
    }

    /// Whether the request `number` is under way, or held back.
    pub fn has(&self, number: u64) -> bool {
        self.numbered.contains_key(&number)
    }

    /// Whether the server is doing operations for this client.
    pub fn any_shipped(&self) -> bool {
        !self.ships.is_empty()
    }

    /// Whether the server is doing the operation of the request `number`.
    pub fn is_shipped(&self, number: u64) -> bool {
        self.ships.contains(&number)
    }

    /// Whether the request `number` is not sent yet.
    pub fn is_held(&self, number: u64) -> bool {
        self.numbered.get(&number).is_some_and(|request| request.held)
    }

    /// The operations that the server is doing for this client.
    pub fn shipped(&self) -> impl Iterator<Item = &Operation> {
        self.ships.iter().filter_map(|number| self.operation(*number))
    }

    /// Whether a request declares `file` to be in doubt until it is answered.
    pub fn is_doubted(&self, file: &FileId) -> bool {
        self.ships.iter().filter_map(|number| self.numbered.get(number)).any(|request| request.wants(file))
    }

    /// The operation of the request `number`, unless the request is for content.
    pub fn operation(&self, number: u64) -> Option<&Operation> {
        match &self.numbered.get(&number)?.message {
            ToServer::Ask { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Whether the server remembers the results of no more operations.
    pub fn ships_full(&self) -> bool {
        self.ships.len() >= wire::SHIPS_MAX
    }

    /// Removes the request `number`, which was answered. Returns whether it was under way.
    pub fn answered(&mut self, number: u64) -> bool {
        self.ships.remove(&number);
        self.numbered.remove(&number).is_some()
    }

    /// Whether a request for a lease on `file` is under way. The leases that the waiting call
    /// already has stay until the answer, or it might have to ask for ever.
    pub fn want(&self, file: &FileId) -> bool {
        self.numbered.values().any(|request| request.wants(file))
    }

    /// Notes that integers of `dir` came.
    pub fn reserved(&mut self, dir: &FileId) {
        self.reserving.remove(dir);
    }

    /// All requests once more. Operations that are done only once come first, then the rest in
    /// their order.
    fn again(&self) -> Vec<ToServer> {
        let ships = self.ships.iter().filter_map(|number| self.numbered.get(number));
        let others = self.numbered.iter().filter(|(number, _)| !self.ships.contains(number));
        let said = ships.chain(others.map(|(_, request)| request)).filter(|request| !request.held);
        let numbered = said.map(|request| request.message.clone());
        let reserving = self.reserving.iter().map(|dir| ToServer::Reserve { dir: dir.clone() });
        numbered.chain(reserving).collect()
    }
}

impl ServerSession {
    /// Sends a numbered request.
    pub fn request(&mut self, number: u64, message: ToServer, out: &mut Vec<Output>) {
        self.hold(number, message);
        self.say_held(number, out);
    }

    /// Adds a numbered request that is not sent yet. The files of an operation are in doubt from
    /// now on.
    pub fn hold(&mut self, number: u64, message: ToServer) {
        if matches!(message, ToServer::Ask { mode: AskMode::Ship, .. }) {
            self.requests.ships.insert(number);
        }
        self.requests.numbered.insert(number, RequestUnderWay { message, behind: None, held: true });
    }

    /// Sends a request that was held back.
    pub fn say_held(&mut self, number: u64, out: &mut Vec<Output>) {
        let behind = self.is_connected().then(|| self.log.sent());
        let Some(request) = self.requests.numbered.get_mut(&number) else { return };
        let is_in_order = !matches!(request.message, ToServer::Extents { .. });
        (request.behind, request.held) = (behind.filter(|_| is_in_order), false);
        let message = request.message.clone();
        self.send(message, out);
    }

    /// Requests integers of `dir`.
    pub fn request_integers(&mut self, dir: &FileId, out: &mut Vec<Output>) {
        // The right to reserve may come from a create that the server does not know yet (the
        // creator's birthright).
        self.send_log_first(out);
        self.requests.reserving.insert(dir.clone());
        self.send(ToServer::Reserve { dir: dir.clone() }, out);
    }

    /// Sends all unanswered requests again. `dirty_bytes` is for a request for more allowance.
    pub fn ask_again(&mut self, dirty_bytes: u64, out: &mut Vec<Output>) {
        self.requests.numbered.values_mut().for_each(|request| request.behind = None);
        for message in self.requests.again() {
            self.send(message, out);
        }
        if std::mem::take(&mut self.inodes.is_reserving) {
            self.reserve_inodes(out);
        }
        if let Some(request) = self.allowance.asking.take() {
            self.ask_allowance(request, dirty_bytes, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::ServerId;
    use crate::tests::{at, opened};
    use crate::{Call, Client, Input, Settings, call};
    use namespace::Cred;
    use wire::{LogEntry, Space, ToClient, Version};

    fn resumed(up_to: u64) -> ToClient {
        let (rejected, space, version) = (Vec::new(), Space::default(), Version::NEWEST);
        ToClient::Resumed { up_to, rejected, forgotten: 0, space, term_ms: 30_000, version }
    }

    /// Logs an entry and makes a request. Returns the request's number.
    fn logs_and_asks(client: &mut Client, file: u64) -> u64 {
        let mut out = Vec::new();
        client.server_mut().log.push(LogEntry::Release(Vec::new()), 16);
        client.call(
            at(1),
            &Cred::default(),
            Call::Stat(call::Stat { file: FileId::root().child(file) }),
            &mut out,
        );
        let sent: Vec<&ToServer> = out
            .iter()
            .filter_map(|out| if let Output::Send(_, message) = out { Some(message) } else { None })
            .collect();
        let [ToServer::Log { answer: false, .. }, ToServer::Ask { number, .. }] = sent.as_slice() else {
            panic!("{sent:?}")
        };
        *number
    }

    fn applied(client: &Client) -> u64 {
        client.server().log.applied()
    }

    #[test]
    fn an_answer_says_that_the_server_has_the_log_before_the_question() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        let granted = |number| {
            Input::Message(ServerId::ROOT, ToClient::Granted { number, grants: vec![], gone: vec![] })
        };
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let (first, second) = (logs_and_asks(&mut client, 2), logs_and_asks(&mut client, 3));
        client.handle(at(1), granted(first), &mut out);
        assert_eq!((applied(&client), client.server().log.last()), (1, 2), "and of no more");
        // Over the new connection the answer may be to the request of the last one, which came
        // before the log was sent again.
        client.handle(at(2), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(2), Input::Message(ServerId::ROOT, resumed(1)), &mut out);
        client.handle(at(2), granted(second), &mut out);
        assert_eq!(applied(&client), 1);
        let third = logs_and_asks(&mut client, 4);
        client.handle(at(3), granted(third), &mut out);
        assert_eq!((applied(&client), client.server().log.last()), (3, 3));
    }

    #[test]
    fn extents_say_nothing_of_the_log_before_the_question() {
        let (mut client, mut out) = (Client::new(Settings::new([0; 32])), Vec::new());
        client.handle(at(0), Input::Greeting(ServerId::ROOT), &mut out);
        client.handle(at(0), Input::Message(ServerId::ROOT, opened()), &mut out);
        let number = logs_and_asks(&mut client, 2) + 1;
        let question = ToServer::Extents { number, file: FileId::root(), from: 0 };
        client.server_mut().request(number, question, &mut out);
        // Their refusal comes as that of a shipped operation, which does acknowledge.
        let refusal = ToClient::Shipped { number, result: Err(namespace::Error::Stale) };
        client.handle(at(1), Input::Message(ServerId::ROOT, refusal), &mut out);
        assert_eq!(applied(&client), 0);
    }
}
