//! A program's connection to one share server, as the machine that it runs on. It carries one
//! question after the other, on the thread that asks.

use crate::CertificateError;
use crate::call::{End, Stream, ask};
use crate::content::since;
use crate::credential_store::Caller;
use crate::frames::{self, Frames};
use bytes::Bytes;
use namespace::Error;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use wire::{
    GreetingError, Purpose, ShareCall, ShareReply, ShareRequest, Version, Welcome, decode_with_body, encode,
};

/// How long the server may take for each step.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Why the share server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum CarrierError {
    /// This machine's keys cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The server does not answer, or not as one of ours.
    #[error("the share server at {address} cannot be asked: {why}")]
    Asking {
        /// The address that was called.
        address: String,
        /// The cause.
        why: String,
    },
    /// The server's version does not know the question.
    #[error(
        "the share server at {address} runs a leasehold that is too old for this; install a newer one there"
    )]
    TooOld {
        /// The address that was called.
        address: String,
    },
}

/// A blocking connection to one share server.
pub struct ShareCarrier {
    runtime: Runtime,
    frames: Frames<Stream>,
    version: Version,
    address: String,
    last: u64,
}

impl ShareCarrier {
    /// Calls the share server at `address`.
    pub fn connect(address: &str, config: &Caller) -> Result<ShareCarrier, CarrierError> {
        let asking = |end: End| CarrierError::Asking { address: address.to_owned(), why: end.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| asking(error.into()))?;
        let greeted = async {
            let (mut frames, version, welcome) = ask(address, config, &Purpose::Content).await?;
            if welcome != Welcome::Content {
                return Err(End::from(GreetingError::Foreign));
            }
            frames::messages(&mut frames);
            Ok((frames, version))
        };
        let greeted = runtime.block_on(async { timeout(TIMEOUT, greeted).await.map_err(End::from)? });
        let (frames, version) = greeted.map_err(asking)?;
        Ok(ShareCarrier { runtime, frames, version, address: address.to_owned(), last: 0 })
    }

    /// Asks and waits for the answer.
    pub fn call(
        &mut self,
        what: ShareCall,
        body: &[u8],
    ) -> Result<(Vec<Result<(), Error>>, Bytes), CarrierError> {
        if since(&what) > self.version {
            return Err(CarrierError::TooOld { address: self.address.clone() });
        }
        self.last += 1;
        let (frames, number) = (&mut self.frames, self.last);
        let mut request = encode(&ShareRequest { number, what });
        request.extend_from_slice(body);
        let answered = async {
            frames::send(frames, request).await?;
            let frame = frames::receive(frames).await?.freeze();
            let (ShareReply { number: answers, results }, body) = decode_with_body(&frame)?;
            let body = frame.slice_ref(body);
            if answers == number { Ok((results, body)) } else { Err(End::from(GreetingError::Foreign)) }
        };
        let answered = self.runtime.block_on(async { timeout(TIMEOUT, answered).await.map_err(End::from)? });
        answered.map_err(|end| CarrierError::Asking { address: self.address.clone(), why: end.to_string() })
    }
}
