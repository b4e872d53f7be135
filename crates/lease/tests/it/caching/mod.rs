//! Caching leases: the rules, the matrices of the conformance tests, and all behaviours of small
//! systems.

mod checked;
mod clients;
mod conformance;
mod model;
mod properties;
mod rules;

use lease::Time;
use lease::caching::{
    AccessMask, AcknowledgeError, Act, Actor, Asks, Break, CachingState, ClientGuid, Grant, Judgement,
    LeaseHolder, LeaseId, LeaseKey, LeaseVersion, Object, OpenId, Opening, Sharing, SharingViolation,
};

const READ_WRITE: AccessMask = AccessMask::READ_DATA.or(AccessMask::WRITE_DATA);

/// The five states of a file's lease.
const STATES: [CachingState; 5] =
    [CachingState::NONE, CachingState::READ, CachingState::RH, CachingState::RW, CachingState::RWH];

/// Parses "RWH", "" and so on.
fn state(flags: &str) -> CachingState {
    flags.chars().fold(CachingState::NONE, |state, flag| {
        state.or(match flag {
            'R' => CachingState::READ,
            'W' => CachingState::WRITE,
            'H' => CachingState::HANDLE,
            other => unreachable!("no flag: {other}"),
        })
    })
}

fn key(number: u8) -> LeaseKey {
    LeaseKey::new([number; 16]).expect("not zero")
}

fn lease_of(client: u8, number: u8) -> LeaseId {
    LeaseId { client: ClientGuid([client; 16]), key: key(number) }
}

/// The lease with this key, of the first client.
fn lease(number: u8) -> LeaseId {
    lease_of(1, number)
}

fn asks(number: u8, flags: &str) -> Asks {
    Asks::Lease { lease: lease(number), state: state(flags), version: LeaseVersion::V1 }
}

fn asks_v2(number: u8, flags: &str, epoch: u16) -> Asks {
    let version = LeaseVersion::v2(epoch, 0, [0; 16]);
    Asks::Lease { lease: lease(number), state: state(flags), version }
}

/// An open that reads, writes and shares everything.
fn plain(asks: Asks) -> Opening {
    Opening {
        access: READ_WRITE,
        sharing: Sharing::ALL,
        overwrites: false,
        locked: false,
        deleting: false,
        asks,
    }
}

fn overwriting(asks: Asks) -> Opening {
    Opening { overwrites: true, ..plain(asks) }
}

/// An open that shares nothing, so it conflicts with every other that reads or writes.
fn exclusive(asks: Asks) -> Opening {
    Opening { sharing: Sharing(0), ..plain(asks) }
}

fn stat(asks: Asks) -> Opening {
    Opening { access: AccessMask::READ_ATTRIBUTES, ..plain(asks) }
}

/// An object, and what it has sent.
struct Store {
    object: Object,
    now: Time,
    opens: u64,
    out: Vec<Break>,
}

impl Store {
    fn new(object: Object) -> Store {
        Store { object, now: Time(0), opens: 0, out: Vec::new() }
    }

    fn file() -> Store {
        Store::new(Object::file(CachingState::RWH))
    }

    fn directory() -> Store {
        Store::new(Object::directory(CachingState::RWH))
    }

    /// A file that this lease holds, by an open that shares everything.
    fn held(number: u8, flags: &str) -> Store {
        let mut store = Store::file();
        assert_eq!(store.opens(plain(asks(number, flags))).1.state, state(flags));
        store
    }

    fn tries(&mut self, opening: Opening) -> Result<Judgement<Grant>, SharingViolation> {
        self.opens += 1;
        self.object.open(self.now, OpenId(self.opens), opening, &mut self.out)
    }

    /// Opens, without having to wait.
    fn opens(&mut self, opening: Opening) -> (OpenId, Grant) {
        match self.tries(opening) {
            Ok(Judgement::Go(grant)) => (OpenId(self.opens), grant),
            other => panic!("{opening:?}: {other:?}, sent {:?}", self.sent()),
        }
    }

    /// Opens what has to wait for the leases with these keys, or may not be opened.
    fn waits(&mut self, opening: Opening, keys: &[u8]) {
        assert_eq!(self.tries(opening), Ok(waits_for(keys)), "{opening:?}");
    }

    fn is_refused(&mut self, opening: Opening) {
        assert_eq!(self.tries(opening), Err(SharingViolation), "{opening:?}");
    }

    fn acts(&mut self, act: Act, by: Actor) -> Judgement<()> {
        self.object.act(self.now, act, by, &mut self.out)
    }

    fn recalls(&mut self, keep: &str) -> Judgement<()> {
        self.object.recall(self.now, state(keep), &mut self.out)
    }

    fn acknowledges(&mut self, number: u8, keeps: &str) -> Result<CachingState, AcknowledgeError> {
        self.object.acknowledge(self.now, LeaseHolder::Lease(lease(number)), state(keeps), &mut self.out)
    }

    /// Acknowledges all breaks as they ask for, with all their steps. Returns what was sent.
    fn settles(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while !self.out.is_empty() {
            let out = std::mem::take(&mut self.out);
            for it in out.iter().filter(|it| it.acknowledge) {
                assert_eq!(self.object.acknowledge(self.now, it.holder, it.to, &mut self.out), Ok(it.to));
            }
            sent.extend(out.iter().map(shown));
        }
        sent
    }

    /// Opens, and acknowledges what that breaks. Returns what was sent, and the grant.
    fn opens_after_breaks(&mut self, opening: Opening) -> (Vec<String>, Grant) {
        match self.tries(opening) {
            Ok(Judgement::Go(grant)) => (self.settles(), grant),
            Ok(Judgement::Waits(_)) => {
                let sent = self.settles();
                let (_, grant) = self.opens(opening);
                assert_eq!(self.sent(), [""; 0], "a break that was sent already");
                (sent, grant)
            }
            Err(refused) => panic!("{opening:?}: {refused}"),
        }
    }

    /// Returns what was sent since the last call.
    fn sent(&mut self) -> Vec<String> {
        std::mem::take(&mut self.out).iter().map(shown).collect()
    }

    fn state_of(&self, number: u8) -> CachingState {
        self.grant_of(number).state
    }

    fn grant_of(&self, number: u8) -> Grant {
        self.object.held(LeaseHolder::Lease(lease(number))).expect("a lease")
    }
}

fn waits_for<T>(keys: &[u8]) -> Judgement<T> {
    Judgement::Waits(keys.iter().map(|number| LeaseHolder::Lease(lease(*number))).collect())
}

/// Writes a break as `1 RWH>RH!`: the key, the states, and "!" if it has to be acknowledged. An
/// oplock has the letter "o" and the number of its open.
fn shown(it: &Break) -> String {
    let holder = match it.holder {
        LeaseHolder::Lease(lease) => lease.key.bytes()[0].to_string(),
        LeaseHolder::Oplock(open) => format!("o{}", open.0),
    };
    format!("{holder} {}>{}{}", it.from, it.to, if it.acknowledge { "!" } else { "" })
}
