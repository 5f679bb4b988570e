//! Many viewers: slow ones, stuck ones, silent ones.

use serde_json::{Value, json};

use crate::page::client::{Records, counts, post, serve};
use crate::targets::{COLUMNS, ROWS, Target, patterns};

fn watch(period_ms: u64) -> Value {
    json!({ "topics": [{ "key": "it", "watch": "area", "area": "pattern", "period_ms": period_ms }] })
}

/// Checks a frame. Returns its step.
fn step_of(head: &Value, body: &[u8]) -> u64 {
    assert_eq!((&head["key"], &head["type"]), (&json!("it"), &json!("u64")), "{head}");
    let step = head["step"].as_u64().unwrap();
    let values = body.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    assert!(values.eq(patterns(step, 0..2 * ROWS, 0..COLUMNS)), "step {step} is mixed");
    step
}

/// The end of a job reaches its viewers, who keep the connection.
#[test]
fn the_end_of_a_job_is_told() {
    let mut target = Target::start("pattern", &[]);
    target.inspect(2);
    let page = serve(&target.name);
    let mut records = Records::of(post(&page, "/stream", &watch(20)));
    let (head, body) = records.next();
    step_of(&head, &body);
    drop(target);
    let error = loop {
        let (head, _) = records.next();
        if let Some(error) = head["error"].as_str() {
            break error.to_owned();
        }
    };
    assert!(["gone", "no job", "no area", "refused", "no process"].iter().any(|word| error.contains(word)), "{error}");
}

/// Hundreds of viewers.
mod deep {
    use std::io::Read;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use farside_testbed::wait_until;

    use super::*;
    use crate::page::client::connect;

    #[test]
    fn three_hundred_viewers_cost_the_job_one() {
        const VIEWERS: usize = 300;
        let mut target = Target::start("pattern", &[]);
        target.inspect(2);
        let page = serve(&target.name);
        let (watching, is_counted) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for viewer in 0..VIEWERS {
                let (page, watching, is_counted) = (&page, &watching, &is_counted);
                scope.spawn(move || {
                    let mut records = Records::of(post(page, "/stream", &watch(50)));
                    let (head, body) = records.next();
                    let mut last = step_of(&head, &body);
                    watching.fetch_add(1, Ordering::Relaxed);
                    // All stay until the first viewer has seen them there.
                    wait_until("all see a frame", || match viewer {
                        0 => watching.load(Ordering::Relaxed) == VIEWERS,
                        _ => is_counted.load(Ordering::Relaxed),
                    });
                    if viewer == 0 {
                        let counts = counts(page);
                        is_counted.store(true, Ordering::Relaxed);
                        assert_eq!((&counts["readers"], &counts["dropped"]), (&json!(1), &json!(0)), "{counts}");
                        assert!(counts["viewers"].as_u64().unwrap() >= VIEWERS as u64, "{counts}");
                    }
                    for _ in 0..3 {
                        let (head, body) = records.next();
                        let step = step_of(&head, &body);
                        assert!(step > last, "steps rise");
                        last = step;
                    }
                });
            }
        });
        assert!(target.is_running());
        // The last viewer has gone, and so does the reader.
        wait_until("the reader goes", || counts(&page)["readers"] == 0);
    }

    /// Connections that say nothing give way to those that do.
    #[test]
    fn silent_connections_give_way() {
        let mut target = Target::start("pattern", &[]);
        target.inspect(2);
        let page = serve(&target.name);
        let mut silent: Vec<_> = (0..300).map(|_| connect(page.address())).collect();
        let mut records = Records::of(post(&page, "/stream", &watch(50)));
        let (head, body) = records.next();
        step_of(&head, &body);
        // The oldest were ended: their read ends.
        let ended = silent[0].read(&mut [0; 16]);
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        assert!(counts(&page)["turned_away"].as_u64().unwrap() >= 100);
        // The viewer did not have to give way.
        let (head, body) = records.next();
        step_of(&head, &body);
    }
}

/// A viewer is slow or stuck by the clock.
mod timing {
    use std::thread;
    use std::time::{Duration, Instant};

    use farside_viewer::page::{Options, Page};

    use super::*;

    /// A viewer that takes nothing is cut off. The others go on meanwhile, and what a slow one
    /// misses is counted.
    #[test]
    fn stuck_viewers_are_cut_off_and_slow_ones_skip() {
        let mut target = Target::start("pattern", &[]);
        target.inspect(2);
        let options = Options::default().idle_time(Duration::from_secs(3));
        let page = Page::start_with("127.0.0.1:0".parse().unwrap(), &target.name, &[], options).unwrap();
        // The buffers of a connection take some megabytes before its viewer is stuck, which is soon
        // if it watches the same often.
        let topics: Vec<Value> =
            (0..8).map(|_| json!({ "key": "it", "watch": "area", "area": "pattern", "period_ms": 8 })).collect();
        let often = json!({ "topics": topics });
        let stuck: Vec<_> = (0..20).map(|_| post(&page, "/stream", &often)).collect();
        let mut slow = Records::of(post(&page, "/stream", &often));
        let mut skipped = 0;
        while skipped == 0 || counts(&page)["viewers"].as_u64().unwrap() > 10 {
            // It takes nothing for a while, and then much at once. The system tells the server of
            // new room only when there is a megabyte, so a viewer that takes little each time seems
            // stuck.
            thread::sleep(Duration::from_secs(1));
            let awake = Instant::now() + Duration::from_millis(300);
            while Instant::now() < awake {
                let (head, body) = slow.next();
                step_of(&head, &body);
                skipped += head["skipped"].as_u64().unwrap();
            }
        }
        let counts = counts(&page);
        assert_eq!((&counts["readers"], &counts["dropped"]), (&json!(1), &json!(0)), "{counts}");
        assert!(target.is_running());
        drop(stuck);
    }
}
