//! Streams of results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_rpc::server::Builder;
use farside_rpc::{Call, CallError, Handling, Never, Procedure, Ran, Server, Service, Stage, Stream};

use farside_testbed::{deadline, soon, wait_for, wait_until};

use crate::{everywhere, hold_until_cancelled, paths, start, tokens, turn_for};

/// The notes of the iterators of one test.
#[derive(Debug, Default)]
struct Heard {
    produced: AtomicU64,
    dropped: AtomicU64,
    /// The number of items that the caller has.
    received: AtomicU64,
}

impl Heard {
    const fn new() -> Self {
        Self { produced: AtomicU64::new(0), dropped: AtomicU64::new(0), received: AtomicU64::new(0) }
    }

    /// Numbers from 0 on, without end.
    fn count(&'static self) -> Counter {
        Counter { told: self, next: 0 }
    }
}

struct Counter {
    told: &'static Heard,
    next: u64,
}

impl Iterator for Counter {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.told.produced.fetch_add(1, Ordering::Relaxed);
        self.next += 1;
        Some(self.next - 1)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.told.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn numbers(builder: Builder) -> Builder {
    let service = Service::new("numbers")
        .procedure("below", Handling::Pooled, |_, limit: u64| {
            if limit == u64::MAX {
                return Err("there are too many".to_string());
            }
            Ok((limit, Stream::new(0..limit)))
        })
        .procedure("bytes", Handling::Pooled, |_, lengths: Vec<u32>| {
            let item = |length: u32| vec![length as u8; length as usize];
            Ok::<_, Never>(Stream::new(lengths.into_iter().map(item)))
        })
        .procedure("units", Handling::Pooled, |_, count: u32| Ok::<_, Never>(Stream::new(vec![(); count as usize])))
        .procedure("maybe", Handling::Pooled, |_, is_there: bool| {
            Ok::<_, Never>((is_there.then(|| Stream::new([7_u8])), vec![1_u8; 100_000]))
        })
        .procedure("halves", Handling::Pooled, |_, limit: u32| {
            let half =
                |number: u32| if number.is_multiple_of(2) { Ok(number / 2) } else { Err(format!("{number} is odd")) };
            Ok::<_, Never>(Stream::new((0..limit).map(half)))
        })
        .procedure("panic", Handling::Pooled, |_, after: u32| {
            let item = move |number| if number < after { number } else { panic!("{number} is too much") };
            Ok::<_, Never>(Stream::new((0..).map(item)))
        })
        .procedure("add", Handling::Pooled, |_, (a, b): (u64, u64)| Ok::<_, Never>(a + b));
    builder.provider(0, service)
}

type Below = (u64, Stream<u64>);

#[test]
fn items_arrive_in_order() {
    everywhere(numbers, |client| {
        let below = client.procedure::<u64, Below, String>("numbers", 0, "below");
        for limit in [0, 1, 2, 15, 16, 17, 1000, 100_000] {
            let (count, mut items) = below.call(&limit).unwrap();
            assert_eq!(count, limit);
            for number in 0..limit {
                assert_eq!(items.next(), Some(Ok(number)));
            }
            assert_eq!(items.next(), None);
            assert_eq!(items.next(), None);
        }
        assert_eq!(below.call(&u64::MAX).map(drop), Err(CallError::Service("there are too many".into())));
        let units = client.procedure::<u32, Stream<()>, Never>("numbers", 0, "units");
        assert_eq!(units.call(&70_000).unwrap().map(Result::unwrap).count(), 70_000);
        let stats = client.stats().unwrap();
        let below = stats.iter().find(|stats| stats.name == "numbers/0/below").unwrap();
        assert_eq!((below.done, below.failed, below.refused), (8, 1, 0));
    });
}

#[test]
fn a_stream_is_a_part_of_a_result() {
    everywhere(numbers, |client| {
        let maybe = client.procedure::<bool, (Option<Stream<u8>>, Vec<u8>), Never>("numbers", 0, "maybe");
        assert!(matches!(maybe.call(&false), Ok((None, _))));
        let (items, bytes) = maybe.call(&true).unwrap();
        assert_eq!(bytes.len(), 100_000);
        assert_eq!(items.unwrap().collect::<Vec<_>>(), [Ok(7)]);
        let plain = client.procedure::<u64, (u64, Vec<u64>), String>("numbers", 0, "below");
        let error = plain.call(&1).unwrap_err();
        assert!(matches!(&error, CallError::Shape { theirs, .. } if theirs.contains("Stream< u64 >")), "{error}");
    });
}

#[test]
fn items_of_any_length_up_to_the_limit_travel() {
    everywhere(numbers, |client| {
        let bytes = client.procedure::<Vec<u32>, Stream<Vec<u8>>, Never>("numbers", 0, "bytes");
        // A length takes 8 bytes.
        let longest = 64 * 1024 - 8;
        let mut lengths = vec![0, 1, 20_000, longest, longest, 3, 16 * 1024, 40_000, 40_000];
        lengths.extend(vec![longest; 40]);
        let items = bytes.call(&lengths).unwrap().map(|item| item.unwrap().len() as u32);
        assert_eq!(items.collect::<Vec<_>>(), lengths);
        let mut items = bytes.call(&vec![5, longest + 1, 5]).unwrap();
        assert_eq!(items.next(), Some(Ok(vec![5; 5])));
        let error = items.next().unwrap().unwrap_err();
        assert!(matches!(error, CallError::TooLarge { max: 65_536, .. }), "{error}");
        assert_eq!((error.ran(), items.next()), (Ran::Maybe, None));
    });
}

#[test]
fn items_may_be_errors() {
    everywhere(numbers, |client| {
        let halves = client.procedure::<u32, Stream<Result<u32, String>>, Never>("numbers", 0, "halves");
        let items: Vec<_> = halves.call(&3).unwrap().map(Result::unwrap).collect();
        assert_eq!(items, [Ok(0), Err("1 is odd".into()), Ok(1)]);
    });
}

#[test]
fn a_panic_of_an_iterator_ends_its_stream() {
    everywhere(numbers, |client| {
        let panic = client.procedure::<u32, Stream<u32>, Never>("numbers", 0, "panic");
        for after in [0, 3, 20_000] {
            let mut items = panic.call(&after).unwrap();
            for number in 0..after {
                assert_eq!(items.next(), Some(Ok(number)));
            }
            assert_eq!(items.next(), Some(Err(CallError::Panicked(format!("{after} is too much")))));
            assert_eq!(items.next(), None);
        }
        assert_eq!(client.ping(1), Ok(1));
    });
}

/// The iterator makes some items at once, and waits until the caller has them.
#[test]
fn no_item_waits_for_the_next_one() {
    static TOLD: Heard = Heard::new();
    let serve = |builder: Builder| {
        let slow = |_: &Call, at_once: u64| {
            let item = move |number: u64| {
                if number.is_multiple_of(at_once) {
                    wait_until("the items", || TOLD.received.load(Ordering::Relaxed) == number);
                }
                number
            };
            Ok::<_, Never>(Stream::new((0..3 * at_once).map(item)))
        };
        builder.provider(0, Service::new("slow").procedure("items", Handling::Pooled, slow))
    };
    everywhere(serve, |client| {
        let items = client.procedure::<u64, Stream<u64>, Never>("slow", 0, "items");
        for at_once in [1, 7, 8, 9, 30, 5000] {
            TOLD.received.store(0, Ordering::Relaxed);
            for (expected, item) in (0..).zip(items.call(&at_once).unwrap()) {
                assert_eq!(item, Ok(expected));
                TOLD.received.store(expected + 1, Ordering::Relaxed);
            }
            assert_eq!(TOLD.received.load(Ordering::Relaxed), 3 * at_once);
        }
    });
}

fn endless(told: &'static Heard) -> impl Fn(Builder) -> Builder {
    move |builder| {
        let service = Service::new("endless")
            .procedure("count", Handling::Pooled, |_, ()| Ok::<_, Never>(Stream::new(told.count())))
            .procedure("blocks", Handling::Pooled, |_, ()| {
                Ok::<_, Never>(Stream::new(told.count().map(|number| vec![number as u8; 1000])))
            })
            .procedure("three", Handling::Pooled, |call, ()| {
                let call = call.clone();
                let wait = move |number: &u64| {
                    if *number == 3 {
                        hold_until_cancelled(&call);
                    }
                };
                Ok::<_, Never>(Stream::new(told.count().inspect(wait)))
            })
            .procedure("add", Handling::Pooled, |_, (a, b): (u64, u64)| Ok::<_, Never>(a + b));
        builder.provider(0, service)
    }
}

#[test]
fn a_dropped_stream_drops_its_iterator() {
    static TOLD: Heard = Heard::new();
    everywhere(endless(&TOLD), |client| {
        for name in ["count", "three"] {
            let count = client.procedure::<(), Stream<u64>, Never>("endless", 0, name);
            for taken in [0, 3, 3000] {
                let taken = if name == "three" { taken.min(3) } else { taken };
                let dropped = TOLD.dropped.load(Ordering::Relaxed);
                let mut items = count.call(&()).unwrap();
                for number in 0..taken {
                    assert_eq!(items.next(), Some(Ok(number)));
                }
                drop(items);
                wait_until("the drop", || TOLD.dropped.load(Ordering::Relaxed) > dropped);
            }
            // An answer that is not looked at.
            let dropped = TOLD.dropped.load(Ordering::Relaxed);
            let produced = TOLD.produced.load(Ordering::Relaxed);
            let pending = count.start(&()).unwrap();
            wait_until("an item", || TOLD.produced.load(Ordering::Relaxed) > produced);
            assert_eq!(client.ping(1), Ok(1));
            drop(pending);
            wait_until("the drop", || TOLD.dropped.load(Ordering::Relaxed) > dropped);
        }
    });
}

/// More streams than the server has threads, which are not read. Other calls proceed.
#[test]
fn a_stream_that_is_not_read_stops_at_its_window() {
    static TOLD: Heard = Heard::new();
    everywhere(endless(&TOLD), |client| {
        let before = TOLD.produced.load(Ordering::Relaxed);
        let produced = || TOLD.produced.load(Ordering::Relaxed) - before;
        let blocks = client.procedure::<(), Stream<Vec<u8>>, Never>("endless", 0, "blocks");
        let mut streams: Vec<_> = (0..3).map(|_| blocks.call(&()).unwrap()).collect();
        // Half of the frames hold one item, because the caller seems to wait.
        wait_until("the items", || produced() >= 3 * 8);
        let add = client.procedure::<(u64, u64), u64, Never>("endless", 0, "add");
        for number in 0..500 {
            assert_eq!(add.call(&(number, 1)), Ok(number + 1));
        }
        // 16 frames of 16 KiB, and one item more each.
        let most = 3 * 16 * (16 * 1024 / 1000 + 2);
        assert!(produced() <= most, "{} items", produced());
        for stream in &mut streams {
            for number in 0..1000 {
                assert_eq!(stream.next(), Some(Ok(vec![number as u8; 1000])));
            }
        }
    });
}

#[test]
fn streams_of_one_connection_are_independent() {
    everywhere(numbers, |client| {
        let below = client.procedure::<u64, Below, String>("numbers", 0, "below");
        let (mut first, mut second) = (below.call(&20_000).unwrap().1, below.call(&20_000).unwrap().1);
        let add = client.procedure::<(u64, u64), u64, Never>("numbers", 0, "add");
        for number in 0..20_000 {
            assert_eq!((first.next(), second.next()), (Some(Ok(number)), Some(Ok(number))));
            if number % 1000 == 0 {
                assert_eq!(add.call(&(number, 1)), Ok(number + 1));
            }
        }
        assert_eq!((first.next(), second.next()), (None, None));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let items = below.call(&20_000).unwrap().1;
                scope.spawn(|| assert!(items.map(Result::unwrap).eq(0..20_000)));
            }
        });
    });
}

