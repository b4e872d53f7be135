//! The connection to an S3-compatible object store: requests over HTTP or TLS, repeated where that
//! is safe.

use std::{env, error::Error, sync::Arc, time::Duration};

use async_trait::async_trait;
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector as Tcp},
    rt::{TokioExecutor, TokioTimer},
};
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
        HttpService,
    },
};

use crate::{content::Location, error::OpenError};

/// The limit of one request with its answer: a few MiB over a slow line.
const REQUEST: Duration = Duration::from_secs(20);
/// The time after which retries stop. Other hosts have copies, and their clients do not wait.
const RETRIES: Duration = Duration::from_secs(40);
/// The most bytes of an answer: a part of a share, or a page of a list.
const ANSWER_MAX: usize = 64 << 20;

/// Connects by the environment. Endpoint and credentials are in the usual variables that begin with
/// `AWS_`.
pub(crate) fn connect(location: &Location) -> Result<Arc<dyn ObjectStore>, OpenError> {
    connect_as(
        location,
        env::vars_os().filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok())),
    )
}

/// As [`connect`], with the given environment. No request is sent yet.
pub(crate) fn connect_as(
    location: &Location,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    };
    let named = environment.filter(|(name, _)| name.starts_with("AWS_"));
    let keys = named.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)));
    let builder = keys
        .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
        .with_bucket_name(location.bucket())
        .with_retry(RetryConfig { backoff, max_retries: 8, retry_timeout: RETRIES })
        .with_http_connector(Connector);
    let refused = |why: &str| OpenError::Objects { location: location.to_string(), why: why.to_owned() };
    for (key, name) in [
        (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (AmazonS3ConfigKey::SecretAccessKey, "AWS_SECRET_ACCESS_KEY"),
    ] {
        // Otherwise the library would ask the network for an identity.
        if builder.get_config_value(&key).is_none() {
            return Err(refused(&format!("set {name} in the environment")));
        }
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    // A URL with http is meant so. Shares are encrypted by their writers.
    let in_clear = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    let store = if in_clear { builder.with_allow_http(true) } else { builder }.build();
    Ok(Arc::new(store.map_err(|error| refused(&error.to_string()))?))
}

/// Makes the HTTP client of this module.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(crypto::provider())
            .map_err(|error| object_store::Error::Generic { store: "S3", source: Box::new(error) })?
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(tls);
        Ok(HttpClient::new(Http(client)))
    }
}

/// An HTTP/1.1 client with kept connections. An answer is handed on when it is complete: it is
/// small, so one time limit is enough.
#[derive(Debug)]
struct Http(Client<HttpsConnector<Tcp>, HttpRequestBody>);

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let exchange = async {
            let answer = self.0.request(request).await.map_err(|error| {
                let kind =
                    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
                HttpError::new(kind, error)
            })?;
            let (head, body) = answer.into_parts();
            let cut_short =
                |error: Box<dyn Error + Send + Sync>| HttpError::new_boxed(HttpErrorKind::Interrupted, error);
            let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(cut_short)?.to_bytes();
            Ok(HttpResponse::from_parts(head, body.into()))
        };
        let late = |error| HttpError::new(HttpErrorKind::Timeout, error);
        tokio::time::timeout(REQUEST, exchange).await.map_err(late)?
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
        thread::{self, JoinHandle},
    };

    use object_store::ObjectStoreExt;

    use super::*;
    use crate::bridge::Bridge;

    const FINE: &str = "HTTP/1.1 200 OK\r\nETag: \"x\"\r\nContent-Length: 0\r\n\r\n";
    const BUSY: &str = "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n";
    /// An answer that ends the connection without a response.
    const LOST: &str = "";
    const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";

    /// Answers requests one by one and returns their bodies.
    fn serve(answers: &'static [&'static str]) -> (Arc<dyn ObjectStore>, JoinHandle<Vec<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let mut connection = None;
            let answer = |answer: &&str| {
                let mut stream =
                    connection.take().unwrap_or_else(|| BufReader::new(listener.accept().unwrap().0));
                let (mut line, mut length) = (String::new(), 0);
                while line != "\r\n" {
                    line.clear();
                    stream.read_line(&mut line).unwrap();
                    if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = text.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                if !answer.is_empty() {
                    stream.get_mut().write_all(answer.as_bytes()).unwrap();
                    connection = Some(stream);
                }
                body
            };
            answers.iter().map(answer).collect()
        });
        let keys =
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name.to_owned(), "secret".to_owned()));
        let environment = keys.into_iter().chain([("AWS_ENDPOINT_URL".to_owned(), endpoint)]);
        (connect_as(&"s3://bucket".parse().unwrap(), environment).unwrap(), server)
    }

    fn put(store: Arc<dyn ObjectStore>) -> object_store::Result<()> {
        let put = async move { store.put(&"name".into(), "body".into()).await.map(drop) };
        Bridge::start().unwrap().wait(put).unwrap()
    }

    #[test]
    fn what_is_busy_or_does_not_answer_is_asked_again_with_the_same() {
        let (store, server) = serve(&[BUSY, LOST, BUSY, FINE]);
        put(store).unwrap();
        assert_eq!(server.join().unwrap(), [b"body"; 4]);
    }

    #[test]
    fn a_refusal_is_final_and_tells_no_secret() {
        let (store, server) = serve(&[REFUSED]);
        let error = put(store.clone()).unwrap_err();
        assert!(matches!(error, object_store::Error::PermissionDenied { .. }), "{error}");
        assert_eq!(server.join().unwrap().len(), 1);
        let objects = crate::objects::Objects::new(store, "root".into()).unwrap();
        assert!(!format!("{error:?} {error} {objects:?}").contains("secret"));
    }

    #[test]
    fn who_says_not_who_he_is_is_told_so_and_nobody_is_asked() {
        let location = "s3://bucket/prefix".parse().unwrap();
        let error = connect_as(&location, [].into_iter()).unwrap_err().to_string();
        assert!(error.contains("AWS_ACCESS_KEY_ID"), "{error}");
    }
}
