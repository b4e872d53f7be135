//! The server's side of connections: it serves each caller by its purpose.

use crate::hosted::HostedServer;
use crate::membership::Membership;
use crate::routes::Down;
use crate::server::Server;
use bytes::Bytes;
use directory::Input;
use futures_util::{SinkExt, StreamExt};
use ident::ServerId;
use lease::SessionId;
use net::frames::{self, Frames};
use net::listener::{End, Greeted, ListenError, Listener, Stream, put_on, say_why, take_off};
use net::{CredentialStore, Token};
use os::utc_secs;
use share_hosts::ReferenceIndex;
use share_hosts::serve_shares;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wire::{FRAME_BYTES_MAX, MachineId, Purpose, Receipt, Start, ToServer, Version, Welcome, decode, encode};

/// How long the directory may take to open a session or to enrol a machine.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// How many enrolments may be under way.
const ENROLMENTS_MAX: usize = 16;
/// How many answers may wait for one connection to take them.
const REQUESTS_MAX: usize = 16;
/// Bytes of pending proposals. Above that the server reads nothing more from any connection.
const BACKLOG_MAX: usize = 32 << 20;
/// How long the server then pauses before it checks again.
const BACKLOG_PAUSE: Duration = Duration::from_millis(2);

/// The refusal to a machine that may not do what servers do.
const NO_SERVER: &str = "only servers may ask that, and this machine is none";
/// The refusal to the second of two processes.
const TWIN: &str = "another process is up with a copy of this machine's data directory. Of the two one must go: remove this copy, and have its machine join anew (leasehold invite on a server, leasehold join with another data directory), or stop the other and start this one again";

/// The state that all connections share.
struct ListeningHost {
    membership: Weak<Membership>,
    server: Arc<Server>,
    /// Bounds the enrolments that are under way.
    enrolling: Semaphore,
}

/// The state here may be older than the group's.
struct Outdated;

/// Listens on `address` for the machines of `server`, which is that of `membership`.
pub(crate) fn listen(
    membership: Weak<Membership>,
    server: Arc<Server>,
    credentials: Arc<CredentialStore>,
    address: SocketAddr,
) -> Result<Listener, ListenError> {
    let enrolling = Semaphore::new(ENROLMENTS_MAX);
    let host = Arc::new(ListeningHost { membership, server, enrolling });
    Listener::start(credentials, address, move |greeted| {
        let host = host.clone();
        async move { serve(&host, greeted).await }
    })
}

