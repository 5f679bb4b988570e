//! The activity of workers, as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Shares, Site, WorkerCounters, WorkerState, cycles};

/// The workers at a look, and what happened since an earlier one: `workers` and `cycles`.
///
/// A worker has `process`, `worker`, `is_of_pool`, `wait` (`doing`, `file`, `line`, `for`,
/// `seconds`), `call` (`seconds`, `site`), `replies_pending` and `ring_bytes`. If both looks found
/// it, it has also `seconds`, the shares `program` and `calls`, `waits` (`doing`, `file`, `line`,
/// `seconds`, `share`), and what it counted in `counted_seconds`: `sent`, `sent_bytes`, `ran`,
/// `stalls`, `queued`.
#[must_use]
pub fn workers_object(before: &[WorkerState], now: &[WorkerState]) -> Value {
    let workers: Vec<Value> = now.iter().map(|now| worker_object(before, now)).collect();
    json!({ "workers": workers, "cycles": cycles(before, now) })
}

fn worker_object(before: &[WorkerState], now: &WorkerState) -> Value {
    let age = |since: Duration| now.at.saturating_sub(since).as_secs_f64();
    let wait = now.wait.as_ref().map(|wait| {
        let mut object = site_object(&wait.site);
        object["for"] = wait.whom.to_string().into();
        object["seconds"] = age(wait.since).into();
        object
    });
    let call = now
        .call
        .as_ref()
        .map(|call| json!({ "seconds": call.since.map(age), "site": call.site.as_ref().map(site_object) }));
    let mut object = json!({
        "process": now.process, "worker": now.worker, "is_of_pool": now.is_of_pool, "wait": wait, "call": call,
        "replies_pending": now.counters.map(|counters| counters.replies_pending),
        "ring_bytes": now.counters.map(|counters| counters.ring_bytes),
    });
    let earlier = before.iter().find(|before| before.worker == now.worker);
    if let Some((shares, counted)) = earlier.and_then(|earlier| between(earlier, now)) {
        let share = |time: Duration| time.as_secs_f64() / shares.time.as_secs_f64().max(1e-9);
        let waits = shares.waits.iter().map(|(site, time)| {
            let mut object = site_object(site);
            object["seconds"] = time.as_secs_f64().into();
            object["share"] = share(*time).into();
            object
        });
        let waits: Vec<Value> = waits.collect();
        let more = [
            ("seconds", json!(shares.time.as_secs_f64())),
            ("program", json!(share(shares.program))),
            ("calls", json!(share(shares.calls))),
            ("waits", json!(waits)),
            ("counted_seconds", json!(counted.at.as_secs_f64())),
            ("sent", json!(counted.calls)),
            ("sent_bytes", json!(counted.bytes)),
            ("ran", json!(counted.executed)),
            ("stalls", json!(counted.stalls)),
            ("queued", json!(counted.staged)),
        ];
        more.into_iter().for_each(|(name, value)| object[name] = value);
    }
    object
}

/// The changes between two looks at one worker.
fn between(before: &WorkerState, now: &WorkerState) -> Option<(Shares, WorkerCounters)> {
    let counted = now.counters.zip(before.counters).map(|(now, before)| now.since(&before));
    Some((now.since(before)?, counted.unwrap_or_default()))
}

fn site_object(site: &Site) -> Value {
    json!({ "doing": site.doing, "file": site.file, "line": site.line })
}
