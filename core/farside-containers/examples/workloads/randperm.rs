//! A random permutation by throwing darts (bale's *randperm*): every dart goes to a random slot of
//! a board with more slots than darts, and is thrown again if the slot is taken. The darts in the
//! order of their slots are the permutation.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use farside::prelude::*;
use farside_containers::{Exchange, Items, Sender};

use super::common::{Clock, Random, counted_before, owned, place};

/// Checks that every number is in the permutation once. Darts are their numbers plus 1.
fn check(me: &Worker, all: u32, part: impl Iterator<Item = u32>) -> farside::Result<()> {
    let seen = me.global_array::<u32>(all as usize)?;
    for dart in part {
        seen.at(dart as usize - 1)?.fetch_add(me, 1)?;
    }
    me.barrier()?;
    assert!(seen.local(me).iter().all(|times| times == 1), "every number is there once");
    seen.free(me)
}

/// One word at a time: darts claim slots with compare-and-swap.
pub(crate) fn agp(me: &Worker, [darts, slots_per_dart]: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let all = darts * me.worker_count();
    let board = me.global_array::<u32>((all * slots_per_dart) as usize)?;
    let permutation = me.global_array::<u32>(all as usize)?;
    let mut random = Random::new(clock.settings.seed, me.id().number());
    let work = |_| {
        board.local(me).fill(0);
        me.barrier()?;
        for dart in owned(me, all) {
            while board.at(random.below(all * slots_per_dart) as usize)?.compare_swap(me, 0, dart + 1)? != 0 {}
        }
        me.barrier()?;
        let standing: Vec<u32> = board.local(me).iter().filter(|dart| *dart != 0).collect();
        let first = counted_before(me, standing.len() as u64)?;
        for (place, dart) in (first as usize..).zip(standing) {
            permutation.put(me, place, dart)?;
        }
        me.barrier()?;
        Ok(darts.into())
    };
    let check = |_| {
        check(me, all, permutation.local(me).iter())?;
        // The next round must make all of it.
        permutation.local(me).fill(0);
        Ok(())
    };
    clock.time(me, work, check)?;
    permutation.free(me)?;
    board.free(me)
}

/// With exchanges: the owner of a slot that is taken throws the dart again.
pub(crate) fn exchange(me: &Worker, [darts, slots_per_dart]: [u32; 2], clock: &Clock<'_>) -> farside::Result<()> {
    let all = darts * me.worker_count();
    let throw = move |me: &Worker, sender: &Sender<'_, (u32, u32)>, random: &mut Random, dart| {
        let (owner, slot) = place(me, random.below(all * slots_per_dart));
        sender.push(owner, (slot, dart))
    };
    let board = Rc::new(RefCell::new(vec![0; (darts * slots_per_dart) as usize]));
    let throwing = Rc::new(OnceCell::new());
    let (slots, again) = (board.clone(), throwing.clone());
    let random_again = RefCell::new(Random::new(clock.settings.seed, u32::MAX - me.id().number()));
    let exchange = clock.exchange(me, move |me, darts: Items<'_, (u32, u32)>| {
        let exchange: &Exchange<_> = again.get().expect("no dart is thrown before");
        let (sender, mut slots, mut random) = (exchange.on(me), slots.borrow_mut(), random_again.borrow_mut());
        for (slot, dart) in darts {
            match &mut slots[slot as usize] {
                free @ 0 => *free = dart,
                // In a handler a push keeps what it cannot send.
                _ => throw(me, &sender, &mut random, dart).unwrap_or_default(),
            }
        }
    })?;
    throwing.set(exchange).expect("it is set once");
    let permutation = Rc::new(RefCell::new(Vec::new()));
    let part = permutation.clone();
    let placing = clock.exchange(me, move |_, placed: Items<'_, (u32, u32)>| {
        let mut part = part.borrow_mut();
        placed.for_each(|(place, dart)| part[place as usize] = dart);
    })?;
    let mut random = Random::new(clock.settings.seed, me.id().number());
    let work = |_| {
        board.borrow_mut().fill(0);
        *permutation.borrow_mut() = vec![0; darts as usize];
        me.barrier()?;
        let sender = exchange.on(me);
        for dart in owned(me, all) {
            throw(me, &sender, &mut random, dart + 1)?;
        }
        me.quiesce()?;
        let board = board.borrow();
        let standing = || board.iter().filter(|dart| **dart != 0);
        let first = counted_before(me, standing().count() as u64)?;
        let sender = placing.on(me);
        for (index, dart) in (first as u32..).zip(standing()) {
            let (owner, place) = place(me, index);
            sender.push(owner, (place, *dart))?;
        }
        me.quiesce()?;
        Ok(darts.into())
    };
    clock.time(me, work, |_| check(me, all, permutation.take().into_iter()))
}
