//! Clients that come, look, change something and are killed: the job's memory, descriptors and
//! threads stay as they were.

use std::process::Stdio;
use std::time::{Duration, Instant};

use farside_inspect::{At, Inspector, Selection, Target as Wanted};
use farside_testbed::ended_with_us;

use crate::network::{Tokens, address_of};
use crate::steering::JOB;
use crate::targets::{BOARD, PART};

/// Processes of clients in all, those after which the job has everything that it needs, and the
/// clients of each.
const ROUNDS: usize = 60;
const WARM: usize = 20;
const CLIENTS: usize = 20;
/// The most KiB that allocators of threads may keep in addition.
const KIB_MAX: u64 = 4096;

/// What a process uses: descriptors, threads, and resident KiB of its own memory.
fn usage(process: u32) -> (u64, u64, u64) {
    let count = |folder: &str| std::fs::read_dir(format!("/proc/{process}/{folder}")).unwrap().count() as u64;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    (count("fd"), count("task"), resident.trim().trim_end_matches("kB").trim().parse().unwrap())
}

/// Many clients in a process that is killed: half of them by the network.
pub(crate) fn play_crowd() -> farside::Result<()> {
    let [name, address] =
        std::env::var(JOB).unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    let all = Selection::all();
    let clients: Vec<Inspector> = (0..CLIENTS)
        .map(|number| Inspector::connect(Wanted::new(if number % 2 == 0 { &*name } else { &*address })).unwrap())
        .map(|client| client.deadline(Duration::from_secs(60)))
        .collect();
    for (number, client) in clients.iter().enumerate() {
        client.open::<f64>("seen").unwrap().get(&all, At::Next).unwrap();
        let _ = client.open::<u32>("board").unwrap().put(&all, &[number as u32; 2 * BOARD]);
        let _ = client.ask("echo", None, "?").unwrap();
    }
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

#[test]
#[ignore = "takes a minute: 1200 clients"]
fn clients_that_come_and_go_leave_nothing() {
    let tokens = Tokens::new("soak");
    let mut target = tokens.start("steered");
    let job = target.inspect(2);
    let names = format!("{} {}", job.job(), address_of(&target.name));
    let processes: Vec<u32> = job.found().unwrap().processes.iter().map(|about| about.system_process).collect();
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
        let until = Instant::now() + Duration::from_secs(60);
        while job.set("dt", 1.0).is_err() {
            assert!(Instant::now() < until, "the job goes on");
        }
        if round == WARM {
            before = processes.iter().map(|process| usage(*process)).collect();
        }
    }
    // The connections of the last ones have ended a moment later.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let now: Vec<_> = processes.iter().map(|process| usage(*process)).collect();
        let is_flat = |(before, now): (&(u64, u64, u64), &(u64, u64, u64))| {
            now.0 <= before.0 && now.1 <= before.1 && now.2 <= before.2 + KIB_MAX
        };
        if before.iter().zip(&now).all(is_flat) {
            eprintln!("descriptors, threads, KiB: {before:?} after {WARM} rounds, {now:?} after {ROUNDS}");
            break;
        }
        assert!(Instant::now() < until, "{before:?} before, {now:?} after");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(target.is_running());
}
