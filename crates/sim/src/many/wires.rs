//! The messages between machines and server, their order, and the faults.

use super::ManyMachines;
use crate::cluster::Violation;
use client::Output;
use directory::{Directory, Input};
use lease::{Field, SessionId};
use wire::{MachineId, Rights, ToClient};

impl ManyMachines {
    pub(super) fn fault(&mut self, at: usize) -> Result<(), Violation> {
        match self.below(40) {
            0 => self.restart(),
            1 => {
                self.stop(at);
                Ok(())
            }
            2 => {
                self.machines[at].frozen = true;
                Ok(())
            }
            3..10 => {
                self.machines[at].frozen = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The server stops and starts again from its checkpoint.
    pub(super) fn restart(&mut self) -> Result<(), Violation> {
        self.tally.restarts += 1;
        self.directory.checkpoint(&mut self.store);
        let directory = Directory::open(&self.store, wire::Versions::KNOWN).map_err(|e| e.to_string())?;
        self.directory = directory.with_policy(self.policy);
        self.server(Input::Lead)
    }

    /// The machine stops and starts again at once. The end of its messages to the server does not
    /// arrive.
    pub(crate) fn stop(&mut self, at: usize) {
        let arrives = self.below(self.machines[at].to_server.len() as u64 + 1) as usize;
        let client = self.new_client();
        self.session_over(at);
        let now = self.now();
        let machine = &mut self.machines[at];
        machine.to_server.truncate(arrives);
        machine.to_client.clear();
        machine.calls.clear();
        machine.client = client;
        machine.connect(now);
    }

    /// Ends the session: the handles of the machine's programs no longer count.
    pub(super) fn session_over(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        machine.over = true;
        let open = std::mem::take(&mut machine.open);
        self.tally.ends += u64::from(!open.is_empty());
        // Others still see a file as open while its close is under way.
        self.ghosts.extend(self.known.iter().filter(|file| !machine.client.own(file).is_closed()).cloned());
    }

    /// Enrols the machine. The founder needs no invitation.
    pub(super) fn enrol(&mut self, machine: MachineId) {
        let mut token = [0; 32];
        token[..8].copy_from_slice(&machine.0.to_be_bytes());
        let (rights, name, connection) = (Rights::FULL, format!("machine-{}", machine.0), 0);
        let enrol = Input::Enrol { token, name, key: [0; 32], at: 0, connection };
        let joins = [Input::Invite { token, rights, at: 0, until: 1 }, enrol];
        for input in joins.into_iter().filter(|_| machine != directory::FOUNDER) {
            // An error of the store shows again with the next input.
            let _ = self.directory.handle(self.now, input, &mut self.store, &mut Vec::new());
        }
    }

    /// The server handles an input.
    pub(super) fn server(&mut self, input: Input) -> Result<(), Violation> {
        self.again &= !matches!(input, Input::Tick);
        let mut out = Vec::new();
        self.directory.handle(self.now, input, &mut self.store, &mut out).map_err(|e| e.to_string())?;
        for output in out {
            match output {
                directory::Output::Opened { machine, incarnation, session, .. } => {
                    let opened =
                        self.machines.iter_mut().find(|m| m.id == machine && m.incarnation == incarnation);
                    if let Some(machine) = opened {
                        (machine.session, machine.over) = (Some(session), false);
                    }
                }
                directory::Output::Send { session, message } => self.send(session, message)?,
                directory::Output::Shares(_) => {}
                directory::Output::Again => self.again = true,
                directory::Output::Refused { why, .. } => return Err(why.to_string()),
                directory::Output::Sync
                | directory::Output::Raised { .. }
                | directory::Output::Authorized { .. }
                | directory::Output::Revoked { .. }
                | directory::Output::Invited { .. }
                | directory::Output::Enrolled { .. }
                | directory::Output::Expelled { .. } => {}
            }
        }
        if let Some((session, misdeed)) = self.directory.misdeeds().first() {
            return Err(format!("{session:?}: {misdeed}"));
        }
        Ok(())
    }

    pub(super) fn send(&mut self, session: SessionId, message: ToClient) -> Result<(), Violation> {
        self.tally.messages += 1;
        if let Some(heard) = &mut self.heard {
            heard.push(message.clone());
        }
        let Some(at) = self.machines.iter().position(|machine| machine.session == Some(session)) else {
            return Ok(());
        };
        if let ToClient::Granted { grants, .. } = &message {
            let told = |grant: &&wire::FileGrant| grant.values.others.get(&Field::Handles) == Some(true);
            self.tally.told_open += grants.iter().filter(told).count() as u64;
        }
        if matches!(message, ToClient::Fenced) && !self.machines[at].over {
            self.session_over(at);
        }
        self.machines[at].to_client.push_back(message);
        Ok(())
    }

    pub(super) fn server_receives(&mut self, at: usize) -> Result<(), Violation> {
        if self.machines[at].frozen {
            return Ok(());
        }
        let Some(input) = self.machines[at].to_server.pop_front() else { return Ok(()) };
        self.tally.messages += 1;
        self.server(input)
    }

    pub(super) fn client_receives(&mut self, at: usize) -> Result<(), Violation> {
        let machine = &mut self.machines[at];
        if machine.frozen {
            return Ok(());
        }
        match machine.to_client.pop_front() {
            Some(message) => self.client(at, client::Input::Message(message)),
            None => Ok(()),
        }
    }

    pub(super) fn client(&mut self, at: usize, input: client::Input) -> Result<(), Violation> {
        let mut out = Vec::new();
        let now = self.now();
        self.machines[at].client.handle(now, input, &mut out);
        self.carry_out(at, out)
    }

    pub(super) fn carry_out(&mut self, at: usize, out: Vec<Output>) -> Result<(), Violation> {
        let (mut cut_off, mut yielded) = (false, Vec::new());
        for output in out {
            let machine = &mut self.machines[at];
            match output {
                Output::Send(message) => {
                    let session = machine.session;
                    machine.to_server.extend(session.map(|session| Input::Message { session, message }));
                }
                Output::Answer { ticket, result } => {
                    let Some((call, doing)) = machine.calls.remove(&ticket) else {
                        return Err(format!("{ticket:?} is answered twice"));
                    };
                    self.answered(at, &call, doing, result)?;
                }
                Output::Salvage(salvage) if salvage.cut_off => cut_off = true,
                Output::Salvage(salvage) if !machine.over => {
                    return Err(format!("{:?}: what was done was refused: {salvage:?}", machine.id));
                }
                Output::Yield { number, .. } => yielded.push(number),
                Output::Store(_)
                | Output::Unneeded(_)
                | Output::Settled(_)
                | Output::Salvage(_)
                | Output::Invalidate(_) => {}
            }
        }
        // No front door has anything cached.
        for number in yielded {
            self.client(at, client::Input::Yielded { number, kept: Default::default() })?;
        }
        if cut_off {
            if !self.machines[at].over {
                return Err(format!("{:?} was cut off without reason", self.machines[at].id));
            }
            self.stop(at);
        }
        Ok(())
    }
}
