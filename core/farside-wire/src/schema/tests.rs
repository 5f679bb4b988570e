use std::fmt::Write;

use proptest::prelude::*;

use super::*;

fn agree(one: &str, other: &str) -> bool {
    assert_eq!(Schema::agree(one, other), Schema::agree(other, one), "{one} | {other}");
    Schema::agree(one, other)
}

fn types_agree<A: Wire, B: Wire>() -> bool {
    agree(&Schema::text_of::<A>(), &Schema::text_of::<B>())
}

/// Asserts that two types have the same shape in every respect, or differ in every one.
#[track_caller]
fn assert_same<A: Wire, B: Wire>(is_same: bool) {
    let (one, other) = (Schema::text_of::<A>(), Schema::text_of::<B>());
    assert_eq!(one == other, is_same, "{one} | {other}");
    assert_eq!(Schema::of::<A>().hash() == Schema::of::<B>().hash(), is_same, "{one} | {other}");
    assert_eq!(agree(&one, &other), is_same, "{one} | {other}");
}

#[test]
fn shapes_agree_up_to_fields_that_one_of_them_lacks() {
    let short = "( extensible{ a u8 }extensible u16 )";
    assert!(agree(short, "( extensible{ a u8 b Vec u8 }extensible u16 )"));
    assert!(agree(short, "( extensible{ a u8 b extensible{ c u8 }extensible d u8 }extensible u16 )"));
    assert!(agree(short, "( extensible{ a u8 b rec{ Vec ^0 }rec c ^0 }extensible u16 )"));
    assert!(agree(short, "( extensible{ }extensible u16 )"));
    for other in [
        "( extensible{ a u16 }extensible u16 )",
        "( extensible{ b u8 a u8 }extensible u16 )",
        "( extensible{ a u8 }extensible u16 u8 )",
        "( extensible{ a u8 b u8 }extensible u32 )",
        "( extensible{ a u8 b u8",
        "( 1 struct a u8 } u16 )",
        "",
    ] {
        assert!(!agree(short, other), "{other}");
    }
    // Of two structs, one may be newer inside and the other outside.
    let inner_is_newer = "extensible{ a extensible{ x u8 y u8 }extensible }extensible";
    let outer_is_newer = "extensible{ a extensible{ x u8 }extensible b u8 }extensible";
    assert!(agree(inner_is_newer, outer_is_newer));
    // Types that only the newer one has do not count in references.
    let old = "extensible{ a u8 }extensible rec{ Vec ^0 }rec ^0";
    let new = "extensible{ a u8 b rec{ Box ^0 }rec }extensible rec{ Vec ^0 }rec ^0";
    assert!(agree(old, new));
    assert!(!agree(old, &new.replace("}rec ^0", "}rec ^1")));
}

/// Types with the field that a recursion is followed by.
macro_rules! nodes {
    ($($module:ident: $last:ty),*) => {$(
        mod $module {
            #[derive(crate::Wire)]
            #[wire(crate = "crate")]
            pub(super) struct Node {
                pub(super) children: Vec<Node>,
                pub(super) samples: Vec<$last>,
            }

            #[derive(crate::Wire)]
            #[wire(crate = "crate")]
            pub(super) enum Tree {
                Leaf,
                Fork(Box<(Tree, Tree)>),
                Many { trees: Vec<Tree>, last: $last },
            }

            /// A recursion through two types.
            #[derive(crate::Wire)]
            #[wire(crate = "crate")]
            pub(super) struct Folder {
                pub(super) entries: Vec<Entry>,
                pub(super) first: Option<Box<Entry>>,
            }

            #[derive(crate::Wire)]
            #[wire(crate = "crate")]
            pub(super) enum Entry {
                File(u64),
                Folder(Folder),
                Link { to: $last },
            }
        }
    )*};
}

nodes!(whole: u32, broken: f32, again: u32);

#[test]
fn recursive_types_are_compared_to_their_end() {
    assert_same::<whole::Node, again::Node>(true);
    assert_same::<whole::Node, broken::Node>(false);
    assert_same::<whole::Tree, again::Tree>(true);
    assert_same::<whole::Tree, broken::Tree>(false);
    assert_same::<whole::Folder, again::Folder>(true);
    assert_same::<whole::Folder, broken::Folder>(false);
    assert_same::<whole::Entry, again::Entry>(true);
    assert_same::<whole::Entry, whole::Folder>(false);
    // What follows it is compared, too, and so is what is inside other types.
    assert_same::<(whole::Node, u8), (again::Node, u8)>(true);
    assert_same::<(whole::Node, u8), (again::Node, u16)>(false);
    assert_same::<(whole::Node, whole::Node), (again::Node, broken::Node)>(false);
    assert_same::<Vec<Option<whole::Entry>>, Vec<Option<broken::Entry>>>(false);
    assert_eq!(Schema::of::<whole::Node>().bytes_max(), None);
}

