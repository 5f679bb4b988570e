//! Sparse matrices of zeros and ones, whose rows go round robin over the workers.
#![allow(dead_code, reason = "no workload uses all of it")]

use std::cell::RefCell;
use std::rc::Rc;

use farside::global::GlobalArray;
use farside::prelude::*;
use farside_containers::{Exchange, Items};

use super::common::{Random, owned, place};

/// The rows of one worker: the columns of the ones of each row.
pub(crate) struct Rows {
    starts: Vec<u32>,
    columns: Vec<u32>,
}

impl Rows {
    /// Returns `rows` rows with ones at these pairs of row and column. The columns of a row keep
    /// the order of the pairs.
    pub(crate) fn new(rows: usize, ones: &[(u32, u32)]) -> Self {
        let mut starts = vec![0; rows + 1];
        ones.iter().for_each(|(row, _)| starts[*row as usize + 1] += 1);
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let (mut next, mut columns) = (starts.clone(), vec![0; ones.len()]);
        for (row, column) in ones {
            let at = &mut next[*row as usize];
            columns[*at as usize] = *column;
            *at += 1;
        }
        Self { starts, columns }
    }

    /// Returns rows with these columns.
    pub(crate) fn from_rows<R: Iterator<Item = u32>>(rows: impl Iterator<Item = R>) -> Self {
        let (mut starts, mut columns) = (vec![0], Vec::new());
        for row in rows {
            columns.extend(row);
            starts.push(columns.len() as u32);
        }
        Self { starts, columns }
    }

    /// The columns of the ones of a row.
    #[inline]
    pub(crate) fn row(&self, row: u32) -> &[u32] {
        &self.columns[self.starts[row as usize] as usize..self.starts[row as usize + 1] as usize]
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// All rows.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|ends| &self.columns[ends[0] as usize..ends[1] as usize])
    }
}

/// Sends the ones of a matrix of `rows` rows, at pairs of row and column, to the owners of the
/// rows.
pub(crate) fn distribute(me: &Worker, rows: u32, ones: impl Iterator<Item = (u32, u32)>) -> farside::Result<Rows> {
    let part = Rc::new(RefCell::new(Vec::new()));
    let arrived = part.clone();
    let exchange = Exchange::new(me, move |_, ones: Items<'_, (u32, u32)>| arrived.borrow_mut().extend(ones))?;
    let sender = exchange.on(me);
    for (row, column) in ones {
        let (owner, row) = place(me, row);
        sender.push(owner, (row, column))?;
    }
    me.quiesce()?;
    Ok(Rows::new(owned(me, rows).len(), &part.take()))
}

/// Rows that every worker can read one word at a time.
pub(crate) struct GlobalRows {
    starts: GlobalArray<u32>,
    columns: GlobalArray<u32>,
    /// The words of each worker.
    stride: [usize; 2],
}

impl GlobalRows {
    /// Copies the rows of all workers into global memory. Collective.
    pub(crate) fn new(me: &Worker, rows: &Rows) -> farside::Result<Self> {
        let words = [rows.starts.len(), rows.columns.len()];
        let stride = me.all_reduce(words, |a, b| [a[0].max(b[0]), a[1].max(b[1])])?;
        let workers = me.worker_count() as usize;
        let starts = me.global_array::<u32>(stride[0] * workers)?;
        let columns = me.global_array::<u32>(stride[1].max(1) * workers)?;
        starts.local(me).part(0..words[0]).write(0, &rows.starts);
        columns.local(me).part(0..words[1]).write(0, &rows.columns);
        me.barrier()?;
        Ok(Self { starts, columns, stride })
    }

    /// Reads the columns of the ones of a row, one at a time.
    pub(crate) fn row<'a>(
        &'a self,
        me: &'a Worker,
        row: u32,
    ) -> farside::Result<impl Iterator<Item = farside::Result<u32>> + 'a> {
        let (owner, row) = place(me, row);
        let start = owner.index() * self.stride[0] + row as usize;
        let ends = [self.starts.get(me, start)?, self.starts.get(me, start + 1)?];
        let first = owner.index() * self.stride[1].max(1);
        Ok((ends[0]..ends[1]).map(move |at| self.columns.get(me, first + at as usize)))
    }

    /// Frees the memory. Collective.
    pub(crate) fn free(self, me: &Worker) -> farside::Result<()> {
        self.starts.free(me)?;
        self.columns.free(me)
    }
}

/// The ones of a row of a random matrix below its diagonal, in order. Each place has a one with the
/// same probability, and the `rows` rows have `ones` of them on average.
pub(crate) fn random_row(seed: u32, row: u32, rows: u32, ones: u32) -> impl Iterator<Item = u32> {
    let share = (2.0 * f64::from(ones) / f64::from(rows)).min(0.5);
    let mut random = Random::new(seed, row);
    // The distance to the next one.
    let mut distance = move || (random.unit().ln() / (1.0 - share).ln()) as u32;
    let mut next = distance();
    std::iter::from_fn(move || {
        let column = next;
        next = column.saturating_add(1).saturating_add(distance());
        (column < row && ones > 0).then_some(column)
    })
}
