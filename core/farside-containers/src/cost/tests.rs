use super::*;
use Implementation::{Call, Checksum, OneSided};

const MICROSECOND: Duration = Duration::from_micros(1);

fn microseconds(model: &CostModel, by: Implementation, op: Op, promise: Promise, load: Load) -> f64 {
    model.predict(by, op, promise, load).expect("the implementation has the operation").ns / 1000.0
}

#[track_caller]
fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
}

#[test]
fn operations_take_few_round_trips() {
    for (by, op, expected) in [
        (OneSided, Op::Insert, 6.8),
        (OneSided, Op::Find, 3.7),
        (OneSided, Op::Push, 6.9),
        (OneSided, Op::Pop, 11.2),
        (Checksum, Op::Push, 6.9),
        (Checksum, Op::Pop, 7.5),
        (Call, Op::Insert, 10.5),
    ] {
        assert_near(microseconds(&CostModel::CORI_BEST, by, op, Promise::ALL, Load::default()), expected);
    }
    assert!(CostModel::CORI.predict(Checksum, Op::Find, Promise::ALL, Load::default()).is_none());
    assert!(CostModel::CORI.predict(OneSided, Op::Insert, Promise::FIND_ONLY, Load::default()).is_none());
}

#[test]
fn calls_lose_to_pushes_when_the_owner_computes_for_two_microseconds() {
    let choice = |interval| {
        let load = Load { interval, ..Load::default() };
        CostModel::CORI.plan(Op::Push, Promise::PUSH_ONLY, load).choice
    };
    assert_eq!(choice(Duration::ZERO), Call);
    assert_eq!(choice(MICROSECOND * 19 / 10), Call);
    assert_ne!(choice(MICROSECOND * 21 / 10), Call);
    // The wait grows by half of the interval.
    let at = |us| {
        let load = Load { interval: MICROSECOND * us, ..Load::default() };
        microseconds(&CostModel::CORI, Call, Op::Push, Promise::ALL, load)
    };
    assert_near(at(128) - at(0), 64.0);
}

/// In a table that is nearly full, an owner that is called looks at as many slots as a worker that
/// works on them itself.
#[test]
fn owners_look_at_further_slots() {
    // Shared memory: a call costs as much as a few atomics.
    let model = CostModel { get: 8.0, cas: 15.0, put: 8.0, call: 120.0, own: 8.0, ..CostModel::CORI_BEST };
    let load = |fill| Load { fill, probing: Probing::Quadratic, ..Load::default() };
    let ns = |op, fill| model.predict(Call, op, Promise::ALL, load(fill)).unwrap().ns;
    let further = load(0.9).probes(Op::Insert) - 1.0;
    assert_near(ns(Op::Insert, 0.9) - ns(Op::Insert, 0.0), 2.0 * further * model.own);
    assert_near(ns(Op::FindMiss, 0.9) - ns(Op::FindMiss, 0.0), further * model.own);
}

/// Compares the formulas with tables that are really filled.
#[test]
fn probes_are_those_of_a_filled_table() {
    const SLOTS: usize = 1 << 16;
    let mut random = 7_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 32) as usize % SLOTS
    };
    for probing in [Probing::Linear, Probing::Quadratic, Probing::Random] {
        for fill in [0.25, 0.5, 0.75] {
            let mut taken = vec![false; SLOTS];
            let mut looks_for_free = |taken: &[bool]| {
                let mut slot = next();
                let mut looks = 1;
                while taken[slot] {
                    slot = match probing {
                        Probing::Linear => (slot + 1) % SLOTS,
                        Probing::Quadratic => (slot + looks) % SLOTS,
                        Probing::Random => next(),
                    };
                    looks += 1;
                }
                (slot, looks)
            };
            let count = (SLOTS as f64 * fill) as usize;
            let mut looks = 0;
            for _ in 0..count {
                let (slot, each) = looks_for_free(&taken);
                taken[slot] = true;
                looks += each;
            }
            let misses: usize = (0..SLOTS).map(|_| looks_for_free(&taken).1).sum();
            let load = Load { fill, probing, ..Load::default() };
            let found = [looks as f64 / count as f64, misses as f64 / SLOTS as f64];
            for (found, predicted) in found.into_iter().zip([load.probes(Op::Find), load.probes(Op::FindMiss)]) {
                assert!((found / predicted - 1.0).abs() < 0.1, "{probing:?} {fill}: {found}, not {predicted}");
            }
        }
    }
}

#[test]
fn load_makes_operations_dearer() {
    let model = CostModel { line_cold: 100.0, line_contended: 60.0, own: 10.0, ..CostModel::CORI };
    let half = Load { fill: 0.5, ..Load::default() };
    let insert = 2.5 * 3.8 + 1.5 * 3.7 + 3.0 + (1.0 + 1.5 / 4.0) * 0.1;
    assert_near(microseconds(&model, OneSided, Op::Insert, Promise::ALL, half), insert);
    let find = |by| microseconds(&model, by, Op::Find, Promise::ALL, half);
    assert_near(find(OneSided), 1.5 * 3.7 + (1.0 + 0.5 / 4.0) * 0.1);
    let alone = microseconds(&model, OneSided, Op::Push, Promise::ALL, Load::default());
    let crowd = Load { contenders: 2.0, ..Load::default() };
    let crowded = microseconds(&model, OneSided, Op::Push, Promise::ALL, crowd);
    assert_near(crowded - alone, 2.0 * 0.06);
    let pop = |load| microseconds(&model, Checksum, Op::Pop, Promise::ALL, load);
    assert_near(pop(crowd) - pop(Load::default()), 2.0 * SPOILERS * (8.4 + 2.0 * 0.06) + 2.0 * 0.06);
    let shared = Load { own_share: 0.5, ..Load::default() };
    assert_near(microseconds(&model, OneSided, Op::Push, Promise::ALL, shared), (11.5 + 0.02) / 2.0);
}

/// A checksum saves a get, which is cheaper than a checksum where memory is mapped.
#[test]
fn checksums_fit_networks() {
    let mapped = CostModel { put: 2.0, get: 2.0, cas_single: 10.0, handler: 20.0, call: 300.0, ..CostModel::CORI };
    assert_eq!(mapped.plan(Op::Pop, Promise::ALL, Load::default()).choice, OneSided);
    let away = Load { interval: 100 * MICROSECOND, ..Load::default() };
    assert_eq!(CostModel::CORI.plan(Op::Pop, Promise::ALL, away).choice, Checksum);
}

#[test]
fn a_plan_says_why() {
    let load = Load { interval: 4 * MICROSECOND, ..Load::default() };
    let plan = CostModel::CORI.plan(Op::Insert, Promise::ALL, load);
    assert_eq!(plan.choice, OneSided);
    assert!(plan.predictions.is_sorted_by(|one, other| one.ns <= other.ns));
    assert_eq!(
        plan.to_string(),
        "one-sided, 5.700 µs less than call: one-sided 6.800 µs (Cas + Put), call 12.500 µs (Call + Wait)"
    );
}

#[test]
#[should_panic(expected = "find-only does not permit Insert")]
fn a_plan_against_the_promise_panics() {
    let _ = CostModel::CORI.plan(Op::Insert, Promise::FIND_ONLY, Load::default());
}
