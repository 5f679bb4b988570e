//! Cases that differ in one quantity, as lines.
//!
//! A part of a case's name is a quantity if it begins with a digit, as in `push/call/all/16x1x1`
//! and `call/128us`, or does so behind a word, as in `clients-4`. Cases that are equal but for one
//! quantity are the points of a line.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::{Axis, Drawn, Predicted, WIDTH};
use crate::row::Row;
use crate::table::show;

const HEIGHT: u32 = 480;
/// Points of a line at least.
const POINTS_MIN: usize = 3;

/// One line.
#[derive(Debug)]
pub(super) struct Series<'r> {
    /// The names of its cases without the quantity.
    name: String,
    /// By the quantity.
    points: BTreeMap<Quantity<'r>, (&'r Row, Option<f64>)>,
}

/// A quantity, as it stands in the name of a case. Ordered by its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity<'r> {
    value: u64,
    text: &'r str,
}

impl<'r> Quantity<'r> {
    /// Reads a part of a case's name. Returns the word in front of the quantity, too.
    fn read(part: &'r str) -> Option<(&'r str, Self)> {
        let (word, text) = part.rsplit_once('-').unwrap_or(("", part));
        let mut value = 1_u64;
        for factor in text.split('x') {
            let digits = factor.bytes().take_while(u8::is_ascii_digit).count();
            let unit = match &factor[digits..] {
                "KiB" => 1 << 10,
                "MiB" => 1 << 20,
                "GiB" => 1 << 30,
                unit if unit.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'B') => 1,
                _ => return None,
            };
            value = value.checked_mul(factor[..digits].parse::<u64>().ok()?.checked_mul(unit)?)?;
        }
        Some((word, Self { value, text }))
    }
}

/// Returns the lines of each picture by the name of its group: the first part of their names, if
/// they have several.
pub(super) fn groups<'r>(rows: &Predicted<'r>) -> BTreeMap<String, Vec<Series<'r>>> {
    // A case with several quantities is a point of the longest of its lines.
    let mut longest: BTreeMap<String, Vec<Quantity<'_>>> = BTreeMap::new();
    for (row, _) in rows {
        for (name, quantity) in candidates(row) {
            let quantities = longest.entry(name).or_default();
            if !quantities.contains(&quantity) {
                quantities.push(quantity);
            }
        }
    }
    let mut series: BTreeMap<String, Series<'r>> = BTreeMap::new();
    for (row, predicted) in rows {
        let Some((name, quantity)) = candidates(row).max_by_key(|(name, _)| longest[name].len()) else { continue };
        if longest[&name].len() >= POINTS_MIN {
            // A peer may have published one point.
            let name = row.peer.as_ref().map_or(name.clone(), |peer| format!("{name} ({peer})"));
            let new = || Series { name: name.clone(), points: BTreeMap::new() };
            series.entry(name.clone()).or_insert_with(new).points.insert(quantity, (row, *predicted));
        }
    }
    let mut groups: BTreeMap<String, Vec<Series<'r>>> = BTreeMap::new();
    for series in series.into_values() {
        // A series of zeros would only keep the axis from being logarithmic.
        if series.points.values().all(|(row, _)| row.value == 0.0) {
            continue;
        }
        // A fabric, such as `sim:aries`, stands behind all names of a run.
        let parts: Vec<&str> = series.name.split('/').filter(|part| !part.contains(':')).collect();
        let group = if parts.len() > 2 { parts[0] } else { "" };
        groups.entry(group.to_owned()).or_default().push(series);
    }
    groups
}

/// Returns the lines that a row may be a point of, by their names, and its place in them.
fn candidates(row: &Row) -> impl Iterator<Item = (String, Quantity<'_>)> {
    let parts: Vec<&str> = row.case.split('/').collect();
    let found = parts.iter().enumerate().filter_map(|(index, part)| {
        let (word, quantity) = Quantity::read(part)?;
        let star = if word.is_empty() { "*".to_owned() } else { format!("{word}-*") };
        let mut name = parts.clone();
        name[index] = &star;
        Some((name.join("/"), quantity))
    });
    found.collect::<Vec<_>>().into_iter()
}

