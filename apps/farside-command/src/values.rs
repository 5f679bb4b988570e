//! Values of options that several programs share.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A text that is not a whole number of at least 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at least one is needed: give a whole number such as 1 or 4")]
pub struct InvalidCount;

/// Reads a whole number of at least 1.
///
/// # Errors
/// [`InvalidCount`].
pub fn at_least_one<T: FromStr + Default + PartialEq>(text: &str) -> Result<T, InvalidCount> {
    text.parse().ok().filter(|count| *count != T::default()).ok_or(InvalidCount)
}

/// A time above zero, given in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Duration);

/// A text that is not a time above zero.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time {0:?}: give seconds above 0, such as 5 or 0.5")]
pub struct InvalidTime(String);

impl FromStr for Seconds {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.filter(|time| !time.is_zero()).map(Self).ok_or_else(|| InvalidTime(text.into()))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_begin_at_one() {
        assert_eq!((at_least_one("1"), at_least_one("4294967295")), (Ok(1_u32), Ok(u32::MAX)));
        for text in ["", "0", "00", "-1", "1.5", "4294967296", "many"] {
            assert_eq!(at_least_one::<u32>(text), Err(InvalidCount), "{text}");
        }
    }

    #[test]
    fn times_are_positive() {
        assert_eq!("0.5".parse(), Ok(Seconds(Duration::from_millis(500))));
        assert_eq!("5".parse(), Ok(Seconds(Duration::from_secs(5))));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "5s", "1e-12"] {
            assert!(text.parse::<Seconds>().is_err(), "{text}");
        }
    }
}