async fn serve(host: &Arc<ListeningHost>, greeted: Greeted) -> Result<(), End> {
    let Greeted { peer, mut frames, shown, version, purpose, listening } = greeted;
    let is_the_leaders = !matches!(purpose, Purpose::Content | Purpose::Peer);
    let asked = match &purpose {
        Purpose::Session { server, .. } => *server,
        _ => ServerId::ROOT,
    };
    let Some(hosted) = host.server.hosted(asked) else {
        // A server that was made just now, or one that never was.
        let welcome = Welcome::Elsewhere { addresses: Vec::new() };
        return Ok(frames::send(&mut frames, wire::answer(version, &welcome)).await?);
    };
    let leads = hosted.group().leads();
    if let Some(answer) =
        shown.and_then(|shown| host.server.identify(&shown, host.server.group().leads() || !is_the_leaders))
    {
        frames::send(&mut frames, wire::answer(version, &answer)).await?;
        return match answer {
            Welcome::Refused { why } => Err(End::Refused(why)),
            _ => Ok(()),
        };
    }
    if is_the_leaders && !leads {
        return Ok(frames::send(&mut frames, wire::answer(version, &elsewhere(&hosted))).await?);
    }
    let serves = shown.is_some_and(|shown| shown.serves);
    let machine = shown.map(|shown| shown.machine);
    let refused = match (purpose, machine) {
        (Purpose::Join { secret, name, key }, _) => match host.enrol(&secret, name, key).await {
            Ok(welcome) => return Ok(frames::send(&mut frames, wire::answer(version, &welcome)).await?),
            Err(why) => why,
        },
        (_, None) => "a machine must join first: leasehold join TOKEN".to_owned(),
        (Purpose::Session { start, session, receipt, .. }, Some(machine)) => {
            let asks = (machine, start, session, receipt);
            return host.admit(hosted, asks, (peer, listening), (frames, version)).await;
        }
        (Purpose::Content, Some(machine)) => match host.server.refuses(machine) {
            None => {
                frames::send(&mut frames, wire::answer(version, &Welcome::Content)).await?;
                frames::messages(&mut frames);
                let refused = || host.server.refuses(machine);
                let references: Arc<dyn ReferenceIndex> = host.server.clone();
                return serve_shares(frames, host.server.share_host(), &references, machine, refused).await;
            }
            Some(why) => why,
        },
        (Purpose::Peer, Some(machine)) if serves => match host.refuses_peer(machine) {
            None => {
                frames::send(&mut frames, wire::answer(version, &Welcome::Peer)).await?;
                frames::peers(&mut frames);
                let talking = host.clone();
                return host.beside_the_group((peer, listening), frames, async move |frames| {
                    talking.hear_peer(frames).await
                });
            }
            Some(why) => why,
        },
        (Purpose::Leave, Some(machine)) => match host.leave(machine).await {
            Ok(()) => return Ok(frames::send(&mut frames, wire::answer(version, &Welcome::Done)).await?),
            Err(why) => why,
        },
        (Purpose::Control { request }, Some(machine)) if serves => match host.refuses_server(machine) {
            None => {
                frames::send(&mut frames, wire::answer(version, &Welcome::Control)).await?;
                frames::messages(&mut frames);
                return host.answer_people(frames, request).await;
            }
            Some(why) => why,
        },
        (Purpose::Peer | Purpose::Control { .. }, Some(_)) => NO_SERVER.to_owned(),
        (Purpose::Serve | Purpose::Ready { .. }, Some(_)) if version < host.server.group().version() => {
            too_old_to_serve(version, host.server.group().version())
        }
        (Purpose::Serve | Purpose::Ready { .. }, Some(machine))
            if let Some(why) = host.server.refuses(machine) =>
        {
            why
        }
        (Purpose::Serve, Some(machine)) => match host.make_server(machine, shown.map(|shown| shown.key)) {
            Ok(welcome) => return Ok(frames::send(&mut frames, wire::answer(version, &welcome)).await?),
            Err(why) => why,
        },
        (Purpose::Ready { member, addresses }, Some(machine)) => {
            let server = host.server.clone();
            match on_a_thread(move || server.is_ready(machine, member, addresses)).await {
                Ok(()) => return Ok(frames::send(&mut frames, wire::answer(version, &Welcome::Done)).await?),
                Err(why) => why,
            }
        }
    };
    refuse(frames, version, refused).await
}

/// Tells a caller why it is refused.
async fn refuse(mut frames: Frames<Stream>, version: Version, why: String) -> Result<(), End> {
    frames::send(&mut frames, wire::answer(version, &Welcome::Refused { why: why.clone() })).await?;
    Err(End::Refused(why))
}

/// Runs work that waits for the log, on a thread that may block.
async fn on_a_thread(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}

fn too_old_to_serve(speaks: Version, cluster: Version) -> String {
    format!(
        "this machine's leasehold is too old to be a server: it speaks version {speaks}, and the cluster is at {cluster}; install a newer one here"
    )
}

/// Where the leader of a server is, as far as this machine's member knows.
fn elsewhere(hosted: &HostedServer) -> Welcome {
    let leader = hosted.group().standing().leader().map(|leader| leader.addresses.clone());
    Welcome::Elsewhere { addresses: leader.unwrap_or_default() }
}

