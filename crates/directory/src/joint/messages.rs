//! The messages about joint operations, as they come and go.

use super::{joint_of, session_of};
use crate::io::Output;
use crate::transaction::Transaction;
use ident::ServerId;
use wire::{Joint, JointId, JointStep};

/// Messages without an answer are said again after this time, ms.
const AGAIN_MS: u64 = 100;

impl Transaction<'_> {
    /// Takes a message of another server about a joint operation. One that its sender has no part
    /// in changes nothing.
    pub fn on_joint(&mut self, from: ServerId, Joint { op, step }: Joint) {
        let server = self.files.regions.server();
        let goes_to_leader = match step {
            JointStep::Borrow { .. } | JointStep::Settle { .. } => false,
            JointStep::Lent { .. }
            | JointStep::Gone { .. }
            | JointStep::NotHere { .. }
            | JointStep::Wounded
            | JointStep::Settled => true,
        };
        let leader = if goes_to_leader { server } else { from };
        if from == server || op.leader() != leader || joint_of(session_of(op)) != Some(op) {
            return;
        }
        match step {
            JointStep::Borrow { age, operation, file, wants, open_from } if open_from <= op => {
                self.on_borrow(op, age, operation, (file, wants), open_from);
            }
            JointStep::Settle { effects, open_from } if open_from <= op => {
                self.on_settle(op, &effects, open_from);
            }
            JointStep::Borrow { .. } | JointStep::Settle { .. } => {}
            JointStep::Lent { grant } => self.on_lent(from, op, grant),
            JointStep::Gone { file } => self.on_gone(from, op, &file),
            JointStep::NotHere { file, server } => self.on_not_here(from, op, &file, server),
            JointStep::Wounded => self.on_wounded(from, op),
            JointStep::Settled => self.on_settled(from, op),
        }
    }

    /// Time has passed, or a leader begins that does not know what was said.
    pub fn continue_joint(&mut self, is_new_leader: bool) {
        let joint = &mut self.state.server.joint;
        if is_new_leader || joint.are_open() && self.now.ms_since(joint.said) >= AGAIN_MS {
            joint.said = self.now;
            self.continue_leading();
            self.continue_lending();
        }
    }

    pub(super) fn say_joint(&mut self, to: ServerId, op: JointId, step: JointStep) {
        self.out.push(Output::Joint { to, message: Box::new(Joint { op, step }) });
    }
}
