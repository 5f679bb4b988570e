//! Null calls that a task awaits, compared with a ping-pong of tasks over a Unix socket. Each side
//! is a runtime of tokio with one thread.

use std::hint::black_box;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream as Blocking};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside::{Worker, WorkerId};
use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::BLOCKED_TRIPS;
use crate::kit::*;

/// The longest time of one part of a turn.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn null(me: &Worker, options: Options) -> Measured {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let count = options.operations_or(BLOCKED_TRIPS);
    let mut line = line(me, &runtime)?;
    let (ended, client) = ends(me, &runtime)?;
    let taken = in_turns(me, options, |_| {
        me.barrier()?;
        let limit_ns = runtime.block_on(within(async {
            match me.is_first() {
                true => {
                    time(count, async || {
                        line.write_all(&[7; 8]).await.map_err(failed)?;
                        line.read_exact(&mut [0; 8]).await.map(drop).map_err(failed)
                    })
                    .await
                }
                false => answer(&mut line, count).await,
            }
        }))?;
        me.barrier()?;
        let call_ns = runtime.block_on(within(async {
            let Some(client) = &client else {
                ended.notified().await;
                return Ok(0.0);
            };
            let echo = client.procedure::<u64, u64, Never>("awaited", 0, "echo");
            // The first call of a procedure asks the server for it.
            echo.start(&1).map_err(failed)?.await.map_err(failed)?;
            time(count, async || {
                black_box(echo.start(&7).map_err(failed)?.await.map_err(failed)?);
                Ok(())
            })
            .await
        }));
        if let Some(client) = &client {
            end(&runtime, client)?;
        }
        Ok([limit_ns, call_ns?])
    })?;
    Ok(taken.rows([column("rtt_ns", "ns", 1).against("tokio's Unix socket ping-pong", 0)]))
}

async fn within<T>(work: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    timeout(PATIENCE, work).await.map_err(failed)?
}

/// The median time of an operation, in batches.
async fn time(count: u64, mut operation: impl AsyncFnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let mut batches = Vec::new();
    for _ in 0..count.div_ceil(TOGETHER) {
        let start = Instant::now();
        for _ in 0..TOGETHER {
            operation().await?;
        }
        batches.push(start.elapsed().as_nanos() as f64 / TOGETHER as f64);
    }
    Ok(median(&batches))
}

async fn answer(line: &mut UnixStream, count: u64) -> Result<f64, BenchError> {
    let mut word = [0; 8];
    for _ in 0..count.div_ceil(TOGETHER) * TOGETHER {
        line.read_exact(&mut word).await.map_err(failed)?;
        line.write_all(&word).await.map_err(failed)?;
    }
    Ok(0.0)
}

/// A name of this run. Collective.
fn name(me: &Worker, what: &str) -> Result<String, BenchError> {
    let server = WorkerId::new(1);
    let number = me.broadcast(server, (me.id() == server).then(std::process::id))?;
    Ok(format!("farside-bench-{what}-{number}"))
}

/// A socket between the workers. Collective for them.
fn line(me: &Worker, runtime: &Runtime) -> Result<UnixStream, BenchError> {
    let address = SocketAddr::from_abstract_name(name(me, "line")?).map_err(failed)?;
    let listener = match me.is_first() {
        true => None,
        false => Some(UnixListener::bind_addr(&address).map_err(failed)?),
    };
    me.barrier()?;
    let stream = match listener {
        None => Blocking::connect_addr(&address).map_err(failed)?,
        Some(listener) => listener.accept().map_err(failed)?.0,
    };
    stream.set_nonblocking(true).map_err(failed)?;
    let _within = runtime.enter();
    UnixStream::from_std(stream).map_err(failed)
}

/// Starts worker 1's server, and connects worker 0's client. Collective for them.
fn ends(me: &Worker, runtime: &Runtime) -> Result<(Arc<Notify>, Option<Client>), BenchError> {
    let (address, ended) = (format!("shm:{}", name(me, "awaited")?), Arc::new(Notify::new()));
    if !me.is_first() {
        let end = ended.clone();
        let service = Service::new("awaited")
            .procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
            .procedure("end", Handling::Inline, move |_, ()| {
                end.notify_one();
                Ok::<_, Never>(())
            });
        let builder = Server::builder().listen(address).map_err(failed)?.provider(0, service);
        let turns = builder.turns().map_err(failed)?;
        runtime.spawn(turns.run(std::future::pending()));
        me.barrier()?;
        runtime.block_on(within(async {
            ended.notified().await;
            Ok(())
        }))?;
        return Ok((ended, None));
    }
    me.barrier()?;
    let client = Client::to(address, Credentials::own_user()).map_err(failed)?;
    let client = {
        let _within = runtime.enter();
        client.on_tokio().connect().map_err(failed)?
    };
    end(runtime, &client)?;
    Ok((ended, Some(client)))
}

fn end(runtime: &Runtime, client: &Client) -> Result<(), BenchError> {
    let end = client.procedure::<(), (), Never>("awaited", 0, "end");
    runtime.block_on(within(async { end.start(&()).map_err(failed)?.await.map_err(failed) }))
}
