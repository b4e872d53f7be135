//! A flaky object store. It counts its steps, fails or falls silent at a chosen one, loses answers,
//! and lists an earlier state.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};
use parking_lot::Mutex;

use super::trouble::{StepResult, Trouble};

/// The number of changes by which a list may be behind.
const REMEMBERED: usize = 6;

#[derive(Debug)]
pub struct Flaky {
    inner: Arc<dyn ObjectStore>,
    trouble: Arc<Trouble>,
    memory: Arc<Memory>,
}

/// The changes that lists may not show yet. The connections to one store share them.
#[derive(Debug, Default)]
pub struct Memory {
    /// Lists do not show the last changes.
    pub stale: AtomicBool,
    changes: Mutex<VecDeque<Change>>,
}

/// The listed entry of a name before its change.
#[derive(Debug)]
struct Change {
    path: Path,
    before: Option<ObjectMeta>,
}

impl Flaky {
    pub fn new(inner: Arc<dyn ObjectStore>, trouble: Arc<Trouble>, memory: Arc<Memory>) -> Flaky {
        Flaky { inner, trouble, memory }
    }
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flaky {}", self.inner)
    }
}

fn error(error: std::io::Error) -> Error {
    Error::Generic { store: "flaky", source: Box::new(error) }
}

fn told(told: StepResult) -> Result<()> {
    told.told().map_err(error)
}

impl Memory {
    async fn note(&self, inner: &dyn ObjectStore, path: &Path) {
        let change = Change { path: path.clone(), before: inner.head(path).await.ok() };
        let mut changes = self.changes.lock();
        changes.push_back(change);
        if changes.len() > REMEMBERED {
            changes.pop_front();
        }
    }

    fn as_it_was(&self, prefix: Option<&Path>, listed: Vec<ObjectMeta>) -> Vec<ObjectMeta> {
        let mut listed = listed;
        for Change { path, before } in self.changes.lock().iter().rev() {
            if prefix.is_none_or(|prefix| path.prefix_matches(prefix)) {
                listed.retain(|meta| meta.location != *path);
                listed.extend(before.clone());
            }
        }
        listed
    }
}

#[async_trait]
impl ObjectStore for Flaky {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let step = self.trouble.step("put").map_err(error)?;
        self.memory.note(&*self.inner, path).await;
        let put = self.inner.put_opts(path, payload, options).await?;
        told(step).map(|()| put)
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("a share is put in one piece")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let step = self.trouble.step("get").map_err(error)?;
        let got = self.inner.get_opts(path, options).await?;
        told(step).map(|()| got)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, trouble, memory) = (self.inner.clone(), self.trouble.clone(), self.memory.clone());
        let delete = move |path: Result<Path>| {
            let (inner, trouble, memory) = (inner.clone(), trouble.clone(), memory.clone());
            async move {
                let path = path?;
                let step = trouble.step("delete").map_err(error)?;
                memory.note(&*inner, &path).await;
                inner.delete(&path).await?;
                told(step).map(|()| path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, trouble, memory) = (self.inner.clone(), self.trouble.clone(), self.memory.clone());
        let prefix = prefix.cloned();
        let listing = async move {
            let step = trouble.step("list").map_err(error)?;
            let mut listed: Vec<ObjectMeta> = inner.list(prefix.as_ref()).try_collect().await?;
            if memory.stale.load(Ordering::Relaxed) {
                listed = memory.as_it_was(prefix.as_ref(), listed);
            }
            told(step)?;
            Ok::<_, Error>(stream::iter(listed).map(Ok))
        };
        stream::once(listing).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("nobody asks for it")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("nobody asks for it")
    }
}
