//! The balance of load among the servers of the directory.

use super::Words;
use admin::{KeptWhy, LoadPair, MovedWhy};
use std::fmt;

impl fmt::Display for Words<'_, MovedWhy> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            MovedWhy::Asked => "by hand",
            MovedWhy::Balance => "for balance",
        })
    }
}

impl fmt::Display for Words<'_, KeptWhy> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            KeptWhy::Small => "few files are in use",
            KeptWhy::Even => "both have about as many files in use",
            KeptWhy::NothingFits => "nothing has about the load that is to move",
            KeptWhy::Pinned => "pinned, or a part of it, or what it is in: leasehold unpin",
            KeptWhy::Rests => "it moved lately, or a file in it was in use",
            KeptWhy::Tied => "a part of it was delegated by itself",
            KeptWhy::NotWatched => "this machine has not watched both for five minutes yet",
            KeptWhy::NotReady => "one of them has no leader, or too few members that vote",
            KeptWhy::Moving => "one of them takes part in a move",
        })
    }
}

impl fmt::Display for Words<'_, LoadPair> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadPair { from, to, gives, takes, stays } = self.0;
        write!(f, "server {from} to server {to}: ")?;
        match gives {
            Some(region) => write!(f, "{region}")?,
            None => write!(f, "nothing")?,
        }
        if let Some(region) = takes {
            write!(f, ", and {region} comes back")?;
        }
        stays.map_or(Ok(()), |why| {
            write!(f, "{} ({})", if gives.is_some() { " stays" } else { "" }, Words(&why))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_says_which_region_goes_and_why_it_stays() {
        let pair = LoadPair { from: 0, to: 2, ..LoadPair::default() };
        let path = |path: &str| Some(path.to_owned());
        let (gives, takes) = (path("/a"), path("/b"));
        let stays = |why| LoadPair { stays: Some(why), ..pair.clone() };
        for (pair, words) in [
            (LoadPair { gives: gives.clone(), ..pair.clone() }, "server 0 to server 2: /a"),
            (
                LoadPair { gives: gives.clone(), takes, ..pair.clone() },
                "server 0 to server 2: /a, and /b comes back",
            ),
            (stays(KeptWhy::Small), "server 0 to server 2: nothing (few files are in use)"),
            (
                LoadPair { gives, ..stays(KeptWhy::Rests) },
                "server 0 to server 2: /a stays (it moved lately, or a file in it was in use)",
            ),
        ] {
            assert_eq!(Words(&pair).to_string(), words);
        }
    }
}
