//! Sorting a matrix into upper triangular form (bale's *toposort*). The matrix is an upper
//! triangular one with ones on its diagonal, whose rows and columns were permuted.
//!
//! A row with one column left is a *pivot*: the two go to the last free place of the result, and
//! the column is taken away from all rows, which may make these pivots. For each row the number of
//! columns left and their sum are enough: the sum of one column is that column.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use farside::Distribution;
use farside::prelude::*;
use farside_containers::{Exchange, Items};

use super::common::{Clock, Shuffle, owned, place};
use super::matrix::{GlobalRows, Rows, distribute, random_row};

/// A matrix and its transpose.
struct Matrix {
    size: u32,
    rows: Rows,
    columns: Rows,
}

impl Matrix {
    /// Makes a matrix with this number of rows for each worker, and of ones in each row.
    /// Collective.
    fn new(me: &Worker, seed: u32, [rows, ones]: [u32; 2]) -> farside::Result<Self> {
        assert!(ones > 0, "each row has a one on the diagonal");
        let size = rows * me.worker_count();
        let (of_rows, of_columns) = (Shuffle::new(size, seed), Shuffle::new(size, !seed));
        // The rows of a lower triangular matrix, turned by half a turn.
        let pairs = owned(me, size).flat_map(|row| {
            let columns = random_row(seed, row, size, ones - 1).chain([row]);
            columns.map(move |column| (of_rows.at(size - 1 - row), of_columns.at(size - 1 - column)))
        });
        let pairs: Vec<_> = pairs.collect();
        let rows = distribute(me, size, pairs.iter().copied())?;
        let columns = distribute(me, size, pairs.iter().map(|(row, column)| (*column, *row)))?;
        Ok(Self { size, rows, columns })
    }

    /// Checks that the places of the rows and columns of each worker are permutations, and that
    /// they make the matrix upper triangular.
    fn check(&self, me: &Worker, row_places: &[u32], column_places: &[u32]) -> farside::Result<()> {
        let all_column_places = me.global_array_as::<u32>(self.size as usize, Distribution::CYCLIC)?;
        all_column_places.local(me).write(0, column_places);
        let seen = me.global_array::<u32>(self.size as usize)?;
        for (row_place, column_place) in row_places.iter().zip(column_places) {
            seen.at(*row_place as usize)?.fetch_add(me, 1)?;
            seen.at(*column_place as usize)?.fetch_add(me, 1 << 16)?;
        }
        me.barrier()?;
        assert!(seen.local(me).iter().all(|times| times == 1 << 16 | 1), "every place is used once");
        for (place, row) in row_places.iter().zip(self.rows.iter()) {
            for column in row {
                assert!(*place <= all_column_places.get(me, *column as usize)?, "a one below the diagonal");
            }
        }
        seen.free(me)?;
        all_column_places.free(me)
    }
}

/// One word at a time. A worker that takes the last but one column from a row goes on with that
/// row.
pub(crate) fn agp(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    const ONE: u64 = 1 << 40;
    let matrix = Matrix::new(me, clock.settings.seed, numbers)?;
    let columns = GlobalRows::new(me, &matrix.columns)?;
    let array = || me.global_array_as::<u32>(matrix.size as usize, Distribution::CYCLIC);
    let (row_places, column_places, pivots) = (array()?, array()?, me.global_array::<u32>(1)?);
    // The number of columns left in each row, above 40 bits for their sum.
    let left = me.global_array_as::<u64>(matrix.size as usize, Distribution::CYCLIC)?;
    let work = |_| {
        let mut ready = Vec::new();
        for (place, (row, columns)) in owned(me, matrix.size).zip(matrix.rows.iter()).enumerate() {
            left.local(me).set(place, columns.iter().map(|column| ONE + u64::from(*column)).sum());
            ready.extend((columns.len() == 1).then(|| (row, columns[0])));
        }
        pivots.local(me).fill(0);
        me.barrier()?;
        while let Some((row, column)) = ready.pop() {
            let place = matrix.size - 1 - pivots.at(0)?.fetch_add(me, 1)?;
            row_places.put(me, row as usize, place)?;
            column_places.put(me, column as usize, place)?;
            let taken = ONE + u64::from(column);
            for row in columns.row(me, column)? {
                let row = row?;
                let left = left.at(row as usize)?.fetch_add(me, taken.wrapping_neg())? - taken;
                ready.extend((left / ONE == 1).then_some((row, (left % ONE) as u32)));
            }
        }
        me.barrier()?;
        Ok(numbers[0].into())
    };
    let check = |_| {
        matrix.check(me, &row_places.local(me).to_vec(), &column_places.local(me).to_vec())?;
        // The next round must place all of them.
        row_places.local(me).fill(0);
        column_places.local(me).fill(0);
        Ok(())
    };
    clock.time(me, work, check)?;
    row_places.free(me)?;
    column_places.free(me)?;
    pivots.free(me)?;
    left.free(me)?;
    columns.free(me)
}

/// The rest of a row: the number of columns, their sum, and the level of the row. A pivot is
/// one level above the pivots that took columns from its row, and so goes to a place before theirs.
#[derive(Clone, Copy)]
struct Left {
    columns: u32,
    sum: u32,
    level: u32,
}

