//! [`Function`]: a function that travels as an argument.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::with_exposed_provenance;

use crate::error::Result;
use crate::runtime::worker::Worker;
use crate::wire::{self, Wire};

/// A function that captures nothing and travels as an argument of a call, to be applied to a value
/// at the receiver. Libraries need it to run their users' functions.
///
/// ```
/// use farside::Function;
///
/// # farside::simulate(2, 1, 1, |me| {
/// let add = Function::new(me, |value: &mut u64, by: u64| {
///     *value += by;
///     *value
/// })?;
/// let sum = me.call_return(me.neighbor(1), add, |there, add| add.run(there, &mut 40, 2))?;
/// assert_eq!(sum.wait()?, 42);
/// # me.barrier()
/// # }).unwrap();
/// ```
///
/// It travels only among processes of one binary. *Cost*: four bytes, and at the receiver a search
/// for the beginning of the function, or a comparison if the worker ran the same function last.
pub struct Function<T, A, R> {
    /// The offset of the function in the program's text.
    offset: u32,
    types: PhantomData<fn(&mut T, A) -> R>,
}

impl<T, A, R> Function<T, A, R> {
    /// Names a function.
    ///
    /// # Errors
    /// [`Error::ForeignFunction`](crate::Error::ForeignFunction) if it is not part of the main
    /// program.
    #[inline]
    pub fn new(me: &Worker, function: fn(&mut T, A) -> R) -> Result<Self> {
        let offset = me.table().offset_of(function as usize)?;
        Ok(Self { offset, types: PhantomData })
    }

    /// Runs the function here.
    #[inline]
    pub fn run(self, me: &Worker, value: &mut T, arguments: A) -> R {
        let address = me.function_at(self.offset).expect("a function begins where one was named in the same binary");
        let address = with_exposed_provenance::<()>(address);
        // SAFETY: `new` made the offset from a pointer of this very type, and the value reached
        // this worker only as it was: it has no safe constructor but `new`, and plain values travel
        // only among processes of the same binary, as `Wire::read` demands. So the function with
        // this type begins at the address.
        let function = unsafe { std::mem::transmute::<*const (), fn(&mut T, A) -> R>(address) };
        function(value, arguments)
    }
}

// SAFETY: (1) an offset into the program's text, which is the same in all processes of a binary;
// (2, 4, 5) it is copied whole; (3) there is no destructor. It is not portable, so no bytes of
// another binary become one.
unsafe impl<T: 'static, A: 'static, R: 'static> Wire for Function<T, A, R> {
    wire::plain_whole!();
}

impl<T, A, R> Clone for Function<T, A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, A, R> Copy for Function<T, A, R> {}

impl<T, A, R> fmt::Debug for Function<T, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Function").field(&format_args!("{:#x}", self.offset)).finish()
    }
}
