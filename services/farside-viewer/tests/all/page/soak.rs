//! Viewers that come, look and go without a word: the server of the page stays as it was.

use std::thread;

use farside_testbed::free_port;
use serde_json::json;

use crate::page::again::Served;
use crate::page::client::Records;
use crate::soak::{holdings, wait_until_flat};
use crate::targets::Target;

/// Crowds of viewers in all, those after which the server has what it needs, and the viewers of
/// each.
const ROUNDS: usize = 60;
const WARM: usize = 20;
const VIEWERS: usize = 40;

/// It takes half a minute: 2400 viewers.
mod deep {
    use super::*;

    #[test]
    fn viewers_that_come_and_go_leave_nothing() {
        let (mut target, job) = Target::inspected("steered", 2);
        let served = Served::start(&target.name, free_port());
        let watch = json!({ "topics": [
        { "key": 1, "watch": "area", "area": "seen", "period_ms": 20 },
        { "key": 2, "watch": "area", "area": "board", "period_ms": 20 },
        { "key": 3, "watch": "jobs", "period_ms": 20 },
    ] });
        let server = [served.child.id()];
        let mut before = Vec::new();
        for round in 0..ROUNDS {
            thread::scope(|scope| {
                for number in 0..VIEWERS {
                    let (served, watch) = (&served, &watch);
                    scope.spawn(move || {
                        let mut records = Records::of(served.post("/stream", watch));
                        (0..=number % 4).for_each(|_| drop(records.next()));
                        // A pause ends with the connection of its viewer, or is refused.
                        if number == 0 {
                            served.post("/ask", &json!({ "do": "pause" }));
                            served.post("/ask", &json!({ "do": "resume" }));
                        }
                    });
                }
            });
            if round == WARM {
                before = holdings(&server);
            }
        }
        assert!(!before.is_empty(), "there are enough rounds");
        wait_until_flat(&server, &before);
        job.set("dt", 2.0).unwrap();
        assert!(target.is_running());
    }
}
