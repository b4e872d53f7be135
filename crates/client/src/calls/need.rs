//! The needs of calls that stop, and the requests for them.

use super::{Need, Progress, Waiting, WaitingFor};
use crate::client::Client;
use crate::server::{AllowanceRequest, ServerId};
use crate::{Now, Output, Ticket};
use ident::FileId;
use lease::Lease;
use namespace::{Operation, operation};
use std::collections::BTreeMap;
use wire::{AskMode, ToServer};

/// The time after which calls that wait for free space ask again, ms.
const FREED_MS: u64 = 250;

impl Client {
    /// Adds a call to the waiting ones, and requests what it needs.
    pub(crate) fn wait(
        &mut self,
        now: Now,
        ticket: Ticket,
        mut waiting: Waiting,
        need: Need,
        out: &mut Vec<Output>,
    ) {
        waiting.on = match need {
            Need::Event(WaitingFor::Session(server)) => {
                self.servers.get_mut(server).connect(out);
                WaitingFor::Session(server)
            }
            Need::Event(event) => event,
            Need::Leases { wants, .. } if let Some((server, sequence)) = self.unheard_of(&wants) => {
                WaitingFor::Heard(server, sequence)
            }
            Need::Leases { operation, wants } => {
                // A server knows more than leases tell: paths, and the files of other servers.
                let only_server = wants.iter().any(|want| want.field == lease::Field::Path)
                    || (waiting.may_ship(&operation) && self.wants_span(&operation, &wants));
                let mode = if only_server || (waiting.keeps_losing() && waiting.may_ship(&operation)) {
                    AskMode::Ship
                } else if std::mem::take(&mut waiting.hurries) {
                    AskMode::Report
                } else if std::mem::take(&mut waiting.spares) {
                    AskMode::LeaseIfFree
                } else if waiting.keeps_losing() && waiting.call.is_question() {
                    AskMode::Values
                } else if waiting.call.takes_report() {
                    AskMode::LeaseOrReport
                } else {
                    AskMode::Lease
                };
                waiting.lost_races = waiting.lost_races.saturating_add(1);
                // An operation that needs the server's view of paths moves a directory, which has
                // no content.
                let by_name =
                    mode == AskMode::Ship && !wants.iter().any(|want| want.field == lease::Field::Path);
                match self.publishes_first(now, &mut waiting, operation.as_ref(), by_name, out) {
                    Some(barriers) => WaitingFor::Published(barriers),
                    None if mode == AskMode::Ship => self.ship_in_order(&mut waiting, *operation, out),
                    None => self.ask(*operation, wants, mode, out),
                }
            }
            Need::Page { dir, after } => {
                let wants = vec![Lease::new(dir.clone(), lease::Field::Children, lease::Kind::Read)];
                self.ask(operation::List { dir }.into(), wants, AskMode::Page { after }, out)
            }
            Need::Ship { operation } => self.ship_in_order(&mut waiting, *operation, out),
            Need::Integers(dir) => {
                self.reserve(&dir, out);
                WaitingFor::Integers(dir)
            }
            Need::Inodes(server) => {
                self.servers.get_mut(server).reserve_inodes(out);
                WaitingFor::Inodes(server)
            }
            Need::Allowance { server, bytes, files, replaces } => {
                // A call that joins a request under way makes its own request after it.
                let has = self.servers.get(server).allowance;
                waiting.asked_allowance = has.asking.is_none().then_some(has);
                let lacks = if replaces { bytes.saturating_sub(has.bytes) } else { 0 };
                self.ask_allowance(server, AllowanceRequest { bytes, files, lacks }, out);
                WaitingFor::Allowance(server)
            }
            Need::Space => {
                waiting.asked_allowance = Some(self.servers.get(ServerId::ROOT).allowance);
                self.ask_allowance(ServerId::ROOT, AllowanceRequest::default(), out);
                WaitingFor::Space
            }
            Need::Freed => {
                // Replaced content is free only once its successor is published, and deleted
                // content once the servers know of the deletion.
                self.publish_all(now, out);
                self.flush_logs(out);
                waiting.asked_allowance = None;
                waiting.full_since.get_or_insert(now.time);
                WaitingFor::Freed { until: now.time.after_ms(FREED_MS) }
            }
            Need::Extents { file, from } => {
                let (number, server) = (self.number(), self.session_of_mut(&file));
                server.request(number, ToServer::Extents { number, file, from }, out);
                WaitingFor::Number(number)
            }
            Need::Applied(server, up_to) => {
                self.servers.get_mut(server).flush_log(out);
                WaitingFor::Applied(server, up_to)
            }
        };
        self.calls.insert(ticket, waiting);
    }

