//! The place of the share files. It is set once and recorded beside the lease database: the store's
//! own directory, or an object store that belongs to this directory alone. Two owners of the same
//! objects would take each other's for strangers and delete them in the end. So one object names
//! the owner.

use std::{fmt, fs, io, path::Path, str::FromStr, sync::Arc};

use object_store::ObjectStore;
use os::private;
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use thiserror::Error;

use crate::{
    backend::Backend,
    database,
    disk::{LocalDisk, replace_file},
    error::{DiskError, OpenError},
    local::LocalFiles,
    objects::Objects,
};

const FILE: &str = "content";

/// A bucket of an S3-compatible object store, and the prefix of the names of all objects in it:
/// `s3://bucket/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    bucket: String,
    prefix: Vec<String>,
}

/// Why a text names no place for shares.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` names no bucket: write s3://BUCKET or s3://BUCKET/PREFIX, of letters, digits, dots, dashes and underscores"
)]
pub struct LocationError(String);

impl Location {
    /// The bucket's name.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The prefix of the names of all objects.
    pub(crate) fn root(&self) -> object_store::path::Path {
        self.prefix.iter().map(String::as_str).collect()
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Location, LocationError> {
        let is_name = |part: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            (1..=255).contains(&part.len()) && part.chars().all(allowed) && !matches!(part, "." | "..")
        };
        let parts: Vec<&str> =
            text.strip_prefix("s3://").into_iter().flat_map(|rest| rest.split('/')).collect();
        match parts.split_first() {
            Some((bucket, prefix)) if parts.iter().all(|part| is_name(part)) && text.len() <= 512 => {
                Ok(Location {
                    bucket: (*bucket).to_owned(),
                    prefix: prefix.iter().map(|part| (*part).to_owned()).collect(),
                })
            }
            _ => Err(LocationError(text.to_owned())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        self.prefix.iter().try_for_each(|part| write!(f, "/{part}"))
    }
}

/// The record of the place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContentRecord {
    location: Location,
    /// The text by which the owner object names this store.
    owner: String,
    /// The owner object is known to be there.
    claimed: bool,
}

impl ContentRecord {
    fn new(location: Location) -> Result<ContentRecord, OpenError> {
        let mut random = [0; 16];
        let failed = |error: Errno| DiskError::new("reading", "the system's random numbers", error.into());
        // So few come whole (getrandom(2)).
        getrandom(&mut random, GetRandomFlags::empty()).map_err(failed)?;
        let owner = format!("leasehold {:032x}\n", u128::from_be_bytes(random));
        Ok(ContentRecord { location, owner, claimed: false })
    }

    fn parse(text: &str) -> Option<ContentRecord> {
        let mut lines = text.lines();
        let location = lines.next()?.parse().ok()?;
        let owner = format!("{}\n", lines.next()?);
        let claimed = match lines.next()? {
            "ours" => true,
            "wanted" => false,
            _ => return None,
        };
        lines.next().is_none().then_some(ContentRecord { location, owner, claimed })
    }

