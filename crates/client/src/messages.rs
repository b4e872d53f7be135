//! The messages of servers, each to the part of the client that it is for.

use crate::client::Client;
use crate::leases::Flushing;
use crate::server::{Allowance, Opening, Refusals, ServerId};
use crate::{Now, Output};
use wire::ToClient;

impl Client {
    pub(crate) fn on_message(
        &mut self,
        now: Now,
        server: ServerId,
        message: ToClient,
        out: &mut Vec<Output>,
    ) {
        let session = self.servers.get_mut(server);
        if let ToClient::Granted { number, .. }
        | ToClient::Reported { number, .. }
        | ToClient::Shipped { number, .. } = &message
            && session.is_connected()
            && let Some(up_to) = session.requests.applied_by(*number)
        {
            self.on_applied(server, up_to, Refusals::default(), out);
        }
        let session = self.servers.get_mut(server);
        match message {
            ToClient::Opened { inodes, allowance, space, term_ms, version, rights } => {
                (session.rights, session.version) = (rights, version);
                session.learn_space(now.time, space);
                let (bytes, files) = allowance;
                let allowance = Allowance { bytes, files, asking: None };
                let opening = Opening { term_ms, inodes: inodes.0..inodes.1, allowance };
                self.on_opened(now, server, opening, out);
            }
            ToClient::Resumed { up_to, rejected, forgotten, space, term_ms, version } => {
                // Updates in the log already carry the version that decided them.
                session.version = version;
                session.learn_space(now.time, space);
                self.on_resumed(server, (up_to, Refusals { of: &rejected, forgotten }), term_ms, out);
            }
            // The host keeps receipts for its greetings.
            ToClient::Receipt(_) => {}
            ToClient::Fenced => self.cut_off(now, server, out),
            // The message belongs to an earlier connection.
            _ if !session.is_connected() => {}
            ToClient::Renewed { space } => {
                session.learn_space(now.time, space);
                session.term.end_renewal();
            }
            ToClient::Granted { number, grants, gone } => {
                for grant in grants {
                    if self.servers.get(server).is_releasing(&grant.file) {
                        continue;
                    }
                    self.learn_grant(server, grant);
                }
                self.gone(server, gone);
                self.granted(server, number);
            }
            ToClient::Reported { number, values, gone } => {
                self.gone(server, gone);
                self.on_reported(now, server, number, values);
            }
            ToClient::Shipped { number, result } => self.on_shipped(now, server, number, result),
            ToClient::Elsewhere { number, region, epoch, server: next } => {
                self.on_elsewhere(region, epoch, next, out);
                self.granted(server, number);
            }
            ToClient::Recall { leases, ahead } => self.on_recall(now, server, leases, ahead, out),
            ToClient::Flush { number, file, field } => {
                self.on_flush(now, (server, number), file, &field, out)
            }
            ToClient::WriteThrough { number, file } => {
                self.on_flush_content(now, Flushing { server, number, file, write_through: true }, out);
            }
            ToClient::Heard { file, up_to, goes_on } => self.on_heard(server, &file, up_to, goes_on),
            ToClient::Applied { up_to, rejected, forgotten } => {
                self.on_applied(server, up_to, Refusals { of: &rejected, forgotten }, out);
            }
            ToClient::Reserved { dir, first, end } => {
                session.requests.reserved(&dir);
                if let Some(children) = self.files.get_mut(&dir).and_then(|known| known.children.as_mut()) {
                    children.integers.is_reserving = false;
                    children.integers.add(first..end);
                }
            }
            ToClient::ReservedInodes { first, end } => {
                session.inodes.is_reserving = false;
                session.inodes.add(first..end);
            }
            ToClient::Allowance { bytes, files, space } => {
                session.learn_space(now.time, space);
                session.allowance.asking = None;
                session.allowance.add(bytes, files);
            }
            ToClient::Extents { number, file, from, to, extents, inline } => {
                self.learn_extents(now, (number, &file), (from, to), (extents, inline), out);
                self.granted(server, number);
            }
        }
        self.count_leases(now);
    }

    pub(crate) fn on_applied(
        &mut self,
        server: ServerId,
        up_to: u64,
        refusals: Refusals<'_>,
        out: &mut Vec<Output>,
    ) {
        let session = self.servers.get_mut(server);
        let refused = session.acknowledge(up_to, refusals);
        while let Some((_, file)) = session.tombstones.pop(up_to) {
            if let Some(known) = self.files.get_mut(&file).filter(|known| known.gone) {
                known.buried = true;
                if known.handles.is_none() {
                    self.files.all.remove(&file);
                }
            }
        }
        self.settle_content(server, up_to);
        self.refused(server, refused, out);
    }
}