/// Calls until the answer comes before the deadline.
#[track_caller]
fn call_in_time(count: &Procedure<(), Stream<u64>, Never>) -> Stream<u64> {
    wait_for("an answer before the deadline", || match count.call(&()) {
        Ok(stream) => Some(stream),
        Err(error) => {
            assert!(matches!(error, CallError::Deadline { .. }), "{error}");
            None
        }
    })
}

#[test]
fn the_deadline_covers_the_stream() {
    static TOLD: Heard = Heard::new();
    everywhere(endless(&TOLD), |client| {
        let hasty = client.deadline(Duration::from_millis(100));
        let three = hasty.procedure::<(), Stream<u64>, Never>("endless", 0, "three");
        let dropped = TOLD.dropped.load(Ordering::Relaxed);
        let error = call_in_time(&three).last().unwrap().unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error}");
        wait_until("the drop", || TOLD.dropped.load(Ordering::Relaxed) > dropped);
        // A caller that does not read, and says nothing.
        let count = hasty.procedure::<(), Stream<u64>, Never>("endless", 0, "count");
        let dropped = TOLD.dropped.load(Ordering::Relaxed);
        let stream = call_in_time(&count);
        wait_until("the drop", || TOLD.dropped.load(Ordering::Relaxed) > dropped);
        let error = stream.last().unwrap().unwrap_err();
        assert_eq!(error, CallError::Deadline { stage: Stage::Waiting });
    });
}

