//! The program of `farside rpc`, with a server in this process.

use std::process::Output;

use farside_rpc::bulk::{Bulk, Read, Write};
use farside_rpc::{Handling, Never, Server, Service, Stream, Tokens, Wire};
use farside_testbed::netns::{Pair, Side};
use farside_testbed::{CommandLine, limit, wait_until};
use serde_json::{Value, json};

const RPC: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside-rpc"));

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

fn rpc(arguments: &[&str]) -> Output {
    std::process::Command::new(RPC.0).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = rpc(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_server_is_looked_at() {
    let address = format!("shm:farside-cli-{}", std::process::id());
    let server = server(&address);
    assert!(stdout(&["ping", &address, "-n", "3"]).contains("answered 3 calls"));
    let pinged: Value = serde_json::from_str(&stdout(&["ping", &address, "--json"])).unwrap();
    assert!(pinged["median_ns"].as_u64().unwrap() >= pinged["min_ns"].as_u64().unwrap());

    let text = stdout(&["describe", &address]);
    assert!(text.contains("arithmetic (provider 3)\n  add: ( u64 u64 ) -> u64 ! String u8"), "{text}");
    let described: Value = serde_json::from_str(&stdout(&["describe", &address, "--json"])).unwrap();
    assert_eq!(described["services"][0]["procedures"][1]["name"], "nothing");

    let client = farside_rpc::Client::connect(&address, farside_rpc::Credentials::own_user()).unwrap();
    let add = client.procedure::<(u64, u64), u64, String>("arithmetic", 3, "add");
    assert_eq!((add.call(&(1, 2)), add.call(&(u64::MAX, 2)).is_err()), (Ok(3), true));
    let stats: Value = serde_json::from_str(&stdout(&["stats", &address, "--json"])).unwrap();
    let procedures = stats["procedures"].as_array().unwrap();
    let add = procedures.iter().find(|stats| stats["procedure"] == "arithmetic/3/add").unwrap();
    assert_eq!((&add["done"], &add["failed"]), (&1.into(), &1.into()));
    assert_eq!(add["timed"], 2);
    assert!(add["p50_ns"].as_u64().unwrap() <= add["max_ns"].as_u64().unwrap() && add["max_ns"] != 0, "{add}");
    let text = stdout(&["stats", &address]);
    assert!(text.contains("arithmetic/3/add") && text.contains("p99"), "{text}");
    drop(server);
}

#[test]
fn what_is_under_way_is_listed() {
    let address = format!("shm:farside-cli-dump-{}", std::process::id());
    let wait = |call: &farside_rpc::Call, (): ()| {
        wait_until("the client has gone", || call.is_cancelled());
        Ok::<_, Never>(())
    };
    let service = Service::new("patience").procedure("wait", Handling::Pooled, wait);
    let server = Server::builder().listen(&address).unwrap().provider(3, service).start().unwrap();
    let client = farside_rpc::Client::connect(&address, farside_rpc::Credentials::own_user()).unwrap();
    let client = client.deadline(2 * limit());
    let pending = client.procedure::<(), (), Never>("patience", 3, "wait").start(&()).unwrap();
    wait_until("the call runs", || server.dump().calls.iter().any(|call| call.running.is_some()));
    let text = stdout(&["dump", &address]);
    let process = format!("process {}", std::process::id());
    for part in ["shm", &process, "running", "patience/3/wait"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let dump: Value = serde_json::from_str(&stdout(&["dump", &address, "--json"])).unwrap();
    assert_eq!((dump["connections"].as_array().unwrap().len(), &dump["more_calls"]), (2, &0.into()));
    let call = &dump["calls"][0];
    assert_eq!((&call["procedure"], &call["is_cancelled"]), (&"patience/3/wait".into(), &false.into()));
    assert!(call["running_ns"].as_u64() > Some(0) && call["time_left_ns"].as_u64() > Some(0), "{call}");
    drop((pending, server));
}

/// A service with every kind of argument.
fn library() -> Service {
    let find = |_: &farside_rpc::Call, (books, name): (Vec<Book>, Option<String>)| {
        let found = books.into_iter().find(|book| Some(&book.title) == name.as_ref());
        found.ok_or(LibraryError::Missing { title: name })
    };
    let reverse = |_: &farside_rpc::Call, (from, into): (Bulk<Read>, Bulk<Write>)| {
        let mut bytes = from.pull_all().map_err(|error| error.to_string())?;
        bytes.reverse();
        into.push(0, &bytes).map_err(|error| error.to_string())?;
        Ok::<_, String>(bytes.len() as u64)
    };
    let shelves = |_: &farside_rpc::Call, shelf: Shelf| Ok::<_, Never>(shelf.count());
    Service::new("library")
        .procedure("find", Handling::Pooled, find)
        .procedure("reverse", Handling::Pooled, reverse)
        .procedure("shelves", Handling::Pooled, shelves)
}

/// A type that contains itself.
#[derive(Clone, Debug, Wire)]
#[wire(crate = "farside_rpc")]
struct Shelf {
    parts: Vec<Shelf>,
    books: u64,
}

impl Shelf {
    fn count(&self) -> u64 {
        self.books + self.parts.iter().map(Self::count).sum::<u64>()
    }
}

#[derive(Clone, Debug, Wire)]
#[wire(crate = "farside_rpc")]
struct Book {
    title: String,
    pages: u16,
}

#[derive(Clone, Debug, Wire)]
#[wire(crate = "farside_rpc")]
enum LibraryError {
    Missing { title: Option<String> },
}

#[test]
fn any_procedure_is_called_with_json() {
    let address = format!("shm:farside-cli-call-{}", std::process::id());
    let builder = Server::builder().listen(&address).unwrap().provider(0, library()).provider(3, library());
    let server = builder.start().unwrap();
    let books = r#"[[{"title": "a", "pages": 3}, {"title": "b", "pages": 4}], "b"]"#;
    for name in ["library/find", "library/0/find", "library/3/find"] {
        let book: Value = serde_json::from_str(&stdout(&["call", &address, name, books])).unwrap();
        assert_eq!(book, json!({ "title": "b", "pages": 4 }));
    }
    let answer = stdout(&["call", &address, "library/find", books, "--json"]);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["procedure"], &answer["result"]["pages"]), (&"library/find".into(), &4.into()));
    assert_eq!(stdout(&["call", &address, "farside/ping", "7"]), "7\n");
    let shelf = r#"{"parts": [{"parts": [{"parts": [], "books": 4}], "books": 2}], "books": 1}"#;
    assert_eq!(stdout(&["call", &address, "library/shelves", shelf]), "7\n");
    assert!(stdout(&["call", &address, "farside/describe"]).contains("\"library\""));

    let failed = rpc(&["call", &address, "library/find", "[[], \"b\"]"]);
    assert_eq!((failed.status.code(), &failed.stdout[..]), (Some(1), &[][..]));
    let error: Value = serde_json::from_slice(&failed.stderr).unwrap();
    assert_eq!(error, json!({ "error": { "Missing": { "title": "b" } } }));

    let refused = |name, arguments: &str, status, words: &[&str]| {
        RPC.assert_refused(&["call", &address, name, arguments], status, words);
    };
    let wrong = r#"[[{"title": "a", "pages": 65536}], null]"#;
    refused("library/find", wrong, 2, &["arguments.0.0.pages: expected u16, found 65536"]);
    refused("farside/ping", "-7", 2, &["arguments: expected u64, found -7"]);
    refused("library/find", "[", 2, &["the arguments are not JSON"]);
    refused(
        "library/7/find",
        "null",
        1,
        &["has no library/7/find", "library/3/find, library/3/reverse, library/3/shelves"],
    );

    let file = std::env::temp_dir().join(format!("farside-cli-memory-{}", std::process::id()));
    let path = file.to_str().unwrap();
    let into = json!({ "bytes": 4, "file": path });
    let reversed = stdout(&["call", &address, "library/reverse", &json!(["abc", into]).to_string()]);
    assert_eq!((reversed.as_str(), std::fs::read(&file).unwrap()), ("3\n", b"cba\0".to_vec()));
    let from = format!("@{path}");
    let reversed = stdout(&["call", &address, "library/reverse", &json!([from, into]).to_string()]);
    assert_eq!((reversed.as_str(), std::fs::read(&file).unwrap()), ("4\n", b"\0abc".to_vec()));
    std::fs::remove_file(&file).unwrap();
    let gone = json!([from, into]).to_string();
    refused("library/reverse", &gone, 2, &["arguments.0: cannot read", path]);
    refused("library/reverse", r#"["a", "b"]"#, 2, &["arguments.1: expected {\"bytes\": N, \"file\": PATH}"]);
    drop(server);
}

#[test]
fn the_items_of_a_stream_are_lines() {
    let address = format!("shm:farside-cli-stream-{}", std::process::id());
    let count = |_: &farside_rpc::Call, end: u64| match end {
        0 => Err("nothing to count".to_string()),
        _ => Ok(Stream::new(0..end)),
    };
    let titles = |_: &farside_rpc::Call, into: Bulk<Write>| {
        let books = (1..=3).map(|pages| Book { title: "a".into(), pages });
        let books = books.inspect(move |book| into.push(0, &[b'0' + book.pages as u8]).unwrap());
        Ok::<_, Never>((7_u32, Stream::new(books)))
    };
    let broken = |_: &farside_rpc::Call, (): ()| {
        Ok::<_, Never>(Stream::new((0..3_u8).inspect(|item| assert!(*item < 2, "no more items"))))
    };
    let service = Service::new("streams")
        .procedure("count", Handling::Pooled, count)
        .procedure("titles", Handling::Pooled, titles)
        .procedure("broken", Handling::Pooled, broken);
    let server = Server::builder().listen(&address).unwrap().provider(0, service).start().unwrap();

    let text = stdout(&["call", &address, "streams/count", "30000"]);
    let lines: String = (0..30_000).map(|item| format!("{item}\n")).collect();
    assert!(text == lines, "{} bytes", text.len());
    let text = stdout(&["call", &address, "streams/count", "2", "--json"]);
    let items = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["item"].clone());
    assert_eq!(items.collect::<Vec<_>>(), [json!(0), json!(1)]);
    let failed = rpc(&["call", &address, "streams/count", "0"]);
    assert_eq!((failed.status.code(), &failed.stderr[..]), (Some(1), &b"{\"error\":\"nothing to count\"}\n"[..]));

    // Memory is written to its file when the stream has ended.
    let file = std::env::temp_dir().join(format!("farside-cli-stream-{}", std::process::id()));
    let into = json!({ "bytes": 1, "file": file }).to_string();
    let text = stdout(&["call", &address, "streams/titles", &into]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let books = [1, 2, 3].map(|pages| json!({ "title": "a", "pages": pages }));
    assert_eq!((&lines[0], &lines[1..]), (&json!([7, null]), &books[..]));
    assert_eq!(std::fs::read(&file).unwrap(), b"3");
    std::fs::remove_file(&file).unwrap();

    // What arrived before a failure is printed.
    let broken = rpc(&["call", &address, "streams/broken"]);
    let error = String::from_utf8(broken.stderr).unwrap();
    assert_eq!((broken.status.code(), &broken.stdout[..]), (Some(1), &b"0\n1\n"[..]));
    assert!(error.contains("no more items"), "{error}");
    drop(server);
}

#[test]
fn a_token_opens_a_network_door() {
    let server = server("tcp://127.0.0.1:0");
    let address = server.addresses()[0].to_string();
    let folder = std::env::temp_dir().join(format!("farside-cli-secret-{}", std::process::id()));
    std::fs::write(&folder, "long and random\n").unwrap();
    let secret = folder.to_str().unwrap();
    let pinged = rpc(&["ping", &address, "--token", "reader", "--secret-file", secret]);
    let wrong = rpc(&["ping", &address, "--token", "writer", "--secret-file", secret]);
    std::fs::remove_file(&folder).unwrap();
    assert!(pinged.status.success(), "{}", String::from_utf8_lossy(&pinged.stderr));
    let wrong = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.contains("does not accept this token"), "{wrong}");
    RPC.assert_refused(&["ping", &address], 1, &["asks for a token"]);
    std::fs::write(&folder, "long and random\n").unwrap();
    let dump = ["dump", &address, "--token", "reader", "--secret-file", secret];
    RPC.assert_refused(&dump, 1, &["lacks the right \"farside.dump\""]);
    std::fs::remove_file(&folder).unwrap();
    drop(server);
}

#[test]
fn what_is_wrong_is_said() {
    let absent = format!("shm:farside-cli-absent-{}", std::process::id());
    RPC.assert_refused(&["ping", &absent], 1, &["no server at", &absent, "start it"]);
    RPC.assert_refused(&["stats", "nowhere"], 1, &["nowhere", "shm:NAME"]);
    RPC.assert_refused(&["ping", "shm:x", "--token", "a"], 2, &["--secret-file"]);
    let missing = ["ping", "shm:x", "--token", "a", "--secret-file", "/no/such/file"];
    RPC.assert_refused(&missing, 1, &["cannot read the secret", "/no/such/file"]);
}

mod netns {
    mod deep {
        use super::super::*;

        /// The name server of a host does not answer, and the system would ask it for minutes.
        #[test]
        fn a_lookup_of_a_name_has_a_deadline() {
            farside_testbed::needs!("netns");
            let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
            let settings = std::env::temp_dir().join(format!("farside-cli-lookup-{}", std::process::id()));
            // An address of the cable that no host has.
            std::fs::write(&settings, "nameserver 10.77.0.99\noptions timeout:30 attempts:5\n").unwrap();
            let mut command = pair.command(Side::A, "unshare");
            let with_own_settings = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
            command.args(["--mount", "--", "sh", "-c", with_own_settings]).arg(&settings);
            let output = command.args([RPC.0, "ping", "tcp://server.example:7000", "--timeout", "1"]).output().unwrap();
            std::fs::remove_file(&settings).unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains("no name server told the address of \"server.example\" in time"), "{error}");
        }
    }
}
