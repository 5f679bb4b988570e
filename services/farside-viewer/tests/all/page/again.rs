//! The server is killed and started again, while a job runs and viewers look.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use farside_testbed::{ended_with_us, free_port, hold_still, scaled, wait_until};
use farside_viewer::page::{Options, Page};
use serde_json::{Value, json};

use crate::page::client::{Records, Reply, request, try_send};
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
    hold_still();
}

/// A server that is killed in the end.
pub(super) struct Served {
    pub(super) child: Child,
    address: SocketAddr,
}

impl Served {
    pub(super) fn start(job: &str, port: u16) -> Self {
        Self::start_with(job, port, None).expect("the server starts")
    }

    /// Starts a server that is killed at a numbered point, which may be before it serves.
    fn start_with(job: &str, port: u16, kill: Option<String>) -> Option<Self> {
        let mut command = ended_with_us(std::env::current_exe().unwrap());
        command.args(["--exact", "targets::target", "--nocapture", "--quiet"]).stdout(Stdio::piped());
        command.env(PART, "page server").env(JOB, job).env(PORT, port.to_string());
        command.envs(kill.map(|point| ("FARSIDE_INSPECT_KILL", point)));
        let mut child = command.spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            if std::io::BufRead::read_line(&mut out, &mut line).unwrap() == 0 {
                // It has ended.
                let _ = child.wait();
                return None;
            }
        }
        Some(Self { child, address: ([127, 0, 0, 1], port).into() })
    }

    pub(super) fn post(&self, path: &str, question: &Value) -> Reply {
        self.try_post(path, question).expect("the server answers")
    }

    /// The answer, unless the server ends before it gives one.
    fn try_post(&self, path: &str, question: &Value) -> Option<Reply> {
        let (host, token) = (format!("Host: {}", self.address), format!("Authorization: Bearer {TOKEN}"));
        let lines = [host, token, "Connection: close".into()];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let reply = try_send(self.address, &request(&format!("POST {path}"), &lines, &question.to_string()))?;
        assert_eq!(reply.status, 200, "{}", reply.head);
        Some(reply)
    }

    /// The step of the first frame of a new viewer.
    fn step(&self) -> u64 {
        let watch = json!({ "topics": [{ "key": 1, "watch": "area", "area": "seen", "period_ms": 20 }] });
        let mut records = Records::of(self.post("/stream", &watch));
        // On a busy machine, a process may answer too late at first.
        loop {
            if let Some(step) = records.next().0["step"].as_u64() {
                return step;
            }
        }
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
    let (mut target, job) = Target::inspected("steered", 2);
    let port = free_port();
    let mut last = 0;
    for _ in 0..1 + scaled(1) {
        let served = Served::start(&target.name, port);
        let step = served.step();
        assert!(step > last);
        last = step;
        // On a busy machine, the workers may not come to one step in the server's time.
        wait_until("the job is paused", || {
            served.post("/ask", &json!({ "do": "pause" }));
            job.is_paused().unwrap().is_some()
        });
        drop(served);
        wait_until("the job goes on", || job.is_paused().unwrap().is_none());
        job.set("dt", 3.0).unwrap();
    }
    assert!(target.is_running());
}

mod deep {
    use farside_testbed::browser::{BED, Browser};
    use farside_testbed::is_left_out;
    use farside_viewer::{At, InspectError, Refused, Selection};

    use super::*;
    use crate::targets::BOARD;

    /// A server that is killed wherever it asks the job something holds nothing there, and leaves
    /// no half of a change.
    #[cfg(debug_assertions)]
    #[test]
    fn a_server_that_is_killed_anywhere_leaves_nothing() {
        let (mut target, job) = Target::inspected("steered", 2);
        let (port, all) = (free_port(), Selection::all());
        let board = job.open::<u32>("board").unwrap();
        let nines = vec![9; 2 * BOARD];
        let mut points = 0;
        for point in 1.. {
            board.put(&all, &[0; 2 * BOARD]).unwrap();
            let served = Served::start_with(&target.name, port, Some(format!("client:{point}")));
            let is_well = served.as_ref().is_some_and(|served| {
                let watch = json!({ "topics": [{ "key": 1, "watch": "area", "area": "seen", "period_ms": 1000 }] });
                let _viewer = served.try_post("/stream", &watch);
                let questions = [
                    json!({ "do": "jobs" }),
                    json!({ "do": "put", "area": "board", "values": nines }),
                    json!({ "do": "act", "action": "count" }),
                    json!({ "do": "pause" }),
                    json!({ "do": "set", "parameter": "dt", "value": 5.0 }),
                    json!({ "do": "next" }),
                    json!({ "do": "get", "area": "seen" }),
                    json!({ "do": "resume" }),
                ];
                // An answer is whole when the server has closed behind it.
                let is_answered = |question| {
                    let mut reply = served.try_post("/ask", question)?;
                    reply.body.read_to_end(&mut Vec::new()).ok().filter(|bytes| *bytes > 0)
                };
                questions.iter().all(|question| is_answered(question).is_some())
            });
            drop(served);
            // This waits for the end of what the server held.
            wait_until("what the server held has ended", || match job.set("dt", 1.0) {
                Err(InspectError::Refused { refused: Refused::Held { .. }, .. }) => false,
                changed => changed.map(|_| true).unwrap_or_else(|error| panic!("killed at point {point}: {error}")),
            });
            let values = board.get(&all, At::Next).unwrap().values;
            assert!(values == [0; 2 * BOARD] || values == nines, "killed at point {point}: {values:?}");
            assert_eq!(job.is_paused().unwrap(), None, "killed at point {point}");
            points = point;
            if is_well {
                break;
            }
        }
        assert!(points > 20, "{points} points");
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
        // The page may do more when it has noticed.
        browser.run("setTimeout(() => { window.isLater = true; }, 100)");
        browser.wait_for("window.isLater");
        assert_eq!(browser.run(&format!("return {facts}")), before, "the last frame stays");
        let _served = Served::start(&target.name, port);
        browser.wait_for(&format!("({facts}).includes('step') && ({facts}) != {before}"));
        browser.wait_for("!document.querySelector('#state').innerText.includes('no connection')");
        assert!(target.is_running());
    }
}
