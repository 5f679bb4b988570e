//! Draws rows as pictures.

mod lines;

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::BenchError;
use crate::row::Row;
use crate::table::show;

const WIDTH: u32 = 800;
const BAR_HEIGHT: u32 = 26;
/// Height of the caption and the axis.
const MARGINS_HEIGHT: u32 = 110;
/// The beginning of the names of metrics that a model predicts.
const PREDICTED: &str = "predicted_";
/// The least width of the column with the names of the cases, and that of a letter.
const NAMES_WIDTH_MIN: u32 = 170;
const LETTER_WIDTH: u32 = 7;

/// Draws one picture for each bench and metric, as `BENCH-METRIC.svg` in `folder`, which it creates
/// if necessary. Returns the paths of the files.
///
/// A bar shows the median. The thin line across its end reaches from the smallest value to the
/// largest. The red mark is the limit, and the green one the value that a model predicts. Cases
/// that differ in one quantity, such as the number of processes, are also drawn as [`lines`].
///
/// # Errors
/// [`BenchError::System`] if a file cannot be written; [`BenchError::Plot`].
pub(crate) fn plot(rows: &[Row], folder: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let failed = |doing| move |path: &Path, cause| BenchError::System { doing, path: path.into(), cause };
    std::fs::create_dir_all(folder).map_err(|cause| failed("making the folder")(folder, cause))?;
    let mut files = Vec::new();
    for (name, svg) in pictures(rows) {
        let path = folder.join(name);
        let svg = svg.map_err(|error| BenchError::Plot { path: path.clone(), why: error.to_string() })?;
        std::fs::write(&path, svg).map_err(|cause| failed("writing")(&path, cause))?;
        files.push(path);
    }
    Ok(files)
}

type Drawn = Result<String, Box<dyn std::error::Error>>;

/// Rows of one metric, each with the value that a model predicts for it.
type Predicted<'r> = [(&'r Row, Option<f64>)];

/// Returns the names of the files and the pictures.
fn pictures(rows: &[Row]) -> Vec<(String, Drawn)> {
    let mut pictures: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    let mut predictions = BTreeMap::new();
    for row in rows {
        match row.metric.strip_prefix(PREDICTED) {
            Some(metric) => drop(predictions.insert((&*row.bench, metric, &*row.case), row.value)),
            None => pictures.entry((&row.bench, &row.metric)).or_default().push(row),
        }
    }
    let pictures = pictures.into_iter().flat_map(|((bench, metric), rows)| {
        let predicted = |row: &Row| predictions.get(&(bench, metric, &*row.case)).copied();
        let rows: Vec<_> = rows.into_iter().map(|row| (row, predicted(row))).collect();
        let bars = (format!("{bench}-{metric}.svg"), draw(bench, metric, &rows));
        let groups = lines::groups(&rows).into_iter().map(move |(group, series)| {
            let name = format!("{bench}-{metric}-lines{}{group}.svg", if group.is_empty() { "" } else { "-" });
            (name, lines::draw(bench, metric, &group, &series))
        });
        iter::once(bars).chain(groups).collect::<Vec<_>>()
    });
    pictures.collect()
}

/// The axis of the values. It is logarithmic if the values are far apart.
#[derive(Clone, Copy, Debug)]
struct Axis {
    is_logarithmic: bool,
    begin: f64,
    end: f64,
}

impl Axis {
    /// The axis of bars, with their limits.
    fn of(rows: &Predicted<'_>) -> Self {
        let of_row = |(row, predicted): &(&Row, Option<f64>)| {
            [Some(row.value), Some(row.min), Some(row.max), row.limit, *predicted]
        };
        Self::around(rows.iter().flat_map(of_row).flatten())
    }

    fn around(values: impl Iterator<Item = f64> + Clone) -> Self {
        let values = || values.clone();
        let positive = || values().filter(|value| *value > 0.0);
        let largest = positive().fold(f64::MIN_POSITIVE, f64::max);
        let smallest = positive().fold(largest, f64::min);
        if largest / smallest > 50.0 && values().all(|value| value > 0.0) {
            Self { is_logarithmic: true, begin: smallest.log10().floor(), end: largest.log10() + 0.1 }
        } else {
            Self { is_logarithmic: false, begin: 0.0, end: largest * 1.05 }
        }
    }

    fn place(self, value: f64) -> f64 {
        if self.is_logarithmic { value.log10() } else { value }
    }

    fn value(self, place: f64) -> f64 {
        if self.is_logarithmic { 10_f64.powf(place) } else { place }
    }
}

