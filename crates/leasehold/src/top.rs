//! `leasehold top`: the operations of the machine, its pending requests, and where they happen.

mod frame;
mod view;

use crate::answer::Answer;
use crate::{Failure, places};
use admin::{AskError, ControlRefusal, LiveReport, MachineReport, RequestWork};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use view::View;

/// The span of the rates, and how often they are shown.
const EVERY: Duration = Duration::from_secs(1);
/// How soon a signal is noticed.
const LOOK: Duration = Duration::from_millis(200);

/// See the command's help.
#[derive(Debug, Args)]
pub struct Top {
    /// The machine's data directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Watch for a second, print one frame, and end. Needs no terminal.
    #[arg(long)]
    once: bool,
}

/// All that is known of the machine at one time.
struct Sample {
    live: LiveReport,
    /// The cluster's machines, or why they are not known.
    machines: Result<Vec<MachineReport>, ControlRefusal>,
}

impl Sample {
    fn take(data: &Path) -> Result<Sample, AskError> {
        let live = admin::ask_live(data, true)?;
        let machines = admin::machines(data).map_err(|error| match error {
            // This machine has answered. The error is a server's.
            AskError::Refused(why) => why,
            other => ControlRefusal::Failed { doing: RequestWork::AskingMachine, why: other.to_string() },
        });
        Ok(Sample { live, machines })
    }
}

impl Top {
    /// Shows the machine until a key or a signal ends it.
    pub fn run(self) -> Result<Answer, Failure> {
        let data = self.data.map_or_else(places::data, Ok)?;
        let first = Sample::take(&data)?;
        if self.once {
            std::thread::sleep(EVERY);
            let view = View::between(&first, &Sample::take(&data)?);
            return Answer::told(&view, frame::text(&view));
        }
        if !std::io::stdout().is_terminal() {
            return Err("leasehold top needs a terminal; leasehold top --once does without".into());
        }
        Ok(Answer::nothing().then(move || live(&data, first)))
    }
}

fn live(data: &Path, first: Sample) -> Result<(), Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    // A panic restores the terminal, too.
    let mut terminal = ratatui::try_init()?;
    let shown = watch(&mut terminal, data, first, &ended);
    // First, so that an error appears on the restored terminal.
    ratatui::try_restore()?;
    shown
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    data: &Path,
    first: Sample,
    ended: &AtomicBool,
) -> Result<(), Failure> {
    let mut view = View::between(&first, &first);
    let (mut before, mut due) = (first, Instant::now() + EVERY);
    while !ended.load(SeqCst) {
        terminal.draw(|frame| frame::draw(frame, &view))?;
        let wait = due.saturating_duration_since(Instant::now()).min(LOOK);
        if event::poll(wait)? && is_enough(&event::read()?) {
            return Ok(());
        }
        if Instant::now() >= due {
            let sample = Sample::take(data)?;
            view = View::between(&before, &sample);
            (before, due) = (sample, Instant::now() + EVERY);
        }
    }
    Ok(())
}

/// In raw mode Ctrl-C is a key like any other.
fn is_enough(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (key.code == KeyCode::Char('q') || is_interrupt)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::metrics::tests::report;

    /// A machine that has been up for `at_s` and created `count` files in `seconds`.
    pub(super) fn sample(at_s: f64, count: u64, seconds: f64) -> Sample {
        let mut live = report();
        live.activity.at_s = at_s;
        live.activity.operations = vec![file_service::OperationReport {
            kind: "create".to_owned(),
            door: "fuse".to_owned(),
            count,
            seconds,
        }];
        live.activity.directories.clear();
        live.client.recalls_received = count;
        let machine = |machine, name: &str, unanswered_ms| MachineReport {
            machine,
            name: name.to_owned(),
            rights: admin::RightsReport { path: "/".to_owned(), read_only: false, squash: None },
            standing: admin::MachineStanding::Up { heard_ms: 900 },
            expelled: false,
            session: true,
            lapsed: false,
            unanswered_ms,
        };
        let machines = vec![machine(1, "ada", None), machine(2, "bob", Some(2_500))];
        Sample { live, machines: Ok(machines) }
    }

    #[test]
    fn q_and_ctrl_c_end_it_and_nothing_else() {
        let key = |code, modifiers| Event::Key(event::KeyEvent::new(code, modifiers));
        assert!(is_enough(&key(KeyCode::Char('q'), KeyModifiers::NONE)));
        assert!(is_enough(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_enough(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert!(!is_enough(&Event::Resize(80, 24)));
    }
}
