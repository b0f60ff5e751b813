//! Charts as SVG text, and PNG from SVG.
//!
//! - [`accuracy`]: claimed against measured accuracy, one row an arm
//! - [`curves`]: training curves, one panel a metric
//! - [`dag`]: the graph of a run
//! - [`axis`]: ranges and ticks
//!
//! The SVG is written here rather than by a plotting crate because the report inlines it and
//! colours it by its style sheet, light or dark; `resvg` draws the same SVG as PNG with the font
//! that lies beside this file, so that no system fonts are needed.

pub mod accuracy;
pub mod axis;
pub mod curves;
pub mod dag;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use resvg::{tiny_skia, usvg};

/// Width of every chart in pixels: what a README column shows without shrinking.
pub const WIDTH: f64 = 820.0;
/// PNG pixels for each SVG pixel.
const PNG_SCALE: f32 = 2.0;

/// Mean width of a character of the font, as a share of its size.
const CHAR_WIDTH: f64 = 0.53;

/// Colours of a chart.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// Behind everything; none is transparent.
    pub background: Option<&'static str>,
    /// Main text.
    pub text: &'static str,
    /// Secondary text and axes.
    pub muted: &'static str,
    /// Grid lines.
    pub grid: &'static str,
    /// What was claimed.
    pub claimed: &'static str,
    /// Series, told apart by the colour-blind too (Okabe & Ito 2008).
    pub series: [&'static str; 7],
}

/// For files: dark on white, also in print.
pub const PAPER: Theme = Theme {
    background: Some("#ffffff"),
    text: "#1b1f24",
    muted: "#59636e",
    grid: "#e4e7eb",
    claimed: "#d55e00",
    series: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#6e7781"],
};

/// For a page whose style sheet sets the colours.
pub const PAGE: Theme = Theme {
    background: None,
    text: "var(--text)",
    muted: "var(--muted)",
    grid: "var(--grid)",
    claimed: "var(--claimed)",
    series: [
        "var(--series-1)",
        "var(--series-2)",
        "var(--series-3)",
        "var(--series-4)",
        "var(--series-5)",
        "var(--series-6)",
        "var(--series-7)",
    ],
};

impl Theme {
    /// The dashes of the series at a place: they tell series apart in black and white.
    pub fn dash(&self, place: usize) -> &'static str {
        ["", "7 3", "2 2.5", "9 3 2 3", "4 2", "9 3 2 3 2 3", "1 3"][place % self.series.len()]
    }

    /// The colour of the series at a place; colours come again after seven.
    pub fn series(&self, place: usize) -> &'static str {
        self.series[place % self.series.len()]
    }
}

/// How a text is set.
#[derive(Clone, Copy)]
pub struct Face<'a> {
    /// Size in pixels.
    pub size: f64,
    /// Colour.
    pub fill: &'a str,
    /// `start`, `middle` or `end`.
    pub anchor: &'a str,
    /// Semi-bold.
    pub bold: bool,
}

/// How a line is drawn.
#[derive(Clone, Copy)]
pub struct Pen<'a> {
    /// Colour.
    pub stroke: &'a str,
    /// Width in pixels.
    pub width: f64,
    /// 0 to 1.
    pub opacity: f64,
    /// Dashes as SVG writes them; empty for an unbroken line.
    pub dash: &'a str,
}

/// An SVG picture being written.
pub struct Svg {
    body: String,
    theme: Theme,
    width: f64,
}

impl Svg {
    /// An empty picture.
    pub fn new(theme: Theme) -> Self {
        Self { body: String::new(), theme, width: WIDTH }
    }

    /// Of another width than charts have.
    pub fn of_width(mut self, width: f64) -> Self {
        self.width = width;
        self
    }

