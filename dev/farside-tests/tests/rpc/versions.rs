//! Servers and clients of remote procedures that were built apart, one a version behind the other.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use farside_rpc::{Call, CallError, Client, Credentials, Never, Server, Wire};

const VERSION_ONE: &str = env!("CARGO_BIN_EXE_version-one");

#[derive(Clone, Debug, Default, PartialEq, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Order {
    item: String,
    count: u32,
    /// New.
    note: String,
    urgent: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Receipt {
    number: u64,
    /// New.
    greeting: Option<String>,
}

#[derive(Clone, Debug, Wire)]
#[wire(crate = "farside_rpc")]
struct Rigid {
    size: u32,
    /// New, but the struct is not extensible.
    weight: u32,
}

#[farside_rpc::service(name = "shop")]
trait Shop {
    /// New.
    fn cancel(&self, cx: &Call, number: u64) -> Result<bool, Never>;
    fn order(&self, cx: &Call, order: Order, copies: Vec<Order>) -> Result<Receipt, Never>;
    fn measure(&self, cx: &Call, rigid: Rigid) -> Result<u64, Never>;
}

struct Second;

impl Shop for Second {
    fn cancel(&self, _: &Call, number: u64) -> Result<bool, Never> {
        Ok(number > 0)
    }

    fn order(&self, _: &Call, order: Order, copies: Vec<Order>) -> Result<Receipt, Never> {
        assert_eq!((order.note.as_str(), order.urgent), ("", false), "an older client sends no note");
        let counts = copies.iter().map(|copy| u64::from(copy.count)).sum::<u64>();
        let number = order.item.len() as u64 * 1000 + u64::from(order.count) + counts;
        Ok(Receipt { number, greeting: Some("Thank you!".into()) })
    }

    fn measure(&self, _: &Call, rigid: Rigid) -> Result<u64, Never> {
        Ok(u64::from(rigid.size) * u64::from(rigid.weight))
    }
}

fn address(what: &str) -> String {
    format!("shm:versions-{what}-{}", std::process::id())
}

/// A server that ends with this.
struct Serving(Child);

impl Serving {
    fn start(address: &str) -> Self {
        let mut command = Command::new(VERSION_ONE);
        let mut child = command.args(["serve", address]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "serving\n");
        Self(child)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_newer_client_calls_an_older_server() {
    let address = address("old-server");
    let _server = Serving::start(&address);
    let shop = ShopClient::new(Client::connect(&address, Credentials::own_user()).unwrap());
    let order = Order { item: "lamp".into(), count: 3, note: "blue".into(), urgent: true };
    let receipt = shop.order(order.clone(), vec![order; 2]).unwrap().wait().unwrap();
    assert_eq!(receipt, Receipt { number: 4009, greeting: None });
    // What the server does not have is refused by name, and all else goes on.
    let error = shop.cancel(1).and_then(|pending| pending.wait()).unwrap_err();
    assert!(matches!(&error, CallError::Unknown { served, .. } if served.contains("order")), "{error}");
    let error = shop.measure(Rigid { size: 5, weight: 2 }).and_then(|pending| pending.wait()).unwrap_err();
    let CallError::Shape { ours, theirs, .. } = &error else { panic!("{error}") };
    assert!(ours.contains("weight u32") && !theirs.contains("weight"), "{error}");
}

#[test]
fn an_older_client_calls_a_newer_server() {
    let address = address("new-server");
    let server = Server::builder().listen(&address).unwrap().provider(0, ShopServer::new(Second)).start().unwrap();
    let output = Command::new(VERSION_ONE).args(["call", &address]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[0], "4009");
    assert!(lines[1].contains("weight u32"), "both shapes are told: {}", lines[1]);
    drop(server);
}
