//! `--metrics`: Prometheus' text over HTTP, at /metrics.
//!
//! Latencies are recorded as operations end. All other figures are read from the running machine at
//! each scrape.

mod list;

use crate::Failure;
use admin::LiveReport;
use file_service::Activity;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use list::{LATENCY, METRICS, Type};
use metrics::{Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};

/// Upper bounds of the latency buckets, seconds.
const BUCKETS: [f64; 16] = [
    0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0,
    5.0, 30.0,
];
/// How often latencies are sorted into their buckets, also without scrapes: unsorted ones take
/// memory.
const UPKEEP: Duration = Duration::from_secs(5);
/// How long a connection may last.
const CONNECTION: Duration = Duration::from_secs(60);
/// Connections at once.
const CONNECTIONS: usize = 16;
/// The pause after a failed accept: descriptors may be used up.
const PAUSE: Duration = Duration::from_millis(100);

const META: Metadata<'static> = Metadata::new("leasehold", Level::INFO, None);

/// A bound port that does not answer yet.
pub struct Endpoint(TcpListener);

impl Endpoint {
    /// Binds the port.
    pub fn bind(address: SocketAddr) -> Result<Endpoint, Failure> {
        let bound = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(Endpoint(listener))
        });
        bound.map_err(|error| format!("cannot serve metrics at {address} (--metrics): {error}").into())
    }

    /// Answers from now on, for the machine on `data`. Returns the address.
    pub fn serve(self, data: &Path, activity: Option<&Arc<Activity>>) -> Result<SocketAddr, Failure> {
        let address = self.0.local_addr()?;
        let latencies = latencies(activity)?;
        let data = data.to_path_buf();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            if let Err(error) = runtime.block_on(accept(self.0, data, latencies)) {
                tracing::error!(%error, "metrics are not served any more");
            }
        })?;
        Ok(address)
    }
}

/// Starts the recording of latencies.
fn latencies(activity: Option<&Arc<Activity>>) -> Result<PrometheusHandle, BuildError> {
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(LATENCY.name.to_owned()), &BUCKETS)?
        .build_recorder();
    recorder.describe_histogram(LATENCY.name.into(), Some(Unit::Seconds), LATENCY.meaning.into());
    if let Some(activity) = activity {
        activity.measure(|kind, door| {
            let labels = vec![Label::new("kind", kind.name()), Label::new("door", door)];
            recorder.register_histogram(&Key::from_parts(LATENCY.name, labels), &META)
        });
    }
    Ok(recorder.handle())
}

/// Returns the answer to a scrape, without the latencies. Metrics that the machine has no figure
/// for are left out.
fn exposition(report: &LiveReport) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    for metric in METRICS {
        let name = metric.name;
        match metric.kind {
            Type::Counter => recorder.describe_counter(name.into(), None, metric.meaning.into()),
            Type::Gauge => recorder.describe_gauge(name.into(), None, metric.meaning.into()),
        }
        (metric.read)(report, &mut |labels, value| {
            let labels = labels.iter().map(|(label, is)| Label::new(*label, is.clone())).collect::<Vec<_>>();
            let key = Key::from_parts(name, labels);
            match metric.kind {
                Type::Counter => recorder.register_counter(&key, &META).absolute(value as u64),
                Type::Gauge => recorder.register_gauge(&key, &META).set(value),
            }
        });
    }
    recorder.handle().render()
}

async fn accept(listener: TcpListener, data: PathBuf, latencies: PrometheusHandle) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let sorting = latencies.clone();
    tokio::spawn(async move {
        let mut due = interval(UPKEEP);
        loop {
            due.tick().await;
            sorting.run_upkeep();
        }
    });
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let data: Arc<Path> = data.into();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (data, latencies) = (data.clone(), latencies.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, data.clone(), latencies.clone()));
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The scraper may have disconnected, or may stay silent.
            let _ = timeout(CONNECTION, served).await;
            drop(place);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    data: Arc<Path>,
    latencies: PrometheusHandle,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let said = |status, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    };
    if !matches!(request.method(), &Method::GET | &Method::HEAD) {
        return Ok(said(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()));
    }
    if request.uri().path() != "/metrics" {
        return Ok(said(StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()));
    }
    let scraped = tokio::task::spawn_blocking(move || {
        admin::ask_live(&data, false).map(|report| exposition(&report) + &latencies.render())
    });
    Ok(match scraped.await {
        Ok(Ok(text)) => {
            let mut response = said(StatusCode::OK, text);
            let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
            response
        }
        Ok(Err(error)) => said(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(error) => said(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    })
}

#[cfg(test)]
pub mod tests;
