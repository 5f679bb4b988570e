//! The command as ranks on two hosts. The hosts are network namespaces with a cable between them.
//! The tests kill ranks and cut the cable, and read what the other ranks print for the user.
//!
//! Ranks with even numbers are on side A, the others on side B. Two ranks use libfabric. Of four,
//! those of one side share memory.

use std::path::{Path, PathBuf};
use std::process::Command;

use farside_testbed::netns::{Pair, Rendezvous, Side};
use farside_testbed::{Echo, Running, deadline, is_left_out, limit, wait_until};

/// A search that ends only by a failure.
const ENDLESS: [&str; 6] = ["hex", "--plain", "--size", "11", "--seconds", "3600"];
/// A search that ends on its own.
const SHORT: [&str; 7] = ["hex", "--plain", "--size", "5", "--seconds", "2", "--json"];
/// Runs a program with a folder mounted over /dev/shm, so that a test sees only the files of its
/// own ranks.
const WITH_OWN_SHM: &str = r#"mount --bind "$0" /dev/shm && exec "$@""#;
/// The address of rank 0. The namespaces belong to the test, so every port is free.
const PORT: u16 = 7077;

/// The deadline of a job, in seconds, that must not pass.
fn patience() -> u32 {
    limit().as_secs() as u32
}

/// Two hosts, and a job on them.
struct Hosts {
    pair: Pair,
    world_size: u32,
    timeout_s: u32,
    /// The folder of the temporary files and the shared memory of the ranks.
    folders: [PathBuf; 2],
}

impl Hosts {
    /// Returns `None` if the developer left out the tests that need this bed.
    fn new(test: &str, world_size: u32, timeout_s: u32) -> Option<Self> {
        if is_left_out("netns") || is_left_out("fabric") {
            return None;
        }
        let own = format!("between-hosts-{}-{test}-{world_size}", std::process::id());
        let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
        let folders = ["tmp", "shm"].map(|name| own.join(name));
        folders.iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder for tests can be made"));
        let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
        Some(Self { pair, world_size, timeout_s, folders })
    }

    fn command(&self, rank: u32, arguments: &[&str]) -> Command {
        let side = Side::BOTH[rank as usize % 2];
        let mut command = self.pair.command(side, "unshare");
        command.args(["--mount", "--", "sh", "-c", WITH_OWN_SHM]).arg(&self.folders[1]);
        command.arg(env!("CARGO_BIN_EXE_farside")).args(arguments).args(["--fabric", "auto"]);
        command.env("FARSIDE_TIMEOUT_S", self.timeout_s.to_string()).env("TMPDIR", &self.folders[0]);
        Rendezvous { world_size: self.world_size, master: Side::A, port: PORT, secret: "swordfish" }
            .tell(&mut command, rank);
        command
    }

    fn start_with(rank: u32, mut command: Command) -> Running {
        Running::start(&format!("rank {rank}"), &mut command, Echo::Quiet).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn start(&self, rank: u32, arguments: &[&str]) -> Running {
        Self::start_with(rank, self.command(rank, arguments))
    }

    fn start_all(&self, arguments: &[&str]) -> Vec<Running> {
        (0..self.world_size).map(|rank| self.start(rank, arguments)).collect()
    }

    /// Starts an endless search on all ranks, and waits until the connections of libfabric are
    /// complete.
    fn search(&self) -> Vec<Running> {
        let mut ranks = self.start_all(&ENDLESS);
        // The connections of each odd rank with each even one cross the cable.
        let (even, odd) = (self.world_size.div_ceil(2), self.world_size / 2);
        wait_until("the ranks are connected", || {
            for rank in &mut ranks {
                assert!(rank.status().is_none(), "{}", rank.failure("it does not search"));
            }
            self.fabric_connections() >= odd * even
        });
        ranks
    }

    /// The established connections of libfabric over the cable, without those of the rendezvous.
    fn fabric_connections(&self) -> u32 {
        let mut command = self.pair.command(Side::A, "cat");
        command.args(["/proc/net/tcp", "/proc/net/tcp6"]);
        let tables = farside_testbed::run("cat /proc/net/tcp", &mut command, limit()).unwrap();
        // The second and third words are the addresses of the two sides with their ports, in the
        // byte order of this machine. State 01 means established.
        let (other, port) =
            (format!("{:08X}:", u32::from_ne_bytes(Side::B.address().octets())), format!(":{PORT:04X}"));
        let is_fabric = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().skip(1).take(3).collect();
            matches!(words[..], [here, there, "01"] if there.contains(&other) && !here.ends_with(&port) && !there.ends_with(&port))
        };
        tables.lines().filter(is_fabric).count() as u32
    }

