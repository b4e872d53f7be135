//! The command line, as `leasehold help` describes it.
//!
//! All crates can be reached from here. This one has the words for people, and decides nothing.

// Printing must not panic when the reader closes the pipe: see `answer`.
#![deny(clippy::print_stdout)]

mod answer;
mod arguments;
mod authority;
mod backup;
mod balance;
mod bench;
mod check;
mod cluster;
mod confirm;
mod guard;
mod help;
mod leases;
mod logs;
mod man;
mod map;
mod metrics;
mod places;
mod policy;
mod progress;
mod salvage;
mod scrub;
mod server;
mod service;
mod shares;
mod simulate;
mod smb;
mod status;
mod table;
mod token;
mod top;
mod up;
mod words;

use admin::AskError;
use answer::Answer;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// A serverless distributed file system. Every machine together is one file system, and none of it
/// is ever stale.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    /// How what happens is told on standard error. RUST_LOG=info tells more of it, RUST_LOG=debug
    /// all.
    #[arg(long, global = true, value_enum, default_value_t = logs::Format::Text, value_name = "FORMAT")]
    log_format: logs::Format,
    /// Answer in JSON: one value on standard output. Notes and progress go to standard error.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring this machine up: its server, its shares, its mount. Makes a new file system on the
    /// first run.
    ///
    /// Runs in the foreground until Ctrl-C or SIGTERM, then unmounts and makes everything durable.
    /// After a crash just run it again: a dead mount is replaced, and what was fsynced is there.
    #[command(alias = "start")]
    Up(up::Up),
    /// Mount the file system on a machine that has joined, or that joins with a token first.
    Mount(up::Mount),
    /// End the machine that is up: unmount, and make everything durable.
    ///
    /// As Ctrl-C does where it was started. Exits with 1 if none is up.
    #[command(alias = "stop")]
    Down(service::Down),
    /// Unmount what is mounted there; the machine behind it ends in order.
    #[command(alias = "unmount")]
    Umount(service::Umount),
    /// Print a token with which another machine can join, once.
    ///
    /// Any machine with the token can join: pass it on as you would a password. It says where this
    /// machine is and how to know it for certain.
    Invite(cluster::Invite),
    /// Become a machine of the cluster that a token is of. Then: leasehold up, or leasehold mount.
    Join(cluster::Join),
    /// Take this machine out of the cluster, and delete its data directory.
    ///
    /// The machine must not be up, and be no server. An expelled machine leaves so, too.
    Leave(cluster::Leave),
    /// Invitations that nobody has joined by: list them, revoke one.
    #[command(subcommand)]
    Invitations(cluster::Invitations),
    /// The machines of the cluster: what they may do, how they stand.
    Machines(cluster::Machines),
    /// Remove a machine from the cluster. Its leases end, and its certificate is refused from now
    /// on.
    Expel(cluster::Expel),
    /// Which machines hold the directory and the content. With more than one, the death of any is a
    /// pause.
    #[command(subcommand)]
    Server(server::ServerCommand),
    /// Copy a server's content to other servers, so that the server can be removed. Returns when
    /// they have all of it.
    Drain(server::Drain),
    /// The authority that certifies the cluster's machines.
    #[command(subcommand)]
    Authority(authority::AuthorityCommand),
    /// Which server of the directory manages which files.
    ///
    /// A server of the directory is a replicated group with a member on each machine that serves.
    /// A new file system has one, server 0, which manages all files until some are delegated.
    Map(map::Map),
    /// Hand files over to another server of the directory.
    ///
    /// Their attributes, names and leases are there from then on. Nobody has to know: paths stay,
    /// and files are renamed and linked across servers. Files that are open or locked stay, with
    /// all that would go along.
    ///
    /// It is pinned there, so that the balance of load does not move it again.
    Delegate(map::Delegate),
    /// Balance the load of the servers of the directory now, and tell it.
    ///
    /// They do so by themselves. A server with many files in use hands directories over to one
    /// with few, if that is so for a while. A directory that moved rests for ten minutes; one that
    /// is pinned stays, and so does one with a file that is open or locked.
    Balance(balance::Balance),
    /// Keep a directory, or any file, at its server of the directory.
    ///
    /// The balance of load moves nothing of it, and nothing that it lies in. By hand it can still
    /// be delegated.
    Pin(balance::Pin),
    /// Let the balance of load move a pinned directory again.
    Unpin(balance::Pin),
    /// How content is spread over servers: in copies, or in fragments.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// The machines that hold leases on a file, wait for them, or were told to release.
    Leases(leases::Leases),
    /// Changes of this machine that could not be applied any more after it was cut off.
    #[command(subcommand)]
    Salvage(salvage::Salvage),
    /// The work of a running machine at present.
    Status(status::Status),
    /// Watch a running machine: operations, what waits for whom, busy directories.
    ///
    /// q and Ctrl-C end it. Directories are counted only while somebody watches.
    Top(top::Top),
    /// Check everything: the tree, all content against its hashes, the leases of shares.
    ///
    /// Asks the running machine if there is one, and reads the data directory itself otherwise.
    /// Exits with 0 when nothing is wrong, with 1 when something is.
    Fsck(check::Check),
    /// Have the running server read all its content and metadata, and repair what is damaged.
    ///
    /// A server does so by itself once a week, slowly. Damaged shares are fetched from other
    /// servers that have them. Exits with 1 if any share was damaged.
    Scrub(scrub::Scrub),
    /// Content at the servers, for whom and for how long; and storing shares of one's own.
    #[command(subcommand)]
    Shares(shares::Shares),
    /// Have this server delete now what nothing needs any more, and say what keeps the rest.
    ///
    /// It does so by itself, too. Nothing goes that a file refers to or anybody has leased, nor
    /// what was released less than a day ago otherwise than by deleting its file.
    Gc(shares::Collect),
    /// Make a backup of the whole file system as it is now, while it is used. Content that
    /// another backup there has already is not copied again.
    ///
    /// On any server, whether it is up or not. It may lack what other machines have written
    /// within the last five seconds and not synced. Keep it as secret as the data directory: it
    /// has the keys of the cluster, and those of all files. Exits with 1 if some content could not
    /// be had.
    Backup(backup::Backup),
    /// Make the data directory of a cluster's only server out of a backup. Or, with --file, one
    /// file or directory.
    ///
    /// Machines that were in the cluster then go on with it, if it is where their server was.
    /// Servers that were beside it are to be removed and added again, with data directories of
    /// their own; they must not be up meanwhile. Machines that joined since join again, machines
    /// that were expelled since are to be expelled again.
    ///
    /// --file PATH --to DEST writes a file, or a directory with all below, as ordinary files: with
    /// modes, times, links, holes, extended attributes and access lists. Owner and group are
    /// restored by root; for others, set-id bits of other users go. Exits with 1 if files were left
    /// out (--incomplete).
    Restore(backup::Restore),
    /// Run machines in one thread on simulated disks and networks, checked against a model.
    ///
    /// Disks lose what was not synced, and machines crash. Needs no root, no network and no disk.
    /// The same seed gives the same run, everywhere.
    Simulate(simulate::Simulate),
    /// Users who may log on over SMB.
    #[command(subcommand)]
    User(smb::UserCommand),
    /// Directories that are shared over SMB.
    #[command(subcommand)]
    Share(smb::ShareCommand),
    /// The SMB server of a running machine.
    #[command(subcommand)]
    Smb(smb::SmbCommand),
    /// Measure.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Print completions for a shell.
    Completions {
        /// For which.
        shell: clap_complete::Shell,
    },
    /// Started by `up` and `mount`: ends the mount should they be killed.
    #[command(hide = true)]
    Guard(guard::Stand),
    /// Started by `up` and `mount`: has the kernel tell programs that watch something of what other
    /// machines do.
    #[command(hide = true)]
    RaiseEvents {
        /// Where it is mounted.
        dir: PathBuf,
    },
    /// Write man pages, one for each command.
    Man(man::ManPages),
}

