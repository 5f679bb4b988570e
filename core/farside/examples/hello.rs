//! Every worker greets the next one, and asks it for a sum.

use farside::prelude::*;

fn main() -> farside::Result<()> {
    farside::job().processes(2).threads_per_process(2).run(|me: &Worker| {
        let next = me.neighbor(1);
        me.call(next, (me.id(), 42_u64), |there, (from, x)| println!("{} got {x} from {from}", there.id()))?;
        let sum = me.call_return(next, (20_u64, 22_u64), |_, (a, b)| a + b)?.wait()?;
        assert_eq!(sum, 42);
        me.barrier()
    })
}
