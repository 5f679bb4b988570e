//! `farside rpc`, beside a server in this process.

use std::process::Output;

use farside_rpc::{Handling, Never, Server, Service, Tokens};
use farside_testbed::CommandLine;
use serde_json::Value;

const FARSIDE: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside"));

fn server(address: &str) -> Server {
    let add = |_: &farside_rpc::Call, (a, b): (u64, u64)| a.checked_add(b).ok_or_else(|| "too large".to_string());
    let service = Service::new("arithmetic").procedure("add", Handling::Pooled, add).procedure(
        "nothing",
        Handling::Inline,
        |_, (): ()| Ok::<_, Never>(()),
    );
    let tokens = Tokens::new().with("reader", "long and random", ["read"]);
    Server::builder().listen(address).unwrap().tokens(tokens).provider(3, service).start().unwrap()
}

fn farside(arguments: &[&str]) -> Output {
    std::process::Command::new(FARSIDE.0).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = farside(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_is_looked_at() {
    let address = format!("shm:farside-cli-{}", std::process::id());
    let server = server(&address);
    assert!(stdout(&["rpc", "ping", &address, "-n", "3"]).contains("answered 3 calls"));
    let pinged: Value = serde_json::from_str(&stdout(&["rpc", "ping", &address, "--json"])).unwrap();
    assert!(pinged["median_ns"].as_u64().unwrap() >= pinged["min_ns"].as_u64().unwrap());

    let text = stdout(&["rpc", "describe", &address]);
    assert!(text.contains("arithmetic (provider 3)\n  add: ( u64 u64 ) -> u64 ! String u8"), "{text}");
    let described: Value = serde_json::from_str(&stdout(&["rpc", "describe", &address, "--json"])).unwrap();
    assert_eq!(described["services"][0]["procedures"][1]["name"], "nothing");

    let client = farside_rpc::Client::connect(&address, farside_rpc::Credentials::own_user()).unwrap();
    let add = client.procedure::<(u64, u64), u64, String>("arithmetic", 3, "add");
    assert_eq!((add.call(&(1, 2)), add.call(&(u64::MAX, 2)).is_err()), (Ok(3), true));
    let stats: Value = serde_json::from_str(&stdout(&["rpc", "stats", &address, "--json"])).unwrap();
    let procedures = stats["procedures"].as_array().unwrap();
    let add = procedures.iter().find(|stats| stats["procedure"] == "arithmetic/3/add").unwrap();
    assert_eq!((&add["done"], &add["failed"]), (&1.into(), &1.into()));
    assert!(stdout(&["rpc", "stats", &address]).contains("arithmetic/3/add"));
    drop(server);
}

#[test]
fn a_token_opens_a_network_door() {
    let server = server("tcp://127.0.0.1:0");
    let address = server.addresses()[0].to_string();
    let folder = std::env::temp_dir().join(format!("farside-cli-secret-{}", std::process::id()));
    std::fs::write(&folder, "long and random\n").unwrap();
    let secret = folder.to_str().unwrap();
    let pinged = farside(&["rpc", "ping", &address, "--token", "reader", "--secret-file", secret]);
    let wrong = farside(&["rpc", "ping", &address, "--token", "writer", "--secret-file", secret]);
    std::fs::remove_file(&folder).unwrap();
    assert!(pinged.status.success(), "{}", String::from_utf8_lossy(&pinged.stderr));
    let wrong = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.contains("does not accept this token"), "{wrong}");
    FARSIDE.assert_refused(&["rpc", "ping", &address], 1, &["asks for a token"]);
    drop(server);
}

#[test]
fn what_is_wrong_is_said() {
    let absent = format!("shm:farside-cli-absent-{}", std::process::id());
    FARSIDE.assert_refused(&["rpc", "ping", &absent], 1, &["no server at", &absent, "start it"]);
    FARSIDE.assert_refused(&["rpc", "stats", "nowhere"], 1, &["nowhere", "shm:NAME"]);
    FARSIDE.assert_refused(&["rpc", "ping", "shm:x", "--token", "a"], 2, &["--secret-file"]);
    let missing = ["rpc", "ping", "shm:x", "--token", "a", "--secret-file", "/no/such/file"];
    FARSIDE.assert_refused(&missing, 1, &["cannot read the secret", "/no/such/file"]);
}
