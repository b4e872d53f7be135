//! Stores of rows only, to measure large stores: storing as many files would take hours.

use std::path::Path;

use namespace::ShareId;

use crate::{
    ShareServerSettings,
    error::OpenError,
    leases,
    rows::ShareRow,
    server::SharedState,
    share::{AccountId, Health, State},
};

/// The recorded length of each share.
const BYTES: u32 = 4096;
/// Rows of a transaction.
const BATCH: u64 = 20_000;

/// The `n`th of `of` shares, in the order of their names. The names are spread evenly, as random
/// ones are, and differ in all of their bytes.
pub fn share(n: u64, of: u64) -> ShareId {
    let place = (u64::MAX / of.max(1)).wrapping_mul(n);
    let rest = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ShareId((u128::from(place) << 64 | u128::from(rest)).to_be_bytes())
}

/// Makes a store in `dir` whose database claims `shares` shares. Each has a lease of
/// [`AccountId::ANONYMOUS`] without an end. They have no files.
pub fn fill(dir: &Path, settings: ShareServerSettings, shares: u64) -> Result<(), OpenError> {
    let server = SharedState::open(dir, settings)?;
    // The scrub runs on the empty store: no file is missed until the next one.
    while !server.scrub_some()?.is_last {}
    for first in (0..shares).step_by(usize::try_from(BATCH).unwrap_or(1)) {
        server.database.write("filling a store", move |tx| {
            for n in first..first.saturating_add(BATCH).min(shares) {
                let row = ShareRow {
                    id: share(n, shares),
                    state: State::Stable,
                    health: Health::Ok,
                    length: BYTES,
                    digest: Some([1; 16]),
                    leases: 0,
                    unleased_since: Some(tx.now),
                    changed_at: tx.now,
                    upload: None,
                };
                tx.add_share(&row)?;
                leases::take(tx, &row, AccountId::ANONYMOUS, None)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
