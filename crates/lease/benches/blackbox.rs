//! The throughput of the black-box engine on one core, and the cost of a decision as the number of
//! clients grows.
//!
//!     cargo bench -p lease --bench blackbox

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lease::SessionId;
use lease::blackbox::{BlackBox, BlackBoxAnswer, GrantPolicy, Or};
use std::hint::black_box;

const FARSITE: GrantPolicy = GrantPolicy::FARSITE;
const SIZES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];

/// Sessions are numbered for a whole server, so those of one field are scattered.
fn session(x: u64) -> SessionId {
    SessionId(x * 7919 + 1)
}

/// All clients have the file open: all are stuck TRUE and see that others have it open.
fn open_by(clients: u64) -> BlackBox<Or> {
    let mut field = BlackBox::new();
    for x in (0..clients).map(session) {
        field.ask_self_write(x, FARSITE, 0);
        field.return_self_write(x, true).expect("just granted");
    }
    for x in (0..clients).map(session) {
        field.ask_other_read(x, FARSITE, 0);
    }
    field
}

/// The next of so many clients. The stride visits all of them, in no pattern that suits a cache.
struct Turns {
    clients: u64,
    at: u64,
}

impl Turns {
    fn next(&mut self) -> SessionId {
        self.at = (self.at + 6_700_417) % self.clients;
        session(self.at)
    }
}

/// Ten clients, one after the other. An open is a grant of each kind, and a close is two releases.
fn ten_clients(c: &mut Criterion) {
    let mut group = c.benchmark_group("10 clients");
    let mut field = open_by(10);
    let mut turns = Turns { clients: 10, at: 0 };
    group.throughput(Throughput::Elements(1));
    group.bench_function("grant OtherRead, and release it", |b| {
        b.iter(|| {
            let x = turns.next();
            field.return_other_read(x).expect("held");
            assert!(matches!(black_box(field.ask_other_read(x, FARSITE, 0)), BlackBoxAnswer::Granted(true)));
        });
    });
    group.bench_function("grant SelfWrite, and release it", |b| {
        b.iter(|| {
            let x = turns.next();
            assert!(matches!(black_box(field.ask_self_write(x, FARSITE, 0)), BlackBoxAnswer::Granted(())));
            field.return_self_write(x, true).expect("held");
        });
    });
    // No client is a shield. `OtherRead` is recalled from the nine that see the tenth.
    let mut field = BlackBox::<Or>::new();
    for x in (0..10).map(session) {
        field.ask_other_read(x, FARSITE, 0);
    }
    group.throughput(Throughput::Elements(9));
    group.bench_function("recall from nine", |b| {
        b.iter(|| {
            assert!(matches!(
                black_box(field.ask_self_write(turns.next(), FARSITE, 0)),
                BlackBoxAnswer::Recall(_)
            ))
        });
    });
    group.finish();
}

/// One request on a field of so many clients: the decision and its effect.
fn many_clients(c: &mut Criterion) {
    let mut group = c.benchmark_group("one request of many clients");
    for clients in SIZES {
        let mut field = open_by(clients);
        let mut turns = Turns { clients, at: 0 };
        group.bench_with_input(BenchmarkId::new("decide SelfWrite", clients), &clients, |b, _| {
            b.iter(|| black_box(field.state_d(turns.next())));
        });
        group.bench_with_input(BenchmarkId::new("decide OtherRead", clients), &clients, |b, _| {
            b.iter(|| black_box(field.state_c(Some(turns.next()))));
        });
        group.bench_with_input(BenchmarkId::new("grant and release SelfWrite", clients), &clients, |b, _| {
            b.iter(|| {
                let x = turns.next();
                assert!(matches!(field.ask_self_write(x, FARSITE, 0), BlackBoxAnswer::Granted(())));
                field.return_self_write(x, true).expect("held");
            });
        });
        group.bench_with_input(BenchmarkId::new("recall from one", clients), &clients, |b, _| {
            // One shield, which sees the others: F-7.
            let mut field = BlackBox::<Or>::new();
            let shield = session(0);
            field.ask_self_write(shield, FARSITE, 0);
            field.return_self_write(shield, true).expect("just granted");
            for x in (0..clients).map(session).filter(|x| *x != shield) {
                field.ask_other_read(x, FARSITE, 0);
            }
            field.ask_other_read(shield, FARSITE, 0);
            b.iter(|| {
                let x = turns.next();
                let answer = field.ask_self_write(if x == shield { session(1) } else { x }, FARSITE, 0);
                assert!(matches!(&answer, BlackBoxAnswer::Recall(recalls) if recalls.len() == 1));
                black_box(answer)
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1))
        .sample_size(40);
    targets = ten_clients, many_clients
}
criterion_main!(benches);
