//! Every encoding equals that of the Rust type, and comes back from JSON as it was.

use std::num::{NonZeroI16, NonZeroU128};
use std::time::Duration;

use farside_rpc::{Wire, wire};
use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
struct Record {
    numbers: (u8, i16, u32, i64, u64),
    wide: (u128, i128, NonZeroI16, Option<NonZeroU128>),
    machine: (usize, isize),
    floats: (f32, f64),
    truth: bool,
    character: char,
    time: Duration,
    key: Key,
    nothing: Nothing,
    pair: Pair,
    several: [Option<Result<u8, String>>; 3],
    nested: Option<Option<String>>,
    unit: Option<Nothing>,
    bytes: Vec<u8>,
    units: Vec<()>,
    pairs: Vec<(u64, String)>,
    slice: Box<[bool]>,
    tree: Tree,
}

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
struct Key(Option<u64>);

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
struct Pair(String, bool);

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
struct Nothing;

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
enum Tree {
    Leaf,
    One(Option<u8>),
    Two(u8, String),
    Named { name: String, weight: i16 },
    Then(Box<Tree>, u8),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Leaf),
        any::<Option<u8>>().prop_map(Tree::One),
        any::<(u8, String)>().prop_map(|(number, text)| Tree::Two(number, text)),
        any::<(String, i16)>().prop_map(|(name, weight)| Tree::Named { name, weight }),
    ];
    leaf.prop_recursive(3, 8, 1, |inner| {
        (inner, any::<u8>()).prop_map(|(tree, number)| Tree::Then(Box::new(tree), number))
    })
}

prop_compose! {
    fn record()(
        numbers in any::<(u8, i16, u32, i64, u64)>(),
        wide in any::<(u128, i128, NonZeroI16, Option<NonZeroU128>)>(),
        machine in any::<(usize, isize)>(),
        floats in (
            prop_oneof![Just(f32::MAX), Just(f32::INFINITY), any::<f32>()],
            prop_oneof![Just(f64::NEG_INFINITY), any::<f64>()],
        ),
        (truth, character, nested, pair) in any::<(bool, char, Option<Option<String>>, (String, bool))>(),
        (seconds, nanos) in (any::<u64>(), 0..1_000_000_000_u32),
        (key, unit) in any::<(Option<u64>, Option<()>)>(),
        several in any::<[Option<Result<u8, String>>; 3]>(),
        lists in any::<(Vec<u8>, Vec<()>, Vec<(u64, String)>, Vec<bool>)>(),
        tree in tree(),
    ) -> Record {
        Record {
            numbers, wide, machine, floats, truth, character,
            time: Duration::new(seconds, nanos),
            key: Key(key),
            nothing: Nothing,
            pair: Pair(pair.0, pair.1),
            several, nested,
            unit: unit.map(|()| Nothing),
            bytes: lists.0,
            units: lists.1,
            pairs: lists.2,
            slice: lists.3.into_boxed_slice(),
            tree,
        }
    }
}

fn type_of<T: Wire>() -> Type {
    Words::of(&wire::Schema::text_of::<T>()).a_type(0).unwrap()
}

fn encoded<T: Wire>(value: &Value) -> Result<Vec<u8>, String> {
    let mut out = Encoded::default();
    type_of::<T>().encode(value, &mut out).map_err(|fault| fault.at("arguments").to_string())?;
    Ok(out.bytes)
}

/// The value in JSON, which encodes to the same bytes, also as text.
fn check<T: Wire>(value: &T) -> Value {
    let bytes = wire::encode(value, Vec::new());
    let shown = type_of::<T>().decode(&bytes).unwrap();
    let read: Value = serde_json::from_str(&shown.to_string()).unwrap();
    assert_eq!(read, shown);
    assert_eq!(encoded::<T>(&read), Ok(bytes), "{shown}");
    shown
}

