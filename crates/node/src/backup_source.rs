//! This machine's server as the source of backups.

use crate::membership::Membership;
use backup::{BackupError, BackupOrder, BackupProgress, BackupReport, Source};
use std::time::Duration;

/// The longest time for this machine's own client to send its unlogged operations to the server.
const FLUSH: Duration = Duration::from_secs(30);

/// Makes a backup of the state of this machine's server.
pub(crate) fn back_up(
    membership: &Membership,
    order: &BackupOrder,
    progress: &mut dyn FnMut(&BackupProgress),
) -> Result<BackupReport, BackupError> {
    let server = membership.server().ok_or(BackupError::NoServer)?;
    if server.all_hosted().iter().any(|other| !other.is_root() && other.files() > 0) {
        return Err(BackupError::SeveralServers);
    }
    let source = Source {
        group: server.group(),
        share_host: server.share_host(),
        authority: server.latest_authority().map_err(|error| BackupError::Server(error.to_string()))?.1,
        flush: &|| membership.client_host().flush(FLUSH),
        is_stopping: &|| membership.client_host().is_stopping() || server.is_stopping(),
    };
    backup::run(&source, order, progress)
}
