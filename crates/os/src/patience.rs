//! Whether a thread that is about to sleep looks out for what may be about to come: one that sleeps
//! on a processor that sleeps wakes up in about the time that a message takes on its way, and an
//! answer on its.

/// At most so many times in a row it does not.
const VAIN_MAX: u32 = 255;

/// See the module. Whoever looks out takes a processor that others may want; so where it was in
/// vain it is left for a while, and for longer each time.
#[derive(Debug, Default)]
pub struct Patience {
    /// How many times are left out once it was in vain, and how many of these are still to come.
    vain: u32,
    rest: u32,
}

impl Patience {
    /// Whether to look out this time. If so, [`Patience::ends`] is to follow.
    pub fn begins(&mut self) -> bool {
        let looks = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        looks
    }

    /// What was looked out for `came`, or it did not.
    pub fn ends(&mut self, came: bool) {
        self.vain = if came { 0 } else { (2 * self.vain + 1).min(VAIN_MAX) };
        self.rest = self.vain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_vain_is_left_for_a_while_and_what_was_not_is_not() {
        let mut patience = Patience::default();
        let mut left_out = |came| {
            let times = (0..).take_while(|_| !patience.begins()).count();
            patience.ends(came);
            times
        };
        assert_eq!([true, true, false, false, false, true, true].map(&mut left_out), [0, 0, 0, 1, 3, 7, 0]);
        assert_eq!((0..20).map(|_| left_out(false)).max(), Some(VAIN_MAX as usize));
    }
}
