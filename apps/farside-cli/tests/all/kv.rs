//! `farside kv`: a server in a process of its own, and the other commands beside it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use farside_testbed::netns::{Pair, Side};
use farside_testbed::{CommandLine, Echo, Running, deadline, ended_with_us, is_left_out, wait_for, wait_until};
use serde_json::Value;

const FARSIDE: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside"));

/// A name that no other test has.
fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("farside-cli-kv-{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(what: &str) -> Self {
        let path = std::env::temp_dir().join(unique(what));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that is killed in the end, with the line that it prints when it is ready.
struct Server {
    process: Child,
    line: String,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut command = ended_with_us(FARSIDE.0);
        let mut process = command.args(["kv", "serve"]).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, line }
    }

    /// Sends a signal, and waits for the end. Returns the exit status.
    fn end(mut self, signal: &str) -> Option<i32> {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
        wait_for("the server ends", || self.process.try_wait().unwrap()).code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kv(arguments: &[&str]) -> Output {
    Command::new(FARSIDE.0).arg("kv").args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = kv(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn object(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

fn put_bytes(address: &str, key: &str, value: &[u8]) {
    let mut command = Command::new(FARSIDE.0);
    command.args(["kv", "put", address, key]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(value).unwrap();
    assert!(process.wait().unwrap().success());
}

#[test]
fn values_are_put_and_got() {
    let folder = Folder::new("values");
    let address = format!("shm:{}", unique("values"));
    let dir = folder.file("store");
    let server = Server::start(&[&address, "--dir", &dir]);
    assert_eq!(server.line, format!("serving {dir} at {address}\n"));
    let (from, to) = (folder.file("from"), folder.file("to"));
    let value: Vec<u8> = (0..2_000_000_u32).map(|number| (number >> 8) as u8 ^ number as u8).collect();
    fs::write(&from, &value).unwrap();
    assert_eq!(stdout(&["put", &address, "a/big", &from]), "stored a/big: 2000000 bytes\n");
    assert_eq!(stdout(&["get", &address, "a/big", &to]), format!("{to}: 2000000 bytes\n"));
    assert!(fs::read(&to).unwrap() == value);
    assert!(kv(&["get", &address, "a/big"]).stdout == value);
    put_bytes(&address, "a/piped", &value[..900_000]);
    assert!(kv(&["get", &address, "a/piped", "-"]).stdout == value[..900_000]);
    put_bytes(&address, "b", b"small");
    assert_eq!(stdout(&["get", &address, "b"]), "small");
    put_bytes(&address, "b\n", b"");

    let listed = "       5  b\n           0  \"b\\n\"\n";
    assert!(stdout(&["list", &address]).ends_with(listed), "{}", stdout(&["list", &address]));
    assert_eq!(stdout(&["list", &address, "a/"]).lines().count(), 2);
    let lines = stdout(&["list", &address, "b", "--json"]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["key"], &first["bytes"]), (&"b".into(), &5.into()));
    assert_eq!(first, object(&["stat", &address, "b", "--json"]));
    assert!(stdout(&["stat", &address, "b"]).starts_with("bytes    5\n"));
    assert_eq!(stdout(&["remove", &address, "b"]), "removed b: 5 bytes\n");
    FARSIDE.assert_refused(&["kv", "get", &address, "b"], 1, &["no key \"b\""]);
    FARSIDE.assert_refused(&["kv", "remove", &address, "b"], 1, &["no key \"b\""]);
    FARSIDE.assert_refused(&["kv", "serve", "shm:unused", "--dir", &dir], 1, &["another process serves", &dir]);

    assert_eq!(server.end("-TERM"), Some(0));
    // All of it is there after a new start.
    let server = Server::start(&[&address, "--dir", &dir]);
    assert_eq!(stdout(&["list", &address]).lines().count(), 3);
    assert!(kv(&["get", &address, "a/big"]).stdout == value);
    assert_eq!(server.end("-INT"), Some(0));
}

/// A `get` goes on where an earlier one was interrupted.
#[test]
fn a_get_is_resumed() {
    let folder = Folder::new("resumed");
    let address = format!("shm:{}", unique("resumed"));
    let _server = Server::start(&[&address, "--memory"]);
    let value: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    put_bytes(&address, "key", &value);
    let version = object(&["stat", &address, "key", "--json"])["version"].as_u64().unwrap();
    let (to, part) = (folder.file("to"), folder.file(&format!("to.{version:016x}.part")));
    // A byte that is not the value's shows that what is there is not fetched again.
    let mut first = value[..500_000].to_vec();
    first[0] = 9;
    fs::write(&part, &first).unwrap();
    FARSIDE.assert_refused(&["kv", "get", &address, "key", &to], 1, &["checksum", "read it again"]);
    fs::write(&part, &value[..500_000]).unwrap();
    stdout(&["get", &address, "key", &to]);
    assert!(fs::read(&to).unwrap() == value);
    assert!(!Path::new(&part).exists());
}

#[test]
fn a_server_on_a_network_has_tokens() {
    let folder = Folder::new("tokens");
    let (writer, reader, announced) = (folder.file("writer"), folder.file("reader"), folder.file("address"));
    fs::write(&writer, "long and random\n").unwrap();
    fs::write(&reader, "other and random\n").unwrap();
    let tokens = [format!("w={writer}"), format!("r={reader}:read")];
    let [first, second] = [&*tokens[0], &*tokens[1]];
    let arguments = ["tcp://127.0.0.1:0", "--memory", "--token", first, "--token", second, "--announce", &announced];
    let server = Server::start(&[&arguments[..], &["--json"]].concat());
    let described: Value = serde_json::from_str(&server.line).unwrap();
    let address = described["addresses"][0].as_str().unwrap();
    let file = format!("file:{announced}");
    let as_writer = ["--token", "w", "--secret-file", &writer];
    let as_reader = ["--token", "r", "--secret-file", &reader];
    stdout(&[&["put", &file, "key", &writer][..], &as_writer].concat());
    assert_eq!(stdout(&[&["get", address, "key"][..], &as_reader].concat()), "long and random\n");
    let refused = kv(&[&["remove", address, "key"][..], &as_reader].concat());
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && text.contains("lacks the right \"write\""), "{text}");
    FARSIDE.assert_refused(&["kv", "list", address], 1, &["asks for a token"]);
    FARSIDE.assert_refused(&["kv", "serve", "tcp://127.0.0.1:0", "--memory"], 1, &["tokens"]);
    assert_eq!(server.end("-TERM"), Some(0));
    assert!(!Path::new(&announced).exists());
}

#[test]
fn the_store_is_measured() {
    let address = format!("shm:{}", unique("bench"));
    let _server = Server::start(&[&address, "--memory"]);
    stdout(&["put", &address, "mine", FARSIDE.0]);
    let lines = stdout(&["bench", &address, "--seconds", "0.02", "--in-flight", "4", "--json"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["ops_per_s"].as_f64().unwrap() > 0.0), "{lines}");
    assert_eq!(rows[3]["case"], "get/100B");
    assert_eq!(rows[3]["in_flight"], 4);
    assert!(stdout(&["bench", &address, "--seconds", "0.02"]).contains("get/1MiB"));
    assert_eq!(stdout(&["list", &address]).lines().count(), 1, "its keys are removed");
}

#[test]
fn what_is_wrong_is_said() {
    let absent = format!("shm:{}", unique("absent"));
    FARSIDE.assert_refused(&["kv", "get", &absent, "key"], 1, &["no server at", &absent]);
    FARSIDE.assert_refused(&["kv", "serve", "shm:x"], 2, &["--dir"]);
    FARSIDE.assert_refused(&["kv", "serve", "shm:x", "--memory", "--spin", "2000000"], 2, &["--spin", "1000000"]);
    FARSIDE.assert_refused(&["kv", "serve", "shm:x", "--dir", "/x", "--memory"], 2, &["--dir", "--memory"]);
    FARSIDE.assert_refused(&["kv", "serve", "--memory"], 2, &["ADDRESS"]);
    FARSIDE.assert_refused(&["kv", "serve", "shm:x", "--memory", "--token", "a"], 2, &["NAME=FILE"]);
    FARSIDE.assert_refused(&["kv", "serve", "shm:x", "--dir", "/dev/null/x"], 1, &["/dev/null/x"]);
    let address = format!("shm:{}", unique("wrong"));
    let _server = Server::start(&[&address, "--memory", "--spin", "50"]);
    FARSIDE.assert_refused(&["kv", "put", &address, "key", "/no/such/file"], 1, &["/no/such/file"]);
    FARSIDE.assert_refused(&["kv", "put", &address, "", "/dev/null"], 1, &["the key is empty"]);
    FARSIDE.assert_refused(&["kv", "get", &address, "absent", "/no/such/file"], 1, &["no key \"absent\""]);
    stdout(&["put", &address, "key", "/dev/null"]);
    FARSIDE.assert_refused(&["kv", "get", &address, "key", "/no/such/file"], 1, &["/no/such/file"]);
    FARSIDE.assert_refused(&["kv", "serve", &address, "--memory"], 1, &["another server has it"]);
}

mod deep {
    use super::*;

    /// A long transfer shows its progress where there is a terminal.
    #[test]
    fn progress_is_shown_on_a_terminal() {
        let folder = Folder::new("progress");
        let address = format!("shm:{}", unique("progress"));
        let _server = Server::start(&[&address, "--memory"]);
        let (from, to) = (folder.file("from"), folder.file("to"));
        fs::write(&from, vec![7; 64 << 20]).unwrap();
        for words in [["put", &address, "long", &from], ["get", &address, "long", &to]] {
            // `script` runs a command on a terminal of its own.
            let line = format!("{} kv {}", FARSIDE.0, words.join(" "));
            let shown = ended_with_us("script").args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").output();
            let Ok(shown) = shown else {
                eprintln!("left out: progress_is_shown_on_a_terminal: it needs `script`");
                return;
            };
            let text = String::from_utf8_lossy(&shown.stdout);
            assert!(shown.status.success() && text.contains("/64.00 MiB"), "{text:?}");
        }
        assert_eq!(fs::metadata(&to).unwrap().len(), 64 << 20);
        // Elsewhere it is silent.
        assert!(kv(&["put", &address, "long", &from]).stderr.is_empty());
    }

    /// The cable between client and server is cut in the middle of a put: the client is told, the
    /// store keeps the earlier value and no file, and goes on when the cable is mended.
    #[test]
    fn a_cut_cable_ends_a_put() {
        if is_left_out("netns") {
            return;
        }
        let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
        let folder = Folder::new("cut");
        let (dir, secret) = (folder.file("store"), folder.file("secret"));
        fs::write(&secret, "long and random").unwrap();
        let start = |side, arguments: &[&str]| {
            let mut command = pair.command(side, FARSIDE.0);
            Running::start("farside", command.arg("kv").args(arguments), Echo::Quiet)
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let token = format!("w={secret}");
        let server = start(Side::A, &["serve", "tcp://0.0.0.0:7078", "--dir", &dir, "--token", &token]);
        wait_until("the server serves", || server.printed().contains("serving"));
        let address = format!("tcp://{}:7078", Side::A.address());
        let client = |words: [&str; 3]| {
            let (action, rest) = words.split_first().unwrap();
            start(Side::B, &[&[*action, &address], rest, &["--token", "w", "--secret-file", &secret]].concat())
        };
        let end = |mut running: Running| {
            let status = running.wait(deadline()).unwrap_or_else(|failure| panic!("{failure}"));
            (status.code(), running.printed())
        };
        assert_eq!(end(client(["put", "key", &secret])).0, Some(0));
        // A file without an end.
        let putting = client(["put", "key", "/dev/zero"]);
        let bytes = || {
            let files = fs::read_dir(Path::new(&dir).join("values")).unwrap().flatten();
            files.map(|file| file.metadata().map_or(0, |file| file.len())).sum::<u64>()
        };
        wait_until("parts arrive", || bytes() > 20 << 20);
        pair.cut().unwrap();
        let (status, text) = end(putting);
        assert!(status == Some(1) && text.contains("the call was lost"), "{text}");
        wait_until("the file is removed", || bytes() == 0);
        pair.reconnect().unwrap();
        // The system may say for a moment that there is no route.
        let mut got = (None, String::new());
        wait_until("the store answers", || {
            got = end(client(["get", "key", "-"]));
            got.0 == Some(0)
        });
        assert_eq!(got.1, "long and random");
        assert_eq!(end(client(["put", "key", FARSIDE.0])).0, Some(0));
        assert_eq!(bytes(), fs::metadata(FARSIDE.0).unwrap().len());
    }
}
