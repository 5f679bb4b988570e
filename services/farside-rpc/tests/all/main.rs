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
mod raw;
mod rdma;
mod relay;
mod results;
mod simulated;
mod soak;
mod spans;
mod streams;
mod tasks;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farside_rpc::server::Builder;
use farside_rpc::{Client, Credentials, Server, Tokens};

/// The token of the tests' servers.
const TOKEN: (&str, &str) = ("tester", "a secret of the tests");

fn tokens() -> Tokens {
    Tokens::new().with(TOKEN.0, TOKEN.1, ["test"])
}

fn credentials() -> Credentials {
    Credentials::token(TOKEN.0, TOKEN.1)
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
            let connect = Client::to(address, credentials()).unwrap().deadline(Duration::from_secs(60));
            let client = connect.spin(spin).connect().unwrap();
            test(&client);
            drop(client);
            server.shutdown(Instant::now() + Duration::from_secs(60)).unwrap();
        }
    }
}