/// With exchanges: the owner of a pivot's row tells the owner of its column, which tells the owners
/// of all rows with that column. No worker waits for a level to end.
pub(crate) fn exchange(me: &Worker, numbers: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let matrix = Rc::new(Matrix::new(me, clock.settings.seed, numbers)?);
    let left = Rc::new(RefCell::new(Vec::<Left>::new()));
    // The place of the row at its owner, the column and the level.
    let pivots = Rc::new(RefCell::new(Vec::<(u32, u32, u32)>::new()));
    let column_places = Rc::new(RefCell::new(vec![0; numbers[0] as usize]));

    let column_owners: Rc<OnceCell<Exchange<(u32, u32)>>> = Rc::default();
    let (rows_left, found, next) = (left.clone(), pivots.clone(), column_owners.clone());
    let row_owners = clock.exchange(me, move |me, taken: Items<'_, (u32, u32, u32)>| {
        let (mut rows, mut pivots) = (rows_left.borrow_mut(), found.borrow_mut());
        let sender = next.get().expect("it was made before the first pivot").on(me);
        for (row, column, level) in taken {
            let left = &mut rows[row as usize];
            let level = left.level.max(level + 1);
            *left = Left { columns: left.columns - 1, sum: left.sum.wrapping_sub(column), level };
            if left.columns == 1 {
                pivots.push((row, left.sum, level));
                let (owner, column) = place(me, left.sum);
                // In a handler a push keeps what it cannot send.
                let _ = sender.push(owner, (column, level));
            }
        }
    })?;
    let columns = matrix.clone();
    let of_columns = clock.exchange(me, move |me, pivots: Items<'_, (u32, u32)>| {
        let sender = row_owners.on(me);
        for (at, level) in pivots {
            let column = at * me.worker_count() + me.id().number();
            for row in columns.columns.row(at) {
                let (owner, row) = place(me, *row);
                let _ = sender.push(owner, (row, column, level));
            }
        }
    })?;
    column_owners.set(of_columns).expect("it is set once");
    let placed = column_places.clone();
    let placing = clock.exchange(me, move |_, columns: Items<'_, (u32, u32)>| {
        let mut placed = placed.borrow_mut();
        columns.for_each(|(column, place)| placed[column as usize] = place);
    })?;

    let row_places = RefCell::new(vec![0; numbers[0] as usize]);
    let work = |_| {
        let all = |row: &[u32]| row.iter().fold(0, |sum: u32, column| sum.wrapping_add(*column));
        let rows = matrix.rows.iter().map(|row| Left { columns: row.len() as u32, sum: all(row), level: 0 });
        let rows: Vec<_> = rows.collect();
        let ready = (0..).zip(&rows).filter(|(_, left)| left.columns == 1);
        let ready: Vec<(u32, u32, u32)> = ready.map(|(row, left)| (row, left.sum, 0)).collect();
        *left.borrow_mut() = rows;
        *pivots.borrow_mut() = ready.clone();
        me.barrier()?;
        let sender = of_columns.on(me);
        for (_, column, level) in ready {
            let (owner, column) = place(me, column);
            sender.push(owner, (column, level))?;
        }
        me.quiesce()?;
        // Pivots of a lower level go to later places.
        let pivots = pivots.borrow();
        let sender = placing.on(me);
        let mut next = first_of_levels(me, pivots.iter().map(|(.., level)| *level))?;
        for (row, column, level) in &*pivots {
            let place_of_both = matrix.size - 1 - next[*level as usize];
            next[*level as usize] += 1;
            row_places.borrow_mut()[*row as usize] = place_of_both;
            let (owner, column) = place(me, *column);
            sender.push(owner, (column, place_of_both))?;
        }
        me.quiesce()?;
        Ok(numbers[0].into())
    };
    let check = |_| {
        matrix.check(me, &row_places.borrow(), &column_places.borrow())?;
        row_places.borrow_mut().fill(0);
        column_places.borrow_mut().fill(0);
        Ok(())
    };
    clock.time(me, work, check)
}

/// For each level, the number of pivots of lower levels, and of this level on the workers before.
fn first_of_levels(me: &Worker, levels: impl Iterator<Item = u32>) -> farside::Result<Vec<u32>> {
    let mut counts = Vec::new();
    for level in levels {
        counts.resize(counts.len().max(level as usize + 1), 0);
        counts[level as usize] += 1;
    }
    let of_all = me.all_reduce(vec![(me.id(), counts)], |a, b| [a, b].concat())?;
    let deepest = of_all.iter().map(|(_, counts)| counts.len()).max().unwrap_or_default();
    let sum = |level: usize, counted: &dyn Fn(WorkerId) -> bool| -> u32 {
        let counts = of_all.iter().filter(|(worker, _)| counted(*worker));
        counts.filter_map(|(_, counts)| counts.get(level)).sum()
    };
    let mut lower = 0;
    let first = |level| {
        let first = lower + sum(level, &|worker| worker < me.id());
        lower += sum(level, &|_| true);
        first
    };
    Ok((0..deepest).map(first).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_places_are_found() {
        // The one next to the diagonal is in row 0, so this row has the first place.
        let rows = || Rows::from_rows([vec![0, 1], vec![1]].into_iter().map(Vec::into_iter));
        let check = |row_places: [u32; 2], column_places: [u32; 2]| {
            farside::simulate(1, 1, 1, move |me| {
                let matrix = Matrix { size: 2, rows: rows(), columns: rows() };
                matrix.check(me, &row_places, &column_places)
            })
        };
        check([0, 1], [0, 1]).unwrap();
        for (places, why) in [(([1, 0], [1, 0]), "below the diagonal"), (([0, 0], [0, 1]), "used once")] {
            let error = check(places.0, places.1).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