impl ListeningHost {
    /// Takes the machine out of the cluster, as it asks. An expelled machine has already left.
    async fn leave(&self, machine: MachineId) -> Result<(), String> {
        let server = self.server.clone();
        on_a_thread(move || match server.refuses(machine) {
            Some(_) => Ok(()),
            None => server.leave(machine).map_err(|error| error.to_string()),
        })
        .await
    }

    /// Admits a machine to a session at a server, and carries the session from there on.
    async fn admit(
        self: &Arc<Self>,
        hosted: Arc<HostedServer>,
        (machine, start, session, receipt): (MachineId, Start, Option<SessionId>, Option<Receipt>),
        caller: (SocketAddr, CancellationToken),
        (mut frames, version): (Frames<Stream>, Version),
    ) -> Result<(), End> {
        let session = self.known(&hosted, receipt, session)?;
        if let Some(welcome) = self.meet(&hosted, machine, &start) {
            return Ok(frames::send(&mut frames, wire::answer(version, &welcome)).await?);
        }
        let (session, down) = match self.open(&hosted, machine, &start, session, version).await {
            Ok(opened) => opened,
            Err(End::Refused(why)) => return refuse(frames, version, why).await,
            Err(end) => return Err(end),
        };
        let serve = self.server.chosen().lock().contains_key(&machine);
        let welcome = Welcome::Session { session, servers: hosted.members(), serve };
        frames::send(&mut frames, wire::answer(version, &welcome)).await?;
        frames::messages(&mut frames);
        let talking = self.clone();
        let talk = async move |frames| talking.converse(&hosted, frames, session, down).await;
        self.beside_the_group(caller, frames, talk)
    }

    /// Moves a connection to the group's thread, where it goes on until the listener is dropped.
    /// Its messages then wake no other thread.
    fn beside_the_group<T: Future<Output = Result<(), End>> + Send>(
        &self,
        (peer, listening): (SocketAddr, CancellationToken),
        mut frames: Frames<Stream>,
        talk: impl FnOnce(Frames<Stream>) -> T + Send + 'static,
    ) -> Result<(), End> {
        take_off(&mut frames)?;
        self.server.host().spawn(async move {
            let talking = async {
                put_on(&mut frames)?;
                talk(frames).await
            };
            tokio::select! {
                ended = talking => say_why(peer, ended),
                () = listening.cancelled() => {}
            }
        });
        Ok(())
    }

    /// Why the current state refuses something, if it does. A refusal by a state that may be an
    /// older one does not count: then it is `Err`.
    ///
    /// Strangers are refused so. A proposal to the group is written into every member's log, and
    /// the group would refuse it after that.
    async fn refuses(
        &self,
        hosted: &HostedServer,
        look: impl Fn(&HostedServer) -> Option<String>,
    ) -> Result<Option<String>, Outdated> {
        if look(hosted).is_none() {
            return Ok(None);
        }
        if !hosted.group().confirm().await {
            return Err(Outdated);
        }
        Ok(look(hosted))
    }

    async fn enrol(&self, secret: &[u8; 16], name: String, key: [u8; 32]) -> Result<Welcome, String> {
        let token = Token::hash(secret);
        let may_enrol = |root: &HostedServer| {
            let (joins, at) = ((name.as_str(), &key), utc_secs());
            let checked =
                root.group().query(|directory, store| directory.may_enrol(&token, joins, at, store));
            checked.err().map(|why| why.to_string())
        };
        let root = self.server.root();
        match self.refuses(root, may_enrol).await {
            Ok(None) => {}
            Ok(Some(why)) => return Err(why),
            Err(Outdated) => return Ok(elsewhere(root)),
        }
        let Ok(_under_way) = self.enrolling.acquire().await else { return Ok(elsewhere(root)) };
        let (connection, mut down) = root.routes().lock().connect(None);
        root.group().propose(Input::Enrol { token, name, key, at: utc_secs(), connection });
        match timeout(OPEN_TIMEOUT, down.recv()).await {
            Ok(Some(Down::Enrolled(machine))) => {
                let certificates = self.server.certify(machine, key, false);
                let certificates = certificates.map_err(|error| error.to_string())?;
                Ok(Welcome::Joined { machine, certificates })
            }
            Ok(Some(Down::Refused(why))) => Err(why),
            // The server has hung up on all, as it does when a server or a version is another: the
            // machine asks again. An invitation that is used knows whose key has used it.
            Ok(_) => Ok(elsewhere(root)),
            Err(_) => Err("the directory does not answer".to_owned()),
        }
    }

