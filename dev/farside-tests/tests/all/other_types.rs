//! Safe functions that turn bytes into values, called with a partner that uses another type or
//! another function. None may yield a value.

use std::num::NonZeroU32;

use farside::Result;
use farside::prelude::*;
use farside_kit::prelude::*;

use crate::support::spread;

#[derive(Clone, Copy, Debug, Wire)]
enum Phase {
    Begin,
    Search,
}

/// The act of one worker, which returns true if it got a value from the other one.
type Act = fn(&Worker) -> Result<bool>;

const ROOT: WorkerId = WorkerId::new(0);
const FEEDER: WorkerId = WorkerId::new(1);

/// A collective of two workers with values of one type.
#[derive(Clone, Copy)]
struct Collective {
    kind: &'static str,
    of: &'static str,
    act: Act,
}

impl Collective {
    fn new(kind: &'static str, of: &'static str, act: Act) -> Self {
        Self { kind, of, act }
    }

    fn name(&self) -> String {
        format!("{} of {}", self.kind, self.of)
    }
}

fn collectives_of<T: Sample>(of: &'static str) -> Vec<Collective> {
    fn two<T: Sample>() -> [T; 2] {
        [T::sample(), T::sample()]
    }
    let table: [(_, Act); 19] = [
        ("broadcast from 0", |me| me.broadcast(ROOT, (me.id() == ROOT).then(T::sample)).map(|_| me.id() != ROOT)),
        ("broadcast from 1", |me| me.broadcast(FEEDER, (me.id() == FEEDER).then(T::sample)).map(|_| me.id() != FEEDER)),
        ("broadcast_slice", |me| me.broadcast_slice(ROOT, &mut two::<T>()).map(|()| me.id() != ROOT)),
        ("gather", |me| me.gather(ROOT, T::sample()).map(|all| all.is_some())),
        ("gather_slice", |me| me.gather_slice(ROOT, &two::<T>()).map(|all| all.is_some())),
        ("all_gather", |me| me.all_gather(T::sample()).map(|_| true)),
        ("all_gather_slice", |me| me.all_gather_slice(&two::<T>()).map(|_| true)),
        ("scatter", |me| me.scatter(ROOT, (me.id() == ROOT).then(|| two::<T>().into())).map(|_| me.id() != ROOT)),
        ("scatter_slice", |me| {
            let from: Vec<T> = if me.id() == ROOT { two::<T>().into() } else { Vec::new() };
            me.scatter_slice(ROOT, &from, &mut [T::sample()]).map(|()| me.id() != ROOT)
        }),
        ("all_to_all", |me| me.all_to_all(two::<T>().into()).map(|_| true)),
        ("all_to_all_slice", |me| me.all_to_all_slice(&mut two::<T>()).map(|()| true)),
        ("all_reduce", |me| me.all_reduce(T::sample(), |one, _| one).map(|_| true)),
        ("all_reduce_slice", |me| me.all_reduce_slice(&mut two::<T>(), |one, _| one).map(|()| true)),
        ("reduce", |me| me.reduce(ROOT, T::sample(), |one, _| one).map(|all| all.is_some())),
        ("reduce_slice", |me| me.reduce_slice(ROOT, &mut two::<T>(), |one, _| one).map(|()| me.id() == ROOT)),
        ("scan", |me| me.scan(T::sample(), |one, _| one).map(|_| me.id() != ROOT)),
        ("scan_slice", |me| me.scan_slice(&mut two::<T>(), |one, _| one).map(|()| me.id() != ROOT)),
        ("exclusive_scan", |me| me.exclusive_scan(T::sample(), |one, _| one).map(|before| before.is_some())),
        ("exclusive_scan_slice", |me| me.exclusive_scan_slice(&mut two::<T>(), |one, _| one).map(|()| me.id() != ROOT)),
    ];
    table.map(|(kind, act)| Collective::new(kind, of, act)).into()
}

/// Values whose bytes are no value of most other types.
trait Sample: Wire + Clone {
    fn sample() -> Self;
}

macro_rules! samples {
    ($($type:ty: $value:expr),* $(,)?) => {
        $(impl Sample for $type {
            fn sample() -> Self {
                $value
            }
        })*

        /// Each collective with each type.
        fn collectives() -> Vec<Collective> {
            let mut all = vec![Collective::new("barrier", "", |me| me.barrier().map(|()| false))];
            $(all.extend(collectives_of::<$type>(stringify!($type)));)*
            all
        }

        /// Each type as the messages of a pipe.
        fn pipes() -> Vec<(&'static str, Act)> {
            vec![$((stringify!($type), |me| {
                if me.id() == ROOT {
                    let mut sender = me.pipe(FEEDER).number(7).sender::<$type>()?;
                    sender.send(<$type>::sample()).map_err(|refused| refused.error)?;
                    return Ok(false);
                }
                me.pipe(ROOT).number(7).receiver::<$type>()?.recv()?;
                Ok(true)
            })),*]
        }
    };
}

samples! {
    u8: 200,
    bool: true,
    Phase: Phase::Search,
    NonZeroU32: NonZeroU32::MAX,
    Box<u64>: Box::new(u64::MAX),
    String: "far".to_owned(),
    Vec<u32>: vec![u32::MAX; 3],
}

fn run_pair(first: Act, second: Act) -> Result<()> {
    farside::simulate(2, 1, 1, move |me: &Worker| {
        let act = if me.id() == ROOT { first } else { second };
        let got = act(me)?;
        assert!(!got || first as usize == second as usize, "a value of another collective or type");
        // What one worker could do alone is noticed at the next collective.
        me.barrier()
    })
}

/// All pairs of kinds with values of one type, and all pairs of types in collectives of one kind:
/// some of them in the fast tier.
#[test]
fn collectives_of_other_kinds_and_types_are_refused() {
    assert!([Phase::Begin, Phase::Search].len() == 2);
    let is_pair = |(first, second): &(Collective, Collective)| {
        let one_has_no_type = first.of.is_empty() || second.of.is_empty();
        first.kind == second.kind || first.of == second.of || one_has_no_type
    };
    let all = collectives().into_iter().flat_map(|first| collectives().into_iter().map(move |second| (first, second)));
    let pairs: Vec<(Collective, Collective)> = all.filter(is_pair).collect();
    for index in spread(pairs.len() as u64) {
        let (first, second) = pairs[index as usize];
        let names = format!("{}, {}", first.name(), second.name());
        let result = run_pair(first.act, second.act);
        if first.name() == second.name() {
            result.unwrap_or_else(|error| panic!("{names}: {error}"));
        } else {
            let text = result.expect_err(&names).to_string();
            assert!(text.contains("takes part in"), "{names}: {text}");
        }
    }
}

#[test]
fn a_mismatch_names_both_collectives() {
    let result = farside::simulate(2, 1, 1, |me: &Worker| match me.id() == ROOT {
        true => me.all_reduce(1_u32, |a, b| a + b).map(drop),
        false => me.barrier(),
    });
    let text = result.unwrap_err().to_string();
    assert!(text.contains("a barrier") && text.contains("an all_reduce of `u32`"), "{text}");
}

#[test]
fn pipes_of_other_types_are_refused() {
    for (sent, first) in pipes() {
        for (received, second) in pipes() {
            let result = run_pair(first, second);
            assert_eq!(result.is_ok(), sent == received, "{sent}, {received}: {result:?}");
        }
    }
}
