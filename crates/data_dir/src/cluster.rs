//! The cluster that a machine belongs to, as it knows it without a server.
//!
//! `cluster.json` has one owner in a process, the [`ClusterFile`]. Each change of the file is one
//! of its steps, and a step names only what it changes: news of other servers cannot undo that this
//! machine serves.

use crate::dir::{DataDir, DirLock};
use crate::error::DataError;
use crate::small::{peek_file, read_file, remove_file, replace_file};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use wire::FOUNDER_MEMBER;

const NAME: &str = "cluster.json";
/// The number of addresses kept of an only server, which may move again and again.
const ADDRESSES_MAX: usize = 8;

/// The cluster that a machine has joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The addresses at which its servers listen.
    pub addresses: Vec<String>,
    /// The machine's number in the server group, if it is a server.
    pub member: Option<u64>,
    /// The machine was a server, has lost its state, and is to become one again.
    pub again: bool,
    /// The address at which its server listens unless told otherwise. After an outage of all
    /// servers the others look for it there.
    pub listens: Option<SocketAddr>,
    /// The name of this machine.
    pub name: Option<String>,
}

impl Cluster {
    /// Reads the cluster of the machine in `dir`, and changes nothing. None if the machine made its
    /// own cluster, and serves.
    pub fn of(dir: &Path) -> Result<Option<Cluster>, DataError> {
        parse(dir, peek_file(dir, NAME)?)
    }

    /// Writes this to `dir`, for a machine that joins.
    pub(crate) fn keep(&self, dir: &Path) -> Result<(), DataError> {
        replace_file(dir, NAME, &serde_json::to_vec(self).expect("numbers and text are JSON"))
    }
}

fn parse(dir: &Path, bytes: Option<Vec<u8>>) -> Result<Option<Cluster>, DataError> {
    let cluster = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
    cluster.map_err(|e| DataError::Damaged { file: dir.join(NAME), why: e.to_string() })
}

/// The leader's news of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerNews {
    /// The addresses of each server. An only server may name none.
    pub servers: Vec<Vec<String>>,
    /// This machine's server is the only one.
    pub only_here: bool,
    /// The address at which the leader was called.
    pub called: String,
    /// The name of this machine, if its server knows that.
    pub name: Option<String>,
}

/// The owner of the `cluster.json` of a running machine. As long as this exists no other process
/// has the data directory, whatever threads outlive their machine.
#[derive(Debug)]
pub struct ClusterFile {
    dir: PathBuf,
    state: Mutex<ClusterState>,
    _lock: DirLock,
}

#[derive(Debug)]
struct ClusterState {
    /// The content of the file.
    known: Option<Cluster>,
    /// The machine ends: nothing is written any more.
    closed: bool,
}

impl ClusterFile {
    /// Reads the file of the machine in `data`.
    pub fn open(data: &DataDir) -> Result<ClusterFile, DataError> {
        let dir = data.path().to_path_buf();
        let known = parse(&dir, read_file(&dir, NAME)?)?;
        Ok(ClusterFile { dir, state: Mutex::new(ClusterState { known, closed: false }), _lock: data.lock() })
    }

    /// The cluster as the file has it. None if the machine made its own cluster, and serves.
    pub fn known(&self) -> Option<Cluster> {
        self.state.lock().known.clone()
    }

    /// Whether the machine was a server, has lost its state, and is to become one again.
    pub fn serves_again(&self) -> bool {
        self.state.lock().known.as_ref().is_some_and(|known| known.again)
    }

    /// Notes that the machine serves as `member`, and where.
    pub fn serves(&self, member: u64, listens: Option<SocketAddr>) -> Result<(), DataError> {
        self.change(|known| (known.member, known.listens) = (Some(member), listens))
    }

    /// Notes that the machine is no server any more. Servers are at `addresses`, if any are known.
    pub fn retired(&self, addresses: Vec<String>) -> Result<(), DataError> {
        self.change(|known| {
            (known.member, known.again, known.listens) = (None, false, None);
            if !addresses.is_empty() {
                known.addresses = addresses;
            }
        })
    }

    /// Notes that the server's state is lost, and that the machine is to become a server again.
    /// Other servers are at `addresses`, unless the file names any.
    pub fn lost(&self, addresses: Vec<String>) -> Result<(), DataError> {
        self.change(|known| {
            (known.member, known.again) = (None, true);
            if known.addresses.is_empty() {
                known.addresses = addresses;
            }
        })
    }

