//! Knowledge that comes from servers: grants, and files that are gone.

use crate::Output;
use crate::client::Client;
use crate::knowledge::KnownFile;
use crate::server::ServerId;
use ident::FileId;
use lease::Field;

impl Client {
    /// Whether the times of `dir` are known.
    pub(crate) fn knows_times(&self, dir: &FileId) -> bool {
        self.files.get(dir).is_some_and(|known| known.times.is_some())
    }

    /// Learns a grant. The server granted a directory's times before it saw the newest touches of
    /// this client, so these are applied again.
    pub(crate) fn learn_grant(&mut self, server: ServerId, grant: wire::FileGrant) {
        let (file, knew) = (grant.file.clone(), self.knows_times(&grant.file));
        let of_names = grant.fields.iter().any(|(field, _)| matches!(field, Field::Child(_)));
        if !self.files.all.contains_key(&file) {
            self.hand.add(file.clone());
        }
        if self.rights().are_of_subtree() {
            self.files.revive(&grant);
        }
        let number = self.last_number();
        self.files.grant(grant, number);
        if let Some(known) = self.files.get_mut(&file) {
            known.server = server;
        }
        if of_names {
            self.release_names(&file);
        }
        if let Some(times) = self.files.get_mut(&file).filter(|_| !knew).and_then(|k| k.times.as_mut()) {
            let touches = self.servers.iter().flat_map(|(_, server)| server.touches.iter());
            for (_, (_, time)) in touches.filter(|(_, (dir, _))| *dir == file) {
                **times = times.touched(*time);
            }
        }
    }

    /// Learns that another server manages `region` from now on.
    ///
    /// A region changes its server while no session has a lease there. So a lease that is still
    /// counted here was lost with its session, and must not count under the next server's term.
    /// Files with handles or changes stay as they are until that session ends here, too.
    pub(crate) fn on_elsewhere(
        &mut self,
        region: FileId,
        epoch: u64,
        server: ServerId,
        out: &mut Vec<Output>,
    ) {
        if !self.servers.learn(region.clone(), epoch, server) {
            return;
        }
        let is_left = |file: &FileId, known: &KnownFile| {
            region.is_prefix_of(file)
                && known.server != server
                && self.servers.id_of(file) == server
                && known.handles.is_none()
                && !known.gone
                && self.publishing.dirty_since(file).is_none()
        };
        let left = self.files.all.iter().filter(|(file, known)| is_left(file, known));
        for file in left.map(|(file, _)| file.clone()).collect::<Vec<FileId>>() {
            self.forget_content(&file);
            if let Some(known) = self.files.all.remove(&file) {
                out.extend(known.handed_out(&file).map(Output::RevokeUncovered));
            }
        }
    }

    /// Learns that these files are gone.
    pub(crate) fn gone(&mut self, server: ServerId, gone: Vec<FileId>) {
        let session = self.servers.get_mut(server);
        for file in gone {
            // Identifiers are never reused, so a death is known for ever and needs no lease. A
            // request that is repeated gets the same answer.
            let known = self.files.all.entry(file.clone()).or_default();
            // The server knew of a death that was not decided here before this client did. So no
            // grant of the file is on its way.
            known.buried |= !known.gone;
            known.gone = true;
            session.break_promise(&file, 0..u64::MAX);
            session.tombstones.push(session.log.last(), file);
        }
    }
}
