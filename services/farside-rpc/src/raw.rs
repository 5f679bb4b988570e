//! [`Raw`] and [`RawVec`]: plain values between like machines, as the bytes that they are.

use bytemuck::Pod;
use farside_wire::{Beside, Decoder, Encoder, Schema, Wire, WireError, travels_beside};

/// A plain value that travels as the bytes that it consists of. See [`RawVec`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw<T>(pub T);

/// Plain values that travel as the bytes that they consist of: one copy at each side.
///
/// The usual encoding writes each field by itself, and checks it when it is read. This one saves
/// that for structs. It is for types of which any bytes are a value (`bytemuck::Pod`), so there is
/// nothing to check but the number of bytes. For vectors of numbers, the usual encoding is a copy,
/// too.
///
/// Both sides must lay the type out alike. Byte order, size, alignment and fields are parts of the
/// types that [`describe`](crate::Client::describe) shows. If they differ, the first call fails
/// with [`CallError::Shape`](crate::CallError::Shape), which prints both.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use farside_rpc::{Client, Credentials, Handling, Never, RawVec, Server, Service, Wire};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Wire)]
/// #[wire(crate = "farside_rpc")]
/// #[repr(C)]
/// struct Particle {
///     place: [f32; 3],
///     charge: i32,
/// }
///
/// let name = format!("shm:particles-{}", std::process::id());
/// let turn = |_: &_, RawVec(mut particles): RawVec<Particle>| {
///     particles.iter_mut().for_each(|particle| particle.charge *= -1);
///     Ok::<_, Never>(RawVec(particles))
/// };
/// let service = Service::new("particles").procedure("turn", Handling::Pooled, turn);
/// let server = Server::builder().listen(&name)?.provider(0, service).start()?;
///
/// let client = Client::connect(&name, Credentials::own_user())?;
/// type Particles = RawVec<Particle>;
/// let turn = client.procedure::<Particles, Particles, Never>("particles", 0, "turn");
/// let particle = Particle { place: [0.5; 3], charge: 2 };
/// let RawVec(turned) = turn.call(&RawVec(vec![particle; 1000]))?;
/// assert_eq!(turned, vec![Particle { charge: -2, ..particle }; 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawVec<T>(pub Vec<T>);

/// Describes `described`, which consists of values of type `T`.
fn describe<T, D: Wire>(schema: &mut Schema) {
    schema.word("Raw<");
    schema.word(if cfg!(target_endian = "little") { "little-endian" } else { "big-endian" });
    for (word, number) in [("size", size_of::<T>()), ("align", align_of::<T>())] {
        schema.word(word);
        schema.number(number as u64);
    }
    D::describe(schema);
    schema.word(">");
}

impl<T: Pod + Wire> Beside for Raw<T> {
    fn describe(schema: &mut Schema) {
        describe::<T, T>(schema);
    }

    #[inline]
    fn encode(&self, out: &mut Encoder) {
        out.bytes(bytemuck::bytes_of(&self.0));
    }

    #[inline]
    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        Ok(Self(bytemuck::pod_read_unaligned(input.take::<Self>(size_of::<T>())?)))
    }
}

travels_beside!([T: Pod + Wire] Raw<T>);

impl<T: Pod + Wire> Beside for RawVec<T> {
    fn describe(schema: &mut Schema) {
        describe::<T, Vec<T>>(schema);
    }

    fn encode(&self, out: &mut Encoder) {
        (self.0.len() as u64).encode(out);
        out.bytes(bytemuck::cast_slice(&self.0));
    }

    fn decode(input: &mut Decoder<'_>) -> Result<Self, WireError> {
        let count = u64::decode(input)?;
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size_of::<T>()));
        // A length that is too large finds too few bytes.
        let bytes = input.take::<Self>(bytes.unwrap_or(usize::MAX))?;
        // Values without bytes are all alike, and there are none of them.
        let count = if size_of::<T>() == 0 { 0 } else { count as usize };
        let mut values = vec![T::zeroed(); count];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
        Ok(Self(values))
    }
}

travels_beside!([T: Pod + Wire] RawVec<T>);

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;
    use farside_wire::{decode, encode};

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Wire)]
    #[wire(crate = "farside_wire")]
    #[repr(C)]
    struct Pair {
        number: u32,
        half: [u16; 2],
    }

    #[test]
    fn raw_values_are_their_bytes() {
        let pair = Pair { number: 0x0403_0201, half: [0x0605, 0x0807] };
        let bytes = encode(&Raw(pair), Vec::new());
        assert_eq!(bytes, bytemuck::bytes_of(&pair));
        assert_eq!(decode::<Raw<Pair>>(Decoder::new(&bytes), 0), Ok(Raw(pair)));
        for count in [0, 1, 5] {
            let pairs = RawVec(vec![pair; count]);
            let mut bytes = encode(&pairs, Vec::new());
            assert_eq!(bytes.len(), 8 + 8 * count);
            assert_eq!(decode::<RawVec<Pair>>(Decoder::new(&bytes), 0), Ok(pairs));
            bytes.push(0);
            assert!(decode::<RawVec<Pair>>(Decoder::new(&bytes), 0).is_err());
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        assert!(decode::<Raw<Pair>>(Decoder::new(&[0; 7]), 0).is_err());
        for count in [2, 1 << 61, u64::MAX] {
            let bytes = [&count.to_le_bytes()[..], &[0; 8]].concat();
            assert!(decode::<RawVec<Pair>>(Decoder::new(&bytes), 0).is_err(), "{count}");
        }
        let many = u64::MAX.to_le_bytes();
        assert_eq!(decode::<RawVec<()>>(Decoder::new(&many), 0), Ok(RawVec(Vec::new())));
    }

    #[test]
    fn the_shape_has_the_layout() {
        let order = if cfg!(target_endian = "little") { "little-endian" } else { "big-endian" };
        let fields = Schema::text_of::<Pair>();
        let text = Schema::text_of::<Raw<Pair>>();
        assert_eq!(text, format!("Raw< {order} size 8 align 4 {fields} >"));
        assert_eq!(
            Schema::text_of::<RawVec<Pair>>(),
            format!("Raw< {order} size 8 align 4 {} >", Schema::text_of::<Vec<Pair>>())
        );
        for other in [text.replace(order, "other-endian"), text.replace("size 8", "size 12"), fields] {
            assert!(!Schema::agree(&text, &other));
        }
    }
}
