//! The knowledge that gremlins share: where everything is, and what is due there.
//!
//! Users have their directories in those of departments, which the custodian renames and between
//! which it moves users. A gremlin goes to its directory by the path, as programs do, each time it
//! begins something.

use crate::campus::program_context::ProgramContext;
use crate::host::Violation;
use ident::FileId;
use std::cell::RefCell;
use std::rc::Rc;

/// Users of a department.
const USERS: usize = 4;
/// The time after which a gremlin looks again that met a rename, ms.
const AGAIN_MS: u64 = 50;
/// Times that a gremlin looks for its directory, at most.
const LOOKS_MAX: usize = 200;

/// A department, as its directory is called now.
#[derive(Clone, Debug)]
pub(super) struct Department {
    pub name: String,
    pub dir: FileId,
}

/// A user, and the department that has the user's directory now.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub name: String,
    pub dir: FileId,
    pub department: usize,
}

/// The names near the root, as the custodian has left them.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub departments: Vec<Department>,
    pub users: Vec<User>,
    /// The directory of what all share.
    pub shared: Option<FileId>,
    /// Renames that have begun, and those that have ended.
    pub begun: u64,
    pub ended: u64,
}

/// The names, for every gremlin.
pub(super) type SharedNames = Rc<RefCell<Names>>;

/// The directories of a user, one for each gremlin that is alone there.
pub(super) const AREAS: [&str; 5] = ["database", "texts", "project", "web", "work"];

/// Makes all directories. Every other gremlin begins after that.
pub(super) async fn install(
    context: ProgramContext,
    users: usize,
    shared_names: SharedNames,
) -> Result<(), Violation> {
    let root = FileId::root();
    for department in 0..users.div_ceil(USERS) {
        let name = format!("department-{department}");
        let dir = context.mkdir(&root, &name).await?;
        shared_names.borrow_mut().departments.push(Department { name, dir });
    }
    for user in 0..users {
        let (name, department) = (format!("user-{user}"), user / USERS);
        let above = shared_names.borrow().departments[department].dir.clone();
        let dir = context.mkdir(&above, &name).await?;
        for area in AREAS {
            context.mkdir(&dir, area).await?;
        }
        shared_names.borrow_mut().users.push(User { name, dir, department });
    }
    let shared = context.mkdir(&root, "shared").await?;
    for area in ["documents", "mail", "revisions"] {
        context.mkdir(&shared, area).await?;
    }
    shared_names.borrow_mut().shared = Some(shared);
    context.sync_all().await
}

/// Goes to the area of a user from the root. A name that the custodian is changing is looked for
/// again; any other that is not there is a violation.
pub(super) async fn area(
    context: &ProgramContext,
    shared_names: &SharedNames,
    user: usize,
    area: &str,
) -> Result<FileId, Violation> {
    for _ in 0..LOOKS_MAX {
        let (renames, department, name, due) = {
            let names = shared_names.borrow();
            let User { name, dir, department } = &names.users[user];
            (
                (names.begun, names.ended),
                names.departments[*department].name.clone(),
                name.clone(),
                dir.clone(),
            )
        };
        let mut found = Some(FileId::root());
        for label in [&department, &name] {
            if let Some(dir) = found {
                found = context.find(&dir, label).await?.map(|(file, _)| file);
            }
        }
        match found {
            Some(found) if found == due => return Ok(context.finds(&due, area).await?.0),
            Some(found) => return Err(format!("{department}/{name} is {found}, not {due}")),
            None => {}
        }
        // A rename that was under way already when the name was read may have been done meanwhile.
        let is_at_rest = renames.0 == renames.1 && shared_names.borrow().begun == renames.0;
        if is_at_rest {
            return Err(format!("{department}/{name} is not there"));
        }
        context.pause(AGAIN_MS).await;
    }
    Err(format!("user {user} is looked for again and again"))
}

/// Goes to an area of what all share.
pub(super) async fn shared(context: &ProgramContext, area: &str) -> Result<FileId, Violation> {
    let (shared, _) = context.finds(&FileId::root(), "shared").await?;
    Ok(context.finds(&shared, area).await?.0)
}

/// So many bytes that nothing else has: they come from the name of a file and a version of it.
pub(super) fn bytes_of(name: &str, version: u64, length: usize) -> Vec<u8> {
    let text = format!("{name} {version} ");
    text.bytes().cycle().take(length).collect()
}

/// The bytes that were read are those of this version.
pub(super) fn is_version(name: &str, version: u64, read: &[u8]) -> Result<(), Violation> {
    match bytes_of(name, version, read.len()) == read && !read.is_empty() {
        true => Ok(()),
        false => {
            let begins = String::from_utf8_lossy(&read[..read.len().min(40)]).into_owned();
            Err(format!(
                "{name} has {} bytes that begin with {begins:?}, and is due in version {version}",
                read.len()
            ))
        }
    }
}
