//! The end of a server that cannot go on.

use crate::life::Life;

/// Exit code of a server that stopped because its disk failed (`EX_IOERR`).
pub const EXIT_DISK: i32 = 74;

/// Stops the process, or the simulated member: a wrong server is worse than a stopped one.
/// Acknowledged changes are in the log, which the next start replays. So nothing is lost without
/// unwinding.
pub fn stop(error: &dyn std::error::Error) -> ! {
    if let Some(life) = Life::current() {
        life.gives_up(error);
    }
    tracing::error!(%error, "the server cannot go on; stopping");
    std::process::exit(EXIT_DISK)
}
