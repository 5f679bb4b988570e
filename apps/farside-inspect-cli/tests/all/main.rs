//! The tests of the program of `farside inspect` and `farside top`, which they start.

mod browser;
mod inspect;
mod missing;
mod python;
mod steering;
mod top;
mod watching;
