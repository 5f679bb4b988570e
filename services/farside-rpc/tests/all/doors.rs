//! How connections begin, and who is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use farside_rpc::server::StartError;
use farside_rpc::{Client, Connect, ConnectError, Credentials, Handling, Never, Refusal, Server, Service, Tokens};
use farside_sys::net::{Interest, MessageSocket, wait_ready};
use farside_sys::process::set_thread_user;

use farside_testbed::{deadline, free_port, limit, scaled, wait_for};

use crate::{connect, credentials, start, tokens, unique};

fn refusal(error: &ConnectError) -> Option<&Refusal> {
    match error {
        ConnectError::Refused { refusal, .. } => Some(refusal),
        _ => None,
    }
}

#[test]
fn a_network_listener_needs_tokens() {
    let error = Server::builder().listen("tcp://127.0.0.1:0").unwrap().start().unwrap_err();
    assert!(matches!(error, StartError::NoTokens { .. }), "{error}");
    assert!(matches!(Server::builder().start().unwrap_err(), StartError::NoAddress));
    let empty = Tokens::new().with("some", "secret", ["read"]).with("open", "", ["read"]);
    let error = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(empty).start().unwrap_err();
    assert!(matches!(&error, StartError::EmptySecret { token } if token == "open"), "{error}");
}

/// A wrong setting of a server is named when the server starts, or the service is made.
#[test]
fn services_and_files_that_cannot_be_are_named() {
    let listen = || Server::builder().listen(format!("shm:{}", unique("named"))).unwrap();
    let echo = || Service::new("echo").procedure("echo", Handling::Inline, |_, number: u64| Ok::<_, Never>(number));
    let error = listen().provider(1, echo()).provider(2, echo()).provider(1, echo()).start().unwrap_err();
    assert!(matches!(&error, StartError::Twice { service, provider: 1 } if service == "echo"), "{error}");
    // Every server has this service.
    let error = listen().provider(0, Service::new("farside")).start().unwrap_err();
    assert!(matches!(&error, StartError::Twice { service, provider: 0 } if service == "farside"), "{error}");
    let error = listen().announce("/nowhere/address").start().unwrap_err();
    assert!(matches!(&error, StartError::Announce { path, .. } if path.ends_with("address")), "{error}");
    let twice = || echo().procedure("echo", Handling::Pooled, |_, (): ()| Ok::<_, Never>(()));
    let panic = std::panic::catch_unwind(twice).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("two procedures \"echo\""));
}

/// Whoever connects and says nothing is sent away in time, and takes no connection.
#[test]
fn a_silent_guest_is_sent_away() {
    let server = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens()).start().unwrap();
    let address = server.addresses()[0].to_string();
    let mut silent = TcpStream::connect(address.trim_start_matches("tcp://")).unwrap();
    silent.set_read_timeout(Some(limit())).unwrap();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0, "the server has nothing to say");
    assert_eq!(server.connection_count(), 0);
    assert_eq!(connect(&address, credentials()).ping(1), Ok(1));
}

/// Servers that start at the same moment, at a socket that a killed one left: one of them has
/// the name, and keeps it when the others have given up.
#[test]
fn one_of_many_servers_has_a_path() {
    for round in 0..scaled(10) {
        let path = std::env::temp_dir().join(unique(&format!("path-{round}")));
        let address = format!("shm:{}", path.display());
        // Nothing listens there.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let start = || Server::builder().listen(&address).and_then(|server| server.start());
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(start));
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        assert_eq!(started.len(), 1, "round {round}");
        assert_eq!(connect(&address, credentials()).ping(1), Ok(1));
        drop(started);
        assert!(!path.exists());
    }
}

