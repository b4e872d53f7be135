//! Shares in an object store: each is one object, named as its file would be.
//!
//! There is no rename and no sync: a put is atomic, and durable when it is acknowledged. A put
//! without an acknowledgement may have happened, or may still happen. Its row says coming, then
//! going, until the object is deleted. An object that appears even later has no row and does no
//! harm. The next discovery takes it in for the term of a starter lease. A list may be old: a share
//! that it lacks is looked for by name, and a deleted share in it is not found.

use std::{fmt, io, sync::Arc};

use futures_util::{StreamExt, stream};
use namespace::ShareId;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, path::Path,
};
use rustc_hash::FxHashSet;

use crate::{
    backend::{Backend, OpenedShare, ReadAt, ShareFile},
    bridge::Bridge,
    error::DiskError,
    header::HEADER_BYTES,
    share::file_name,
};

/// The most requests of one batch that are under way at once.
const AT_ONCE: usize = 16;
/// The bytes of a request. A share of the usual size is one request.
const STRIDE: usize = 4 << 20;
/// The object that names the owner.
const OWNER: &str = "store";

/// The backend on an object store.
#[derive(Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    root: Path,
    bridge: Bridge,
}

/// The store itself is left out: it knows credentials.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Objects {
    /// Shares below `root`.
    pub fn new(store: Arc<dyn ObjectStore>, root: Path) -> Result<Objects, DiskError> {
        let bridge = Bridge::start().map_err(|e| DiskError::new("starting a thread for", "objects", e))?;
        Ok(Objects { store, root, bridge })
    }

    /// Writes `owner` to the owner object, unless there is one. Returns its content now.
    pub fn claim(&self, owner: &str) -> Result<Vec<u8>, DiskError> {
        let at = self.root.clone().join(OWNER);
        let (store, path, payload) = (self.store.clone(), at.clone(), PutPayload::from(owner.to_owned()));
        let claimed = self.bridge.wait(async move {
            let whose = async || match store.get(&path).await {
                Ok(found) => found.bytes().await.map(Some),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            };
            if let Some(whose) = whose().await? {
                return Ok(whose);
            }
            let unless_there = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match store.put_opts(&path, payload.clone(), unless_there).await {
                Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                    store.put(&path, payload).await?;
                }
                // Another store was faster, or the answer to this request was lost.
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) | Ok(_) => {}
                Err(error) => return Err(error),
            }
            Ok(whose().await?.unwrap_or_default())
        });
        claimed.and_then(|claimed| claimed.map_err(io_error)).map(Vec::from).map_err(failed("claiming", &at))
    }

    /// Whether no share is listed.
    pub fn is_empty(&self) -> Result<bool, DiskError> {
        let at = self.root.clone().join("shares");
        let mut list = self.store.list(Some(&at));
        let first = self.bridge.wait(async move { list.next().await.transpose() });
        first
            .and_then(|first| first.map_err(io_error))
            .map(|first| first.is_none())
            .map_err(failed("listing", &at))
    }

    fn prefix(&self, prefix: u8) -> Path {
        self.root.clone().join("shares").join(format!("{prefix:02x}"))
    }

    /// The object's name: of fixed length, and used whole (leasedb, fault 8).
    fn share(&self, id: &ShareId) -> Path {
        self.prefix(id.0[0]).join(file_name(id))
    }
}

impl Backend for Objects {
    fn is_local(&self) -> bool {
        false
    }

    fn stage(&self, _upload: i64, _files: &[ShareFile]) -> Result<(), DiskError> {
        Ok(())
    }

    /// A failed batch is awaited as a whole. None of its requests is under way when the batch is
    /// abandoned.
    fn place(&self, _upload: i64, files: &[ShareFile]) -> Result<(), DiskError> {
        let puts: Vec<_> = files.iter().map(|file| (self.share(&file.id), payload(file))).collect();
        let store = self.store.clone();
        let placed = self.bridge.wait(async move {
            let put = |(path, payload): (Path, PutPayload)| {
                let store = store.clone();
                async move { (store.put(&path, payload).await.map_err(io_error), path) }
            };
            stream::iter(puts).map(put).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await
        });
        let placed = placed.map_err(|e| DiskError::new("writing", self.root.as_ref(), e))?;
        placed.into_iter().try_for_each(|(put, path)| put.map(drop).map_err(failed("writing", &path)))
    }

    fn discard(&self, _upload: i64, _ids: &[ShareId]) -> Result<(), DiskError> {
        Ok(())
    }

