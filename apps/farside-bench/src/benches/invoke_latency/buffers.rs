//! Round trips of the forms of calls that use registered memory.

use std::hint::black_box;

use farside::{
    Comparison, GlobalPtr, Lent, On, Refused, Registered, ResultPlace, Signal, To, Worker, WorkerId, Written,
};

use super::sum_of;
use crate::kit::*;

/// The buffer is first put into the memory of the receiver. The function reads all of it there.
pub(super) fn put(me: &Worker, peer: WorkerId, trips: u64, bytes: usize) -> farside::Result<Latency> {
    let buffer = vec![1; bytes];
    let memory = me.allocate_at(me.process_of(peer), bytes as u64)?;
    let executed = me.synchronizer(0)?;
    let to = me.to(peer).notify(&executed, On::Executed);
    let latency = time_latency::<farside::Error>(trips, || {
        executed.add(1);
        to.call_buffer_put((), &buffer, (memory, 0), |there, ((), written): ((), Written)| {
            written.to_vec(there).map(|bytes| black_box(sum_of(&bytes)))
        })?;
        executed.wait()
    })?;
    me.release(memory)?;
    Ok(latency)
}

/// The receiver gets the buffer, and the function reads all of it.
pub(super) fn get(me: &Worker, peer: WorkerId, trips: u64, bytes: usize) -> farside::Result<Latency> {
    lend(me, peer, trips, bytes, |to, buffer| to.call_buffer_get((), buffer, |_, (), bytes| black_box(sum_of(bytes))))
}

/// The helper thread of the receiver's process gets the buffer.
pub(super) fn get_unordered(me: &Worker, peer: WorkerId, trips: u64, bytes: usize) -> farside::Result<Latency> {
    lend(me, peer, trips, bytes, |to, buffer| {
        to.call_buffer_get_unordered((), buffer, |_, (), bytes| black_box(sum_of(bytes)))
    })
}

/// Lends a buffer to `call` repeatedly.
fn lend(
    me: &Worker,
    peer: WorkerId,
    trips: u64,
    bytes: usize,
    call: impl Fn(To<'_>, Registered) -> Result<Lent<'_>, Refused<Box<((), Registered)>>>,
) -> farside::Result<Latency> {
    let buffer = me.allocate(bytes)?;
    buffer.fill(1);
    let mut buffer = Some(buffer);
    let executed = me.synchronizer(0)?;
    let to = me.to(peer).notify(&executed, On::Executed);
    time_latency(trips, || {
        executed.add(1);
        let lent = call(to, buffer.take().expect("it comes back each time"));
        executed.wait()?;
        buffer = Some(lent.map_err(farside::Error::from)?.wait()?);
        Ok(())
    })
}

/// A result of eight bytes goes into memory of the caller, and a synchronizer tells the caller.
pub(super) fn call_into(me: &Worker, peer: WorkerId, trips: u64, _: usize) -> farside::Result<Latency> {
    let memory = me.allocate_at(me.process(), 64)?;
    let place = ResultPlace::<u64>::new(me, memory, 0, 16)?;
    let executed = me.synchronizer(0)?;
    let to = me.to(peer).notify(&executed, On::Executed);
    let latency = time_latency::<farside::Error>(trips, || {
        executed.add(1);
        to.call_into(7_u64, |_, number| number, place)?;
        executed.wait()?;
        black_box(place.poll(me)?);
        Ok(())
    })?;
    me.release(memory)?;
    Ok(latency)
}

/// A call adds to a word in the caller's registered memory, by a signal.
pub(super) fn countdown(me: &Worker, peer: WorkerId, trips: u64, _: usize) -> farside::Result<Latency> {
    let memory = me.allocate_at(me.process(), 64)?;
    let executed: GlobalPtr<u64> = memory.address()?.cast();
    executed.store(me, 0)?;
    let mut calls = 0;
    let latency = time_latency::<farside::Error>(trips, || {
        calls += 1;
        me.to(peer).signalling(executed, Signal::Add(1)).call((), |_, ()| ())?;
        executed.wait_until(me, Comparison::Ge, calls).map(drop)
    })?;
    me.release(memory)?;
    Ok(latency)
}