/// A file that has taken the place of a server's socket stays when the server ends.
#[test]
fn a_server_removes_its_own_socket_alone() {
    let path = std::env::temp_dir().join(unique("replaced"));
    let server = Server::builder().listen(format!("shm:{}", path.display())).unwrap().start().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    drop(server);
    assert_eq!(std::fs::read(&path).unwrap(), b"another's");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_name_belongs_to_one_server() {
    let name = format!("shm:{}", unique("twice"));
    let server = Server::builder().listen(&name).unwrap().start().unwrap();
    let error = Server::builder().listen(&name).unwrap_err();
    assert!(error.to_string().contains("another server has it"), "{error}");
    drop(server);
    drop(Server::builder().listen(&name).unwrap());
}

#[test]
fn an_absent_server_is_an_error_at_once() {
    for address in [format!("shm:{}", unique("absent")), "tcp://127.0.0.1:1".into(), "file:/nowhere".into()] {
        let error = Client::connect(&address, Credentials::own_user()).unwrap_err();
        assert!(matches!(error, ConnectError::Absent { .. }), "{error}");
    }
}

#[test]
fn wrong_tokens_are_refused() {
    let server = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens()).start().unwrap();
    let address = server.addresses()[0].to_string();
    let refused = |credentials| Client::connect(&address, credentials).unwrap_err();
    assert_eq!(refusal(&refused(Credentials::own_user())), Some(&Refusal::NeedsToken));
    assert_eq!(refusal(&refused(Credentials::token("tester", "wrong"))), Some(&Refusal::Unproven));
    assert_eq!(refusal(&refused(Credentials::token("nobody", "wrong"))), Some(&Refusal::Unproven));
    assert_eq!(connect(&address, credentials()).ping(3), Ok(3));
}

#[test]
fn handlers_see_who_calls() {
    let who = Service::new("who").procedure("am-i", Handling::Inline, |call, right: String| {
        Ok::<_, Never>((call.peer().token.clone(), call.peer().has_right(&right)))
    });
    let name = format!("shm:{}", unique("who"));
    let builder = Server::builder().listen(&name).unwrap().listen("tcp://127.0.0.1:0").unwrap();
    let server = builder.tokens(tokens()).provider(0, who).start().unwrap();
    let ask = |address: String, credentials, right: &str| {
        let client = connect(address, credentials);
        let who = client.procedure::<String, (Option<String>, bool), Never>("who", 0, "am-i");
        who.call(&right.to_string()).unwrap()
    };
    let tcp = server.addresses()[1].to_string();
    assert_eq!(ask(name.clone(), Credentials::own_user(), "anything"), (None, true));
    assert_eq!(ask(tcp.clone(), credentials(), "test"), (Some("tester".into()), true));
    assert_eq!(ask(tcp, credentials(), "other"), (Some("tester".into()), false));
}

#[test]
fn a_file_leads_to_the_server_and_goes_with_it() {
    let file = std::env::temp_dir().join(unique("farside-rpc-announced"));
    let name = format!("shm:{}", unique("announced"));
    let server = Server::builder().listen(&name).unwrap().announce(&file).start().unwrap();
    let client = || connect(format!("file:{}", file.display()), credentials());
    assert_eq!(client().ping(1), Ok(1));
    drop(server);
    assert!(!file.exists());
    // One that listens everywhere is found by the name of the machine.
    let server = Server::builder().listen("tcp://[::]:0").unwrap().tokens(tokens()).announce(&file).start().unwrap();
    assert_eq!(client().ping(2), Ok(2));
    drop(server);
    assert!(!file.exists());
}

/// A client finds a server that was started again: under its name, at its port, or where a file
/// says.
#[test]
fn a_server_that_was_started_again_is_found() {
    let file = std::env::temp_dir().join(unique("farside-rpc-again"));
    let start = |address: &str, is_announced: bool| {
        let builder = Server::builder().listen(address).unwrap().tokens(tokens());
        let builder = if is_announced { builder.announce(&file) } else { builder };
        builder.start().unwrap()
    };
    let (name, any_port) = (format!("shm:{}", unique("again")), "tcp://127.0.0.1:0");
    let port = format!("tcp://127.0.0.1:{}", free_port());
    for (address, is_announced) in [(&*name, false), (&*port, false), (any_port, true)] {
        let first = start(address, is_announced);
        let at = first.addresses()[0].to_string();
        let known = if is_announced { format!("file:{}", file.display()) } else { at.clone() };
        let client = connect(known, credentials());
        assert_eq!(client.ping(1), Ok(1));
        drop(first);
        let error = client.deadline(Duration::from_millis(50)).ping(2).unwrap_err();
        // A port that another server has now is not the one in the file.
        let taken = is_announced.then(|| std::net::TcpListener::bind(at.trim_start_matches("tcp://")));
        let second = start(if is_announced { address } else { &at }, is_announced);
        assert_eq!(client.ping(3), Ok(3), "{address}, after {error}");
        drop((second, taken));
    }
}

