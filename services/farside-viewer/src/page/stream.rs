//! The newest frames on their way to one viewer.
//!
//! A stream consists of records. A record is the length of its head and of its body, as numbers of
//! 32 bits with the lowest byte first, then the head, which is JSON, and the body, which is
//! elements. `key` in the head is that of the question to which the record belongs, `skipped` the
//! number of frames that were left out before this one. An empty object is a sign of life.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode};
use futures_core::Stream;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::gate::{plain, respond as respond_with};
use super::hub::{Hub, News, Place, Topic};
use crate::session::failure;

/// The time after which a sign of life is sent if there is nothing else.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// The number of topics that one viewer may watch.
const PLACES_MAX: usize = 32;

/// Answers a question with a stream that goes on until the viewer leaves.
pub(super) fn respond(hub: &Arc<Hub>, question: &Value) -> Response<Body> {
    let Some(Value::Array(wanted)) = question.get("topics") else {
        return plain(StatusCode::BAD_REQUEST, "the question has no \"topics\"");
    };
    if wanted.len() > PLACES_MAX {
        return plain(StatusCode::BAD_REQUEST, "a page may watch 32 topics: close some");
    }
    let bell = Arc::new(Notify::new());
    let (mut places, mut refusals) = (Vec::new(), Vec::new());
    for topic in wanted {
        let mut topic = topic.clone();
        let key = topic.as_object_mut().and_then(|fields| fields.remove("key")).unwrap_or_default();
        match Topic::of(&topic).and_then(|topic| hub.watch(topic, &bell)) {
            Ok(place) => places.push((key, place)),
            Err(error) => refusals.push(tagged(&failure(&error), &key, 0)),
        }
    }
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(send(sender, bell, places, refusals));
    respond_with(StatusCode::OK, "application/octet-stream", Body::from_stream(Records(receiver)))
}

/// Sends records until the viewer leaves.
async fn send(sender: mpsc::Sender<Bytes>, bell: Arc<Notify>, mut places: Vec<(Value, Place)>, refusals: Vec<Value>) {
    for refusal in refusals {
        if sender.send(head(&refusal, 0).into()).await.is_err() {
            return;
        }
    }
    let mut turn = 0;
    // What is sent is looked for when there is room for it, so it is the newest.
    while let Ok(room) = sender.reserve().await {
        let found = (0..places.len()).find_map(|next| {
            let at = (turn + next) % places.len();
            places[at].1.look().map(|(news, skipped)| (at, news, skipped))
        });
        let Some((at, news, skipped)) = found else {
            drop(room);
            if tokio::time::timeout(SIGN_OF_LIFE, bell.notified()).await.is_err()
                && sender.send(head(&json!({}), 0).into()).await.is_err()
            {
                return;
            }
            continue;
        };
        turn = at + 1;
        let body = news.answer.body.len();
        room.send(head(&tagged(&news.answer.head, &places[at].0, skipped), body).into());
        if body > 0 && sender.send(Bytes::from_owner(Elements(news))).await.is_err() {
            return;
        }
    }
}

/// The elements of a frame. All viewers share them.
struct Elements(Arc<News>);

impl AsRef<[u8]> for Elements {
    fn as_ref(&self) -> &[u8] {
        &self.0.answer.body
    }
}

fn tagged(head: &Value, key: &Value, skipped: u64) -> Value {
    let mut head = head.clone();
    head["key"] = key.clone();
    head["skipped"] = skipped.into();
    head
}

/// The beginning of a record, up to its body.
pub(super) fn head(head: &Value, body_bytes: usize) -> Vec<u8> {
    let text = head.to_string();
    let mut record = Vec::with_capacity(8 + text.len());
    // Heads are short, and the hub bounds bodies.
    record.extend_from_slice(&(text.len() as u32).to_le_bytes());
    record.extend_from_slice(&(body_bytes as u32).to_le_bytes());
    record.extend_from_slice(text.as_bytes());
    record
}

/// The records as the server wants them.
struct Records(mpsc::Receiver<Bytes>);

impl Stream for Records {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(Ok))
    }
}
