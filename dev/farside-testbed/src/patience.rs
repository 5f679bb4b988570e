//! The only clock of the tests: how long they wait, and how deep they look.
//!
//! A test waits for a condition by [`wait_until`] or [`wait_for`], and gives [`limit`] to whatever
//! takes a time limit that must not pass. Its verdict then does not depend on how soon the
//! scheduler runs its threads. `cargo xtask tidy` refuses any other clock in a test, except in
//! modules that are named `timing`: these belong to the deep tier and run alone.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The variable that scales the work of tests with many seeds, rounds or orders.
pub const DEPTH: &str = "FARSIDE_TEST_DEPTH";

/// Time limit of a wait on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Longest time limit of a wait, on a machine of any load.
const LIMIT_MAX: Duration = Duration::from_secs(600);

/// The time until [`soon`].
const SOON: Duration = Duration::from_millis(10);

/// Interval at which a waiting test looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Returns the time limit of every wait in a test: 2 minutes, times the number of runnable tasks
/// for each processor, and 10 minutes at most.
///
/// A test that passes never waits so long. The limit only ends a test that hangs.
pub fn limit() -> Duration {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    LIMIT.mul_f64((load() / processors as f64).max(1.0)).min(LIMIT_MAX)
}

/// Returns the moment at which a wait that begins now has taken [`limit`].
pub fn deadline() -> Instant {
    Instant::now() + limit()
}

/// Returns whether a deadline has passed: for loops that must not pause between two looks.
pub fn is_past(deadline: Instant) -> bool {
    deadline <= now()
}

/// Returns the current moment: for a wait that looks only once, and for a clock that the test turns
/// from there on. No verdict may compare two of them.
pub fn now() -> Instant {
    Instant::now()
}

/// Returns a moment 10 ms from now: for a deadline that must pass, and for a thread that looks at
/// its stop flag between two waits.
pub fn soon() -> Instant {
    now() + SOON
}

/// The average number of runnable tasks during the last minute, or 0 if the system does not tell.
fn load() -> f64 {
    let average = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    average.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Waits until a condition holds.
///
/// # Panics
/// The condition does not hold within [`limit`]. The message contains `what`.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Waits until a look returns a value, and returns it.
///
/// # Panics
/// No look returns a value within [`limit`]. The message contains `what`.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = deadline();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(!is_past(deadline), "still waiting after {} s: {what}", limit().as_secs());
        thread::sleep(LOOK_AGAIN);
    }
}

/// Waits as [`wait_for`] does, but looks a thousand times before it sleeps: for what another thread
/// brings in microseconds.
///
/// # Panics
/// No look returns a value within [`limit`]. The message contains `what`.
#[track_caller]
pub fn spin_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1000 {
        if let Some(found) = look() {
            return found;
        }
        thread::yield_now();
    }
    wait_for(what, look)
}

/// Holds a thread for ever: for a process that another one kills, and for a peer that stays silent.
/// The process ends with the process that started it, or when it is killed.
pub fn hold_still() -> ! {
    loop {
        thread::park();
    }
}

/// Returns a number of seeds, rounds or orders, times the depth of this run.
///
/// The depth is 1 in the fast tier. `FARSIDE_TEST_DEPTH` sets another one, which may be a fraction;
/// at least 1 is returned.
pub fn scaled(number: u64) -> u64 {
    ((number as f64 * depth()).round() as u64).max(1)
}

/// Returns the depth of this run.
///
/// # Panics
/// `FARSIDE_TEST_DEPTH` is not a positive number.
pub fn depth() -> f64 {
    let Ok(text) = std::env::var(DEPTH) else { return 1.0 };
    let depth = text.trim().parse().ok().filter(|depth| *depth > 0.0 && f64::is_finite(*depth));
    depth.unwrap_or_else(|| panic!("invalid value {text:?} for {DEPTH}: expected a number above 0, such as 10"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_waited_for() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some(looks)
        };
        assert_eq!(wait_for("the third look", third), 3);
    }

    #[test]
    fn the_limit_is_generous_and_bounded() {
        assert!((LIMIT..=LIMIT_MAX).contains(&limit()));
        assert!(load() >= 0.0);
    }

    #[test]
    fn deadlines_pass() {
        assert!(is_past(now()) && !is_past(deadline()));
        let soon = soon();
        wait_until("a deadline that must pass", || is_past(soon));
    }

    #[test]
    fn numbers_are_scaled() {
        assert_eq!(scaled(0), 1);
        assert!(scaled(100) >= scaled(10));
    }
}
