//! Renames of named streams.

use crate::bed::{ALL, READ};
use crate::bed::{Bed, content, open_if, request};
use lease::caching::Sharing;
use objects::{CreateDisposition, Deletion, ObjectPath, OpenRequest, StoreError, Target};

fn to(path: &str, replace: bool) -> Target {
    let path = ObjectPath::parse(path, false).unwrap();
    Target { path, replace, posix: false, ignore_read_only: false }
}

async fn of(bed: &Bed, name: &str) -> Result<Vec<u8>, StoreError> {
    let open = bed.open(name, request(READ, Sharing::ALL)).await?.open;
    let content = content(&open).await;
    open.close(false).await?;
    Ok(content)
}

#[tokio::test]
async fn a_refused_rename_of_a_stream_loses_nothing() {
    let bed = Bed::new().await;
    let stream = bed.file("f:s", b"stream").await;
    bed.file("f:other", b"other").await.close(false).await.unwrap();
    let long = format!(":{}", "x".repeat(255));
    for replace in [false, true] {
        assert_eq!(stream.rename(to(&long, replace)).await, Err(StoreError::InvalidName));
        assert_eq!(of(&bed, "f:s").await.unwrap(), b"stream");
    }
    assert_eq!(stream.rename(to(":other", false)).await, Err(StoreError::NameCollision));
    let other = bed.open("f:other", request(READ, Sharing::ALL)).await.unwrap().open;
    assert_eq!(stream.rename(to(":OTHER", true)).await, Err(StoreError::Invalid), "it is open");
    other.close(false).await.unwrap();
    assert_eq!(
        (of(&bed, "f:s").await.unwrap(), of(&bed, "f:other").await.unwrap()),
        (b"stream".to_vec(), b"other".to_vec())
    );
    // A file has 256 KiB of streams, and no room for this one twice.
    let big = bed.file("f:big", &[7; 65_000]).await;
    for name in ["f:b", "f:c", "f:d"] {
        bed.file(name, &[1; 60_000]).await.close(false).await.unwrap();
    }
    for name in [":big2", ":BIG", ":other", ":OTHER"] {
        let refused = big.rename(to(name, true)).await;
        assert!(matches!(refused, Err(StoreError::DiskFull | StoreError::TooBig)), "{refused:?}");
        assert_eq!(of(&bed, "f:big").await.unwrap(), [7; 65_000]);
        assert_eq!(of(&bed, "f:other").await.unwrap(), b"other");
    }
    assert_eq!(big.path(), "f:big");
    assert_eq!(content(&big).await, [7; 65_000]);
}

#[tokio::test]
async fn an_open_stream_has_the_name_that_it_was_given() {
    let bed = Bed::new().await;
    let (stream, also) = (bed.file("f:s", b"stream").await, bed.file("F:S", b"stream").await);
    bed.file("f:other", b"other").await.close(false).await.unwrap();
    for (name, replace) in [("new", false), ("NEW", false), ("Other", true)] {
        stream.rename(to(&format!(":{name}"), replace)).await.unwrap();
        for open in [&stream, &also] {
            assert_eq!(open.path(), format!("f:{name}"));
            assert_eq!(content(open).await, b"stream");
            assert_eq!(open.info().await.unwrap().size, 6);
        }
    }
    let file = bed.open("f", request(ALL, Sharing::ALL)).await.unwrap().open;
    let shown = file.streams().await.unwrap().into_iter().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(shown, ["", "Other"]);
    stream.write(0, b"S".as_slice().into(), false).await.unwrap();
    assert_eq!(of(&bed, "f:other").await.unwrap(), b"Stream");
    // The old name is another stream's from now on, and share modes are those of the new one.
    let old = OpenRequest { disposition: CreateDisposition::Create, ..open_if() };
    bed.open("f:s", old).await.unwrap().open.close(false).await.unwrap();
    let alone = bed.open("f:other", request(READ, Sharing(0))).await;
    assert_eq!(alone.err(), Some(StoreError::SharingViolation));
    also.close(false).await.unwrap();
    stream.set_deletion(Deletion { delete: true, ..Deletion::default() }).await.unwrap();
    stream.close(false).await.unwrap();
    let shown = file.streams().await.unwrap().into_iter().map(|it| it.name).collect::<Vec<_>>();
    assert_eq!(shown, ["", "s"], "the deletion took the name that the stream has");
}

#[tokio::test]
async fn a_stream_becomes_the_content() {
    let bed = Bed::new().await;
    bed.file("f", b"a longer content").await.close(false).await.unwrap();
    let stream = bed.file("f:s", b"stream").await;
    stream.rename(to("::$DATA", true)).await.unwrap();
    assert_eq!(of(&bed, "f").await.unwrap(), b"stream");
    assert_eq!(of(&bed, "f:s").await, Err(StoreError::NotFound));
}
