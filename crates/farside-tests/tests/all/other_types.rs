//! Safe functions that turn bytes into values, called with a partner that uses another type or
//! another function. None may yield a value.

use std::num::NonZeroU32;

use farside::Result;
use farside::prelude::*;

#[derive(Clone, Copy, Debug, Wire)]
enum Phase {
    Begin,
    Search,
}

/// What one worker does. It returns whether it got a value from the other one.
type Act = fn(&Worker) -> Result<bool>;

const ROOT: WorkerId = WorkerId::new(0);
const FEEDER: WorkerId = WorkerId::new(1);

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

        /// Each collective with each type, by name.
        fn acts() -> Vec<(String, Act)> {
            let mut acts: Vec<(String, Act)> = vec![("barrier".into(), |me| me.barrier().map(|()| false))];
            $(
                acts.push((concat!("broadcast from 0 of ", stringify!($type)).into(), |me| {
                    me.broadcast(ROOT, (me.id() == ROOT).then(<$type>::sample)).map(|_| me.id() != ROOT)
                }));
                acts.push((concat!("broadcast from 1 of ", stringify!($type)).into(), |me| {
                    me.broadcast(FEEDER, (me.id() == FEEDER).then(<$type>::sample)).map(|_| me.id() != FEEDER)
                }));
                acts.push((concat!("gather at 0 of ", stringify!($type)).into(), |me| {
                    me.gather(ROOT, <$type>::sample()).map(|all| all.is_some())
                }));
                acts.push((concat!("all_reduce of ", stringify!($type)).into(), |me| {
                    me.all_reduce(<$type>::sample(), |one, _| one).map(|_| true)
                }));
            )*
            acts
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

#[test]
fn collectives_of_other_kinds_and_types_are_refused() {
    assert!([Phase::Begin, Phase::Search].len() == 2);
    for (first_name, first) in acts() {
        for (second_name, second) in acts() {
            let result = run_pair(first, second);
            if first_name == second_name {
                result.unwrap_or_else(|error| panic!("{first_name}: {error}"));
            } else {
                let error = result.expect_err(&format!("{first_name}, {second_name}"));
                let text = error.to_string();
                let is_refused = text.contains("takes part in");
                assert!(is_refused, "{first_name}, {second_name}: {text}");
            }
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