#[test]
fn a_stream_counts_as_a_call() {
    let serve = |builder: Builder| numbers(builder).max_calls(1);
    everywhere(serve, |client| {
        let below = client.procedure::<u64, Below, String>("numbers", 0, "below");
        let add = client.procedure::<(u64, u64), u64, Never>("numbers", 0, "add");
        assert_eq!(add.call(&(1, 2)), Ok(3));
        let (_, mut items) = below.call(&50_000).unwrap();
        let error = add.call(&(1, 2)).unwrap_err();
        assert!(matches!(error, CallError::Busy { limit: 1, .. }), "{error}");
        for number in 0..50_000 {
            assert_eq!(items.next(), Some(Ok(number)));
        }
        assert_eq!(items.next(), None);
        assert_eq!(add.call(&(1, 2)), Ok(3));
    });
}

#[test]
fn a_server_that_shuts_down_ends_its_streams_first() {
    static TOLD: Heard = Heard::new();
    for address in paths() {
        let (server, client) = start(&address, |builder| numbers(builder).pool(2));
        let below = client.procedure::<u64, Below, String>("numbers", 0, "below");
        let (_, mut items) = below.call(&100_000).unwrap();
        assert_eq!(items.next(), Some(Ok(0)));
        assert_eq!(client.ping(1), Ok(1));
        std::thread::scope(|scope| {
            let shutdown = scope.spawn(|| server.shutdown(deadline()));
            wait_until("the server shuts down", || client.ping(2) == Err(CallError::ShuttingDown));
            assert!(items.map(Result::unwrap).eq(1..100_000));
            assert_eq!(shutdown.join().unwrap(), Ok(()));
        });
        // A stream that is not read is left.
        let (server, client) = start(&address, |builder| endless(&TOLD)(builder).pool(2));
        let count = client.procedure::<(), Stream<u64>, Never>("endless", 0, "count");
        let dropped = TOLD.dropped.load(Ordering::Relaxed);
        let items = count.call(&()).unwrap();
        let left = server.shutdown(soon()).unwrap_err();
        assert_eq!((left.count(), left.calls[0].procedure.as_str()), (1, "endless/0/count"));
        wait_until("the drop", || TOLD.dropped.load(Ordering::Relaxed) > dropped);
        let error = items.last().unwrap().unwrap_err();
        // The server may have said that it gave the stream up.
        let is_lost = matches!(error, CallError::Lost { ran: Ran::Maybe, .. } | CallError::Cancelled);
        assert!(is_lost, "{error}");
    }
}