/// The words that descriptions consist of, and some others.
const WORDS: [&str; 38] = [
    "()",
    "u8",
    "u64",
    "i128",
    "f32",
    "bool",
    "char",
    "String",
    "rec{",
    "}rec",
    "^0",
    "^1",
    "Vec",
    "Vec",
    "Box",
    "Option",
    "Option",
    "Result",
    "array",
    "array",
    "(",
    "(",
    ")",
    "1",
    "struct",
    "enum",
    "}",
    "}",
    "a",
    "0",
    "2",
    "18446744073709551615",
    "NonZeroU8",
    "Duration",
    "usize",
    "Bulk<Read>",
    "->",
    "!",
];

proptest! {
    #[test]
    fn values_come_back_from_json(value in record()) {
        check(&value);
    }

    #[test]
    fn any_answer_is_json_or_refused(bytes: Vec<u8>, value in record(), at: prop::sample::Index, byte: u8) {
        let ty = type_of::<Record>();
        let _ = ty.decode(&bytes);
        let mut bytes = wire::encode(&value, Vec::new());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        // What is accepted is what the Rust type accepts.
        let decoded = wire::decode::<Record>(wire::Decoder::new(&bytes), 0);
        prop_assert_eq!(ty.decode(&bytes).is_ok(), decoded.is_ok());
    }

    #[test]
    fn any_description_is_types_or_refused(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..60),
        bytes: Vec<u8>,
    ) {
        if let Ok(ty) = Words::of(&words.join(" ")).a_type(0)
            && let Ok(value) = ty.decode(&bytes)
        {
            let mut out = Encoded::default();
            let again = ty.encode(&value, &mut out);
            prop_assert!(again.is_ok(), "{again:?}");
        }
        let _ = Types::parse(&words.join(" "));
    }
}

#[test]
fn values_look_as_serde_has_them() {
    assert_eq!(check(&(1_u8, Key(Some(2)), Pair("a".into(), true), Nothing)), json!([1, 2, ["a", true], null]));
    let time = Duration::from_millis(1500);
    assert_eq!(check(&time), json!({ "secs": 1, "nanos": 500_000_000 }));
    let trees =
        vec![Tree::Leaf, Tree::One(None), Tree::Two(1, "b".into()), Tree::Named { name: "c".into(), weight: -1 }];
    let expected = json!(["Leaf", { "One": null }, { "Two": [1, "b"] }, { "Named": { "name": "c", "weight": -1 } }]);
    assert_eq!(check(&trees), expected);
    assert_eq!(check(&(Ok::<u8, String>(1), Err::<(), _>('x'))), json!([{ "Ok": 1 }, { "Err": "x" }]));
    let options = (None::<u8>, Some(1_u8), None::<Option<u8>>, Some(None::<u8>), Some(Some(1_u8)));
    assert_eq!(check(&options), json!([null, 1, null, { "Some": null }, { "Some": 1 }]));
    let limits = (u64::MAX, i64::MIN, u128::MAX, i128::MIN, 5_u128, f64::INFINITY);
    let (widest, least) = (u128::MAX.to_string(), i128::MIN.to_string());
    assert_eq!(check(&limits), json!([u64::MAX, i64::MIN, widest, least, 5, "inf"]));
    assert_eq!(check(&f64::NAN), json!("NaN"));
    assert_eq!(encoded::<Vec<u8>>(&json!("ab")), encoded::<Vec<u8>>(&json!([97, 98])));
}

