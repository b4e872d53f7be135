//! Conflicting renames (Farsite §8.2.2, §8.3.2): two clients, and six directories on six servers.
//!
//! The tree is that of Farsite's figure 1: `a/b/c` and `d/e/f` below the root. One client moves `b`
//! below `f` and back, the other one `e` below `c` and back. Done both, the moves would make a loop
//! that nobody reaches. A sequence is these four renames. In turns, one follows the other. At once,
//! each client makes its two while the other one makes its own. Then one of two moves that cross is
//! refused.

use crate::campus::program_context::ProgramContext;
use crate::campus::{Campus, CampusSettings};
use crate::host::Violation;
use ident::FileId;
use namespace::Error;
use serde::Serialize;
use std::cell::RefCell;
use std::rc::Rc;

/// The names from the root down, on either side.
const NAMES: [[&str; 3]; 2] = [["a", "b", "c"], ["d", "e", "f"]];
/// The root's server, and one for each directory.
const SERVERS: u16 = 7;
/// Time within which the tree is made, and within which regions move, ms.
const PREPARES_MS: u64 = 60_000;
/// Time within which a rename ends, ms.
const RENAME_MS: u64 = 4_000;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Renames {
    /// Renames that were asked for.
    pub renames: u64,
    /// Renames that would have made a loop, or whose directory had not been moved.
    pub refused: u64,
    /// Messages between servers that ask for path leases, issue, recall and release them.
    pub path_messages: u64,
    /// Messages between servers about the renames themselves.
    pub joint_messages: u64,
}

/// The order of renames by machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each of the four renames of a sequence after the other.
    InTurns,
    /// Both clients at once.
    AtOnce,
}

/// Runs so many sequences of four renames.
pub fn conflicting(seed: u64, sequences: u64, order: Order) -> Result<Renames, Violation> {
    let mut campus = Campus::new(seed, CampusSettings::at_ease(2, SERVERS))?;
    let sides = prepare(&mut campus)?;
    let before = (campus.counts.path_messages, campus.counts.joint_messages);
    let refused = Rc::new(RefCell::new(0));
    for at in 0..2 {
        let (sides, refused) = (sides.clone(), refused.clone());
        campus.begins(at, move |context| mover(context, at, sides, sequences, order, refused));
    }
    campus.run_to_end(RENAME_MS * 4 * sequences)?;
    let (path_messages, joint_messages) =
        (campus.counts.path_messages - before.0, campus.counts.joint_messages - before.1);
    for at in 0..2 {
        let sides = sides.clone();
        campus.begins(at, move |context| looks(context, sides));
    }
    campus.run_to_end(RENAME_MS)?;
    campus.rests_ms(RENAME_MS)?;
    campus.check()?;
    let refused = *refused.borrow();
    Ok(Renames { renames: 4 * sequences, refused, path_messages, joint_messages })
}

/// The six directories.
type Sides = [[FileId; 3]; 2];

/// Makes the tree, and hands each directory over to a server of its own, the outer ones first.
fn prepare(campus: &mut Campus) -> Result<Sides, Violation> {
    let made = Rc::new(RefCell::new(Vec::new()));
    let makes = made.clone();
    campus.begins(0, |context| async move {
        for names in NAMES {
            let mut dir = FileId::root();
            for name in names {
                dir = context.mkdir(&dir, name).await?;
                makes.borrow_mut().push(dir.clone());
            }
        }
        context.sync_all().await
    });
    campus.run_to_end(PREPARES_MS)?;
    let made: Vec<FileId> = made.take();
    let [a, b, c, d, e, f] = <[FileId; 6]>::try_from(made).map_err(|made| format!("{made:?} were made"))?;
    let sides = [[a, b, c], [d, e, f]];
    for (side, dirs) in sides.iter().enumerate() {
        let mut from = 0;
        for (depth, dir) in dirs.iter().enumerate() {
            let to = 1 + 3 * side + depth;
            campus.delegate(from, dir.clone(), to)?;
            let mut waited = 0;
            while !campus.manages(to, dir) {
                campus.rests_ms(500)?;
                waited += 500;
                if waited > PREPARES_MS {
                    return Err(format!("server {to} never has {dir}"));
                }
            }
            from = to;
        }
    }
    // The hand-overs have nothing left to say.
    campus.rests_ms(PREPARES_MS)?;
    Ok(sides)
}

/// A client's part: it moves its directory to the other side and back. In turns, a rename of the
/// other one takes as long as one of its own at most.
async fn mover(
    context: ProgramContext,
    at: usize,
    sides: Sides,
    sequences: u64,
    order: Order,
    refused: Rc<RefCell<u64>>,
) -> Result<(), Violation> {
    let [own, other] = [&sides[at], &sides[1 - at]];
    let (name, home, away) = (NAMES[at][1], &own[0], &other[2]);
    let began = context.now_ms();
    for sequence in 0..sequences {
        if order == Order::InTurns {
            let turn = began + (2 * sequence + at as u64) * 2 * RENAME_MS;
            context.pause(turn.saturating_sub(context.now_ms())).await;
        }
        let mut is_away = false;
        for (from, to) in [(home, away), (away, home)] {
            match context.rename((from, name), (to, name)).await {
                Ok(_) if (from == home) != is_away => is_away = from == home,
                Err(Error::Invalid) if order == Order::AtOnce && from == home => {
                    *refused.borrow_mut() += 1;
                }
                Err(Error::NotFound) if from == away && !is_away => *refused.borrow_mut() += 1,
                answer => return Err(format!("the rename of {name} came to {answer:?}")),
            }
        }
    }
    Ok(())
}

/// At the end the tree is what it was.
async fn looks(context: ProgramContext, sides: Sides) -> Result<(), Violation> {
    for (names, dirs) in NAMES.iter().zip(&sides) {
        let mut dir = FileId::root();
        for (name, due) in names.iter().zip(dirs) {
            let (found, _) = context.finds(&dir, name).await?;
            if found != *due {
                return Err(format!("{name} is {found}, not {due}"));
            }
            dir = found;
        }
        match context.list(&dir).await? {
            names if names.is_empty() => {}
            names => return Err(format!("{names:?} are still there")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "On average, there were 12 server-to-server messages per rename operation in this extreme
    /// worst case" (Farsite §8.3.2).
    #[test]
    fn renames_over_six_servers_take_a_constant_number_of_messages() {
        let of = |sequences| conflicting(1, sequences, Order::InTurns).unwrap();
        let (few, more) = (of(10), of(20));
        println!("{few:?} {more:?}");
        assert_eq!(few.refused, 0);
        let each = |it: Renames| (it.path_messages + it.joint_messages) / it.renames;
        assert!(each(few) <= 20 && each(more) <= each(few), "{few:?} {more:?}");
    }

    #[test]
    fn of_two_renames_that_cross_one_is_refused() {
        for seed in 0..8 {
            let both = conflicting(seed, 10, Order::AtOnce).unwrap();
            println!("{both:?}");
            assert!(both.refused > 0 && both.refused < both.renames, "seed {seed}: {both:?}");
        }
    }
}
