//! The gremlins that share: a document, mail, and a revision control system.

use super::shared_names::{self, SharedNames, bytes_of, is_version};
use crate::campus::files::{READS, WRITES};
use crate::campus::program_context::ProgramContext;
use crate::host::Violation;
use ident::FileId;
use namespace::{FileKind, FileSpec};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Users of one document, the time for which one reads or writes it, ms, the pause between looks,
/// ms, and its length, bytes.
pub(super) const AUTHORS: usize = 5;
const ROLE_MS: u64 = 180_000;
const LOOK_MS: u64 = 10_000;
const DOCUMENT_BYTES: usize = 4_000;

/// A document: who writes it, and its versions.
#[derive(Debug, Default)]
pub(super) struct Document {
    writer: Option<usize>,
    /// The version whose writing began last, and the one whose writing ended last.
    begun: u64,
    ended: u64,
}

/// Edits a document with others: now it writes, now it reads what another one writes.
pub(super) async fn document(
    context: ProgramContext,
    number: usize,
    user: usize,
    all: Rc<RefCell<Document>>,
) -> Result<(), Violation> {
    let name = format!("document-{number}");
    loop {
        let until = context.now_ms() + context.about(ROLE_MS);
        let writes = all.borrow().writer.is_none() && context.below(2) == 0;
        if writes {
            all.borrow_mut().writer = Some(user);
        }
        while context.now_ms() < until {
            context.pause_about(LOOK_MS).await;
            let dir = shared_names::shared(&context, "documents").await?;
            let (file, _) = context.finds(&dir, &name).await?;
            let open = if writes { WRITES } else { READS };
            context.open(&file, open).await?;
            let ended = all.borrow().ended;
            let read = context.read(&file, 0, DOCUMENT_BYTES).await?;
            let begun = all.borrow().begun;
            let version = version_of(&name, &read)?;
            if !(ended..=begun).contains(&version) {
                return Err(format!("{name} is in version {version}, and {ended} to {begun} is due"));
            }
            if writes {
                all.borrow_mut().begun = version + 1;
                context.write(&file, 0, bytes_of(&name, version + 1, DOCUMENT_BYTES)).await?;
                all.borrow_mut().ended = version + 1;
            }
            context.close(&file, open).await?;
        }
        if writes {
            all.borrow_mut().writer = None;
        }
    }
}

/// The version that the bytes are, which must be whole.
fn version_of(name: &str, read: &[u8]) -> Result<u64, Violation> {
    let text = String::from_utf8_lossy(&read[..read.len().min(60)]).into_owned();
    let version = text.strip_prefix(name).and_then(|rest| rest.trim_start().split(' ').next()?.parse().ok());
    let version = version.ok_or_else(|| format!("{name} begins with {text:?}"))?;
    is_version(name, version, read)?;
    Ok(version)
}

/// Makes a document.
pub(super) async fn installs_document(context: &ProgramContext, number: usize) -> Result<(), Violation> {
    let (dir, name) = (shared_names::shared(context, "documents").await?, format!("document-{number}"));
    context.creates(&dir, &name, bytes_of(&name, 0, DOCUMENT_BYTES)).await.map(drop)
}

/// The pauses of a user of mail, ms: between sessions, over a message, and in writing one.
const MAIL_MS: u64 = 900_000;
const PERUSE_MS: u64 = 15_000;
const COMPOSE_MS: u64 = 120_000;
/// Messages of a session, in the mean, and the messages that a user keeps.
const SENT: u64 = 2;
const KEPT: usize = 20;

/// The messages that have been delivered and not read, by user, with their lengths.
#[derive(Debug, Default)]
pub(super) struct Post {
    unread: BTreeMap<usize, BTreeMap<String, usize>>,
    read: BTreeSet<String>,
    sent: u64,
}

/// Makes the mail directories of a user (maildir).
pub(super) async fn installs_mail(context: &ProgramContext, user: usize) -> Result<(), Violation> {
    let mail = shared_names::shared(context, "mail").await?;
    let own = context.mkdir(&mail, &format!("user-{user}")).await?;
    for name in ["tmp", "new", "cur"] {
        context.mkdir(&own, name).await?;
    }
    Ok(())
}

async fn mail_of(context: &ProgramContext, user: usize) -> Result<FileId, Violation> {
    let mail = shared_names::shared(context, "mail").await?;
    Ok(context.finds(&mail, &format!("user-{user}")).await?.0)
}

/// Reads new mail and sends some.
pub(super) async fn mail(
    context: ProgramContext,
    user: usize,
    users: usize,
    post: Rc<RefCell<Post>>,
) -> Result<(), Violation> {
    let mut kept: Vec<String> = Vec::new();
    loop {
        context.pause_about(MAIL_MS).await;
        let own = mail_of(&context, user).await?;
        let (new, cur) = (context.finds(&own, "new").await?.0, context.finds(&own, "cur").await?.0);
        let due = post.borrow().unread.get(&user).cloned().unwrap_or_default();
        let listed = context.list(&new).await?;
        let found: BTreeSet<&String> = listed.iter().collect();
        if found.len() != listed.len() || due.keys().any(|name| !found.contains(name)) {
            return Err(format!("user {user} has mail {listed:?}, and {due:?} is due"));
        }
        for name in &listed {
            let (file, size) = context.finds(&new, name).await?;
            is_version(name, user as u64, &context.reads(&file, size).await?)?;
            context.pause_about(PERUSE_MS).await;
            let seen = format!("{name}:2,S");
            context.renames((&new, name), (&cur, &seen)).await?;
            post.borrow_mut().read.insert(name.clone());
            let length = post.borrow_mut().unread.entry(user).or_default().remove(name);
            if length.is_some_and(|length| length as u64 != size) {
                return Err(format!("message {name} has {size} bytes, not {length:?}"));
            }
            kept.push(seen);
        }
        while kept.len() > KEPT {
            let oldest = kept.remove(0);
            context.unlink(&cur, &oldest).await?;
        }
        for _ in 0..context.about(SENT) {
            context.pause_about(COMPOSE_MS).await;
            sends(&context, context.below(users as u64) as usize, &post).await?;
        }
    }
}

