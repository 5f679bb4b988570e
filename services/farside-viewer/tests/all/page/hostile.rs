//! Requests that no page of this server makes.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;

use farside_testbed::scaled;
use farside_viewer::page::Page;
use serde_json::json;

use crate::page::client::{Records, connect, counts, post, request, send, serve, token};

/// A server without a job.
fn lonely() -> Page {
    serve("no such job")
}

fn status(address: SocketAddr, first: &str, lines: &[&str], question: &str) -> u16 {
    send(address, &request(first, lines, question)).map_or(0, |reply| reply.status)
}

#[test]
fn every_answer_keeps_other_pages_out() {
    let page = lonely();
    let host = format!("Host: {}", page.address());
    for (first, lines, expected) in [
        ("GET /", vec![host.as_str()], 200),
        ("GET /page.js", vec![&host], 200),
        ("GET /page.css?x=1", vec![&host], 200),
        ("GET /page.rs", vec![&host], 404),
        ("GET /../page.rs", vec![&host], 404),
        ("GET /", vec!["Host: evil.example"], 421),
        ("GET /", vec![&host, "Origin: http://evil.example"], 403),
        ("POST /ask", vec![&host], 401),
        ("OPTIONS /ask", vec![&host, "Origin: http://evil.example", "Access-Control-Request-Method: POST"], 403),
        ("OPTIONS /ask", vec![&host], 405),
        ("PUT /ask", vec![&host], 405),
    ] {
        let reply = send(page.address(), &request(first, &lines, "")).unwrap();
        assert_eq!(reply.status, expected, "{first} {lines:?}");
        for line in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-frame-options: deny",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(reply.head.contains(line), "{first}: {}", reply.head);
        }
        for word in ["access-control", "set-cookie", "www-authenticate"] {
            assert!(!reply.head.contains(word), "{first}: {}", reply.head);
        }
    }
}

#[test]
fn a_name_that_was_rebound_is_refused() {
    let page = lonely();
    let port = page.address().port();
    let get = |lines: &[&str]| status(page.address(), "GET /", lines, "");
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80"] {
        assert_eq!(get(&[&format!("Host: {host}")]), 200, "{host}");
    }
    for host in [
        &format!("evil.example:{port}"),
        "localhost.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "127.0.0.1.evil.example",
        "2130706433",
        "",
    ] {
        assert!([421, 400].contains(&get(&[&format!("Host: {host}")])), "{host}");
    }
    assert!([421, 400].contains(&get(&[])), "no host");
    assert!([421, 400].contains(&get(&["Host: localhost", "Host: evil.example"])), "two hosts");
    let absolute = status(page.address(), "GET http://evil.example/", &["Host: localhost"], "");
    assert!([421, 400].contains(&absolute), "{absolute}");
    let more = Page::start("127.0.0.1:0".parse().unwrap(), "", &["Gateway.example".into()]).unwrap();
    assert_eq!(status(more.address(), "GET /", &["Host: gateway.example:80"], ""), 200);
}

#[test]
fn only_the_header_proves_the_token() {
    let page = lonely();
    let (token, host) = (token(&page), format!("Host: {}", page.address()));
    let (origin, bearer) = (format!("Origin: http://{}", page.address()), format!("Authorization: Bearer {token}"));
    let question = json!({ "do": "jobs" }).to_string();
    let ask = |lines: &[&str]| status(page.address(), "POST /ask", lines, &question);
    assert_eq!(ask(&[&host, &bearer]), 200);
    assert_eq!(ask(&[&host, &origin, &bearer, "Sec-Fetch-Site: same-origin"]), 200);
    for line in ["Origin: null", "Origin: http://localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"]
    {
        assert_eq!(ask(&[&host, &bearer, line]), 403, "{line}");
    }
    let lines = [
        "X: y".into(),
        format!("Authorization: {token}"),
        format!("Authorization: Basic {token}"),
        format!("Authorization: Bearer {}", &token[1..]),
        format!("Authorization: Bearer {token}0"),
        format!("Authorization: Bearer {}", token.to_uppercase() + "A"),
        "Authorization: Bearer ".into(),
        format!("Cookie: token={token}"),
    ];
    // Each waits for a moment before it is refused.
    thread::scope(|scope| {
        let (ask, host) = (&ask, &host);
        lines.iter().for_each(|line| drop(scope.spawn(move || assert_eq!(ask(&[host, line]), 401, "{line}"))));
    });
    let in_query = status(page.address(), &format!("POST /ask?token={token}"), &[&host], &question);
    assert_eq!(in_query, 401);
    // A form can send text, but no such header.
    assert_eq!(ask(&[&host, "Content-Type: text/plain"]), 401);
    assert!(!format!("{page:?}").contains(&token), "the token is not printed by mistake");
}

#[test]
fn a_wrong_question_is_refused() {
    let page = lonely();
    let lines = [format!("Host: {}", page.address()), format!("Authorization: Bearer {}", token(&page))];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let address = page.address();
    assert_eq!(status(address, "POST /ask", &lines, "{"), 400);
    assert_eq!(status(address, "POST /stream", &lines, "{}"), 400);
    let many = json!({ "topics": vec![json!({ "watch": "jobs" }); 33] }).to_string();
    assert_eq!(status(address, "POST /stream", &lines, &many), 400);
    let long = format!("[{}0]", "0,".repeat(1 << 16));
    assert_eq!(status(address, "POST /ask", &lines, &long), 413);
    // The question that can be read is answered, the others say why not.
    let topics = json!({ "topics": [
        { "key": "a", "watch": "moon" }, { "key": "b" }, { "key": "c", "watch": "area" }, 7,
        { "key": "d", "watch": "area", "area": "x", "period_ms": 1 }, { "key": "e", "watch": "jobs", "rate": 1 },
        { "key": ["<b>"], "watch": "list" },
    ] });
    let mut records = Records::of(post(&page, "/stream", &topics));
    for (key, word) in [
        (json!("a"), "moon"),
        (json!("b"), "\"watch\" is missing"),
        (json!("c"), "\"area\" is missing"),
        (json!(null), "no object"),
        (json!("d"), "8..=60000"),
        (json!("e"), "\"rate\""),
        (json!(["<b>"]), "no such job"),
    ] {
        let (head, body) = records.next();
        let error = head["error"].as_str().unwrap();
        assert!(head["key"] == key && error.contains(word) && body.is_empty(), "{head}");
    }
}

/// Bytes without any order, and requests that are cut short.
#[test]
fn random_bytes_change_nothing() {
    let page = lonely();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let whole = request("POST /ask", &[&format!("Host: {}", page.address()), "Authorization: Bearer x"], "{}");
    for round in 0..scaled(60) {
        let mut bytes: Vec<u8> = match round % 3 {
            0 => (0..random() % 2000).map(|_| random() as u8).collect(),
            1 => whole[..random() as usize % whole.len()].to_vec(),
            _ => whole.clone(),
        };
        if round % 3 == 2 {
            for _ in 0..1 + random() % 4 {
                let at = random() as usize % bytes.len();
                bytes[at] = random() as u8;
            }
        }
        let mut stream = connect(page.address());
        // The server may close before it has read all.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        if round % 10 == 0 {
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(!answer.windows(7).any(|bytes| bytes == b" 200 OK"), "round {round}");
        }
    }
    assert_eq!(counts(&page)["readers"], 0);
}