    /// Certifies a machine as a server, if it has been chosen.
    fn make_server(&self, machine: MachineId, key: Option<[u8; 32]>) -> Result<Welcome, String> {
        let (member, key) = self
            .server
            .number_for(machine)
            .zip(key)
            .ok_or("nobody has asked this machine to serve: leasehold server add")?;
        let certificates = self.server.certify(machine, key, true).map_err(|error| error.to_string())?;
        Ok(Welcome::Serve { member, certificates })
    }

    /// Why this server refuses another as a member. It must accept a server whose membership it has
    /// not learned yet: that server's vote may be the missing one.
    fn refuses_peer(&self, machine: MachineId) -> Option<String> {
        let standing = self.server.group().standing();
        if standing.leads && !self.server.may_serve(machine) {
            return Some(NO_SERVER.to_owned());
        }
        (!standing.members.is_empty()).then(|| self.server.refuses(machine)).flatten()
    }

    /// Why a machine may not do what servers do. Its certificate proves that it was a server once;
    /// the leader knows whether it still is.
    fn refuses_server(&self, machine: MachineId) -> Option<String> {
        let refused = self.server.refuses(machine);
        refused.or_else(|| self.server.member_on(machine).is_none().then(|| NO_SERVER.to_owned()))
    }

    async fn hear_peer(&self, mut frames: Frames<Stream>) -> Result<(), End> {
        let mut conversation = self.server.host().listen();
        loop {
            let call = frames::receive(&mut frames).await?;
            let answer = conversation.hear(&call).await;
            frames::send_bytes(&mut frames, answer).await?;
        }
    }