#[test]
fn what_does_not_fit_is_named() {
    fn fault<T: Wire>(value: Value) -> String {
        encoded::<T>(&value).unwrap_err()
    }
    let record = |value| json!([1, [{ "name": value, "weight": 1 }]]);
    #[derive(Wire)]
    #[wire(crate = "farside_rpc")]
    struct Named {
        #[allow(dead_code)]
        name: u8,
        #[allow(dead_code)]
        weight: u8,
    }
    type Deep = (u8, Vec<Named>);
    assert_eq!(fault::<Deep>(record(json!(256))), "arguments.1.0.name: expected u8, found 256");
    assert_eq!(fault::<Deep>(json!([1, [{ "name": 1 }]])), "arguments.1.0.weight: the field is missing");
    let unknown = fault::<Deep>(json!([1, [{ "name": 1, "wieght": 2, "weight": 2 }]]));
    assert_eq!(unknown, "arguments.1.0.wieght: there is no such field; the fields are name, weight");
    assert_eq!(fault::<Deep>(json!([1])), "arguments: expected an array of 2, found [1]");
    assert_eq!(fault::<i8>(json!(-129)), "arguments: expected i8, found -129");
    assert_eq!(fault::<NonZeroI16>(json!(0)), "arguments: expected i16 other than 0, found 0");
    assert_eq!(fault::<u128>(json!("-1")), "arguments: expected u128, found \"-1\"");
    assert_eq!(fault::<f32>(json!(1e300)), "arguments: expected f32, found 1e+300");
    assert_eq!(fault::<char>(json!("ab")), "arguments: expected a string of one character, found \"ab\"");
    assert_eq!(fault::<[u8; 2]>(json!([1])), "arguments: expected an array of 2, found [1]");
    assert!(fault::<Tree>(json!("Leef")).contains("expected one of \"Leaf\", {\"One\": ...}"));
    assert!(fault::<Tree>(json!({ "Leaf": null })).contains("expected one of"));
    assert!(fault::<Tree>(json!({ "Two": [1, 2] })).starts_with("arguments.Two.1: expected a string"));
    assert!(fault::<Option<Option<u8>>>(json!(1)).contains("{\"Some\": value}"));
    assert!(fault::<Duration>(json!({ "secs": 1, "nanos": 1_000_000_000 })).contains("less than a second"));
    assert!(fault::<String>(json!(vec!["long"; 100])).ends_with("..."));
}

#[test]
fn hostile_descriptions_and_answers_have_an_end() {
    let parse = |text: &str| Words::of(text).a_type(0);
    assert!(parse(&"Option ".repeat(1_000_000)).unwrap_err().contains("nested more than"));
    assert!(parse(&"( ".repeat(1_000_000)).unwrap_err().contains("nested more than"));
    assert!(parse("enum 18446744073709551615 A }").unwrap_err().contains("ends early"));
    assert!(parse(&format!("1 struct {} u8 }}", "x".repeat(300))).unwrap_err().contains("a name of 300 bytes"));
    assert!(Types::parse(&" ".repeat(2 << 20)).unwrap_err().contains("longer than"));
    assert!(parse("farside::Pipe u64").unwrap_err().contains("has no form in JSON"));
    assert!(Types::parse("u8 -> u8 ! u8 u8").is_err());
    let endless = parse("array 18446744073709551615 array 18446744073709551615 ()").unwrap();
    assert!(endless.decode(&[]).unwrap_err().what.contains("too large for JSON"));
    let long = 1_u64.to_le_bytes();
    assert!(parse("Vec u8").unwrap().decode(&long).is_err());
    assert!(parse("Vec ()").unwrap().decode(&u64::MAX.to_le_bytes()).is_err());
    assert!(parse("()").unwrap().decode_each(u64::MAX, &[]).unwrap_err().what.contains("too large for JSON"));
    assert!(parse("u8").unwrap().decode_each(1, &[1, 2]).unwrap_err().what.contains("1 bytes too many"));
}

#[derive(Clone, Debug, Default, PartialEq, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Grown {
    depth: u32,
    label: Option<String>,
    inner: Inner,
}

#[derive(Clone, Debug, Default, PartialEq, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Inner {
    weights: Vec<f64>,
}