/// Sends a message: it is written in the receiver's `tmp`, and moved to `new` once it is whole.
async fn sends(context: &ProgramContext, to: usize, post: &Rc<RefCell<Post>>) -> Result<(), Violation> {
    post.borrow_mut().sent += 1;
    let (name, length) = (format!("message-{}", post.borrow().sent), 300 + context.below(3_000) as usize);
    let theirs = mail_of(context, to).await?;
    let (tmp, new) = (context.finds(&theirs, "tmp").await?.0, context.finds(&theirs, "new").await?.0);
    let file = context.creates(&tmp, &name, bytes_of(&name, to as u64, length)).await?;
    context.sync(&file).await?;
    context.renames((&tmp, &name), (&new, &name)).await?;
    // The receiver may have read the message by now.
    match context.find(&new, &name).await? {
        Some((found, _)) if found == file => {
            let mut post = post.borrow_mut();
            if !post.read.contains(&name) {
                post.unread.entry(to).or_default().insert(name, length);
            }
            Ok(())
        }
        Some((found, _)) => Err(format!("{name} is {found}, not {file}")),
        None => Ok(()),
    }
}

/// The pauses of a user of revisions, ms: between sessions, and in editing a file.
const SESSION_MS: u64 = 1_800_000;
const EDIT_MS: u64 = 60_000;
/// The files of the project, those of a session in the mean, and the bytes of each.
const FILES: u64 = 40;
const EDITED: u64 = 5;
const REVISION_BYTES: usize = 2_000;

/// The revision of each file, and who has checked it out.
#[derive(Debug)]
pub(super) struct Revisions {
    revisions: Vec<u64>,
    locked: Vec<Option<usize>>,
}

impl Default for Revisions {
    fn default() -> Revisions {
        Revisions { revisions: vec![1; FILES as usize], locked: vec![None; FILES as usize] }
    }
}

/// Makes the first revision of every file.
pub(super) async fn installs_revisions(context: &ProgramContext) -> Result<(), Violation> {
    let dir = shared_names::shared(context, "revisions").await?;
    for file in 0..FILES {
        let name = format!("file-{file},v");
        context.creates(&dir, &name, bytes_of(&name, 1, REVISION_BYTES)).await?;
    }
    Ok(())
}

/// Checks files out, edits them, and checks them in (RCS).
pub(super) async fn revisions(
    context: ProgramContext,
    names: SharedNames,
    user: usize,
    all: Rc<RefCell<Revisions>>,
) -> Result<(), Violation> {
    loop {
        context.pause_about(SESSION_MS).await;
        let picked: BTreeSet<u64> = (0..context.about(EDITED)).map(|_| context.below(FILES)).collect();
        let mut out = Vec::new();
        for file in picked {
            let at = file as usize;
            // `co -l` refuses a file that another has locked.
            if all.borrow().locked[at].is_some() {
                continue;
            }
            all.borrow_mut().locked[at] = Some(user);
            let revision = all.borrow().revisions[at];
            rewrites(&context, file, revision, revision).await?;
            let work = shared_names::area(&context, &names, user, "work").await?;
            let name = format!("file-{file}");
            context.creates(&work, &name, bytes_of(&name, revision, REVISION_BYTES)).await?;
            out.push((file, revision));
        }
        for (file, revision) in out {
            context.pause_about(EDIT_MS).await;
            let (work, name) =
                (shared_names::area(&context, &names, user, "work").await?, format!("file-{file}"));
            let (copy, size) = context.finds(&work, &name).await?;
            is_version(&name, revision, &context.reads(&copy, size).await?)?;
            context.overwrites(&copy, bytes_of(&name, revision + 1, REVISION_BYTES)).await?;
            rewrites(&context, file, revision, revision + 1).await?;
            context.unlink(&work, &name).await?;
            let mut all = all.borrow_mut();
            (all.revisions[file as usize], all.locked[file as usize]) = (revision + 1, None);
        }
    }
}

/// Writes a file of revisions anew, as RCS does: a file that excludes others is made, and takes the
/// place of the old one once it is whole.
async fn rewrites(context: &ProgramContext, file: u64, revision: u64, next: u64) -> Result<(), Violation> {
    let dir = shared_names::shared(context, "revisions").await?;
    let (name, new) = (format!("file-{file},v"), format!(",file-{file},"));
    let spec = FileSpec::new(FileKind::Regular, 0o444, 0);
    let made = context.make(&dir, &new, spec, Some(WRITES)).await?;
    let made = made.ok_or_else(|| format!("{new} is there, and nobody else has locked the file"))?;
    let (old, size) = context.finds(&dir, &name).await?;
    is_version(&name, revision, &context.reads(&old, size).await?)?;
    context.write(&made, 0, bytes_of(&name, next, REVISION_BYTES)).await?;
    context.close(&made, WRITES).await?;
    context.renames((&dir, &new), (&dir, &name)).await?;
    match context.finds(&dir, &name).await? {
        (found, _) if found == made => Ok(()),
        (found, _) => Err(format!("{name} is {found}, not {made}")),
    }
}
