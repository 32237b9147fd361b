//! Small plots as SVG text: lines over time, and named points with error bars.
//!
//! Written by hand because a picture of two axes needs no library. Colours are told apart by colour-blind readers
//! too, lines are named at their ends and points beside them, and a dark page gets a dark plot.
//!
//! Deliberately not here: legends, logarithmic axes, interaction.

mod axis;
mod labels;

use axis::{Axis, shown};
use gristmill_node::page::markup::escaped;
use labels::{Box2, place, spread};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
const RIGHT: f64 = 24.0;
/// How wide a letter is, on average, at the size of labels.
const LETTER: f64 = 6.9;
/// Okabe and Ito's colours, without those that vanish on white or black.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];

const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px;fill:#24292f}
.name{paint-order:stroke;stroke:#ffffff;stroke-width:4px;stroke-linejoin:round}
.title{font-size:15px;font-weight:600}.tick{fill:#57606a}
.page{fill:#ffffff}.grid{stroke:#d8dee4;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1;fill:none}
.front{stroke:#8c959f;stroke-width:1.5;stroke-dasharray:2 4;fill:none}.hollow{fill:#ffffff}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.tick{fill:#9198a1}.page,.hollow{fill:#0d1117}
.name{stroke:#0d1117}.grid{stroke:#2a313c}.axis,.front{stroke:#656c76}}";

/// What the axes say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// A line with its name.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A point with its name and how far it may be off vertically.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) y_error: f64,
}

/// A plot of lines; the x axis begins at 0 when it is near.
pub(crate) fn lines(words: Words<'_>, series: &[Series]) -> String {
    let series: Vec<Series> = series
        .iter()
        .map(|s| Series {
            name: s.name.clone(),
            points: s.points.iter().copied().filter(|p| p.0.is_finite() && p.1.is_finite()).collect(),
        })
        .filter(|s| !s.points.is_empty())
        .collect();
    let all = || series.iter().flat_map(|s| s.points.iter().copied());
    let longest = series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
    let right = RIGHT + longest as f64 * LETTER;
    let x = Axis::new(all().map(|p| p.0).chain([0.0]), LEFT, WIDTH - right, 7.0, false);
    let y = Axis::new(all().map(|p| p.1), HEIGHT - BOTTOM, TOP, 6.0, true);
    let mut out = frame(words, &x, &y);
    let ends: Vec<f64> = series.iter().filter_map(|s| Some(y.at(s.points.last()?.1))).collect();
    let heights = spread(&ends, 15.0, TOP, HEIGHT - BOTTOM);
    for (i, (line, height)) in series.iter().zip(heights).enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let path: Vec<String> =
            line.points.iter().map(|p| format!("{:.1},{:.1}", x.at(p.0), y.at(p.1))).collect();
        put(
            &mut out,
            format_args!(
                r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>"#,
                path.join(" ")
            ),
        );
        for p in &line.points {
            put(
                &mut out,
                format_args!(
                    r#"<circle cx="{:.1}" cy="{:.1}" r="2.5" fill="{colour}"/>"#,
                    x.at(p.0),
                    y.at(p.1)
                ),
            );
        }
        let end = line.points.last().map_or(LEFT, |p| x.at(p.0)) + 8.0;
        let name = escaped(&line.name);
        put(
            &mut out,
            format_args!(r#"<text x="{end:.1}" y="{:.1}" style="fill:{colour}">{name}</text>"#, height + 4.0),
        );
    }
    out.push_str("</svg>\n");
    out
}

/// A plot of named points, where up and right is better: points that no other beats in both are filled and joined.
pub(crate) fn scatter(words: Words<'_>, points: &[Named]) -> String {
    let finite = |p: &&Named| p.x.is_finite() && p.y.is_finite();
    let points: Vec<&Named> = points.iter().filter(finite).collect();
    let x = Axis::new(points.iter().map(|p| p.x), LEFT, WIDTH - RIGHT, 7.0, true);
    let ends = points.iter().flat_map(|p| [p.y - p.y_error.max(0.0), p.y + p.y_error.max(0.0)]);
    let y = Axis::new(ends, HEIGHT - BOTTOM, TOP, 6.0, true);
    let mut out = frame(words, &x, &y);
    let beaten = |p: &Named| points.iter().any(|o| o.x >= p.x && o.y >= p.y && (o.x > p.x || o.y > p.y));
    let mut front: Vec<&&Named> = points.iter().filter(|p| !beaten(p)).collect();
    front.sort_by(|a, b| a.x.total_cmp(&b.x));
    let path: Vec<String> = front.iter().map(|p| format!("{:.1},{:.1}", x.at(p.x), y.at(p.y))).collect();
    if path.len() > 1 {
        put(&mut out, format_args!(r#"<polyline class="front" points="{}"/>"#, path.join(" ")));
    }
    let marks: Vec<(f64, f64)> = points.iter().map(|p| (x.at(p.x), y.at(p.y))).collect();
    let widths: Vec<f64> = points.iter().map(|p| p.name.chars().count() as f64 * LETTER).collect();
    let room = Box2 { left: LEFT, top: TOP, right: WIDTH - RIGHT, bottom: HEIGHT - BOTTOM };
    let bars: Vec<Box2> = points
        .iter()
        .zip(&marks)
        .filter(|(p, _)| p.y_error > 0.0)
        .map(|(p, mark)| Box2 {
            left: mark.0 - 3.0,
            top: y.at(p.y + p.y_error),
            right: mark.0 + 3.0,
            bottom: y.at(p.y - p.y_error),
        })
        .collect();
    let placed = place(&marks, &bars, &widths, room);
    for (i, (point, &(cx, cy))) in points.iter().zip(&marks).enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        if point.y_error > 0.0 {
            let (low, high) = (y.at(point.y - point.y_error), y.at(point.y + point.y_error));
            put(
                &mut out,
                format_args!(
                    r#"<path d="M{cx:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8" stroke="{colour}" fill="none"/>"#,
                    cx - 4.0,
                    cx - 4.0
                ),
            );
        }
        let look = if beaten(point) {
            format!(r#"class="hollow" stroke="{colour}" stroke-width="2""#)
        } else {
            format!(r#"fill="{colour}" stroke="{colour}" stroke-width="2""#)
        };
        put(&mut out, format_args!(r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="5" {look}/>"#));
    }
    // Names last, so that nothing is drawn over them.
    for (point, label) in points.iter().zip(placed) {
        let (name, left, base) = (escaped(&point.name), label.left, label.bottom - 4.0);
        put(&mut out, format_args!(r#"<text class="name" x="{left:.1}" y="{base:.1}">{name}</text>"#));
    }
    out.push_str("</svg>\n");
    out
}

/// Several plots as one picture, `columns` in a row.
pub(crate) fn beside(plots: &[String], columns: usize) -> String {
    let columns = columns.clamp(1, plots.len().max(1));
    let (width, height) = (WIDTH * columns as f64, HEIGHT * plots.len().div_ceil(columns) as f64);
    let mut out =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n");
    for (i, plot) in plots.iter().enumerate() {
        let (x, y) = ((i % columns) as f64 * WIDTH, (i / columns) as f64 * HEIGHT);
        // A plot within a plot has a place and a size; the rest of its head stays.
        let place = format!("<svg x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" ");
        out.push_str(&plot.replacen("<svg ", &place, 1));
    }
    out.push_str("</svg>\n");
    out
}

/// Page, title, grid, ticks and the names of the axes.
fn frame(words: Words<'_>, x: &Axis, y: &Axis) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        escaped(words.title)
    );
    put(&mut out, format_args!(r#"<text class="title" x="{LEFT}" y="28">{}</text>"#, escaped(words.title)));
    let (floor, end) = (HEIGHT - BOTTOM, x.end());
    for tick in y.ticks() {
        let at = y.at(tick);
        put(
            &mut out,
            format_args!(r#"<line class="grid" x1="{LEFT}" y1="{at:.1}" x2="{end:.1}" y2="{at:.1}"/>"#),
        );
        let (text, place) = (shown(tick, y.step()), LEFT - 8.0);
        put(
            &mut out,
            format_args!(
                r#"<text class="tick" x="{place}" y="{:.1}" text-anchor="end">{text}</text>"#,
                at + 4.0
            ),
        );
    }
    for tick in x.ticks() {
        let (at, text) = (x.at(tick), shown(tick, x.step()));
        put(&mut out, format_args!(r#"<path class="axis" d="M{at:.1} {floor}v5"/>"#));
        put(
            &mut out,
            format_args!(
                r#"<text class="tick" x="{at:.1}" y="{}" text-anchor="middle">{text}</text>"#,
                floor + 19.0
            ),
        );
    }
    put(&mut out, format_args!(r#"<path class="axis" d="M{LEFT} {TOP}V{floor}H{end:.1}"/>"#));
    let (middle, height) = (f64::midpoint(LEFT, end), f64::midpoint(TOP, floor));
    put(
        &mut out,
        format_args!(
            r#"<text x="{middle:.1}" y="{}" text-anchor="middle">{}</text>"#,
            HEIGHT - 16.0,
            escaped(words.x)
        ),
    );
    put(
        &mut out,
        format_args!(
            r#"<text transform="translate(20 {height:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escaped(words.y)
        ),
    );
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words<'_> = Words { title: "a < b & c", x: "x", y: "y" };

    fn named(name: &str, x: f64, y: f64) -> Named {
        Named { name: name.into(), x, y, y_error: 0.1 }
    }

    #[test]
    fn points_that_nobody_beats_are_filled() {
        let plot =
            scatter(WORDS, &[named("best", 2.0, 2.0), named("fast", 3.0, 1.0), named("poor", 1.0, 1.0)]);
        assert_eq!(plot.matches(r#"class="hollow" stroke"#).count(), 1);
        assert!(plot.contains("a &lt; b &amp; c") && plot.ends_with("</svg>\n"));
    }

    #[test]
    fn strange_numbers_make_no_strange_plot() {
        let odd = [named("nan", f64::NAN, 1.0), named("one", 1.0, 1.0)];
        for plot in [
            scatter(WORDS, &odd),
            scatter(WORDS, &[]),
            lines(WORDS, &[]),
            lines(WORDS, &[Series { name: "s".into(), points: vec![(0.0, 5.0), (1.0, f64::INFINITY)] }]),
        ] {
            assert!(!plot.contains("NaN") && !plot.contains("inf") && plot.ends_with("</svg>\n"), "{plot}");
        }
    }
}
