//! Null calls of 8 bytes between two processes with other libraries. Prints a line for each run:
//! the peer, the metric, its unit and the value. See `peers.rs` of `farside-bench`.
//!
//! ```text
//! farside-bench-rpc-peers iceoryx2|tarpc RUNS TRIPS
//! ```
//!
//! The client is this process and the server a child of it, each on a CPU of its own where there
//! are two.

use std::env::{args, current_exe};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures_util::StreamExt;
use iceoryx2::prelude::{
    Config as Iceoryx2Config, FileName, LogLevel, NodeBuilder, Path as Iceoryx2Path, SemanticString, ServiceName, ipc,
    set_log_level,
};
use tarpc::client::Config;
use tarpc::context::{self, Context};
use tarpc::serde_transport::unix;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tokio::runtime::{Builder, Runtime};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The round trips that are timed together.
const TOGETHER: u64 = 32;
/// The looks for an answer after which the client looks for its server.
const LOOKS: u64 = 1 << 22;
/// The line of a child that is ready.
const READY: &str = "ready";

fn main() -> Result<()> {
    set_log_level(LogLevel::Error);
    let arguments: Vec<String> = args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--serve", "iceoryx2", name] => serve_iceoryx2(name),
        ["--serve", "tarpc", path] => serve_tarpc(Path::new(path)),
        ["iceoryx2", runs, trips] => call_iceoryx2(runs.parse()?, trips.parse()?),
        ["tarpc", runs, trips] => call_tarpc(runs.parse()?, trips.parse()?),
        _ => Err("usage: farside-bench-rpc-peers iceoryx2|tarpc RUNS TRIPS".into()),
    }
}

/// Stays on one of the CPUs that this process may use, if there are as many, and ends with its
/// parent. A child inherits the CPUs, so the server is started before its client calls this.
fn settle(index: usize) {
    // SAFETY: a set of CPUs is plain words, for which zero is valid; both calls get its size.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed);
        let cpus = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &allowed));
        if let Some(cpu) = cpus.skip(index).next() {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &one);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
    }
}

/// The server, which is asked to end when this is dropped.
struct Server(Child);

impl Server {
    fn start(peer: &str, place: &str) -> Result<Self> {
        let mut command = Command::new(current_exe()?);
        let mut child = Self(command.args(["--serve", peer, place]).stdout(Stdio::piped()).spawn()?);
        let mut said = String::new();
        BufReader::new(child.0.stdout.take().ok_or("no output")?).read_line(&mut said)?;
        if said.trim() == READY { Ok(child) } else { Err(format!("the server of {peer} does not start").into()) }
    }

    fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits until it has ended by itself.
    fn wait(mut self) -> Result<()> {
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.is_running() {
            // SAFETY: the child was not waited for, so the number is its own.
            unsafe { libc::kill(self.0.id().cast_signed(), libc::SIGTERM) };
        }
        let _ = self.0.wait();
    }
}

fn print(peer: &str, mut batches: Vec<f64>) {
    batches.sort_by(f64::total_cmp);
    println!("{peer} rtt_ns ns {}", batches[batches.len() / 2]);
}

/// The files of iceoryx2 with this name, which it would leave behind.
struct Traces(String);

impl Traces {
    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(name)
    }

    fn config(name: &str) -> Result<Iceoryx2Config> {
        let mut config = Iceoryx2Config::default();
        config.global.prefix = FileName::new(name.as_bytes())?;
        config.global.set_root_path(&Iceoryx2Path::new(Self::folder(name).to_str().ok_or("no text")?.as_bytes())?);
        Ok(config)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(Self::folder(&self.0));
        let shared = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        for file in shared.filter(|file| file.file_name().to_string_lossy().starts_with(&self.0)) {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

fn call_iceoryx2(runs: u64, trips: u64) -> Result<()> {
    let traces = Traces(format!("farside-bench-{}-", std::process::id()));
    let name = &traces.0;
    let mut server = Server::start("iceoryx2", name)?;
    settle(0);
    let node = NodeBuilder::new().config(&Traces::config(name)?).create::<ipc::Service>()?;
    let service = node.service_builder(&ServiceName::new(name)?).request_response::<u64, u64>().open()?;
    let client = service.client_builder().create()?;
    let mut call = |number: u64| -> Result<u64> {
        let pending = client.loan_uninit()?.write_payload(number).send()?;
        for look in 1_u64.. {
            if let Some(response) = pending.receive()? {
                return Ok(*response);
            }
            if look.is_multiple_of(LOOKS) && !server.is_running() {
                break;
            }
        }
        Err("the server has ended".into())
    };
    // The first run warms up.
    for run in 0..=runs {
        let mut batches = Vec::new();
        for _ in 0..trips.div_ceil(TOGETHER) {
            let start = Instant::now();
            for number in 0..TOGETHER {
                assert_eq!(call(number)?, number);
            }
            batches.push(start.elapsed().as_nanos() as f64 / TOGETHER as f64);
        }
        if run > 0 {
            print("iceoryx2", batches);
        }
    }
    // The server takes it as the end, and removes what it has made.
    call(u64::MAX)?;
    server.wait()
}

fn serve_iceoryx2(name: &str) -> Result<()> {
    settle(1);
    let node = NodeBuilder::new().config(&Traces::config(name)?).create::<ipc::Service>()?;
    let service = node.service_builder(&ServiceName::new(name)?).request_response::<u64, u64>().create()?;
    let server = service.server_builder().create()?;
    println!("{READY}");
    loop {
        if let Some(request) = server.receive()? {
            let number = *request;
            request.loan_uninit()?.write_payload(number).send()?;
            if number == u64::MAX {
                return Ok(());
            }
        }
    }
}

#[tarpc::service]
trait Echo {
    async fn echo(number: u64) -> u64;
}

#[derive(Clone)]
struct Echoing;

impl Echo for Echoing {
    async fn echo(self, _: Context, number: u64) -> u64 {
        number
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A file that is removed when this is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn call_tarpc(runs: u64, trips: u64) -> Result<()> {
    let path = Removed(std::env::temp_dir().join(format!("farside-bench-tarpc-{}", std::process::id())));
    let _server = Server::start("tarpc", path.0.to_str().ok_or("a path that is no text")?)?;
    settle(0);
    runtime()?.block_on(async {
        let transport = unix::connect(&path.0, Bincode::default).await?;
        let client = EchoClient::new(Config::default(), transport).spawn();
        for run in 0..=runs {
            let mut batches = Vec::new();
            for _ in 0..trips.div_ceil(TOGETHER) {
                let start = Instant::now();
                for number in 0..TOGETHER {
                    assert_eq!(client.echo(context::current(), number).await?, number);
                }
                batches.push(start.elapsed().as_nanos() as f64 / TOGETHER as f64);
            }
            if run > 0 {
                print("tarpc", batches);
            }
        }
        Ok(())
    })
}

fn serve_tarpc(path: &Path) -> Result<()> {
    settle(1);
    runtime()?.block_on(async {
        let mut incoming = unix::listen(path, Bincode::default).await?;
        println!("{READY}");
        while let Some(transport) = incoming.next().await {
            let channel = BaseChannel::with_defaults(transport?);
            channel.execute(Echoing.serve()).for_each(|answer| answer).await;
        }
        Ok(())
    })
}
