//! A value through memory of the other process, and back: the sample program of the talk "rmalloc()
//! and rpipe()" (Wickramasinghe and Lumsdaine, slide 36).
//!
//! ```console
//! cargo run -p farside-kit --example pipe
//! ```
//!
//! The slide opens a half duplex pipe of width 8, allocates an `int` at the peer, and frees it
//! right after use. In its text, the *writer* stores the value and the other branch calls both
//! `rwrite` and `rread`, so the roles are mixed up. Here the process with the writer writes:
//!
//! 1. As on the slide. `rmalloc` is [`alloc`](RemoteHeap::alloc), `rmem` is the [local
//!    view](farside_kit::heap::Block::local_mut), and `rwrite` is a
//!    [`put`](farside_kit::heap::Block::put) followed by the block's name through a pipe. The
//!    reader [opens](RemoteBlock::open) the block in its own memory, and frees it.
//! 2. Through the pipe's own memory, which is allocated once:
//!    [`write`](farside_kit::pipe::PipeWriter::write), or a loan that is committed. The memory is
//!    free for the next message once the reader releases it.
//! 3. `rread`: an [offer](farside_kit::pipe::PipeWriter::offer) of the writer's memory, which the
//!    reader fetches.

use farside::prelude::*;
use farside_kit::heap::{HeapOptions, RemoteBlock, RemoteHeap};
use farside_kit::prelude::*;

const PIPE_WIDTH: usize = 8;
const SEND_VALUE: i32 = 42;

fn main() -> farside::Result<()> {
    farside::job().processes(2).run(|me: &Worker| {
        let (writer, reader) = (WorkerId::new(0), WorkerId::new(1));
        if me.id() == writer {
            // Memory at the reader, and a pipe for the names of its blocks.
            let heap = RemoteHeap::open(me, reader, HeapOptions::new(1 << 16))?;
            let mut names = me.pipe(reader).number(1).width(PIPE_WIDTH).sender::<RemoteBlock>()?;
            let mut block = heap.alloc(size_of::<i32>() as u64)?;
            block.local_mut().copy_from_slice(&SEND_VALUE.to_ne_bytes());
            block.put()?;
            // From here on the block belongs to the reader.
            names.send(block.hand_over()?).map_err(|refused| refused.error)?;
            let mut pipe = me.pipe(reader).width(PIPE_WIDTH).writer()?;
            // The message is built where the reader will read it, and belongs to the reader from
            // `commit` on.
            let mut place = pipe.loan(size_of::<i32>())?;
            place.copy_from_slice(&SEND_VALUE.to_ne_bytes());
            place.commit()?;
            // The memory stays here until the reader fetches it.
            let kept = me.allocate(1 << 20)?;
            kept.fill(7);
            pipe.offer(kept)?;
            let kept = pipe.take_back()?.expect("it was offered");
            println!("{} bytes are the writer's again", kept.bytes());
            // Waits until the reader has freed the block.
            heap.close()?;
            println!("all of the heap is free");
        } else {
            let mut names = me.pipe(writer).number(1).width(PIPE_WIDTH).receiver::<RemoteBlock>()?;
            let block = names.recv()?.open(me)?;
            let mut value = [0; size_of::<i32>()];
            block.read_at(0, &mut value)?;
            // Freed immediately after use.
            block.free()?;
            println!("read {} from a block of the heap", i32::from_ne_bytes(value));
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
