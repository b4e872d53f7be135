//! How throughput, recalls and messages change with the degree of sharing (Farsite §9.1 asks for
//! that): machines that work in one directory, from one to all of them.
//!
//! Machines are cut into groups. Those of a group have a directory, with some files for each of
//! them. A program saves and reads any of these files in turns, as editors do: it makes a new file
//! and renames it over the old one. Each read is compared with what may be seen: a save that is
//! over when another begins is never seen again once that one is over.

use crate::campus::program_context::ProgramContext;
use crate::campus::{Campus, CampusSettings};
use crate::host::Violation;
use ident::FileId;
use namespace::Error;
use serde::Serialize;
use std::cell::RefCell;
use std::rc::Rc;

/// Files of a directory for each machine that works in it.
const FILES: usize = 8;
/// The mean time between two operations of a program, ms.
const THINKS_MS: u64 = 100;
/// Time within which directories are made, and within which programs end, ms.
const PREPARES_MS: u64 = 60_000;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sharing {
    /// Saves and reads.
    pub operations: u64,
    /// Calls of which the operations consist.
    pub calls: u64,
    /// Calls that waited for the server.
    pub waited: u64,
    /// Recalls that the server sent.
    pub recalls: u64,
    /// Requests, batches of updates and recalls.
    pub messages: u64,
}

/// Runs `machines` machines for `seconds` simulated seconds, `together` of them in each directory.
pub fn run(seed: u64, machines: usize, together: usize, seconds: u64) -> Result<Sharing, Violation> {
    let mut campus = Campus::new(seed, CampusSettings::at_ease(machines, 1))?;
    let groups = prepare(&mut campus, together)?;
    campus.counts.begin_anew();
    let done = Rc::new(RefCell::new(0));
    for at in 0..machines {
        let (group, done) = (groups[at / together].clone(), done.clone());
        campus.begins(at, move |context| editor(context, at, group, seconds * 1_000, done));
    }
    campus.run_to_end(seconds * 1_000 + PREPARES_MS)?;
    campus.check()?;
    let counts = &campus.counts;
    Ok(Sharing {
        operations: *done.borrow(),
        calls: counts.operations,
        waited: counts.waited,
        recalls: counts.recalls,
        messages: counts.requests + counts.shipped + counts.batches + counts.recalls,
    })
}

/// Machines that work in one directory.
#[derive(Clone)]
struct Group {
    dir: FileId,
    /// The saves of each file.
    files: Rc<RefCell<Vec<Saves>>>,
}

/// Makes a directory for each group.
fn prepare(campus: &mut Campus, together: usize) -> Result<Vec<Group>, Violation> {
    let machines = campus.machines();
    let made = Rc::new(RefCell::new(Vec::new()));
    for first in (0..machines).step_by(together) {
        let (made, files) = (made.clone(), FILES * together.min(machines - first));
        campus.begins(first, move |context| async move {
            let dir = context.mkdir(&FileId::root(), &format!("group-{first}")).await?;
            context.sync_all().await?;
            let files = Rc::new(RefCell::new(vec![Saves::default(); files]));
            made.borrow_mut().push((first, Group { dir, files }));
            Ok(())
        });
    }
    campus.run_to_end(PREPARES_MS)?;
    let mut made: Vec<(usize, Group)> = made.take();
    made.sort_by_key(|(first, _)| *first);
    Ok(made.into_iter().map(|(_, group)| group).collect())
}

/// The saves of a file, each with the times at which it began and ended, ms.
#[derive(Clone, Debug, Default)]
struct Saves(Vec<(u64, Option<u64>)>);

impl Saves {
    fn begin(&mut self, now_ms: u64) -> usize {
        self.0.push((now_ms, None));
        self.0.len() - 1
    }

    fn end(&mut self, save: usize, now_ms: u64) {
        self.0[save].1 = Some(now_ms);
    }

    /// Whether a read that began at that time may see this save, or none: no other save that is
    /// over by then began after this one was over.
    fn may_be_seen(&self, save: Option<usize>, since_ms: u64) -> bool {
        let over = match save {
            None => Some(0),
            Some(save) => match self.0.get(save) {
                None => return false,
                Some((_, ended)) => *ended,
            },
        };
        let is_over = |(_, ended): &&(u64, Option<u64>)| ended.is_some_and(|ended| ended < since_ms);
        over.is_none_or(|over| !self.0.iter().filter(is_over).any(|(began, _)| *began > over))
    }
}