    /// Notes that the machine, which had lost its server's state, is a server again.
    pub fn recovered(&self) -> Result<(), DataError> {
        self.change(|known| known.again = false)
    }

    /// Takes in where the servers are. The founder needs that only if there are other servers, in
    /// case it has lost its state. A machine that ends takes in nothing.
    pub fn heard(&self, news: ServerNews) -> Result<(), DataError> {
        let mut state = self.state.lock();
        if state.closed {
            return Ok(());
        }
        let before = match &state.known {
            Some(known) if news.only_here && known.member == Some(FOUNDER_MEMBER) => {
                remove_file(&self.dir, NAME)?;
                state.known = None;
                return Ok(());
            }
            None if news.servers.len() < 2 => return Ok(()),
            // Without the file the machine is the founder, which serves.
            None => Cluster { member: Some(FOUNDER_MEMBER), ..Cluster::default() },
            Some(known) => known.clone(),
        };
        state.put(&self.dir, with_news(before, news))
    }

    /// Ends all writing. The steps fail from here on, except for news.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    fn change(&self, change: impl FnOnce(&mut Cluster)) -> Result<(), DataError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(DataError::Ends { dir: self.dir.clone() });
        }
        let mut now = state.known.clone().unwrap_or_default();
        change(&mut now);
        state.put(&self.dir, now)
    }
}

impl ClusterState {
    /// Writes what is new.
    fn put(&mut self, dir: &Path, now: Cluster) -> Result<(), DataError> {
        if self.known.as_ref() != Some(&now) {
            now.keep(dir)?;
            self.known = Some(now);
        }
        Ok(())
    }
}

