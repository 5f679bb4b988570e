//! The examples with several processes, and their output.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of an example of this package, which lies next to the folder of test programs.
fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let target = this.parent().and_then(Path::parent).expect("test binaries are in a folder of the target folder");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "{} is missing: build it with `cargo build -p farside --examples`", path.display());
    path
}

/// Returns the output of an example. It ends, since every wait of a job has a deadline.
fn output(name: &str) -> String {
    let output = Command::new(example(name)).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_update_is_lost_with_the_lock_service() {
    assert_eq!(output("lock_service"), "800 of 800 updates are in the file\n");
}

mod deep {
    use super::*;

    #[test]
    fn the_pipe_brings_the_value_and_gives_the_buffer_back() {
        let text = output("pipe");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let fetched = format!("fetched 1048576 bytes, whose sum is {}", 7 << 20);
        let heap = ["all of the heap is free", "read 42 from a block of the heap"];
        assert_eq!(lines, ["1048576 bytes are the writer's again", heap[0], &fetched, heap[1], "received 42"]);
    }

    #[test]
    fn all_buffers_of_the_demonstration_arrive() {
        let text = output("demonstration");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        // Each sends 1 + (37 i mod 4096) bytes, for i from 0 to 9999.
        let bytes: u64 = (0..10_000_u64).map(|operation| 1 + operation * 37 % 4096).sum();
        let wanted: Vec<String> = (0..4).map(|worker| format!("worker {worker} sent {bytes} bytes")).collect();
        assert_eq!(lines, wanted);
    }

    #[test]
    fn thieves_count_every_node_once() {
        let text = output("work_stealing");
        let first = text.lines().next().unwrap();
        let numbers: Vec<u64> = first.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [nodes, workers, alone] = numbers[..] else { panic!("{text}") };
        assert_eq!((nodes, workers), (alone, 4), "{text}");
        assert!(nodes > 100_000, "{text}");
        assert_eq!(text.lines().count(), 5, "{text}");
    }

    #[test]
    fn heat_flows_as_in_one_thread() {
        const SIZE: usize = 128;
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stencil.pgm");
        let output = Command::new(example("stencil")).arg(&path).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let picture = std::fs::read(&path).unwrap();
        let pixels = picture.strip_prefix(format!("P5\n{SIZE} {SIZE} 255\n").as_bytes()).unwrap();

        let mut now = vec![[0.0_f64; SIZE]; SIZE];
        now[0] = [255.0; SIZE];
        for _ in 0..1000 {
            let mut next = now.clone();
            for row in 1..SIZE - 1 {
                for column in 1..SIZE - 1 {
                    let vertical = now[row - 1][column] + now[row + 1][column];
                    next[row][column] = (vertical + (now[row][column - 1] + now[row][column + 1])) * 0.25;
                }
            }
            now = next;
        }
        let wanted: Vec<u8> = now.iter().flatten().map(|heat| heat.round() as u8).collect();
        assert!(pixels == wanted, "the picture is another one");
        assert!(wanted[10 * SIZE + 64] > 150 && wanted[120 * SIZE + 64] < 50, "heat comes from above");
    }

    #[test]
    fn every_node_is_in_the_linked_list_once() {
        let text = output("linked_list");
        let nodes = 4 * 500_u64;
        let first = format!("{nodes} nodes, whose values add up to {}; all agree: true", nodes * (nodes - 1) / 2);
        assert_eq!(text.lines().next(), Some(&*first), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
