//! Notes that programs add and read: a service, its server and its client.
//!
//! ```text
//! echo 'ada  a-long-random-text  read write' > tokens
//! cargo run -p farside-rpc --example notes -- serve tokens shm:notes tcp://127.0.0.1:7000
//! cargo run -p farside-rpc --example notes -- add tokens tcp://127.0.0.1:7000 'buy milk'
//! cargo run -p farside-rpc --example notes -- list tokens shm:notes
//! ```

use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, fmt, fs, io};

use farside_rpc::{Call, Credentials, Server, Stream, Tokens, Wire};

#[derive(Clone, Debug, Default, Wire)]
#[wire(crate = "farside_rpc", extensible)]
struct Note {
    author: String,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_rpc")]
enum NoteError {
    Forbidden { right: String },
}

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Forbidden { right } = self;
        write!(f, "this token lacks the right {right:?}; add it to the line of the token")
    }
}

#[farside_rpc::service(name = "notes")]
trait Notes {
    /// Adds a note. Returns the number of notes.
    fn add(&self, cx: &Call, text: String) -> Result<u64, NoteError>;
    /// All notes. Calling it twice does no harm.
    #[rpc(idempotent)]
    fn list(&self, cx: &Call) -> Result<Stream<Note>, NoteError>;
}

#[derive(Default)]
struct Board(Mutex<Vec<Note>>);

impl Notes for Board {
    fn add(&self, cx: &Call, text: String) -> Result<u64, NoteError> {
        check(cx, "write")?;
        // Without a token, it is the server's own user.
        let author = cx.peer().token.clone().unwrap_or_else(|| "me".into());
        let mut notes = self.0.lock().unwrap();
        notes.push(Note { author, text });
        Ok(notes.len() as u64)
    }

    fn list(&self, cx: &Call) -> Result<Stream<Note>, NoteError> {
        check(cx, "read")?;
        Ok(Stream::new(self.0.lock().unwrap().clone()))
    }
}

fn check(cx: &Call, right: &str) -> Result<(), NoteError> {
    if cx.peer().has_right(right) { Ok(()) } else { Err(NoteError::Forbidden { right: right.into() }) }
}

/// The lines of a file: name, secret and rights of a token.
fn lines(file: &str) -> io::Result<Vec<Vec<String>>> {
    let text = fs::read_to_string(file)?;
    Ok(text.lines().map(|line| line.split_whitespace().map(String::from).collect()).collect())
}

fn serve(token_file: &str, addresses: &[String]) -> Result<(), Box<dyn Error>> {
    let mut tokens = Tokens::new();
    for line in lines(token_file)? {
        if let [name, secret, rights @ ..] = &line[..] {
            tokens = tokens.with(name, secret, rights.iter().cloned());
        }
    }
    let mut builder = Server::builder().tokens(tokens).provider(0, NotesServer::new(Board::default()));
    for address in addresses {
        builder = builder.listen(address)?;
    }
    let limits = builder.pool(4).max_connections(100).max_calls(16).max_time(Duration::from_secs(10));
    let server = limits.start()?;
    println!("serving at {}", server.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "));
    // Until the standard input ends.
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(server.shutdown(Instant::now() + Duration::from_secs(10))?)
}

fn connect(token_file: &str, address: &str) -> Result<NotesClient, Box<dyn Error>> {
    let lines = lines(token_file)?;
    let [name, secret, ..] = &lines.first().ok_or("the file has no token")?[..] else {
        return Err("a token has a name and a secret".into());
    };
    let notes = NotesClient::connect(address, Credentials::token(name, secret))?;
    Ok(notes.deadline(Duration::from_secs(2)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", tokens, _, ..] => serve(tokens, &arguments[2..]),
        ["add", tokens, address, text] => {
            let count = connect(tokens, address)?.add(text.into())?.wait()?;
            println!("{count} notes");
            Ok(())
        }
        ["list", tokens, address] => {
            for note in connect(tokens, address)?.list()?.wait()? {
                let Note { author, text } = note?;
                println!("{author}: {text}");
            }
            Ok(())
        }
        _ => Err("expected serve TOKENS ADDRESS..., add TOKENS ADDRESS TEXT or list TOKENS ADDRESS".into()),
    }
}
