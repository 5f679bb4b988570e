//! A job on two hosts is seen from either.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use farside_sys::process::enter_network;
use farside_testbed::netns::{Pair, Rendezvous, Side, with_privileges};
use farside_testbed::{is_left_out, limit, wait_for};
use farside_viewer::{At, InspectError, Inspector, Selection};

use crate::network::{Parts, Tokens};
use crate::targets::{BOARD, PART};

/// Where process 0 listens between two hosts, whose ports are all free.
const PORT: u16 = 7078;

/// Ranks on two hosts, and what they print.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts four ranks, the even ones on side A.
fn start_ranks(pair: &Pair, tokens: &Path, part: &str) -> Ranks {
    let start = |rank: u32| {
        let mut command = pair.command(Side::BOTH[rank as usize % 2], std::env::current_exe().unwrap());
        command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::null());
        command.env(PART, part).env("FARSIDE_FABRIC", "auto").env("FARSIDE_INSPECT_TOKEN_FILE", tokens);
        command.env("FARSIDE_INSPECT", format!("tcp://*:{PORT}"));
        Rendezvous { world_size: 4, master: Side::A, port: 7077, secret: "swordfish" }.tell(&mut command, rank);
        command.spawn().unwrap()
    };
    Ranks((0..4).map(start).collect())
}

/// A reader on the second host reads and changes all processes of a job on both. Then the cable is
/// cut, and the reader hears who is silent.
mod deep {
    use super::*;
    #[test]
    fn a_job_on_two_hosts_is_seen_from_either() {
        if is_left_out("netns") || is_left_out("fabric") {
            return;
        }
        with_privileges(4 * limit(), || {
            let tokens = Tokens::new("hosts");
            let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
            let _ranks = start_ranks(&pair, &tokens.path("write"), "steered");
            let look = |side: Side| {
                enter_network(pair.namespace(side).unwrap().as_fd()).unwrap();
                let address = format!("tcp://{}:{PORT}", Side::A.address());
                let has_all = |job: &Inspector| job.find_parts("seen") == 4 && job.find_parts("acted") == 4;
                let job =
                    wait_for("a reader sees all processes", || tokens.connect(&address, "write").ok().filter(has_all));
                let all = Selection::all();
                job.open::<f64>("seen").unwrap().get(&all, At::Next).unwrap();
                job
            };
            std::thread::scope(|scope| {
                let here = scope.spawn(|| look(Side::A).found().unwrap().processes.len());
                assert_eq!(here.join().unwrap(), 4);
                let there = scope.spawn(|| {
                    let job = look(Side::B);
                    let all = Selection::all();
                    let board = job.open::<u32>("board").unwrap();
                    let changed: Vec<u32> = (0..4 * BOARD as u32).collect();
                    board.put(&all, &changed).unwrap();
                    assert_eq!(board.get(&all, At::Next).unwrap().values, changed);
                    let quick = job.deadline(Duration::from_secs(3));
                    let seen = wait_for("the area is found", || quick.open::<f64>("seen").ok());
                    pair.cut().unwrap();
                    // On a busy machine, those on this side may be late, too.
                    wait_for("who is silent is named", || match &seen.get(&all, At::Next).unwrap_err() {
                        InspectError::Silent { process, .. } | InspectError::Lost { process, .. } => {
                            (process % 2 == 0).then_some(())
                        }
                        InspectError::NotThere { late, .. } => {
                            (!late.is_empty() && late.iter().all(|late| late.process % 2 == 0)).then_some(())
                        }
                        error => panic!("{error}"),
                    });
                });
                there.join().unwrap();
            });
        });
    }
}
