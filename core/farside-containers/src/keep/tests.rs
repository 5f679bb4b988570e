//! Processes that are really killed between two operations on the files of a snapshot.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicI64, Ordering};
use std::{env, fs, thread};

use farside::{Error, LaunchError, ProcessEnd, Result, Worker, simulate};

use super::{restore, save};

/// The number of operations after which this process is killed.
static STEPS_LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

/// Follows each operation on a file.
pub(super) fn step() {
    if STEPS_LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        let killed = Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
        assert!(killed.is_ok(), "{killed:?}");
        loop {
            thread::park();
        }
    }
}

const PROCESSES: u32 = 3;
/// More than a block of a part.
const ITEMS: usize = 20_000;

/// The task of a job, and the reports of its survivors, in files: its processes are programs of
/// their own.
struct Folder(PathBuf);

/// A folder that is removed when this is dropped.
struct Removed<'f>(&'f Folder);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0.0);
    }
}

impl Folder {
    fn snapshot(&self) -> PathBuf {
        self.0.join("items")
    }

    /// Tells a job which process dies after which operation, and the number to save.
    fn plan(&self, victim: u32, step: i64, number: u64) {
        fs::write(self.0.join("plan"), format!("{victim} {step} {number}")).unwrap();
    }

    fn planned(&self) -> (u32, i64, u64) {
        let plan = fs::read_to_string(self.0.join("plan")).unwrap();
        let mut words = plan.split(' ');
        let mut word = || words.next().expect("three words");
        (word().parse().unwrap(), word().parse().unwrap(), word().parse().unwrap())
    }

    fn report(&self, process: u32) -> PathBuf {
        self.0.join(format!("report-{process}"))
    }
}

/// Saves items, and reports how that ended.
fn work(me: &Worker, folder: &Folder) -> Result<()> {
    let (victim, step, number) = folder.planned();
    if me.process().number() == victim {
        STEPS_LEFT.store(step, Ordering::Relaxed);
    }
    let own = me.share(0..ITEMS);
    let saved = save(me, &folder.snapshot(), own.map(|x| Ok((x as u64, number))));
    let report = match &saved {
        Ok(_) => "saved".into(),
        Err(Error::PeerLost { process, .. }) => format!("lost {}", process.number()),
        Err(error) => error.to_string(),
    };
    fs::write(folder.report(me.process().number()), report).unwrap();
    // A survivor that ends early is lost to the others.
    let survivors = (0..PROCESSES).filter(|process| *process != victim);
    me.wait_while_serving(|| survivors.clone().all(|survivor| folder.report(survivor).exists()))?;
    saved.map(drop)
}

/// Returns the number that all items of the snapshot have.
fn saved_number(path: &Path) -> u64 {
    let numbers = std::sync::Mutex::new(Vec::new());
    let read = simulate(2, 1, 1, |me| {
        let take = |(_, number): (u64, u64)| {
            numbers.lock().unwrap().push(number);
            Ok(())
        };
        restore(me, path, take).map(drop)
    });
    read.expect("a whole snapshot");
    let numbers = numbers.into_inner().unwrap();
    assert_eq!(numbers.len(), ITEMS);
    assert!(numbers.iter().all(|number| *number == numbers[0]), "items of two snapshots");
    numbers[0]
}

/// Kills the first worker, which writes the list, and another one, after each of their operations
/// on files. The earlier snapshot stays, or the new one is there.
#[test]
fn a_snapshot_outlives_its_writers() {
    const TEST: &str = "keep::tests::a_snapshot_outlives_its_writers";
    let launcher = env::var("FARSIDE_LAUNCHER");
    let is_launcher = launcher.is_err();
    let launcher = launcher.unwrap_or_else(|_| std::process::id().to_string());
    let folder = Folder(env::temp_dir().join(format!("farside-keep-kills-{launcher}")));
    let run = || {
        let job = farside::job().processes(PROCESSES).force_fabric("shm".parse().expect("a transport"));
        let job = job.entry([TEST, "--exact", "--nocapture", "--test-threads=1"]).quiet_stdout();
        job.time_limit(farside_testbed::limit()).run(|me| work(me, &folder))
    };
    if !is_launcher {
        exit(run().is_err().into());
    }
    // A killed test may have left a folder of this name.
    let _ = fs::remove_dir_all(&folder.0);
    fs::create_dir(&folder.0).unwrap();
    let _removed = Removed(&folder);
    folder.plan(PROCESSES, 0, 0);
    run().unwrap();
    let mut earlier = saved_number(&folder.snapshot());
    for victim in [0, 1] {
        let (mut kept, mut replaced) = (0, 0);
        for step in 1.. {
            let next = earlier + 1;
            folder.plan(victim, step, next);
            (0..PROCESSES).for_each(|process| drop(fs::remove_file(folder.report(process))));
            let verdict = run();
            if verdict.is_ok() {
                assert_eq!(saved_number(&folder.snapshot()), next);
                earlier = next;
                break;
            }
            let Err(Error::Launch(LaunchError::ProcessFailed { process, how: ProcessEnd::Killed(_) })) = verdict else {
                panic!("{verdict:?}");
            };
            assert_eq!(process.number(), victim);
            let found = saved_number(&folder.snapshot());
            assert!(found == earlier || found == next, "{found} after {earlier}");
            *(if found == earlier { &mut kept } else { &mut replaced }) += 1;
            earlier = found;
            for survivor in (0..PROCESSES).filter(|process| *process != victim) {
                let report = fs::read_to_string(folder.report(survivor)).expect("a survivor comes to its end");
                assert!(report == format!("lost {victim}") || report == "saved", "{survivor}: {report}");
            }
        }
        // The first worker replaces the list. The snapshot of the other one's death is not
        // complete.
        assert!(kept > 4 && (replaced > 0) == (victim == 0), "{kept} kept, {replaced} replaced");
    }
}
