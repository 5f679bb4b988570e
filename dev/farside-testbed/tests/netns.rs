//! The two namespaces, on the real kernel.

mod deep {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::process::Command;
    use std::time::Duration;

    use farside_testbed::netns::{Pair, Rendezvous, Shaping, Side};
    use farside_testbed::{Echo, Running, deadline, is_left_out, limit, run, wait_for, wait_until};

    /// Creates a pair; `None` if the developer asked to leave out namespaces.
    fn pair() -> Option<Pair> {
        if is_left_out("netns") { None } else { Some(Pair::new().unwrap()) }
    }

    fn addresses(pair: &Pair, side: Side) -> String {
        run("ip address", pair.command(side, "ip").args(["-o", "-4", "address"]), limit()).unwrap()
    }

    #[test]
    fn each_side_has_its_own_address_and_cable() {
        let Some(pair) = pair() else { return };
        for (side, other) in [(Side::A, Side::B), (Side::B, Side::A)] {
            let text = addresses(&pair, side);
            assert!(
                text.contains(&side.address().to_string()) && !text.contains(&other.address().to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn pairs_do_not_meet() {
        let Some(first) = pair() else { return };
        let second = Pair::new().unwrap();
        first.cut().unwrap();
        let link =
            |pair: &Pair| run("ip link", pair.command(Side::A, "ip").args(["-o", "link", "show", "veth0"]), limit());
        assert!(link(&first).unwrap().contains("state DOWN"));
        assert!(link(&second).unwrap().contains("state UP"));
        first.reconnect().unwrap();
        assert!(link(&first).unwrap().contains("state UP"));
    }

    #[test]
    fn commands_learn_their_place() {
        let Some(pair) = pair() else { return };
        let rendezvous = Rendezvous { world_size: 2, master: Side::A, port: 7077, secret: "s3cret" };
        let mut command = pair.command(Side::B, "sh");
        command.args(["-c", "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $FARSIDE_SECRET"]);
        rendezvous.tell(&mut command, 1);
        assert_eq!(run("environment", &mut command, limit()).unwrap(), "1 2 10.77.0.1 7077 s3cret");
    }

    #[test]
    fn shaping_works_or_says_that_it_is_not_there() {
        let Some(pair) = pair() else { return };
        match pair.shape(5, 1.0).unwrap() {
            Shaping::Applied => {
                let shown = run("tc", pair.command(Side::A, "tc").args(["qdisc", "show"]), limit()).unwrap();
                assert!(shown.contains("netem"), "{shown}");
            }
            Shaping::Unavailable(why) => assert!(why.contains("unknown"), "{why}"),
        }
    }

    /// The test below, which starts itself again on each side.
    const PEER: &str = "deep::a_cable_carries_bytes_until_it_is_cut";

    #[test]
    fn a_cable_carries_bytes_until_it_is_cut() {
        match std::env::var("RANK").as_deref() {
            Ok("0") => return listen(),
            Ok(_) => return connect(),
            Err(_) => (),
        }
        let Some(pair) = pair() else { return };
        let rendezvous = Rendezvous { world_size: 2, master: Side::A, port: 7077, secret: "" };
        let me = std::env::current_exe().unwrap();
        let start = |side, rank| {
            let mut command: Command = pair.command(side, &me);
            rendezvous.tell(command.args(["--exact", PEER, "--nocapture"]), rank);
            Running::start(PEER, &mut command, Echo::Quiet).unwrap()
        };
        let (_listener, connector) = (start(Side::A, 0), start(Side::B, 1));
        wait_until("the sides connect", || connector.printed().contains("connected"));
        pair.cut().unwrap();
        connector.finish(deadline()).unwrap();
    }

    /// Echoes every byte.
    fn listen() {
        let listener = std::net::TcpListener::bind((Side::A.address(), 7077)).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut byte = [0];
        while peer.read(&mut byte).is_ok_and(|count| count > 0) {
            if peer.write_all(&byte).is_err() {
                break;
            }
        }
    }

    /// Sends bytes until no answer arrives.
    fn connect() {
        let address = (Side::A.address(), 7077).into();
        let mut peer = wait_for("the listener", || TcpStream::connect_timeout(&address, limit()).ok());
        peer.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        for round in 0_u64.. {
            peer.write_all(&[7]).unwrap();
            let mut byte = [0];
            match peer.read_exact(&mut byte) {
                Ok(()) if round == 0 => println!("connected"),
                Ok(()) => (),
                Err(error) => {
                    assert!(
                        round > 0 && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                        "{error}"
                    );
                    return;
                }
            }
        }
    }
}