#[test]
fn a_recursive_type_is_described_once() {
    let node = "rec{ 1 struct children Vec ^0 samples Vec u32 } }rec";
    assert_eq!(Schema::text_of::<whole::Node>(), node);
    assert_eq!(Schema::text_of::<(whole::Node, whole::Node)>(), format!("( {node} ^0 )"));
    assert_eq!(Schema::text_of::<Vec<whole::Node>>(), format!("Vec {node}"));
    assert_eq!(
        Schema::text_of::<whole::Tree>(),
        "rec{ enum 3 Leaf } Fork 0 Box ( ^0 ^0 ) } Many trees Vec ^0 last u32 } }rec"
    );
    let entry = "rec{ enum 3 File 0 u64 } Folder 0 ^1 } Link to u32 } }rec";
    let folder = format!("rec{{ 1 struct entries Vec {entry} first Option Box ^0 }} }}rec");
    assert_eq!(Schema::text_of::<whole::Folder>(), folder);
    // Both are known by then, whichever comes first.
    assert_eq!(Schema::text_of::<(whole::Folder, whole::Entry, whole::Folder)>(), format!("( {folder} ^0 ^1 )"));
}

/// Many types that all contain each other have a description of one part for each.
#[test]
fn descriptions_of_recursive_types_are_short() {
    macro_rules! crowd {
        ($all:tt $($name:ident)*) => {$(crowd!(@one $name $all);)*};
        (@one $name:ident ($($other:ident)*)) => {
            #[derive(Wire)]
            #[wire(crate = "crate")]
            #[allow(non_snake_case)]
            struct $name { $($other: Vec<$other>),* }
        };
    }
    crowd!((A B C D E F G H I J K L M N) A B C D E F G H I J K L M N);
    let text = Schema::text_of::<A>();
    assert_eq!(text.matches("struct").count(), 14);
    assert!(text.len() < 14 * 14 * 11, "{}", text.len());
    // All of them have the same fields, and begin elsewhere.
    assert!(types_agree::<A, B>());
}

#[test]
fn long_types_are_compared_to_their_end() {
    type Ten = (String, String, String, String, String, String, String, String, String, String);
    type Hundred<T> = (Ten, Ten, Ten, Ten, Ten, Ten, Ten, Ten, Ten, (Ten, T));
    assert_same::<Hundred<Vec<u64>>, Hundred<Vec<u64>>>(true);
    assert_same::<Hundred<Vec<u64>>, Hundred<Vec<(u32, f32)>>>(false);
    type Deep<T> = Vec<Vec<Vec<Vec<Vec<Vec<Vec<Vec<Vec<Vec<T>>>>>>>>>>;
    assert_same::<Deep<Deep<Deep<Deep<Deep<Deep<Deep<u8>>>>>>>, Deep<Deep<Deep<Deep<Deep<Deep<Deep<i8>>>>>>>>(false);
    assert_eq!(Schema::text_of::<Deep<Deep<u8>>>(), format!("{}u8", "Vec ".repeat(20)));
}

/// The same values, with the recursion cut elsewhere.
#[test]
fn recursions_that_begin_elsewhere_agree() {
    #[derive(Wire)]
    #[wire(crate = "crate")]
    struct Chain {
        next: Vec<Chain>,
        mark: u8,
    }
    #[derive(Wire)]
    #[wire(crate = "crate")]
    struct Even {
        next: Vec<Odd>,
        mark: u8,
    }
    #[derive(Wire)]
    #[wire(crate = "crate")]
    struct Odd {
        next: Vec<Even>,
        mark: u8,
    }
    #[derive(Wire)]
    #[wire(crate = "crate")]
    struct OtherEven {
        next: Vec<OtherOdd>,
        mark: u8,
    }
    #[derive(Wire)]
    #[wire(crate = "crate")]
    struct OtherOdd {
        next: Vec<OtherEven>,
        mark: i8,
    }
    assert!(types_agree::<Chain, Even>() && types_agree::<Even, Odd>());
    assert!(types_agree::<(Chain, Vec<Chain>), (Even, Vec<Odd>)>());
    assert!(!types_agree::<Chain, OtherEven>() && !types_agree::<Odd, OtherOdd>());
    assert!(agree("Vec rec{ Vec ^0 }rec", "rec{ Vec ^0 }rec"));
    assert!(!agree("Vec rec{ Box ^0 }rec", "rec{ Vec ^0 }rec"));
}

/// A type whose description is written by hand, and which contains itself.
struct Rows(Vec<Rows>);

// SAFETY: all is that of `Vec`.
unsafe impl Wire for Rows {
    const PLAIN: bool = false;

    fn wire_bytes(&self) -> usize {
        self.0.wire_bytes()
    }

    unsafe fn write(self, out: *mut u8) {
        // SAFETY: the caller passes room for it.
        unsafe { self.0.write(out) }
    }

    unsafe fn read(input: &mut crate::Reader<'_>) -> Result<Self, crate::WireError> {
        // SAFETY: the caller vouches for the bytes.
        unsafe { Vec::read(input) }.map(Self)
    }

