//! The cost of each policy: recalls and rounds (times that a request waits for returns), on twelve
//! clients that open, close and look.

use lease::SessionId;
use lease::blackbox::{BlackBox, BlackBoxAnswer, GrantPolicy, Or, Recall, SelfWrites, SubLease, Unshielded};

const CLIENTS: usize = 12;
const REQUESTS: u64 = 100_000;

/// The field, the clients' true values, and the counts.
struct Run {
    field: BlackBox<Or>,
    open: [bool; CLIENTS],
    recalls: u64,
    rounds: u64,
}

impl Run {
    fn session(x: usize) -> SessionId {
        SessionId(x as u64 + 1)
    }

    /// Asks until the request is granted. Recalled clients return at once.
    fn until_granted<T>(&mut self, mut ask: impl FnMut(&mut BlackBox<Or>, u32) -> BlackBoxAnswer<T>) {
        for round in 0.. {
            match ask(&mut self.field, round) {
                BlackBoxAnswer::Recall(recalls) => self.returned(&recalls),
                BlackBoxAnswer::Held(_) | BlackBoxAnswer::Granted(_) => return,
            }
        }
    }

    fn returned(&mut self, recalls: &[Recall]) {
        self.rounds += 1;
        self.recalls += recalls.len() as u64;
        for Recall { session, lease } in recalls {
            let returned = match lease {
                SubLease::SelfWrite => {
                    self.field.return_self_write(*session, self.open[session.0 as usize - 1])
                }
                SubLease::OtherRead => self.field.return_other_read(*session),
            };
            assert!(returned.is_ok(), "{session:?} held what was recalled");
        }
    }
}

/// Returns recalls and rounds. One request in `looks` asks for the others' values; the rest open
/// (`opens` of 100) or close.
fn run(policy: GrantPolicy, looks: u64, opens: u64) -> (u64, u64) {
    let (field, open) = (BlackBox::new(), [false; CLIENTS]);
    let mut run = Run { field, open, recalls: 0, rounds: 0 };
    let mut state = 1u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for _ in 0..REQUESTS {
        let x = below(CLIENTS as u64) as usize;
        if below(looks) == 0 {
            run.until_granted(|field, round| field.ask_other_read(Run::session(x), policy, round));
            let others = run.open.iter().enumerate().any(|(y, open)| y != x && *open);
            assert_eq!(run.field.other_value(Run::session(x)), Some(others));
        } else {
            run.until_granted(|field, round| field.ask_self_write(Run::session(x), policy, round));
            run.open[x] = below(100) < opens;
        }
    }
    (run.recalls, run.rounds)
}

#[test]
fn what_each_policy_costs() {
    let policies = [SelfWrites::All, SelfWrites::Growing].into_iter().flat_map(|self_writes| {
        [Unshielded::RecallReaders, Unshielded::CoerceShield]
            .map(|unshielded| GrantPolicy { self_writes, unshielded })
    });
    let policies: Vec<GrantPolicy> = policies.collect();
    assert_eq!(policies[0], GrantPolicy::FARSITE);
    println!("recalls and rounds for each 1,000 requests of {CLIENTS} clients");
    for (looks, opens) in [(2, 90), (2, 50), (2, 10), (10, 90), (10, 50), (10, 10)] {
        let costs: Vec<(u64, u64)> = policies.iter().map(|policy| run(*policy, looks, opens)).collect();
        let each: Vec<String> = costs
            .iter()
            .map(|(recalls, rounds)| format!("{} {}", recalls * 1_000 / REQUESTS, rounds * 1_000 / REQUESTS))
            .collect();
        println!("one in {looks} looks, {opens} of 100 open: {}", each.join(" | "));
        // A subset is recalled in the hope that it is enough. So a look costs no more recalls, and
        // no fewer rounds.
        assert!(costs[2].0 <= costs[0].0 && costs[2].1 >= costs[0].1, "{costs:?}");
    }
}
