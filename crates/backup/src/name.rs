//! The names of backups: the time of their making in UTC (`20261122T135202Z`). So the order of
//! names is the order of time.

const DAY: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01, and days of 400 years, of 100, and of 4. The calculation
/// begins the Gregorian year in March.
const TO_1970: u64 = 719_468;
const ERA: u64 = 146_097;

/// The name of a backup that is made at `at`, UTC seconds.
pub(crate) fn of(at: u64) -> String {
    let (days, second) = (at / DAY + TO_1970, at % DAY);
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on have 153 days in each five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let year = era * 400 + year;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// The time when the backup of that name was made. None if the name has another form.
pub(crate) fn time(name: &str) -> Option<u64> {
    let digits = |from: usize, to: usize| -> Option<u64> {
        let digits = name.get(from..to)?;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let (year, month, day) = (digits(0, 4)?, digits(4, 6)?, digits(6, 8)?);
    let (hour, minute, second) = (digits(9, 11)?, digits(11, 13)?, digits(13, 15)?);
    let month = if month > 2 { month - 3 } else { month.checked_add(9)? };
    let year = if month > 9 { year.checked_sub(1)? } else { year };
    let day = (153 * month + 2) / 5 + day.checked_sub(1)?;
    let days = (year / 400) * ERA + (year % 400) * 365 + year % 400 / 4 - year % 400 / 100 + day;
    let at = days.checked_sub(TO_1970)? * DAY + hour * 3600 + minute * 60 + second;
    (of(at) == name).then_some(at)
}

/// The name of a backup that is made at `at`, but after `last`, whatever the clock said then.
pub(crate) fn after(last: Option<&str>, at: u64) -> String {
    let last = last.and_then(time);
    of(last.map_or(at, |last| at.max(last + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dates_in_their_order() {
        assert_eq!(of(0), "19700101T000000Z");
        assert_eq!(of(951_782_400), "20000229T000000Z");
        assert_eq!(of(1_795_355_522), "20261122T135202Z");
        assert_eq!(of(4_107_542_399), "21000228T235959Z");
        assert_eq!(of(4_107_542_400), "21000301T000000Z");
        let mut last = String::new();
        for day in 0..100_000 {
            let at = day * DAY + day % DAY;
            let name = of(at);
            assert!(name > last && time(&name) == Some(at), "{name}");
            last = name;
        }
        for other in [
            "",
            "20261122",
            "20261322T135202Z",
            "20261122T136002Z",
            "20261122T135202Z.new",
            "20261100T000000Z",
        ] {
            assert_eq!(time(other), None, "{other}");
        }
    }

    #[test]
    fn a_backup_comes_after_the_last_though_the_clock_was_put_back() {
        assert_eq!(after(None, 7), of(7));
        assert_eq!(after(Some(&of(7)), 7), of(8));
        assert_eq!(after(Some(&of(900)), 7), of(901));
        assert_eq!(after(Some(&of(3)), 7), of(7));
    }
}
