//! Simulated machines and one server, in one thread and from one seed: the host of every scenario
//! whose wires only delay.
//!
//! Each machine is a client with two wires, which keep their order. Machines freeze, stop and start
//! again, and their connections break. A scenario is a workload and an oracle: it chooses what
//! happens next, makes the calls, and judges the [`News`].

#[cfg(test)]
pub(crate) mod calls;
pub(crate) mod connection;
pub(crate) mod server;

use client::{
    Call, Client, Input as ClientInput, Now, Outcome, Output, Reply, Salvage, Settings, Ticket, Upload,
};
use connection::Connection;
use directory::{FOUNDER, Input, Policy, ShareWork};
use ident::ServerId;
use lease::{SessionId, Time};
use namespace::{Cred, Error, ShareId, Timestamp};
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use server::{DirectoryHost, enrols};
use std::collections::{BTreeSet, VecDeque};
use wire::{GreetingNumber, MachineId, Rights, Space, ToClient, Version};

/// The description of a violation, readable without the source.
pub type Violation = String;

/// Time that passes at once while everything comes to rest, ms at most.
const REST_MS: u64 = 6_000;

/// A machine: a client, and its wires to the server.
pub(crate) struct Machine {
    pub id: MachineId,
    pub incarnation: u64,
    pub client: Client,
    connection: Connection,
    /// Number of connections so far.
    connections: u64,
    /// The server has ended the session; the machine may not know yet.
    pub over: bool,
    /// No message reaches the machine and none leaves it.
    pub frozen: bool,
    pub to_server: VecDeque<Input>,
    pub to_client: VecDeque<ToClient>,
}

/// An event that a scenario judges.
#[derive(Debug)]
pub(crate) enum News {
    /// A call that waited is answered.
    Answer { at: usize, ticket: Ticket, result: Result<Reply, Error> },
    /// The server ends a session that the client had begun.
    Fenced { at: usize },
    /// The client has learnt that its session is over.
    CutOff { at: usize },
    /// The server has refused updates of a session that goes on.
    Refused { at: usize, salvage: Salvage },
    /// The client has a share to store.
    Store(Upload),
    /// The client needs these shares no more.
    Unneeded(Vec<ShareId>),
    /// The server has work for the share server.
    Shares(Vec<ShareWork>),
}

/// The machines and their server.
pub(crate) struct Host {
    pub rng: ChaCha12Rng,
    pub now: Time,
    /// The start of the wall clock, seconds.
    pub began: i64,
    pub server: DirectoryHost,
    pub machines: Vec<Machine>,
    pub news: VecDeque<News>,
    /// The settings of every client, apart from the seed.
    settings: Settings,
    /// The space that machines report of the server's disk.
    pub space: Space,
    /// Messages in both directions.
    pub messages: u64,
    /// The server's messages, if they are recorded.
    pub heard: Option<Vec<ToClient>>,
}

impl Machine {
    fn new(id: MachineId, client: Client) -> Machine {
        Machine {
            id,
            incarnation: 1,
            client,
            connection: Connection::default(),
            connections: 0,
            over: true,
            frozen: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    fn is_idle(&self) -> bool {
        self.to_server.is_empty()
            && self.to_client.is_empty()
            && self.connection.opened().is_some()
            && !self.over
    }
}

impl Host {
    /// A server with an empty root, and no machine yet.
    pub fn new(seed: u64, policy: Policy, settings: Settings) -> Host {
        Host {
            rng: ChaCha12Rng::seed_from_u64(seed),
            now: Time(1_000),
            began: 1_700_000_000,
            server: DirectoryHost::found(policy),
            machines: Vec::new(),
            news: VecDeque::new(),
            settings,
            space: Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0, elsewhere: 0 },
            messages: 0,
            heard: None,
        }
    }

    /// Enrols a machine and starts it; returns its place. The first is the founder, which has all
    /// rights.
    pub fn join(&mut self, rights: Rights) -> Result<usize, Violation> {
        let at = self.machines.len();
        let id = MachineId(at as u64 + 1);
        let client = self.new_client();
        for input in enrols(id, rights).into_iter().filter(|_| id != FOUNDER) {
            self.serve(input)?;
        }
        self.machines.push(Machine::new(id, client));
        self.connect(at)?;
        Ok(at)
    }

    /// A random number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound.max(1)
    }