    /// Waits for the end of all ranks, and asserts that they left nothing.
    fn ends(self, mut ranks: Vec<Running>) -> Vec<Report> {
        let deadline = deadline();
        let wait = |rank: &mut Running| {
            let status = rank.wait(deadline).unwrap_or_else(|failure| panic!("{failure}"));
            Report { status: status.code(), text: rank.printed() }
        };
        let reports = ranks.iter_mut().map(wait).collect();
        assert_eq!(self.pair.processes(), [0; 0], "processes are left: {reports:?}");
        for folder in &self.folders {
            let left: Vec<_> = std::fs::read_dir(folder).expect("the folder is there").collect();
            assert!(left.is_empty(), "{left:?} are left in {}", folder.display());
        }
        reports
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        if let Some(own) = self.folders[0].parent() {
            let _ = std::fs::remove_dir_all(own);
        }
    }
}

/// The end of a rank.
#[derive(Debug)]
struct Report {
    /// The exit status; `None` if the rank was killed.
    status: Option<i32>,
    text: String,
}

/// Asserts that a rank failed and was not killed, and printed these words.
#[track_caller]
fn assert_failed(report: &Report, words: &[&str]) {
    assert_eq!(report.status, Some(1), "{report:?}");
    for word in words {
        assert!(report.text.contains(word), "{word:?} is missing in {report:?}");
    }
}

mod deep {
    use super::*;

    #[test]
    fn ranks_on_two_hosts_print_one_result() {
        for world_size in [2, 4] {
            let Some(hosts) = Hosts::new("result", world_size, patience()) else { return };
            let ranks = hosts.start_all(&SHORT);
            let reports = hosts.ends(ranks);
            assert!(reports.iter().all(|report| report.status == Some(0)), "{reports:?}");
            assert!(reports[0].text.contains(&format!("\"processes\":{world_size},")), "{reports:?}");
            assert!(reports[1..].iter().all(|report| report.text.is_empty()), "{reports:?}");
        }
    }

    #[test]
    fn a_killed_rank_is_named() {
        for world_size in [2, 4] {
            let Some(hosts) = Hosts::new("killed", world_size, patience()) else { return };
            let mut ranks = hosts.search();
            ranks[1].kill();
            let reports = hosts.ends(ranks);
            assert_eq!(reports[1].status, None);
            assert_failed(&reports[0], &["farside: error: process 1 failed"]);
            // Process 0 printed the error for all.
            reports[2..].iter().for_each(|report| assert_failed(report, &[]));
            assert!(reports[1..].iter().all(|report| report.text.is_empty()), "{reports:?}");
        }
    }

    #[test]
    fn without_process_0_the_others_say_that_it_is_gone() {
        for world_size in [2, 4] {
            let Some(hosts) = Hosts::new("coordinator", world_size, patience()) else { return };
            let mut ranks = hosts.search();
            ranks[0].kill();
            let reports = hosts.ends(ranks);
            assert_eq!(reports[0].status, None);
            reports[1..].iter().for_each(|report| assert_failed(report, &["process 0, which coordinates it, is gone"]));
        }
    }

    #[test]
    fn a_cut_cable_ends_both_sides_and_each_names_the_other() {
        for world_size in [2, 4] {
            let Some(hosts) = Hosts::new("cut", world_size, 30) else { return };
            let ranks = hosts.search();
            hosts.pair.cut().unwrap();
            let reports = hosts.ends(ranks);
            assert_failed(&reports[0], &[" failed: its connection with process 0 ended", "the network was cut"]);
            let is_named = |rank: u32| reports[0].text.contains(&format!("process {rank} failed: "));
            assert!(is_named(1) || is_named(3), "{reports:?}");
            let broke = ["the connection with process 0, which coordinates it, broke"];
            for (rank, report) in reports.iter().enumerate().skip(1) {
                assert_failed(report, if rank % 2 == 1 { &broke } else { &[] });
            }
        }
    }

