//! Farsite's two microbenchmarks on leases (Farsite §8.2.3, §8.2.4), and the counts of leases in
//! them. They have real clients, one real server, and a seed that chooses whose turn it is. Every
//! answer is checked. An experiment runs on a [`Testbed`]: simulated machines, or processes.

mod script;

use crate::host::Violation;
use crate::many::ManyMachines;
use directory::Policy;
use ident::FileId;
use lease::{Field, Granularity, Released};
pub use script::{Actor, Editor, Installer, Opener, SavedContentCheck, Script};
use script::{OPENED, backup, exclusive_write, label};
use wire::{FileGrant, ToClient};

/// Files that are edited in [`file_field`], each on a machine of its own, and the number of saves
/// of each (Farsite §8.3.3: 100 saves).
const EDITED: [&str; EDITORS] = ["letter", "novel"];
const SAVES: u64 = 50;
/// Number of machines in [`file_field`].
pub const EDITORS: usize = 2;
/// Number of machines in [`disjunctive`] beside the creator (Farsite §8.3.4).
pub const OPENERS: usize = 12;

/// Machines on which an experiment runs, numbered from 0.
pub trait Testbed {
    /// Runs each of these machines' parts, all at once. Returns the parts as they are at the end.
    fn run(&mut self, parts: Vec<(usize, Actor)>) -> Result<Vec<Actor>, Violation>;
    /// Stops the machine and starts it again, so that its leases are released.
    fn restart(&mut self, machine: usize) -> Result<(), Violation>;
    /// The server's messages to all clients since the last call.
    fn heard(&mut self) -> Result<Vec<ToClient>, Violation>;
}

/// Leases that the server issued and recalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    /// Number of single fields, of those that are counted. An infinite lease is one field, and so
    /// is everything of a file.
    pub fields: u64,
    /// Number of grants of the file. With a single lease for each file this is the number of
    /// leases. The modes of an open are needed together, and so are granted together.
    pub grants: u64,
    /// Number of messages that recalled any of the fields.
    pub recalls: u64,
    /// Operations that the server did itself, on any file. They grant no lease, so a count of
    /// leases does not show them.
    pub shipped: u64,
}

impl Leases {
    /// Counts the leases on the fields of `file` that are `counted`, among messages to clients.
    fn among(heard: &[ToClient], file: &FileId, counted: impl Fn(&Field) -> bool) -> Leases {
        let mut leases = Leases::default();
        for message in heard {
            match message {
                ToClient::Granted { grants, .. } => {
                    for grant in grants.iter().filter(|grant| grant.file == *file) {
                        let fields = fields_of(grant, &counted);
                        leases.fields += fields;
                        leases.grants += u64::from(fields > 0);
                    }
                }
                ToClient::Recall { leases: recalled, .. } => {
                    let concerned = |it: &Released| it.file == *file && counted(&it.field);
                    leases.recalls += u64::from(recalled.iter().any(concerned));
                }
                ToClient::Shipped { .. } => leases.shipped += 1,
                _ => {}
            }
        }
        leases
    }
}

fn fields_of(grant: &FileGrant, counted: impl Fn(&Field) -> bool) -> u64 {
    if grant.whole { 1 } else { grant.fields.iter().filter(|(field, _)| counted(field)).count() as u64 }
}

/// Two clients edit two files in one directory, fifty saves each (Farsite §8.2.3). Counts the
/// leases on the directory's labels, from a start at which no client holds any.
pub fn file_field(testbed: &mut impl Testbed) -> Result<Leases, Violation> {
    edit(testbed, SAVES)
}

/// The same with so many saves of each client.
pub fn edit(testbed: &mut impl Testbed, saves: u64) -> Result<Leases, Violation> {
    let names = EDITED.into_iter().flat_map(|name| [label(name), backup(name)]);
    let files = install(testbed, Installer::of(names, None))?;
    testbed.restart(0)?;
    testbed.heard()?;
    let editors =
        EDITED.into_iter().zip(files.chunks(2)).enumerate().map(|(at, (name, files))| match files {
            [file, old] => Ok((at, Editor::of(name, file, old, saves))),
            _ => Err(format!("{files:?} were made")),
        });
    let edited = testbed.run(editors.collect::<Result<_, Violation>>()?)?;
    let heard = testbed.heard()?;
    // Each machine finds the other's last save.
    let readers = EDITED.into_iter().zip(edited).map(|(name, part)| match part {
        Actor::Edit(Editor { edited, .. }) => Ok(SavedContentCheck::of(name, edited)),
        other => Err(format!("{other:?} is no editor's part")),
    });
    let readers = readers.collect::<Result<Vec<Actor>, Violation>>()?;
    testbed.run([1, 0].into_iter().zip(readers).collect())?;
    let of_labels = |field: &Field| matches!(field, Field::Child(_) | Field::Children);
    Ok(Leases::among(&heard, &FileId::root(), of_labels))
}

