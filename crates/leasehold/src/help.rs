//! Additions to the commands' own help texts: their order, and examples.

use clap::Command;
use clap::builder::StyledStr;
use std::fmt::Write;

/// All commands, in the order in which people need them. clap has no headings for commands.
const GROUPS: &[(&str, &[&str])] = &[
    ("Every day", &["up", "mount", "down", "umount", "status", "top", "leases"]),
    (
        "Machines and servers",
        &[
            "invite",
            "invitations",
            "join",
            "leave",
            "machines",
            "expel",
            "server",
            "drain",
            "authority",
            "map",
            "delegate",
            "balance",
            "pin",
            "unpin",
            "policy",
        ],
    ),
    ("Keeping data", &["backup", "restore", "fsck", "scrub", "salvage"]),
    ("Windows and macOS", &["user", "share", "smb"]),
    ("Stored shares", &["shares", "gc"]),
    ("Measuring and checking", &["bench", "simulate"]),
    ("Shell", &["completions", "man", "help"]),
];

/// Examples of a command: what to type, and what that does.
type Examples = (&'static str, &'static [(&'static str, &'static str)]);

const EXAMPLES: &[Examples] = &[
    (
        "up",
        &[
            ("leasehold up", "A new file system, or the one of before, at ~/Leasehold."),
            (
                "leasehold up --data /srv/data --mount /srv/files --background",
                "The same elsewhere, in the background.",
            ),
            ("leasehold up --listen 10.0.0.1:4470", "Other machines call this one at that address alone."),
            (
                "leasehold up --backup /mnt/disk --backup-every 6 --backup-keep 28",
                "Four backups a day, those of a week.",
            ),
        ],
    ),
    (
        "mount",
        &[
            ("leasehold mount --join lease1-AQ4xMjcu... ~/Leasehold", "Joins with a token, and mounts."),
            ("leasehold mount ~/Leasehold", "Mounts on a machine that has joined."),
        ],
    ),
    (
        "down",
        &[
            ("leasehold down", "Ends the machine on the usual data directory."),
            ("leasehold down --data /srv/data", "Ends the one on this data directory."),
        ],
    ),
    ("umount", &[("leasehold umount ~/Leasehold", "Unmounts; the machine behind it ends in order.")]),
    ("status", &[("leasehold status", "For people."), ("leasehold status --json", "For programs.")]),
    (
        "top",
        &[("leasehold top", "Live; q ends."), ("leasehold top --once --json", "One look, for programs.")],
    ),
    ("leases", &[("leasehold leases /work/report.odt", "The path begins at the root of the file system.")]),
    (
        "invite",
        &[
            ("leasehold invite", "A token for a machine that may do everything."),
            (
                "leasehold invite --path /projects --read-only",
                "For one that sees /projects only, and changes nothing.",
            ),
        ],
    ),
    (
        "join",
        &[(
            "leasehold join lease1-AQ4xMjcu... --data /var/lib/leasehold/home",
            "Then: systemctl enable --now leasehold@home",
        )],
    ),
    ("invitations list", &[("leasehold invitations list", "Those that nobody has joined by.")]),
    ("invitations revoke", &[("leasehold invitations revoke 1f00ab3c", "Nobody joins by that one.")]),
    ("leave", &[("leasehold leave", "The machine is none of the cluster, and its data directory is gone.")]),
    ("machines", &[("leasehold machines", "Names, numbers, rights, and when each was heard last.")]),
    ("expel", &[("leasehold expel laptop", "The machine is out at once.")]),
    ("server add", &[("leasehold server add desk", "The machine desk, which is up, becomes a server.")]),
    (
        "server remove",
        &[("leasehold drain desk && leasehold server remove desk", "Moves its content to others first.")],
    ),
    ("server list", &[("leasehold server list", "Names, addresses, and how they stand.")]),
    ("drain", &[("leasehold drain desk", "Returns when other servers have the content.")]),
    (
        "map",
        &[
            ("leasehold map", "All servers of the directory, and what each manages."),
            ("leasehold map /projects", "The server of one directory, since when and why."),
        ],
    ),
    (
        "delegate",
        &[
            ("leasehold delegate /projects", "To a new server of the directory."),
            ("leasehold delegate /projects 2 --no-pin", "To server 2, until the balance moves it."),
        ],
    ),
    (
        "balance",
        &[
            ("leasehold balance --dry-run", "The load of each server, what would move, and why not."),
            ("leasehold balance off", "No directory moves by itself any more."),
        ],
    ),
    ("pin", &[("leasehold pin /projects", "It stays at its server, until: leasehold unpin /projects")]),
    (
        "policy set",
        &[
            ("leasehold policy set ~/Leasehold/work copies=2", "New files in work are on two servers."),
            (
                "leasehold policy set --recursive ~/Leasehold/archive code=4+2",
                "Six servers have a fragment each; any four are enough.",
            ),
        ],
    ),
    ("policy get", &[("leasehold policy get ~/Leasehold/work", "What is set there, or comes from above.")]),
    (
        "backup",
        &[
            ("leasehold backup /mnt/disk/leasehold", "Copies what that disk has not yet."),
            (
                "leasehold backup /mnt/disk/leasehold --keep 7",
                "And deletes all backups but the latest seven.",
            ),
        ],
    ),
    (
        "restore",
        &[
            ("leasehold restore /mnt/disk/leasehold --list", "Which backups there are."),
            ("leasehold restore /mnt/disk/leasehold --data /srv/data", "Then: leasehold up --data /srv/data"),
        ],
    ),
    ("fsck", &[("leasehold fsck", "Exits with 0 if nothing is wrong.")]),
    ("scrub", &[("leasehold scrub", "Reads everything that this server has on its disk.")]),
    ("salvage restore", &[("leasehold salvage restore 1 --to ~/saved", "Then: leasehold salvage drop 1")]),
    (
        "shares account add",
        &[(
            "leasehold shares account add archive KEY --quota 1073741824",
            "KEY is what `shares account key` printed.",
        )],
    ),
    (
        "shares put",
        &[("leasehold shares put photo.jpg --key archive.key", "Prints the share's name, for `shares get`.")],
    ),
    ("gc", &[("leasehold gc --dry-run", "What would be deleted, and what keeps the rest.")]),
    ("user add", &[("leasehold user add anna --uid 1000", "Asks for the password.")]),
    ("share add", &[("leasehold share add work /work --encrypt", "Windows finds it at \\\\MACHINE\\work.")]),
    ("smb status", &[("leasehold smb status", "Who is connected from where.")]),
    (
        "bench local",
        &[(
            "leasehold bench local --only names,stream",
            "The mount beside an empty FUSE file system and the disk.",
        )],
    ),
    (
        "simulate",
        &[("leasehold simulate --seed 0..100", "A hundred runs; a failure prints the line that replays it.")],
    ),
    (
        "completions",
        &[
            ("leasehold completions bash >~/.local/share/bash-completion/completions/leasehold", "For bash."),
            ("leasehold completions fish >~/.config/fish/completions/leasehold.fish", "For fish."),
        ],
    ),
    ("man", &[("leasehold man ~/.local/share/man/man1", "Then: man leasehold-up")]),
];

