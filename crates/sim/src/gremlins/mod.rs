//! The gremlins (Farsite §8.2.6): programs that do what people do, on a campus of machines and
//! servers in simulated time. Each knows what the answers to its calls are to be.
//!
//! Every machine has seven: four that share nothing (`alone`), and three that share a document,
//! mail and a revision control system (`together`). One custodian renames directories near the
//! root. Times and counts are means, as in the paper: each is drawn evenly from nothing to twice
//! the mean.

mod alone;
mod custodian;
mod shared_names;
mod together;

pub use crate::campus::counts::{Counts, Sample};

use crate::campus::moves::Balance;
use crate::campus::{Campus, CampusSettings};
use crate::host::Violation;
use serde::Serialize;
use shared_names::SharedNames;
use std::cell::RefCell;
use std::rc::Rc;
use together::{Document, Post, Revisions};

/// The time within which all directories are made, ms.
const INSTALLS_MS: u64 = 600_000;
/// The time within which the last messages arrive, ms.
const RESTS_MS: u64 = 30_000;

/// A run of the gremlins.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Seed of everything.
    pub seed: u64,
    /// Machines.
    pub machines: usize,
    /// Servers.
    pub servers: u16,
    /// Simulated time, s.
    pub secs: u64,
    /// The time of a server's processor for each message, µs.
    pub service_us: u64,
    /// The time of a server's disk for each message of a machine but renewals, µs.
    pub disk_us: u64,
    /// How servers share the load.
    pub delegation: Delegation,
}

/// How servers share the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delegation {
    /// Regions move whenever loads differ.
    Full,
    /// A file is handed over at most once: the paper's control.
    Once,
}

