//! A server and a client of remote procedures, as they were in their first version. The test
//! `versions` has the second one.
//!
//! - `version-one serve ADDRESS` serves until its standard input ends.
//! - `version-one call ADDRESS` calls, and prints what comes back.

use std::io::Read;
use std::process::ExitCode;

use farside_rpc::{Call, Client, Credentials, Never, Server, Wire};

#[derive(Clone, Debug, Default, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Order {
    item: String,
    count: u32,
}

#[derive(Clone, Debug, Default, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Receipt {
    number: u64,
}

#[derive(Clone, Debug, Wire)]
#[wire(crate = "farside_rpc")]
struct Rigid {
    size: u32,
}

#[farside_rpc::service(name = "shop")]
trait Shop {
    fn order(&self, cx: &Call, order: Order, copies: Vec<Order>) -> Result<Receipt, Never>;
    fn measure(&self, cx: &Call, rigid: Rigid) -> Result<u64, Never>;
}

struct First;

impl Shop for First {
    fn order(&self, _: &Call, order: Order, copies: Vec<Order>) -> Result<Receipt, Never> {
        let counts = copies.iter().map(|copy| u64::from(copy.count)).sum::<u64>();
        Ok(Receipt { number: order.item.len() as u64 * 1000 + u64::from(order.count) + counts })
    }

    fn measure(&self, _: &Call, rigid: Rigid) -> Result<u64, Never> {
        Ok(rigid.size.into())
    }
}

fn serve(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::builder().listen(address)?.provider(0, ShopServer::new(First)).start()?;
    println!("serving");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(server);
    Ok(())
}

fn call(address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let shop = ShopClient::new(Client::connect(address, Credentials::own_user())?);
    let order = Order { item: "lamp".into(), count: 3 };
    println!("{}", shop.order(order.clone(), vec![order; 2])?.wait()?.number);
    match shop.measure(Rigid { size: 5 }).and_then(|pending| pending.wait()) {
        Ok(size) => println!("{size}"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address),
        ["call", address] => call(address),
        _ => Err("usage: version-one serve|call ADDRESS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("version-one: {error}");
            ExitCode::FAILURE
        }
    }
}
