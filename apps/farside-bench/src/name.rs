//! Names of what to measure: `copy`, or `copy/private-put` for those cases of `copy` whose names
//! begin with `private-put`.

use crate::BenchError;
use crate::case::Case;

/// A bench, and the beginning of the names of its selected cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'n> {
    pub(crate) bench: &'n str,
    begin: Option<&'n str>,
}

impl<'n> Name<'n> {
    pub(crate) fn of(text: &'n str) -> Self {
        match text.split_once('/') {
            Some((bench, begin)) => Self { bench, begin: Some(begin) },
            None => Self { bench: text, begin: None },
        }
    }

    /// Returns whether the name selects this case of the bench.
    pub(crate) fn wants(self, case: &str) -> bool {
        self.begin.is_none_or(|begin| case.starts_with(begin))
    }

    /// The error for a bench that has only these cases, none of them selected.
    pub(crate) fn unknown_case(self, known: &[String]) -> BenchError {
        let (bench, begin) = (self.bench.into(), self.begin.unwrap_or_default().into());
        BenchError::NoSuchCase { bench, begin, known: known.join(", ") }
    }

    /// Selects the cases of the bench.
    ///
    /// # Errors
    /// [`BenchError::NoSuchCase`] if none is selected.
    pub(crate) fn choose(self, mut cases: Vec<Case>) -> Result<Vec<Case>, BenchError> {
        let known: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        cases.retain(|case| self.wants(&case.name));
        if cases.is_empty() { Err(self.unknown_case(&known)) } else { Ok(cases) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str) -> Result<Vec<String>, BenchError> {
        let cases = ["put/8B", "put/1KiB", "get/8B"].map(|case| Case::here(case, |_| Ok(Vec::new())));
        Ok(Name::of(name).choose(cases.into())?.into_iter().map(|case| case.name).collect())
    }

    #[test]
    fn cases_are_chosen_by_how_they_begin() {
        assert_eq!(chosen("copy").unwrap().len(), 3);
        assert_eq!(chosen("copy/").unwrap().len(), 3);
        assert_eq!(chosen("copy/put").unwrap(), ["put/8B", "put/1KiB"]);
        assert_eq!(chosen("copy/put/8B").unwrap(), ["put/8B"]);
        assert_eq!(Name::of("copy/put/8B").bench, "copy");
        let error = chosen("copy/swap").unwrap_err().to_string();
        assert!(error.contains("copy") && error.contains("swap") && error.contains("get/8B"), "{error}");
    }
}