impl Run {
    /// The paper's basis: 15 machines and 15 servers.
    pub fn basis(seed: u64, secs: u64) -> Run {
        let (service_us, disk_us, delegation) = (200, 0, Delegation::Full);
        Run { seed, machines: 15, servers: 15, secs, service_us, disk_us, delegation }
    }
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct GremlinsOutcome {
    /// Simulated time, s.
    pub secs: u64,
    /// The counts of that time.
    pub counts: Counts,
}

/// Runs the gremlins. Fails at the first answer that is not the due one.
pub fn run(run: Run) -> Result<GremlinsOutcome, Violation> {
    let Run { seed, machines, servers, secs, service_us, disk_us, delegation } = run;
    let balance = Balance { once: delegation == Delegation::Once, ..Balance::default() };
    let settings = CampusSettings {
        machines,
        servers,
        latency_us: (300, 2_000),
        service_us,
        disk_us,
        balance: (servers > 1).then_some(balance),
        sample_s: 60,
    };
    let failed = |what: Violation| format!("seed {seed}, {machines} machines, {servers} servers, {what}");
    let mut campus = Campus::new(seed, settings).map_err(failed)?;
    let names = SharedNames::default();
    let its = names.clone();
    campus.begins(0, move |context| installs(context, machines, its));
    campus.run_to_end(INSTALLS_MS).map_err(failed)?;
    begins(&mut campus, machines, &names);
    campus.counts.begin_anew();
    campus.run_ms(1_000 * secs).map_err(failed)?;
    let counts = campus.counts.clone();
    campus.rests_ms(RESTS_MS).map_err(failed)?;
    campus.check().map_err(failed)?;
    Ok(GremlinsOutcome { secs, counts })
}

async fn installs(
    context: crate::campus::program_context::ProgramContext,
    machines: usize,
    names: SharedNames,
) -> Result<(), Violation> {
    shared_names::install(context.clone(), machines, names).await?;
    for number in 0..machines.div_ceil(together::AUTHORS) {
        together::installs_document(&context, number).await?;
    }
    for user in 0..machines {
        together::installs_mail(&context, user).await?;
    }
    together::installs_revisions(&context).await?;
    context.sync_all().await
}

/// Every gremlin begins.
fn begins(campus: &mut Campus, machines: usize, names: &SharedNames) {
    let documents: Vec<Rc<RefCell<Document>>> =
        (0..machines.div_ceil(together::AUTHORS)).map(|_| Rc::default()).collect();
    let post = Rc::new(RefCell::new(Post::default()));
    let all = Rc::new(RefCell::new(Revisions::default()));
    for at in 0..machines {
        let of = || names.clone();
        let (its, document) = (of(), Rc::clone(&documents[at / together::AUTHORS]));
        campus.begins(at, move |context| alone::database(context, its, at));
        let its = of();
        campus.begins(at, move |context| alone::editor(context, its, at));
        let its = of();
        campus.begins(at, move |context| alone::project(context, its, at));
        let its = of();
        campus.begins(at, move |context| alone::web(context, its, at));
        campus.begins(at, move |context| together::document(context, at / together::AUTHORS, at, document));
        let post = Rc::clone(&post);
        campus.begins(at, move |context| together::mail(context, at, machines, post));
        let (its, all) = (of(), Rc::clone(&all));
        campus.begins(at, move |context| together::revisions(context, its, at, all));
    }
    let its = names.clone();
    campus.begins(0, move |context| custodian::custodian(context, its));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short run: every gremlin's own checks hold while regions move.
    #[test]
    fn gremlins_find_what_is_due_while_regions_move() {
        let outcome = run(Run { machines: 4, servers: 4, ..Run::basis(1, 600) }).unwrap();
        println!("{:?}", outcome.counts);
        assert!(outcome.counts.delegations > 3, "{:?}", outcome.counts);
        assert!(outcome.counts.operations > 10_000, "{:?}", outcome.counts);
    }

    /// Over any ten minutes, once servers have had time to share the load. The directories that are
    /// too heavy to move alone are as many as the servers.
    #[test]
    fn no_server_has_more_than_one_and_a_half_times_the_mean_load() {
        let basis = Run::basis(1, 2_700);
        let counts = run(basis).unwrap().counts;
        for window in counts.samples[counts.samples.len() / 3..].windows(10) {
            let of = |server: usize| window.iter().map(|sample| sample.active[server]).sum::<u64>();
            let loads: Vec<u64> = (0..usize::from(basis.servers)).map(of).collect();
            let (all, most) = (loads.iter().sum::<u64>(), loads.iter().max().unwrap());
            assert!(100 * most * u64::from(basis.servers) <= 150 * all, "{loads:?}");
        }
    }

    /// Without this, a run without a violation would say nothing.
    #[test]
    fn a_wrong_answer_ends_the_run() {
        let settings = CampusSettings {
            machines: 2,
            servers: 2,
            latency_us: (300, 2_000),
            service_us: 200,
            disk_us: 0,
            balance: None,
            sample_s: 60,
        };
        let mut campus = Campus::new(3, settings).unwrap();
        let root = ident::FileId::root;
        campus.begins(0, move |context| async move {
            context.creates(&root(), "novel", shared_names::bytes_of("novel", 1, 100)).await?;
            context.sync_all().await
        });
        campus.run_to_end(INSTALLS_MS).unwrap();
        for (version, is_right) in [(1, true), (2, false)] {
            campus.begins(1, move |context| async move {
                let (file, size) = context.finds(&root(), "novel").await?;
                shared_names::is_version("novel", version, &context.reads(&file, size).await?)
            });
            let ended = campus.run_to_end(INSTALLS_MS);
            assert_eq!(ended.is_ok(), is_right, "{ended:?}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_counts() {
        let counts = || {
            let run = run(Run { machines: 2, servers: 3, ..Run::basis(5, 120) }).unwrap();
            format!("{:?}", run.counts)
        };
        assert_eq!(counts(), counts());
    }

    #[test]
    #[ignore = "a tool"]
    fn one_of_gremlins() {
        let number = |name: &str, or: u64| std::env::var(name).map_or(or, |it| it.parse().unwrap());
        let basis = Run::basis(number("SEED", 1), number("SECS", 1_800));
        let (machines, servers) = (number("MACHINES", 15) as usize, number("SERVERS", 15) as u16);
        let delegation = if number("ONCE", 0) > 0 { Delegation::Once } else { Delegation::Full };
        let outcome = run(Run {
            machines,
            servers,
            delegation,
            service_us: number("SERVICE", 200),
            disk_us: number("DISK", 0),
            ..basis
        });
        let mut counts = outcome.unwrap_or_else(|violation| panic!("{violation}")).counts;
        for sample in std::mem::take(&mut counts.samples) {
            println!("{:6} {:?} {:?}", sample.at_s, sample.active, sample.handled);
        }
        println!("{counts:?}");
    }
}
