//! Names: case, folds, lengths, links, listings, changes.

use crate::bed::{Bed, READ, open_if, pause, request};
use lease::caching::Sharing;
use objects::{CreateDisposition, CreateOptions, Listing, ObjectPath, OpenRequest, StoreError, Target};

fn posix() -> OpenRequest {
    OpenRequest { is_posix: true, ..open_if() }
}

async fn names(bed: &Bed, dir: &str, pattern: &str) -> Result<Vec<String>, StoreError> {
    let dir = bed.open(dir, request(READ, Sharing::ALL)).await?.open;
    let listing = Listing { pattern: Some(pattern.to_owned()), limit: 1000, ..Listing::default() };
    let mut names: Vec<String> = dir.list(listing).await?.into_iter().map(|entry| entry.name).collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn names_are_found_without_regard_to_case() {
    let bed = Bed::new().await;
    drop(bed.directory("Verzeichnis Ä").await);
    drop(bed.file("verzeichnis ä\\Datei ß.TXT", b"x").await);
    let opened = bed.open("VERZEICHNIS Ä\\DATEI ß.txt", request(READ, Sharing::ALL)).await.unwrap();
    assert_eq!(opened.open.path(), "Verzeichnis Ä\\Datei ß.TXT");
    let create = OpenRequest { disposition: CreateDisposition::Create, ..open_if() };
    let again = bed.open("verzeichnis ä\\datei ß.txt", create).await;
    assert_eq!(again.err(), Some(StoreError::NameCollision));
    // With POSIX' rules three names stand side by side.
    for (name, content) in [("abc", "1"), ("ABC", "2"), ("Abc", "3")] {
        let open = bed.open(name, posix()).await.unwrap().open;
        open.write(0, content.into(), false).await.unwrap();
    }
    for (name, content) in [("abc", "1"), ("ABC", "2"), ("Abc", "3"), ("aBC", "2")] {
        let open = bed.open(name, request(READ, Sharing::ALL)).await.unwrap().open;
        assert_eq!(open.read(0, 1).await.unwrap().concat(), content.as_bytes(), "{name}");
    }
    let long = "ä".repeat(127);
    drop(bed.file(&long, b"").await);
    assert!(bed.open(&"Ä".repeat(127), request(READ, Sharing::ALL)).await.is_ok());
    assert_eq!(bed.open(&"a".repeat(256), open_if()).await.err(), Some(StoreError::InvalidName));
    for name in ["a*b", "a?", "a\"b", "a<", "a|b"] {
        assert_eq!(bed.open(name, open_if()).await.err(), Some(StoreError::InvalidName), "{name}");
    }
    assert_eq!(bed.open("..\\x", open_if()).await.err(), Some(StoreError::LeavesShare));
}

#[tokio::test]
async fn a_name_changes_its_case_alone() {
    let bed = Bed::new().await;
    let file = bed.file("abc", b"x").await;
    let to = |path: &str, replace| Target {
        path: ObjectPath::parse(path, false).unwrap(),
        replace,
        posix: false,
        ignore_read_only: false,
    };
    file.rename(to("ABC", false)).await.unwrap();
    assert_eq!(names(&bed, "", "a*").await.unwrap(), ["ABC"]);
    drop(bed.file("Other", b"y").await);
    assert_eq!(file.rename(to("other", false)).await, Err(StoreError::NameCollision));
    file.rename(to("OTHER", true)).await.unwrap();
    assert_eq!(names(&bed, "", "*").await.unwrap(), [".", "..", "OTHER"]);
    file.link(to("second", false)).await.unwrap();
    assert_eq!(file.info().await.unwrap().links, 2);
    assert_eq!(file.link(to("SECOND", false)).await, Err(StoreError::NameCollision));
}

#[tokio::test]
async fn listings_go_on_where_they_stopped() {
    let bed = Bed::new().await;
    let dir = bed.directory("d").await;
    for number in 0..40 {
        drop(bed.file(&format!("d\\File {number:02}.txt"), b"").await);
    }
    let dir_open = bed.open("d", request(READ, Sharing::ALL)).await.unwrap().open;
    let page = |limit, restart, resume| Listing { limit, restart, resume, ..Listing::default() };
    let mut all = Vec::new();
    loop {
        match dir_open.list(page(7, false, None)).await {
            Ok(entries) => all.extend(entries),
            Err(error) => break assert_eq!(error, StoreError::NoMoreFiles),
        }
    }
    assert_eq!(all.len(), 42);
    assert_eq!((all[0].name.as_str(), all[1].name.as_str()), (".", ".."));
    let again = dir_open.list(page(100, true, None)).await.unwrap();
    let shown = |entries: &[objects::ListedEntry]| -> Vec<(String, u64)> {
        entries.iter().map(|entry| (entry.name.clone(), entry.index)).collect()
    };
    assert_eq!(shown(&again), shown(&all));
    let rest = dir_open.list(page(100, false, Some(all[30].index))).await.unwrap();
    assert_eq!(shown(&rest), shown(&all[31..]));
    assert_eq!(names(&bed, "d", "file 1?.TXT").await.unwrap().len(), 10);
    assert_eq!(names(&bed, "d", "*3.txt").await.unwrap().len(), 4);
    assert_eq!(names(&bed, "d", "FILE 07.txt").await.unwrap(), ["File 07.txt"]);
    assert_eq!(names(&bed, "d", "none").await, Err(StoreError::NoSuchFile));
    drop(dir);
}

#[tokio::test]
async fn watches_are_told_of_changes() {
    let bed = Bed::new().await;
    let dir = bed.directory("d").await;
    let watch = dir.watch(0x1 | 0x2 | 0x10, true, 1 << 16).unwrap();
    drop(bed.directory("d\\e").await);
    let file = bed.file("d\\e\\f", b"x").await;
    pause().await;
    let changes = watch.changes().await.unwrap();
    let shown: Vec<_> = changes.iter().map(|change| (change.action, change.path.as_str())).collect();
    assert_eq!(shown, [(1, "e"), (1, "e\\f"), (3, "e\\f")]);
    let path = ObjectPath::parse("d\\e\\g", false).unwrap();
    file.rename(Target { path, replace: false, posix: false, ignore_read_only: false }).await.unwrap();
    let changes = watch.changes().await.unwrap();
    let shown: Vec<_> = changes.iter().map(|change| (change.action, change.path.as_str())).collect();
    assert_eq!(shown, [(4, "e\\f"), (5, "e\\g")]);
    drop(bed.directory("d\\k").await);
    pause().await;
    assert_eq!(watch.changes().await.unwrap().len(), 1, "the directory");
    let path = ObjectPath::parse("d\\k\\h", false).unwrap();
    file.rename(Target { path, replace: false, posix: false, ignore_read_only: false }).await.unwrap();
    let changes = watch.changes().await.unwrap();
    let shown: Vec<_> = changes.iter().map(|change| (change.action, change.path.as_str())).collect();
    assert_eq!(shown, [(2, "e\\g"), (1, "k\\h")], "between directories it goes and comes");
    dir.close(false).await.unwrap();
    assert_eq!(watch.changes().await, Err(StoreError::Closed));
}

#[tokio::test]
async fn a_watch_ends_with_its_directory() {
    let bed = Bed::new().await;
    let dir = bed.directory("d").await;
    let watch = dir.watch(0x1, false, 1 << 16).unwrap();
    let options = CreateOptions(CreateOptions::DIRECTORY | CreateOptions::DELETE_ON_CLOSE);
    let deletes = bed.open("d", OpenRequest { options, ..open_if() }).await.unwrap().open;
    deletes.close(false).await.unwrap();
    assert_eq!(watch.changes().await, Err(StoreError::DeletePending));
    let late = dir.watch(0x1, false, 1 << 16);
    assert_eq!(late.err(), Some(StoreError::DeletePending), "one that came too late would wait for ever");
}
