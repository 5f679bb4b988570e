//! Who is answered: [`Gate`].
//!
//! Any page that is open in the same browser can send requests to this server. None of them can
//! know the token, which only stands in the fragment of the address and in a header. Nothing else
//! proves who asks: there are no cookies. Further rules keep hostile pages out before that:
//!
//! - The `Host` is one of a list, so a foreign name that is rebound to this address is refused.
//! - A request that a page of another origin makes is refused.
//! - No header allows other origins anything, so a browser sends them no `Authorization`.
//! - The page cannot be framed, and runs only its own files.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode, header};

/// The time before the answer to a wrong token.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_millis(500);

/// The policy of the page in a browser: load its own files, and connect to its own origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The rules by which a request is answered.
pub(super) struct Gate {
    token: String,
    hosts: Vec<String>,
}

impl Gate {
    pub(super) fn new(token: String, address: IpAddr, more: &[String]) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(String::from).into();
        match address {
            IpAddr::V4(address) => hosts.push(address.to_string()),
            IpAddr::V6(address) => hosts.push(format!("[{address}]")),
        }
        hosts.extend(more.iter().map(|host| host.to_ascii_lowercase()));
        Self { token, hosts }
    }

    /// The refusal of a request that was not meant for this server, or that a page of another
    /// origin makes.
    pub(super) fn refuse_origin(&self, head: &Parts) -> Option<Response<Body>> {
        let text = |name| {
            let mut values = head.headers.get_all(name).iter();
            let first = values.next().map(|value| value.to_str().unwrap_or("?").to_ascii_lowercase());
            (first, values.next().is_some())
        };
        let (host, is_doubled) = text(header::HOST);
        let host = host.filter(|_| !is_doubled).unwrap_or_default();
        if head.uri.authority().is_some() || !self.hosts.iter().any(|known| known == name_of(&host)) {
            return Some(plain(StatusCode::MISDIRECTED_REQUEST, "this server has another name: see --host"));
        }
        let (origin, is_doubled) = text(header::ORIGIN);
        let is_own = !is_doubled && origin.is_none_or(|origin| origin == format!("http://{host}"));
        let (site, _) = text(header::HeaderName::from_static("sec-fetch-site"));
        let is_own = is_own && site.is_none_or(|site| ["same-origin", "none"].contains(&site.as_str()));
        (!is_own).then(|| plain(StatusCode::FORBIDDEN, "a page of another origin may not ask"))
    }

    /// The refusal of a request without the token. It comes late.
    pub(super) async fn refuse_token(&self, head: &Parts) -> Option<Response<Body>> {
        let given = head.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
        if is_same(given, self.token.as_bytes()) {
            return None;
        }
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
        Some(plain(StatusCode::UNAUTHORIZED, "wrong token: open the address that the server printed"))
    }
}

/// The name in a `Host`, without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Compares in a time that only depends on the lengths.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (one, other)| black_box(all | (one ^ other)));
    given.len() == token.len() && differences == 0
}

/// An answer of one line.
pub(super) fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    respond(status, "text/plain; charset=utf-8", Body::from(text))
}

/// An answer, with the headers that every answer has.
pub(super) fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_with_or_without_a_port() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("localhost:80", "localhost"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("evil.example:80:80", "evil.example:80"),
            ("", ""),
        ] {
            // The last part of an address without a port is no port.
            assert_eq!(name_of(host), name, "{host}");
        }
    }

    #[test]
    fn only_the_same_token_is_the_same() {
        assert!(is_same(b"abc", b"abc"));
        for given in [&b""[..], b"ab", b"abd", b"abcd", b"Abc"] {
            assert!(!is_same(given, b"abc"));
        }
    }
}
