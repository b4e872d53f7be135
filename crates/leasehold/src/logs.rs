//! The log on standard error: everything beside the answers of commands.

use clap::ValueEnum;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Our own crates. A level without a name applies to these; libraries only report what goes wrong.
const OURS: [&str; 9] =
    ["leasehold", "node", "raft", "fuse", "smb", "client", "directory", "content", "shares"];
/// openraft reports elections as errors, and fuser an unmount by another process.
const OTHERS: &str = "warn,openraft=error,fuser=error";

/// How lines are written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// A JSON object a line, for what collects logs.
    Json,
}

/// Starts logging. If `simulated`, openraft logs nothing: servers crash by the thousand there.
pub fn begin(format: Format, simulated: bool) {
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref(), simulated);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Colours are for terminals: in a file or a journal their codes are noise.
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    match format {
        Format::Text => lines.with_ansi(wanted && std::io::stderr().is_terminal()).init(),
        Format::Json => lines.json().flatten_event(true).init(),
    }
}

/// Returns the filter of RUST_LOG. A level alone applies to this program, and not to its libraries.
fn filter(said: Option<&str>, simulated: bool) -> EnvFilter {
    let usual = if simulated { "warn,openraft=off" } else { OTHERS };
    let said = said.map(str::trim).filter(|said| !said.is_empty());
    let Some(said) = said else { return EnvFilter::new(usual) };
    if said.parse::<tracing::level_filters::LevelFilter>().is_err() {
        return EnvFilter::try_new(said).unwrap_or_else(|_| EnvFilter::new(usual));
    }
    let ours: String = OURS.iter().map(|name| format!(",{name}={said}")).collect();
    EnvFilter::new(format!("{usual}{ours}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_about_this_program() {
        let of = |said| filter(said, false).to_string();
        assert!(of(None).contains("openraft=error") && !of(None).contains("node"));
        let info = of(Some("info"));
        assert!(info.contains("node=info") && info.contains("openraft=error"), "{info}");
        assert_eq!(of(Some("openraft=debug")), "openraft=debug");
        assert_eq!(of(Some("=,=")), of(None), "what is no filter is none");
    }
}
