//! tmp v2
use super::{Cell, Position};
use super::flood::MAX_SIZE;
use crate::game::Player;

type Set = [u64; 4];
fn single(c: u8) -> Set { let mut s = [0; 4]; s[(c >> 6) as usize] = 1 << (c & 63); s }
fn has(s: &Set, i: u8) -> bool { s[(i >> 6) as usize] >> (i & 63) & 1 == 1 }
fn or(a: &Set, b: &Set) -> Set { std::array::from_fn(|i| a[i] | b[i]) }
fn and(a: &Set, b: &Set) -> Set { std::array::from_fn(|i| a[i] & b[i]) }
fn disjoint(a: &Set, b: &Set) -> bool { and(a, b) == [0; 4] }

const NONE: u8 = 255;
const NEAR: u8 = 0;
const FAR: u8 = 1;

/// neighbour offsets (across, along); bridge target and its two cells
const NB: [(i8, i8); 6] = [(1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)];

#[derive(Clone, Copy)]
struct Link { chain: u8, pair: Set }

pub struct Threats { pub full: bool, pub semi: bool, pub must: Set }
impl Threats { pub fn must_has(&self, c: Cell) -> bool { has(&self.must, (c.row() * 16 + c.column()) as u8) } }

struct Board { n: usize, chain: [u8; 256], empty: Set, chains: usize }
impl Board {
    fn new(pos: &Position, player: Player) -> Self {
        let n = pos.size();
        let mut chain = [NONE; 256];
        let mut empty = [0; 4];
        let black = player == Player::First;
        // transposed for white
        let at = |r: usize, c: usize| if black { r * 16 + c } else { c * 16 + r };
        let mut mine = [0; 4];
        for r in 0..n { for c in 0..n {
            let i = at(r, c);
            let bit = |x: &[u16; 16]| x[r] >> c & 1 == 1;
            if bit(&pos.stones[player as usize]) { mine = or(&mine, &single(i as u8)); }
            else if !bit(&pos.stones[player.opponent() as usize]) { empty = or(&empty, &single(i as u8)); }
        } }
        let mut b = Self { n, chain, empty, chains: 2 };
        let mut stack = vec![];
        for r in 0..n { for c in 0..n {
            let i = (r * 16 + c) as u8;
            if !has(&mine, i) || chain[i as usize] != NONE { continue; }
            stack.push(i); let mut cells = vec![i]; chain[i as usize] = b.chains as u8; let mut id = b.chains as u8;
            while let Some(i) = stack.pop() {
                if i >> 4 == 0 { id = NEAR; } else if (i >> 4) as usize == n - 1 { id = FAR; }
                for d in 0..6 { if let Some(j) = b.step(i, NB[d]) && has(&mine, j) && chain[j as usize] == NONE { chain[j as usize] = b.chains as u8; stack.push(j); cells.push(j); } }
            }
            for j in cells { chain[j as usize] = id; }
            if id > 1 { b.chains += 1; }
        } }
        b.chain = chain;
        b
    }
    fn step(&self, i: u8, (dc, dr): (i8, i8)) -> Option<u8> {
        let c = (i & 15) as i8 + dc; let r = (i >> 4) as i8 + dr;
        (c >= 0 && r >= 0 && (c as usize) < self.n && (r as usize) < self.n).then(|| (r as u8) << 4 | c as u8)
    }
    fn links(&self, x: u8, out: &mut Vec<Link>) {
        let start = out.len();
        let own = self.chain[x as usize];
        let nb: [Option<u8>; 6] = std::array::from_fn(|d| self.step(x, NB[d]));
        let add = |out: &mut Vec<Link>, chain: u8, pair: Set| {
            if chain == own { return; }
            if pair == [0; 4] { out.retain({ let mut k = 0; move |l: &Link| { k += 1; k <= start || l.chain != chain } }); }
            if out[start..].iter().any(|l| l.chain == chain && l.pair == [0; 4]) { return; }
            out.push(Link { chain, pair });
        };
        let row = (x >> 4) as usize;
        if own == NONE {
            if row == 0 { add(out, NEAR, [0; 4]); }
            if row == self.n - 1 { add(out, FAR, [0; 4]); }
            for j in nb.into_iter().flatten() { if self.chain[j as usize] != NONE { add(out, self.chain[j as usize], [0; 4]); } }
        }
        if row == 1 && let (Some(a), Some(b)) = (nb[4], nb[5]) && has(&self.empty, a) && has(&self.empty, b) { add(out, NEAR, or(&single(a), &single(b))); }
        if row == self.n - 2 && let (Some(a), Some(b)) = (nb[1], nb[2]) && has(&self.empty, a) && has(&self.empty, b) { add(out, FAR, or(&single(a), &single(b))); }
        for d in 0..6 {
            let (p, q) = (NB[d], NB[(d + 1) % 6]);
            if let Some(t) = self.step(x, (p.0 + q.0, p.1 + q.1)) && self.chain[t as usize] != NONE
                && let (Some(a), Some(b)) = (nb[d], nb[(d + 1) % 6]) && has(&self.empty, a) && has(&self.empty, b) {
                add(out, self.chain[t as usize], or(&single(a), &single(b)));
            }
        }
    }
}