/// Returns the command line's definition, with its help.
fn arguments() -> clap::Command {
    help::arranged(Arguments::command())
}

fn main() -> ExitCode {
    let parsed = Arguments::from_arg_matches(&arguments().get_matches());
    let Arguments { log_format, json, command } = parsed.unwrap_or_else(|error| error.exit());
    logs::begin(log_format, matches!(command, Command::Simulate(_)));
    match run(command).and_then(|answer| answer.tell(json)) {
        Ok(code) => code,
        Err(error) => {
            // A machine's refusal is data, and has its words here.
            let said = error.downcast_ref::<AskError>().map(|error| words::Words(error).to_string());
            let mut text = format!("leasehold: {}", said.unwrap_or_else(|| error.to_string()));
            let mut cause = error.source();
            while let Some(error) = cause {
                text.push_str(&format!(": {error}"));
                cause = error.source();
            }
            let is_up = !matches!(error.downcast_ref(), Some(AskError::NotUp { .. }));
            if let Some(elsewhere) = places::elsewhere().filter(|_| !is_up) {
                text.push_str(&format!("\n({elsewhere})"));
            }
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitCode::from(2)
        }
    }
}

/// An error that ends a command before it has an answer.
type Failure = Box<dyn std::error::Error>;

fn run(command: Command) -> Result<Answer, Failure> {
    match command {
        Command::Up(up) => up.run(),
        Command::Mount(mount) => mount.run(),
        Command::Down(down) => down.run(),
        Command::Umount(umount) => umount.run(),
        Command::Invite(invite) => invite.run(),
        Command::Join(join) => join.run(),
        Command::Leave(leave) => leave.run(),
        Command::Invitations(invitations) => invitations.run(),
        Command::Machines(machines) => machines.run(),
        Command::Expel(expel) => expel.run(),
        Command::Server(server) => server.run(),
        Command::Drain(drain) => drain.run(),
        Command::Authority(authority) => authority.run(),
        Command::Map(map) => map.run(),
        Command::Delegate(delegate) => delegate.run(),
        Command::Balance(balance) => balance.run(),
        Command::Pin(pin) => pin.run(true),
        Command::Unpin(pin) => pin.run(false),
        Command::Policy(policy) => policy.run(),
        Command::Leases(leases) => leases.run(),
        Command::Salvage(salvage) => salvage.run(),
        Command::Status(status) => status.run(),
        Command::Top(top) => top.run(),
        Command::Fsck(check) => check.run(),
        Command::Scrub(scrub) => scrub.run(),
        Command::Shares(shares) => shares.run(),
        Command::Gc(collect) => collect.run(),
        Command::Backup(backup) => backup.run(),
        Command::Restore(restore) => restore.run(),
        Command::Simulate(simulate) => simulate.run(),
        Command::User(user) => user.run(),
        Command::Share(share) => share.run(),
        Command::Smb(smb) => smb.run(),
        Command::Bench(bench) => bench.run(),
        Command::Guard(stand) => stand.run(),
        Command::RaiseEvents { dir } => {
            fuse::raise_events(&dir)?;
            Ok(Answer::nothing())
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut arguments(), "leasehold", &mut script);
            Ok(Answer::only(script))
        }
        Command::Man(pages) => pages.run(arguments()),
    }
}
