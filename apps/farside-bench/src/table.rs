//! Rows as a table for people.

use std::fmt::Write as _;

use crate::row::Row;

/// Writes rows as lines of a table, one at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The bench of the last row.
    bench: Option<String>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the line of a row, after a heading if another bench begins. Each line ends with a
    /// line feed.
    pub(crate) fn lines(&mut self, row: &Row) -> String {
        let mut lines = String::new();
        if self.bench.as_ref() != Some(&row.bench) {
            let gap = if self.bench.is_some() { "\n" } else { "" };
            lines = format!(
                "{gap}{}\n  {:<26} {:<20} {:>10}  {:>10} {:>7}  {:<20} limit\n",
                row.bench, "case", "metric", "median", "limit", "ratio", "min .. max"
            );
            self.bench = Some(row.bench.clone());
        }
        let shown = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| show(value, &row.unit));
        let line = writeln!(
            lines,
            "  {:<26} {:<20} {:>10}  {:>10} {:>7}  {:<20} {}",
            row.name(),
            row.metric,
            show(row.value, &row.unit),
            shown(row.limit),
            row.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            format!("{} .. {}", show(row.min, &row.unit), show(row.max, &row.unit)),
            row.limit_name.as_deref().unwrap_or("-"),
        );
        line.expect("a string takes all that is written to it");
        lines
    }
}

/// Formats a value with three digits and its unit: `312 M/s`, `1.23 us`.
pub(crate) fn show(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "1/s" => scaled(value, &[(1e9, "G/s"), (1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
        "B/s" => scaled(value, &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]),
        "ns" => scaled(value, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
        "ms" => scaled(value, &[(1e3, "s"), (1.0, "ms"), (1e-3, "us")]),
        "B" => {
            scaled(value, &[(1024.0 * 1024.0 * 1024.0, "GiB"), (1024.0 * 1024.0, "MiB"), (1024.0, "KiB"), (1.0, "B")])
        }
        "1" => (value, ""),
        other => (value, other),
    };
    let gap = if unit.is_empty() { "" } else { " " };
    match value.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{value:.0}{gap}{unit}"),
        size if size >= 10.0 => format!("{value:.1}{gap}{unit}"),
        size if size >= 1.0 => format!("{value:.2}{gap}{unit}"),
        size if size >= 0.001 => format!("{value:.4}{gap}{unit}"),
        _ => format!("{value:.1e}{gap}{unit}"),
    }
}

/// Returns the value in the largest unit that leaves at least 1, or in the smallest unit.
fn scaled<'u>(value: f64, units: &[(f64, &'u str)]) -> (f64, &'u str) {
    let fitting = units.iter().find(|(size, _)| value.abs() >= *size).or(units.last());
    fitting.map_or((value, ""), |(size, unit)| (value / size, *unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        let shown =
            [(3.12e8, "1/s"), (999.0, "1/s"), (1234.0, "ns"), (187.4, "ns"), (0.5, "ns"), (12.34, "ms"), (0.25, "ms")];
        let shown = shown.map(|(value, unit)| show(value, unit));
        assert_eq!(shown, ["312 M/s", "999 /s", "1.23 us", "187 ns", "0.5000 ns", "12.3 ms", "250 us"]);
        assert_eq!([1.25e10, 4e5].map(|rate| show(rate, "B/s")), ["12.5 GB/s", "400 kB/s"]);
        assert_eq!([5_242_880.0, 1536.0, 12.0].map(|bytes| show(bytes, "B")), ["5.00 MiB", "1.50 KiB", "12.0 B"]);
        assert_eq!([0.0123, 0.0, 1.7e-5].map(|share| show(share, "1")), ["0.0123", "0", "1.7e-5"]);
    }

    #[test]
    fn a_heading_comes_once_a_bench() {
        let row = |bench: &str| Row::new(bench, "trad/8B", &Metric::new("calls_per_s", "1/s", vec![3e8])).unwrap();
        let mut table = Table::new();
        let lines = [table.lines(&row("a")), table.lines(&row("a")), table.lines(&row("b"))];
        assert_eq!(lines.each_ref().map(|text| text.lines().count()), [3, 1, 4]);
        assert!(lines[0].starts_with("a\n") && lines[2].starts_with("\nb\n"), "{lines:?}");
        assert!(lines[1].contains("trad/8B") && lines[1].contains("300 M/s"), "{lines:?}");
    }
}
