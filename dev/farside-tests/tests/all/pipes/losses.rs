//! Messages whose reader is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::cause;
use farside::{ProcessId, Simulation};
use farside_kit::pipe::PipeCause;
use farside_kit::prelude::*;

#[test]
fn messages_not_taken_by_a_lost_reader_are_reported() {
    let simulation = Simulation::new(2, 1, 1).kill(ProcessId::new(1), Duration::from_millis(1));
    let well = AtomicU32::new(0);
    let simulated = simulation.run(|me| {
        let other = me.neighbor(1);
        if me.id().number() == 1 {
            let mut reader = me.pipe(other).reader()?;
            drop(reader.recv()?);
            return me.wait_while_serving(|| false);
        }
        let mut writer = me.pipe(other).writer()?;
        (0..3).try_for_each(|_| writer.write(b"message"))?;
        while writer.taken()? < 1 {
            me.progress()?;
        }
        me.wait_while_serving(|| !me.lost_processes().is_empty())?;
        let lost = cause(writer.close());
        assert!(matches!(lost, PipeCause::Undelivered { messages: 2, .. }), "{lost:?}");
        well.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    assert!(simulated.unwrap().verdict.is_err());
    assert_eq!(well.into_inner(), 1);
}