    fn delete(&self, ids: &[ShareId]) -> Vec<(ShareId, DiskError)> {
        let paths: Vec<Path> = ids.iter().map(|id| self.share(id)).collect();
        let deleting = self.store.delete_stream(stream::iter(paths).map(Ok).boxed());
        let deleted = self.bridge.wait(deleting.collect::<Vec<_>>());
        let (mut gone, mut failure) = (FxHashSet::default(), None);
        match deleted {
            Ok(each) => {
                for deleted in each {
                    match deleted {
                        Ok(path) => drop(gone.insert(path.to_string())),
                        Err(Error::NotFound { path, .. }) => drop(gone.insert(path)),
                        Err(error) => failure = Some(io_error(error)),
                    }
                }
            }
            Err(error) => failure = Some(error),
        }
        let failure = Arc::new(failure.unwrap_or_else(|| io::Error::other("the answer does not name it")));
        let left = ids.iter().filter(|id| !gone.contains(self.share(id).as_ref()));
        let error = |id| DiskError { doing: "deleting", path: file_name(id).into(), cause: failure.clone() };
        left.map(|id| (*id, error(id))).collect()
    }

    fn open(&self, id: &ShareId) -> Result<OpenedShare, DiskError> {
        let path = self.share(id);
        let opened = self.bridge.wait(open(self.clone(), path.clone()));
        opened.and_then(|opened| opened).map_err(failed("opening", &path))
    }

    fn open_many(&self, ids: &[ShareId]) -> Vec<Result<OpenedShare, DiskError>> {
        let paths: Vec<Path> = ids.iter().map(|id| self.share(id)).collect();
        let (objects, wanted) = (self.clone(), paths.clone());
        let opening = stream::iter(wanted).map(move |path| open(objects.clone(), path)).buffered(AT_ONCE);
        match self.bridge.wait(opening.collect::<Vec<_>>()) {
            Ok(opened) => paths
                .iter()
                .zip(opened)
                .map(|(path, opened)| opened.map_err(failed("opening", path)))
                .collect(),
            Err(error) => {
                let error = DiskError::new("opening", self.root.as_ref(), error);
                paths.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    fn read_through(&self, id: &ShareId, take: &mut dyn FnMut(&[u8])) -> Result<(), DiskError> {
        let path = self.share(id);
        let mut at = 0;
        loop {
            let reading = get(self.store.clone(), path.clone(), at, STRIDE);
            let read = self.bridge.wait(reading).and_then(|read| read.map_err(io_error));
            let (bytes, of) = read.map_err(failed("reading", &path))?;
            take(&bytes);
            at += bytes.len() as u64;
            if bytes.is_empty() || at >= of {
                return Ok(());
            }
        }
    }

    fn list(&self, prefix: u8) -> Result<Vec<String>, DiskError> {
        let at = self.prefix(prefix);
        let listed = self.bridge.wait(self.store.list(Some(&at)).collect::<Vec<_>>());
        let listed = listed.map_err(failed("listing", &at))?;
        let name = |path: &Path| {
            let below = path.prefix_match(&at)?;
            Some(below.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
        };
        let mut names = Vec::with_capacity(listed.len());
        for each in listed {
            let each = each.map_err(io_error).map_err(failed("listing", &at))?;
            names.extend(name(&each.location));
        }
        Ok(names)
    }
}

/// An object that was found.
#[derive(Debug)]
struct Object {
    objects: Objects,
    path: Path,
}

impl ReadAt for Object {
    fn read_at(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let reading = get(self.objects.store.clone(), self.path.clone(), at, length);
        self.objects.bridge.wait(reading)?.map(|(bytes, _)| bytes).map_err(io_error)
    }
}

async fn open(objects: Objects, path: Path) -> io::Result<OpenedShare> {
    let (head, length) = get(objects.store.clone(), path.clone(), 0, HEADER_BYTES).await.map_err(io_error)?;
    Ok(OpenedShare { head, length, bytes: Box::new(Object { objects, path }) })
}

/// Reads up to `length` bytes from `at` on. Returns them with the object's length.
async fn get(
    store: Arc<dyn ObjectStore>,
    path: Path,
    at: u64,
    length: usize,
) -> object_store::Result<(Vec<u8>, u64)> {
    if length > 0 {
        let range = GetRange::Bounded(at..at.saturating_add(length as u64));
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let got = match store.get_opts(&path, options).await {
            Ok(found) => {
                let of = found.meta.size;
                found.bytes().await.map(|bytes| (Vec::from(bytes), of))
            }
            Err(error) => Err(error),
        };
        match got {
            Ok((mut bytes, of)) => {
                bytes.truncate(length);
                return Ok((bytes, of));
            }
            Err(error @ Error::NotFound { .. }) => return Err(error),
            // A range that begins at the object's end is an error. Each store words it in its own
            // way.
            Err(error) => match store.head(&path).await {
                Ok(meta) if meta.size <= at => {}
                Ok(_) => return Err(error),
                Err(error) => return Err(error),
            },
        }
    }
    Ok((Vec::new(), store.head(&path).await?.size))
}

fn payload(file: &ShareFile) -> PutPayload {
    let header = bytes::Bytes::copy_from_slice(&file.header);
    std::iter::once(header).chain(file.parts.iter().filter(|part| !part.is_empty()).cloned()).collect()
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.to_string();
    move |cause| DiskError::new(doing, path, cause)
}

fn io_error(error: Error) -> io::Error {
    let kind = match &error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
