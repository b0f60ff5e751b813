//! Claimed against measured: for each benchmark a panel with one row an arm.

use super::axis::Axis;
use super::{Face, Svg, Theme, WIDTH, fitted, text_width};
use crate::arms::arm_of;
use crate::table::{Benchmark, Row, Table};

const ROW: f64 = 34.0;
/// Room for the value at the right of a row, and for the claimed one beside it.
const VALUES: f64 = 80.0;
const CLAIMS: f64 = 96.0;
/// Room for the labels, at most.
const LABELS: f64 = 330.0;
const MARGIN: f64 = 20.0;

/// Draws the chart.
pub fn draw(table: &Table, title: &str, theme: Theme) -> String {
    let mut svg = Svg::new(theme);
    let mut y = MARGIN;
    if !title.is_empty() {
        y += 14.0;
        svg.text(MARGIN, y, face(17.0, theme.text, true), &fitted(title, 17.0, WIDTH - 2.0 * MARGIN));
        y += 14.0;
    }
    y = legend(&mut svg, table, theme, y);
    for benchmark in &table.benchmarks {
        y = panel(&mut svg, table, benchmark, theme, y + 14.0);
    }
    let names: Vec<&str> = table.benchmarks.iter().map(|b| b.name.as_str()).collect();
    svg.finish(y + MARGIN, &format!("Accuracy of each arm on {}", names.join(", ")))
}

fn face(size: f64, fill: &str, bold: bool) -> Face<'_> {
    Face { size, fill, anchor: "start", bold }
}

fn legend(svg: &mut Svg, table: &Table, theme: Theme, y: f64) -> f64 {
    let y = y + 12.0;
    let mut x = MARGIN + 10.0;
    svg.line((x - 10.0, y - 4.0), (x + 10.0, y - 4.0), theme.series(0), 2.0, "");
    svg.dot(x, y - 4.0, 4.5, theme.series(0));
    let text = "measured, with 95 % interval";
    svg.text(x + 18.0, y, face(12.5, theme.muted, false), text);
    x += 18.0 + text_width(text, 12.5) + 26.0;
    let rows = || table.benchmarks.iter().flat_map(|b| &b.rows);
    if rows().any(|row| claimed_accuracy(row).is_some()) {
        svg.diamond(x, y - 4.0, 5.0, theme.claimed);
        svg.text(x + 13.0, y, face(12.5, theme.muted, false), "claimed");
        x += 13.0 + text_width("claimed", 12.5) + 26.0;
    }
    if table.benchmarks.iter().any(|b| base_row(table, b).is_some() && b.rows.len() > 1) {
        svg.line((x - 8.0, y - 4.0), (x + 8.0, y - 4.0), theme.muted, 1.2, "4 3");
        svg.text(x + 15.0, y, face(12.5, theme.muted, false), "base, measured");
    }
    y + 8.0
}

/// The base arm's row, where there is exactly one.
fn base_row<'a>(table: &Table, benchmark: &'a Benchmark) -> Option<&'a Row> {
    let mut rows = benchmark.rows.iter().filter(|row| arm_of(&row.arm) == table.base);
    rows.next().filter(|_| rows.next().is_none())
}

fn claimed_accuracy(row: &Row) -> Option<f64> {
    row.claimed.accuracy.map(|share| 100.0 * share)
}

fn panel(svg: &mut Svg, table: &Table, benchmark: &Benchmark, theme: Theme, top: f64) -> f64 {
    let rows = || table.benchmarks.iter().flat_map(|b| &b.rows);
    let longest = rows().map(|row| text_width(&row.label, 13.5)).fold(60.0, f64::max);
    let label_width = longest.min(LABELS);
    let claims = rows().any(|row| row.claimed.accuracy.or(row.claimed.delta).is_some());
    let values = if claims { VALUES + CLAIMS } else { VALUES };
    let (left, right) = (MARGIN + label_width + 20.0, WIDTH - MARGIN - values);
    let heading = format!("{} · {} questions", benchmark.name, benchmark.questions);
    svg.text(MARGIN, top + 14.0, face(14.0, theme.text, true), &heading);
    let (first, last) = (top + 26.0, top + 26.0 + ROW * benchmark.rows.len() as f64);

    let values = benchmark.rows.iter().flat_map(|row| {
        let interval = [row.interval.low, row.interval.high].map(|share| 100.0 * share);
        interval.into_iter().chain(claimed_accuracy(row))
    });
    let axis = Axis::around(values, left, right, 6).within(0.0, 100.0);
    for tick in axis.ticks() {
        let x = axis.at(tick);
        svg.line((x, first), (x, last), theme.grid, 1.0, "");
        let number = Face { anchor: "middle", ..face(12.0, theme.muted, false) };
        svg.text(x, last + 17.0, number, &axis.label(tick));
    }
    let unit = Face { anchor: "middle", ..face(12.0, theme.muted, false) };
    svg.text((left + right) / 2.0, last + 36.0, unit, "Accuracy (%)");
    if let Some(base) = base_row(table, benchmark) {
        let x = axis.at(100.0 * base.accuracy);
        svg.line((x, first), (x, last), theme.muted, 1.2, "4 3");
    }
    for (place, row) in benchmark.rows.iter().enumerate() {
        draw_row(svg, row, theme, &axis, first + ROW * (place as f64 + 0.5), label_width, right);
    }
    last + 40.0
}

fn draw_row(svg: &mut Svg, row: &Row, theme: Theme, axis: &Axis, y: f64, label_width: f64, right: f64) {
    let colour = theme.series(0);
    let label = fitted(&row.label, 13.5, label_width);
    svg.text(MARGIN, y + 4.5, face(13.5, theme.text, false), &label);
    let (low, high) = (axis.at(100.0 * row.interval.low), axis.at(100.0 * row.interval.high));
    svg.line((low, y), (high, y), colour, 2.0, "");
    for end in [low, high] {
        svg.line((end, y - 5.0), (end, y + 5.0), colour, 2.0, "");
    }
    svg.dot(axis.at(100.0 * row.accuracy), y, 5.5, colour);
    if let Some(claimed) = claimed_accuracy(row) {
        svg.diamond(axis.at(claimed), y, 6.0, theme.claimed);
    }
    let value = format!("{:.1}", 100.0 * row.accuracy);
    svg.text(right + 24.0, y + 4.5, face(13.5, theme.text, true), &value);
    let beside = match (claimed_accuracy(row), row.claimed.delta) {
        (Some(claimed), _) => format!("claimed {claimed:.1}"),
        (None, Some(delta)) => format!("claimed {:+.1} points", 100.0 * delta).replace('-', "−"),
        (None, None) => return,
    };
    svg.text(right + 66.0, y + 4.5, face(12.0, theme.claimed, false), &beside);
}
