//! Checks the models to their last state, and that the checker finds deliberate faults.
//!
//! Every state has these properties: a client's view is true, no client writes without `SelfWrite`,
//! and nothing is recalled where the grant would be right.
//!
//! The proof that every request is served has parts. The space has cycles (clients may write, and
//! come and go, for ever), in which stateright's `eventually` finds nothing. While any request
//! waits, a recall or its answer is on the way. Each one that arrives brings the server nearer to
//! the leases that the first request needs back. No step of a client takes the server further away.
//! Nearness is a number. So if messages arrive and recalled clients answer, the first request is
//! served, and then the next.

use crate::blackbox::definition::Enumerable;
use crate::blackbox::model::{Fault, System};
use crate::blackbox::model::{IS_BEING_SERVED, MAXIMAL, NEARER, SEES_WHAT_IS_SO, WRITES_WITH_LEASE};
use lease::blackbox::{BoundedMax, GrantPolicy, Or, SaturatingCount, SelfWrites, Unshielded};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use std::marker::PhantomData;

/// Clients that ask for one lease at a time, and return nothing unasked. All messages are in flight
/// for a while.
fn system<A>(clients: usize) -> System<A> {
    System {
        clients,
        policy: GrantPolicy::FARSITE,
        unasked: false,
        both: false,
        slow_returns: true,
        fault: Fault::None,
        aggregate: PhantomData,
    }
}

/// Visits every state, and prints their number and the time.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "only printed")]
fn holds_in_every_state<A: Enumerable>(name: &str, system: System<A>, does_not_happen: &[&str]) {
    let start = std::time::Instant::now();
    let checker = system.checker().threads(2).spawn_bfs().join();
    let (states, steps, seconds) =
        (checker.unique_state_count(), checker.state_count(), start.elapsed().as_secs_f32());
    println!("{name}: {states} states, {steps} steps, {seconds:.1} s");
    assert!(checker.is_done());
    for Property { name, expectation, .. } in checker.model().properties() {
        if expectation == Expectation::Sometimes && !does_not_happen.contains(&name) {
            checker.assert_any_discovery(name);
        } else {
            checker.assert_no_discovery(name);
        }
    }
}

const CROSSING: &str = "a recall crosses what is returned unasked";

#[test]
fn three_clients_with_or() {
    holds_in_every_state("3 clients, OR", System { both: true, ..system::<Or>(3) }, &[CROSSING]);
}

#[test]
fn three_clients_with_or_that_let_go_unasked() {
    holds_in_every_state("3 clients, OR, unasked", System { unasked: true, ..system::<Or>(3) }, &[]);
}

#[test]
fn four_clients_with_or() {
    holds_in_every_state("4 clients, OR", system::<Or>(4), &[CROSSING]);
}

#[test]
fn three_clients_with_a_bounded_max() {
    holds_in_every_state("3 clients, max to 2", system::<BoundedMax<2>>(3), &[CROSSING]);
}

#[test]
fn three_clients_with_a_saturating_count() {
    holds_in_every_state("3 clients, count to 2", system::<SaturatingCount<2>>(3), &[CROSSING]);
}

#[test]
fn every_policy_will_do() {
    for (self_writes, unshielded) in [
        (SelfWrites::All, Unshielded::CoerceShield),
        (SelfWrites::Growing, Unshielded::CoerceShield),
        (SelfWrites::Growing, Unshielded::RecallReaders),
    ] {
        let policy = GrantPolicy { self_writes, unshielded };
        let name = format!("3 clients, OR, {self_writes:?}, {unshielded:?}");
        holds_in_every_state(&name, System { policy, ..system::<Or>(3) }, &[CROSSING]);
    }
}

#[test]
fn two_clients_with_everything() {
    let nothing_left_out = System { unasked: true, both: true, ..system::<SaturatingCount<3>>(2) };
    // It takes three clients: one sees, one writes, and the third is the shield.
    let third = "one sees the others while another writes";
    holds_in_every_state("2 clients, count to 3, unasked", nothing_left_out, &[third]);
}

/// Checks that the checker finds the fault, as a breach of this property.
fn is_found(fault: Fault, clients: usize, breach: &'static str) {
    let faulty = System { fault, ..system::<Or>(clients) };
    let only = HasDiscoveries::AnyOf([breach].into());
    let checker = faulty.checker().finish_when(only).spawn_bfs().join();
    let path = checker.assert_any_discovery(breach);
    println!("{fault:?}: found in {} steps: {breach}", path.into_actions().len());
}

#[test]
fn c_1_broken_is_found() {
    is_found(Fault::TakesAWriterForAShield, 2, SEES_WHAT_IS_SO);
    is_found(Fault::TakesAWriterForAShield, 2, WRITES_WITH_LEASE);
}

#[test]
fn c_2_broken_is_found() {
    is_found(Fault::TakesWritersForStuck, 2, SEES_WHAT_IS_SO);
}

#[test]
fn d_1_broken_without_shields_is_found() {
    is_found(Fault::ForgetsReaders, 2, SEES_WHAT_IS_SO);
}

#[test]
fn d_1_broken_with_one_shield_is_found() {
    is_found(Fault::TakesAShieldToShieldItself, 2, SEES_WHAT_IS_SO);
}

#[test]
fn departures_broken_are_found() {
    is_found(Fault::LetsLeaveAtOnce, 2, SEES_WHAT_IS_SO);
    is_found(Fault::LetsTheDepartingWait, 2, IS_BEING_SERVED);
}

#[test]
fn recalls_without_need_are_found() {
    is_found(Fault::RecallsWritersInC1, 3, MAXIMAL);
    is_found(Fault::RecallsReadersInD1, 3, MAXIMAL);
}

#[test]
fn starvation_is_found() {
    is_found(Fault::ServesTheLast, 3, NEARER);
    is_found(Fault::ForgetsTheFirst, 2, IS_BEING_SERVED);
}

#[test]
fn a_client_that_writes_on_is_found() {
    is_found(Fault::ClientWritesOn, 2, WRITES_WITH_LEASE);
    is_found(Fault::ClientWritesOn, 2, SEES_WHAT_IS_SO);
}
