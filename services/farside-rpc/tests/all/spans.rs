//! Spans of `tracing`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farside_rpc::{Client, Credentials, Handling, Never, Server, Service};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A span: its name and fields.
type Span = BTreeMap<&'static str, String>;

/// Keeps all spans.
#[derive(Clone, Default)]
struct Keeper {
    spans: Arc<Mutex<Vec<Span>>>,
    next: Arc<AtomicU64>,
}

struct Fields<'a>(&'a mut Span);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_string());
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("farside_rpc")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut span = Span::from([("name", attributes.metadata().name().to_string())]);
        attributes.record(&mut Fields(&mut span));
        self.spans.lock().unwrap().push(span);
        Id::from_u64(1 + self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
#[ignore = "a program for the test below"]
fn program() {
    let keeper = Keeper::default();
    tracing::subscriber::set_global_default(keeper.clone()).unwrap();
    let name = format!("shm:{}", crate::unique("spans"));
    let service = Service::new("spans")
        .procedure("inline", Handling::Inline, |_, number: u64| Ok::<_, Never>(number))
        .procedure("pooled", Handling::Pooled, |_, number: u64| Ok::<_, Never>(number))
        .async_procedure("async", |_, number: u64| async move { Ok::<_, Never>(number) });
    let server = Server::builder().listen(&name).unwrap().provider(3, service).start().unwrap();
    let connect = || Client::connect(&name, Credentials::own_user()).unwrap();
    let clients = [connect(), connect()];
    for client in &clients {
        for procedure in ["inline", "pooled", "async"] {
            assert_eq!(client.procedure::<u64, u64, Never>("spans", 3, procedure).call(&7), Ok(7));
        }
    }
    drop((clients, server));
    let spans = keeper.spans.lock().unwrap();
    let ids = |span: &Span| ["procedure", "server", "connection", "call"].map(|field| span[field].clone());
    let of = |name: &str| spans.iter().filter(|span| span["name"] == name).map(ids).collect::<Vec<_>>();
    let (mut called, handled) = (of("call"), of("handle"));
    assert_eq!(called.len(), 6, "{spans:#?}");
    for call in &called {
        assert!(handled.contains(call), "{call:?} has no counterpart in {handled:#?}");
        assert!(call[0].starts_with("spans/3/"));
    }
    called.sort();
    called.dedup();
    assert_eq!(called.len(), 6, "no two calls have the same fields");
}

/// The span of a call and that of its handler have the same fields, by which a reader of the traces
/// of two processes finds out that they belong together.
#[test]
fn both_sides_of_a_call_have_the_same_ids() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "spans::program", "--ignored", "--nocapture"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the program says:\n{printed}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
