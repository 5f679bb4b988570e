//! [`Page`]: a page for browsers that shows running jobs, and its server.
//!
//! Whoever opens the page proves with a token that it may look. The address that the server prints
//! has the token behind `#`, where browsers keep it to themselves. The page sends it in a header.
//!
//! | room | contents |
//! |---|---|
//! | `gate` | who is answered: host names, tokens, pages of other origins |
//! | `door` | connections: how many, for how long |
//! | `hub` | one reader for all viewers of the same topic |
//! | `stream` | the newest frames on their way to one viewer |
//! | `files` | what the browser loads |

mod door;
mod gate;
mod hub;
mod stream;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use farside_sys::process::random_bytes;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use self::door::{Crowd, Door, Standing};
use self::gate::{Gate, plain};
use self::hub::Hub;
use crate::session::Session;
use crate::target::Target;

/// The longest question.
const QUESTION_BYTES_MAX: usize = 1 << 16;
/// The number of questions that are answered at once.
const ASKING_MAX: usize = 16;
/// The most bytes of one frame.
const FRAME_BYTES_MAX: u64 = 64 << 20;
/// The time that an area has for each frame, and a job for each other answer.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// The time for reading a question.
const QUESTION_TIME: Duration = Duration::from_secs(10);
/// The time in which a viewer takes some bytes, or asks for some.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// The time after which a job goes on that viewers had pause, if no viewer is left.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// The page and its server, which ends when this is dropped.
///
/// The server reads each watched area once for all viewers. A viewer that is slow skips frames, and
/// one that takes nothing for 10 s is cut off. Frames that viewers still hold have 256 MiB at most.
/// 512 viewers are served at once, and 128 connections are kept that have not proven the token.
pub struct Page {
    address: SocketAddr,
    token: String,
    shared: Arc<Shared>,
    /// Dropped to end the server.
    _end: oneshot::Sender<()>,
}

/// Options of a server.
#[derive(Clone)]
pub struct Options {
    token: Option<String>,
    idle_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { token: None, idle_time: IDLE_TIME }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        f.debug_struct("Options").field("idle_time", &self.idle_time).finish_non_exhaustive()
    }
}

impl Options {
    /// The token that viewers prove: 16 or more letters and digits. Pages that are open go on when
    /// a server is started again at its address and with its token. The default is a new token.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// The time after which a viewer that takes nothing is cut off. The default is 10 s.
    #[must_use]
    pub fn idle_time(self, time: Duration) -> Self {
        Self { idle_time: time, ..self }
    }
}

/// The state that the handlers of requests share.
struct Shared {
    gate: Gate,
    hub: Arc<Hub>,
    crowd: Arc<Crowd>,
    asking: Arc<Semaphore>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        f.debug_struct("Page").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Page {
    /// Starts a server that listens at an address, in a thread of its own. Port 0 is any free port.
    /// It shows one job, or all jobs of this user if `job` is empty. Requests have to name a host:
    /// `localhost`, the loopback addresses, the address itself, or one of `hosts`.
    ///
    /// # Errors
    /// The system's, if it cannot listen there or start a thread.
    pub fn start(address: SocketAddr, job: impl Into<Target>, hosts: &[String]) -> io::Result<Self> {
        Self::start_with(address, job, hosts, Options::default())
    }

    /// The same, with options.
    ///
    /// # Errors
    /// The system's error, as for [`start`](Self::start); `InvalidInput` if the token cannot stand
    /// in an address.
    pub fn start_with(
        address: SocketAddr,
        job: impl Into<Target>,
        hosts: &[String],
        options: Options,
    ) -> io::Result<Self> {
        let Options { token, idle_time } = options;
        let token = match token {
            Some(token) => token,
            None => random_bytes::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        if token.len() < 16 || !token.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            let why = "the token of the page must have 16 or more letters and digits";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            gate: Gate::new(token.clone(), address.ip(), hosts),
            hub: Hub::new(Session::new(job, ANSWER_TIME).bytes_max(FRAME_BYTES_MAX)),
            crowd: Arc::default(),
            asking: Arc::new(Semaphore::new(ASKING_MAX)),
        });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(ASKING_MAX).build()?;
        let (end, ended) = oneshot::channel::<()>();
        let served = Arc::clone(&shared);
        std::thread::Builder::new().name("farside-page".into()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                let door = Door::new(listener, Arc::clone(&served.crowd), idle_time);
                tokio::spawn(let_go_when_alone(Arc::clone(&served)));
                let router = Router::new().fallback(handle).with_state(served);
                let service = router.into_make_service_with_connect_info::<Standing>();
                tokio::spawn(async move { axum::serve(door, service).await });
                // The end of the sender is the message.
                let _ = ended.await;
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { address, token, shared, _end: end })
    }

