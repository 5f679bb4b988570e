//! Nothing says which field of a union is there.

use farside::Wire;

#[derive(Wire)]
union Bits {
    float: f32,
    whole: u32,
}

fn main() {}
