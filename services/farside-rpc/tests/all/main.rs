//! Servers and clients of one test program, over each path.

mod adverse;
mod bulk;
mod calls;
mod compile_fail;
mod cut_cable;
mod doors;
mod endings;
mod forks;
mod guide;
mod huge;
mod left_alone;
mod limits;
mod macros;
mod one_way;
mod operation;
mod parts;
mod processes;
mod rdma;
mod relay;
mod results;
mod simulated;
mod soak;
mod spans;
mod streams;
mod tasks;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farside_rpc::server::{Builder, Turns};
use farside_rpc::{Call, Client, Credentials, Server, Tokens};
use farside_testbed::{deadline, limit, wait_until};

/// The token of the tests' servers.
const TOKEN: (&str, &str) = ("tester", "a secret of the tests");

fn tokens() -> Tokens {
    Tokens::new().with(TOKEN.0, TOKEN.1, ["test"])
}

fn credentials() -> Credentials {
    Credentials::token(TOKEN.0, TOKEN.1)
}

/// Connects to a server. Neither this nor a call fails because the machine is busy.
#[track_caller]
fn connect(address: impl AsRef<str>, credentials: Credentials) -> Client {
    Client::to(address, credentials).unwrap().deadline(limit()).connect().unwrap()
}

/// Holds a handler until its call is cancelled or past its deadline.
#[track_caller]
fn hold_until_cancelled(call: &Call) {
    wait_until("the call is cancelled", || call.is_cancelled());
}

/// Turns a server until a condition holds.
#[track_caller]
fn turn_until(turns: &mut Turns, what: &str, mut is_so: impl FnMut() -> bool) {
    wait_until(what, || {
        turns.turn(Duration::from_millis(100));
        is_so()
    });
}

/// A name that no other test has.
fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a test over each path: `serve` adds services to the server.
fn everywhere(serve: impl Fn(Builder) -> Builder, test: impl Fn(&Client)) {
    let addresses = [format!("shm:{}", unique("all")), "tcp://127.0.0.1:0".to_string()];
    for address in addresses {
        for spin in [Duration::ZERO, Duration::from_micros(200)] {
            let builder = Server::builder().listen(&address).unwrap().tokens(tokens()).pool(2).spin(spin);
            let server = serve(builder).start().unwrap();
            let address = server.addresses()[0].to_string();
            let connect = Client::to(address, credentials()).unwrap().deadline(limit());
            let client = connect.spin(spin).connect().unwrap();
            test(&client);
            drop(client);
            server.shutdown(deadline()).unwrap();
        }
    }
}
