//! Heat in a plate with a hot upper edge, which programs outside of the job watch and change.
//!
//! ```text
//! farside run -n 2 target/release/examples/heat &
//! farside inspect list
//! farside inspect get "temperature[::16, ::16]"
//! farside inspect put "source[60:68, 30:38]" 255     # a hot spot; 0 takes it away
//! farside inspect put rate 0.25
//! farside inspect act reset
//! ```
//!
//! Each worker has some of the rows. After each step it publishes them. The argument is the number
//! of steps, which is unlimited without it.

use std::cell::Cell;
use std::rc::Rc;

use farside::bytemuck::{cast_slice, cast_slice_mut};
use farside::global::Symmetric;
use farside::prelude::*;
use farside::{Comparison, Result};
use farside_inspect::{Expose, Kind};

/// The number of rows and of columns of the plate, including its edges.
const SIZE: usize = 128;
const HOT: f64 = 255.0;

type Row = [f64; SIZE];

/// The memory that every process has for the rows of its neighbors: two of each side, used in
/// turns, and a flag for each side with the last step whose row is there.
struct Edges {
    rows: Symmetric<f64>,
    flags: Symmetric<u64>,
}

impl Edges {
    /// Puts the row of a step into a neighbor's memory: on side 0 if the neighbor is below.
    fn send(&self, me: &Worker, neighbor: WorkerId, side: usize, step: u64, row: &Row) -> Result<()> {
        let process = me.process_of(neighbor);
        let place = (2 * side + (step % 2) as usize) * SIZE;
        self.rows.at(process)?.put(me, place, row)?;
        me.flush_all()?;
        self.flags.at(process)?.at(side)?.put(me, step)
    }

    /// Waits for the row of a step.
    fn receive(&self, me: &Worker, side: usize, step: u64, row: &mut Row) -> Result<()> {
        self.flags.at(me.process())?.at(side)?.wait_until(me, Comparison::Ge, step)?;
        let place = (2 * side + (step % 2) as usize) * SIZE;
        self.rows.at(me.process())?.get(me, place, row)
    }
}

/// Returns the new values of a row: each inner cell comes nearer to the mean of its neighbors by
/// the rate, or has the temperature of the source there.
fn compute(above: &Row, row: &Row, below: &Row, source: &Row, rate: f64) -> Row {
    let mut next = *row;
    for column in 1..SIZE - 1 {
        let mean = ((above[column] + below[column]) + (row[column - 1] + row[column + 1])) * 0.25;
        let moved = row[column] + rate * (mean - row[column]);
        next[column] = if source[column] > 0.0 { source[column] } else { moved };
    }
    next
}

fn run(me: &Worker, steps: u64) -> Result<()> {
    let own = me.share(0..SIZE);
    let (first, count) = (own.start, own.len());
    let edges = Edges { rows: me.symmetric(4 * SIZE)?, flags: me.symmetric(2)? };
    let above = me.id().number().checked_sub(1).map(WorkerId::new);
    let below = Some(me.id().number() + 1).filter(|number| *number < me.worker_count()).map(WorkerId::new);
    // This worker's rows, between a row of each neighbor.
    let cold = || {
        let mut rows: Vec<Row> = vec![[0.0; SIZE]; count + 2];
        if above.is_none() {
            rows[1] = [HOT; SIZE];
        }
        rows
    };
    let (mut now, mut next) = (cold(), cold());
    // Temperatures that cells keep. Readers may change them.
    let mut sources: Vec<Row> = vec![[0.0; SIZE]; count];
    let place = |name| me.view::<f64>(name).shape([count, SIZE]).part_of([SIZE, SIZE], [first, 0]).units("K");
    let heat = place("temperature").kind(Kind::Image).open()?;
    let source = place("source").kind(Kind::Image).writable().open()?;
    let rate = me.parameter("rate", 1.0, 0.0..=1.0)?;
    let mean = me.gauge("mean")?;
    let is_reset = Rc::new(Cell::new(false));
    let reset = is_reset.clone();
    let _reset = me.action("reset", move |_| {
        reset.set(true);
        Ok(())
    })?;
    for step in 1..=steps {
        let rate = rate.get();
        for (neighbor, side, row) in [(above, 1, 1), (below, 0, count)] {
            neighbor.map_or(Ok(()), |neighbor| edges.send(me, neighbor, side, step, &now[row]))?;
        }
        for (neighbor, side, row) in [(above, 0, 0), (below, 1, count + 1)] {
            neighbor.map_or(Ok(()), |_| edges.receive(me, side, step, &mut now[row]))?;
        }
        for row in 1..=count {
            // The first and the last row of the plate keep their values.
            if (1..SIZE - 1).contains(&(first + row - 1)) {
                next[row] = compute(&now[row - 1], &now[row], &now[row + 1], &sources[row - 1], rate);
            }
        }
        std::mem::swap(&mut now, &mut next);
        heat.publish(step, cast_slice(&now[1..=count]))?;
        source.publish_mut(step, cast_slice_mut(&mut sources))?;
        if step.is_multiple_of(100) {
            let sum: f64 = now[1..=count].iter().flatten().sum();
            mean.set(sum / (count * SIZE) as f64);
        }
        if is_reset.take() {
            (now, next) = (cold(), cold());
        }
    }
    me.barrier()
}

fn main() -> Result<()> {
    let steps = std::env::args().nth(1).map_or(Ok(u64::MAX - 1), |text| text.parse());
    let steps = steps.expect("the argument is a number of steps");
    farside::job().processes(2).run(|me: &Worker| run(me, steps))
}