    /// Publishes content that must be in the log before the server does `operation`: the content of
    /// a file that replaces another. The client does not know which file has the name. So it
    /// publishes all dirty content, once.
    fn publishes_first(
        &mut self,
        now: Now,
        waiting: &mut Waiting,
        operation: &Operation,
        by_name: bool,
        out: &mut Vec<Output>,
    ) -> Option<BTreeMap<FileId, u64>> {
        let is_published = matches!(waiting.progress, Progress::Ordering(_));
        let replaces = matches!(
            operation,
            Operation::Rename { .. } | Operation::Link(operation::Link { replaced: Some(_), .. })
        );
        if !by_name || is_published || !replaces {
            return None;
        }
        let barriers = match &waiting.progress {
            Progress::Publishing(barriers) => barriers.clone(),
            _ => self.publish_all(now, out),
        };
        waiting.progress = Progress::Publishing(barriers.clone());
        let is_out = |(file, barrier): (&FileId, &u64)| self.has_published(file, *barrier);
        (!barriers.iter().all(is_out)).then_some(barriers)
    }

    /// Ships an operation once all other servers have what was done here before. The server that
    /// leads it may ask them, and what they have not heard of does not exist for them.
    fn ship_in_order(
        &mut self,
        waiting: &mut Waiting,
        operation: Operation,
        out: &mut Vec<Output>,
    ) -> WaitingFor {
        if self.servers.is_one() {
            return self.ship(operation, out);
        }
        let leads = self.leader_of(&operation);
        let up_to = match &waiting.progress {
            Progress::Ordering(up_to) => up_to.clone(),
            _ => {
                let others = self.servers.iter().filter(|(server, _)| *server != leads);
                others.map(|(server, session)| (server, session.log.last())).collect()
            }
        };
        let is_behind = |(server, last): &&(ServerId, u64)| self.servers.get(*server).log.applied() < *last;
        let behind = up_to.iter().find(is_behind).copied();
        waiting.progress = Progress::Ordering(up_to);
        match behind {
            Some((server, last)) => {
                self.servers.get_mut(server).flush_log(out);
                WaitingFor::Applied(server, last)
            }
            None => self.ship(operation, out),
        }
    }

    /// Whether an operation that wants these leases is on files of several servers.
    fn wants_span(&self, operation: &Operation, wants: &[Lease]) -> bool {
        if self.servers.is_one() {
            return false;
        }
        let leads = self.leader_of(operation);
        let named = operation.files().into_iter().chain(wants.iter().map(|want| &want.file));
        named.into_iter().any(|file| self.server_of(file) != leads)
    }

    fn ask(
        &mut self,
        operation: Operation,
        wants: Vec<Lease>,
        mode: AskMode,
        out: &mut Vec<Output>,
    ) -> WaitingFor {
        // Another server's leases are wanted by the next try, if they are wanted still.
        let server = wants.first().map_or_else(|| self.leader_of(&operation), |w| self.server_of(&w.file));
        if let Some(session) = self.needs_session(server, out) {
            return session;
        }
        let wants: Vec<Lease> =
            wants.into_iter().filter(|want| self.server_of(&want.file) == server).collect();
        // A server that has not the directory of a name is asked about the file itself.
        let operation = match wants.first().filter(|_| self.leader_of(&operation) != server) {
            Some(want) => operation::Stat { file: want.file.clone() }.into(),
            None => operation,
        };
        let number = self.number();
        let session = self.servers.get_mut(server);
        // The server looks for missing leases in its own state, which must have everything that was
        // decided here.
        session.send_log_first(out);
        session.request(number, ToServer::Ask { number, operation, wants, mode }, out);
        WaitingFor::Number(number)
    }
}
