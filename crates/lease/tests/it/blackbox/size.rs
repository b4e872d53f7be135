//! The size of a field in memory and in a row.

use lease::SessionId;
use lease::blackbox::{BlackBox, BlackBoxAnswer, GrantPolicy, Or};

/// Makes a field of `clients` clients that have all had a value of their own. Every other value is
/// true, and all see the others.
fn field(clients: u64) -> BlackBox<Or> {
    let mut field = BlackBox::new();
    for x in (0..clients).map(session) {
        assert_eq!(field.ask_self_write(x, GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(()));
        field.return_self_write(x, x.0 % 2 == 0).expect("held");
    }
    for x in (0..clients).map(session) {
        assert!(matches!(field.ask_other_read(x, GrantPolicy::FARSITE, 0), BlackBoxAnswer::Granted(_)));
    }
    field
}

/// Sessions are numbered for a whole server, so those of one field are scattered.
fn session(x: u64) -> SessionId {
    SessionId(x * 7919)
}

#[test]
fn a_client_takes_at_most_32_bytes() {
    let field_bytes = |clients: u64| field(clients).bytes() as f64 / clients as f64;
    for clients in [100_000, 17, 33, 65, 1_000, 28_673, 57_345, 65_537, 114_689, 131_073] {
        let bytes = field_bytes(clients);
        println!("{clients} clients: {bytes:.1} bytes each");
        // The worst cases are just past a doubling. With few clients the field itself counts.
        let allowed = if clients < 100 { 48.0 } else { 32.0 };
        assert!(bytes <= allowed, "{clients} clients: {bytes} bytes each");
    }
}

#[test]
fn the_usual_field_is_small() {
    assert_eq!(BlackBox::<Or>::new().bytes(), 56);
    for (clients, bytes) in [(1, 56), (2, 56), (4, 120)] {
        assert!(field(clients).bytes() <= bytes, "{clients} clients: {} bytes", field(clients).bytes());
    }
    for (clients, bytes) in [(0, 1), (1, 5), (2, 11)] {
        let stored = postcard::to_stdvec(&field(clients)).expect("written").len();
        assert!(stored <= bytes, "{clients} clients: {stored} bytes in a row");
    }
}

#[test]
fn memory_comes_back() {
    let mut field = field(10_000);
    for x in (0..10_000).map(session) {
        field.return_other_read(x).expect("held");
    }
    for x in (3..10_000).map(session) {
        field.leave(x);
    }
    assert_eq!(field.check(), Ok(()));
    assert!(field.bytes() <= 256, "{} bytes", field.bytes());
}
