//! [`room_error!`]: the conversions of the error of a module.

/// Implements the conversions of a room's error, which has a variant `Job` for an [`Error`].
///
/// The error converts into [`Error`]: the error inside `Job` becomes itself again, and all others
/// become [`Error::Room`]. Errors of the fabric and refused calls convert into the room's error.
macro_rules! room_error {
    ($room:ident) => {
        impl From<$room> for farside::Error {
            fn from(error: $room) -> Self {
                match error {
                    $room::Job(error) => error,
                    error => Self::Room(Box::new(error)),
                }
            }
        }

        impl From<farside::FabricError> for $room {
            fn from(error: farside::FabricError) -> Self {
                Self::Job(error.into())
            }
        }

        impl<A, E: Into<$room>> From<farside::Refused<A, E>> for $room {
            fn from(refused: farside::Refused<A, E>) -> Self {
                refused.error.into()
            }
        }
    };
}
pub(crate) use room_error;
