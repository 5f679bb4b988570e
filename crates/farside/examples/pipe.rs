//! A value through memory of the other side, and back: the sample program of the talk "rmalloc() and rpipe()" (Wickramasinghe and Lumsdaine,
//! slide 36), with pipes.
//!
//! ```console
//! cargo run -p farside --example pipe
//! ```
//!
//! The slide opens a half duplex pipe of width 8, allocates an `int` at the peer, and frees it right after use. In its text the branch of the *writer*
//! stores the value and the other one calls both `rwrite` and `rread`, so that the roles are mixed up. Here whoever has the writer writes. The
//! `rwrite` of the slide is [`write`](farside::pipe::PipeWriter::write) or a loan that is committed, its `rread` an offer that the reader fetches; the memory
//! is freed for the next message when the reader releases it.

use farside::prelude::*;

const PIPE_WIDTH: usize = 8;
const SEND_VALUE: i32 = 42;

fn main() -> farside::Result<()> {
    farside::job().processes(2).run(|me: &Worker| {
        let (writer, reader) = (WorkerId::new(0), WorkerId::new(1));
        if me.id() == writer {
            let mut pipe = me.pipe(reader).width(PIPE_WIDTH).writer()?;
            // Written where it will be read; from `commit` on it is the reader's.
            let mut place = pipe.loan(size_of::<i32>())?;
            place.copy_from_slice(&SEND_VALUE.to_ne_bytes());
            place.commit()?;
            // Kept here, until the reader fetches it.
            let kept = me.allocate(1 << 20)?;
            kept.fill(7);
            pipe.offer(kept)?;
            let kept = pipe.take_back()?.expect("it was offered");
            println!("{} bytes are the writer's again", kept.bytes());
        } else {
            let mut pipe = me.pipe(writer).width(PIPE_WIDTH).reader()?;
            let message = pipe.recv()?;
            let value = i32::from_ne_bytes(message[..].try_into().expect("an i32 was written"));
            // Released immediately after use.
            message.release();
            println!("received {value}");
            let mut fetched = vec![0; 1 << 20];
            let bytes = pipe.read(&mut fetched)?;
            let sum: u64 = fetched.iter().map(|byte| u64::from(*byte)).sum();
            println!("fetched {bytes} bytes, whose sum is {sum}");
        }
        me.barrier()
    })
}
