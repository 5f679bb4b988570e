//! [`Encoded`]: calls by a program that does not know the types.

use std::fmt;
use std::sync::Arc;

use farside_connect::attachments::{Area, Received, attached};
use farside_wire::{Attachment, Decoder, Encoder, Schema, WireError, travels_attached};

use super::{Client, Procedure, Signature, Stub};
use crate::bulk::{Access, Bulk};
use crate::error::{CallError, Never};
use crate::stream::Incoming;

/// A value that is encoded already, for tools that know types only as text. The encoding is that of
/// [`wire::encode`](crate::wire::encode).
///
/// ```
/// use farside_rpc::{Client, Credentials, Encoded, Handling, Never, Server, Service, wire};
///
/// let name = format!("shm:encoded-{}", std::process::id());
/// let double = |_: &_, number: u32| Ok::<_, Never>(2 * number);
/// let service = Service::new("arithmetic").procedure("double", Handling::Pooled, double);
/// let server = Server::builder().listen(&name)?.provider(0, service).start()?;
///
/// let client = Client::connect(&name, Credentials::own_user())?;
/// let described = client.describe()?;
/// let (procedure, types) = &described[0].procedures[0];
/// assert_eq!(types, "u32 -> u32 ! enum 0");
/// let double = client.encoded_procedure("arithmetic", 0, procedure, types);
/// let result = double.call(&Encoded::new(wire::encode(&21_u32, Vec::new())))?;
/// assert_eq!(result.bytes(), wire::encode(&42_u32, Vec::new()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Encoded {
    bytes: Vec<u8>,
    memory: Vec<Arc<Area>>,
    items: Option<EncodedItems>,
}

impl Encoded {
    /// A value of these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Adds memory. In the bytes, a [`Bulk`] is the number of its memory as `u32`, counted from 0
    /// in the order of these calls.
    #[must_use]
    pub fn with<A: Access>(mut self, memory: &Bulk<A>) -> Self {
        let mut encoder = Encoder::default();
        memory.encode(&mut encoder);
        self.memory.extend(attached(encoder.into_parts().1));
        self
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The stream that belongs to this result. In the bytes, a [`Stream`](crate::Stream) is a
    /// `u32`.
    pub fn into_items(self) -> Option<EncodedItems> {
        self.items
    }
}

/// The items of a stream, as many at a time as arrived together: their number, and their encodings
/// one after the other. Dropping it cancels the call. An error is the last thing that it returns.
#[must_use = "dropping a stream cancels its call"]
pub struct EncodedItems(Option<Box<Incoming>>);

impl Iterator for EncodedItems {
    type Item = Result<(u64, Vec<u8>), CallError<Never>>;

    fn next(&mut self) -> Option<Self::Item> {
        let items = self.0.as_mut()?.next_encoded().transpose();
        if !matches!(items, Some(Ok(_))) {
            self.0 = None;
        }
        items
    }
}

impl fmt::Debug for EncodedItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedItems").finish_non_exhaustive()
    }
}

impl fmt::Display for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an encoded value of {} bytes", self.bytes.len())
    }
}

impl Attachment for Encoded {
    fn describe(schema: &mut Schema) {
        schema.not_portable::<Self>();
    }

    fn encode(&self, out: &mut Encoder) {
        out.bytes(&self.bytes);
        for area in &self.memory {
            out.attach(Box::new(area.clone()));
        }
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        let received: Option<&Received> = input.context();
        let items = received.and_then(Incoming::of).map(|incoming| EncodedItems(Some(incoming)));
        Ok(Self { items, ..Self::new(input.take::<Self>(input.remaining())?.to_vec()) })
    }
}

travels_attached!([] Encoded);

impl Client {
    /// The procedure `name` of a service, whose types are given as text in the form of
    /// [`describe`](Self::describe). The server refuses the call if its types are others.
    #[must_use]
    pub fn encoded_procedure(
        &self,
        service: &str,
        provider: u16,
        name: &str,
        types: &str,
    ) -> Procedure<Encoded, Encoded, Encoded> {
        let signature = Signature::new(service).procedure_of(name, types);
        Procedure::new(Stub::new(self.clone(), Arc::new(signature), provider))
    }
}
