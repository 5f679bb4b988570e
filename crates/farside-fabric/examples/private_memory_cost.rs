//! What an access to another process's private memory costs beside the bare system call.
//!
//! ```sh
//! cargo run --release -p farside-fabric --example private_memory_cost
//! ```
//!
//! The two are measured in turns, in batches; the medians are printed, in nanoseconds, with the share of the time that is the system's.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_fabric::shm::{ShmConfig, ShmEndpoint};
use farside_fabric::{PrivateMemory, ProcessId, RemoteKey, RemoteRegion, Transport};
use farside_sys::process_memory;

const BYTES: usize = 1 << 20;
const ROUNDS: usize = 41;

fn open(process: u32, job_id: u64) -> Result<Arc<ShmEndpoint>> {
    let process = ProcessId::new(process);
    let (secret, starter_bytes) = ([1; 16], 4096);
    let config = ShmConfig { process, process_count: 2, job_id, secret, starter_bytes, private_by_system_call: true };
    ShmEndpoint::open(config).map_err(Error::other)
}

/// The process whose memory it is: serves until its standard input ends.
fn own(job_id: u64) -> Result<()> {
    let end = open(0, job_id)?;
    let region = end.register_private(Arc::new(PrivateMemory::owned(vec![1; BYTES]))).map_err(Error::other)?;
    println!("{} {}", region.key().slot, region.memory().base().as_ptr().addr());
    let service = end.clone();
    std::thread::spawn(move || {
        loop {
            service.wait(&[], Some(Instant::now() + Duration::from_secs(1)));
            service.progress();
        }
    });
    std::io::stdin().read_line(&mut String::new()).map(drop)
}

/// Nanoseconds for one of so many.
fn time(count: usize, mut access: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..count {
        access()?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / count as f64)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(region: &RemoteRegion, pid: i32, address: usize, bytes: usize) -> Result<()> {
    let mut data = vec![7; bytes];
    let (count, deadline) = ((4 << 20) / (bytes + 2000), Instant::now() + Duration::from_secs(60));
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        // SAFETY: the child offers this memory, and nothing else looks at it.
        times[0].push(time(count, || unsafe { process_memory::write(pid, address, black_box(&data)) }.map(drop))?);
        times[1].push(time(count, || region.put(0, black_box(&data), deadline).map_err(Error::other))?);
        times[2].push(time(count, || process_memory::read(pid, address, black_box(&mut data)).map(drop))?);
        times[3].push(time(count, || region.get(0, black_box(&mut data), deadline).map_err(Error::other))?);
    }
    let [write, put, read, get] = times.map(median);
    println!(
        "{bytes} B: put {put:.0}, write {write:.0}, ratio {:.3}; get {get:.0}, read {read:.0}, ratio {:.3}",
        write / put,
        read / get
    );
    Ok(())
}

fn main() -> Result<()> {
    let job_id = std::env::args().nth(1).map(|word| word.parse().map_err(Error::other)).transpose()?;
    if let Some(job_id) = job_id {
        return own(job_id);
    }
    let job_id = u64::from(std::process::id()) << 20;
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.arg(job_id.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it was piped")).read_line(&mut line)?;
    let numbers: Vec<usize> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [slot, address] = numbers[..] else { return Err(Error::other("the owner has not begun")) };
    let end = open(1, job_id)?;
    let key = RemoteKey { slot: slot as u32, bytes: BYTES as u64, ..RemoteKey::starter(ProcessId::new(0), 0) };
    let region = end.attach(key, Instant::now() + Duration::from_secs(10)).map_err(Error::other)?;
    for bytes in [8, 64, 4096, 64 << 10, BYTES] {
        measure(&region, child.id() as i32, address, bytes)?;
    }
    child.stdin.take().expect("it was piped").write_all(b"\n")?;
    child.wait().map(drop)
}