    /// Where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for a browser, with the token.
    #[must_use]
    pub fn url(&self) -> String {
        let mut reached = self.address;
        if reached.ip().is_unspecified() {
            reached.set_ip(if reached.is_ipv4() { [127, 0, 0, 1].into() } else { [0_u16, 0, 0, 0, 0, 0, 0, 1].into() });
        }
        format!("http://{reached}/#{}", self.token)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.shared.hub.close();
    }
}

/// Undoes what viewers hold, when none of them is left.
async fn let_go_when_alone(shared: Arc<Shared>) {
    let mut seen = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if shared.crowd.viewers() > 0 {
            seen = Instant::now();
        } else if seen.elapsed() > LEFT_ALONE {
            let hub = Arc::clone(&shared.hub);
            // It is tried again after a failure.
            let _ = tokio::task::spawn_blocking(move || hub.session().let_go()).await;
        }
    }
}

/// The files of the page: the path, its type, and its text.
const FILES: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("page/files/page.html")),
    ("/icon.svg", "image/svg+xml", include_str!("page/files/icon.svg")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/files/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/files/page.js")),
    ("/draw.js", "text/javascript; charset=utf-8", include_str!("page/files/draw.js")),
    ("/cards.js", "text/javascript; charset=utf-8", include_str!("page/files/cards.js")),
    ("/probes.js", "text/javascript; charset=utf-8", include_str!("page/files/probes.js")),
    ("/time.js", "text/javascript; charset=utf-8", include_str!("page/files/time.js")),
    ("/stream.js", "text/javascript; charset=utf-8", include_str!("page/files/stream.js")),
];

/// Answers a request.
async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(standing): ConnectInfo<Standing>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    if let Some(refusal) = shared.gate.refuse_origin(&head) {
        return refusal;
    }
    let path = head.uri.path();
    if head.method == Method::GET {
        let file = FILES.iter().find(|(at, _, _)| *at == path);
        return file.map_or_else(
            || plain(StatusCode::NOT_FOUND, "there is no such page"),
            |(_, kind, text)| gate::respond(StatusCode::OK, kind, Body::from(*text)),
        );
    }
    if head.method != Method::POST || !["/ask", "/stream"].contains(&path) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET of files and POST of questions are answered");
    }
    if let Some(refusal) = shared.gate.refuse_token(&head).await {
        return refusal;
    }
    if !standing.prove(&shared.crowd) {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many viewers are connected: close some pages");
    }
    let Ok(Ok(bytes)) = tokio::time::timeout(QUESTION_TIME, to_bytes(body, QUESTION_BYTES_MAX)).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the question is too long or did not arrive");
    };
    let Ok(question) = serde_json::from_slice::<Value>(&bytes) else {
        return plain(StatusCode::BAD_REQUEST, "the question is no JSON");
    };
    if path == "/stream" { stream::respond(&shared.hub, &question) } else { ask(&shared, question).await }
}

/// Answers a question that is asked once. A record of the answer is sent as in a stream.
async fn ask(shared: &Arc<Shared>, question: Value) -> Response {
    let Ok(_permit) = Arc::clone(&shared.asking).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many questions are asked at once: try again");
    };
    if question["do"] == "server" {
        let hub = shared.hub.counts();
        let head = json!({
            "viewers": shared.crowd.viewers(), "turned_away": shared.crowd.turned_away(),
            "readers": hub.readers, "frames": hub.frames, "dropped": hub.dropped,
        });
        return gate::respond(StatusCode::OK, "application/json", Body::from(head.to_string()));
    }
    let hub = Arc::clone(&shared.hub);
    match tokio::task::spawn_blocking(move || hub.session().answer(&question, &[])).await {
        Ok(answer) => {
            let mut record = stream::head(&answer.head, answer.body.len());
            record.extend_from_slice(&answer.body);
            gate::respond(StatusCode::OK, "application/octet-stream", Body::from(Bytes::from(record)))
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "answering the question failed"),
    }
}
