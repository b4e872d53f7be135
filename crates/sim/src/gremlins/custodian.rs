//! The custodian: it renames directories near the root, above where everybody works.

use super::shared_names::SharedNames;
use crate::campus::program_context::ProgramContext;
use crate::host::Violation;
use ident::FileId;

/// The pause between two sessions, ms, and the renames of one, in the mean.
const SESSION_MS: u64 = 1_800_000;
const RENAMES: u64 = 3;

/// Renames departments, and moves users from one department to another.
pub(super) async fn custodian(context: ProgramContext, shared: SharedNames) -> Result<(), Violation> {
    let root = FileId::root();
    for session in 0_u64.. {
        context.pause_about(SESSION_MS).await;
        for rename in 0..1 + context.about(RENAMES - 1) {
            let (departments, users) = {
                let names = shared.borrow();
                (names.departments.len() as u64, names.users.len() as u64)
            };
            shared.borrow_mut().begun += 1;
            if context.below(2) == 0 || departments < 2 {
                let at = context.below(departments) as usize;
                let (old, dir) = {
                    let names = shared.borrow();
                    let department = &names.departments[at];
                    (department.name.clone(), department.dir.clone())
                };
                let new = format!("department-{at}-as-of-{session}-{rename}");
                context.renames((&root, &old), (&root, &new)).await?;
                shared.borrow_mut().departments[at].name.clone_from(&new);
                is_moved(&context, (&root, &old), (&root, &new), &dir).await?;
            } else {
                let at = context.below(users) as usize;
                let (name, dir, from) = {
                    let names = shared.borrow();
                    let user = &names.users[at];
                    (user.name.clone(), user.dir.clone(), user.department)
                };
                let to = (from + 1 + context.below(departments - 1) as usize) % departments as usize;
                let of = |at: usize| shared.borrow().departments[at].dir.clone();
                let (from, to_dir) = (of(from), of(to));
                context.renames((&from, &name), (&to_dir, &name)).await?;
                shared.borrow_mut().users[at].department = to;
                is_moved(&context, (&from, &name), (&to_dir, &name), &dir).await?;
            }
            shared.borrow_mut().ended += 1;
        }
    }
    Ok(())
}

/// The directory is at its new name, and not at its old one.
async fn is_moved(
    context: &ProgramContext,
    (from, old): (&FileId, &str),
    (to, new): (&FileId, &str),
    dir: &FileId,
) -> Result<(), Violation> {
    context.misses(from, old).await?;
    match context.finds(to, new).await? {
        (found, _) if found == *dir => Ok(()),
        (found, _) => Err(format!("{new} is {found}, not {dir}")),
    }
}