struct Grown { chain: Vec<Option<Set>>, cell: Vec<Option<Set>> }
fn size(a: &Set) -> u32 { a.iter().map(|x| x.count_ones()).sum() }
fn grow(b: &Board, from: u8, empties: &[(u8, u32, u32)], touch: &[Link], bridges: &[(u8, Link)], hops: &[Vec<(u8, Set)>]) -> Grown {
    let deep = std::env::var_os("SHALLOW").is_none();
    let mut carrier: Vec<Option<Set>> = vec![None; b.chains];
    let mut cell: Vec<Option<Set>> = vec![None; 256];
    carrier[from as usize] = Some([0; 4]);
    'outer: loop {
        for (p, l) in bridges {
            if let Some(k) = carrier[*p as usize] && carrier[l.chain as usize].is_none() && disjoint(&k, &l.pair) {
                carrier[l.chain as usize] = Some(or(&k, &l.pair));
                continue 'outer;
            }
        }
        if carrier.iter().all(|c| c.is_some()) && !deep { return Grown { chain: carrier, cell }; }
        // direct
        for &(x, s, e) in empties {
            for l in &touch[s as usize..e as usize] { if let Some(k) = carrier[l.chain as usize] && !has(&k, x) && disjoint(&k, &l.pair) {
                let k = or(&k, &l.pair);
                if cell[x as usize].is_none_or(|o| size(&o) > size(&k)) { cell[x as usize] = Some(k); }
            } }
        }
        if deep { loop {
            let mut changed = false;
            for &(x, _, _) in empties { if cell[x as usize].is_none() {
                let (mut inter, mut union) = (b.empty, [0; 4]);
                for (y, pair) in &hops[x as usize] { if let Some(k) = cell[*y as usize] && !has(&k, x) && disjoint(&k, pair) {
                    let k = or(&or(&k, pair), &single(*y));
                    let smaller = and(&inter, &k);
                    if smaller != inter { inter = smaller; union = or(&union, &k); }
                } }
                if inter == [0; 4] { cell[x as usize] = Some(union); changed = true; }
            } }
            if !changed { break; }
        } }
        let mut semi: Vec<(Set, Set)> = vec![(b.empty, [0; 4]); b.chains];
        for &(x, s, e) in empties {
            let t = &touch[s as usize..e as usize];
            let direct = t.iter().filter_map(|l| carrier[l.chain as usize].filter(|k| !has(k, x) && disjoint(k, &l.pair)).map(|k| or(&k, &l.pair)));
            for k in direct.chain(cell[x as usize]) {
                let k = or(&k, &single(x));
                for m in t { if carrier[m.chain as usize].is_none() && disjoint(&k, &m.pair) {
                    let k = or(&k, &m.pair);
                    let (inter, union) = &mut semi[m.chain as usize];
                    let smaller = and(inter, &k);
                    if smaller != *inter { *inter = smaller; *union = or(union, &k);
                        if smaller == [0; 4] { carrier[m.chain as usize] = Some(*union); continue 'outer; } }
                } }
            }
        }
        return Grown { chain: carrier, cell };
    }
}

pub fn threats(pos: &Position, player: Player) -> Threats {
    let none = Threats { full: false, semi: false, must: [0; 4] };
    let stones: u32 = pos.stones[player as usize].iter().map(|r| r.count_ones()).sum();
    if (stones as usize + 1) * 2 + 3 < pos.size() { return none; }
    let b = Board::new(pos, player);
    let mut touch = Vec::with_capacity(256);
    let mut empties = Vec::with_capacity(256);
    let mut bridges = Vec::with_capacity(64);
    let mut tmp = Vec::new();
    for r in 0..b.n { for c in 0..b.n {
        let x = (r * 16 + c) as u8;
        if has(&b.empty, x) { let s = touch.len() as u32; b.links(x, &mut touch); empties.push((x, s, touch.len() as u32)); }
        else if b.chain[x as usize] != NONE { tmp.clear(); b.links(x, &mut tmp); for l in &tmp { bridges.push((b.chain[x as usize], *l)); if l.chain <= FAR { bridges.push((l.chain, Link { chain: b.chain[x as usize], pair: l.pair })); } } }
    } }
    let mut hops: Vec<Vec<(u8, Set)>> = vec![vec![]; 256];
    for &(x, _, _) in &empties { for d in 0..6 {
        let (p, q) = (NB[d], NB[(d + 1) % 6]);
        let (a, c) = (b.step(x, p), b.step(x, q));
        if let Some(y) = a && has(&b.empty, y) { hops[x as usize].push((y, [0; 4])); }
        if let (Some(a), Some(c)) = (a, c) && has(&b.empty, a) && has(&b.empty, c) && let Some(y) = b.step(x, (p.0 + q.0, p.1 + q.1)) && has(&b.empty, y) { hops[x as usize].push((y, or(&single(a), &single(c)))); }
    } }
    let near = grow(&b, NEAR, &empties, &touch, &bridges, &hops);
    if near.chain[FAR as usize].is_some() { return Threats { full: true, semi: true, must: [0; 4] }; }
    let far = grow(&b, FAR, &empties, &touch, &bridges, &hops);
    if far.chain[NEAR as usize].is_some() { return Threats { full: true, semi: true, must: [0; 4] }; }
    let mut must = b.empty; let mut semi = false;
    for &(x, s, e) in &empties {
        let t = &touch[s as usize..e as usize];
        let ks = |g: &Grown| -> Vec<Set> { t.iter().filter_map(|l| g.chain[l.chain as usize].filter(|k| !has(k, x) && disjoint(k, &l.pair)).map(|k| or(&k, &l.pair))).chain(g.cell[x as usize]).collect() };
        let fs = ks(&far);
        for k in ks(&near) { for f in &fs { if disjoint(&k, f) { semi = true; must = and(&must, &or(&or(&k, f), &single(x))); } } }
    }
    if !semi { return none; }
    if player == Player::Second { let m = must; must = [0; 4]; for i in 0..=255u8 { if has(&m, i) { must = or(&must, &single(i << 4 | i >> 4)); } } }
    let _ = MAX_SIZE;
    Threats { full: must == [0; 4], semi, must }
}