    fn read(dir: &Path) -> Result<Option<ContentRecord>, OpenError> {
        let path = dir.join(FILE);
        match fs::read(&path) {
            Ok(bytes) => {
                let record = String::from_utf8(bytes).ok().and_then(|text| ContentRecord::parse(&text));
                record.map(Some).ok_or(OpenError::Foreign { path })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(DiskError::new("reading", path, e).into()),
        }
    }

    fn save(&self, dir: &Path) -> Result<(), DiskError> {
        let claimed = if self.claimed { "ours" } else { "wanted" };
        let text = format!("{}\n{}{claimed}\n", self.location, self.owner);
        replace_file(&dir.join(FILE), text.as_bytes())
    }
}

/// The place of the shares of `dir`: the recorded one, or `wanted` while there are no shares yet.
/// It applies once there is a share server. `None`: the local disk.
fn settle(dir: &Path, wanted: Option<&Location>) -> Result<Option<ContentRecord>, OpenError> {
    match (ContentRecord::read(dir)?, wanted) {
        (None, None) => Ok(None),
        (Some(record), Some(wanted)) if record.claimed && record.location != *wanted => {
            let (kept, wanted) = (record.location.to_string(), wanted.to_string());
            Err(OpenError::Elsewhere { kept, wanted })
        }
        (None, Some(wanted)) if dir.join("shares").exists() || dir.join(database::FILE).exists() => {
            let (kept, wanted) = (dir.display().to_string(), wanted.to_string());
            Err(OpenError::Elsewhere { kept, wanted })
        }
        (Some(record), wanted) if wanted.is_none_or(|wanted| *wanted == record.location) => Ok(Some(record)),
        (_, Some(wanted)) => ContentRecord::new(wanted.clone()).map(Some),
        (Some(record), None) => Ok(Some(record)),
    }
}

/// Records the place of the shares of `dir`, for a share server that will be made there. Nothing
/// checks that the place can be used.
pub fn remember(dir: &Path, location: &Location) -> Result<(), OpenError> {
    private::make_dir(dir).map_err(|e| DiskError::new("making", dir, e))?;
    match settle(dir, Some(location))? {
        Some(record) if !record.claimed => Ok(record.save(dir)?),
        _ => Ok(()),
    }
}

/// The missing part of a share server that was in `dir`, if one is missing. With shares `elsewhere`
/// that is the record of their place, otherwise the directory of shares. The database counts too,
/// unless it was renamed (`.quarantine-`).
pub fn lacks(dir: &Path, elsewhere: bool) -> Option<String> {
    let is_empty = |file: &Path| fs::metadata(file).map_or(true, |it| it.len() == 0);
    let is_quarantined = |entry: fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with(&format!("{}.quarantine-", database::FILE))
    };
    let moved = || fs::read_dir(dir).into_iter().flatten().flatten().any(is_quarantined);
    if is_empty(&dir.join(database::FILE)) && !moved() {
        return Some(database::FILE.to_owned());
    }
    if elsewhere {
        return is_empty(&dir.join(FILE)).then(|| FILE.to_owned());
    }
    let lacks = |name: &String| !dir.join(name).is_dir();
    std::iter::once("shares".to_owned()).chain((0..=u8::MAX).map(|it| format!("shares/{it:02x}"))).find(lacks)
}

/// Removes the contents of `dir` for a store that begins anew. The record of the place stays: a
/// claimed place keeps its owner.
pub fn clear(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false if entry.file_name() == FILE => {}
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Opens the backend of `dir`, and returns whether it is certainly empty. `wanted` is for a
/// directory without shares. Later it may only repeat the recorded place.
pub(crate) fn open(
    dir: &Path,
    wanted: Option<&Location>,
    connect: impl FnOnce(&Location) -> Result<Arc<dyn ObjectStore>, OpenError>,
) -> Result<(Arc<dyn Backend>, bool), OpenError> {
    let Some(mut record) = settle(dir, wanted)? else {
        let disk = LocalDisk::open(dir)?;
        let is_new = disk.is_new;
        return Ok((Arc::new(LocalFiles::new(Arc::new(disk))), is_new));
    };
    let location = &record.location;
    let objects = Objects::new(connect(location)?, location.root())?;
    if record.claimed {
        return Ok((Arc::new(objects), false));
    }
    // The record comes first, so that the next start recognizes its own claim.
    record.save(dir)?;
    if objects.claim(&record.owner)? != record.owner.as_bytes() {
        return Err(OpenError::Taken { location: location.to_string() });
    }
    let is_new = objects.is_empty()?;
    record.claimed = true;
    record.save(dir)?;
    Ok((Arc::new(objects), is_new))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_with_and_without_a_prefix() {
        for text in ["s3://b", "s3://my-bucket/leasehold", "s3://b.c/d/e_f/1"] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
        for text in
            ["", "s3://", "s3:///a", "s3://b/", "s3://b//c", "s3://b/../c", "http://b", "b/c", "s3://b/c d"]
        {
            text.parse::<Location>().unwrap_err();
        }
    }

    #[test]
    fn what_is_said_before_there_is_a_share_server_is_remembered_until_something_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shares");
        let [one, other] = ["s3://b/one", "s3://b/other"].map(|text| text.parse::<Location>().unwrap());
        remember(&path, &one).unwrap();
        let said = settle(&path, None).unwrap().unwrap();
        remember(&path, &one).unwrap();
        assert_eq!((settle(&path, None).unwrap().as_ref(), &said.location), (Some(&said), &one));
        // The store is still empty, so the place may change.
        remember(&path, &other).unwrap();
        let mut record = settle(&path, None).unwrap().unwrap();
        assert_eq!(record.location, other);
        record.claimed = true;
        record.save(&path).unwrap();
        assert!(matches!(remember(&path, &one), Err(OpenError::Elsewhere { .. })));
        // A store that begins anew finds its own objects again.
        fs::create_dir(path.join("tmp")).unwrap();
        fs::write(path.join(database::FILE), b"rows").unwrap();
        clear(&path).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert_eq!(settle(&path, Some(&other)).unwrap(), Some(record));
        // Shares on the local disk stay there.
        let here = dir.path().join("here");
        clear(&here).unwrap();
        fs::create_dir_all(here.join("shares")).unwrap();
        assert!(matches!(remember(&here, &one), Err(OpenError::Elsewhere { .. })));
    }

    proptest! {
        #[test]
        fn what_parses_is_written_as_it_was(text in "(s3://)?[a-z./ é-]{0,40}") {
            if let Ok(location) = text.parse::<Location>() {
                prop_assert_eq!(location.to_string(), text);
            }
        }

        #[test]
        fn any_text_is_a_record_or_none(text in "(s3://a/b\nx\n(ours|wanted)\n|[a-z/:\n]{0,40})") {
            if let Some(record) = ContentRecord::parse(&text) {
                let written = format!("{}\n{}{}\n", record.location, record.owner, if record.claimed { "ours" } else { "wanted" });
                prop_assert_eq!(written, text);
            }
        }
    }
}
