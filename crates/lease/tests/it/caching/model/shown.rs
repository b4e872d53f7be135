//! The properties of every state.

use super::System;
use super::state::{Down, State, Wrong};
use lease::caching::CachingState as Flags;
use stateright::Property;

pub const WRITES_ALONE: &str = "a client that caches writes is the only one that caches, on all machines";
pub const BELIEVES_WHAT_IS_SO: &str = "no client takes its state for more than it is, unless told already";
pub const ONE_BREAK: &str = "a break is under way to a client, and only one, while its lease breaks";
pub const COVERED: &str = "the machine's own leases cover what its clients have";
pub const ENDS: &str = "while an act waits, a break has a deadline";
const NEARER: &str = "while the first act waits nobody gets more, and each answer takes something";
pub const WENT_ON: &str = "an act goes on when nobody has what it must wait for, and all are told";
pub const REFUSED: &str = "an open is refused for handles that are open, after cached ones were asked for";
pub const OWN: &str = "no act breaks its own key";
const EXPECTED: &str = "each message is judged as its sender may expect";

const BREAK_IN_STEPS: &str = "a break goes on in a step";
const LATE: &str = "an acknowledgment comes too late";
pub const FLOWS: &str = "an open of the breaking key gets an answer";
pub const RECALL_WAITS: &str = "a recall waits";
const BOTH_BREAK: &str = "two leases break at once";

pub fn properties() -> Vec<Property<System>> {
    vec![
        Property::always(WRITES_ALONE, writes_alone),
        Property::always(BELIEVES_WHAT_IS_SO, believes_what_is_so),
        Property::always(ONE_BREAK, one_break),
        Property::always(COVERED, covered),
        Property::always(ENDS, |_, state: &State| {
            let ends =
                |it: &super::state::Machine| it.queue.is_empty() || it.object.next_deadline().is_some();
            state.machines.iter().all(ends)
        }),
        Property::always(NEARER, |_, state: &State| state.wrong != Some(Wrong::NotNearer)),
        Property::always(WENT_ON, |_, state: &State| state.wrong != Some(Wrong::WentOn)),
        Property::always(REFUSED, |_, state: &State| state.wrong != Some(Wrong::Refused)),
        Property::always(OWN, |_, state: &State| state.wrong != Some(Wrong::BrokeItsOwn)),
        Property::always(EXPECTED, |_, state: &State| state.wrong != Some(Wrong::Unexpected)),
        // The properties are not vacuous: these states occur.
        Property::sometimes(BREAK_IN_STEPS, |system: &System, state: &State| {
            let steps = |client: usize| {
                let down = &state.clients[client].down;
                let is_told = down
                    .iter()
                    .any(|it| matches!(it, Down::Break { to, stale: false, .. } if *to == Flags::READ));
                let held = state.held(system, client);
                is_told && held.is_some_and(|it| it.is_breaking && it.state == Flags::RH)
            };
            (0..system.clients.len()).any(steps)
        }),
        Property::sometimes(LATE, |_, state: &State| {
            state.clients.iter().any(|client| client.down.iter().any(|it| matches!(it, Down::TooLate { .. })))
        }),
        Property::sometimes(FLOWS, |_, state: &State| {
            let flows = |down: &Down| matches!(down, Down::Granted { grant, .. } if grant.is_breaking);
            state.clients.iter().any(|client| client.down.iter().any(flows))
        }),
        Property::sometimes(RECALL_WAITS, |_, state: &State| {
            state.machines.iter().any(|it| it.queue.iter().any(|(who, _)| *who == super::state::Who::Server))
        }),
        Property::sometimes(BOTH_BREAK, |system: &System, state: &State| {
            let breaking = (0..system.clients.len()).filter_map(|client| state.held(system, client));
            breaking.filter(|it| it.is_breaking).count() > 1
        }),
    ]
}

fn writes_alone(system: &System, state: &State) -> bool {
    let all = || state.clients.iter().enumerate().filter(|(_, client)| !client.is_lost);
    let other = |one: usize, two: usize| system.clients[one].1 != system.clients[two].1;
    all().filter(|(_, one)| one.believes(Flags::WRITE)).all(|(one, _)| {
        all()
            .all(|(two, it)| !other(one, two) || it.believes == Flags::NONE || it.is_told_to_drop(Flags::RWH))
    })
}

fn believes_what_is_so(system: &System, state: &State) -> bool {
    state.clients.iter().enumerate().filter(|(_, client)| !client.is_lost).all(|(x, client)| {
        let is = state.held(system, x).map_or(Flags::NONE, |it| it.state);
        // R falls at once, while the client is being told.
        let told = client.down.iter().any(|it| matches!(it, Down::Break { acknowledge: false, .. }));
        is.or(if told { Flags::READ } else { Flags::NONE }).has(client.believes)
    })
}

fn one_break(system: &System, state: &State) -> bool {
    state.clients.iter().enumerate().all(|(x, client)| {
        let breaks = state.held(system, x).is_some_and(|it| it.is_breaking);
        client.unanswered() == usize::from(breaks)
    })
}

fn covered(system: &System, state: &State) -> bool {
    (0..system.clients.len()).all(|client| {
        let cover = state.machines[system.machine_of(client)].cover;
        state.held(system, client).is_none_or(|it| it.is_breaking || cover.has(it.state))
    })
}
