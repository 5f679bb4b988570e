//! The cost of the doors of a job while no reader asks.

/// These need a machine that is not busy.
mod timing {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use farside_viewer::{At, Selection};

    use crate::targets::Target;

    /// The threads of a process's door, and how often each was scheduled.
    fn scheduled(process: u32) -> Vec<(String, u64)> {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|task| task.unwrap().path());
        let doors = tasks.filter(|task| read(&task.join("comm")).starts_with("farside rpc"));
        let count = |task: &Path| {
            let status = read(&task.join("status"));
            let switches = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
            switches.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
        };
        let mut doors: Vec<_> = doors.map(|task| (task.display().to_string(), count(&task))).collect();
        doors.sort();
        doors
    }

    /// Waits for a second in which no thread of a door was scheduled. A thread that wakes every
    /// second would never let it pass.
    fn is_idle(processes: &[u32]) -> bool {
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            let before: Vec<_> = processes.iter().map(|process| scheduled(*process)).collect();
            assert!(before.iter().all(|doors| !doors.is_empty()), "each process has a door");
            std::thread::sleep(Duration::from_secs(1));
            let after: Vec<_> = processes.iter().map(|process| scheduled(*process)).collect();
            if before == after {
                return true;
            }
        }
        false
    }

    #[test]
    fn doors_sleep_while_no_reader_asks() {
        let (mut target, job) = Target::inspected("pattern", 2);
        let processes: Vec<u32> = job.found().unwrap().processes.iter().map(|about| about.system_process).collect();
        job.open::<u64>("pattern").unwrap().get(&Selection::all(), At::Next).unwrap();
        assert!(is_idle(&processes), "a reader is connected, and asks nothing");
        drop(job);
        assert!(is_idle(&processes), "the reader has gone");
        assert!(target.is_running());
    }
}