/// Adds groups, defaults and examples to the help of `command`.
pub fn arranged(command: Command) -> Command {
    let template = template(&command);
    let mut command = with_defaults(command.help_template(template));
    for (path, _) in EXAMPLES {
        let names: Vec<&str> = path.split(' ').collect();
        command = with_examples(command, &names, path);
    }
    command
}

/// Returns the examples of the command at this path, such as `server add`.
pub fn examples(path: &str) -> &'static [(&'static str, &'static str)] {
    EXAMPLES.iter().find(|(of, _)| *of == path).map_or(&[], |(_, examples)| examples)
}

/// Defaults that depend on the environment, which clap does not know: the option's name, its
/// value's name, and the text.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("data", "DIR", "$LEASEHOLD_DATA, or else ~/.local/share/leasehold"),
    ("mount", "DIR", "~/Leasehold"),
    ("listen", "ADDRESS:PORT", "[::]:4470 if that is free"),
];

fn with_defaults(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let value = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        let is_it =
            |(id, name, _): &&(&str, &str, &str)| argument.get_id() == id && value.as_deref() == Some(*name);
        let Some((.., default)) = DEFAULTS.iter().find(is_it) else { return argument };
        let said = |text: &StyledStr| format!("{text} [default: {default}]");
        let (short, long) = (argument.get_help().map(said), argument.get_long_help().map(said));
        let argument = argument.help(short.unwrap_or_default());
        match long {
            Some(long) => argument.long_help(long),
            None => argument,
        }
    });
    command.mut_subcommands(with_defaults)
}

