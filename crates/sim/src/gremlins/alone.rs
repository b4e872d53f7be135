//! The four gremlins that share nothing: a database, texts, a project, and web pages.

use super::shared_names::{self, SharedNames, bytes_of, is_version};
use crate::campus::files::{READS, WRITES};
use crate::campus::program_context::ProgramContext;
use crate::host::Violation;
use ident::FileId;
use std::collections::{BTreeMap, VecDeque};

/// Records of the database, the bytes of each, and the pause between entries, ms.
const RECORDS: u64 = 64;
const RECORD_BYTES: usize = 128;
const ENTRY_MS: u64 = 950;
/// Lines of its journal, and the bytes of each.
const LINES: u64 = 100;
const LINE_BYTES: u64 = 32;

/// Enters data into a database: reads a record, changes it, and notes that in a journal.
pub(super) async fn database(
    context: ProgramContext,
    names: SharedNames,
    user: usize,
) -> Result<(), Violation> {
    let mut versions = vec![0; RECORDS as usize];
    let dir = shared_names::area(&context, &names, user, "database").await?;
    let record = |at: u64, version: u64| bytes_of(&format!("record {at}"), version, RECORD_BYTES);
    let all: Vec<u8> = (0..RECORDS).flat_map(|at| record(at, 0)).collect();
    context.creates(&dir, "table", all).await?;
    context.creates(&dir, "journal", Vec::new()).await?;
    for entry in 0_u64.. {
        context.pause_about(ENTRY_MS).await;
        let dir = shared_names::area(&context, &names, user, "database").await?;
        let (table, _) = context.finds(&dir, "table").await?;
        context.open(&table, WRITES).await?;
        for _ in 0..3 {
            let at = context.below(RECORDS);
            let offset = at * RECORD_BYTES as u64;
            let read = context.read(&table, offset, RECORD_BYTES).await?;
            let version = &mut versions[at as usize];
            is_version(&format!("record {at}"), *version, &read)?;
            *version += 1;
            context.write(&table, offset, record(at, *version)).await?;
        }
        context.close(&table, WRITES).await?;
        let (file, size) = context.finds(&dir, "journal").await?;
        // The journal is a ring.
        let due = LINE_BYTES * entry.min(LINES);
        if size != due {
            return Err(format!("the journal has {size} bytes, not {due}"));
        }
        context.open(&file, WRITES).await?;
        let line = bytes_of("entry", entry, LINE_BYTES as usize);
        context.write(&file, LINE_BYTES * (entry % LINES), line).await?;
        if entry % 20 == 0 {
            context.sync(&file).await?;
        }
        context.close(&file, WRITES).await?;
    }
    Ok(())
}

/// Texts of a user, the pause between saves, ms, and the longest text, bytes.
const TEXTS: u64 = 6;
const SAVE_MS: u64 = 30_000;
const TEXT_BYTES: u64 = 6_000;

/// Edits texts as GNU Emacs does: an auto-save, then the old text becomes the backup, and the new
/// one is made in its place.
pub(super) async fn editor(
    context: ProgramContext,
    names: SharedNames,
    user: usize,
) -> Result<(), Violation> {
    let mut versions: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    loop {
        context.pause_about(SAVE_MS / 2).await;
        let text = context.below(TEXTS);
        let (name, backup, auto) =
            (format!("text-{text}"), format!("text-{text}~"), format!("#text-{text}#"));
        let size = 100 + context.below(TEXT_BYTES);
        let dir = shared_names::area(&context, &names, user, "texts").await?;
        let (version, last) = versions.get(&text).copied().unwrap_or_default();
        let visited = match (version, context.find(&dir, &name).await?) {
            (0, None) => None,
            (1.., Some((file, found))) if found == last => Some(file),
            (_, found) => return Err(format!("{name} in version {version} is {found:?}")),
        };
        if let Some(file) = &visited {
            is_version(&name, version, &context.reads(file, last).await?)?;
        }
        context.creates(&dir, &auto, bytes_of(&name, version + 1, size as usize)).await?;
        context.pause_about(SAVE_MS / 2).await;
        let dir = shared_names::area(&context, &names, user, "texts").await?;
        if let Some(file) = visited {
            if context.finds(&dir, &name).await?.0 != file {
                return Err(format!("{name} has changed since it was visited"));
            }
            if version > 1 {
                context.finds(&dir, &backup).await?;
                context.unlink(&dir, &backup).await?;
            }
            context.misses(&dir, &backup).await?;
            context.renames((&dir, &name), (&dir, &backup)).await?;
        }
        context.misses(&dir, &name).await?;
        let saved = context.creates(&dir, &name, bytes_of(&name, version + 1, size as usize)).await?;
        context.sync(&saved).await?;
        context.stat(&saved).await?;
        context.unlink(&dir, &auto).await?;
        versions.insert(text, (version + 1, size));
    }
}

/// Sources and headers of a project, the pause between builds, ms, and the bytes of a source.
const SOURCES: usize = 24;
const HEADERS: usize = 8;
const BUILD_MS: u64 = 120_000;
const SOURCE_BYTES: usize = 3_000;