/// The cluster with other addresses, and with a name if it has none. A server that names no address
/// is where it was.
fn with_news(mut cluster: Cluster, news: ServerNews) -> Cluster {
    let mut addresses = Vec::new();
    let is_silent = news.servers.iter().any(Vec::is_empty);
    let before = cluster.addresses.iter().filter(|_| is_silent);
    for address in news.servers.iter().flatten().chain(before) {
        if !addresses.contains(address) {
            addresses.push(address.clone());
        }
    }
    if news.servers.iter().all(Vec::is_empty) && !news.called.is_empty() && !addresses.contains(&news.called)
    {
        // The only server may have moved to the address by which it was called.
        addresses.insert(0, news.called);
    }
    if is_silent {
        let told = news.servers.iter().flatten().count();
        addresses.truncate(ADDRESSES_MAX.max(told));
    }
    cluster.addresses = addresses;
    // A machine keeps its name when it joins. The founder may lose the rows that hold its own name.
    cluster.name = cluster.name.or(news.name);
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const LISTENS: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 4470);

    /// The file of a machine that has joined, and its directory.
    fn joined() -> (TempDir, DataDir, ClusterFile) {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::take(dir.path(), "a test").unwrap();
        let addresses = vec!["10.0.0.1:1".to_owned()];
        let joined = Cluster { addresses, name: Some("second".to_owned()), ..Cluster::default() };
        joined.keep(dir.path()).unwrap();
        let file = ClusterFile::open(&data).unwrap();
        (dir, data, file)
    }

    fn news(servers: &[&[&str]]) -> ServerNews {
        let servers = servers.iter().map(|at| at.iter().map(|at| (*at).to_owned()).collect()).collect();
        ServerNews { servers, ..ServerNews::default() }
    }

    /// Each step, by its number.
    fn step(file: &ClusterFile, number: usize) -> Result<(), DataError> {
        match number {
            0 => file.serves(2, Some(LISTENS)),
            1 => file.retired(vec!["10.0.0.9:1".to_owned()]),
            2 => file.lost(Vec::new()),
            3 => file.recovered(),
            4 => file.heard(news(&[&["10.0.0.1:1"], &["10.0.0.2:1"], &["10.0.0.3:1"]])),
            5 => file.heard(news(&[&[]])),
            _ => file.heard(ServerNews { only_here: true, ..news(&[&["10.0.0.1:1"]]) }),
        }
    }

    const STEPS: usize = 7;

    #[test]
    fn news_never_change_whether_the_machine_serves() {
        for before in 0..STEPS {
            for heard in 4..STEPS {
                let (dir, _data, file) = joined();
                step(&file, before).unwrap();
                let known = file.known().unwrap();
                step(&file, heard).unwrap();
                let now = Cluster::of(dir.path()).unwrap().unwrap();
                let part = |cluster: &Cluster| (cluster.member, cluster.again, cluster.listens);
                assert_eq!(part(&now), part(&known), "{before}, {heard}");
                assert_eq!(now.name.as_deref(), Some("second"));
                assert!(!now.addresses.is_empty());
                assert_eq!(file.known(), Some(now));
            }
        }
    }

    /// News that one thread has read are written after another thread's step, again and again.
    #[test]
    fn steps_of_several_threads_undo_nothing_of_each_other() {
        let (dir, _data, file) = joined();
        for member in 2..30 {
            std::thread::scope(|scope| {
                for last in 0..3 {
                    let file = &file;
                    scope.spawn(move || {
                        let address = format!("10.0.{member}.{last}:1");
                        file.heard(news(&[&[&address], &["10.0.0.1:1"]])).unwrap();
                    });
                }
                // Readers repair what they find, such as a copy that is older.
                scope.spawn(|| read_file(dir.path(), NAME).unwrap());
                scope.spawn(|| file.serves(member, Some(LISTENS)).unwrap());
            });
            let now = Cluster::of(dir.path()).unwrap().unwrap();
            assert_eq!((now.member, now.listens), (Some(member), Some(LISTENS)));
            assert_eq!(file.known(), Some(now));
        }
    }

    #[test]
    fn a_reader_between_the_two_writes_of_a_change_brings_nothing_old_back() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..200_u64 {
            std::thread::scope(|scope| {
                scope.spawn(|| replace_file(dir.path(), NAME, &round.to_le_bytes()).unwrap());
                for _ in 0..4 {
                    scope.spawn(|| read_file(dir.path(), NAME).unwrap());
                }
            });
            assert_eq!(read_file(dir.path(), NAME).unwrap().unwrap(), round.to_le_bytes());
        }
    }

    #[test]
    fn a_machine_that_ends_writes_nothing() {
        for number in 0..STEPS {
            let (dir, _data, file) = joined();
            file.serves(3, None).unwrap();
            let before = Cluster::of(dir.path()).unwrap();
            file.close();
            let news = number >= 4;
            assert_eq!(step(&file, number).is_ok(), news, "{number}");
            assert_eq!(Cluster::of(dir.path()).unwrap(), before, "{number}");
        }
    }

    #[test]
    fn no_other_process_has_the_directory_while_a_thread_has_its_file() {
        let (dir, data, file) = joined();
        drop(data);
        let refused = DataDir::hold(dir.path(), "another");
        assert!(matches!(refused, Err(DataError::InUse { .. })), "{refused:?}");
        drop(file);
        DataDir::hold(dir.path(), "another").unwrap();
    }

    #[test]
    fn the_founder_has_the_file_only_beside_other_servers() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::take(dir.path(), "a test").unwrap();
        let file = ClusterFile::open(&data).unwrap();
        file.heard(news(&[&["10.0.0.1:1"]])).unwrap();
        assert_eq!(file.known(), None);
        file.heard(news(&[&["10.0.0.1:1"], &["10.0.0.2:1"]])).unwrap();
        assert_eq!(file.known().unwrap().member, Some(FOUNDER_MEMBER));
        // Another server is left, which has removed this one.
        file.heard(news(&[&["10.0.0.2:1"]])).unwrap();
        assert!(file.known().is_some());
        file.heard(ServerNews { only_here: true, ..news(&[&["10.0.0.1:1"]]) }).unwrap();
        assert_eq!((file.known(), Cluster::of(dir.path()).unwrap()), (None, None));
    }

    #[test]
    fn a_server_that_names_no_address_is_where_it_was() {
        let (_dir, _data, file) = joined();
        let addresses = || file.known().unwrap().addresses;
        file.heard(news(&[&["10.0.0.1:1"], &["10.0.0.2:1"]])).unwrap();
        file.heard(news(&[&[], &["10.0.0.3:1"]])).unwrap();
        assert_eq!(addresses(), ["10.0.0.3:1", "10.0.0.1:1", "10.0.0.2:1"]);
        file.heard(news(&[&["10.0.0.4:1"], &["10.0.0.3:1"]])).unwrap();
        assert_eq!(addresses(), ["10.0.0.4:1", "10.0.0.3:1"]);
        for port in 1..20 {
            file.heard(ServerNews { called: format!("10.1.0.1:{port}"), ..news(&[&[]]) }).unwrap();
        }
        assert_eq!(addresses().len(), ADDRESSES_MAX);
        assert_eq!(addresses()[0], "10.1.0.1:19");
        file.retired(Vec::new()).unwrap();
        assert_eq!(addresses().len(), ADDRESSES_MAX);
    }
}
