//! Heat in a plate with a hot upper edge. Each worker has some of its rows, and neighbors put their
//! edge rows into each other's memory. The result is a picture of the field.
//!
//! `cargo run --release -p farside --example stencil -- picture.pgm`
//!
//! A row is put into the neighbor's memory, followed by a flag. While it travels, the worker
//! computes the inner rows, which do not need it. There is no barrier: a neighbor may be a step
//! ahead, and has a second place for its row for that case.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use farside::bytemuck::cast_slice;
use farside::global::Symmetric;
use farside::prelude::*;
use farside::{Comparison, Error, GlobalPtr, GlobalSlice, Incoming, Order, Result, Signal};

const WORKERS: u32 = 4;
/// The number of rows and of columns of the plate, including its edges.
const SIZE: usize = 128;
const STEPS: usize = 1000;
const HOT: f64 = 255.0;
const FIRST: WorkerId = WorkerId::new(0);

type Row = [f64; SIZE];

/// The memory that every worker has for its neighbors. For each side it holds two places for rows,
/// and a flag with the step of the last row that arrived.
struct Edges {
    rows: Symmetric<f64>,
    flags: Symmetric<u64>,
}

impl Edges {
    /// Returns the two places for rows of a side, and their flag.
    fn of(&self, process: ProcessId, side: usize) -> Result<(GlobalSlice<f64>, GlobalPtr<u64>)> {
        let first = side * 2 * SIZE;
        Ok((self.rows.at(process)?.part(first..first + 2 * SIZE)?, self.flags.at(process)?.at(side)?))
    }
}

/// The edge that a worker shares with a neighbor.
struct Border<'w> {
    me: &'w Worker,
    there: (GlobalSlice<f64>, GlobalPtr<u64>),
    here: (GlobalSlice<f64>, GlobalPtr<u64>),
    /// The last row that was sent.
    sent: Option<Incoming<Vec<u8>>>,
}

impl<'w> Border<'w> {
    /// Returns the border with the neighbor on a side: 0 is above, 1 below.
    fn with(me: &'w Worker, edges: &Edges, neighbor: u32, side: usize) -> Result<Self> {
        let there = edges.of(me.process_of(WorkerId::new(neighbor)), 1 - side)?;
        Ok(Self { me, there, here: edges.of(me.process(), side)?, sent: None })
    }

    /// Sends the row of a step. Waits only for the previous row to be sent.
    fn send(&mut self, step: usize, row: &Row) -> Result<()> {
        let mut buffer = self.sent.take().map_or(Ok(Vec::new()), |sent| sent.take(self.me))?;
        buffer.clear();
        buffer.extend_from_slice(cast_slice(row));
        let (rows, flag) = self.there;
        let (place, ready) = (rows.at(step % 2 * SIZE)?.address(), Signal::Set(step as u64));
        let sent = self.me.start_put_signal(place, buffer, flag, ready, Order::None);
        self.sent = Some(sent.map_err(|refused| refused.error)?);
        Ok(())
    }

    /// Waits for the neighbor's row of a step.
    fn receive(&self, step: usize, row: &mut Row) -> Result<()> {
        let (rows, flag) = self.here;
        flag.wait_until(self.me, Comparison::Ge, step as u64)?;
        rows.get(self.me, step % 2 * SIZE, row)
    }
}

/// Returns the new values of a row: each inner cell becomes the mean of its neighbors.
fn compute(above: &Row, row: &Row, below: &Row) -> Row {
    let mut next = *row;
    for column in 1..SIZE - 1 {
        next[column] = ((above[column] + below[column]) + (row[column - 1] + row[column + 1])) * 0.25;
    }
    next
}

/// Returns this worker's rows after all steps. The first and the last one belong to a neighbor, or
/// are an edge of the plate.
fn solve(me: &Worker, rows: usize) -> Result<Vec<Row>> {
    let number = me.id().number();
    let edges = Edges { rows: me.symmetric(4 * SIZE)?, flags: me.symmetric(2)? };
    let mut upper = number.checked_sub(1).map(|above| Border::with(me, &edges, above, 0)).transpose()?;
    let mut lower = (number + 1 < WORKERS).then(|| Border::with(me, &edges, number + 1, 1)).transpose()?;
    let mut now = vec![[0.0; SIZE]; rows + 2];
    if upper.is_none() {
        now[0] = [HOT; SIZE];
    }
    let mut next = now.clone();
    for step in 1..=STEPS {
        for (border, row) in [(&mut upper, 1), (&mut lower, rows)] {
            if let Some(border) = border {
                border.send(step, &now[row])?;
            }
        }
        for row in 2..rows {
            next[row] = compute(&now[row - 1], &now[row], &now[row + 1]);
        }
        for (border, row) in [(&upper, 0), (&lower, rows + 1)] {
            if let Some(border) = border {
                border.receive(step, &mut now[row])?;
            }
        }
        for row in [1, rows] {
            next[row] = compute(&now[row - 1], &now[row], &now[row + 1]);
        }
        // The edges of the plate are the same in both arrays.
        std::mem::swap(&mut now, &mut next);
    }
    // No transfer may be under way when the memory is freed.
    me.flush_all()?;
    edges.rows.free(me)?;
    edges.flags.free(me)?;
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