/// A server in the program's own turns sleeps while its streams are parked.
#[test]
fn a_server_in_turns_streams() {
    static TOLD: Heard = Heard::new();
    for address in paths() {
        let builder = Server::builder().listen(&address).unwrap().tokens(tokens());
        let ended = TOLD.dropped.load(Ordering::Relaxed);
        turn_for(endless(&TOLD)(numbers(builder)).turns().unwrap(), |client| {
            let below = client.procedure::<u64, Below, String>("numbers", 0, "below");
            let (_, items) = below.call(&100_000).unwrap();
            assert!(items.map(Result::unwrap).eq(0..100_000));
            let count = client.procedure::<(), Stream<u64>, Never>("endless", 0, "count");
            let mut items = count.call(&()).unwrap();
            assert_eq!(items.next(), Some(Ok(0)));
            drop(items);
            wait_until("the drop", || TOLD.dropped.load(Ordering::Relaxed) == 1 + ended);
            let hasty = client.deadline(Duration::from_millis(200));
            let count = hasty.procedure::<(), Stream<u64>, Never>("endless", 0, "count");
            let ended = TOLD.dropped.load(Ordering::Relaxed);
            let items = call_in_time(&count);
            wait_until("the deadline", || TOLD.dropped.load(Ordering::Relaxed) > ended);
            drop(items);
        });
    }
}

#[test]
#[should_panic(expected = "the inline procedure \"a\" returns a stream")]
fn inline_procedures_have_no_streams() {
    let _ = Service::new("x").procedure("a", Handling::Inline, |_, ()| Ok::<_, Never>(Stream::new([1_u8])));
}

#[test]
#[should_panic(expected = "has a stream that is no part of its result")]
fn arguments_have_no_streams() {
    let _ = Service::new("x").procedure("a", Handling::Pooled, |_, _: Stream<u8>| Ok::<_, Never>(()));
}

/// Items that a handler made, without a server.
#[test]
fn a_handler_can_be_tested_by_itself() {
    assert!(Stream::new([1, 2]).map(Result::unwrap).eq([1, 2]));
}

/// A stream with a long result outlives the task that awaited it.
#[test]
fn an_awaited_stream_goes_on() {
    static TOLD: Heard = Heard::new();
    let serve = |builder: Builder| {
        let slow = |number: u64| {
            wait_until("the items before", || TOLD.received.load(Ordering::Relaxed) == number);
            number
        };
        let service = Service::new("slow").procedure("items", Handling::Pooled, move |_, limit: u64| {
            Ok::<_, Never>((Stream::new((0..limit).map(slow)), vec![1_u8; 100_000]))
        });
        builder.provider(0, service)
    };
    everywhere(serve, |client| {
        let items = client.procedure::<u64, (Stream<u64>, Vec<u8>), Never>("slow", 0, "items");
        let (stream, bytes) = crate::tasks::run(async { items.start(&50)?.await }).unwrap();
        assert_eq!(bytes.len(), 100_000);
        for (expected, item) in (0..).zip(stream) {
            assert_eq!(item, Ok(expected));
            TOLD.received.store(expected + 1, Ordering::Relaxed);
        }
        assert_eq!(TOLD.received.swap(0, Ordering::Relaxed), 50);
    });
}
