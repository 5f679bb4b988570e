//! [`Attendance`]: calls that stay open, so that doors know that this program is there.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use farside_inspect::__private::lock;
use farside_inspect::__private::protocol::DoorClient;
use farside_rpc::{CallError, Never, Pending};

/// The time of one call. Another one is opened before that is over.
const CALL_TIME: Duration = Duration::from_secs(40);
const AGAIN_AFTER: Duration = Duration::from_secs(20);

/// Calls of some doors that stay open. Dropping it cancels them, which ends what this program holds
/// there.
#[derive(Debug)]
pub(super) struct Attendance {
    doors: Vec<DoorClient>,
    /// The number of this attendance, which no other of the same connections has.
    number: u64,
    /// The open calls, the newest last.
    open: Mutex<VecDeque<Vec<Pending<(), Never>>>>,
    /// Tells the thread that opens them again that it has ended.
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl Attendance {
    pub(super) fn new(doors: Vec<DoorClient>, number: u64) -> Result<Arc<Self>, CallError<Never>> {
        let attendance = Arc::new(Self { doors, number, open: Mutex::default(), ended: Arc::default() });
        attendance.open()?;
        let (weak, ended) = (Arc::downgrade(&attendance), attendance.ended.clone());
        std::thread::spawn(move || go_on(&weak, &ended));
        Ok(attendance)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Opens a call of each door. An error is that of one; those of the others are open then.
    fn open(&self) -> Result<(), CallError<Never>> {
        let mut failure = Ok(());
        let attend = |door: &DoorClient| door.deadline(CALL_TIME).attend(self.number);
        let opened = self.doors.iter().filter_map(|door| attend(door).map_err(|error| failure = Err(error)).ok());
        let opened = opened.collect();
        let mut open = lock(&self.open);
        open.push_back(opened);
        // Earlier calls are cancelled when the later ones have certainly arrived.
        while open.len() > 2 {
            open.pop_front();
        }
        failure
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        *lock(&self.ended.0) = true;
        self.ended.1.notify_all();
    }
}

/// Opens the calls again and again, until the attendance has ended.
fn go_on(attendance: &Weak<Attendance>, ended: &(Mutex<bool>, Condvar)) {
    let mut has_ended = lock(&ended.0);
    while !*has_ended {
        has_ended = ended.1.wait_timeout(has_ended, AGAIN_AFTER).unwrap_or_else(PoisonError::into_inner).0;
        let Some(attendance) = attendance.upgrade().filter(|_| !*has_ended) else { return };
        drop(has_ended);
        // A failure is a connection that has ended, and then this program holds nothing there. It
        // is still there for the other doors.
        let _ = attendance.open();
        drop(attendance);
        has_ended = lock(&ended.0);
    }
}
