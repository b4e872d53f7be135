//! The report's state diagrams and flow charts, row by row (BlackBox §4.6 to §4.9, Figs. C to F).
//!
//! A field is written as its clients. `x=T` is stuck TRUE, `x=F` is stuck FALSE, and `x=w` writes.
//! An `r` after that means that the client holds `OtherRead`.

use lease::SessionId;
use lease::blackbox::{
    BadReturn, BlackBox, BlackBoxAnswer, BoundedMax, Departure, GrantPolicy, Or, Own, Recall,
    SaturatingCount, SelfWrites, StateC, StateD, SubLease, TableRow, Unshielded,
};

const GROWING: GrantPolicy = GrantPolicy { self_writes: SelfWrites::Growing, ..GrantPolicy::FARSITE };
const COERCE: GrantPolicy = GrantPolicy { unshielded: Unshielded::CoerceShield, ..GrantPolicy::FARSITE };

fn client(name: &str) -> SessionId {
    SessionId(u64::from(name.as_bytes()[0]))
}

fn field(clients: &str) -> BlackBox<Or> {
    let row = |client_is: &str| {
        let (name, is) = client_is.split_once('=').expect("name=state");
        let own = match is.trim_end_matches('r') {
            "T" => Own::Stuck(true),
            "F" => Own::Stuck(false),
            "w" => Own::Writing,
            other => unreachable!("no state: {other}"),
        };
        TableRow { session: client(name), own, reads: is.ends_with('r') }
    };
    let rows = clients.split_whitespace().map(row).filter(|row| row.reads || row.own != Own::Stuck(false));
    BlackBox::from_rows(&rows.collect::<Vec<_>>()).expect("a field that can be")
}

fn state_c(clients: &str) -> StateC {
    field(clients).state_c(Some(client("x")))
}

fn state_d(clients: &str) -> StateD {
    field(clients).state_d(client("x"))
}

fn ask_other_read(clients: &str) -> BlackBoxAnswer<bool> {
    field(clients).ask_other_read(client("x"), GrantPolicy::FARSITE, 0)
}

fn ask_self_write(clients: &str) -> BlackBoxAnswer<()> {
    field(clients).ask_self_write(client("x"), GrantPolicy::FARSITE, 0)
}

fn recalls(names: &str, lease: SubLease) -> Vec<Recall> {
    names.split_whitespace().map(|name| Recall { session: client(name), lease }).collect()
}

fn self_writes<V>(names: &str) -> BlackBoxAnswer<V> {
    BlackBoxAnswer::Recall(recalls(names, SubLease::SelfWrite))
}

fn other_reads<V>(names: &str) -> BlackBoxAnswer<V> {
    BlackBoxAnswer::Recall(recalls(names, SubLease::OtherRead))
}

/// Returns the field after client `name` has returned `SelfWrite` with the value.
fn after_return(clients: &str, name: &str, value: bool) -> BlackBox<Or> {
    let mut field = field(clients);
    field.return_self_write(client(name), value).expect("it holds it");
    field
}

#[test]
fn c_1_another_is_stuck_true() {
    for clients in ["y=T", "x=F y=T", "x=T y=T", "x=w y=T", "w=w x=F y=T z=w", "x=w y=T z=wr"] {
        assert_eq!(state_c(clients), StateC::C1, "{clients}");
        assert_eq!(ask_other_read(clients), BlackBoxAnswer::Granted(true), "{clients}");
    }
}

#[test]
fn c_2_all_others_are_stuck_false() {
    // The result does not depend on SelfWrite and the value of X.
    for clients in ["", "x=F", "x=T", "x=w", "x=w y=F z=F", "x=T y=Fr"] {
        assert_eq!(state_c(clients), StateC::C2, "{clients}");
        assert_eq!(ask_other_read(clients), BlackBoxAnswer::Granted(false), "{clients}");
    }
}