/// One client creates a file and keeps it open; twelve others open and close it again and again
/// (Farsite §8.2.4). Counts the leases on the file's black boxes, from its creation on.
pub fn disjunctive(testbed: &mut impl Testbed) -> Result<Leases, Violation> {
    testbed.heard()?;
    let files = install(testbed, Installer::of([label(OPENED)], Some(exclusive_write())))?;
    let [file] = files.as_slice() else { return Err(format!("{files:?} were made")) };
    testbed.run((1..=OPENERS).map(|at| (at, Opener::of(file.clone()))).collect())?;
    Ok(Leases::among(&testbed.heard()?, file, is_mode))
}

/// Whether the paper counts leases on this field: it counts modes. A lookup's use of the file is
/// another field.
fn is_mode(field: &Field) -> bool {
    matches!(field, Field::Mode(_))
}

/// Has the first machine make files.
fn install(testbed: &mut impl Testbed, installer: Actor) -> Result<Vec<FileId>, Violation> {
    match testbed.run(vec![(0, installer)])?.pop() {
        Some(Actor::Install(Installer { made, .. })) => Ok(made),
        other => Err(format!("{other:?} is no installer's part")),
    }
}

/// Runs an experiment on so many simulated machines, which then come to rest.
pub fn simulated(
    seed: u64,
    machines: usize,
    granularity: Granularity,
    experiment: impl FnOnce(&mut ManyMachines) -> Result<Leases, Violation>,
) -> Result<Leases, Violation> {
    let policy = Policy { granularity, ..Policy::default() };
    let mut office = ManyMachines::for_parts(seed, machines as u64, policy)?;
    let leases = experiment(&mut office)?;
    office.finish()?;
    Ok(leases)
}

#[cfg(test)]
mod tests {
    use super::script::Edited;
    use super::*;

    /// The bars hold in any order of events.
    const SEEDS: u64 = 10;

    fn edited(seed: u64, granularity: Granularity, saves: u64) -> Leases {
        simulated(seed, EDITORS, granularity, |office| edit(office, saves)).unwrap()
    }

    fn opened(seed: u64, granularity: Granularity) -> Leases {
        simulated(seed, OPENERS + 1, granularity, disjunctive).unwrap()
    }

    #[test]
    fn editors_of_two_files_share_a_directory() {
        for seed in 0..SEEDS {
            let fields = edited(seed, Granularity::Fields, SAVES);
            let files = edited(seed, Granularity::Files, SAVES);
            println!("seed {seed}: {fields:?}; a single lease for each file: {files:?}");
            assert!(fields.fields <= 6 && fields.shipped == 0, "seed {seed}: {fields:?}");
            assert!(files.grants > 100, "seed {seed}: {files:?}");
            // "In the control run, the count of leases is proportional to editor saves, but in the
            // experimental run, the count of leases is constant."
            assert_eq!(edited(seed, Granularity::Fields, 2 * SAVES), fields, "seed {seed}");
            let files_twice = edited(seed, Granularity::Files, 2 * SAVES);
            assert!(
                2 * files_twice.grants > 3 * files.grants,
                "seed {seed}: {files:?}, then {files_twice:?}"
            );
        }
    }

    #[test]
    fn those_that_open_one_file_share_its_black_boxes() {
        for seed in 0..SEEDS {
            let fields = opened(seed, Granularity::Fields);
            let single_writer = opened(seed, Granularity::SingleWriter);
            println!("seed {seed}: {fields:?}; one writer or many readers: {single_writer:?}");
            assert!(
                fields.grants <= 13 && fields.recalls <= 1 && fields.shipped == 0,
                "seed {seed}: {fields:?}"
            );
            let Leases { grants, recalls, .. } = single_writer;
            assert!(grants > 1_200 && recalls > 1_200, "seed {seed}: {single_writer:?}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_figures() {
        let figures = || (edited(1, Granularity::Files, SAVES), opened(1, Granularity::Fields));
        assert_eq!(figures(), figures());
    }

    /// Each answer to a program is compared with the expected one.
    #[test]
    fn a_wrong_answer_is_found() {
        let mut office = ManyMachines::for_parts(0, 1, Policy::default()).unwrap();
        let file = install(&mut office, Installer::of([label("novel")], None)).unwrap().remove(0);
        let edited = Edited { file, size: 1, old: FileId::root() };
        let wrong = office.run(vec![(0, SavedContentCheck::of("novel", edited))]).unwrap_err();
        assert!(wrong.contains("was due"), "{wrong}");
    }
}
