//! The events for the receiving thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::transport::Event;

/// Events in order, guarded by the endpoint's lock.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    news: Arc<News>,
}

/// True if there are events, readable without the lock. Written under the lock, and read by a
/// thread that decides whether to take it.
///
/// It publishes nothing. A thread that reads `true` then takes the lock. A thread that reads
/// `false`, although an event was just pushed, looks again later, as if it had looked before the
/// push.
#[derive(Debug, Default)]
pub(super) struct News(AtomicBool);

impl News {
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Events {
    pub(super) fn news(&self) -> &Arc<News> {
        &self.news
    }

    pub(super) fn push(&mut self, event: Event) {
        self.queue.push_back(event);
        self.news.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.queue.pop_front();
        self.news.0.store(!self.queue.is_empty(), Ordering::Relaxed);
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ProcessId;

    #[test]
    fn news_is_what_can_be_received() {
        let mut events = Events::default();
        let news = events.news().clone();
        assert!(!news.is_there() && events.pop().is_none());
        for process in [1, 2].map(ProcessId::new) {
            events.push(Event::Disconnected { process });
        }
        for process in [1, 2].map(ProcessId::new) {
            assert!(news.is_there());
            assert_eq!(events.pop(), Some(Event::Disconnected { process }));
        }
        assert!(!news.is_there() && events.pop().is_none() && !news.is_there());
    }
}
