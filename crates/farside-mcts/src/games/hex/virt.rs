//! tmp
use super::Position;
use crate::game::Player;

fn find(p: &mut [u16; 260], mut x: u16) -> u16 { while p[x as usize] != x { p[x as usize] = p[p[x as usize] as usize]; x = p[x as usize]; } x }

/// disjoint pairs of player, and whether they connect
pub fn pairs(pos: &Position, player: Player, used: &mut [u16; 16], out: &mut Vec<(u8, u8)>) -> bool {
    let n = pos.size() as i32;
    let s = &pos.stones[player as usize];
    let mut parent = [0u16; 260];
    for i in 0..260 { parent[i] = i as u16; }
    let stone = |c: i32, r: i32| c >= 0 && r >= 0 && c < n && r < n && s[r as usize] >> c & 1 == 1;
    let id = |c: i32, r: i32| (r * 16 + c) as u16;
    let black = player == Player::First;
    // adjacency + edges
    for r in 0..n { for c in 0..n { if !stone(c, r) { continue; }
        for (dc, dr) in [(1, 0), (0, 1), (-1, 1)] { if stone(c + dc, r + dr) { let a = find(&mut parent, id(c, r)); let b = find(&mut parent, id(c + dc, r + dr)); parent[a as usize] = b; } }
        let k = if black { r } else { c };
        if k == 0 { let a = find(&mut parent, id(c, r)); let b = find(&mut parent, 256); parent[a as usize] = b; }
        if k == n - 1 { let a = find(&mut parent, id(c, r)); let b = find(&mut parent, 257); parent[a as usize] = b; }
    } }
    let empty = |c: i32, r: i32, used: &[u16; 16]| c >= 0 && r >= 0 && c < n && r < n && (pos.empty_in(r as usize) & !used[r as usize]) >> c & 1 == 1;
    for r in 0..n { for c in 0..n { if !stone(c, r) { continue; }
        let mut link = |to: u16, (c1, r1): (i32, i32), (c2, r2): (i32, i32), used: &mut [u16; 16]| {
            if empty(c1, r1, used) && empty(c2, r2, used) {
                let a = find(&mut parent, id(c, r)); let b = find(&mut parent, to);
                if a != b { parent[a as usize] = b; used[r1 as usize] |= 1 << c1; used[r2 as usize] |= 1 << c2; out.push((id(c1, r1) as u8, id(c2, r2) as u8)); }
            }
        };
        // edge bridges
        if black {
            if r == 1 { link(256, (c, 0), (c + 1, 0), used); }
            if r == n - 2 { link(257, (c, n - 1), (c - 1, n - 1), used); }
        } else {
            if c == 1 { link(256, (0, r), (0, r + 1), used); }
            if c == n - 2 { link(257, (n - 1, r), (n - 1, r - 1), used); }
        }
        // bridges: (c+1,r+1) via (c+1,r),(c,r+1); (c-1,r+2) via (c,r+1),(c-1,r+1); (c-2,r+1) via (c-1,r),(c-1,r+1)
        if stone(c + 1, r + 1) { link(id(c + 1, r + 1), (c + 1, r), (c, r + 1), used); }
        if stone(c - 1, r + 2) { link(id(c - 1, r + 2), (c, r + 1), (c - 1, r + 1), used); }
        if stone(c - 2, r + 1) { link(id(c - 2, r + 1), (c - 1, r), (c - 1, r + 1), used); }
    } }
    find(&mut parent, 256) == find(&mut parent, 257)
}

pub type Set = [u64; 4];
pub fn has(s: &Set, i: u8) -> bool { s[(i >> 6) as usize] >> (i & 63) & 1 == 1 }
pub fn put(s: &mut Set, i: u8) { s[(i >> 6) as usize] |= 1 << (i & 63); }
fn un(a: Set, b: Set) -> Set { std::array::from_fn(|i| a[i] | b[i]) }
fn and(a: Set, b: Set) -> Set { std::array::from_fn(|i| a[i] & b[i]) }
fn pack(rows: &[u16; 16]) -> Set { std::array::from_fn(|w| (0..4).fold(0, |b, i| b | (rows[4 * w + i] as u64) << (16 * i))) }
const NB: [(i32, i32); 6] = [(1, 0), (0, 1), (-1, 1), (-1, 0), (0, -1), (1, -1)];
const BR: [((i32, i32), (i32, i32), (i32, i32)); 6] = [
    ((1, 1), (1, 0), (0, 1)), ((-1, 2), (0, 1), (-1, 1)), ((-2, 1), (-1, 1), (-1, 0)),
    ((-1, -1), (-1, 0), (0, -1)), ((1, -2), (0, -1), (1, -1)), ((2, -1), (1, -1), (1, 0))];

struct Side { linked: Set, parent: [u8; 256], carriers: Vec<Set> }

pub struct Found { pub win: bool, pub semis: usize, pub must: Set }

