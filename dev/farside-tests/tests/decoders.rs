//! Arbitrary bytes for every decoder of what comes from a peer or a socket.
//!
//! This test has a program of its own, because its allocator counts what is requested. The fuzz
//! target `decoders` makes the same checks.

use std::cell::RefCell;
use std::collections::BTreeSet;

use farside::wire::check::{MessageKind, Watched};
use farside_testbed::scaled;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[global_allocator]
static WATCHED: Watched = Watched;

/// The cases for each kind of message, and for each of its variants, at depth 1.
const CASES: u64 = 150;
/// As many times these cases are tried until a variant is met.
const PASSES_MAX: u32 = 40;

/// Generates bytes that resemble lengths, variants and texts more often than random bytes do.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        (0_u64..6).prop_map(|length| length.to_le_bytes().to_vec()),
        (0_u32..7).prop_map(|variant| variant.to_le_bytes().to_vec()),
        any::<u64>().prop_map(|word| word.to_le_bytes().to_vec()),
        any::<u8>().prop_map(|byte| vec![byte]),
        "[a-zé]{0,4}".prop_map(String::into_bytes),
    ];
    let sparse = prop_oneof![20 => Just(0), 1 => 0..9_u8, 1 => any::<u8>()];
    prop_oneof![vec(word, 0..30).prop_map(|words| words.concat()), vec(sparse, 0..200), vec(any::<u8>(), 0..60)]
}

/// Checks a decoder with many inputs. Every variant must have been decoded at least once, or the
/// check would say nothing about it.
fn check(kind: MessageKind) -> Result<(), String> {
    let met = RefCell::new(BTreeSet::new());
    let variants: Vec<Option<u32>> = (0..kind.variants).map(Some).chain([None]).collect();
    for variant in variants {
        // Always the same inputs: the fuzz target looks for others.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config { cases: scaled(CASES) as u32, failure_persistence: None, ..Config::default() };
        let strategy = likely_bytes();
        let mut runner = TestRunner::new_with_rng(config.clone(), rng);
        let mut pass = || {
            // Each pass has other inputs.
            let next = runner.new_rng();
            runner = TestRunner::new_with_rng(config.clone(), next);
            let outcome = runner.run(&strategy, |rest| {
                let variant = variant.map_or(Vec::new(), |variant| variant.to_le_bytes().to_vec());
                let bytes = [kind.start, &variant, &rest].concat();
                kind.check(&rest).map_err(TestCaseError::fail)?;
                if let Some(message) = kind.check(&bytes).map_err(TestCaseError::fail)? {
                    let fields = message.get(kind.start.len()..).unwrap_or_default();
                    met.borrow_mut().insert(fields.first_chunk().map(|variant| u32::from_le_bytes(*variant)));
                }
                Ok(())
            });
            outcome.map_err(|error| error.to_string())
        };
        pass()?;
        for _ in 1..PASSES_MAX {
            let is_met = variant.map_or(!met.borrow().is_empty(), |variant| met.borrow().contains(&Some(variant)));
            if is_met {
                break;
            }
            pass()?;
        }
    }
    let met = met.into_inner();
    let missing: Vec<u32> = (0..kind.variants).filter(|variant| !met.contains(&Some(*variant))).collect();
    match missing.is_empty() && !met.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: no input was decoded as variant {missing:?} of {}", kind.name, kind.variants)),
    }
}

#[test]
fn every_decoder_keeps_the_rules() {
    let kinds = [
        farside::message_kinds(),
        farside_kit::message_kinds(),
        farside_rpc::message_kinds(),
        farside_inspect::message_kinds(),
    ]
    .concat();
    assert!(kinds.len() > 40, "{kinds:?}");
    let broken: Vec<String> = kinds.into_iter().filter_map(|kind| check(kind).err()).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
