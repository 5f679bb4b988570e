//! `farside inspect plot`: a picture in the terminal or in a file.

mod svg;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use farside_viewer::{AreaInfo, At, InspectError, Number, RawFrame, Selection};

use super::{JobArguments, complete, state_of};
use crate::error::ShowError;

/// Draw one step: two dimensions as a heat map, one as a line
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    job: JobArguments,
    /// The area, with a selection by numpy's rules if it is not all: "temperature[10:20, ::4]"
    area: String,
    /// The step, which must not be over; without this, the next one that can be had
    #[arg(long)]
    step: Option<u64>,
    /// The width in columns of the terminal
    #[arg(long, value_name = "COLUMNS", default_value_t = 72, value_parser = clap::value_parser!(u16).range(8..=1000))]
    width: u16,
    /// Draw into a file instead
    #[arg(long, value_name = "FILE", conflicts_with = "width")]
    svg: Option<PathBuf>,
}

/// Colours from low to high.
const COLOURS: [[u8; 3]; 10] = [
    [0x00, 0x00, 0x04],
    [0x1b, 0x0c, 0x41],
    [0x4a, 0x0c, 0x6b],
    [0x78, 0x1c, 0x6d],
    [0xa5, 0x2c, 0x60],
    [0xcf, 0x44, 0x46],
    [0xed, 0x69, 0x25],
    [0xfb, 0x9b, 0x06],
    [0xf7, 0xd1, 0x3d],
    [0xfc, 0xff, 0xa4],
];
/// The colour of what is no number.
const NO_NUMBER: [u8; 3] = [0x7a, 0x8a, 0x7a];
/// Characters from low to high, where there are no colours.
const SHADES: &[u8; 10] = b" .:-=+*#%@";

/// A picture to draw: a line of `columns` numbers, or `rows` of them.
struct Picture {
    title: String,
    values: Vec<f64>,
    rows: Option<usize>,
    columns: usize,
    least: f64,
    most: f64,
}

impl Picture {
    fn new(frame: &RawFrame, numbers: &[Number], info: &AreaInfo) -> Result<Self, ShowError> {
        let (rows, columns) = match frame.shape[..] {
            [columns] => (None, columns as usize),
            [rows, columns] => (Some(rows as usize), columns as usize),
            _ => return Err(ShowError::Dimensions { name: frame.name.clone(), dimensions: frame.shape.len() }),
        };
        let values: Vec<f64> = numbers.iter().map(|number| number.as_f64()).collect();
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (least, most) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
        let (least, most) = if least <= most { (least, most) } else { (0.0, 0.0) };
        let units = if info.units.is_empty() { String::new() } else { format!(" {}", info.units) };
        let title = format!("{} {}{:?}{units}{}", frame.name, frame.element, frame.shape, state_of(frame));
        Ok(Self { title, values, rows, columns, least, most })
    }

    /// Where a value is between the least, 0, and the greatest, 1.
    fn height(&self, value: f64) -> Option<f64> {
        let height = (value - self.least) / (self.most - self.least);
        // All values may be the same.
        if self.most > self.least { Some(height.clamp(0.0, 1.0)).filter(|height| !height.is_nan()) } else { Some(0.0) }
            .filter(|_| !value.is_nan())
    }

    fn colour(&self, value: f64) -> [u8; 3] {
        let Some(height) = self.height(value) else { return NO_NUMBER };
        let place = height * (COLOURS.len() - 1) as f64;
        let low = (place as usize).min(COLOURS.len() - 2);
        let between = |channel: usize| {
            let (from, to) = (f64::from(COLOURS[low][channel]), f64::from(COLOURS[low + 1][channel]));
            (from + (to - from) * (place - low as f64)).round() as u8
        };
        [between(0), between(1), between(2)]
    }

    /// The value at a cell of a picture that has fewer cells than elements, or more.
    fn sample(&self, row: usize, rows: usize, column: usize, columns: usize) -> f64 {
        let row = row * self.rows.unwrap_or(1) / rows;
        self.values[row * self.columns + column * self.columns / columns]
    }

    /// The shape of a picture that has no more cells than this.
    fn fit(&self, columns_max: usize, rows_max: usize) -> (usize, usize) {
        (self.rows.unwrap_or(1).min(rows_max), self.columns.min(columns_max))
    }
}

pub(super) fn run(arguments: &Arguments, out: &mut impl Write) -> Result<(), ShowError> {
    let Arguments { job, area, step, width, svg } = arguments;
    let (name, selection) = Selection::with_name(area).map_err(InspectError::from)?;
    let area = job.connect()?.open_any(name)?;
    let frame = area.get_raw(&selection, step.map_or(At::Now, At::Step))?;
    let picture = Picture::new(&frame, &frame.numbers()?, area.info())?;
    if let Some(path) = svg {
        let written = std::fs::write(path, svg::draw(&picture));
        written.map_err(|cause| ShowError::WriteFile { path: path.clone(), cause })?;
        return complete(frame);
    }
    let has_colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = match picture.rows {
        None => line(&picture, (*width).into()),
        Some(_) => cells(&picture, (*width).into(), has_colours),
    };
    let (least, most) = (picture.least, picture.most);
    write!(out, "# {}\n{text}# {least} to {most}\n", picture.title).map_err(ShowError::Output)?;
    out.flush().map_err(ShowError::Output)?;
    complete(frame)
}

