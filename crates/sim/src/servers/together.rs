//! Calls that run at the same time, often on the same names, while regions move.
//!
//! Afterwards the model must be able to give all answers, one call after the other in some order.
//! Where several orders do so, machines look at what tells them apart.

use super::orders::{fits, made, outcomes, telling, whole};
use super::running::Running;
use super::{ManyServers, files_of};
use crate::host::Violation;
use crate::model::Model;
use crate::workload::Users;
use client::{Call, call};
use ident::FileId;
use lease::Label;
use namespace::FileKind;
use std::collections::BTreeSet;

/// Calls at the same time, at most: all their orders are tried.
const CALLS_MAX: u64 = 4;
/// Calls that are drawn in the hope for one that is about the same names as the first.
const TRIES: u32 = 12;
/// Questions that tell orders apart, at most.
const QUESTIONS_MAX: usize = 64;

impl ManyServers {
    /// Several machines call at one time. When all calls have ended, some order explains them. The
    /// calls of one machine are apart, as its kernel keeps them in order where that counts.
    pub(super) fn calls_together(&mut self) -> Result<(), Violation> {
        let mut callers: Vec<(usize, Call)> = Vec::new();
        for call in self.some_rivals() {
            let at = self.caller(&call);
            if callers.iter().all(|(other, _)| *other != at) {
                for file in files_of(&call) {
                    self.looks_up(at, &file)?;
                }
                callers.push((at, call));
            }
        }
        self.tally.together += u64::from(callers.len() > 1);
        let mut running = Vec::new();
        for (at, call) in &callers {
            let at = *at;
            self.counts(call);
            running.push(self.begins(at, call)?);
            for _ in 0..self.below(3) {
                self.step()?;
            }
        }
        self.wait_for(&mut running)?;
        self.tally.calls += running.len() as u64;
        let outcomes = outcomes(&self.model, &running);
        if outcomes.is_empty() {
            let told: Vec<String> = running.iter().map(Running::told).collect();
            return Err(format!("no order explains {told:#?}"));
        }
        self.tally.ambiguous += u64::from(outcomes.len() > 1);
        for Running { at, call, seen, .. } in &running {
            if let Some(Ok(seen)) = seen {
                self.notes_handles(*at, call, made(call, seen).as_ref());
            }
        }
        self.model = self.tells_apart(outcomes, &running)?;
        self.looks_around(callers.iter().map(|(_, call)| call))
    }

    /// Calls that may run together: none closes a handle that another one closes.
    fn some_rivals(&mut self) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        for _ in 0..2 + self.below(CALLS_MAX - 1) {
            let wants_rival = !calls.is_empty() && !self.one_in(3);
            let mut call = self.some_call();
            for _ in 0..TRIES {
                let rivals = || calls.iter().any(|other| self.are_related(other, &call));
                if !wants_rival || rivals() {
                    break;
                }
                call = self.some_call();
            }
            let closes = |call: &Call| match call {
                Call::Close(call::Close { file, .. }) => Some(file.clone()),
                _ => None,
            };
            let closed = closes(&call);
            if closed.is_none() || calls.iter().all(|other| closes(other) != closed) {
                calls.push(call);
            }
        }
        calls
    }

    fn some_call(&mut self) -> Call {
        Users { rng: &mut self.rng, labels: &self.labels }.some_call(&self.model)
    }

    /// Whether the calls are about one file, by its name or by its identifier.
    fn are_related(&self, one: &Call, other: &Call) -> bool {
        let about = |call: &Call| -> BTreeSet<FileId> {
            let named = names_in(call).into_iter().filter_map(|(dir, label)| {
                self.model.files.get(dir).and_then(|dir| dir.children.get(label)).cloned()
            });
            named.chain(files_of(call)).filter(|file| *file != FileId::root()).collect()
        };
        let same_name = || names_in(one).into_iter().any(|name| names_in(other).contains(&name));
        !about(one).is_disjoint(&about(other)) || same_name()
    }

    /// The one outcome that is so, by what any machines see of it.
    fn tells_apart(&mut self, mut models: Vec<Model>, running: &[Running]) -> Result<Model, Violation> {
        for _ in 0..QUESTIONS_MAX {
            let Some(question) = telling(&models) else { break };
            let (at, before) = (self.some_machine(), models.len());
            let files = files_of(&question);
            let ways: Vec<Call> = models
                .first()
                .into_iter()
                .flat_map(|it| files.iter().flat_map(move |file| way_to(it, file)))
                .collect();
            for call in ways.into_iter().chain([question]) {
                if models.len() == before {
                    self.narrows(at, &call, &mut models, running)?;
                }
            }
        }
        models.into_iter().next().ok_or_else(|| "no outcome is left".to_owned())
    }

    /// Keeps the outcomes of which the machine sees that they may be so.
    fn narrows(
        &mut self,
        at: usize,
        call: &Call,
        models: &mut Vec<Model>,
        running: &[Running],
    ) -> Result<(), Violation> {
        let mut asked = [self.begins(at, call)?];
        self.wait_for(&mut asked)?;
        let [Running { seen: Some(seen), .. }] = &asked else { return Ok(()) };
        models.retain(|model| fits(model, call, seen).is_ok());
        if models.is_empty() {
            let told = |running: &[Running]| running.iter().map(Running::told).collect::<Vec<_>>();
            return Err(format!("no order explains {:#?}, and then {:#?}", told(running), told(&asked)));
        }
        Ok(())
    }

    /// Two machines look at what the calls were about.
    fn looks_around<'a>(&mut self, calls: impl Iterator<Item = &'a Call> + Clone) -> Result<(), Violation> {
        for _ in 0..2 {
            let at = self.some_machine();
            for call in calls.clone() {
                for (dir, label) in names_in(call) {
                    if self.model.files.contains_key(dir) {
                        self.looks_up(at, dir)?;
                        let lookup = call::Lookup { dir: dir.clone(), label: label.clone() };
                        self.calls(at, &Call::Lookup(lookup))?;
                    }
                }
                for file in files_of(call) {
                    let its = self.model.files.get(&file);
                    if its.is_some_and(|its| its.kind == FileKind::Regular && its.links > 0) {
                        self.looks_up(at, &file)?;
                        self.calls(at, &whole(&file))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The lookups by which a program finds the file, from the root on.
fn way_to(model: &Model, file: &FileId) -> Vec<Call> {
    let (mut way, mut at) = (Vec::new(), file.clone());
    while let Some((dir, label)) = model.files.iter().find_map(|(dir, its)| {
        let label = its.children.iter().find(|(_, child)| **child == at)?.0;
        Some((dir, label))
    }) {
        way.push(Call::Lookup(call::Lookup { dir: dir.clone(), label: label.clone() }));
        at = dir.clone();
    }
    way.reverse();
    way
}

/// The names that a call is about.
fn names_in(call: &Call) -> Vec<(&FileId, &Label)> {
    match call {
        Call::Lookup(call::Lookup { dir, label })
        | Call::Create(call::Create { dir, label, .. })
        | Call::Link(call::Link { dir, label, .. })
        | Call::Unlink(call::Unlink { dir, label, .. }) => vec![(dir, label)],
        Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }) => {
            vec![(from_dir, from), (to_dir, to)]
        }
        _ => Vec::new(),
    }
}
