//! The transport of a job reaches memory in which the library keeps its own state, so programs do
//! not reach the transport.

use farside::Transport;
use farside::prelude::*;
use farside::runtime::process::Process;

fn of_a_worker(me: &Worker) {
    me.transport();
}

fn of_its_memory(memory: &farside::Registered, region: &farside::RemoteRegion) {
    memory.transport();
    region.transport();
}

fn main() {}
