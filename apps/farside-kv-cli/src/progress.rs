//! A progress bar of a transfer, on the terminal.

use std::cell::OnceCell;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A value of fewer bytes has no bar.
const BYTES_MIN: u64 = 8 << 20;

/// The bar; none if the standard error is not a terminal. It goes when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Progress(OnceCell<Option<ProgressBar>>);

impl Progress {
    /// Shows how many bytes are done, of how many if that is known.
    pub(super) fn show(&self, done: u64, of: Option<u64>) {
        if of.unwrap_or(done) < BYTES_MIN {
            return;
        }
        let bar = self.0.get_or_init(|| {
            std::io::stderr().is_terminal().then(|| match of {
                Some(of) => bar(ProgressBar::new(of), "{bar:40} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}"),
                None => bar(ProgressBar::no_length(), "{bytes}  {bytes_per_sec}"),
            })
        });
        if let Some(bar) = bar {
            bar.set_position(done);
        }
    }
}

fn bar(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(Some(bar)) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}
