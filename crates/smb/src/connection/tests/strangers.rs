//! Connections of clients that have not logged on, over real sockets.

use super::{header, negotiate, server};
use crate::limits::EARLY_CONNECTIONS;
use crate::listen::Listening;
use crate::wire::bodies::Empty;
use crate::wire::{Command, Header, NtStatus, Writer};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "not so for 60 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a message, and returns the status of the answer.
pub(super) fn ask(stream: &mut TcpStream, message: &[u8]) -> NtStatus {
    stream.write_all(&[&(message.len() as u32).to_be_bytes(), message].concat()).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    Header::parse(&answer).unwrap().status
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    match stream.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn silent_connections_make_way_and_keep_nobody_out() {
    const MORE: usize = 8;
    let listening = Listening::start(server(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let connect = || TcpStream::connect(listening.address()).unwrap();
    let mut speaks = connect();
    assert_eq!(ask(&mut speaks, &negotiate(&[0x311])), NtStatus::SUCCESS);
    let mut silent: Vec<TcpStream> =
        (0..EARLY_CONNECTIONS.of_address - 1 + MORE).map(|_| connect()).collect();
    let mut closed = || silent.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count();
    until("as many made way as there are too many", || closed() == MORE);
    let mut late = connect();
    assert_eq!(ask(&mut late, &negotiate(&[0x311])), NtStatus::SUCCESS);
    let mut echo = header(Command::Echo, 1);
    echo.put(&Empty::default().to_bytes());
    assert_eq!(ask(&mut speaks, &echo), NtStatus::SUCCESS, "it has spoken");
    until("the late one has taken the place of one more", || closed() == MORE + 1);
}
