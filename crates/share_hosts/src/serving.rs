//! A host's end of the connections for shares.

use crate::references::ReferenceIndex;
use crate::share_host::ShareHost;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use net::frames::Frames;
use net::listener::{End, Stream};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use wire::{MachineId, ShareReply, ShareRequest, decode_with_body, encode};

/// How many requests of one connection are worked on at once.
const REQUESTS_MAX: usize = 16;

/// Answers the requests of `machine` to a host's share server, until its connection ends or it
/// `is_refused`. `references` tells the host what files refer to.
pub async fn serve_shares(
    frames: Frames<Stream>,
    share_host: &Arc<ShareHost>,
    references: &Arc<dyn ReferenceIndex>,
    machine: MachineId,
    is_refused: impl Fn() -> Option<String>,
) -> Result<(), End> {
    let (mut sink, mut stream) = frames.split();
    let (done, mut replies) = mpsc::channel::<(ShareReply, Vec<u8>)>(REQUESTS_MAX);
    let at_once = Arc::new(Semaphore::new(REQUESTS_MAX));
    let reading = async {
        while let Some(frame) = stream.next().await {
            let frame = frame?;
            // The request's bytes stay in the buffer that they came in.
            let Ok(permit) = at_once.clone().acquire_owned().await else { break };
            if let Some(why) = is_refused() {
                return Err(End::Refused(why));
            }
            let (ShareRequest { number, what }, body) = request(frame)?;
            let (share_host, references, done) = (share_host.clone(), references.clone(), done.clone());
            tokio::task::spawn_blocking(move || {
                let (results, body) = share_host.answer(machine, what, body, &*references);
                // The connection may have ended meanwhile.
                let _ = done.blocking_send((ShareReply { number, results }, body));
                drop(permit);
            });
        }
        Ok::<(), End>(())
    };
    let writing = async {
        while let Some((reply, body)) = replies.recv().await {
            let mut frame = encode(&reply);
            frame.extend(body);
            sink.feed(Bytes::from(frame)).await?;
            if replies.is_empty() {
                sink.flush().await?;
            }
        }
        Ok::<(), End>(())
    };
    tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    }
}

fn request(frame: BytesMut) -> Result<(ShareRequest, Bytes), wire::FrameError> {
    let frame = frame.freeze();
    let (request, body) = decode_with_body(&frame)?;
    let body = frame.slice_ref(body);
    Ok((request, body))
}
