//! [`Attachment`]: values with a part that travels separately from the bytes.

use crate::{Decoder, Encoder, Schema, WireError};

/// A value that travels between programs alone, and never within a job. The resource that it stands
/// for goes [next to](Encoder::attach) the bytes, and becomes usable by the
/// [context](Decoder::context) at the receiver.
///
/// [`crate::travels_attached!`] makes such a type [`Wire`](trait@crate::Wire) without
/// unsafe code. The functions are those of `Wire`, which names them.
pub trait Attachment: Sized + Send + 'static {
    /// See [`Wire::describe`](crate::Wire::describe).
    fn describe(schema: &mut Schema);

    /// See [`Wire::encode`](crate::Wire::encode).
    fn encode(&self, out: &mut Encoder);

    /// See [`Wire::decode`](crate::Wire::decode).
    ///
    /// # Errors
    /// [`WireError`] if the bytes are not a value of the type.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError>;
}

/// Implements [`Wire`](trait@crate::Wire) for a type that implements [`Attachment`].
///
/// ```
/// use farside_wire::{Attachment, Decoder, Encoder, Schema, Wire, WireError, decode, encode};
///
/// /// A number of the sender.
/// struct Ticket(u32);
///
/// impl Attachment for Ticket {
///     fn describe(schema: &mut Schema) {
///         schema.word("Ticket");
///     }
///
///     fn encode(&self, out: &mut Encoder) {
///         self.0.encode(out);
///     }
///
///     fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
///         Ok(Self(u32::decode(input)?))
///     }
/// }
///
/// farside_wire::travels_attached!([] Ticket);
///
/// let bytes = encode(&Ticket(7), Vec::new());
/// assert_eq!(decode::<Ticket>(Decoder::new(&bytes), 0)?.0, 7);
/// # Ok::<(), WireError>(())
/// ```
#[macro_export]
macro_rules! travels_attached {
    ([$($parameters:tt)*] $type:ty) => {
        // SAFETY: (1) no process makes a value of what `write` wrote; (2) `wire_bytes` and `write`
        // are those of one byte; (3) the destructor of `Self` runs in `write`; (4) `read` consumes
        // nothing, and fails; (6) one byte is written.
        unsafe impl<$($parameters)*> $crate::Wire for $type {
            const PLAIN: bool = false;

            fn wire_bytes(&self) -> usize {
                1
            }

            unsafe fn write(self, out: *mut u8) {
                // SAFETY: the caller passes room for `wire_bytes`.
                unsafe { $crate::Wire::write(0_u8, out) };
            }

            unsafe fn read(_: &mut $crate::Reader<'_>) -> ::core::result::Result<Self, $crate::WireError> {
                ::core::result::Result::Err($crate::WireError::outside_a_job::<Self>())
            }

            fn describe(schema: &mut $crate::Schema) {
                <Self as $crate::Attachment>::describe(schema);
            }

            fn encode(&self, out: &mut $crate::Encoder) {
                <Self as $crate::Attachment>::encode(self, out);
            }

            fn decode(input: &mut $crate::Decoder<'_>) -> ::core::result::Result<Self, $crate::WireError> {
                <Self as $crate::Attachment>::decode(input)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{Attachment, Decoder, Encoder, Schema, WireError, from_bytes, to_bytes};

    struct Nothing;

    impl Attachment for Nothing {
        fn describe(schema: &mut Schema) {
            schema.word("Nothing");
        }

        fn encode(&self, _: &mut Encoder) {}

        fn decode(_: &mut Decoder<'_>) -> Result<Self, WireError> {
            Ok(Self)
        }
    }

    travels_attached!([] Nothing);

    #[test]
    fn no_process_of_a_job_gets_such_a_value() {
        let bytes = to_bytes(Nothing);
        assert_eq!(bytes.len(), 1);
        // SAFETY: nothing plain is read.
        assert!(unsafe { from_bytes::<Nothing>(&bytes) }.is_err());
        assert_eq!(Schema::text_of::<Nothing>(), "Nothing");
    }
}