/// Saves and reads files of the group for so long.
async fn editor(
    context: ProgramContext,
    at: usize,
    Group { dir, files }: Group,
    lasts_ms: u64,
    done: Rc<RefCell<u64>>,
) -> Result<(), Violation> {
    let began_ms = context.now_ms();
    let mut saved = 0_u64;
    while context.now_ms() - began_ms < lasts_ms {
        context.pause_about(THINKS_MS).await;
        let count = files.borrow().len() as u64;
        let number = context.below(count) as usize;
        let name = format!("file-{number}");
        if context.below(2) == 0 {
            let save = files.borrow_mut()[number].begin(context.now_ms());
            let new = format!("new-{at}-{saved}");
            context.creates(&dir, &new, save.to_string().into_bytes()).await?;
            context.renames((&dir, &new), (&dir, &name)).await?;
            files.borrow_mut()[number].end(save, context.now_ms());
            saved += 1;
        } else {
            let since_ms = context.now_ms();
            let seen = look(&context, &dir, &name).await?;
            if let Some(seen) = seen
                && !files.borrow()[number].may_be_seen(seen, since_ms)
            {
                return Err(format!(
                    "{name} is at save {seen:?} at {since_ms} ms: {:?}",
                    files.borrow()[number]
                ));
            }
        }
        *done.borrow_mut() += 1;
    }
    Ok(())
}

/// The save that a file has. None if the file was replaced before it was open.
async fn look(
    context: &ProgramContext,
    dir: &FileId,
    name: &str,
) -> Result<Option<Option<usize>>, Violation> {
    let Some((file, size)) = context.find(dir, name).await? else { return Ok(Some(None)) };
    let open = client::call::OpenFile { file: file.clone(), open: crate::campus::files::READS, mask: 4 };
    match context.call(client::Call::OpenFile(open)).await {
        Ok(_) => {}
        Err(Error::Stale | Error::NotFound) => return Ok(None),
        Err(error) => return Err(format!("the open of {name} came to {error:?}")),
    }
    let bytes = context.read(&file, 0, size as usize + 8).await?;
    context.close(&file, crate::campus::files::READS).await?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.parse().map(|save| Some(Some(save))).map_err(|_| format!("{name} has {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_share_nothing_wait_for_nobody_and_those_that_share_all_see_each_save() {
        let of = |together| run(1, 6, together, 20).unwrap();
        let (none, some, all) = (of(1), of(2), of(6));
        println!("{none:?}\n{some:?}\n{all:?}");
        assert_eq!(none.recalls, 0);
        assert!(none.messages * 10 < none.operations, "{none:?}");
        assert!(all.recalls > some.recalls && some.recalls > 0 && all.waited > none.waited);
        assert!(all.operations * 4 > none.operations, "{all:?} beside {none:?}");
    }

    #[test]
    fn a_save_that_is_over_is_never_followed_by_an_earlier_one() {
        let mut saves = Saves::default();
        let first = saves.begin(1);
        assert!(saves.may_be_seen(None, 2) && saves.may_be_seen(Some(first), 2));
        saves.end(first, 3);
        let (second, third) = (saves.begin(5), saves.begin(6));
        saves.end(third, 8);
        assert!(saves.may_be_seen(Some(first), 8), "the third is not over when the read begins");
        assert!(!saves.may_be_seen(Some(first), 9) && !saves.may_be_seen(None, 9));
        assert!(saves.may_be_seen(Some(second), 9), "it is under way, and may come last");
        assert!(!saves.may_be_seen(Some(7), 9), "there is no such save");
    }

    /// A machine that sees its own copy for ever is found.
    #[test]
    fn reads_of_what_was_there_at_the_beginning_are_found() {
        let mut saves = Saves::default();
        let first = saves.begin(10);
        saves.end(first, 20);
        assert!(saves.may_be_seen(None, 20) && !saves.may_be_seen(None, 21));
    }
}
