//! Servers and clients that are not what they pretend to be: of another version, without the
//! secret, or with a proof that was made for another greeting.

use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use farside_connect::testing::{Hello, MAGIC, Mac32, Nonce, Proof, Reply, Secret, Side, Socket, Stream, VERSION};
use farside_connect::{Refusal, Welcome};
use farside_sys::net::tcp;
use farside_testbed::{deadline, limit, spin_for};
use farside_wire::{Decoder, Wire};

use crate::testing::connect;
use crate::{Client, ConnectError, Credentials, Server, Tokens};

const SECRET: &str = "known to both";

fn credentials() -> Credentials {
    Credentials::token("token", SECRET)
}

fn server() -> (Server, String) {
    let tokens = Tokens::new().with("token", SECRET, ["all"]);
    let server = Server::builder().listen("tcp://127.0.0.1:0").unwrap().tokens(tokens).start().unwrap();
    let address = server.addresses()[0].to_string();
    (server, address)
}

fn dial(address: &str) -> Socket {
    let stream = TcpStream::connect(address.trim_start_matches("tcp://")).unwrap();
    tcp::configure(&stream, limit()).unwrap();
    Socket::new(Stream::Tcp(stream))
}

/// Receives a message, as bytes and decoded.
fn hear<T: Wire>(socket: &mut Socket) -> T {
    let (bytes, _) = spin_for("a message", || socket.receive().unwrap());
    farside_wire::decode(Decoder::new(&bytes), 0).unwrap()
}

fn say<T: Wire>(socket: &Socket, message: &T) {
    socket.send(&farside_wire::encode(message, Vec::new()), None).unwrap();
}

/// Accepts one connection and plays the server in it.
fn play(part: impl FnOnce(Socket) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        tcp::configure(&stream, limit()).unwrap();
        part(Socket::new(Stream::Tcp(stream)));
    });
    (address, thread)
}

fn welcome(proof: Mac32, of: Option<Welcome>) -> Reply {
    let new = Welcome {
        proof,
        secret: None,
        incarnation: 1,
        connection: 1,
        calls_max: 8,
        bytes_max: 1 << 20,
        rdma: None,
        nearby: None,
    };
    Reply::Welcome(Welcome { proof, ..of.unwrap_or(new) })
}

/// The end of an honest client at a server that makes its proof in this way, from the proof and
/// the nonces of the greeting.
fn greet(prove: impl FnOnce(Mac32, Nonce, Nonce) -> Mac32 + Send + 'static) -> Result<Client, ConnectError> {
    let (address, thread) = play(move |mut socket| {
        let hello: Hello = hear(&mut socket);
        say(&socket, &Reply::Challenge { nonce: [7; 16] });
        let proof: Proof = hear(&mut socket);
        say(&socket, &welcome(prove(proof.proof, hello.nonce, [7; 16]), None));
    });
    let greeted = Client::connect(&address, credentials());
    thread.join().unwrap();
    if let Err(error) = &greeted {
        assert_eq!(*error, ConnectError::Impostor { address });
    }
    greeted
}

/// A server knows the token only if it makes the proof of this greeting.
#[test]
fn an_impostor_is_found_out() {
    let secret = || Secret::new(SECRET.as_bytes());
    // The same with the right proof is a connection.
    assert!(greet(move |_, client, server| secret().proof(Side::Server, &client, &server)).is_ok());
    let other = |_, client: Nonce, server: Nonce| Secret::new(b"other").proof(Side::Server, &client, &server);
    greet(other).unwrap_err();
    greet(|_, _, _| [0; 32]).unwrap_err();
    // The client's own proof comes back.
    greet(|proof, _, _| proof).unwrap_err();
    // The proof of a server that was overheard when it greeted another client with these nonces.
    greet(move |_, _, server| secret().proof(Side::Server, &[1; 16], &server)).unwrap_err();
    greet(move |_, client, _| secret().proof(Side::Server, &client, &[1; 16])).unwrap_err();
}

/// An impostor asks the true server for its proof, with a greeting of its own. It cannot: without
/// the secret, the true server does not answer; and the proof that the client made is worthless
/// there.
#[test]
fn a_relayed_or_replayed_proof_is_refused() {
    let (_server, true_address) = server();
    let mut overheard = None;
    for is_relayed in [false, true] {
        let (to, replayed) = (true_address.clone(), overheard);
        let (address, thread) = play(move |mut socket| {
            let client: Hello = hear(&mut socket);
            let mut beyond = dial(&to);
            // With its own nonce, and then with that of the client.
            let nonce = if is_relayed { client.nonce } else { [1; 16] };
            say(&beyond, &Hello { nonce, ..client });
            let Reply::Challenge { nonce } = hear(&mut beyond) else { panic!("no challenge") };
            // The client proves for another nonce than the server has given.
            say(&socket, &Reply::Challenge { nonce: nonce.map(|byte| byte ^ 1) });
            let Proof { proof, .. } = hear(&mut socket);
            say(&beyond, &Proof { proof: replayed.unwrap_or(proof), secret: None });
            assert_eq!(hear::<Reply>(&mut beyond), Reply::Refused(Refusal::Unproven));
            say(&socket, &welcome(proof, None));
        });
        let error = Client::connect(&address, credentials()).unwrap_err();
        assert_eq!(error, ConnectError::Impostor { address });
        thread.join().unwrap();
        // A whole greeting of an honest client that was recorded.
        let mut socket = dial(&true_address);
        let token = Some("token".to_owned());
        say(&socket, &Hello { magic: MAGIC, version: VERSION, nonce: [1; 16], token });
        let Reply::Challenge { nonce } = hear(&mut socket) else { panic!("no challenge") };
        let proof = Secret::new(SECRET.as_bytes()).proof(Side::Client, &[1; 16], &nonce);
        say(&socket, &Proof { proof, secret: None });
        assert!(matches!(hear(&mut socket), Reply::Welcome(_)));
        overheard = Some(proof);
    }
}

/// A server answers every version, whatever follows it in the message.
#[test]
fn a_client_of_another_version_is_told_both() {
    let (server, address) = server();
    for client in [0, VERSION - 1, VERSION + 1, u32::MAX] {
        for rest in [&[][..], &[0; 16], &[0xff; 500]] {
            let mut socket = dial(&address);
            let begun = farside_wire::encode(&(MAGIC, client), Vec::new());
            socket.send(&[&begun, rest].concat(), None).unwrap();
            let refusal = Refusal::Version { server: VERSION, client };
            assert_eq!(hear::<Reply>(&mut socket), Reply::Refused(refusal));
        }
    }
    assert_eq!(connect(&address, credentials()).ping(1), Ok(1));
    server.shutdown(deadline()).unwrap();
}

/// The error of a client names both versions, and it does not try again.
#[test]
fn a_server_of_another_version_is_a_typed_error() {
    for server in [VERSION - 1, VERSION + 1] {
        let refusal = Refusal::Version { server, client: VERSION };
        let reply = Reply::Refused(refusal.clone());
        let (address, thread) = play(move |mut socket| {
            let hello: Hello = hear(&mut socket);
            assert_eq!((hello.magic, hello.version), (MAGIC, VERSION));
            say(&socket, &reply);
        });
        let error = Client::to(&address, credentials()).unwrap().deadline(limit()).connect().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(&format!("version {server} ")) && text.contains(&format!("version {VERSION};")),
            "{text}"
        );
        assert_eq!(error, ConnectError::Refused { address, refusal });
        thread.join().unwrap();
    }
}