/// Draws lines. What a model predicts is a line of dashes in the same colour.
pub(super) fn draw(bench: &str, metric: &str, group: &str, series: &[Series<'_>]) -> Drawn {
    let mut quantities: Vec<Quantity<'_>> = series.iter().flat_map(|series| series.points.keys().copied()).collect();
    quantities.sort();
    quantities.dedup();
    let points = || series.iter().flat_map(|series| series.points.values());
    let axis = Axis::around(points().flat_map(|(row, predicted)| [Some(row.value), *predicted]).flatten());
    let unit = points().next().map_or("", |(row, _)| &row.unit);
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let separator = if group.is_empty() { "" } else { ", " };
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{bench}{separator}{group}: {metric}"), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(80)
        // Room for the names of the lines.
        .build_cartesian_2d(-0.2..quantities.len() as f64 * 1.5 + 1.0, axis.begin..axis.end)?;
    let quantity_name = |at: &f64| {
        let is_whole = (at - at.round()).abs() < 1e-9 && *at >= 0.0;
        let quantity = if is_whole { quantities.get(at.round() as usize) } else { None };
        quantity.map_or(String::new(), |quantity| quantity.text.to_owned())
    };
    let value_name = |at: &f64| show(axis.value(*at), unit);
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_labels(2 * quantities.len() + 2).x_label_formatter(&quantity_name);
    mesh.y_label_formatter(&value_name).max_light_lines(0).draw()?;
    for (number, series) in series.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let at = |quantity: &Quantity<'_>| quantities.partition_point(|other| other < quantity) as f64;
        let line = series.points.iter().map(|(quantity, (row, _))| (at(quantity), axis.place(row.value)));
        let name = series.name.strip_prefix(group).unwrap_or(&series.name).trim_start_matches('/');
        let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)).point_size(3))?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        let predicted = series.points.iter().filter_map(|(quantity, (_, ns))| Some((at(quantity), axis.place((*ns)?))));
        chart.draw_series(DashedLineSeries::new(predicted, 4, 4, colour.stroke_width(1)))?;
    }
    let mut names = chart.configure_series_labels();
    names.position(SeriesLabelPosition::UpperRight).background_style(WHITE).draw()?;
    drop(chart);
    area.present()?;
    drop(area);
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::plot::pictures;

    fn rows(cases: &[(&str, f64)], metric: &str) -> Vec<Row> {
        let row =
            |(case, value): &(&str, f64)| Row::new("queue", case, &Metric::new(metric, "ns", vec![*value])).unwrap();
        cases.iter().map(row).collect()
    }

    #[test]
    fn quantities_are_read() {
        let read = |part| Quantity::read(part).map(|(word, quantity)| (word, quantity.value));
        for (part, expected) in [
            ("128us", Some(("", 128))),
            ("16x32x1", Some(("", 512))),
            ("4KiB", Some(("", 4096))),
            ("4p", Some(("", 4))),
            ("clients-16", Some(("clients", 16))),
            ("one-sided", None),
            ("push", None),
            ("", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(read(part), expected, "{part}");
        }
    }

    #[test]
    fn cases_that_differ_in_one_quantity_are_a_line() {
        let mut all = rows(
            &[
                ("push/call/all/2x1x1", 10.0),
                ("push/call/all/16x1x1", 30.0),
                ("push/call/all/4x1x1", 20.0),
                ("push/one-sided/all/2x1x1", 5.0),
                ("push/one-sided/all/4x1x1", 6.0),
                ("push/one-sided/all/16x1x1", 7.0),
                ("pop/call/all/2x1x1", 1.0),
                ("pop/call/all/4x1x1", 1.0),
                ("choice", 1.0),
            ],
            "ns",
        );
        all.extend(rows(&[("push/call/all/2x1x1", 11.0), ("push/call/all/16x1x1", 29.0)], "predicted_ns"));
        let pictures = pictures(&all);
        let names: Vec<_> = pictures.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["queue-ns.svg", "queue-ns-lines-push.svg"], "two points are no line");
        let svg = pictures[1].1.as_ref().unwrap();
        for expected in ["queue, push: ns", "call/all/*", "one-sided/all/*", "\n16x1x1\n"] {
            assert!(svg.contains(expected), "{expected}: {svg}");
        }
        let groups = groups(&all.iter().map(|row| (row, None)).collect::<Vec<_>>());
        let of_call: Vec<_> = groups["push"][0].points.keys().map(|quantity| quantity.value).collect();
        assert_eq!(of_call, [2, 4, 16], "in the order of their values");
    }

    #[test]
    fn a_peer_may_have_one_point() {
        let mut all = rows(&[("clients-1", 1.0), ("clients-4", 2.0), ("clients-16", 3.0)], "ns");
        all.extend(rows(&[("clients-16", 9.0), ("idle-1", 1.0)], "ns").into_iter().map(|mut row| {
            row.peer = Some("mercury".into());
            row
        }));
        let groups = groups(&all.iter().map(|row| (row, None)).collect::<Vec<_>>());
        let lines: Vec<_> = groups[""].iter().map(|series| (&*series.name, series.points.len())).collect();
        assert_eq!(lines, [("clients-*", 3), ("clients-* (mercury)", 1)]);
    }

    #[test]
    fn the_fabric_is_no_part_of_a_name() {
        let all =
            rows(&[("get/2x1x1/sim:aries", 1.0), ("get/4x1x1/sim:aries", 2.0), ("get/8x1x1/sim:aries", 3.0)], "ns");
        let groups = groups(&all.iter().map(|row| (row, None)).collect::<Vec<_>>());
        assert_eq!(groups.into_keys().collect::<Vec<_>>(), [""]);
    }

    /// Bulk of several sizes and depths: there are more sizes, so each depth is a line.
    #[test]
    fn of_two_quantities_the_one_with_more_values_is_along_the_line() {
        let sizes = ["4KiB", "64KiB", "1MiB", "16MiB"];
        let cases = sizes.iter().flat_map(|size| [1, 4, 16].map(|depth| format!("pull/{size}/depth-{depth}")));
        let cases: Vec<String> = cases.collect();
        let all = rows(&cases.iter().map(|case| (&**case, 1.0)).collect::<Vec<_>>(), "ns");
        let groups = groups(&all.iter().map(|row| (row, None)).collect::<Vec<_>>());
        let names: Vec<_> = groups["pull"].iter().map(|series| &*series.name).collect();
        assert_eq!(names, ["pull/*/depth-1", "pull/*/depth-16", "pull/*/depth-4"]);
    }
}
