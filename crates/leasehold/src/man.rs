//! `leasehold man`: a page for each command, with the parts that all pages share.

use crate::answer::Answer;
use crate::{Failure, help};
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// See the command's help.
#[derive(Debug, Args)]
pub struct ManPages {
    /// Into this directory. Made if it does not exist.
    dir: PathBuf,
}

const DATA: &[(&str, &str)] = &[
    ("LEASEHOLD_DATA", "The data directory, unless --data says another."),
    ("XDG_DATA_HOME", "Without LEASEHOLD_DATA, the data directory is leasehold in this directory."),
    ("HOME", "Without both, the data directory is ~/.local/share/leasehold. The mount point is ~/Leasehold."),
];

const LOGS: &[(&str, &str)] = &[
    ("RUST_LOG", "How much is logged on standard error: warn (the default), info, debug, trace."),
    ("NO_COLOR", "If not empty, no colours are used. None are used but on a terminal."),
];

/// The environment of commands that take --content.
const STORE: &[(&str, &str)] = &[
    ("AWS_ENDPOINT_URL, AWS_REGION", "Where the S3-compatible store of --content is."),
    ("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", "The keys for that store. They are needed at every start."),
];

const FILES: &[(&str, &str)] = &[
    (
        "~/.local/share/leasehold",
        "The data directory: keys, the server's state, shares. On an only server, whoever deletes it deletes all files.",
    ),
    ("~/.local/share/leasehold/leasehold.log", "The log of a machine in the background."),
    ("~/Leasehold", "The mount point."),
    (
        "/var/lib/leasehold/NAME, /srv/NAME, /etc/default/leasehold-NAME",
        "Data directory, mount point and options of the service leasehold@NAME.",
    ),
];

const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "It is done, or nothing is wrong."),
    (
        "1",
        "The answer is no: something is damaged or missing, or no machine is up. The command's page says which.",
    ),
    ("2", "It could not be done. The reason is on standard error."),
];

impl ManPages {
    /// Writes the pages.
    pub fn run(self, command: Command) -> Result<Answer, Failure> {
        let dir = &self.dir;
        let wrong = |error| format!("cannot write man pages into {}: {error}", dir.display());
        std::fs::create_dir_all(dir).map_err(wrong)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let mut pages = Vec::new();
        write(&command, "", None, dir, &mut pages).map_err(wrong)?;
        let written = WrittenPages { dir: dir.display().to_string(), pages };
        Answer::told(&written, "")
    }
}

/// The pages that were written.
#[derive(Serialize)]
struct WrittenPages {
    dir: String,
    /// Names of files.
    pages: Vec<String>,
}

fn write(
    command: &Command,
    path: &str,
    above: Option<&str>,
    dir: &Path,
    pages: &mut Vec<String>,
) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let path = format!("{path} {}", below.get_name());
        write(below, path.trim_start(), Some(&name), dir, pages)?;
    }
    let file = format!("{name}.1");
    std::fs::write(dir.join(&file), page(command, &name, path, above)?)?;
    pages.push(file);
    Ok(())
}

fn page(command: &Command, name: &str, path: &str, above: Option<&str>) -> std::io::Result<Vec<u8>> {
    let source = format!("leasehold {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name).source(source).manual("Leasehold");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    let below: Vec<String> = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .map(|below| below.get_display_name().unwrap_or(below.get_name()).to_owned())
        .collect();
    if !below.is_empty() {
        man.render_subcommands_section(&mut text)?;
    }
    let has = |id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    let (whole, here) = (above.is_none(), has("data") || has("mount"));
    let mut roff = Roff::new();
    let mut environment = Vec::new();
    if whole || here {
        environment.extend(DATA);
    }
    environment.extend(LOGS);
    if whole || has("content") {
        environment.extend(STORE);
    }
    tagged(&mut roff, "ENVIRONMENT", environment);
    if whole || here {
        tagged(&mut roff, "FILES", FILES);
    }
    tagged(&mut roff, "EXIT STATUS", EXIT_STATUS);
    tagged(&mut roff, "EXAMPLES", help::examples(path));
    let beside = above.into_iter().map(ToOwned::to_owned).chain(below);
    let beside: Vec<String> = beside.map(|name| format!("{name}(1)")).collect();
    if !beside.is_empty() {
        roff.control("SH", ["SEE ALSO"]).text([roman(beside.join(", "))]);
    }
    roff.to_writer(&mut text)?;
    Ok(text)
}

fn tagged<'a>(roff: &mut Roff, title: &str, entries: impl IntoIterator<Item = &'a (&'a str, &'a str)>) {
    let mut entries = entries.into_iter().peekable();
    if entries.peek().is_none() {
        return;
    }
    roff.control("SH", [title]);
    for (name, what) in entries {
        roff.control("TP", []).text([bold(*name)]).text([roman(*what)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_what_a_reader_looks_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let _pages = ManPages { dir: dir.path().to_owned() }.run(crate::arguments()).expect("pages");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
        let up = read("leasehold-up.1");
        for part in ["ENVIRONMENT", "LEASEHOLD_DATA", "AWS_REGION", "FILES", "EXAMPLES", "leasehold(1)"] {
            assert!(up.contains(part), "{part}: {up}");
        }
        assert!(up.contains("\"EXIT STATUS\"") && up.contains("\"SEE ALSO\""), "{up}");
        assert!(read("leasehold-server-add.1").contains("leasehold\\-server(1)"));
        assert!(!read("leasehold-leases.1").contains("AWS_"));
    }

    #[test]
    fn the_directory_is_named_where_it_cannot_be_written() {
        let pages = ManPages { dir: "/dev/null/x".into() };
        let error = pages.run(crate::arguments()).err().expect("no directory");
        assert!(error.to_string().contains("/dev/null/x"), "{error}");
    }
}
