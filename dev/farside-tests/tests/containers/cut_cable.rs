//! Processes on two hosts use all containers, and maps and queues in all of them when the cable
//! between the hosts is cut. Those of the larger host learn of it at once, and go on with what they
//! have.

use farside::{Error, Losses, ProcessId, Result, Worker};
use farside_containers::Implementation;
use farside_containers::map::{HashMap, Map, MapError};
use farside_containers::queue::{Ends, Queue};
use farside_testbed::netns::Side::{A, B};
use farside_testbed::netns::{Pair, Rendezvous};
use farside_testbed::{Echo, Running, deadline, is_left_out, is_past, wait_until};

use crate::{array_batch, dist, exchange, query, remote};

/// Process 1 is alone on the second host.
const VICTIM: ProcessId = ProcessId::new(1);
const PROCESSES: u32 = 3;
const KEYS: u64 = 12;
const IMPLEMENTATIONS: [Implementation; 3] = [Implementation::OneSided, Implementation::Call, Implementation::Checksum];

/// Passes on errors other than the loss of the victim, which may only hit what `may_be_lost`.
fn or_lost<T>(outcome: Result<T>, may_be_lost: bool) -> Result<Option<T>> {
    match outcome {
        Err(Error::PeerLost { process, .. }) if process == VICTIM && may_be_lost => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn use_map(me: &Worker, m: &Map<'_, u64, [u64; 2]>, number: u64) -> Result<()> {
    for key in 0..KEYS {
        let may_be_lost = me.process_of(m.owner_of(&key)) == VICTIM;
        or_lost(m.insert(key, [number, !number]), may_be_lost)?;
        if let Some(Some([one, other])) = or_lost(m.get(&key), may_be_lost)? {
            assert_eq!(one, !other, "half of an entry");
        }
        or_lost(m.upsert(key, [0, !0], |value, new| *value = new), may_be_lost)?;
    }
    Ok(())
}

fn use_queue(ends: &Ends<'_, [u64; 2]>, number: u64) -> Result<()> {
    let may_be_lost = ends.host() == VICTIM;
    or_lost(ends.push([number, !number]), may_be_lost)?;
    if let Some(Some([one, other])) = or_lost(ends.pop(), may_be_lost)? {
        assert_eq!(one, !other, "half of an item");
    }
    Ok(())
}

/// The other containers, while the cable is whole.
const OTHERS: [fn(&Worker) -> Result<()>; 7] = [
    array_batch::arrays_are_sorted,
    array_batch::batches_change_every_value,
    dist::keys_are_counted,
    dist::vectors_are_balanced_and_sorted,
    exchange::every_item_arrives_once,
    query::gathers,
    remote::items_move_between_workers,
];

fn body(me: &Worker) -> Result<()> {
    OTHERS.iter().try_for_each(|other| other(me))?;
    let maps = IMPLEMENTATIONS.iter().filter(|by| **by != Implementation::Checksum);
    let maps = maps.map(|by| HashMap::<u64, [u64; 2]>::builder().implementation(*by).build(me));
    let maps = maps.collect::<Result<Vec<_>>>()?;
    let places = IMPLEMENTATIONS.iter().flat_map(|by| [ProcessId::new(0), VICTIM].map(|host| (*by, host)));
    let queues = places.map(|(by, host)| Queue::with_implementation(me, host, 100, by)).collect::<Result<Vec<_>>>()?;
    for number in 1.. {
        maps.iter().try_for_each(|map| use_map(me, &map.on(me), number))?;
        queues.iter().try_for_each(|queue| use_queue(&queue.on(me), number))?;
        if number == 3 {
            eprintln!("at work");
        }
        if me.is_lost(VICTIM) {
            break;
        }
    }
    let team = me.survivors()?;
    for map in &maps {
        let m = map.on(me);
        use_map(me, &m, 0)?;
        let len = m.len();
        let partial = len.as_ref().err().and_then(|error| error.room_error::<MapError>());
        assert!(matches!(partial, Some(MapError::Partial { missing, .. }) if *missing == [VICTIM]), "{len:?}");
    }
    team.barrier(me)?;
    if me.is_first() {
        let own = |queue: &&Queue<_>| queue.on(me).host() == me.process();
        for queue in queues.iter().filter(own) {
            let ends = queue.on(me);
            let by = ends.implementation();
            assert_eq!(ends.push([7, !7])?, Ok(()), "{by}");
            let give_up = deadline();
            while ends.pop()? != Some([7, !7]) {
                assert!(!is_past(give_up), "{by}: what is pushed after the loss is popped");
                me.progress()?;
            }
        }
    }
    team.barrier(me)?;
    eprintln!("well");
    Ok(())
}

#[test]
#[ignore = "a program for the other tests"]
fn program() {
    if let Err(error) = farside::job().processes(PROCESSES).run(body) {
        eprintln!("verdict: {error}");
        std::process::exit(1);
    }
}

fn are_cut(fabric: &str) {
    if is_left_out("netns") || is_left_out("fabric") {
        return;
    }
    let sides = [A, B, A];
    let pair = Pair::new().unwrap_or_else(|failure| panic!("{failure}"));
    let rendezvous = Rendezvous { world_size: PROCESSES, master: A, port: 7077, secret: "swordfish" };
    let start = |(rank, side)| {
        let mut command = pair.command(side, std::env::current_exe().expect("a test binary is a file"));
        command.args(["cut_cable::program", "--exact", "--nocapture", "--test-threads=1", "--include-ignored"]);
        rendezvous.tell(command.env("FARSIDE_FABRIC", fabric), rank);
        Running::start(&format!("rank {rank}"), &mut command, Echo::Quiet).unwrap_or_else(|failure| panic!("{failure}"))
    };
    let mut ranks: Vec<_> = (0..).zip(sides).map(start).collect();
    for rank in &mut ranks {
        wait_until("the ranks are at work", || {
            assert!(rank.status().is_none(), "{}", rank.failure("it does not begin"));
            rank.printed().contains("at work")
        });
    }
    pair.cut().unwrap_or_else(|failure| panic!("{failure}"));
    let end = |rank: &mut Running| {
        let status = rank.wait(deadline()).unwrap_or_else(|failure| panic!("{failure}"));
        (status.code(), rank.printed())
    };
    let reports: Vec<_> = ranks.iter_mut().map(end).collect();
    assert_eq!(pair.processes(), [0; 0], "processes are left: {reports:?}");
    for (rank, (code, text)) in (0..).zip(&reports) {
        let is_victim = ProcessId::new(rank) == VICTIM;
        assert_eq!(text.contains("well"), !is_victim, "{fabric}: {reports:#?}");
        assert!(!is_victim || code.is_some_and(|code| code != 0) && text.contains("process 0"), "{reports:#?}");
    }
    // Process 0 runs the job.
    assert!(reports[0].1.contains("process 1 failed"), "{fabric}: {reports:#?}");
}

mod deep {
    use super::are_cut;

    #[test]
    fn survivors_use_libfabric() {
        are_cut("ofi:tcp");
    }

    #[test]
    fn survivors_share_memory() {
        are_cut("auto");
    }
}
