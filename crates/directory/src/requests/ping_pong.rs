//! Ping-pong values are reported without a lease (docs/internals/leases.md, "Reports"). The holder
//! flushes and keeps its lease. So a machine that changes the value and another that reads it cost
//! each other four messages, and no lease changes hands.

use crate::requests::ask::Found;
use crate::requests::contention::ReportedValue;
use crate::requests::pending::Asked;
use crate::transaction::Transaction;
use ident::FileId;
use lease::{Field, Granularity, Kind, Lease};
use namespace::Operation;
use wire::AskMode;

impl Transaction<'_> {
    /// Chooses how a request that may be answered by a report is answered now, and finds the leases
    /// needed for that. It chooses anew at each try, since the server's knowledge of the holders
    /// may have changed.
    pub fn lease_or_report(&self, asked: Asked, found: &mut Found) -> Asked {
        let even_once = match asked.mode {
            AskMode::LeaseOrReport => false,
            AskMode::LeaseIfFree => true,
            _ => return asked,
        };
        // Coarser leases go as a whole.
        if self.policy.granularity != Granularity::Fields {
            return Asked { mode: AskMode::Lease, ..asked };
        }
        let is_told = |need: &Lease| self.is_told(&asked, need, even_once);
        let (passing, rest): (Vec<Lease>, Vec<Lease>) =
            std::mem::take(&mut found.needs).into_iter().partition(is_told);
        let missed = |need: &Lease| {
            let holdings = self.files.holdings(&need.file);
            !holdings.covers(asked.session, &need.field, need.kind)
                || asked.wants.iter().any(|want| want.file == need.file && want.field == need.field)
        };
        let report = !passing.is_empty() && !rest.iter().any(missed);
        found.needs = if report { passing } else { rest };
        Asked { mode: if report { AskMode::Report } else { AskMode::Lease }, ..asked }
    }

    /// Whether others hold, to change it, the value that the request needs to read, and had to
    /// release it again and again, or hold it `even_once`.
    fn is_told(&self, asked: &Asked, need: &Lease, even_once: bool) -> bool {
        need.kind == Kind::Read
            && (even_once || self.state.region.contention.is_ping_pong(self.now, &need.file, &need.field))
            && self.can_be_told(asked, need)
            && !self.files.holdings(&need.file).in_the_way(asked.session, &need.field, need.kind).is_empty()
    }

    /// Whether a value is all that the asker needs. A reader of content that is not inline also
    /// needs the shares, which only a lease keeps.
    fn can_be_told(&self, asked: &Asked, need: &Lease) -> bool {
        match need.field {
            Field::Times => true,
            Field::Attributes => is_shown(&asked.operation),
            // Its value is no report. A holder gives it back whose own value is false.
            Field::Mode(_) => asked.mode == AskMode::LeaseIfFree,
            Field::Content => {
                let inline = |file: &FileId| {
                    let record = self.files.record(file);
                    record.is_some_and(|record| record.inline_bytes > 0 || record.content.size == 0)
                };
                is_shown(&asked.operation) || inline(&need.file)
            }
            _ => false,
        }
    }

    /// Notes that these fields were reported to the asker.
    pub fn note_told(&mut self, needs: &[Lease]) {
        for Lease { file, field, .. } in needs {
            let Some(record) = self.files.record(file) else { continue };
            let told = match field {
                Field::Attributes => ReportedValue::Attributes(record.attributes),
                Field::Content => ReportedValue::Content(record.content),
                _ => ReportedValue::Times(record.times),
            };
            if let ReportedValue::Content(head) = told {
                self.looked_at(file, head.version);
            }
            self.state.region.contention.reported(self.now, file, field, told);
        }
    }
}

/// Whether the operation only shows the values of a file, and decides nothing by them.
fn is_shown(operation: &Operation) -> bool {
    matches!(operation, Operation::Stat { .. } | Operation::Lookup { .. })
}