/// The last fields of an extensible struct may be left out.
#[test]
fn an_extensible_struct_is_an_object() {
    let ty = Words::of(&farside_rpc::wire::Schema::text_of::<Grown>()).a_type(0).unwrap();
    let encode = |value: serde_json::Value| {
        let mut out = Encoded::default();
        ty.encode(&value, &mut out).map(|()| out.bytes)
    };
    let whole = Grown { depth: 3, label: Some("a".into()), inner: Inner { weights: vec![0.5] } };
    let json = json!({"depth": 3, "label": "a", "inner": {"weights": [0.5]}});
    let bytes = wire::encode(&whole, Vec::new());
    assert_eq!(encode(json.clone()).unwrap(), bytes);
    assert_eq!(ty.decode(&bytes).unwrap(), json);
    let short = encode(json!({"depth": 3})).unwrap();
    let decoded: Grown = wire::decode(wire::Decoder::new(&short), 0).unwrap();
    assert_eq!(decoded, Grown { depth: 3, ..Grown::default() });
    assert_eq!(encode(json!({})).unwrap(), [0; 8]);
    for (wrong, why) in [
        (json!({"label": "a"}), "depth: the field is missing"),
        (json!({"depth": 1, "height": 2}), "there is no such field; the fields are depth, label, inner"),
        (json!([3]), "expected an object with the fields depth, label, inner"),
    ] {
        let fault = encode(wrong).unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
    }
    assert!(ty.decode(&[255; 8]).is_err());
}

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
struct Folder {
    entries: Vec<Entry>,
    first: Option<Box<Entry>>,
}

#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
enum Entry {
    File { bytes: u64 },
    Folder(Folder),
}

/// A type that is nothing but another one of itself, or none.
#[derive(Clone, Debug, PartialEq, Wire)]
#[wire(crate = "farside_rpc")]
struct Nested(Option<Box<Nested>>);

#[test]
fn values_of_recursive_types_come_back() {
    let file = |bytes| Entry::File { bytes };
    let inner = Folder { entries: vec![file(1), file(2)], first: Some(Box::new(file(1))) };
    let folder = Folder { entries: vec![Entry::Folder(inner), file(3)], first: None };
    assert_eq!(
        check(&folder),
        json!({
            "entries": [
                {"Folder": {"entries": [{"File": {"bytes": 1}}, {"File": {"bytes": 2}}], "first": {"File": {"bytes": 1}}}},
                {"File": {"bytes": 3}},
            ],
            "first": null,
        })
    );
    check(&(folder.clone(), vec![file(4)], folder));
    let nested = Nested(Some(Box::new(Nested(Some(Box::new(Nested(None)))))));
    assert_eq!(check(&nested), json!({"Some": {"Some": null}}));
    // As deep as values travel, and deeper.
    let types = type_of::<Vec<Folder>>();
    let folders = |depth| (0..depth).fold(json!([]), |inner, _| json!([{"Folder": {"entries": inner, "first": null}}]));
    let mut out = Encoded::default();
    types.encode(&json!([{"entries": folders(40), "first": null}]), &mut out).unwrap();
    types.decode(&out.bytes).unwrap();
    let fault = types.encode(&json!([{"entries": folders(200), "first": null}]), &mut Encoded::default()).unwrap_err();
    assert!(fault.to_string().contains("nested more than"), "{fault}");
}

#[test]
fn endless_types_are_refused() {
    let parse = |text: &str| Words::of(text).a_type(0);
    for text in ["rec{ ^0 }rec", "rec{ Box ^0 }rec", "rec{ rec{ ^1 }rec }rec"] {
        assert!(parse(text).unwrap_err().contains("nothing but itself"), "{text}");
    }
    assert!(parse("rec{ u8").is_err());
    assert!(parse("^0").unwrap_err().contains("where no type began"));
    assert!(parse("rec{ ^1 }rec").unwrap_err().contains("where no type began"));
    // These have no values, and take no time to say so.
    for text in ["rec{ 1 struct 0 ^0 } }rec", "rec{ ( ^0 ^0 ) }rec", "rec{ array 5 ^0 }rec"] {
        let ty = parse(text).unwrap();
        assert!(ty.decode(&[0; 1000]).unwrap_err().to_string().contains("nested more than"), "{text}");
        assert!(!ty.may_be_null());
    }
    assert!(parse("rec{ Option ^0 }rec").unwrap().decode(&[1; 1000]).unwrap_err().to_string().contains("nested"));
}
