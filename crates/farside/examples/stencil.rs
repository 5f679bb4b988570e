//! Heat in a plate whose upper edge is held hot: each worker has some of its rows, and neighbors exchange the rows at their edges through
//! pipes. In the end there is a picture of the field.
//!
//! `cargo run --release -p farside --example stencil -- picture.pgm`
//!
//! A row goes into memory of the neighbor with a flag behind, and while it travels the inside is computed, which does not need it. There is no
//! barrier: a neighbor may be a step ahead, and has a second place for its row then.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use farside::bytemuck::{cast_slice, cast_slice_mut};
use farside::pipe::{PipeReader, PipeWriter};
use farside::prelude::*;
use farside::{Error, Result};

const WORKERS: u32 = 4;
/// Rows and columns of the plate, with its edges.
const SIZE: usize = 128;
const STEPS: usize = 1000;
const HOT: f64 = 255.0;
const FIRST: WorkerId = WorkerId::new(0);

type Row = [f64; SIZE];

/// A pipe to a neighbor and one back, with room for the rows of two steps.
struct Border<'w> {
    there: PipeWriter<'w>,
    back: PipeReader<'w>,
}

impl<'w> Border<'w> {
    fn with(me: &'w Worker, neighbor: u32) -> Result<Self> {
        let pipe = || me.pipe(WorkerId::new(neighbor)).width(2).message_bytes(size_of::<Row>());
        Ok(Self { back: pipe().reader()?, there: pipe().writer()? })
    }
}

/// The new value of the inner cells of a row: the mean of their neighbors.
fn compute(above: &Row, row: &Row, below: &Row) -> Row {
    let mut next = *row;
    for column in 1..SIZE - 1 {
        next[column] = ((above[column] + below[column]) + (row[column - 1] + row[column + 1])) * 0.25;
    }
    next
}

/// This worker's rows after all steps, the first and the last one being a neighbor's, or an edge of the plate.
fn solve(me: &Worker, rows: usize) -> Result<Vec<Row>> {
    let number = me.id().number();
    let mut upper = number.checked_sub(1).map(|above| Border::with(me, above)).transpose()?;
    let mut lower = (number + 1 < WORKERS).then(|| Border::with(me, number + 1)).transpose()?;
    let mut now = vec![[0.0; SIZE]; rows + 2];
    if upper.is_none() {
        now[0] = [HOT; SIZE];
    }
    let mut next = now.clone();
    for _ in 0..STEPS {
        for (border, row) in [(&mut upper, 1), (&mut lower, rows)] {
            if let Some(border) = border {
                border.there.write(cast_slice(&now[row]))?;
            }
        }
        for row in 2..rows {
            next[row] = compute(&now[row - 1], &now[row], &now[row + 1]);
        }
        for (border, row) in [(&mut upper, 0), (&mut lower, rows + 1)] {
            if let Some(border) = border {
                border.back.read(cast_slice_mut(&mut now[row]))?;
            }
        }
        for row in [1, rows] {
            next[row] = compute(&now[row - 1], &now[row], &now[row + 1]);
        }
        // The edges of the plate are the same in both.
        std::mem::swap(&mut now, &mut next);
    }
    Ok(now)
}

/// Writes a portable graymap.
fn draw(rows: &[f64], path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write!(file, "P5\n{SIZE} {} 255\n", rows.len() / SIZE)?;
    let pixels: Vec<u8> = rows.iter().map(|heat| heat.round() as u8).collect();
    file.write_all(&pixels)?;
    file.flush()
}

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "stencil.pgm".into());
    farside::job().processes(WORKERS).run(|me: &Worker| {
        // The first and the last row of the plate are edges.
        let rows = (SIZE - 2) / WORKERS as usize + usize::from(me.id().index() < (SIZE - 2) % WORKERS as usize);
        let own = solve(me, rows)?;
        let inner = own[1..=rows].iter().flatten().copied().collect::<Vec<f64>>();
        if let Some(parts) = me.gather(FIRST, inner)? {
            let plate = [&[HOT; SIZE][..], &parts.concat(), &[0.0; SIZE]].concat();
            draw(&plate, path.as_ref()).map_err(|cause| Error::System { doing: "drawing", cause })?;
            let mean = plate.iter().sum::<f64>() / plate.len() as f64;
            println!("{}: {mean:.3} on average after {STEPS} steps", Path::new(&path).display());
        }
        me.barrier()
    })
}
