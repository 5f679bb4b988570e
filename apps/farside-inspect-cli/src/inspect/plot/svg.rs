//! A picture as SVG.

use std::fmt::Write;

use super::Picture;

/// The size of the plot without the space around it.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 480.0;
/// The space on the left, above, on the right, and below.
const SPACE: [f64; 4] = [80.0, 40.0, 110.0, 40.0];
/// The most cells of a dimension. A longer one is drawn with some of its places.
const CELLS_MAX: usize = 256;

/// Draws a picture.
pub(super) fn draw(picture: &Picture) -> String {
    let [left, top, right, bottom] = SPACE;
    let (width, height) = (left + WIDTH + right, top + HEIGHT + bottom);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"14\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"{left}\" y=\"25\">{}</text>\n<g transform=\"translate({left} {top})\">\n",
        escaped(&picture.title)
    );
    match picture.rows {
        Some(rows) => heat_map(picture, rows, &mut text),
        None => lines(picture, &mut text),
    }
    let _ = writeln!(
        text,
        "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#888888\"/>\n\
         <text y=\"{}\">0</text><text x=\"{WIDTH}\" y=\"{0}\" text-anchor=\"end\">{}</text>\n</g></svg>",
        HEIGHT + 20.0,
        picture.columns.saturating_sub(1)
    );
    text
}

fn heat_map(picture: &Picture, all_rows: usize, text: &mut String) {
    let (rows, columns) = picture.fit(CELLS_MAX, CELLS_MAX);
    let (high, wide) = (HEIGHT / rows as f64, WIDTH / columns as f64);
    for row in 0..rows {
        for column in 0..columns {
            let colour = hex(picture.colour(picture.sample(row, rows, column, columns)));
            let (x, y) = (column as f64 * wide, row as f64 * high);
            // A little overlap, so that no gaps show between them.
            let (wide, high) = (wide + 0.3, high + 0.3);
            let _ = writeln!(
                text,
                "<rect class=\"cell\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{wide:.2}\" height=\"{high:.2}\" fill=\"{colour}\"/>"
            );
        }
    }
    // The scale, from the greatest value at the top to the least.
    let x = WIDTH + 15.0;
    let steps = 64;
    for step in 0..steps {
        let value = picture.most + (picture.least - picture.most) * f64::from(step) / f64::from(steps - 1);
        let (y, high) = (HEIGHT * f64::from(step) / f64::from(steps), HEIGHT / f64::from(steps) + 0.3);
        let colour = hex(picture.colour(value));
        let _ = writeln!(text, "<rect x=\"{x}\" y=\"{y:.2}\" width=\"16\" height=\"{high:.2}\" fill=\"{colour}\"/>");
    }
    let x = x + 20.0;
    let (most, least) = (rounded(picture.most), rounded(picture.least));
    let _ = writeln!(text, "<text x=\"{x}\" y=\"12\">{most}</text><text x=\"{x}\" y=\"{HEIGHT}\">{least}</text>");
    let last = all_rows - 1;
    let _ = writeln!(
        text,
        "<text x=\"-8\" y=\"12\" text-anchor=\"end\">0</text><text x=\"-8\" y=\"{HEIGHT}\" text-anchor=\"end\">{last}</text>"
    );
}

fn lines(picture: &Picture, text: &mut String) {
    let step = WIDTH / picture.columns.saturating_sub(1).max(1) as f64;
    // What is no number divides the line.
    for (number, line) in picture.values.split(|value| value.is_nan()).scan(0, |begun, line| {
        let first = *begun;
        *begun += line.len() + 1;
        Some((first, line))
    }) {
        let point = |(at, value): (usize, &f64)| {
            let height = picture.height(*value).unwrap_or_default();
            format!("{:.2},{:.2}", (number + at) as f64 * step, (1.0 - height) * HEIGHT)
        };
        let points: Vec<String> = line.iter().enumerate().map(point).collect();
        let points = points.join(" ");
        let _ = writeln!(
            text,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"#0b63c5\" stroke-width=\"2\" stroke-linecap=\"round\"/>"
        );
    }
    let (most, least) = (rounded(picture.most), rounded(picture.least));
    let _ = writeln!(
        text,
        "<text x=\"-8\" y=\"12\" text-anchor=\"end\">{most}</text><text x=\"-8\" y=\"{HEIGHT}\" text-anchor=\"end\">{least}</text>"
    );
}

/// A number with few digits.
fn rounded(value: f64) -> String {
    let digits = format!("{value:.4e}").parse().unwrap_or(value);
    if (1e-4..1e6).contains(&value.abs()) || value == 0.0 { digits.to_string() } else { format!("{digits:e}") }
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A text as it stands in a document.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            other if other.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
