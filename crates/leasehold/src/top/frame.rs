//! One frame, on a terminal or as text.

use super::view::{OperationRate, View};
use crate::words::Words;
use figures::{size, span};
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};
use ratatui::{Frame, Terminal};

/// The width that every frame must fit.
const COLUMNS: u16 = 80;
const LINES: u16 = 24;

/// Draws `view`, as far as there is room.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let lines = summary(view);
    let [head, middle, machines, keys] = Layout::vertical([
        Constraint::Length(lines.len() as u16 + 1),
        Constraint::Fill(1),
        Constraint::Length((view.machines.len() as u16).clamp(1, 6) + 2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [operations, directories] =
        Layout::horizontal([Constraint::Length(36), Constraint::Fill(1)]).spacing(2).areas(middle);
    frame.render_widget(Paragraph::new(lines), head);
    draw_operations(frame, &view.operations, operations);
    draw_directories(frame, view, directories);
    draw_machines(frame, view, machines);
    frame.render_widget(Paragraph::new("q ends").dim(), keys);
}

/// Writes `view` without a terminal.
pub fn text(view: &View) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(COLUMNS, LINES));
    let Ok(drawn) = terminal.draw(|frame| draw(frame, view));
    let cells: Vec<&str> = drawn.buffer.content().iter().map(|cell| cell.symbol()).collect();
    let line = |cells: &[&str]| format!("{}\n", cells.concat().trim_end());
    cells.chunks(usize::from(COLUMNS)).map(line).collect()
}

fn summary(view: &View) -> Vec<Line<'static>> {
    let client = &view.client;
    let mut lines = vec![
        Line::from(format!(
            "leasehold {}  up {}  {:.0} operations/s  {}",
            view.version,
            span(view.uptime_s),
            view.operations_per_s,
            view.data
        ))
        .bold(),
    ];
    lines.extend(view.link.iter().map(|link| Line::from(format!("server  {}", Words(link)))));
    lines.push(Line::from(format!(
        "client  {} leases, {:.1} recalls/s, {} calls wait, {} unsent, {} dirty",
        client.leases,
        client.recalls_received_per_s,
        client.calls_waiting,
        client.operations_unsent,
        size(client.dirty_bytes as u64)
    )));
    if let Some(server) = &view.server {
        lines.push(Line::from(format!(
            "server  {} requests wait, {:.1} recalls/s, {:.1} messages/s",
            server.requests_waiting, server.recalls_sent_per_s, server.messages_per_s
        )));
        lines.push(Line::from(format!(
            "log     {:.1} entries/s, {:.1} flushes/s, {} to apply",
            server.log_entries_per_s,
            server.log_flushes_per_s,
            size(server.backlog_bytes as u64)
        )));
    }
    lines
}

fn draw_operations(frame: &mut Frame<'_>, operations: &[OperationRate], area: Rect) {
    let row = |of: &OperationRate| {
        Row::new([of.kind.clone(), format!("{:>9.1}", of.per_s), format!("{:>10.3}", of.mean_ms)])
    };
    let widths = [Constraint::Fill(1), Constraint::Length(9), Constraint::Length(10)];
    let header = Row::new(["OPERATION", "       /s", "   mean ms"]).style(head());
    frame.render_widget(Table::new(operations.iter().map(row), widths).header(header), area);
}

fn draw_directories(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let widths = [Constraint::Length(9), Constraint::Fill(1)];
    // Of a long path the end is shown.
    let room = usize::from(area.width.saturating_sub(10));
    let rows = view
        .directories
        .iter()
        .map(|of| Row::new([format!("{:>9.1}", of.per_s), ending(&visible(&of.path), room)]));
    let header = Row::new(["       /s", "DIRECTORY"]).style(head());
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn draw_machines(frame: &mut Frame<'_>, view: &View, area: Rect) {
    if let Some(why) = &view.machines_unknown {
        let lines = vec![Line::from("MACHINES").style(head()), Line::from(visible(&Words(why).to_string()))];
        return frame.render_widget(Paragraph::new(lines), area);
    }
    // Machines that others wait for come first.
    let mut machines: Vec<_> = view.machines.iter().collect();
    machines.sort_by_key(|machine| std::cmp::Reverse(machine.unanswered_ms));
    let rows = machines.into_iter().map(|machine| {
        let waits = machine.unanswered_ms.map(|ms| format!("no answer for {:.1} s", ms as f64 / 1e3));
        let row = Row::new([
            visible(&machine.name),
            Words(&machine.standing).to_string(),
            machine.round_trip_ms.map_or_else(|| format!("{:>13}", "-"), |ms| format!("{ms:>10.1} ms")),
            waits.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
        if waits.is_some() { row.red() } else { row }
    });
    let widths =
        [Constraint::Length(16), Constraint::Fill(1), Constraint::Length(13), Constraint::Length(21)];
    let header = Row::new(["MACHINE", "STANDING", "   ROUND TRIP", "RECALLS"]).style(head());
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn head() -> Style {
    Style::new().bold().reversed()
}

/// Escapes control characters: names come from anywhere, and a terminal would obey them.
fn visible(name: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    name.chars().map(shown).collect()
}

/// Returns the last `room` characters.
fn ending(text: &str, room: usize) -> String {
    let long = text.chars().count();
    if long <= room {
        return text.to_owned();
    }
    let rest = text.chars().skip(long - room.saturating_sub(1));
    std::iter::once('\u{2026}').chain(rest).take(room).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::sample;
    use admin::ControlRefusal;

    fn view() -> View {
        let mut after = sample(12.0, 300, 1.4);
        after.live.activity.directories = vec![("/work/\u{1b}[2J".to_owned(), 200), ("/d".repeat(60), 1)];
        View::between(&sample(10.0, 100, 1.0), &after)
    }

    #[test]
    fn all_fits_on_the_smallest_terminal() {
        let text = text(&view());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), usize::from(LINES));
        let has = |words: &[&str]| {
            let line = lines.iter().find(|line| words.iter().all(|word| line.contains(word)));
            assert!(line.is_some(), "{words:?} are not on one line of\n{text}");
        };
        has(&["leasehold", "100 operations/s"]);
        has(&["create", "100.0", "2.000"]);
        has(&["100.0", "/work/\u{fffd}[2J"]);
        has(&["\u{2026}", "/d/d/d"]);
        has(&["ada", "up, heard of 0 s ago", " - "]);
        has(&["bob", "250.0 ms", "no answer for 2.5 s"]);
        has(&["q ends"]);
    }

    #[test]
    fn machines_that_others_wait_for_come_first() {
        let text = text(&view());
        assert!(text.find("bob") < text.find("ada"), "{text}");
    }

    #[test]
    fn no_size_of_a_terminal_is_too_small() {
        for (columns, lines) in [(1, 1), (3, 2), (20, 5), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
            terminal.draw(|frame| draw(frame, &view())).unwrap();
        }
    }

    #[test]
    fn a_machine_without_a_server_says_what_it_does_not_know() {
        let unknown =
            View { machines: Vec::new(), machines_unknown: Some(ControlRefusal::NoServer), ..view() };
        assert!(text(&unknown).contains("this machine has no server"));
    }
}
