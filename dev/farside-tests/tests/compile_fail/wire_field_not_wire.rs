//! Fields that are not `Wire`, by name, inside another type, and as a parameter.

use std::sync::Arc;

use farside::Wire;

struct Opaque(u64);

#[derive(Wire)]
struct Direct {
    id: u64,
    opaque: Opaque,
}

#[derive(Wire)]
enum Nested {
    Empty,
    Several(Vec<Option<Opaque>>),
}

#[derive(Wire)]
struct Shared(u64, Arc<u64>);

#[derive(Wire)]
struct Generic<T>(T);

fn sends<T: Wire>(_value: T) {}

fn main() {
    sends(Generic(Opaque(1)));
}