    /// True in one of `odds` cases.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// The place of a machine that the seed chooses.
    pub fn some_machine(&mut self) -> usize {
        self.below(self.machines.len() as u64) as usize
    }

    /// The time on every machine's clocks.
    pub fn clocks(&self) -> Now {
        let secs = self.began + (self.now.0 / 1_000).cast_signed();
        Now { time: self.now, wall: Timestamp { secs, nanos: (self.now.0 % 1_000) as u32 * 1_000_000 } }
    }

    fn new_client(&mut self) -> Client {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        Client::new(Settings { seed, ..self.settings.clone() })
    }

    /// Begins a call.
    pub fn call(&mut self, at: usize, cred: &Cred, call: Call) -> Result<Outcome, Violation> {
        let (now, mut out) = (self.clocks(), Vec::new());
        let outcome = self.machines[at].client.call(now, cred, call, &mut out);
        self.carry_out(at, out)?;
        Ok(outcome)
    }

    /// Delivers all messages under way; no time passes.
    pub fn deliver(&mut self) -> Result<(), Violation> {
        while !self.is_idle() {
            for at in 0..self.machines.len() {
                self.server_receives(at)?;
                self.client_receives(at)?;
            }
            self.background()?;
        }
        Ok(())
    }

    /// Whether no message is under way, and no work is left.
    pub fn is_idle(&self) -> bool {
        !self.server.again && self.machines.iter().all(Machine::is_idle)
    }

    /// A step towards rest: messages arrive at one machine and from it, and time passes while none
    /// is under way. Returns whether none was.
    pub fn step_to_rest(&mut self) -> Result<bool, Violation> {
        let at = self.some_machine();
        self.server_receives(at)?;
        self.client_receives(at)?;
        self.background()?;
        let idle = self.is_idle();
        if idle {
            self.pass_time(REST_MS)?;
        }
        Ok(idle)
    }

    pub fn thaw(&mut self) {
        self.machines.iter_mut().for_each(|machine| machine.frozen = false);
    }

    /// Time passes for machines and server.
    pub fn pass_time(&mut self, ms_max: u64) -> Result<(), Violation> {
        self.machines_tick(ms_max)?;
        self.serve(Input::Tick)
    }

