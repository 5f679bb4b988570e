//! Detection of quiescence: whether every call that was sent was executed, and no more will be
//! sent.
//!
//! This is the four-counter method (F. Mattern, "Algorithms for distributed termination detection",
//! 1987). In each round, every process reports at some moment how many calls it has sent and
//! executed. The counts of one round are taken at different times. So a call may go from a process
//! that is not counted yet to one that was. But suppose that a second round, begun after the first
//! was complete, finds the same sums. Then nothing happened in between. If the sums of sent and
//! executed calls are also equal, no call was under way either.
//!
//! When a process is lost, its counts are unknown, and the sums need not balance any more. Two
//! equal rounds are then the best evidence available: no survivor was active in between.

use farside_fabric::ProcessId;

/// The numbers of calls that a process, or all processes together, sent and executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) executed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    /// The process has not answered in this round.
    Open,
    Given(Counts),
    /// The process is no longer counted.
    Lost,
}

/// Counts round by round. Round 0 is under way from the beginning.
#[derive(Debug)]
pub(crate) struct Census {
    round: u32,
    answers: Vec<Answer>,
    /// The sums of the previous round, if it counted the same processes.
    previous: Option<Counts>,
    is_reduced: bool,
}

/// The result of a complete round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conclusion {
    /// True if the job is quiescent: no call is under way, and none will be.
    pub(crate) is_quiescent: bool,
    /// True if the sums of sent and executed calls are equal.
    pub(crate) balanced: bool,
}

impl Census {
    pub(crate) fn new(processes: usize) -> Self {
        Self { round: 0, answers: vec![Answer::Open; processes], previous: None, is_reduced: false }
    }

    /// Takes a process's answer. Returns whether it counts: only the first answer in the current
    /// round does.
    pub(crate) fn answer(&mut self, process: ProcessId, round: u32, counts: Counts) -> bool {
        let answer = &mut self.answers[process.index()];
        let wanted = round == self.round && matches!(answer, Answer::Open);
        if wanted {
            *answer = Answer::Given(counts);
        }
        wanted
    }

    /// Stops counting a process. Discards the sums of the previous round, which included it.
    pub(crate) fn lose(&mut self, process: ProcessId) {
        self.answers[process.index()] = Answer::Lost;
        self.previous = None;
        self.is_reduced = true;
    }

    /// Returns whether all processes have answered.
    pub(crate) fn is_complete(&self) -> bool {
        !self.answers.iter().any(|answer| matches!(answer, Answer::Open))
    }

    /// Returns the result of a complete round.
    pub(crate) fn conclude(&mut self) -> Conclusion {
        debug_assert!(self.is_complete());
        let sums = self.sums();
        let unchanged = self.previous.replace(sums) == Some(sums);
        let balanced = sums.sent == sums.executed;
        Conclusion { is_quiescent: unchanged && (balanced || self.is_reduced), balanced }
    }

    /// Begins the next round and returns its number.
    pub(crate) fn begin_round(&mut self) -> u32 {
        self.round = self.round.wrapping_add(1);
        for answer in &mut self.answers {
            if let Answer::Given(_) = answer {
                *answer = Answer::Open;
            }
        }
        self.round
    }

    /// Returns a process's answer in this round.
    pub(crate) fn answer_of(&self, process: ProcessId) -> Option<Counts> {
        match self.answers[process.index()] {
            Answer::Given(counts) => Some(counts),
            Answer::Open | Answer::Lost => None,
        }
    }

    fn sums(&self) -> Counts {
        let mut sums = Counts::default();
        for answer in &self.answers {
            if let Answer::Given(counts) = answer {
                // Only differences matter, and those survive an overflow.
                sums.sent = sums.sent.wrapping_add(counts.sent);
                sums.executed = sums.executed.wrapping_add(counts.executed);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessId = ProcessId::new(0);
    const B: ProcessId = ProcessId::new(1);

    fn counts(sent: u64, executed: u64) -> Counts {
        Counts { sent, executed }
    }

    fn round(census: &mut Census, number: u32, a: Counts, b: Counts) -> Conclusion {
        assert!(census.answer(A, number, a));
        assert!(!census.is_complete());
        assert!(census.answer(B, number, b));
        assert!(census.is_complete());
        census.conclude()
    }

    #[test]
    fn two_equal_and_balanced_rounds_are_quiescence() {
        let mut census = Census::new(2);
        let first = round(&mut census, 0, counts(3, 1), counts(1, 3));
        assert_eq!(first, Conclusion { is_quiescent: false, balanced: true });
        assert_eq!(census.begin_round(), 1);
        assert!(round(&mut census, 1, counts(3, 1), counts(1, 3)).is_quiescent);
    }

    #[test]
    fn a_changing_balance_is_not_quiescence() {
        let mut census = Census::new(2);
        assert!(round(&mut census, 0, counts(3, 1), counts(1, 3)).balanced);
        census.begin_round();
        let second = round(&mut census, 1, counts(4, 1), counts(1, 4));
        assert_eq!(second, Conclusion { is_quiescent: false, balanced: true });
        census.begin_round();
        assert!(round(&mut census, 2, counts(4, 1), counts(1, 4)).is_quiescent);
    }

    #[test]
    fn an_imbalance_is_quiescence_only_after_a_loss() {
        let mut census = Census::new(2);
        for number in 0..5 {
            let seen = round(&mut census, number, counts(5, 1), counts(1, 3));
            assert_eq!(seen, Conclusion { is_quiescent: false, balanced: false });
            census.begin_round();
        }
        census.lose(B);
        // The sums equal those of the last round, but only because A was active.
        assert!(census.answer(A, 5, counts(6, 4)));
        assert!(!census.conclude().is_quiescent, "the previous round counted other processes");
        census.begin_round();
        assert!(census.answer(A, 6, counts(6, 4)));
        assert!(census.conclude().is_quiescent);
    }

    #[test]
    fn only_the_first_answer_in_its_round_counts() {
        let mut census = Census::new(2);
        assert!(!census.answer(A, 1, counts(9, 9)));
        assert!(census.answer(A, 0, counts(1, 1)));
        assert!(!census.answer(A, 0, counts(9, 9)));
        census.lose(B);
        assert!(!census.answer(B, 0, counts(9, 9)));
        assert_eq!(census.answer_of(A), Some(counts(1, 1)));
        assert_eq!(census.answer_of(B), None);
        census.begin_round();
        assert_eq!(census.answer_of(A), None);
        assert!(!census.answer(A, 0, counts(9, 9)));
    }
}
