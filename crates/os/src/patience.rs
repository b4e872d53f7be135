//! Whether a thread looks out for a message for a moment before it sleeps.
//!
//! A thread that sleeps on a sleeping processor takes long to wake up. A message takes about that
//! long on its way, and so does its answer.

/// The most times in a row that a thread sleeps at once.
const VAIN_MAX: u32 = 255;

/// Decides each time whether the thread looks out or sleeps at once. Looking out takes a processor
/// that others may want. So after a look-out in vain it is left out for some times, and for more
/// each time.
#[derive(Debug, Default)]
pub struct Patience {
    /// How many times are left out after a look-out in vain, and how many of these are still to
    /// come.
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

    /// A look-out has ended; `came` says whether the message did.
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