    /// Time passes. The machines look at their clocks.
    pub fn machines_tick(&mut self, ms_max: u64) -> Result<(), Violation> {
        self.now = self.now.after_ms(1 + self.below(ms_max));
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            if !machine.frozen && machine.client.deadline().is_some_and(|deadline| deadline <= self.now) {
                self.input(at, ClientInput::Tick)?;
            }
        }
        Ok(())
    }

    pub fn background(&mut self) -> Result<(), Violation> {
        if self.server.again { self.serve(Input::Tick) } else { Ok(()) }
    }

    /// The server stops and starts again from its checkpoint.
    pub fn restart(&mut self) -> Result<(), Violation> {
        self.server.restart()?;
        self.serve(Input::Lead)
    }

    /// The machine stops and starts again at once. The end of its messages to the server does not
    /// arrive.
    pub fn stop(&mut self, at: usize) -> Result<(), Violation> {
        self.lose_end(at);
        self.start(at)
    }

    /// The next incarnation of the machine starts. Messages on their way to the server arrive.
    pub fn start(&mut self, at: usize) -> Result<(), Violation> {
        self.news.retain(|news| !matches!(news, News::Answer { at: by, .. } if *by == at));
        let client = self.new_client();
        let machine = &mut self.machines[at];
        machine.client = client;
        machine.incarnation += 1;
        (machine.over, machine.connection.session) = (true, None);
        self.connect(at)
    }

    /// Of the messages on their way to the server only a beginning arrives.
    pub fn lose_end(&mut self, at: usize) {
        let arrives = self.below(self.machines[at].to_server.len() as u64 + 1) as usize;
        self.machines[at].to_server.truncate(arrives);
    }

    fn connect(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        machine.connections += 1;
        machine.connection.dial(machine.connections);
        machine.to_client.clear();
        self.input(at, ClientInput::Greeting(ServerId::ROOT))?;
        let Machine { id, incarnation, connections: connection, .. } = self.machines[at];
        let (machine, session) = (id, self.machines[at].connection.session);
        let greeting = GreetingNumber { drawn: incarnation, count: connection };
        let version = Version::NEWEST;
        let open = Input::Open { machine, incarnation, greeting, session, connection, version };
        self.machines[at].to_server.extend([Input::Space(self.space), open]);
        Ok(())
    }

    /// The server handles an input.
    pub fn serve(&mut self, input: Input) -> Result<(), Violation> {
        self.apply(self.now, input)
    }

    /// The server handles an input of that time.
    pub fn apply(&mut self, time: Time, input: Input) -> Result<(), Violation> {
        for output in self.server.handle(time, input)? {
            match output {
                directory::Output::Opened { machine, session, connection, .. } => {
                    let machine = &mut self.machines[machine.0 as usize - 1];
                    if machine.connection.open(connection, session) {
                        machine.over = false;
                    }
                }
                directory::Output::Send { session, message } => self.send(session, message),
                directory::Output::Shares(work) => self.news.push_back(News::Shares(work)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The server sends a message.
    pub fn send(&mut self, session: SessionId, message: ToClient) {
        self.messages += 1;
        if let Some(heard) = &mut self.heard {
            heard.push(message.clone());
        }
        let is_to = |machine: &Machine| machine.connection.is_of(session);
        let Some(at) = self.machines.iter().position(is_to) else { return };
        let machine = &mut self.machines[at];
        if matches!(message, ToClient::Fenced) {
            // A session without a beginning at the machine has nothing to lose.
            if !machine.over && machine.connection.session == Some(session) {
                self.news.push_back(News::Fenced { at });
            }
            machine.over = true;
        }
        if machine.connection.opened().is_some() {
            machine.to_client.push_back(message);
        }
    }

    /// The earliest message of the machine arrives at the server.
    pub fn server_receives(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].frozen {
            return Ok(());
        }
        let Some(input) = self.machines[at].to_server.pop_front() else { return Ok(()) };
        self.messages += 1;
        self.serve(input)
    }

    /// The earliest message to the machine arrives.
    pub fn client_receives(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        if machine.frozen {
            return Ok(());
        }
        let Some(message) = machine.to_client.pop_front() else { return Ok(()) };
        if matches!(message, ToClient::Opened { .. }) {
            machine.connection.begin();
        }
        self.input(at, ClientInput::Message(ServerId::ROOT, message))
    }

    /// The client handles an input.
    pub fn input(&mut self, at: usize, input: ClientInput) -> Result<(), Violation> {
        let (now, mut out) = (self.clocks(), Vec::new());
        self.machines[at].client.handle(now, input, &mut out);
        self.carry_out(at, out)
    }

    fn carry_out(&mut self, at: usize, out: Vec<Output>) -> Result<(), Violation> {
        let mut revoked = Vec::new();
        for output in out {
            let machine = &mut self.machines[at];
            match output {
                Output::Send(_, message) => {
                    let session = machine.connection.opened();
                    machine.to_server.extend(session.map(|session| Input::Message { session, message }));
                }
                Output::Answer { ticket, result } => self.news.push_back(News::Answer { at, ticket, result }),
                Output::Salvage(salvage) if salvage.cut_off => self.news.push_back(News::CutOff { at }),
                Output::Salvage(salvage) if !machine.over => {
                    self.news.push_back(News::Refused { at, salvage });
                }
                Output::Revoke { number, .. } => revoked.push(number),
                Output::Store(upload) => self.news.push_back(News::Store(upload)),
                Output::Unneeded(shares) => self.news.push_back(News::Unneeded(shares)),
                Output::Salvage(_) | Output::Settled(_) | Output::RevokeUncovered(_) => {}
                Output::Connect(server) => {
                    return Err(format!("machine {at} wants {server:?}, and there is one"));
                }
            }
        }
        // No front door has anything cached.
        revoked
            .into_iter()
            .try_for_each(|number| self.input(at, ClientInput::Revoked { number, kept: BTreeSet::new() }))
    }
}
