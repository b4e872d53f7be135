//! Clients that vanish without a word.

use super::strangers::{ask, until};
use super::{negotiate, server};
use crate::listen::Listening;
use crate::wire::NtStatus;
use std::net::TcpStream;

/// The timer of the server's end of a connection is the second field of the fifth column: 02 is
/// that of keepalive.
#[test]
fn clients_that_vanish_are_noticed() {
    let listening = Listening::start(server(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let mut client = TcpStream::connect(listening.address()).unwrap();
    assert_eq!(ask(&mut client, &negotiate(&[0x311])), NtStatus::SUCCESS);
    let ports = [listening.address().port(), client.local_addr().unwrap().port()];
    let ports = ports.map(|port| format!(":{port:04X}"));
    until("watched", || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = fields
                .get(1..3)
                .is_some_and(|ends| ends.iter().zip(&ports).all(|(end, port)| end.ends_with(port.as_str())));
            is_it && fields.get(5).is_some_and(|timer| timer.starts_with("02:"))
        })
    });
}
