//! The report of `leasehold bench paper --report DIR`: `report.md` and a picture for each plot.

use super::PaperRow;
use super::plot::{self, Plot};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// Columns of a line, as `tests/walks` has them for documents.
const COLUMNS_MAX: usize = 100;

/// One experiment in the report.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its title.
    pub title: &'static str,
    /// Where the paper describes it and has its figures.
    pub place: &'static str,
    /// How it was run here, in sentences.
    pub how: String,
    /// The figures.
    pub rows: Vec<PaperRow>,
    /// The plots.
    pub plots: Vec<Plot>,
    /// Everything else that was found.
    pub notes: Vec<String>,
}

/// The circumstances of a run.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The command, as it was typed.
    pub command: &'a str,
    /// The seed of all experiments.
    pub seed: u64,
    /// The date, as people write it.
    pub date: &'a str,
}

/// Writes the report into `dir`, which is made if it is not there.
pub fn write(dir: &Path, run: Circumstances<'_>, sections: &[Section]) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for plot in sections.iter().flat_map(|section| &section.plots) {
        std::fs::write(dir.join(plot.file_name()), plot::svg(plot).map_err(io::Error::other)?)?;
    }
    std::fs::write(dir.join("report.md"), text(run, sections))
}

/// The report as Markdown.
fn text(run: Circumstances<'_>, sections: &[Section]) -> String {
    let mut out = String::from("# The Farsite paper's evaluation, measured here\n\n");
    let Circumstances { command, seed, date } = run;
    let about = format!(
        "`{command}`, {date}, seed {seed}. *paper* is the figure of the Farsite paper, *here* is what this run measured. A \
         control is a coarser mechanism, with which an experiment is compared. The same seed gives the same figures, on \
         any machine and in any build."
    );
    out.push_str(&paragraph("", &about));
    out.push('\n');
    for section in sections {
        tell(&mut out, section);
    }
    out
}

fn tell(out: &mut String, section: &Section) {
    let _ = writeln!(out, "## {} ({})\n\n{}", section.title, section.place, paragraph("", &section.how));
    let _ = writeln!(out, "| counted | paper | here | bar | |\n| --- | ---: | ---: | --- | --- |");
    for row in &section.rows {
        let control = if row.control { "*control*: " } else { "" };
        // The paper has no figure of it.
        let paper = if row.paper == 0 { "–".to_owned() } else { row.paper.to_string() };
        let verdict = match (row.bar.is_empty(), row.met) {
            (true, _) => "",
            (false, true) => "met",
            (false, false) => "**missed**",
        };
        let _ = writeln!(
            out,
            "| {control}{} | {} | {} | {} | {verdict} |",
            row.counted, paper, row.measured, row.bar
        );
    }
    out.push('\n');
    for plot in &section.plots {
        let _ = writeln!(out, "![{}]({})\n", plot.title, plot.file_name());
    }
    let mut told: Vec<&str> = Vec::new();
    for row in section.rows.iter().filter(|row| row.paper != row.measured && !row.why.is_empty()) {
        if !told.contains(&row.why) {
            let why = format!("{}: {}. {}", row.counted, row.beside_the_papers(), row.why);
            out.push_str(&paragraph("- ", &why));
            told.push(row.why);
        }
    }
    for note in &section.notes {
        out.push_str(&paragraph("- ", note));
    }
    if !told.is_empty() || !section.notes.is_empty() {
        out.push('\n');
    }
}

/// A paragraph behind `mark`, with lines of at most [`COLUMNS_MAX`] columns as far as words can be
/// broken.
fn paragraph(mark: &str, text: &str) -> String {
    let (mut out, mut column) = (mark.to_owned(), mark.len());
    for (number, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if number > 0 && column + 1 + width > COLUMNS_MAX {
            out.push('\n');
            out.push_str(&" ".repeat(mark.len()));
            column = mark.len();
        } else if number > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::super::plot::Line;
    use super::*;

    fn section() -> Section {
        let row = |control, measured, bar: &str, met| PaperRow {
            experiment: "renames",
            control,
            counted: "messages".to_owned(),
            paper: 12,
            measured,
            bar: bar.to_owned(),
            met,
            why: "Fewer are needed.",
        };
        let line = Line { name: "here".to_owned(), points: vec![(0.0, 1.0), (10.0, 4.0)] };
        Section {
            title: "Renames",
            place: "§8.3.2",
            how: "In simulation.".to_owned(),
            rows: vec![
                row(false, 12, "at most 12", true),
                row(true, 13, "at most 12", false),
                row(false, 9, "", true),
            ],
            plots: vec![Plot { name: "renames", title: "Renames", x: "s", y: "messages", lines: vec![line] }],
            notes: vec!["Nothing else.".to_owned()],
        }
    }

    #[test]
    fn a_paragraph_is_broken_between_words() {
        let text = paragraph("- ", &"word ".repeat(50));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS_MAX), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.starts_with("- word") && text.lines().skip(1).all(|it| it.starts_with("  word")),
            "{text}"
        );
        assert_eq!(paragraph("", "one\n  two"), "one two\n");
    }

    #[test]
    fn a_report_has_every_figure_and_explains_each_difference_once() {
        let dir = tempfile::tempdir().unwrap();
        let run = Circumstances { command: "leasehold bench paper", seed: 7, date: "2026-11-28" };
        write(&dir.path().join("new"), run, &[section()]).unwrap();
        let report = std::fs::read_to_string(dir.path().join("new/report.md")).unwrap();
        assert!(report.contains("| messages | 12 | 12 | at most 12 | met |"), "{report}");
        assert!(report.contains("| *control*: messages | 12 | 13 | at most 12 | **missed** |"), "{report}");
        assert!(report.contains("| messages | 12 | 9 |  |  |"), "{report}");
        assert_eq!(report.matches("Fewer are needed.").count(), 1, "{report}");
        assert!(report.contains("seed 7") && report.contains("- Nothing else."), "{report}");
        let picture = std::fs::read_to_string(dir.path().join("new/renames.svg")).unwrap();
        assert!(report.contains("(renames.svg)") && picture.starts_with("<svg"), "{report} {picture}");
    }
}