    /// A text with its baseline at (x, y).
    pub fn text(&mut self, x: f64, y: f64, face: Face, text: &str) {
        let weight = if face.bold { " font-weight=\"600\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" text-anchor=\"{}\"{weight} fill=\"{}\">{}</text>",
            face.size,
            face.anchor,
            face.fill,
            escape(text)
        );
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64, dash: &str) {
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\"{dash}/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points, broken where a value is missing.
    pub fn path(&mut self, points: &[Option<(f64, f64)>], pen: Pen) {
        let mut data = String::new();
        let mut pen_down = false;
        for point in points {
            let Some((x, y)) = point else {
                pen_down = false;
                continue;
            };
            let _ = write!(data, "{}{x:.1} {y:.1}", if pen_down { "L" } else { "M" });
            pen_down = true;
        }
        let Pen { stroke, width, opacity, dash } = pen;
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let _ = writeln!(
            self.body,
            "<path d=\"{data}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\" stroke-opacity=\"{opacity}\" stroke-linejoin=\"round\"{dash}/>"
        );
    }

    /// A filled dot.
    pub fn dot(&mut self, x: f64, y: f64, radius: f64, fill: &str) {
        let _ = writeln!(self.body, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"/>");
    }

    /// A hollow diamond.
    pub fn diamond(&mut self, x: f64, y: f64, radius: f64, stroke: &str) {
        let _ = writeln!(
            self.body,
            "<path d=\"M{x:.1} {:.1}l{radius} {radius}l-{radius} {radius}l-{radius} -{radius}z\" fill=\"{}\" stroke=\"{stroke}\" stroke-width=\"2\"/>",
            y - radius,
            self.theme.background.unwrap_or("none"),
        );
    }

    /// An edge of a graph, leaving and arriving level.
    pub fn curve(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let middle = (from.0 + to.0) / 2.0;
        let _ = writeln!(
            self.body,
            "<path d=\"M{:.1} {:.1}C{middle:.1} {:.1} {middle:.1} {:.1} {:.1} {:.1}\" fill=\"none\" stroke=\"{stroke}\"/>",
            from.0, from.1, from.1, to.1, to.0, to.1
        );
    }

    /// A box with a coloured left edge.
    pub fn frame(&mut self, corner: (f64, f64), size: (f64, f64), stroke: &str, edge: &str) {
        let fill = self.theme.background.unwrap_or("var(--page)");
        let _ = writeln!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{}\" height=\"{}\" rx=\"5\" fill=\"{fill}\" stroke=\"{stroke}\"/>\n\
             <rect x=\"{:.1}\" y=\"{:.1}\" width=\"4\" height=\"{}\" rx=\"2\" fill=\"{edge}\"/>",
            corner.0, corner.1, size.0, size.1, corner.0, corner.1, size.1
        );
    }

    /// Begins a group with a hint; with a link unless it is empty. [`Svg::close`] ends it.
    pub fn open(&mut self, link: &str, hint: &str) {
        if !link.is_empty() {
            let _ = write!(self.body, "<a href=\"{}\">", escape(link));
        }
        let _ = writeln!(self.body, "<g><title>{}</title>", escape(hint));
    }

    /// Ends a group.
    pub fn close(&mut self, link: &str) {
        self.body.push_str(if link.is_empty() { "</g>\n" } else { "</g></a>\n" });
    }

    /// The whole document; `label` describes it to those who cannot see it.
    pub fn finish(self, height: f64, label: &str) -> String {
        let background = match self.theme.background {
            Some(fill) => format!("<rect width=\"100%\" height=\"100%\" fill=\"{fill}\"/>\n"),
            None => String::new(),
        };
        let width = self.width;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{}\" font-family=\"Inter, system-ui, sans-serif\">\n{background}{}</svg>\n",
            escape(label),
            self.body
        )
    }
}

/// Text fit for SVG and HTML, in elements and attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 has no place for these, not even escaped.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// About how wide a text is set, in pixels.
pub fn text_width(text: &str, size: f64) -> f64 {
    CHAR_WIDTH * size * text.chars().count() as f64
}

/// A text cut to a width, with an ellipsis.
pub fn fitted(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let keep = (width / (CHAR_WIDTH * size)) as usize;
    let start: String = text.chars().take(keep.saturating_sub(1)).collect();
    format!("{}…", start.trim_end())
}

/// Draws an SVG of this module as PNG, at twice its size. A character that the font lacks, which would
/// leave a gap, is drawn as its code point: `U+2135`.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    let mut tree = parse(svg)?;
    let lacking = lacking(tree.root());
    if !lacking.is_empty() {
        let named = |c: char| match lacking.contains(&c) {
            true => format!("U+{:04X}", u32::from(c)),
            false => c.to_string(),
        };
        tree = parse(&svg.chars().map(named).collect::<String>())?;
    }
    let size = tree.size().to_int_size();
    let scaled = |pixels: u32| (pixels as f32 * PNG_SCALE) as u32;
    let mut pixels =
        tiny_skia::Pixmap::new(scaled(size.width()), scaled(size.height())).ok_or("the picture is empty")?;
    let scale = tiny_skia::Transform::from_scale(PNG_SCALE, PNG_SCALE);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| e.to_string())
}

/// The characters of the texts in a group for which the font has no glyph.
fn lacking(group: &usvg::Group) -> BTreeSet<char> {
    let mut found = BTreeSet::new();
    for node in group.children() {
        match node {
            usvg::Node::Group(group) => found.extend(lacking(group)),
            usvg::Node::Text(text) => {
                let glyphs = text.layouted().iter().flat_map(|span| &span.positioned_glyphs);
                // Glyph 0 stands for what a font does not have.
                found.extend(glyphs.filter(|glyph| glyph.id.0 == 0).flat_map(|glyph| glyph.text.chars()));
            }
            _ => {}
        }
    }
    found
}

fn parse(svg: &str) -> Result<usvg::Tree, String> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(include_bytes!("fonts/Inter-Regular.ttf").to_vec());
    fonts.load_font_data(include_bytes!("fonts/Inter-SemiBold.ttf").to_vec());
    fonts.set_sans_serif_family("Inter");
    let options = usvg::Options { fontdb: Arc::new(fonts), ..usvg::Options::default() };
    usvg::Tree::from_str(svg, &options).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
