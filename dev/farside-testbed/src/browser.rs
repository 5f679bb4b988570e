//! A browser without a screen: Chromium, by the WebDriver protocol. Its methods panic if something
//! fails, with the reason.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{deadline, ended_with_us, is_past, is_privileged, limit};

/// The bed that tests with a browser need.
pub const BED: &str = "browser";

/// The time that a browser has to end.
const SHUTDOWN: Duration = Duration::from_secs(5);

/// A browser with one page. Everything that was started for it ends with it.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    folder: PathBuf,
}

impl Browser {
    /// Starts a browser with a window of this size.
    pub fn start(width: u32, height: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("farside-browser-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        // In a process namespace of its own, so that no process of the browser outlives the driver.
        let mut command = if is_privileged() {
            ended_with_us("unshare")
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--", "setpriv", "--pdeathsig", "KILL", "unshare"]);
            command
        };
        command.args(["--pid", "--mount-proc", "--fork", "--kill-child", "--", "chromedriver", "--port=0"]);
        // Chromium keeps some of its files next to its profile.
        command.env("HOME", &folder).env("TMPDIR", &folder).env_remove("DBUS_SESSION_BUS_ADDRESS");
        let mut driver = command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let mut browser = Self { driver, port: 0, session: String::new(), folder };
        let said = lines.find_map(|line| {
            let line = line.unwrap();
            Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        browser.port = said.expect("the driver says its port").parse().unwrap();
        // The driver must not wait for a reader of what it prints.
        std::thread::spawn(move || lines.count());
        let profile = format!("--user-data-dir={}", browser.folder.join("profile").display());
        let size = format!("--window-size={width},{height}");
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            // Names of other sites, which lead to servers of the tests.
            "--host-resolver-rules=MAP *.example 127.0.0.1",
            &profile,
            &size,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let made = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    /// Calls the driver.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let text = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(limit())).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .unwrap();
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }

    fn of_session(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("{}{path}", self.session), body)
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.of_session("POST", "/url", &json!({ "url": url }));
    }

    /// Shows pages as a device of this size does.
    pub fn narrow(&self, width: u32, height: u32) {
        let device = json!({ "width": width, "height": height, "deviceScaleFactor": 2, "mobile": true });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": device });
        self.of_session("POST", "/goog/cdp/execute", &command);
    }

    /// Has scripts run in the frame of this number in the page, or in the page itself.
    pub fn enter(&self, frame: Option<u32>) {
        self.of_session("POST", "/frame", &json!({ "id": frame }));
    }

    /// Runs a script in the page and returns its value.
    pub fn run(&self, script: &str) -> Value {
        self.of_session("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true. One that fails, for something that is not there, is not.
    #[track_caller]
    pub fn wait_for(&self, expression: &str) {
        let give_up = deadline();
        while self.run(&format!("try {{ return Boolean({expression}) }} catch {{ return false }}")) != json!(true) {
            let text = self.run("return document.body.innerText");
            assert!(!is_past(give_up), "never true: {expression}; the page says {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves the mouse to a point of the window, and clicks there if `clicks` says so.
    pub fn mouse(&self, x: f64, y: f64, clicks: bool) {
        let mut actions = vec![json!({ "type": "pointerMove", "duration": 0, "x": x as i64, "y": y as i64 })];
        if clicks {
            actions.push(json!({ "type": "pointerDown", "button": 0 }));
            actions.push(json!({ "type": "pointerUp", "button": 0 }));
        }
        let source = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.of_session("POST", "/actions", &json!({ "actions": [source] }));
    }

    /// Clicks on the first element that a selector of CSS finds.
    pub fn click(&self, selector: &str) {
        let script = format!(
            "const found = document.querySelector({selector:?}); found.scrollIntoView({{ block: 'center' }});
             const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]"
        );
        let place = self.run(&script);
        self.mouse(place[0].as_f64().unwrap(), place[1].as_f64().unwrap(), true);
    }

    /// Presses keys, one after the other.
    pub fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })])
            .collect();
        let source = json!({ "type": "key", "id": "keys", "actions": actions });
        self.of_session("POST", "/actions", &json!({ "actions": [source] }));
    }

    /// The lines that the page printed on its console: errors, and loads that its policy forbade.
    pub fn complaints(&self) -> Vec<String> {
        let found = self.of_session("POST", "/se/log", &json!({ "type": "browser" }));
        found.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Keeps a picture of the window, if `FARSIDE_PICTURES` names a folder for it.
    pub fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("FARSIDE_PICTURES") else { return };
        let picture = self.of_session("GET", "/screenshot", &json!({}));
        let path = PathBuf::from(folder).join(format!("{name}.png"));
        std::fs::write(path, decoded(picture.as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser. If it does not, both are killed.
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.write_all(b"GET /shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
            let until = Instant::now() + SHUTDOWN;
            while self.driver.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        // Processes that were killed may still write for a moment.
        let until = Instant::now() + SHUTDOWN;
        while std::fs::remove_dir_all(&self.folder).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The bytes of a text in base 64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|digit| *digit == byte)) {
        (bits, count) = (bits << 6 | digit as u32, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
