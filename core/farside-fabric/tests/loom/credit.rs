//! A sender that sleeps until there is credit.

use std::sync::Arc;

use farside_fabric::bell::{Doorbell, Fencing};
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

use crate::check;
use crate::futex::Futex;
use crate::memory::{RECORD_BYTES, receive, ring, send, try_receive, try_send};

struct Sleeper {
    bell: Doorbell,
    futex: Futex,
}

#[test]
fn a_sender_that_waits_for_credit_is_woken_by_it() {
    check(Some(4), || {
        let (mut sender, mut receiver) = ring(&[1, 1]);
        (1..=2).for_each(|value| send(&mut sender, value));
        let sleeper = Arc::new(Sleeper { bell: Doorbell::default(), futex: Futex::new() });
        let sending = thread::spawn({
            let sleeper = sleeper.clone();
            move || {
                while !try_send(&mut sender, 3) {
                    sender.begin_waiting();
                    let token = sleeper.bell.prepare(Fencing::Mutual, || {});
                    if sender.has_room(RECORD_BYTES) {
                        sleeper.bell.cancel(token);
                    } else {
                        sleeper.bell.sleep_on(token, |word, seen| sleeper.futex.wait(word, seen));
                    }
                    sender.end_waiting();
                }
            }
        });
        assert_eq!(receive(&mut receiver), 1);
        // Here the receiver moves from the first chunk to the second, and credits the first.
        assert_eq!(receive(&mut receiver), 2);
        if receiver.credited_sender_waits() {
            // The steps of `Doorbell::ring_if_asleep`.
            fence(Ordering::SeqCst);
            sleeper.bell.ring_with(|_| sleeper.futex.wake());
        }
        sending.join().unwrap();
        assert_eq!(try_receive(&mut receiver), Some(3));
    });
}
