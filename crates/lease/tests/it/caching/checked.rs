//! Checks the models to their last state, and that the checker finds deliberate faults.
//!
//! The proof that every act goes on in the end has parts, as with black boxes. While an act waits,
//! a break has a deadline. Each acknowledgment and each deadline takes flags away. While any holder
//! breaks, nobody gets more. So the act goes on, or is refused, whether clients answer or not.

use super::model::{
    BELIEVES_WHAT_IS_SO, COVERED, ENDS, FLOWS, Fault, Kind, ONE_BREAK, OWN, RECALL_WAITS, REFUSED, System,
    WENT_ON, WRITES_ALONE,
};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// Two keys on one machine, with calls of the machine's own.
const ONE_MACHINE: System = System {
    clients: &[(0, 1), (0, 2)],
    machines: 1,
    kinds: &[Kind::Plain, Kind::Exclusive, Kind::Overwriting, Kind::Stat],
    opens: 1,
    local: true,
    recalls: false,
    fault: Fault::None,
};

/// One key on each of two machines, and a server that recalls.
const TWO_MACHINES: System = System {
    clients: &[(0, 1), (1, 2)],
    machines: 2,
    kinds: &[Kind::Plain, Kind::Stat],
    local: false,
    recalls: true,
    ..ONE_MACHINE
};

/// Visits every state, and prints their number and the time.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "only printed")]
fn holds_in_every_state(name: &str, system: System, does_not_happen: &[&str]) {
    let start = std::time::Instant::now();
    // A fault may make the space endless.
    let checker = system.checker().finish_when(HasDiscoveries::AnyFailures).threads(2).spawn_bfs().join();
    let (states, steps, seconds) =
        (checker.unique_state_count(), checker.state_count(), start.elapsed().as_secs_f32());
    println!("{name}: {states} states, {steps} steps, {seconds:.1} s");
    for Property { name, expectation, .. } in checker.model().properties() {
        if expectation == Expectation::Sometimes && !does_not_happen.contains(&name) {
            checker.assert_any_discovery(name);
        } else {
            checker.assert_no_discovery(name);
        }
    }
}

#[test]
fn two_keys_on_one_machine() {
    holds_in_every_state("2 keys, 1 machine", ONE_MACHINE, &[FLOWS, RECALL_WAITS]);
}

#[test]
fn two_keys_on_one_machine_with_two_opens_each() {
    let twice = System { kinds: &[Kind::Plain], opens: 2, local: false, ..ONE_MACHINE };
    holds_in_every_state("2 keys with 2 opens, 1 machine", twice, &[RECALL_WAITS]);
}

/// It takes five minutes: `cargo test -p lease --release -- --ignored caching`.
#[test]
#[ignore = "millions of states"]
fn two_keys_on_one_machine_and_one_of_them_on_another() {
    let three = System { clients: &[(0, 1), (0, 2), (1, 2)], kinds: &[Kind::Plain], ..TWO_MACHINES };
    holds_in_every_state("2 keys, 3 clients, 2 machines", three, &[FLOWS]);
}

#[test]
fn two_keys_on_two_machines() {
    holds_in_every_state("2 keys, 2 machines", TWO_MACHINES, &[FLOWS]);
}

/// Checks that the checker finds the fault, as a breach of this property.
fn is_found(fault: Fault, system: System, breach: &'static str) {
    let faulty = System { fault, ..system };
    let only = HasDiscoveries::AnyOf([breach].into());
    let checker = faulty.checker().finish_when(only).spawn_bfs().join();
    let path = checker.assert_any_discovery(breach);
    println!("{fault:?}: found in {} steps: {breach}", path.into_actions().len());
}

#[test]
fn an_act_that_does_not_wait_is_found() {
    is_found(Fault::WaitsForNobody, ONE_MACHINE, WENT_ON);
}

#[test]
fn a_break_that_is_sent_twice_is_found() {
    is_found(Fault::SendsAgain, ONE_MACHINE, ONE_BREAK);
}

#[test]
fn an_act_that_breaks_its_own_key_is_found() {
    is_found(Fault::ForgetsTheActor, ONE_MACHINE, OWN);
}

#[test]
fn a_recall_answered_at_once_is_found() {
    is_found(Fault::AnswersARecallAtOnce, TWO_MACHINES, WENT_ON);
    is_found(Fault::AnswersARecallAtOnce, TWO_MACHINES, WRITES_ALONE);
}

#[test]
fn a_cover_that_is_not_given_up_is_found() {
    is_found(Fault::ForgetsTheRecall, TWO_MACHINES, COVERED);
    is_found(Fault::ForgetsTheRecall, TWO_MACHINES, WRITES_ALONE);
}

#[test]
fn a_waiting_act_that_is_forgotten_is_found() {
    is_found(Fault::ForgetsWhoWaits, ONE_MACHINE, ENDS);
}

#[test]
fn an_open_that_is_refused_at_once_is_found() {
    is_found(Fault::RefusesAtOnce, ONE_MACHINE, REFUSED);
}

#[test]
fn a_lost_break_is_found() {
    is_found(Fault::LosesABreak, ONE_MACHINE, BELIEVES_WHAT_IS_SO);
    is_found(Fault::LosesABreak, ONE_MACHINE, WENT_ON);
}

#[test]
fn a_break_that_overtakes_an_answer_is_found() {
    is_found(Fault::BreakOvertakes, ONE_MACHINE, BELIEVES_WHAT_IS_SO);
}

#[test]
fn a_client_that_writes_on_is_found() {
    is_found(Fault::ClientWritesOn, ONE_MACHINE, WRITES_ALONE);
    is_found(Fault::ClientWritesOn, ONE_MACHINE, WENT_ON);
}