    /// Answers an administrator's request that another server forwards.
    async fn answer_people(&self, mut frames: Frames<Stream>, request: String) -> Result<(), End> {
        let (tell, mut told) = mpsc::channel(REQUESTS_MAX);
        let membership = self.membership.clone();
        std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            if let Some(membership) = membership.upgrade() {
                // The asker may have gone away.
                membership.answer(&request, &mut |line| drop(tell.blocking_send(line)));
            }
        })?;
        while let Some(line) = told.recv().await {
            frames::send(&mut frames, line).await?;
        }
        Ok(frames::send(&mut frames, Vec::new()).await?)
    }

    /// The session to go on with. The receipt may prove that this server has lost acknowledged
    /// entries. If there are several members, another may have them. If none has them, the session
    /// is over, and that is no misdeed of the machine.
    ///
    /// # Errors
    /// If entries are lost and this server is the only member.
    fn known(
        &self,
        hosted: &HostedServer,
        receipt: Option<Receipt>,
        session: Option<SessionId>,
    ) -> Result<Option<SessionId>, End> {
        let Some(why) = receipt.and_then(|receipt| hosted.has_forgotten(&receipt)) else {
            return Ok(session);
        };
        if !hosted.group().standing().alone {
            tracing::error!(
                why,
                "the servers have lost what was acknowledged: the disks of too many are older copies"
            );
            return Ok(None);
        }
        if let Some(membership) = self.membership.upgrade() {
            membership.is_older(why.to_owned());
        }
        Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())
    }

    /// The answer to a machine that cannot have a session in this start of it, if so.
    fn meet(&self, hosted: &HostedServer, machine: MachineId, start: &Start) -> Option<Welcome> {
        let up = hosted.routes().lock().is_up(machine);
        if up.is_some_and(|up| up != start.drawn && !start.before.contains(&up)) {
            tracing::warn!(
                machine = machine.0,
                "two processes with copies of this machine's data directory are up; the second is refused"
            );
            return Some(Welcome::Refused { why: TWIN.to_owned() });
        }
        let latest = hosted.group().query(|directory, store| directory.latest_start(machine, store));
        let later = latest.filter(|latest| *latest > start.incarnation);
        later.map(|incarnation| Welcome::Started { incarnation })
    }

    async fn open(
        &self,
        hosted: &HostedServer,
        machine: MachineId,
        start: &Start,
        session: Option<SessionId>,
        version: Version,
    ) -> Result<(SessionId, mpsc::Receiver<Down>), End> {
        let refused = |hosted: &HostedServer| {
            let admitted = hosted.group().query(|directory, store| directory.admits(machine, store));
            admitted.err().map(|refusal| refusal.to_string())
        };
        match self.refuses(hosted, refused).await {
            Ok(None) => {}
            // Another server hears of a machine a little later than the root server.
            Ok(Some(_)) if !hosted.is_root() && self.server.refuses(machine).is_none() => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            Ok(Some(why)) => return Err(End::Refused(why)),
            Err(Outdated) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
        let (connection, mut down) = hosted.routes().lock().connect(Some((machine, start.drawn)));
        hosted.open((machine, version), start, session, connection);
        // Only the directory refuses a session. A refused client gives up its updates that are not
        // applied.
        match timeout(OPEN_TIMEOUT, down.recv()).await? {
            Some(Down::Opened(session)) => Ok((session, down)),
            Some(Down::Refused(why)) => Err(End::Refused(why)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    /// Carries a session until its connection ends or another connection replaces it.
    async fn converse(
        &self,
        hosted: &HostedServer,
        frames: Frames<Stream>,
        session: SessionId,
        mut down: mpsc::Receiver<Down>,
    ) -> Result<(), End> {
        let (mut sink, mut stream) = frames.split();
        let (answers, mut answered) = mpsc::channel(REQUESTS_MAX);
        let reading = async {
            while let Some(frame) = stream.next().await {
                let frame = frame?;
                self.server.host().heard();
                // An empty frame is a probe.
                if frame.is_empty() {
                    if answers.send(None).await.is_err() {
                        break;
                    }
                    continue;
                }
                let message: ToServer = decode(&frame)?;
                if matches!(message, ToServer::Extents { .. }) {
                    if !hosted.group().confirm().await {
                        break;
                    }
                    if let Some(reply) = self.server.answer(hosted, session, &message)
                        && answers.send(Some(reply)).await.is_err()
                    {
                        break;
                    }
                    continue;
                }
                self.server.hear(hosted, session, message);
                while hosted.group().backlog_bytes() > BACKLOG_MAX {
                    tokio::time::sleep(BACKLOG_PAUSE).await;
                }
            }
            Ok::<(), End>(())
        };
        let writing = async {
            loop {
                let message = tokio::select! {
                    told = down.recv() => match told {
                        Some(Down::Message(message)) => Some(message),
                        Some(_) => continue,
                        // A failure to send is no misdeed of the client.
                        None => return sink.flush().await.map_err(End::Io),
                    },
                    Some(reply) = answered.recv() => reply,
                };
                let frame = message.map_or_else(Bytes::new, |message| encode(&message).into());
                if frame.len() > FRAME_BYTES_MAX {
                    tracing::error!(
                        session = session.0,
                        bytes = frame.len(),
                        "a message for a machine is longer than a frame may be"
                    );
                }
                sink.feed(frame).await.map_err(End::Io)?;
                // Flushed only once no more is ready: one system call for many messages.
                if down.is_empty() && answered.is_empty() {
                    sink.flush().await.map_err(End::Io)?;
                }
            }
        };
        let ended = tokio::select! {
            ended = reading => ended,
            ended = writing => ended,
        };
        if let Err(End::Frame(_)) = ended {
            hosted.group().propose(Input::NoMessage { session });
        }
        ended
    }
}