#[test]
fn a_socket_in_the_file_system_is_taken_over_from_the_dead_alone() {
    let path = std::env::temp_dir().join(unique("farside-rpc-socket"));
    let name = format!("shm:{}", path.display());
    let server = Server::builder().listen(&name).unwrap().start().unwrap();
    assert_eq!(connect(&name, Credentials::own_user()).ping(1), Ok(1));
    assert!(Server::builder().listen(&name).is_err());
    drop(server);
    assert!(!path.exists());
    // What a server that was killed leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = Server::builder().listen(&name).unwrap().start().unwrap();
    drop(server);
    assert!(!path.exists());
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let name = format!("shm:{}", unique("limit"));
    let server = Server::builder().listen(&name).unwrap().max_connections(2).start().unwrap();
    let clients = [(); 2].map(|()| connect(&name, Credentials::own_user()));
    let error = Client::connect(&name, Credentials::own_user()).unwrap_err();
    assert_eq!(refusal(&error), Some(&Refusal::Full { max: 2 }));
    drop(clients);
    // The server learns of the end a moment later.
    assert_eq!(connect(&name, Credentials::own_user()).ping(1), Ok(1));
    drop(server);
}

/// Bytes that are no greeting end that connection alone.
#[test]
fn strangers_are_sent_away() {
    let (server, client) = start("tcp://127.0.0.1:0", |builder| builder);
    let address = server.addresses()[0].to_string();
    let port = address.rsplit_once(':').unwrap().1;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4], &[255; 64], &[3, 0, 0, 0, 1, 2, 3]] {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(limit())).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // The server says why, or only closes.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 200);
    }
    assert_eq!(client.ping(1), Ok(1));
}

/// Another user of this machine is refused before it has said anything, and takes no place.
#[test]
fn another_user_is_sent_away_at_once() {
    if !farside_testbed::is_privileged() {
        eprintln!("left out: another_user_is_sent_away_at_once: it needs the right to become another user");
        return;
    }
    let name = unique("strangers");
    let server = Server::builder().listen(format!("shm:{name}")).unwrap().start().unwrap();
    let stranger = std::thread::spawn(move || {
        // The identity of this thread alone.
        set_thread_user(65_534).unwrap();
        for _ in 0..300 {
            let socket = MessageSocket::connect(format!("farside-rpc/{name}").as_bytes()).unwrap();
            let receive = || {
                let interest = Interest { fd: socket.as_fd(), writable: false };
                assert!(wait_ready(&[interest], Some(deadline())).unwrap()[0]);
                socket.receive(&mut [0; 1024]).unwrap()
            };
            assert!(receive().is_some(), "the server says why");
            assert!(receive().is_none(), "it has ended the connection");
        }
        let error = Client::connect(format!("shm:{name}"), Credentials::own_user()).unwrap_err();
        assert!(error.to_string().contains("another user"), "{error}");
    });
    stranger.join().unwrap();
    assert_eq!(server.connection_count(), 0);
}

/// A client that connects once does not call a server that was started in place of its own.
#[test]
fn a_client_that_connects_once_makes_no_other_connection() {
    let name = format!("shm:{}", unique("once"));
    let start = || Server::builder().listen(&name).unwrap().start().unwrap();
    let once = || Client::to(&name, Credentials::own_user()).unwrap().deadline(limit()).once();
    let error = once().connect().unwrap_err();
    assert!(matches!(error, ConnectError::Absent { .. }), "{error}");
    let server = start();
    let (once, again) = (once().connect().unwrap(), connect(&name, Credentials::own_user()));
    assert_eq!((once.ping(1), again.ping(1)), (Ok(1), Ok(1)));
    drop(server);
    let _server = start();
    assert_eq!(again.ping(2), Ok(2));
    let error = once.ping(2).unwrap_err();
    assert!(error.to_string().contains("makes no other"), "{error}");
}

