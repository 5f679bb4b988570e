//! Values that travel as the bytes that they are.

use bytemuck::{Pod, Zeroable};
use farside_rpc::{CallError, Handling, Never, Ran, Raw, RawVec, Service};
use farside_wire::Wire;

use crate::everywhere;

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Wire)]
#[wire(crate = "farside_wire")]
#[repr(C)]
struct Particle {
    place: [f32; 3],
    charge: i32,
}

/// The same fields, with another alignment and so another size.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable, Wire)]
#[wire(crate = "farside_wire")]
#[repr(C)]
struct Wide {
    place: [f64; 3],
    charge: i64,
}

/// Sizes around those at which arguments leave the frame.
#[test]
fn raw_values_travel_and_other_layouts_are_refused() {
    let service = || {
        Service::new("particles")
            .procedure("sum", Handling::Inline, |_, Raw(numbers): Raw<[u64; 4]>| {
                Ok::<_, Never>(Raw(numbers.iter().sum::<u64>()))
            })
            .procedure("turn", Handling::Pooled, |_, RawVec(mut particles): RawVec<Particle>| {
                particles.iter_mut().for_each(|particle| particle.charge *= -1);
                Ok::<_, Never>(RawVec(particles))
            })
    };
    everywhere(
        |builder| builder.provider(0, service()),
        |client| {
            let sum = client.procedure::<Raw<[u64; 4]>, Raw<u64>, Never>("particles", 0, "sum");
            assert_eq!(sum.call(&Raw([1, 2, 3, 4])), Ok(Raw(10)));
            let turn = client.procedure::<RawVec<Particle>, RawVec<Particle>, Never>("particles", 0, "turn");
            let particle = |charge| Particle { place: [0.5, -0.0, f32::MAX], charge };
            for count in [0, 1, 4000, 5000, 100_000] {
                let RawVec(turned) = turn.call(&RawVec((0..count).map(particle).collect())).unwrap();
                assert!(turned.into_iter().eq((0..count).map(|charge| particle(-charge))), "{count}");
            }
            let wide = client.procedure::<RawVec<Wide>, RawVec<Wide>, Never>("particles", 0, "turn");
            let error = wide.call(&RawVec(Vec::new())).unwrap_err();
            let CallError::Shape { ours, theirs, .. } = &error else { panic!("{error}") };
            assert!(ours.contains("size 32 align 8") && theirs.contains("size 16 align 4"), "{error}");
            assert_eq!(error.ran(), Ran::No);
            // The usual encoding is another type.
            let usual = client.procedure::<Vec<Particle>, Vec<Particle>, Never>("particles", 0, "turn");
            assert!(matches!(usual.call(&Vec::new()), Err(CallError::Shape { .. })));
        },
    );
}