fn draw(bench: &str, metric: &str, rows: &Predicted<'_>) -> Drawn {
    let mut svg = String::new();
    let names: Vec<_> = rows.iter().map(|(row, _)| row.name()).collect();
    let longest = names.iter().map(String::len).max().unwrap_or_default() as u32;
    let names_width = NAMES_WIDTH_MIN.max(longest * LETTER_WIDTH + 8);
    let size = (WIDTH + names_width - NAMES_WIDTH_MIN, MARGINS_HEIGHT + BAR_HEIGHT * rows.len() as u32);
    let axis = Axis::of(rows);
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{bench}: {metric}"), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(names_width)
        // The first case is at the top.
        .build_cartesian_2d(axis.begin..axis.end, rows.len() as f64..0.0)?;
    let unit = rows.first().map_or("", |(row, _)| &row.unit);
    let value_name = |at: &f64| show(axis.value(*at), unit);
    let mut mesh = chart.configure_mesh();
    mesh.disable_y_mesh().disable_y_axis().max_light_lines(0).x_labels(8).x_label_formatter(&value_name).draw()?;

    let numbered = || rows.iter().zip(0..).map(|((row, _), index)| (*row, f64::from(index)));
    let bar = |(row, top): (&Row, f64)| {
        let corners = [(axis.begin, top + 0.15), (axis.place(row.value), top + 0.85)];
        Rectangle::new(corners, RGBColor(90, 130, 180).filled())
    };
    chart.draw_series(numbered().map(bar))?;
    let spread = |(row, top): (&Row, f64)| {
        PathElement::new([(axis.place(row.min), top + 0.5), (axis.place(row.max), top + 0.5)], BLACK)
    };
    chart.draw_series(numbered().map(spread))?;
    let mark = |top: f64, value: f64, colour: RGBColor| {
        let at = axis.place(value);
        PathElement::new([(at, top + 0.05), (at, top + 0.95)], colour.stroke_width(3))
    };
    chart.draw_series(numbered().filter_map(|(row, top)| Some(mark(top, row.limit?, RED))))?;
    let predictions = rows.iter().zip(0..).filter_map(|((_, predicted), top)| Some((f64::from(top), (*predicted)?)));
    chart.draw_series(predictions.map(|(top, predicted)| mark(top, predicted, GREEN)))?;
    let to_the_left = Pos::new(HPos::Right, VPos::Center);
    let style = ("sans-serif", 13).into_text_style(&area).pos(to_the_left);
    let name = |(name, (_, top)): (String, (&Row, f64))| {
        EmptyElement::at((axis.begin, top + 0.5)) + Text::new(name, (-8, 0), style.clone())
    };
    chart.draw_series(names.into_iter().zip(numbered()).map(name))?;
    drop(chart);
    area.present()?;
    drop(area);
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    fn row(case: &str, metric: &str, samples: Vec<f64>, limits: Vec<f64>) -> Row {
        Row::new("invoke-latency", case, &Metric::new(metric, "ns", samples).against("ping-pong", limits)).unwrap()
    }

    #[test]
    fn a_picture_shows_every_case() {
        let rows = [
            row("call-return/8B", "rtt_ns", vec![190.0, 200.0, 250.0], vec![150.0]),
            row("a < b & \"c\"", "rtt_ns", vec![9e6], vec![]),
        ];
        for count in [1, 2] {
            let rows: Vec<_> = rows.iter().map(|row| (row, None)).take(count).collect();
            let svg = draw("invoke-latency", "rtt_ns", &rows).unwrap();
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
            assert!(svg.contains("invoke-latency: rtt_ns") && svg.contains("call-return/8B"), "{svg}");
            assert_eq!(svg.contains("a &lt; b &amp; &quot;c&quot;"), count == 2, "{svg}");
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
            assert_eq!(svg.to_lowercase().matches("#5a82b4").count(), count, "one bar for each row: {svg}");
        }
    }

    #[test]
    fn peers_are_named() {
        let own = row("null", "rtt_ns", vec![190.0], vec![]);
        let peer = Row { peer: Some("a peer".into()), ..own.clone() };
        let svg = draw("rpc-latency", "rtt_ns", &[(&own, None), (&peer, None)]).unwrap();
        assert_eq!((svg.matches("null").count(), svg.matches("null (a peer)").count()), (2, 1), "{svg}");
    }

    #[test]
    fn predictions_are_marks() {
        let rows = [row("get", "ns", vec![190.0], vec![]), row("get", "predicted_ns", vec![200.0], vec![])];
        let [(name, svg)] = pictures(&rows).try_into().unwrap();
        assert_eq!(name, "invoke-latency-ns.svg");
        let svg = svg.unwrap().to_lowercase();
        assert_eq!(svg.matches("#00ff00").count(), 1, "{svg}");
    }

    #[test]
    fn values_far_apart_get_a_logarithmic_axis() {
        let near = row("a", "rtt_ns", vec![10.0, 20.0, 30.0], vec![5.0]);
        let far = row("b", "rtt_ns", vec![1000.0], vec![]);
        let none = row("c", "rtt_ns", vec![0.0], vec![]);
        let axis_of = |rows: &[&Row]| Axis::of(&rows.iter().map(|row| (*row, None)).collect::<Vec<_>>());
        assert!(!axis_of(&[&near]).is_logarithmic);
        let axis = axis_of(&[&near, &far]);
        assert!(axis.is_logarithmic && axis.begin <= 5_f64.log10() && axis.end >= 3.0);
        assert!(!axis_of(&[&near, &far, &none]).is_logarithmic);
        assert!(axis_of(&[&none]).end > 0.0);
    }

    #[test]
    fn an_impossible_folder_is_an_error() {
        let rows = [row("a", "rtt_ns", vec![1.0], vec![])];
        let error = plot(&rows, Path::new("/proc/no-such-folder")).unwrap_err().to_string();
        assert!(error.contains("/proc/no-such-folder"), "{error}");
    }
}
