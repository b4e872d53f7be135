//! FILETIME: 100 ns since 1601 (MS-DTYP §2.3.3).

use namespace::Timestamp;

/// Seconds from 1601 to 1970.
const EPOCH: i64 = 11_644_473_600;
const TICKS: i64 = 10_000_000;

/// Returns the FILETIME. A time before 1601 is 0.
pub fn filetime(time: Timestamp) -> u64 {
    let ticks = time.secs.saturating_add(EPOCH).saturating_mul(TICKS);
    u64::try_from(ticks.saturating_add(i64::from(time.nanos / 100))).unwrap_or(0)
}

/// Returns the time of a FILETIME.
pub fn timestamp(filetime: u64) -> Timestamp {
    let ticks = filetime.min(i64::MAX as u64) as i64;
    Timestamp { secs: ticks / TICKS - EPOCH, nanos: (ticks % TICKS) as u32 * 100 }
}

/// Returns the time now.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    filetime(Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        assert_eq!(filetime(Timestamp { secs: 0, nanos: 0 }), 116_444_736_000_000_000);
        for time in [0, 1, 116_444_736_000_000_000, 133_000_000_000_000_001] {
            assert_eq!(filetime(timestamp(time)), time);
        }
        assert_eq!(filetime(Timestamp { secs: i64::MIN, nanos: 0 }), 0);
    }
}
