//! A worker's knowledge of the others: their load, and whether they have memory for nodes.

use std::collections::VecDeque;

use farside::WorkerId;

/// All workers of the job, this one among them.
#[derive(Debug)]
pub(super) struct Neighbours {
    me: WorkerId,
    /// Number of rollouts that each worker got from here and has not returned.
    outstanding: Vec<u32>,
    /// For each worker: true once it has refused a node for lack of memory.
    is_full: Vec<bool>,
    /// Idle workers that have asked for work, each listed once.
    idle: VecDeque<WorkerId>,
    /// True if this worker has asked for work and got no answer yet.
    pub(super) has_asked: bool,
    /// The worker that `find_underloaded` looked at last.
    last_seen: u32,
}

impl Neighbours {
    pub(super) fn new(me: WorkerId, workers: u32) -> Self {
        let count = workers as usize;
        let (outstanding, is_full) = (vec![0; count], vec![false; count]);
        Self { me, outstanding, is_full, idle: VecDeque::new(), has_asked: false, last_seen: me.number() }
    }

    /// Begins a run: forgets which workers have asked for work.
    pub(super) fn begin(&mut self) {
        self.idle.clear();
        self.has_asked = false;
    }

    pub(super) fn count(&self) -> u32 {
        self.outstanding.len() as u32
    }

    /// Counts a rollout that moves to a worker.
    pub(super) fn send_to(&mut self, worker: WorkerId) {
        self.outstanding[worker.index()] += 1;
    }

    /// Counts a rollout that has come back from a worker.
    pub(super) fn receive_from(&mut self, worker: WorkerId) {
        self.outstanding[worker.index()] -= 1;
    }

    pub(super) fn refuses_nodes(&mut self, worker: WorkerId) {
        self.is_full[worker.index()] = true;
    }

    /// Notes that all workers have freed memory.
    pub(super) fn have_room_again(&mut self) {
        self.is_full.fill(false);
    }

    pub(super) fn takes_nodes(&self, worker: WorkerId) -> bool {
        !self.is_full[worker.index()]
    }

    /// Notes an idle worker that asks for work.
    pub(super) fn add_idle(&mut self, worker: WorkerId) {
        if !self.idle.contains(&worker) {
            self.idle.push_back(worker);
        }
    }

    /// Removes and returns the idle worker that asked first.
    pub(super) fn take_idle(&mut self) -> Option<WorkerId> {
        self.idle.pop_front()
    }

    /// Returns the next worker in turn, if it has fewer than `enough` rollouts from here.
    pub(super) fn find_underloaded(&mut self, enough: u32) -> Option<WorkerId> {
        self.last_seen = (self.last_seen + 1) % self.count();
        if self.last_seen == self.me.number() {
            self.last_seen = (self.last_seen + 1) % self.count();
        }
        let worker = WorkerId::new(self.last_seen);
        (worker != self.me && self.outstanding[worker.index()] < enough).then_some(worker)
    }

    /// Returns the worker other than `other` with the most rollouts from here, if these are more
    /// than `enough`.
    pub(super) fn find_busiest_but(&self, other: WorkerId, enough: u32) -> Option<WorkerId> {
        let workers = (0..self.count()).map(WorkerId::new).filter(|worker| *worker != other);
        let busiest = workers.max_by_key(|worker| self.outstanding[worker.index()])?;
        (self.outstanding[busiest.index()] > enough).then_some(busiest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(number: u32) -> WorkerId {
        WorkerId::new(number)
    }

    #[test]
    fn underloaded_workers_are_found_one_by_one() {
        let mut all = Neighbours::new(worker(1), 4);
        all.send_to(worker(2));
        let found: Vec<_> = (0..6).map(|_| all.find_underloaded(1)).collect();
        let [zero, three] = [Some(worker(0)), Some(worker(3))];
        assert_eq!(found, [None, three, zero, None, three, zero]);
        assert_eq!(Neighbours::new(worker(0), 1).find_underloaded(1), None);
    }

    #[test]
    fn the_busiest_worker_has_more_than_enough() {
        let mut all = Neighbours::new(worker(0), 3);
        assert_eq!(all.find_busiest_but(worker(0), 0), None);
        all.send_to(worker(1));
        all.send_to(worker(2));
        all.send_to(worker(2));
        assert_eq!(all.find_busiest_but(worker(0), 1), Some(worker(2)));
        assert_eq!(all.find_busiest_but(worker(2), 0), Some(worker(1)));
        assert_eq!(all.find_busiest_but(worker(2), 1), None);
        all.receive_from(worker(2));
        assert_eq!(all.find_busiest_but(worker(0), 1), None);
    }

    #[test]
    fn an_idle_worker_is_listed_once() {
        let mut all = Neighbours::new(worker(0), 3);
        [2, 1, 2].into_iter().for_each(|number| all.add_idle(worker(number)));
        assert_eq!([(); 3].map(|()| all.take_idle()), [Some(worker(2)), Some(worker(1)), None]);
    }
}