#[test]
fn c_3_another_writes_and_none_is_stuck_true() {
    for (clients, writers) in [("y=w", "y"), ("x=T y=w", "y"), ("x=w y=w", "y"), ("x=F y=w z=w", "y z")] {
        assert_eq!(state_c(clients), StateC::C3, "{clients}");
        assert_eq!(ask_other_read(clients), self_writes(writers), "{clients}");
    }
}

#[test]
fn c_3_becomes_c_1_when_true_is_returned() {
    for clients in ["y=w", "y=w z=w"] {
        assert_eq!(after_return(clients, "y", true).state_c(Some(client("x"))), StateC::C1, "{clients}");
    }
}

#[test]
fn c_3_becomes_c_2_when_the_last_returns_false() {
    assert_eq!(after_return("y=w", "y", false).state_c(Some(client("x"))), StateC::C2);
}

#[test]
fn c_3_remains_when_another_writes_still() {
    assert_eq!(after_return("y=w z=w", "y", false).state_c(Some(client("x"))), StateC::C3);
}

#[test]
fn d_1_every_other_ignores_x_or_is_shielded() {
    let all_ignore = ["", "x=T", "x=Fr", "y=w z=w", "y=T", "x=T y=F z=w"];
    let shielded = ["y=T z=Fr", "y=T z=wr", "x=w y=T z=Fr", "x=T y=T z=Fr"];
    let shields_for_each_other = ["y=Tr z=Tr", "w=Fr y=Tr z=Tr", "x=Tr y=Tr z=Tr"];
    for clients in all_ignore.iter().chain(&shielded).chain(&shields_for_each_other) {
        assert_eq!(state_d(clients), StateD::D1, "{clients}");
    }
}

#[test]
fn d_1_no_client_is_a_shield_for_itself() {
    assert_eq!(state_d("y=T"), StateD::D1);
    assert_eq!(state_d("y=Tr"), StateD::D2);
    assert_eq!(state_d("y=Tr z=T"), StateD::D1);
}

#[test]
fn d_2_another_sees_x_and_nobody_else_writes() {
    // X is no shield for others from itself. Writing by the client to be shielded does not shield
    // it.
    for clients in ["y=Fr", "y=Tr", "x=T y=Fr", "y=Tr z=Fr", "x=T y=wr"] {
        assert_eq!(state_d(clients), StateD::D2, "{clients}");
    }
}

#[test]
fn d_2_becomes_d_1_when_the_last_other_read_is_returned() {
    let mut it = field("y=Fr z=Fr");
    it.return_other_read(client("y")).expect("held");
    assert_eq!(it.state_d(client("x")), StateD::D2);
    it.return_other_read(client("z")).expect("held");
    assert_eq!(it.state_d(client("x")), StateD::D1);
}

#[test]
fn d_3_another_sees_x_and_a_third_writes() {
    // A client can see while a third one writes only behind a shield. Here the shield is X itself.
    for clients in ["x=T y=Fr z=w", "x=T y=wr z=wr", "x=T y=Fr z=wr"] {
        assert_eq!(state_d(clients), StateD::D3, "{clients}");
    }
}

#[test]
fn d_3_becomes_d_1_when_true_is_returned_by_one_that_ignores_x_or_is_shielded() {
    assert_eq!(after_return("x=T y=Fr z=w", "z", true).state_d(client("x")), StateD::D1);
    let two = after_return("v=w x=T y=Fr z=wr", "v", true);
    assert_eq!(two.state_d(client("x")), StateD::D1, "z, which writes, is shielded by v");
}

#[test]
fn d_3_remains_when_true_is_returned_by_one_that_sees_x() {
    let with_another = after_return("v=w x=T y=Fr z=wr", "z", true);
    assert_eq!(with_another.state_d(client("x")), StateD::D3, "v may turn out to be z's shield");
    // The report says D-3 here too. By its own definition it is D-2, since no writer is left.
    assert_eq!(after_return("x=T y=Fr z=wr", "z", true).state_d(client("x")), StateD::D2);
}

#[test]
fn d_3_becomes_d_2_when_the_last_returns_false() {
    assert_eq!(after_return("x=T y=Fr z=w", "z", false).state_d(client("x")), StateD::D2);
}

