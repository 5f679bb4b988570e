//! The server is killed and started again, while a job runs and viewers look.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use farside_inspect::page::{Options, Page};
use farside_testbed::browser::{BED, Browser};
use farside_testbed::{ended_with_us, free_port, is_left_out};
use serde_json::{Value, json};

use crate::page::client::{PATIENCE, Records, Reply, request, send};
use crate::steering::JOB;
use crate::targets::{PART, Target};

const TOKEN: &str = "0123456789abcdef";
const PORT: &str = "FARSIDE_INSPECT_TEST_PORT";

/// Serves the page of a job until it is killed.
pub(crate) fn play_server() -> farside::Result<()> {
    let [job, port] = [JOB, PORT].map(|name| std::env::var(name).unwrap());
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    let _page = Page::start_with(address, &job, &[], Options::default().token(TOKEN)).unwrap();
    println!("ready");
    std::thread::sleep(3 * PATIENCE);
    Ok(())
}

/// A server that is killed in the end.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(job: &str, port: u16) -> Self {
        let mut command = ended_with_us(std::env::current_exe().unwrap());
        command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::piped());
        command.env(PART, "page server").env(JOB, job).env(PORT, port.to_string());
        let mut child = command.spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0, "the server has ended");
        }
        Self { child, address: ([127, 0, 0, 1], port).into() }
    }

    fn post(&self, path: &str, question: &Value) -> Reply {
        let lines = [format!("Host: {}", self.address), format!("Authorization: Bearer {TOKEN}")];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let reply = send(self.address, &request(&format!("POST {path}"), &lines, &question.to_string())).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.head);
        reply
    }

    /// The step of the first frame of a new viewer.
    fn step(&self) -> u64 {
        let watch = json!({ "topics": [{ "key": 1, "watch": "area", "area": "seen", "period_ms": 20 }] });
        let (head, _) = Records::of(self.post("/stream", &watch)).next();
        head["step"].as_u64().unwrap_or_else(|| panic!("{head}"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pause of a viewer ends with the server, and the viewers of the next server see later steps.
#[test]
fn a_server_that_is_started_again_goes_on() {
    let mut target = Target::start("steered", &[]);
    let job = target.inspect(2);
    let port = free_port();
    let mut last = 0;
    for _ in 0..3 {
        let served = Served::start(&target.name, port);
        let step = served.step();
        assert!(step > last);
        last = step;
        served.post("/ask", &json!({ "do": "pause" }));
        assert!(job.is_paused().unwrap().is_some());
        drop(served);
        let until = Instant::now() + PATIENCE;
        while job.is_paused().unwrap().is_some() {
            assert!(Instant::now() < until, "the job goes on");
        }
        job.set("dt", 3.0).unwrap();
    }
    assert!(target.is_running());
}

/// A page that is open in a browser goes on by itself.
#[test]
fn an_open_page_goes_on_with_the_next_server() {
    if is_left_out(BED) {
        return;
    }
    let mut target = Target::start("steered", &[]);
    target.inspect(2);
    let port = free_port();
    let served = Served::start(&target.name, port);
    let browser = Browser::start(1000, 800);
    browser.open(&format!("http://{}/#{TOKEN}", served.address));
    let facts = "document.querySelector('article[data-area=\"seen\"] .facts')?.innerText ?? ''";
    browser.wait_for("document.querySelector('#areas button[data-area=\"seen\"]')");
    if browser.run("return !document.querySelector('article[data-area=\"seen\"]')") == json!(true) {
        browser.click("#areas button[data-area=\"seen\"]");
    }
    browser.wait_for(&format!("({facts}).includes('step')"));
    drop(served);
    browser.wait_for("document.querySelector('#state').innerText.includes('no connection')");
    let before = browser.run(&format!("return {facts}"));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(browser.run(&format!("return {facts}")), before, "the last frame stays");
    let _served = Served::start(&target.name, port);
    browser.wait_for(&format!("({facts}).includes('step') && ({facts}) != {before}"));
    browser.wait_for("!document.querySelector('#state').innerText.includes('no connection')");
    assert!(target.is_running());
}
