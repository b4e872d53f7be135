//! An S3 server in this process. s3s speaks the protocol and checks signatures, and keeps nothing;
//! a map keeps the objects of one bucket. It is stricter than S3 in two ways. It does what other
//! servers only may do (a list in many short pages), and it refuses requests that this crate does
//! not need.

use std::{collections::BTreeMap, ops::Bound, sync::LazyLock, time::SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::{
    Body, S3, S3Request, S3Response, S3Result,
    auth::SimpleAuth,
    dto::{
        DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag, GetObjectInput, GetObjectOutput,
        HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, Object, PutObjectInput,
        PutObjectOutput, Timestamp,
    },
    s3_error,
    service::{S3Service, S3ServiceBuilder},
};
use tokio::net::TcpListener;

use crate::bridge::Bridge;

/// The keys in one page of a list.
const PAGE: usize = 3;
const KEY: &str = "test";

/// The environment that reaches the server. The first call starts it.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    static SERVER: LazyLock<(Bridge, String)> = LazyLock::new(|| {
        let bridge = Bridge::start().unwrap();
        let address = bridge.wait(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(serve(listener));
            address
        });
        (bridge, format!("http://{}", address.unwrap()))
    });
    let endpoint = ("AWS_ENDPOINT_URL", SERVER.1.as_str());
    let said = [endpoint, ("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", KEY)];
    said.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))
}

async fn serve(listener: TcpListener) {
    let mut service = S3ServiceBuilder::new(Bucket::default());
    service.set_auth(SimpleAuth::from_single(KEY, KEY));
    let service: S3Service = service.build();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // An answer is two writes.
        stream.set_nodelay(true).unwrap();
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone()));
    }
}

/// The objects by name, each with a tag that tells it from others of that name.
#[derive(Debug, Default)]
struct Bucket(Mutex<(BTreeMap<String, Stored>, u64)>);

#[derive(Clone, Debug)]
struct Stored {
    body: Bytes,
    e_tag: ETag,
    at: Timestamp,
}

impl Bucket {
    fn find(&self, key: &str) -> S3Result<Stored> {
        self.0.lock().0.get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey))
    }
}

fn length(length: usize) -> Option<i64> {
    i64::try_from(length).ok()
}

#[async_trait]
impl S3 for Bucket {
    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let PutObjectInput { key, body, if_match, if_none_match, .. } = request.input;
        let body = body.ok_or_else(|| s3_error!(IncompleteBody))?;
        let parts: Vec<Bytes> = body.try_collect().await.map_err(|_| s3_error!(IncompleteBody))?;
        let unless_there = if_none_match.is_some();
        if if_match.is_some() || if_none_match.is_some_and(|condition| !condition.is_any()) {
            return Err(s3_error!(NotImplemented));
        }
        let (objects, puts) = &mut *self.0.lock();
        if unless_there && objects.contains_key(&key) {
            return Err(s3_error!(PreconditionFailed));
        }
        *puts += 1;
        let e_tag = ETag::Strong(puts.to_string());
        let stored =
            Stored { body: parts.concat().into(), e_tag: e_tag.clone(), at: SystemTime::now().into() };
        objects.insert(key, stored);
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(e_tag), ..PutObjectOutput::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { key, range, .. } = request.input;
        let Stored { body, e_tag, at } = self.find(&key)?;
        let (part, content_range) = match range {
            None => (body, None),
            Some(range) => {
                let part = range.check(body.len() as u64)?;
                let said = format!("bytes {}-{}/{}", part.start, part.end - 1, body.len());
                // The range is within the body.
                (body.slice(part.start as usize..part.end as usize), Some(said))
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            content_length: length(part.len()),
            body: Some(Body::from(part).into()),
            content_range,
            e_tag: Some(e_tag),
            last_modified: Some(at),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let Stored { body, e_tag, at } = self.find(&request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: length(body.len()),
            e_tag: Some(e_tag),
            last_modified: Some(at),
            ..HeadObjectOutput::default()
        }))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let objects = &mut self.0.lock().0;
        let gone = request.input.delete.objects.into_iter().map(|object| {
            objects.remove(&object.key);
            DeletedObject { key: Some(object.key), ..DeletedObject::default() }
        });
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(gone.collect()),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let ListObjectsV2Input { bucket, prefix, continuation_token, start_after, delimiter, .. } =
            request.input;
        if delimiter.is_some() || start_after.is_some() {
            return Err(s3_error!(NotImplemented));
        }
        let prefix = prefix.unwrap_or_default();
        let from = continuation_token.as_ref().map_or(Bound::Included(&prefix), Bound::Excluded);
        let objects = &self.0.lock().0;
        let mut listed = objects
            .range::<String, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(key, stored)| Object {
                key: Some(key.clone()),
                size: length(stored.body.len()),
                e_tag: Some(stored.e_tag.clone()),
                last_modified: Some(stored.at.clone()),
                ..Object::default()
            });
        let contents: Vec<Object> = listed.by_ref().take(PAGE).collect();
        let is_truncated = listed.next().is_some();
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(bucket),
            key_count: i32::try_from(contents.len()).ok(),
            is_truncated: Some(is_truncated),
            next_continuation_token: contents.last().filter(|_| is_truncated).and_then(|o| o.key.clone()),
            contents: Some(contents),
            prefix: Some(prefix),
            ..ListObjectsV2Output::default()
        }))
    }
}