    fn describe(schema: &mut Schema) {
        schema.word("Rows");
        Vec::<Rows>::describe(schema);
    }
}

#[test]
fn descriptions_by_hand_come_to_an_end() {
    assert_eq!(Schema::text_of::<Rows>(), "Rows rec{ Vec Rows Vec Rows ^0 }rec");
    assert_same::<(Rows, u8), (Rows, u16)>(false);
}

#[test]
fn types_that_lie_too_deep_are_no_types_of_other_binaries() {
    fn deeper(schema: &mut Schema) {
        // The types differ, as those of an endless chain would.
        let ids = [TypeId::of::<u8>(), TypeId::of::<u16>(), TypeId::of::<u32>()];
        let id = ids[schema.open.len() % 3];
        schema.describe_within(id, "endless", deeper);
    }
    let mut schema = Schema::empty(None);
    deeper(&mut schema);
    assert_eq!(schema.unportable(), Some("endless"));
}

#[test]
fn texts_of_strangers_are_refused() {
    let own = "( rec{ 1 struct children Vec ^0 samples Vec u32 } }rec u8 )";
    for text in [
        "rec{",
        "}rec",
        "^0",
        "rec{ }rec ^1",
        "rec{ ^0 }rec",
        "rec{ ^18446744073709551615 }rec",
        "rec{ ^-1 }rec ^",
        "( rec{ 1 struct children Vec ^0 samples Vec ^0 } }rec u8 )",
        "( rec{ 1 struct children Vec ^0 samples Vec u32 } u8 }rec )",
        "( rec{ 1 struct children Vec rec{ samples Vec u32 } }rec u8 )",
    ] {
        assert!(!agree(own, text), "{text}");
    }
    // Words that no side comes through.
    let (nested, flat) = ("rec{ ".repeat(10_000), "}rec ".repeat(10_000));
    assert!(!agree(own, &format!("{nested}{flat}")));
    assert!(agree("rec{ Vec ^0 }rec", &format!("rec{{ {}^0 }}rec", "Vec ".repeat(10_000))));
    assert!(!agree("rec{ Vec ^0 }rec", &format!("rec{{ {}Box ^0 }}rec", "Vec ".repeat(10_000))));
    assert!(!agree(&format!("{nested}u8 {flat}"), &format!("{nested}u16 {flat}")));
    assert!(agree(&format!("{nested}u8 {flat}"), "u8"));
}

/// A type of random parts: words, and types by their numbers.
type Parts = Vec<Result<u8, usize>>;

/// Types that contain each other. Each begins with a word, so that no recursion is without words.
fn types() -> impl Strategy<Value = Vec<Parts>> {
    let part = prop_oneof![(0..2_u8).prop_map(Ok), (0..3_usize).prop_map(Err)];
    let parts = (0..2_u8, prop::collection::vec(part, 0..4));
    let parts = parts.prop_map(|(first, rest)| std::iter::once(Ok(first)).chain(rest).collect());
    prop::collection::vec(parts, 3)
}

/// Writes the first type as [`Schema::text_of`] does.
fn written(types: &[Parts], number: usize, begun: &mut Vec<usize>, text: &mut String) {
    if let Some(place) = begun.iter().position(|begun| *begun == number) {
        return write!(text, "^{} ", begun.len() - 1 - place).unwrap();
    }
    begun.push(number);
    text.push_str("rec{ ");
    for part in &types[number] {
        match part {
            Ok(word) => write!(text, "{} ", ["a", "b"][usize::from(*word)]).unwrap(),
            Err(number) => written(types, *number, begun, text),
        }
    }
    text.push_str("}rec ");
}

/// The first words if every type is written in full wherever it occurs.
fn unrolled(types: &[Parts]) -> Vec<u8> {
    let (mut words, mut open) = (Vec::new(), vec![(0, 0)]);
    while let Some((number, next)) = open.pop().filter(|_| words.len() < 300) {
        let Some(part) = types[number].get(next) else { continue };
        open.push((number, next + 1));
        match part {
            Ok(word) => words.push(*word),
            Err(number) => open.push((*number, 0)),
        }
    }
    words
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(farside_testbed::scaled(2000) as u32))]

    #[test]
    fn shapes_that_agree_are_the_same(one in types(), other in types()) {
        let text = |types: &[Parts]| {
            let mut text = String::new();
            written(types, 0, &mut Vec::new(), &mut text);
            text
        };
        let (a, b) = (text(&one), text(&other));
        prop_assert!(!agree(&a, &b) || unrolled(&one) == unrolled(&other), "{} | {}", a, b);
        // The same types, of which the first one is written apart.
        let mut apart = one.clone();
        apart.extend([one[0].clone(), one[1].clone(), one[2].clone()]);
        for parts in &mut apart[..3] {
            parts.iter_mut().for_each(|part| if let Err(number) = part { *number += 3 });
        }
        prop_assert!(agree(&a, &text(&apart)), "{} | {}", a, text(&apart));
    }
}
