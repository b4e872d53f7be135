//! Faults, and the step at which they strike. Every step beneath the share server (files, objects,
//! commits) is counted, and one is chosen.

use std::io;

use parking_lot::Mutex;

use crate::{DiskError, database::Commits};

/// The fault at the chosen step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power goes before the step. Neither this step nor a later one happens.
    Cut,
    /// The power goes after the step and before its answer.
    CutAfter,
    /// The step fails, once.
    Fail(io::ErrorKind),
    /// The step happens, and its answer is an error, once.
    Lost,
}

/// Counts steps.
#[derive(Debug, Default)]
pub struct Trouble {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    steps: Vec<&'static str>,
    fault: Option<(When, Fault)>,
    dead: bool,
}

#[derive(Clone, Copy, Debug)]
enum When {
    /// The step of this number.
    At(usize),
    /// After this many more steps of these names.
    Among(&'static [&'static str], usize),
}

/// Share files get their places.
pub const PLACE: &[&str] = &["rename", "put"];
/// Share files are written.
pub const WRITE: &[&str] = &["write", "put"];
/// Share files are deleted.
pub const DELETE: &[&str] = &["unlink", "delete"];

/// The reported result of a step that was done.
#[must_use]
pub struct StepResult(Option<io::ErrorKind>);

impl StepResult {
    pub fn told(self) -> io::Result<()> {
        self.0.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Trouble {
    /// Arms `fault` for the step after this many more.
    pub fn set_fault(&self, after: usize, fault: Fault) {
        let mut state = self.state.lock();
        state.fault = Some((When::At(state.steps.len() + after), fault));
    }

    /// As [`Self::set_fault`], where only steps of these names count.
    pub fn set_fault_among(&self, names: &'static [&'static str], after: usize, fault: Fault) {
        self.state.lock().fault = Some((When::Among(names, after), fault));
    }

    pub fn clear_fault(&self) {
        self.state.lock().fault = None;
    }

    pub fn steps(&self) -> Vec<&'static str> {
        self.state.lock().steps.clone()
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// Counts a step. On an error the caller must not do the step.
    pub fn step(&self, what: &'static str) -> io::Result<StepResult> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let number = state.steps.len();
        state.steps.push(what);
        let fault = match &mut state.fault {
            Some((When::At(at), fault)) if *at == number => Some(*fault),
            Some((When::Among(names, 0), fault)) if names.contains(&what) => Some(*fault),
            Some((When::Among(names, left), _)) if names.contains(&what) => {
                *left -= 1;
                None
            }
            _ => None,
        };
        if fault.is_some() {
            state.fault = None;
        }
        state.dead = matches!(fault, Some(Fault::Cut | Fault::CutAfter));
        match fault {
            None => Ok(StepResult(None)),
            Some(Fault::Cut) => Err(io::ErrorKind::BrokenPipe.into()),
            Some(Fault::CutAfter) => Ok(StepResult(Some(io::ErrorKind::BrokenPipe))),
            Some(Fault::Fail(kind)) => Err(kind.into()),
            Some(Fault::Lost) => Ok(StepResult(Some(io::ErrorKind::TimedOut))),
        }
    }

    fn commit(&self, what: &'static str) -> Result<(), DiskError> {
        match self.step(what).and_then(StepResult::told) {
            // SQLite rolls a failed commit back: there is no failure after one.
            Err(error) if what == "commit" || error.kind() == io::ErrorKind::BrokenPipe => {
                Err(DiskError::new(what, "the disk of the tests", error))
            }
            _ => Ok(()),
        }
    }
}

impl Commits for Trouble {
    fn begin(&self) -> Result<(), DiskError> {
        self.commit("commit")
    }

    fn done(&self) -> Result<(), DiskError> {
        self.commit("committed")
    }
}
