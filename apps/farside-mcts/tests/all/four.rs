//! Four in a row, against games played cell by cell.

mod oracle;
mod playouts;
mod rules;
mod solving;
