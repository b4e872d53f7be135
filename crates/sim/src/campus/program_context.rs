//! A program of a machine: a future that calls, waits for the answer, and pauses. Time passes in
//! calls and pauses only.

use crate::gather::gather;
use crate::host::Violation;
use client::{Call, Outcome, Reply};
use namespace::{Cred, Error};
use rand_chacha::ChaCha12Rng;
use rand_core::Rng;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The answer to a call. Content has been read.
pub(crate) type CallAnswer = Result<ReplyWithBytes, Error>;

/// A reply, with the bytes of a read.
#[allow(clippy::large_enum_variant, reason = "the long one is the most frequent")]
#[derive(Clone, Debug)]
pub(crate) enum ReplyWithBytes {
    Reply(Reply),
    Bytes(Vec<u8>),
}

/// A program.
pub(crate) trait Program: Future<Output = Result<(), Violation>> + 'static {}
impl<P: Future<Output = Result<(), Violation>> + 'static> Program for P {}

/// The next wish of a program.
#[allow(clippy::large_enum_variant, reason = "the long one is the most frequent")]
#[derive(Debug)]
enum Want {
    Call(Call),
    Pause { ms: u64 },
}

/// The words between a program and the campus.
#[derive(Debug, Default)]
struct Slot {
    want: Option<Want>,
    answer: Option<CallAnswer>,
    /// The last call, to be told if it is never answered.
    last: String,
}

/// The place of a program: it calls its machine from here.
#[derive(Clone)]
pub(crate) struct ProgramContext {
    slot: Rc<RefCell<Slot>>,
    rng: Rc<RefCell<ChaCha12Rng>>,
    clock: Rc<Cell<u64>>,
}

impl ProgramContext {
    pub(super) fn new(rng: ChaCha12Rng, clock: Rc<Cell<u64>>) -> ProgramContext {
        ProgramContext { slot: Rc::default(), rng: Rc::new(RefCell::new(rng)), clock }
    }

    /// The time, ms.
    pub fn now_ms(&self) -> u64 {
        self.clock.get() / 1_000
    }

    /// A random number less than `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().next_u64() % bound.max(1)
    }

    /// A random number whose mean is `mean`.
    pub fn about(&self, mean: u64) -> u64 {
        self.below(2 * mean + 1)
    }

    /// Makes a call, and waits for the answer.
    pub async fn call(&self, call: Call) -> CallAnswer {
        self.slot.borrow_mut().want = Some(Want::Call(call));
        poll_fn(|_| match self.slot.borrow_mut().answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    /// Pauses for this time, ms.
    pub async fn pause(&self, ms: u64) {
        let until = self.now_ms() + ms;
        self.slot.borrow_mut().want = Some(Want::Pause { ms });
        poll_fn(|_| if self.now_ms() >= until { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Pauses for a random time whose mean is `ms`.
    pub async fn pause_about(&self, ms: u64) {
        self.pause(self.about(ms)).await;
    }
}

/// A program under way.
pub(super) struct Task {
    machine: usize,
    slot: Rc<RefCell<Slot>>,
    program: Option<Pin<Box<dyn Program>>>,
}

impl Task {
    pub fn new(machine: usize, context: &ProgramContext, program: impl Program) -> Task {
        Task { machine, slot: context.slot.clone(), program: Some(Box::pin(program)) }
    }

    pub fn has_ended(&self) -> bool {
        self.program.is_none()
    }

    /// The program's task, for people.
    pub fn what(&self) -> String {
        format!("machine {}: {}", self.machine, self.slot.borrow().last)
    }

    /// The program goes on, to what it wants next. `None` at its end.
    fn poll(&mut self) -> Result<Option<Want>, Violation> {
        let Some(program) = &mut self.program else { return Ok(None) };
        match program.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                let want = self.slot.borrow_mut().want.take();
                want.map(Some).ok_or_else(|| format!("{}: waits for nothing", self.what()))
            }
            Poll::Ready(result) => {
                self.program = None;
                result.map(|()| None)
            }
        }
    }
}

/// The longest text of a call.
const TEXT_MAX: usize = 300;

impl super::Campus {
    /// A program goes on, with the answer to its call if one waited.
    pub(super) fn resume(&mut self, task: usize, answer: Option<CallAnswer>) -> Result<(), Violation> {
        self.tasks[task].slot.borrow_mut().answer = answer;
        let at_ms = self.elapsed_ms();
        loop {
            let wanted = match self.tasks[task].poll() {
                Ok(Some(wanted)) => wanted,
                Ok(None) => {
                    self.running -= 1;
                    return Ok(());
                }
                Err(what) => return Err(format!("at {at_ms} ms: {}: {what}", self.tasks[task].what())),
            };
            let call = match wanted {
                Want::Pause { ms } => {
                    self.events.after(ms * 1_000, super::Event::Wake { task });
                    return Ok(());
                }
                Want::Call(call) => call,
            };
            self.tasks[task].slot.borrow_mut().last = format!("{call:?}").chars().take(TEXT_MAX).collect();
            let at = self.tasks[task].machine;
            self.counts.operation(at);
            match self.call(at, &Cred::default(), call)? {
                Outcome::Done(result) => {
                    let answer = self.told(result)?;
                    self.tasks[task].slot.borrow_mut().answer = Some(answer);
                }
                Outcome::Waiting(ticket) => {
                    self.counts.waited += 1;
                    _ = self.waiting.insert((at, ticket), task);
                    return Ok(());
                }
            }
        }
    }

    /// A result as a program has it.
    pub(super) fn told(&self, result: Result<Reply, Error>) -> Result<CallAnswer, Violation> {
        Ok(match result.map(Reply::told) {
            Ok(Reply::Data(parts)) => {
                let stored = |share: &namespace::ShareId| self.shares.get(share).map(Vec::as_slice);
                Ok(ReplyWithBytes::Bytes(gather(&parts, stored)?))
            }
            Ok(reply) => Ok(ReplyWithBytes::Reply(reply)),
            Err(error) => Err(error),
        })
    }
}