fn with_examples(command: Command, names: &[&str], path: &str) -> Command {
    let Some((first, rest)) = names.split_first() else {
        let mut text = String::new();
        let header = *command.get_styles().get_header();
        let _ = write!(text, "{header}Examples:{header:#}");
        for (line, what) in examples(path) {
            let _ = write!(text, "\n  {line}\n      {what}");
        }
        return command.after_long_help(StyledStr::from(text));
    };
    // `mut_subcommand` panics if there is none.
    if command.find_subcommand(first).is_none() {
        return command;
    }
    command.mut_subcommand(*first, |command| with_examples(command, rest, path))
}

fn template(command: &Command) -> StyledStr {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        let _ = write!(text, "\n{header}{group}:{header:#}\n");
        for name in *names {
            let _ = writeln!(text, "  {literal}{name:<11}{literal:#}  {}", about(command, name));
        }
    }
    text.push_str("\n{options}\n\n`leasehold help COMMAND` has all of a command, with examples.");
    StyledStr::from(text.replace("{options}", &format!("{header}Options:{header:#}\n{{options}}")))
}

/// Returns the first sentence of each command's description, on a line.
fn about(command: &Command, name: &str) -> String {
    if name == "help" {
        return "All of a command, with examples".to_owned();
    }
    let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
    let about = about.unwrap_or_default();
    let first = about.split(": ").next().and_then(|text| text.split(". ").next()).unwrap_or_default();
    first.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_one_group() {
        let command = crate::Arguments::command();
        let mut there: Vec<&str> =
            command.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
        there.push("help");
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        there.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, there);
    }

    #[test]
    fn each_line_of_the_list_fits_a_terminal() {
        let help = crate::arguments().render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(help.contains("Every day:\n  up           "), "{help}");
    }

    /// Returns all visible commands with their paths, such as `server add`.
    fn visible(command: &Command, path: &str) -> Vec<(String, Command)> {
        let below = command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
        let all = below.flat_map(|it| visible(it, format!("{path} {}", it.get_name()).trim_start()));
        std::iter::once((path.to_owned(), command.clone())).chain(all).collect()
    }

    #[test]
    fn every_command_says_in_one_short_sentence_what_it_does() {
        for (path, command) in visible(&crate::arguments(), "") {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let sentence = about.split(". ").next().unwrap_or_default();
            let length = sentence.chars().count();
            assert!((1..=85).contains(&length), "{path}: {length} characters: {sentence}");
        }
    }

    #[test]
    fn every_option_is_in_the_help() {
        for (path, mut command) in visible(&crate::arguments(), "") {
            let help = command.render_long_help().to_string();
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let said = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!said.is_empty(), "{path}: nothing is said of {}", argument.get_id());
                let long = argument.get_long().map(|long| format!("--{long}"));
                assert!(long.is_none_or(|long| help.contains(&long)), "{path}: {}", argument.get_id());
            }
        }
    }

    /// The output of each command with `--json` is a section of `docs/json.md`. One command prints
    /// a script.
    #[test]
    fn every_command_has_an_answer_for_programs() {
        let document = include_str!("../../../docs/json.md");
        for (path, command) in visible(&crate::arguments(), "") {
            let asks = command.get_subcommands().next().is_none() || path == "gc";
            if asks && path != "completions" {
                assert!(document.contains(&format!("\n## leasehold {path}\n")), "{path}");
            }
        }
    }

    #[test]
    fn defaults_are_said_where_they_hold() {
        let of = |name: &str| {
            let mut command = crate::arguments();
            command.find_subcommand_mut(name).expect(name).render_long_help().to_string()
        };
        assert_eq!(of("up").matches("[default: ").count(), 5, "{}", of("up"));
        assert!(of("status").contains("[default: $LEASEHOLD_DATA"), "{}", of("status"));
        // `restore` needs its directory on the command line.
        assert!(!of("restore").contains("LEASEHOLD_DATA"), "{}", of("restore"));
    }

    /// Each example belongs to an existing command, and the command line takes it as it stands.
    #[test]
    fn examples_are_what_the_command_line_takes() {
        for (path, examples) in EXAMPLES {
            for (line, _) in *examples {
                for line in line.split(" && ") {
                    let words = line.split(['>']).next().unwrap_or_default().split_whitespace();
                    let taken = crate::arguments().try_get_matches_from(words);
                    assert!(taken.is_ok(), "{path}: {line}: {}", taken.unwrap_err());
                }
            }
            let mut command = crate::arguments();
            for name in path.split(' ') {
                command = command.find_subcommand(name).expect(path).clone();
            }
            assert!(command.render_long_help().to_string().contains(examples[0].0), "{path}");
        }
    }
}
