//! Types that contain themselves.

use std::cell::OnceCell;
use std::rc::{Rc, Weak};

use super::{Type, Words};

/// A recursive type. It is empty while its description is read.
#[derive(Clone, Debug)]
pub(crate) struct Recursive(Rc<OnceCell<Type>>);

/// A recursive type where it occurs again. It is there as long as the first occurrence.
#[derive(Debug)]
pub(crate) struct Again(Weak<OnceCell<Type>>);

impl Recursive {
    pub(super) fn get(&self) -> Option<&Type> {
        self.0.get()
    }
}

impl Again {
    pub(super) fn first(&self) -> Option<Recursive> {
        self.0.upgrade().map(Recursive)
    }
}

impl Words<'_> {
    /// Reads the rest of a recursive type.
    pub(super) fn a_recursive_type(&mut self, depth: u32) -> Result<Type, String> {
        let recursive = Recursive(Rc::default());
        self.recursive.push(recursive.clone());
        let inner = self.a_type(depth + 1)?;
        self.expect("}rec")?;
        if let Type::Again(_) = inner {
            return Err("the description of the types has a type that is nothing but itself".into());
        }
        // The cell was made here, and is filled nowhere else.
        let _ = recursive.0.set(inner);
        Ok(Type::Recursive(recursive))
    }

    /// Returns the recursive type after which this number of others began.
    pub(super) fn again(&self, word: &str) -> Result<Type, String> {
        let later = word.get(1..).and_then(|later| later.parse::<usize>().ok());
        let place = later.and_then(|later| self.recursive.len().checked_sub(later)?.checked_sub(1));
        let place = place.ok_or_else(|| format!("the description of the types has {word:?} where no type began"))?;
        Ok(Type::Again(Again(Rc::downgrade(&self.recursive[place].0))))
    }
}

impl Type {
    /// Calls a function with the type itself, wherever it is described.
    ///
    /// No recursive type is described as nothing but another one, so this comes to an end.
    pub(super) fn resolved<R>(&self, then: impl FnOnce(&Self) -> R) -> R {
        let first;
        let recursive = match self {
            Self::Recursive(recursive) => recursive,
            Self::Again(again) => {
                first = again.first();
                match &first {
                    Some(recursive) => recursive,
                    // The first occurrence lives as long as this one.
                    None => return then(&Self::Unit),
                }
            }
            ty => return then(ty),
        };
        // It is described to its end before a value is read.
        recursive.get().unwrap_or(&Self::Unit).resolved(then)
    }
}