    #[test]
    fn a_cable_that_is_cut_before_the_start_is_an_address_that_is_not_reached() {
        let Some(hosts) = Hosts::new("cut-before", 2, 3) else { return };
        hosts.pair.cut().unwrap();
        let ranks = hosts.start_all(&ENDLESS);
        let reports = hosts.ends(ranks);
        assert_failed(&reports[0], &["of 2 processes, process 1 did not join the job within 3s"]);
        let address = format!("did not reach process 0 at {}:{PORT}", Side::A.address());
        assert_failed(&reports[1], &[&address, "MASTER_ADDR", "firewall"]);
    }

    #[test]
    fn an_address_that_others_cannot_reach_is_named() {
        let Some(hosts) = Hosts::new("address", 2, patience()) else { return };
        let first = hosts.start(0, &ENDLESS);
        let mut second = hosts.command(1, &ENDLESS);
        second.env("FARSIDE_ADDRESS", "127.0.0.1");
        let reports = hosts.ends(vec![first, Hosts::start_with(1, second)]);
        let words = ["an address that only its own machine can reach", "FARSIDE_ADDRESS"];
        assert_failed(&reports[0], &words);
        assert_eq!(reports[1].status, Some(1), "{reports:?}");
    }

    #[test]
    fn a_process_with_another_secret_is_turned_away() {
        let Some(hosts) = Hosts::new("secret", 2, 15) else { return };
        let first = hosts.start(0, &ENDLESS);
        let mut intruder = hosts.command(1, &ENDLESS);
        intruder.env("FARSIDE_SECRET", "guess");
        let intruder = Hosts::start_with(1, intruder);
        let reports = hosts.ends(vec![first, intruder]);
        assert_failed(&reports[0], &["process 1 did not join", "turned away", "another FARSIDE_SECRET"]);
        assert_failed(&reports[1], &["have different secrets", "FARSIDE_SECRET"]);
    }

    #[test]
    fn a_missing_rank_is_named() {
        let Some(hosts) = Hosts::new("absent", 3, 15) else { return };
        let ranks = [0, 1].map(|rank| hosts.start(rank, &ENDLESS));
        let reports = hosts.ends(ranks.into());
        assert_failed(&reports[0], &["of 3 processes, process 2 did not join the job within 15s"]);
        assert_failed(&reports[1], &[]);
    }

    #[test]
    fn a_port_in_use_is_named_with_the_remedy() {
        let Some(hosts) = Hosts::new("port", 2, 3) else { return };
        // Both processes are rank 0. The one that listens first makes the kernel refuse the other.
        // If both listen at the same moment, the kernel may refuse both.
        let ranks = [0, 0].map(|rank| hosts.start(rank, &ENDLESS));
        let reports = hosts.ends(ranks.into());
        let port = format!("cannot listen at port {PORT}");
        let refused: Vec<_> = reports.iter().filter(|report| report.text.contains(&port)).collect();
        assert!(!refused.is_empty(), "{reports:?}");
        refused.iter().for_each(|report| assert_failed(report, &["set FARSIDE_PORT"]));
    }
}

mod timing {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    impl Hosts {
        /// Waits until the ranks are connected and make no further connection. A connection that is
        /// being made when the cable is cut fails at once, because it finds no route. An
        /// established connection goes on when the cable is mended.
        fn await_connections(&self) {
            let (mut before, mut looks) = (0, 0);
            wait_until("the connections no longer change", || {
                let now = self.fabric_connections();
                looks = if now > 0 && now == before { looks + 1 } else { 0 };
                before = now;
                looks == 20
            });
        }
    }

    #[test]
    fn a_cable_that_is_mended_in_time_ends_no_rank() {
        let Some(hosts) = Hosts::new("mended", 2, 30) else { return };
        let ranks = hosts.start_all(&SHORT);
        hosts.await_connections();
        hosts.pair.cut().unwrap();
        sleep(Duration::from_millis(300));
        hosts.pair.reconnect().unwrap();
        let reports = hosts.ends(ranks);
        assert!(reports.iter().all(|report| report.status == Some(0)), "{reports:?}");
    }
}