/// Silent connections of another user, who might have a token, leave places for the own one.
#[test]
fn other_users_do_not_take_all_places() {
    if !farside_testbed::is_privileged() {
        eprintln!("left out: other_users_do_not_take_all_places: it needs the right to become another user");
        return;
    }
    let name = unique("outsiders");
    let server = Server::builder().listen(format!("shm:{name}")).unwrap().tokens(tokens()).start().unwrap();
    let own = Client::to(format!("shm:{name}"), credentials()).unwrap();
    let stranger = std::thread::spawn(move || {
        set_thread_user(65_534).unwrap();
        let try_it = || match MessageSocket::connect(format!("farside-rpc/{name}").as_bytes()) {
            // The server has not accepted the last ones.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            connected => Some(connected.unwrap()),
        };
        let connect = |_| wait_for("the server accepts", try_it);
        (0..300).map(connect).collect::<Vec<_>>()
    });
    let sockets = stranger.join().unwrap();
    assert_eq!(own.connect().unwrap().ping(1), Ok(1));
    // Those for whom there was no place know. The server has accepted all of them by now.
    let is_told = |socket: &MessageSocket| matches!(socket.receive(&mut [0; 1024]), Ok(Some(_)));
    assert!(sockets.iter().any(is_told));
    drop(server);
}

/// A client on the server's machine goes over shared memory, with the name and the rights of its
/// token, unless it wants TCP or another server has the name.
#[test]
fn a_client_of_tcp_on_the_same_machine_goes_over_shared_memory() {
    let who = || {
        Service::new("who").procedure("am-i", Handling::Inline, |call, right: String| {
            let peer = call.peer();
            Ok::<_, Never>((peer.token.clone(), peer.has_right(&right), peer.network.is_some()))
        })
    };
    let ask = |connect: Connect, right: &str| {
        let client = connect.connect().unwrap();
        client.procedure::<String, (Option<String>, bool, bool), Never>("who", 0, "am-i").call(&right.into()).unwrap()
    };
    let name = unique("near");
    let builder = Server::builder().listen("tcp://127.0.0.1:0").unwrap().listen(format!("shm:{name}")).unwrap();
    let server = builder.tokens(tokens()).provider(0, who()).start().unwrap();
    let tcp = server.addresses()[0].to_string();
    let connect = || Client::to(&tcp, credentials()).unwrap();
    let token = Some("tester".to_string());
    assert_eq!(ask(connect(), "test"), (token.clone(), true, false));
    assert_eq!(ask(connect(), "other"), (token.clone(), false, false));
    assert_eq!(ask(connect().over_network(), "test"), (token.clone(), true, true));
    // A wrong secret is refused as ever.
    let error = Client::connect(&tcp, Credentials::token("tester", "wrong")).unwrap_err();
    assert!(matches!(error, ConnectError::Refused { refusal: Refusal::Unproven, .. }), "{error}");
    drop(server);

    // The socket in the file system was replaced by another server's, which knows the token.
    let path = std::env::temp_dir().join(&name);
    let near = format!("shm:{}", path.display());
    let builder = Server::builder().listen("tcp://127.0.0.1:0").unwrap().listen(&near).unwrap();
    let server = builder.tokens(tokens()).provider(0, who()).start().unwrap();
    let tcp = server.addresses()[0].to_string();
    assert_eq!(ask(Client::to(&tcp, credentials()).unwrap(), "test"), (token.clone(), true, false));
    std::fs::remove_file(&path).unwrap();
    // Nothing is there.
    assert_eq!(ask(Client::to(&tcp, credentials()).unwrap(), "test"), (token.clone(), true, true));
    for other in [tokens(), Tokens::new(), Tokens::new().with("tester", "of another server", ["all"])] {
        let other = Server::builder().listen(&near).unwrap().tokens(other).provider(0, who()).start().unwrap();
        assert_eq!(ask(Client::to(&tcp, credentials()).unwrap(), "test"), (token.clone(), true, true));
        drop(other);
    }
    drop(server);
}

mod timing {
    use std::time::Instant;

    use super::*;

    #[test]
    fn trying_secrets_takes_long() {
        let server = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens()).start().unwrap();
        let begun = Instant::now();
        Client::connect(server.addresses()[0].to_string(), Credentials::token("tester", "wrong")).unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    }
}
