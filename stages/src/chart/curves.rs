//! Training curves: a grid of panels, one a metric, with one line an arm (and seed).

use super::axis::Axis;
use super::{Face, Pen, Svg, Theme, WIDTH, fitted, text_width};

/// One line: its name and its values by step, missing where a step has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// Place of its colour: runs of one arm share it.
    pub colour: usize,
    /// Which of several rows of its arm it belongs to, such as learning rates; 0 for one.
    pub variant: usize,
    /// Step (or what the panel's axis counts) and value, in order.
    pub points: Vec<(f64, f64)>,
}

/// One metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The metric's name, with its unit.
    pub title: String,
    /// Lines.
    pub series: Vec<Series>,
    /// What the horizontal axis counts.
    pub axis: &'static str,
}

const MARGIN: f64 = 20.0;
const HEIGHT: f64 = 210.0;
/// Room for numbers left of a panel.
const LEFT: f64 = 52.0;
/// More points than this are drawn faint, with their moving average on top.
const SMOOTH_FROM: usize = 60;

/// Draws the chart; the legend names each label once.
pub fn draw(panels: &[Panel], title: &str, theme: Theme) -> String {
    let mut svg = Svg::new(theme);
    let mut y = MARGIN;
    if !title.is_empty() {
        y += 14.0;
        svg.text(MARGIN, y, face(17.0, theme.text, true), &fitted(title, 17.0, WIDTH - 2.0 * MARGIN));
        y += 12.0;
    }
    let dashes = Dashes::of(panels, theme);
    y = legend(&mut svg, panels, &dashes, y);
    let columns = if panels.len() == 1 { 1 } else { 2 };
    let width = (WIDTH - 2.0 * MARGIN - 24.0 * (columns - 1) as f64) / columns as f64;
    for (place, panel) in panels.iter().enumerate() {
        let left = MARGIN + (place % columns) as f64 * (width + 24.0);
        let top = y + (place / columns) as f64 * HEIGHT;
        draw_panel(&mut svg, panel, &dashes, left, top, width);
    }
    let rows = panels.len().div_ceil(columns) as f64;
    let names: Vec<&str> = panels.iter().map(|p| p.title.as_str()).collect();
    svg.finish(y + rows * HEIGHT + 8.0, &format!("Training curves: {}", names.join(", ")))
}

/// What dashes tell: arms, as colours do, or the rows of an arm where it has several.
struct Dashes {
    theme: Theme,
    by_variant: bool,
}

impl Dashes {
    fn of(panels: &[Panel], theme: Theme) -> Self {
        let by_variant = panels.iter().flat_map(|panel| &panel.series).any(|series| series.variant > 0);
        Self { theme, by_variant }
    }

    fn dash(&self, series: &Series) -> &'static str {
        self.theme.dash(if self.by_variant { series.variant } else { series.colour })
    }
}

fn face(size: f64, fill: &str, bold: bool) -> Face<'_> {
    Face { size, fill, anchor: "start", bold }
}

fn legend(svg: &mut Svg, panels: &[Panel], dashes: &Dashes, y: f64) -> f64 {
    let theme = dashes.theme;
    let mut seen: Vec<&Series> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !seen.iter().any(|other| other.label == series.label) {
            seen.push(series);
        }
    }
    let (mut x, mut y) = (MARGIN, y + 14.0);
    for series in seen {
        let (label, colour) = (&series.label, series.colour);
        let width = 34.0 + text_width(label, 12.5) + 22.0;
        if x + width > WIDTH - MARGIN && x > MARGIN {
            (x, y) = (MARGIN, y + 20.0);
        }
        svg.line((x, y - 4.0), (x + 26.0, y - 4.0), theme.series(colour), 2.5, dashes.dash(series));
        svg.text(x + 33.0, y, face(12.5, theme.muted, false), label);
        x += width;
    }
    y + 12.0
}

fn draw_panel(svg: &mut Svg, panel: &Panel, dashes: &Dashes, left: f64, top: f64, width: f64) {
    let theme = dashes.theme;
    svg.text(left, top + 16.0, face(13.5, theme.text, true), &panel.title);
    let (x0, x1) = (left + LEFT, left + width - 6.0);
    let (y0, y1) = (top + HEIGHT - 46.0, top + 28.0);
    let all = || panel.series.iter().flat_map(|series| &series.points);
    let y_axis = Axis::around(all().map(|p| p.1), y0, y1, 4);
    let (first, last) =
        all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p.0), high.max(p.0)));
    let first = if first.is_finite() { first } else { 0.0 };
    let x_axis = Axis::exact(first, last, x0, x1, 5);
    for tick in y_axis.ticks() {
        let y = y_axis.at(tick);
        svg.line((x0, y), (x1, y), theme.grid, 1.0, "");
        let number = Face { anchor: "end", ..face(11.5, theme.muted, false) };
        svg.text(x0 - 8.0, y + 4.0, number, &y_axis.label(tick));
    }
    svg.line((x0, y0), (x1, y0), theme.muted, 1.0, "");
    let centred = Face { anchor: "middle", ..face(11.5, theme.muted, false) };
    for tick in x_axis.ticks() {
        svg.text(x_axis.at(tick), y0 + 16.0, centred, &x_axis.label(tick));
    }
    svg.text((x0 + x1) / 2.0, y0 + 33.0, centred, panel.axis);
    for series in &panel.series {
        draw_series(svg, series, dashes, &x_axis, &y_axis);
    }
}

fn draw_series(svg: &mut Svg, series: &Series, dashes: &Dashes, x_axis: &Axis, y_axis: &Axis) {
    let colour = dashes.theme.series(series.colour);
    let place = |&(x, y): &(f64, f64)| y.is_finite().then(|| (x_axis.at(x), y_axis.at(y)));
    let raw: Vec<Option<(f64, f64)>> = series.points.iter().map(place).collect();
    if let [Some((x, y))] = raw[..] {
        svg.dot(x, y, 3.5, colour);
        return;
    }
    let line = Pen { stroke: colour, width: 2.0, opacity: 1.0, dash: dashes.dash(series) };
    if series.points.len() <= SMOOTH_FROM {
        svg.path(&raw, line);
        return;
    }
    svg.path(&raw, Pen { width: 1.0, opacity: 0.3, dash: "", ..line });
    let smooth: Vec<Option<(f64, f64)>> = moving_average(&series.points).iter().map(place).collect();
    svg.path(&smooth, line);
}

/// Centred moving average over a twentieth of the points; missing values are left out.
fn moving_average(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let half = points.len() / 40;
    (0..points.len())
        .map(|i| {
            let window = &points[i.saturating_sub(half)..(i + half + 1).min(points.len())];
            let known: Vec<f64> = window.iter().map(|p| p.1).filter(|v| v.is_finite()).collect();
            (points[i].0, crate::stats::mean(&known))
        })
        .collect()
}