#[test]
fn d_3_remains_when_false_is_returned_and_another_writes() {
    assert_eq!(after_return("v=w x=T y=Fr z=w", "z", false).state_d(client("x")), StateD::D3);
}

#[test]
fn e_1_x_has_it_already() {
    for (clients, value) in [("x=Fr y=T", true), ("x=wr", false), ("x=Fr y=T z=w", true)] {
        let mut it = field(clients);
        assert_eq!(
            it.ask_other_read(client("x"), GrantPolicy::FARSITE, 0),
            BlackBoxAnswer::Held(value),
            "{clients}"
        );
        assert_eq!(it, field(clients), "nothing has changed");
    }
}

#[test]
fn e_2_c_1_is_asked_for_first() {
    // A writer does not matter where another client is stuck TRUE.
    assert_eq!(ask_other_read("y=T z=w"), BlackBoxAnswer::Granted(true));
    assert_eq!(ask_other_read("y=F z=w"), self_writes("z"));
}

#[test]
fn e_3_true_is_granted() {
    let mut it = field("y=T");
    assert_eq!(it.ask_other_read(client("x"), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(true));
    assert_eq!(it, field("x=Fr y=T"));
}

#[test]
fn e_4_c_2_is_asked_for_next() {
    assert_eq!(ask_other_read("x=w y=F"), BlackBoxAnswer::Granted(false));
    assert_eq!(ask_other_read("x=w y=w"), self_writes("y"));
}

#[test]
fn e_5_false_is_granted() {
    let mut it = field("x=w");
    assert_eq!(it.ask_other_read(client("x"), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(false));
    assert_eq!(it, field("x=wr"));
}

#[test]
fn e_6_all_self_writes_are_recalled_but_that_of_x() {
    assert_eq!(ask_other_read("u=w v=F x=w y=w z=w"), self_writes("u y z"));
    let mut it = field("u=w x=w y=w");
    it.return_self_write(client("u"), false).expect("held");
    assert_eq!(
        it.ask_other_read(client("x"), GrantPolicy::FARSITE, 0),
        self_writes("y"),
        "the same steps again"
    );
    it.return_self_write(client("y"), true).expect("held");
    assert_eq!(it.ask_other_read(client("x"), GrantPolicy::FARSITE, 1), BlackBoxAnswer::Granted(true));
}

#[test]
fn e_6_a_growing_subset_of_self_writes_is_recalled() {
    let mut it = field("a=w b=w c=w d=w e=w f=w g=w h=w x=w");
    for (round, subset) in ["a", "b c", "d e f g", "h"].iter().enumerate() {
        assert_eq!(it.ask_other_read(client("x"), GROWING, round as u32), self_writes(subset));
        for name in subset.split_whitespace() {
            it.return_self_write(client(name), false).expect("held");
        }
    }
    assert_eq!(it.ask_other_read(client("x"), GROWING, 4), BlackBoxAnswer::Granted(false));
    let mut it = field("a=w b=w");
    it.return_self_write(client("a"), true).expect("held");
    assert_eq!(it.ask_other_read(client("x"), GROWING, 1), BlackBoxAnswer::Granted(true), "b keeps its own");
    assert_eq!(field("a=w b=w").ask_other_read(client("x"), GROWING, u32::MAX), self_writes("a b"));
}

#[test]
fn f_1_x_has_it_already() {
    for clients in ["x=w", "x=wr", "x=w y=T z=Fr"] {
        let mut it = field(clients);
        assert_eq!(
            it.ask_self_write(client("x"), GrantPolicy::FARSITE, 0),
            BlackBoxAnswer::Held(()),
            "{clients}"
        );
        assert_eq!(it, field(clients), "nothing has changed");
    }
}

#[test]
fn f_2_shields_are_counted() {
    // All others see X in each case. X itself is none of its shields.
    for (shields, clients, answer) in [
        (0, "y=Fr z=Fr", other_reads("y z")),
        (0, "x=T y=Fr z=Fr", other_reads("y z")),
        (1, "y=Fr z=Tr", other_reads("z")),
        (2, "y=Tr z=Tr", BlackBoxAnswer::Granted(())),
        (3, "w=Tr y=Tr z=Tr", BlackBoxAnswer::Granted(())),
    ] {
        assert_eq!(ask_self_write(clients), answer, "{shields} shields: {clients}");
    }
}

#[test]
fn f_3_without_shields_somebody_may_see_x() {
    assert_eq!(ask_self_write("y=F z=w"), BlackBoxAnswer::Granted(()), "all ignore X");
    assert_eq!(ask_self_write("x=Fr"), BlackBoxAnswer::Granted(()), "X does not see itself");
    assert_eq!(ask_self_write("y=Fr"), other_reads("y"));
}

#[test]
fn f_4_the_one_shield_may_see_x() {
    assert_eq!(ask_self_write("y=T z=Fr"), BlackBoxAnswer::Granted(()), "it ignores X");
    assert_eq!(ask_self_write("y=Tr z=Fr"), other_reads("y"));
}

#[test]
fn f_5_self_write_is_granted_behind_shields() {
    for (clients, afterwards) in
        [("x=F y=Tr z=Tr", "x=w y=Tr z=Tr"), ("x=T y=T z=Fr", "x=w y=T z=Fr"), ("x=Tr y=T", "x=wr y=T")]
    {
        let mut it = field(clients);
        assert_eq!(
            it.ask_self_write(client("x"), GrantPolicy::FARSITE, 0),
            BlackBoxAnswer::Granted(()),
            "{clients}"
        );
        assert_eq!(it, field(afterwards));
    }
}

#[test]
fn f_6_without_shields_other_read_is_recalled_from_all_who_see_x() {
    assert_eq!(ask_self_write("u=Fr v=F x=Fr y=Fr"), other_reads("u y"));
    assert_eq!(ask_self_write("u=wr x=T y=Fr z=w"), other_reads("u y"), "in D-3 as in D-2");
    let mut it = field("u=Fr y=Fr");
    for name in ["u", "y"] {
        assert!(matches!(it.ask_self_write(client("x"), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Recall(_)));
        it.return_other_read(client(name)).expect("held");
    }
    assert_eq!(it.ask_self_write(client("x"), GrantPolicy::FARSITE, 1), BlackBoxAnswer::Granted(()));
}

#[test]
fn f_6_instead_of_it_a_shield_can_be_coerced() {
    let ask = |clients: &str| field(clients).ask_self_write(client("x"), COERCE, 0);
    assert_eq!(ask("x=T y=Fr z=w"), self_writes("z"), "D-3");
    assert_eq!(ask("x=T y=Fr"), other_reads("y"), "D-2");
    assert_eq!(ask("x=T y=wr z=w"), self_writes("z"), "y is no shield for itself");
    assert_eq!(ask("x=T y=wr z=wr"), self_writes("y z"), "each may be the other's");
    let mut it = after_return("x=T y=Fr z=w", "z", true);
    assert_eq!(it.ask_self_write(client("x"), COERCE, 1), BlackBoxAnswer::Granted(()));
    assert_eq!(it.other_value(client("y")), Some(true), "y keeps what it has");
    let mut it = after_return("x=T y=Fr z=w", "z", false);
    assert_eq!(it.ask_self_write(client("x"), COERCE, 1), other_reads("y"));
    let both = GrantPolicy { self_writes: SelfWrites::Growing, ..COERCE };
    let mut it = field("u=w v=w w=w x=T y=Fr");
    assert_eq!(it.ask_self_write(client("x"), both, 0), self_writes("u"));
    assert_eq!(it.ask_self_write(client("x"), both, 1), self_writes("u v"));
}

#[test]
fn f_7_other_read_is_recalled_from_the_one_shield() {
    let mut it = field("w=Fr y=Tr");
    assert_eq!(it.ask_self_write(client("x"), GrantPolicy::FARSITE, 0), other_reads("y"));
    it.return_other_read(client("y")).expect("held");
    assert_eq!(it.ask_self_write(client("x"), GrantPolicy::FARSITE, 1), BlackBoxAnswer::Granted(()));
    assert_eq!(it.other_value(client("w")), Some(true), "w keeps what it has");
}

#[test]
fn f_8_without_shields_self_write_is_granted_if_all_ignore_x() {
    for (clients, afterwards) in [("", "x=w"), ("y=w", "x=w y=w"), ("x=Tr y=F", "x=wr")] {
        let mut it = field(clients);
        assert_eq!(
            it.ask_self_write(client("x"), GrantPolicy::FARSITE, 0),
            BlackBoxAnswer::Granted(()),
            "{clients}"
        );
        assert_eq!(it, field(afterwards));
    }
}

#[test]
fn who_leaves_takes_no_view_along() {
    for (clients, in_the_way, afterwards) in [
        ("x=T y=Fr z=Fr", "y z", ""),
        ("x=T y=T z=Fr", "", "y=T z=Fr"),
        ("x=T y=Tr z=Fr", "y", "y=T z=Fr"),
        ("x=Tr y=Tr z=Tr", "", "y=Tr z=Tr"),
        ("x=T y=wr", "y", "y=w"),
        ("x=wr y=T z=Fr", "", "y=T z=Fr"),
        ("x=w", "", ""),
        ("x=Fr", "", ""),
        ("", "", ""),
    ] {
        let mut it = field(clients);
        if !in_the_way.is_empty() {
            let first = recalls(in_the_way, SubLease::OtherRead);
            assert_eq!(it.leave(client("x")), Departure::Recall(first), "{clients}");
            assert!(it.other_value(client("x")).is_none(), "{clients}: but it is over for x");
            for name in in_the_way.split_whitespace() {
                it.return_other_read(client(name)).expect("held");
            }
        }
        assert_eq!(it.leave(client("x")), Departure::Gone, "{clients}");
        assert_eq!(it, field(afterwards), "{clients}");
    }
}

#[test]
fn what_others_send_is_not_trusted() {
    let mut it = field("x=w y=T z=Fr");
    assert_eq!(it.return_self_write(client("y"), false), Err(BadReturn::NotHeld));
    assert_eq!(it.return_other_read(client("x")), Err(BadReturn::NotHeld));
    assert_eq!(it, field("x=w y=T z=Fr"));
    let mut bounded = BlackBox::<BoundedMax<2>>::new();
    assert_eq!(bounded.ask_self_write(client("x"), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(()));
    assert_eq!(bounded.return_self_write(client("x"), 3), Err(BadReturn::NoSuchValue));
    assert!(bounded.writes(client("x")));
}

#[test]
fn the_server_can_ask_for_itself() {
    assert_eq!(field("x=w y=T").ask_everyone(GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(true));
    assert_eq!(field("x=w").ask_everyone(GrantPolicy::FARSITE, 0), self_writes("x"));
    assert_eq!(field("").ask_everyone(GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(false));
    for (clients, everyone) in [("x=w y=T", Some(true)), ("x=w", None), ("x=Fr", Some(false))] {
        assert_eq!(field(clients).everyone(), everyone);
    }
}

#[test]
fn shields_of_a_count_are_several_clients_together() {
    let mut it = BlackBox::<SaturatingCount<3>>::new();
    for (name, value) in [("x", 1), ("y", 1), ("z", 2), ("w", 0)] {
        assert_eq!(it.ask_self_write(client(name), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(()));
        it.return_self_write(client(name), value).expect("held");
    }
    for (name, others) in [("x", 3), ("y", 3), ("z", 2), ("w", 3)] {
        assert_eq!(it.ask_other_read(client(name), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(others));
    }
    // Without x, y and z add up to 3, so w is shielded. Each of the two is needed for that, so
    // neither of them is shielded.
    let yz = recalls("y z", SubLease::OtherRead);
    it.return_other_read(client("x")).expect("held");
    assert_eq!(it.ask_self_write(client("x"), GrantPolicy::FARSITE, 0), BlackBoxAnswer::Recall(yz));
    assert_eq!(it.other_value(client("w")), Some(3));
}
