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
