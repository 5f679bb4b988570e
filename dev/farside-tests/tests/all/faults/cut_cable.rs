//! Processes on two hosts use pipes, heaps and locks of each other when the cable between the hosts
//! is cut. Those of the larger host learn of it and go on.

use farside_testbed::netns::Side::{A, B};

use super::sweep::VICTIM;
use crate::survivors;

/// Process 1 is alone on the second host. The others use libfabric or shared memory among
/// themselves.
fn is_survived(program: &str) {
    if !survivors::is_possible() {
        return;
    }
    for (fabric, sides) in [("ofi:tcp", &[A, B, A][..]), ("auto", &[A, B, A, A])] {
        let reports = survivors::run(program, fabric, sides, |pair, _| pair.cut().unwrap());
        for (rank, (code, text)) in (0..).zip(&reports) {
            let is_well = text.contains("well");
            if rank == VICTIM {
                assert!(!is_well && code.is_some_and(|code| code != 0) && text.contains("process 0"), "{reports:#?}");
            } else {
                assert!(is_well, "{fabric}: {reports:#?}");
            }
        }
        // Process 0 runs the job.
        assert!(reports[0].1.contains(&format!("process {VICTIM} failed")), "{fabric}: {reports:#?}");
    }
}

mod deep {
    use super::is_survived;

    #[test]
    fn pipes_are_cut() {
        is_survived("faults::pipes::program");
    }

    #[test]
    fn heaps_are_cut_off() {
        is_survived("faults::heaps::program");
    }

    #[test]
    fn locks_are_cut_off() {
        is_survived("faults::locks::program");
    }
}