/// A heat map: two rows in each line of the terminal, or one where there are no colours.
fn cells(picture: &Picture, width: usize, has_colours: bool) -> String {
    let (rows, columns) = picture.fit(width, if has_colours { width } else { width / 2 });
    let mut text = String::new();
    let value = |row, column| picture.sample(row, rows, column, columns);
    for row in (0..rows).step_by(if has_colours { 2 } else { 1 }) {
        for column in 0..columns {
            if has_colours {
                let [r, g, b] = picture.colour(value(row, column));
                let _ = write!(text, "\x1b[38;2;{r};{g};{b}m");
                if row + 1 < rows {
                    let [r, g, b] = picture.colour(value(row + 1, column));
                    let _ = write!(text, "\x1b[48;2;{r};{g};{b}m");
                }
                text.push('▀');
            } else {
                let height = picture.height(value(row, column));
                let shade = height.map(|height| (height * SHADES.len() as f64) as usize);
                text.push(shade.map_or('?', |shade| SHADES[shade.min(SHADES.len() - 1)].into()));
            }
        }
        text.push_str(if has_colours { "\x1b[0m\n" } else { "\n" });
    }
    text
}

/// A line of dots: each character has two columns of four.
fn line(picture: &Picture, width: usize) -> String {
    const LINES: usize = 16;
    /// The bit of each dot, by its row and column.
    const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    let mut dots = vec![vec![0_u8; width]; LINES];
    let columns = 2 * width;
    let row_of = |value| picture.height(value).map(|height| ((1.0 - height) * (4 * LINES - 1) as f64).round() as usize);
    let mut before = None;
    for column in 0..columns {
        let row = row_of(picture.sample(0, 1, column, columns));
        if let Some(row) = row {
            // Dots between two columns join them.
            let from = before.unwrap_or(row);
            for row in from.min(row)..=from.max(row) {
                dots[row / 4][column / 2] |= DOTS[row % 4][column % 2];
            }
        }
        before = row;
    }
    let mut text = String::new();
    for row in dots {
        let character = |bits: u8| char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ');
        text.extend(row.into_iter().map(character));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(rows: Option<usize>, columns: usize, values: &[f64]) -> Picture {
        Picture { title: "<it>".into(), values: values.to_vec(), rows, columns, least: 0.0, most: 3.0 }
    }

    #[test]
    fn cells_are_shades_or_colours() {
        let values = [0.0, 1.0, 2.0, 3.0, f64::NAN, 3.0];
        let it = picture(Some(3), 2, &values);
        assert_eq!(cells(&it, 8, false), " -\n*@\n?@\n");
        let coloured = cells(&it, 8, true);
        assert_eq!(coloured.matches('▀').count(), 4);
        assert!(coloured.starts_with("\x1b[38;2;0;0;4m\x1b[48;2;"), "{coloured:?}");
        assert!(coloured.contains("\x1b[38;2;122;138;122m▀"), "{coloured:?}");
        // All values the same.
        let flat = Picture { least: 2.0, most: 2.0, ..picture(Some(1), 2, &[2.0, f64::NAN]) };
        assert_eq!(cells(&flat, 8, false), " ?\n");
    }

    #[test]
    fn a_line_goes_from_left_to_right() {
        let text = line(&picture(None, 4, &[0.0, 1.0, 2.0, 3.0]), 8);
        let lines: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
        assert_eq!((lines.len(), lines[0].len()), (16, 8));
        let has = |row: usize, column: usize| lines[row][column] != '\u{2800}';
        assert!(has(15, 0) && has(0, 7) && !has(0, 0) && !has(15, 7), "{text}");
        // Each column of characters has dots.
        assert!((0..8).all(|column| (0..16).any(|row| has(row, column))), "{text}");
    }

    #[test]
    fn files_have_no_markup_of_others() {
        let text = svg::draw(&picture(Some(2), 2, &[0.0, 1.0, 2.0, 3.0]));
        assert!(text.contains("&lt;it&gt;") && !text.contains("<it>"), "{text}");
        assert_eq!(text.matches("class=\"cell\"").count(), 4);
        assert!(text.contains("fill=\"#fcffa4\""), "{text}");
        let text = svg::draw(&picture(None, 3, &[0.0, f64::NAN, 3.0]));
        assert_eq!(text.matches("<polyline").count(), 2);
    }
}
