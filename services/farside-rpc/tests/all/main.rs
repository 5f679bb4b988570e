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

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use farside_rpc::server::{Builder, Turns};
use farside_rpc::{Address, Call, Client, Credentials, Server, Tokens};
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

/// An address on this machine that no other test has.
fn near() -> String {
    format!("shm:{}", unique("near"))
}

/// An address for each path.
fn paths() -> [String; 2] {
    [near(), "tcp://127.0.0.1:0".to_string()]
}

/// Starts a server, and connects to it.
#[track_caller]
fn start(address: impl AsRef<str>, set_up: impl FnOnce(Builder) -> Builder) -> (Server, Client) {
    let server = set_up(Server::builder().listen(address).unwrap().tokens(tokens())).start().unwrap();
    let address = &server.addresses()[0];
    let credentials = if matches!(address, Address::Shm(_)) { Credentials::own_user() } else { credentials() };
    let client = connect(address.to_string(), credentials);
    (server, client)
}

/// Turns a server until a client of it, on another thread, has ended.
fn turn_for(mut turns: Turns, run: impl FnOnce(&Client) + Send) {
    let (address, is_over) = (turns.addresses()[0].to_string(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(&connect(&address, credentials()));
            is_over.store(true, Ordering::Relaxed);
        });
        turn_until(&mut turns, "the client ends", || is_over.load(Ordering::Relaxed));
    });
}

/// Runs a test over each path: `serve` adds services to the server.
fn everywhere(serve: impl Fn(Builder) -> Builder, test: impl Fn(&Client)) {
    for address in paths() {
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
