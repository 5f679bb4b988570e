//! The program of `farside kv`: a server in a process of its own, and the other commands.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use farside_testbed::{CommandLine, ended_with_us, wait_for};
use serde_json::Value;

const KV: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside-kv"));

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
        let mut command = ended_with_us(KV.0);
        let mut process = command.args(["serve"]).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
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
    Command::new(KV.0).args(arguments).output().unwrap()
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
    let mut command = Command::new(KV.0);
    command.args(["put", address, key]).stdin(Stdio::piped()).stdout(Stdio::null());
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
    KV.assert_refused(&["get", &address, "b"], 1, &["no key \"b\""]);
    KV.assert_refused(&["remove", &address, "b"], 1, &["no key \"b\""]);
    KV.assert_refused(&["serve", "shm:unused", "--dir", &dir], 1, &["another process serves", &dir]);

    assert_eq!(server.end("-TERM"), Some(0));
    // All of it is there after a new start.
    let server = Server::start(&[&address, "--dir", &dir]);
    assert_eq!(stdout(&["list", &address]).lines().count(), 3);
    assert!(kv(&["get", &address, "a/big"]).stdout == value);
    assert_eq!(server.end("-INT"), Some(0));
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
    KV.assert_refused(&["list", address], 1, &["asks for a token"]);
    KV.assert_refused(&["serve", "tcp://127.0.0.1:0", "--memory"], 1, &["tokens"]);
    assert_eq!(server.end("-TERM"), Some(0));
    assert!(!Path::new(&announced).exists());
}

#[test]
fn the_store_is_measured() {
    let address = format!("shm:{}", unique("bench"));
    let _server = Server::start(&[&address, "--memory"]);
    stdout(&["put", &address, "mine", KV.0]);
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
    KV.assert_refused(&["get", &absent, "key"], 1, &["no server at", &absent]);
    KV.assert_refused(&["serve", "shm:x"], 2, &["--dir"]);
    KV.assert_refused(&["serve", "shm:x", "--memory", "--spin", "2000000"], 2, &["--spin", "1000000"]);
    KV.assert_refused(&["serve", "shm:x", "--dir", "/x", "--memory"], 2, &["--dir", "--memory"]);
    KV.assert_refused(&["serve", "--memory"], 2, &["ADDRESS"]);
    KV.assert_refused(&["serve", "shm:x", "--memory", "--token", "a"], 2, &["NAME=FILE"]);
    KV.assert_refused(&["serve", "shm:x", "--dir", "/dev/null/x"], 1, &["/dev/null/x"]);
    let address = format!("shm:{}", unique("wrong"));
    let _server = Server::start(&[&address, "--memory", "--spin", "50"]);
    KV.assert_refused(&["put", &address, "key", "/no/such/file"], 1, &["/no/such/file"]);
    KV.assert_refused(&["put", &address, "", "/dev/null"], 1, &["the key is empty"]);
    KV.assert_refused(&["get", &address, "absent", "/no/such/file"], 1, &["no key \"absent\""]);
    stdout(&["put", &address, "key", "/dev/null"]);
    KV.assert_refused(&["get", &address, "key", "/no/such/file"], 1, &["/no/such/file"]);
    KV.assert_refused(&["serve", &address, "--memory"], 1, &["another server has it"]);
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
            let line = format!("{} {}", KV.0, words.join(" "));
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
}
