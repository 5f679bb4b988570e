//! Queues of unsent messages under the model checker: a message that waits is never forgotten.
//!
//! The file of the queues is compiled once more here, with the checker's atomics and locks.

/// The types that the queues use here.
mod primitives {
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no model panics with a lock")
    }
}

#[allow(dead_code, reason = "a model needs less of it than a process")]
#[path = "../../src/runtime/outgoing/queues.rs"]
mod queues;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use queues::Queues;

const MESSAGE: [u8; 1] = [7];

fn no_room() -> Result<bool, ()> {
    Ok(false)
}

/// The service thread and a worker flush at the same time, in vain, while another worker adds a
/// message. Then the service thread has seen that messages wait, or is woken.
#[test]
fn the_service_thread_looks_again_while_messages_wait() {
    loom::model(|| {
        let queues = Arc::new(Queues::new(1));
        let woken = Arc::new(AtomicBool::new(false));
        assert_eq!(queues.send(0, MESSAGE, |_| no_room()), Ok(true), "the first message wakes");
        let flushing = thread::spawn({
            let queues = queues.clone();
            move || queues.flush(|_, _| no_room())
        });
        let adding = thread::spawn({
            let (queues, woken) = (queues.clone(), woken.clone());
            move || {
                if queues.send(0, MESSAGE, |_| no_room()) == Ok(true) {
                    woken.store(true, Ordering::Relaxed);
                }
            }
        });
        let looks_again = queues.flush(|_, _| no_room());
        assert!(flushing.join().unwrap());
        adding.join().unwrap();
        assert!(looks_again || woken.load(Ordering::Relaxed));
    });
}

/// A worker that flushes finds room. What it leaves, the service thread knows of; what it sends is
/// not counted any more.
#[test]
fn nothing_waits_when_all_is_sent() {
    loom::model(|| {
        let queues = Arc::new(Queues::new(1));
        assert_eq!(queues.send(0, MESSAGE, |_| no_room()), Ok(true));
        let sending = thread::spawn({
            let queues = queues.clone();
            move || queues.flush(|_, _| Ok::<_, ()>(true))
        });
        queues.flush(|_, _| no_room());
        assert!(!sending.join().unwrap(), "it has sent all");
        assert!(!queues.flush(|_, _| no_room()), "so nothing waits");
    });
}

/// A frame finds messages before it while the service thread sends them. The mark that it leaves
/// goes with the last of them, so answers do not wait for ever.
#[test]
fn a_queue_is_awaited_only_while_messages_wait() {
    loom::model(|| {
        let queues = Arc::new(Queues::new(1));
        assert_eq!(queues.send(0, MESSAGE, |_| no_room()), Ok(true));
        let trying = thread::spawn({
            let queues = queues.clone();
            move || queues.try_send(0, || Ok::<_, ()>(true))
        });
        queues.flush(|_, _| Ok::<_, ()>(true));
        trying.join().unwrap().unwrap();
        assert!(queues.look(0, |queue| !queue.is_awaited() && queue.bytes() == 0));
    });
}