/// Edits, compiles and links a project.
pub(super) async fn project(
    context: ProgramContext,
    names: SharedNames,
    user: usize,
) -> Result<(), Violation> {
    let dir = shared_names::area(&context, &names, user, "project").await?;
    let header = |at: usize| format!("header-{at}.h");
    let source = |at: usize| format!("source-{at}.c");
    let object = |at: usize| format!("source-{at}.o");
    let (sources, objects) = (context.mkdir(&dir, "src").await?, context.mkdir(&dir, "obj").await?);
    for at in 0..HEADERS {
        context.creates(&sources, &header(at), bytes_of(&header(at), 0, SOURCE_BYTES)).await?;
    }
    for at in 0..SOURCES {
        context.creates(&sources, &source(at), bytes_of(&source(at), 1, SOURCE_BYTES)).await?;
    }
    let (mut versions, mut built) = (vec![1_u64; SOURCES], vec![0_u64; SOURCES]);
    for build in 0_u64.. {
        context.pause_about(BUILD_MS).await;
        let dir = shared_names::area(&context, &names, user, "project").await?;
        let (sources, _) = context.finds(&dir, "src").await?;
        let (objects_now, _) = context.finds(&dir, "obj").await?;
        if objects_now != objects {
            return Err(format!("obj is {objects_now}, not {objects}"));
        }
        for _ in 0..context.about(3) {
            let at = context.below(SOURCES as u64) as usize;
            let (file, size) = context.finds(&sources, &source(at)).await?;
            is_version(&source(at), versions[at], &context.reads(&file, size).await?)?;
            versions[at] += 1;
            context.overwrites(&file, bytes_of(&source(at), versions[at], SOURCE_BYTES)).await?;
        }
        // make looks at everything.
        for at in 0..HEADERS {
            let (file, _) = context.finds(&sources, &header(at)).await?;
            context.stat(&file).await?;
        }
        for at in 0..SOURCES {
            let (file, size) = context.finds(&sources, &source(at)).await?;
            let compiled = context.find(&objects, &object(at)).await?;
            if versions[at] == built[at] {
                continue;
            }
            is_version(&source(at), versions[at], &context.reads(&file, size).await?)?;
            for at in 0..HEADERS {
                let (file, size) = context.finds(&sources, &header(at)).await?;
                is_version(&header(at), 0, &context.reads(&file, size).await?)?;
            }
            let code = bytes_of(&object(at), versions[at], SOURCE_BYTES);
            match compiled {
                Some((file, _)) => context.overwrites(&file, code).await?,
                None => _ = context.creates(&objects, &object(at), code).await?,
            }
            built[at] = versions[at];
        }
        link(&context, &objects, &built, build).await?;
    }
    Ok(())
}

/// Links the objects, which are those of the last build.
async fn link(
    context: &ProgramContext,
    objects: &FileId,
    built: &[u64],
    build: u64,
) -> Result<(), Violation> {
    for (at, version) in built.iter().enumerate() {
        let name = format!("source-{at}.o");
        let (file, size) = context.finds(objects, &name).await?;
        is_version(&name, *version, &context.reads(&file, size).await?)?;
    }
    if context.find(objects, "program").await?.is_some() {
        context.unlink(objects, "program").await?;
    }
    context.creates(objects, "program", bytes_of("program", build, 20_000)).await?;
    Ok(())
}

/// The pause between pages, ms, the parts of a page, the pages of the web, and the parts that the
/// cache keeps.
const PAGE_MS: u64 = 8_000;
const PARTS: u64 = 6;
const PAGES: u64 = 80;
const CACHED: usize = 200;

/// Downloads web pages into a cache, and retrieves them from it.
pub(super) async fn web(context: ProgramContext, names: SharedNames, user: usize) -> Result<(), Violation> {
    let mut cached: VecDeque<String> = VecDeque::new();
    for download in 0_u64.. {
        context.pause_about(PAGE_MS).await;
        let dir = shared_names::area(&context, &names, user, "web").await?;
        // Some pages are looked at much more often than others.
        let page = context.below(1 + context.below(PAGES));
        for part in 0..PARTS {
            let name = format!("page-{page}-{part}");
            let found = context.find(&dir, &name).await?;
            if found.is_some() != cached.contains(&name) {
                return Err(format!("{name} is {found:?} in the cache"));
            }
            if let Some((file, size)) = found {
                is_version(&name, 0, &context.reads(&file, size).await?)?;
                continue;
            }
            let size = 200 + context.below(4_000) as usize;
            let new = format!("new-{download}-{part}");
            let file = context.creates(&dir, &new, bytes_of(&name, 0, size)).await?;
            context.renames((&dir, &new), (&dir, &name)).await?;
            context.open(&file, READS).await?;
            is_version(&name, 0, &context.read(&file, 0, size).await?)?;
            context.close(&file, READS).await?;
            cached.push_back(name);
            if cached.len() > CACHED
                && let Some(oldest) = cached.pop_front()
            {
                context.unlink(&dir, &oldest).await?;
            }
        }
    }
    Ok(())
}
