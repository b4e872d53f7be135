//! A plot of some lines over one axis, as SVG.

use plotters::prelude::*;

/// A plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The name of its file, without the ending.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The unit of its horizontal axis.
    pub x: &'static str,
    /// The unit of its vertical axis.
    pub y: &'static str,
    /// Its lines.
    pub lines: Vec<Line>,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend. A line without a name is thin and grey, one of many of its kind.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// The greatest of `of` over all points, and a little more, so that a line never runs along the
    /// frame.
    fn upto(&self, of: impl Fn(&(f64, f64)) -> f64) -> f64 {
        let all = self.lines.iter().flat_map(|line| &line.points).map(of);
        let most = all.fold(0.0, f64::max);
        if most > 0.0 { most * 1.05 } else { 1.0 }
    }
}

/// The plot as SVG.
pub(super) fn svg(plot: &Plot) -> Result<String, String> {
    let mut out = String::new();
    draw(plot, &mut out).map_err(|error| format!("{} cannot be drawn: {error}", plot.name))?;
    Ok(out)
}

fn draw(plot: &Plot, out: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(out, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(plot.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..plot.upto(|(x, _)| *x), 0.0..plot.upto(|(_, y)| *y))?;
    chart.configure_mesh().x_desc(plot.x).y_desc(plot.y).light_line_style(WHITE).draw()?;
    let mut named = 0;
    for line in &plot.lines {
        let points = line.points.iter().copied();
        if line.name.is_empty() {
            chart.draw_series(LineSeries::new(points, RGBColor(150, 150, 150)))?;
            continue;
        }
        let color = Palette99::pick(named).to_rgba();
        named += 1;
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    if named > 0 {
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    }
    area.present()?;
    Ok(())
}