/// What `player` threatens: `win` if he wins even with the other to move
pub fn threats(pos: &Position, player: Player) -> Found {
    let n = pos.size() as i32;
    let stones = pack(&pos.stones[player as usize]);
    let mut empty16 = [0u16; 16];
    for r in 0..n as usize { empty16[r] = pos.empty_in(r); }
    let empty = pack(&empty16);
    let black = player == Player::First;
    let at = |c: i32, r: i32| if c >= 0 && r >= 0 && c < n && r < n { Some((r * 16 + c) as u8) } else { None };
    let mut used: Set = [0; 4];
    let free = |c: Option<u8>, used: &Set| c.filter(|&c| has(&empty, c) && !has(used, c));
    // edge-bridge cells for cell (c, r) to edge k
    let edge = |c: i32, r: i32, k: usize| -> (bool, Option<(Option<u8>, Option<u8>)>) {
        let d = if black { r } else { c };
        let (d, near) = if k == 0 { (d, 0) } else { (n - 1 - d, n - 1) };
        if d == 0 { return (true, None); }
        if d == 1 { let s = if k == 0 { 1 } else { -1 };
            return (false, Some(if black { (at(c, near), at(c + s, near)) } else { (at(near, r), at(near, r + s)) })); }
        (false, None)
    };
    let mut sides: Vec<Side> = vec![];
    for k in 0..2 {
        let mut side = Side { linked: [0; 4], parent: [255; 256], carriers: vec![[0; 4]] };
        let mut queue: Vec<(u8, usize)> = vec![]; // stone, carrier index
        for r in 0..n { for c in 0..n { let i = at(c, r).unwrap(); if has(&stones, i) && edge(c, r, k).0 { if !has(&side.linked, i) { put(&mut side.linked, i); side.parent[i as usize] = 0; queue.push((i, 0)); } } } }
        let mut head = 0;
        let mut edges_done = false;
        loop {
            while head < queue.len() {
                let (i, ci) = queue[head]; head += 1;
                let (c, r) = ((i & 15) as i32, (i >> 4) as i32);
                for (dc, dr) in NB { if let Some(j) = at(c + dc, r + dr) && has(&stones, j) && !has(&side.linked, j) { put(&mut side.linked, j); side.parent[j as usize] = ci as u8; queue.push((j, ci)); } }
            }
            // bridges from linked stones
            let mut grew = false;
            let mut h2 = 0;
            while h2 < queue.len() {
                let (i, ci) = queue[h2]; h2 += 1;
                let (c, r) = ((i & 15) as i32, (i >> 4) as i32);
                for ((tc, tr), (ac, ar), (bc, br)) in BR {
                    if let Some(j) = at(c + tc, r + tr) && has(&stones, j) && !has(&side.linked, j)
                        && let Some(a) = free(at(c + ac, r + ar), &used) && let Some(b) = free(at(c + bc, r + br), &used) {
                        put(&mut used, a); put(&mut used, b);
                        let mut ca = side.carriers[ci]; put(&mut ca, a); put(&mut ca, b);
                        side.carriers.push(ca);
                        put(&mut side.linked, j); side.parent[j as usize] = (side.carriers.len() - 1) as u8; queue.push((j, side.carriers.len() - 1));
                        grew = true; break;
                    }
                }
                if grew { break; }
            }
            if grew { continue; }
            if !edges_done {
                edges_done = true;
                for r in 0..n { for c in 0..n { let i = at(c, r).unwrap(); if has(&stones, i) && !has(&side.linked, i) { if let (false, Some((a, b))) = edge(c, r, k) && let Some(a) = free(a, &used) && let Some(b) = free(b, &used) {
                    put(&mut used, a); put(&mut used, b); let mut ca = [0; 4]; put(&mut ca, a); put(&mut ca, b); side.carriers.push(ca);
                    put(&mut side.linked, i); side.parent[i as usize] = (side.carriers.len() - 1) as u8; queue.push((i, side.carriers.len() - 1)); head = queue.len() - 1;
                    // flood at once to keep it simple
                    let mut st = vec![i]; while let Some(q) = st.pop() { let (c, r) = ((q & 15) as i32, (q >> 4) as i32); for (dc, dr) in NB { if let Some(j) = at(c + dc, r + dr) && has(&stones, j) && !has(&side.linked, j) { put(&mut side.linked, j); side.parent[j as usize] = side.parent[i as usize]; queue.push((j, side.carriers.len() - 1)); st.push(j); } } }
                } } } }
                continue;
            }
            break;
        }
        // reached the other edge?
        for &(i, _) in &queue { let (c, r) = ((i & 15) as i32, (i >> 4) as i32); let o = edge(c, r, 1 - k);
            if o.0 { return Found { win: true, semis: 0, must: [0; 4] }; }
            if let Some((a, b)) = o.1 && free(a, &used).is_some() && free(b, &used).is_some() { return Found { win: true, semis: 0, must: [0; 4] }; }
        }
        sides.push(side);
    }
    let mut must = empty; let mut semis = 0;
    for r in 0..n { for c in 0..n {
        let x = at(c, r).unwrap();
        if !has(&empty, x) || has(&used, x) { continue; }
        let mut links: [Vec<Set>; 2] = [vec![], vec![]];
        for k in 0..2 {
            let s = &sides[k];
            let e = edge(c, r, k);
            if e.0 { links[k].push([0; 4]); }
            for (dc, dr) in NB { if let Some(j) = at(c + dc, r + dr) && has(&s.linked, j) { links[k].push(s.carriers[s.parent[j as usize] as usize]); } }
            if let Some((a, b)) = e.1 && let Some(a) = free(a, &used) && let Some(b) = free(b, &used) { let mut ca = [0; 4]; put(&mut ca, a); put(&mut ca, b); links[k].push(ca); }
            for ((tc, tr), (ac, ar), (bc, br)) in BR {
                if let Some(j) = at(c + tc, r + tr) && has(&s.linked, j) && let Some(a) = free(at(c + ac, r + ar), &used) && let Some(b) = free(at(c + bc, r + br), &used) {
                    let mut ca = s.carriers[s.parent[j as usize] as usize]; put(&mut ca, a); put(&mut ca, b); links[k].push(ca);
                }
            }
        }
        for a in &links[0] { for b in &links[1] { if and(*a, *b) == [0; 4] { let mut ca = un(*a, *b); put(&mut ca, x); must = and(must, ca); semis += 1; } } }
    } }
    Found { win: semis > 0 && must == [0; 4], semis, must }
}
