//! Clients that come, look, change something and are killed: the job's memory, descriptors and
//! threads stay as they were.

use std::process::Stdio;

use farside_testbed::{Holdings, ended_with_us, wait_until};
use farside_viewer::{At, Inspector, Selection};

use crate::network::{Tokens, address_of};
use crate::steering::JOB;
use crate::targets::{BOARD, PART, Target, connect};

/// Processes of clients in all, those after which the job has everything that it needs, and the
/// clients of each.
const ROUNDS: usize = 60;
const WARM: usize = 20;
const CLIENTS: usize = 20;
/// The number of copies that a view has for its readers.
const COPIES: usize = 3;
/// The most bytes that allocators of threads may keep in addition.
const KEPT_BYTES_MAX: u64 = 4 << 20;

/// The holdings of processes.
pub(crate) fn holdings(processes: &[u32]) -> Vec<Holdings> {
    processes.iter().map(|process| Holdings::of(&process.to_string())).collect()
}

/// Waits until processes have no more than before, but for what allocators keep.
pub(crate) fn wait_until_flat(processes: &[u32], before: &[Holdings]) {
    let is_flat = |(before, now): (&Holdings, &Holdings)| {
        now.descriptors <= before.descriptors
            && now.threads <= before.threads
            && now.memory_bytes <= before.memory_bytes + KEPT_BYTES_MAX
    };
    wait_until(&format!("no more than after the first rounds, {before:?}"), || {
        let now = holdings(processes);
        let are_flat = before.iter().zip(&now).all(is_flat);
        // Captured unless the test fails.
        println!("{before:?} before, {now:?} after");
        are_flat
    });
}

/// Many clients in a process that is killed: half of them by the network.
pub(crate) fn play_crowd() -> farside::Result<()> {
    let [name, address, wide] =
        std::env::var(JOB).unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    let all = Selection::all();
    let clients: Vec<Inspector> =
        (0..CLIENTS).map(|number| connect(if number % 2 == 0 { &*name } else { &*address })).collect();
    for (number, client) in clients.iter().enumerate() {
        client.open::<f64>("seen").unwrap().get(&all, At::Next).unwrap();
        let _ = client.open::<u32>("board").unwrap().put(&all, &[number as u32; 2 * BOARD]);
        let _ = client.ask("echo", None, "?").unwrap();
    }
    // Others keep steps that they map.
    let wide = connect(&*wide);
    let wide = wide.open::<f64>("wide").unwrap();
    let _pinned: Vec<_> = (0..2).map(|_| wide.pin_all(&all, At::Next).unwrap()).collect();
    // One pauses the job, and others wait for steps, when all are killed.
    let _paused = clients[0].pause_at(At::Next).unwrap();
    let waiting: Vec<_> = clients[1..]
        .iter()
        .map(|client| {
            let seen = client.open::<f64>("seen").unwrap();
            std::thread::spawn(move || seen.get(&Selection::all(), At::Next))
        })
        .collect();
    println!("ready");
    waiting.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

/// It takes a minute: 1200 clients.
mod deep {
    use super::*;

    #[test]
    fn clients_that_come_and_go_leave_nothing() {
        let tokens = Tokens::new("soak");
        let mut target = tokens.start("steered");
        let job = target.inspect(2);
        let mut wide = Target::start("wide", &[]);
        let mapped = wide.inspect(2);
        let names = format!("{} {} {}", job.job(), address_of(&target.name), mapped.job());
        let of = |job: &Inspector| job.found().unwrap().processes.into_iter().map(|about| about.system_process);
        let processes: Vec<u32> = of(&job).chain(of(&mapped)).collect();
        let field = mapped.open::<f64>("wide").unwrap();
        // A mapped copy takes a descriptor when it is first needed. So all copies are needed once.
        let pinned = [(); COPIES].map(|()| field.pin_all(&Selection::all(), At::Next).unwrap());
        drop(pinned);
        let mut before = Vec::new();
        for round in 0..ROUNDS {
            let mut command = ended_with_us(std::env::current_exe().unwrap());
            command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::piped());
            command.env(PART, "crowd").env(JOB, &names).env("FARSIDE_INSPECT_TOKEN_FILE", tokens.path("write"));
            let mut crowd = command.spawn().unwrap();
            let mut out = std::io::BufReader::new(crowd.stdout.take().unwrap());
            let mut line = String::new();
            while !line.contains("ready") {
                line.clear();
                assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0, "the clients have ended");
            }
            crowd.kill().unwrap();
            crowd.wait().unwrap();
            wait_until("the job goes on", || job.set("dt", 1.0).is_ok());
            if round == WARM {
                before = holdings(&processes);
            }
        }
        // The connections of the last ones have ended a moment later.
        assert!(!before.is_empty(), "there are enough rounds");
        wait_until_flat(&processes, &before);
        field.get(&Selection::all(), At::Next).unwrap();
        assert!(target.is_running() && wide.is_running());
    }
}
