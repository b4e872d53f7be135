//! Figures as people read them: sizes, spans, and times of day. The crate reads no clock, and
//! reaches no other crate of ours.

use jiff::Timestamp;

/// Prints bytes in the unit that leaves one to four digits before the point.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut of_unit, mut unit) = (bytes as f64 / 1024.0, 0);
    while of_unit >= 1023.95 && unit + 1 < UNITS.len() {
        (of_unit, unit) = (of_unit / 1024.0, unit + 1);
    }
    let digits = if of_unit < 99.95 { 1 } else { 0 };
    format!("{of_unit:.digits$} {}", UNITS.get(unit).unwrap_or(&"EiB"))
}

/// Prints seconds in the unit that says enough.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Prints a time, UTC seconds, as seen from `now`.
pub fn when(at: u64, now: u64) -> String {
    if at > now { format!("in {}", span(at - now)) } else { format!("{} ago", span(now - at)) }
}

/// Prints a time, UTC seconds since 1970, as a calendar date.
pub fn date(at: u64) -> String {
    let time = i64::try_from(at).ok().and_then(|at| Timestamp::from_second(at).ok());
    time.map_or_else(
        || format!("{at} s since 1970"),
        |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_few_digits_and_the_unit_that_fits() {
        let sizes = [0, 1023, 1024, 1536, 102_400, (1 << 20) - 1, 1 << 20, 252 << 30, u64::MAX];
        let told =
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "100 KiB", "1.0 MiB", "1.0 MiB", "252 GiB", "16.0 EiB"];
        assert_eq!(sizes.map(size), told);
    }

    #[test]
    fn times_are_dates_and_spans() {
        assert_eq!(date(1_795_598_083), "2026-11-25 09:14:43 UTC");
        assert_eq!(date(u64::MAX), format!("{} s since 1970", u64::MAX));
        assert_eq!([119, 120, 7200, 172_800].map(span), ["119 s", "2 min", "2 h", "2 days"]);
        assert_eq!((when(10, 70), when(70, 10)), ("60 s ago".to_owned(), "in 60 s".to_owned()));
        assert_eq!(when(100 + 31 * 86_400, 100), "in 31 days");
    }
}
