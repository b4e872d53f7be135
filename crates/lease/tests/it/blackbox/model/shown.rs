//! The properties of every state.

use super::state::{Client, Down, Life, State, Up, Wrong};
use super::{System, Value};
use crate::blackbox::definition::Enumerable;
use lease::blackbox::{Own, SubLease};
use stateright::Property;

pub const SEES_WHAT_IS_SO: &str = "what a client sees is so";
pub const WRITES_WITH_LEASE: &str = "nobody writes without SelfWrite, and who is stuck is stuck";
pub const IS_BEING_SERVED: &str = "while somebody waits, a recall or its answer is on the way";
pub const NEARER: &str = "each step takes the first that waits nearer, and none further";
pub const MAXIMAL: &str = "nothing is recalled where the grant would be right";
pub const EXPECTED: &str = "the server gets what it expects";

pub fn properties<A: Enumerable>() -> Vec<Property<System<A>>> {
    vec![
        Property::always(SEES_WHAT_IS_SO, sees_what_is_so),
        Property::always(WRITES_WITH_LEASE, |_, state: &State<Value<A>>| {
            state.clients.iter().all(writes_with_lease)
        }),
        Property::always(IS_BEING_SERVED, |_, state: &State<Value<A>>| {
            !state.waits() || state.distances().any(|distance| matches!(distance, 1 | 2))
        }),
        Property::always(NEARER, |_, state: &State<Value<A>>| !is(state, Wrong::NotNearer)),
        Property::always(MAXIMAL, |_, state: &State<Value<A>>| !is(state, Wrong::NeedlessRecall)),
        Property::always(EXPECTED, |_, state: &State<Value<A>>| !is(state, Wrong::Unexpected)),
        // The properties are not vacuous: these states occur.
        Property::sometimes("one sees the others while another writes", |_, state: &State<Value<A>>| {
            let shielded = state.clients.iter().any(|client| sees_a_shield::<A>(client) && !client.writes);
            shielded && state.clients.iter().any(|client| client.writes)
        }),
        Property::sometimes("two shields see each other", |_, state: &State<Value<A>>| {
            state.clients.iter().filter(|client| sees_a_shield::<A>(client) && is_shield::<A>(client)).count()
                >= 2
        }),
        Property::sometimes("one has left and another's view rests on it", |_, state: &State<Value<A>>| {
            state.clients.iter().any(|client| client.life == Life::Leaving)
        }),
        Property::sometimes("a recall crosses what is returned unasked", |_, state: &State<Value<A>>| {
            let crosses = |client: &Client<Value<A>>| {
                client.down.contains(&Down::Recall(SubLease::OtherRead))
                    && client.up.contains(&Up::ReturnOtherRead)
            };
            state.clients.iter().any(crosses)
        }),
    ]
}

fn sees_what_is_so<A: Enumerable>(_: &System<A>, state: &State<Value<A>>) -> bool {
    state.clients.iter().enumerate().all(|(x, client)| {
        let others = state.clients.iter().enumerate().filter(|(y, _)| *y != x);
        let is_so = others.fold(A::IDENTITY, |all, (_, other)| A::combine(all, other.value));
        client.sees.is_none_or(|sees| sees == is_so)
    })
}

fn writes_with_lease<V: PartialEq>(client: &Client<V>) -> bool {
    match &client.own {
        Own::Writing => true,
        Own::Stuck(value) => !client.writes && client.value == *value,
    }
}

fn is<V>(state: &State<V>, wrong: Wrong) -> bool {
    state.wrong == Some(wrong)
}

fn sees_a_shield<A: Enumerable>(client: &Client<Value<A>>) -> bool {
    client.sees.is_some() && client.sees == A::ABSORBING
}

fn is_shield<A: Enumerable>(client: &Client<Value<A>>) -> bool {
    A::ABSORBING.is_some_and(|value| client.own == Own::Stuck(value))
}
