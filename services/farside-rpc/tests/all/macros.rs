//! Services that are written as traits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farside_rpc::bulk::{Bulk, Read, Write, scope};
use farside_rpc::server::Builder;
use farside_rpc::{Call, CallError, Credentials, Never, Server, Stream, TransferError};
use farside_testbed::wait_until;
use farside_wire::Wire;

use crate::{connect, everywhere, near, start, unique};

/// The facts about a value.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "farside_wire")]
struct Stat {
    bytes: u64,
    version: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Wire)]
#[wire(crate = "farside_wire")]
enum KvError {
    #[error("no key {0:?}")]
    Absent(String),
    #[error("{0}")]
    Transfer(String),
}

impl From<TransferError> for KvError {
    fn from(error: TransferError) -> Self {
        Self::Transfer(error.to_string())
    }
}

/// A store in memory.
#[farside_rpc::service(name = "kv")]
trait Kv {
    /// The facts about a value.
    #[rpc(inline, idempotent)]
    fn stat(&self, cx: &Call, key: String) -> Result<Stat, KvError>;
    fn get(&self, cx: &Call, key: String, into: Bulk<Write>) -> Result<u64, KvError>;
    async fn put(&self, cx: &Call, key: String, value: Bulk<Read>) -> Result<Stat, KvError>;
    #[rpc(oneway)]
    async fn touch(&self, cx: &Call, key: String);
    #[rpc(oneway, inline)]
    fn forget(&self, cx: &Call, key: String) -> Result<(), Never>;
    #[rpc(idempotent, name = "size")]
    fn count(&self, _: &Call) -> Result<u64, Never>;
    /// The keys that begin with a prefix, in order, with what is known of their values.
    fn list(&self, cx: &Call, prefix: String) -> Result<Stream<(String, Stat)>, KvError>;
    /// The user's code provides this one.
    fn echo(&self, cx: &Call, call: u8, r#type: Option<char>, handlers: T) -> Result<(u8, T, bool), KvError> {
        Ok((call, handlers, r#type.is_some() && !cx.is_cancelled()))
    }
    /// So it does this one.
    async fn later(&self, cx: &Call, number: u64) -> Result<u64, KvError> {
        if number == 0 {
            return Err(KvError::Absent("0".into()));
        }
        std::future::ready(()).await;
        Ok(number.min(u64::from(!cx.is_cancelled()) * number))
    }
}

/// A type whose name generated code could use.
type T = Vec<i32>;

#[derive(Debug, Default)]
struct Store(Mutex<HashMap<String, (Vec<u8>, u32)>>);

impl Kv for Store {
    fn stat(&self, _: &Call, key: String) -> Result<Stat, KvError> {
        let values = self.0.lock().unwrap();
        let (value, version) = values.get(&key).ok_or(KvError::Absent(key))?;
        Ok(Stat { bytes: value.len() as u64, version: *version })
    }

    fn get(&self, _: &Call, key: String, into: Bulk<Write>) -> Result<u64, KvError> {
        let value = self.0.lock().unwrap().get(&key).map(|(value, _)| value.clone());
        let value = value.ok_or(KvError::Absent(key))?;
        into.push(0, &value)?;
        Ok(value.len() as u64)
    }

    async fn put(&self, cx: &Call, key: String, value: Bulk<Read>) -> Result<Stat, KvError> {
        std::future::ready(()).await;
        let value = value.pull_all()?;
        let version = {
            let mut values = self.0.lock().unwrap();
            let (old, version) = values.entry(key.clone()).or_default();
            *old = value;
            *version += 1;
            *version
        };
        let stat = self.stat(cx, key)?;
        assert_eq!(stat.version, version);
        Ok(stat)
    }

    fn list(&self, cx: &Call, prefix: String) -> Result<Stream<(String, Stat)>, KvError> {
        let mut keys: Vec<_> = self.0.lock().unwrap().keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
        keys.sort();
        let stats = keys.into_iter().map(|key| Ok((key.clone(), self.stat(cx, key)?)));
        Ok(Stream::new(stats.collect::<Result<Vec<_>, KvError>>()?))
    }

    async fn touch(&self, _: &Call, key: String) {
        assert!(!key.is_empty(), "a key is not empty");
        self.0.lock().unwrap().entry(key).or_default();
    }

    fn forget(&self, _: &Call, key: String) -> Result<(), Never> {
        self.0.lock().unwrap().remove(&key);
        Ok(())
    }

    fn count(&self, _: &Call) -> Result<u64, Never> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
}

fn serve(builder: Builder) -> Builder {
    builder.provider(0, KvServer::new(Store::default())).provider(7, KvServer::new(Store::default()))
}

#[test]
fn methods_are_procedures() {
    everywhere(serve, |client| {
        let kv = KvClient::new(client.clone());
        for bytes in [3, 3 << 20] {
            let value = vec![bytes as u8 | 1; bytes];
            let stat = kv.put("a".into(), value.clone().into()).unwrap().wait().unwrap();
            assert_eq!(stat.bytes, bytes as u64);
            assert_eq!(kv.stat("a".into()).unwrap().wait(), Ok(stat));
            let mut room = vec![0; bytes];
            let got = scope(|scope| kv.get("a".into(), scope.lend_mut(&mut room)).unwrap().wait());
            assert_eq!(got, Ok(bytes as u64));
            assert!(room == value);
            room.fill(0);
            let got = kv.scope(|s| s.get("a".into(), s.lend_mut(&mut room))?.wait());
            assert_eq!(got, Ok(bytes as u64));
            assert!(room == value);
        }
        kv.put("ab".into(), vec![1].into()).unwrap().wait().unwrap();
        let listed = kv.list("a".into()).unwrap().wait().unwrap().map(|item| item.map(|(key, stat)| (key, stat.bytes)));
        assert_eq!(listed.collect::<Vec<_>>(), [Ok(("a".into(), 3 << 20)), Ok(("ab".into(), 1))]);
        let missing = kv.stat("b".into()).unwrap().wait().unwrap_err();
        assert_eq!(missing, CallError::Service(KvError::Absent("b".into())));
        assert_eq!(kv.count().unwrap().wait(), Ok(2));
        assert_eq!(kv.later(9).unwrap().wait(), Ok(9));
        assert_eq!(kv.later(0).unwrap().wait(), Err(CallError::Service(KvError::Absent("0".into()))));
        assert_eq!(kv.echo(9, Some('x'), vec![-1, 2]).unwrap().wait(), Ok((9, vec![-1, 2], true)));
    });
}

#[test]
fn one_way_methods_return_at_once() {
    everywhere(serve, |client| {
        let kv = KvClient::new(client.clone());
        for key in ["a", "b", ""] {
            kv.touch(key.into()).unwrap();
        }
        assert_eq!(kv.client().flush(), Ok(1));
        kv.forget("b".into()).unwrap();
        assert_eq!(client.flush(), Ok(0));
        assert_eq!(kv.count().unwrap().wait(), Ok(1));
    });
}

#[test]
fn each_provider_has_handlers_of_its_own() {
    everywhere(serve, |client| {
        let (first, seventh) = (KvClient::new(client.clone()), KvClient::at(client.clone(), 7));
        first.put("a".into(), vec![1].into()).unwrap().wait().unwrap();
        assert_eq!(first.clone().count().unwrap().wait(), Ok(1));
        assert_eq!(seventh.count().unwrap().wait(), Ok(0));
        let absent = KvClient::at(client.clone(), 8).count().map(drop).unwrap_err();
        assert!(matches!(absent, CallError::Unknown { .. }), "{absent}");
    });
}

/// A client by hand, as it must be written to call a service of a trait.
#[test]
fn traits_and_names_meet() {
    everywhere(serve, |client| {
        KvClient::new(client.clone()).put("a".into(), vec![1, 2].into()).unwrap().wait().unwrap();
        let stat = client.procedure::<(String,), Stat, KvError>("kv", 0, "stat");
        assert_eq!(stat.call(&("a".into(),)), Ok(Stat { bytes: 2, version: 1 }));
        let size = client.procedure::<(), u64, Never>("kv", 0, "size");
        assert_eq!(size.call(&()), Ok(1));
        let count = client.procedure::<(), u64, Never>("kv", 0, "count");
        assert!(matches!(count.call(&()), Err(CallError::Unknown { .. })));
        let other = client.procedure::<(u64,), Stat, KvError>("kv", 0, "stat");
        assert!(matches!(other.call(&(1,)), Err(CallError::Shape { .. })));
    });
}

/// Holds a handler.
fn hold(is_released: &AtomicBool) {
    wait_until("the handler is released", || is_released.load(Ordering::Relaxed));
}

#[test]
fn a_client_connects_and_has_a_deadline() {
    static IS_RELEASED: AtomicBool = AtomicBool::new(false);

    #[farside_rpc::service(name = "slow", crate = "farside_rpc")]
    trait Slow {
        fn wait(&self, call: &farside_rpc::Call) -> Result<(), Never>;
        #[rpc(inline)]
        fn seconds_left(&self, call: &farside_rpc::Call) -> Result<u64, Never>;
    }

    struct Sleeper;

    impl Slow for Sleeper {
        fn wait(&self, _: &Call) -> Result<(), Never> {
            hold(&IS_RELEASED);
            Ok(())
        }

        fn seconds_left(&self, call: &Call) -> Result<u64, Never> {
            Ok(call.time_left().as_secs())
        }
    }

    let (server, client) = start(near(), |builder| builder.provider(0, SlowServer::new(Sleeper)));
    let patient = SlowClient::new(client).deadline(Duration::from_secs(3600));
    let hurried = patient.deadline(Duration::from_millis(20));
    // The default is 30 s.
    assert!(patient.seconds_left().unwrap().wait().unwrap() > 60);
    // The 20 ms may pass before the call is sent.
    let error = hurried.wait().and_then(|pending| pending.wait()).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    IS_RELEASED.store(true, Ordering::Relaxed);
    assert!(patient.seconds_left().unwrap().wait().unwrap() > 60);
    drop(server);
}

/// A procedure that is lost is called again only if it says that it may be.
#[test]
fn idempotent_procedures_are_called_again() {
    static IS_RELEASED: AtomicBool = AtomicBool::new(false);

    #[farside_rpc::service(name = "mortal")]
    trait Mortal {
        #[rpc(idempotent)]
        fn again(&self, call: &Call) -> Result<u8, Never>;
        fn once(&self, call: &Call) -> Result<u8, Never>;
    }

    /// The first server holds calls until the test ends. The second one answers.
    struct Handlers {
        answers: bool,
        runs: Arc<Mutex<u32>>,
    }

    impl Handlers {
        fn run(&self) -> Result<u8, Never> {
            *self.runs.lock().unwrap() += 1;
            if !self.answers {
                hold(&IS_RELEASED);
            }
            Ok(1)
        }
    }

    impl Mortal for Handlers {
        fn again(&self, _: &Call) -> Result<u8, Never> {
            self.run()
        }

        fn once(&self, _: &Call) -> Result<u8, Never> {
            self.run()
        }
    }

    let address = format!("shm:{}", unique("mortal"));
    let start = |answers, runs: &Arc<Mutex<u32>>| {
        let handlers = MortalServer::new(Handlers { answers, runs: runs.clone() });
        Server::builder().listen(&address).unwrap().pool(2).provider(0, handlers).start().unwrap()
    };
    let runs = Arc::default();
    let first = start(false, &runs);
    let connect = || {
        let client = connect(&address, Credentials::own_user());
        MortalClient::new(client)
    };
    let (again, once) = (connect(), connect());
    let (again, once) = (again.again().unwrap(), once.once().unwrap());
    wait_until("both calls run", || *runs.lock().unwrap() == 2);
    drop(first);
    let _second = start(true, &runs);
    assert_eq!(again.wait(), Ok(1));
    assert!(matches!(once.wait(), Err(CallError::Lost { .. })));
    assert_eq!(*runs.lock().unwrap(), 3);
    IS_RELEASED.store(true, Ordering::Relaxed);
}
