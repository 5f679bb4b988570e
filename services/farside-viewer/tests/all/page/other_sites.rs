//! The reach of a page of another site in the same browser.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use farside_testbed::browser::{BED, Browser};
use farside_viewer::page::Page;
use serde_json::json;

use crate::page::client::{counts, serve, token};

/// Another site: each of its pages is empty. The browser reaches it by any name under `example`.
struct Site {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, is_over) = (listener.local_addr().unwrap(), Arc::<AtomicBool>::default());
        let over = is_over.clone();
        let serve = move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // A browser may connect and ask nothing.
                thread::spawn(move || stream.and_then(answer));
            }
        };
        Self { address, is_over, thread: Some(thread::spawn(serve)) }
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend(byte);
    }
    let page = "<!doctype html><title>another site</title><body></body>";
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    )
}

impl Drop for Site {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread looks when it has accepted a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs lines in the page that is open, each of which calls `send(name, path, options)`. Returns
/// what each call has found: its status, or that the browser refused.
fn fetched(browser: &Browser, to: &str, lines: &[String]) -> Vec<(String, String)> {
    browser.run(&format!(
        "window.found = [];
         const note = (name) => (value) => window.found.push([name, String(value)]);
         const send = (name, path, options) =>
           fetch({to:?} + path, options).then((got) => note(name)(got.type + got.status), () => note(name)('refused'));
         {}",
        lines.join("\n")
    ));
    browser.wait_for(&format!("window.found.length == {}", lines.len()));
    let found = browser.run("return window.found");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let mut found: Vec<_> = found.as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    found.sort();
    found
}

fn ask(name: &str, mode: &str, token: &str) -> String {
    format!(
        "send({name:?}, '/ask', {{ mode: {mode:?}, method: 'POST', body: '{{\"do\":\"server\"}}',
           headers: {{ Authorization: 'Bearer {token}' }} }});"
    )
}

mod deep {
    use super::*;

    /// A page of another site gets nothing, cannot show the page in itself, and its forms are
    /// refused.
    #[test]
    fn another_site_gets_nothing() {
        if farside_testbed::is_left_out(BED) {
            return;
        }
        let (page, site) = (serve("no such job"), Site::start());
        let browser = Browser::start(800, 600);
        let (address, token) = (page.address(), token(&page));
        let hostile = format!("http://hostile.example:{}/", site.address.port());
        browser.open(&hostile);
        let lines = [
            "send('read', '/', {});".to_owned(),
            "send('opaque', '/', { mode: 'no-cors' });".to_owned(),
            "send('cookies', '/', { credentials: 'include' });".to_owned(),
            ask("ask", "cors", &token),
            ask("form", "no-cors", &token),
        ];
        let found = fetched(&browser, &format!("http://{address}"), &lines);
        let expected = ["ask", "cookies", "form", "opaque", "read"];
        assert_eq!(found, expected.map(|name| (name.to_owned(), "refused".to_owned())));
        browser.run(&format!(
            "const frame = document.createElement('iframe');
         frame.src = '{}'; frame.onload = () => {{ window.framed = true; }};
         document.body.append(frame)",
            page.url()
        ));
        browser.wait_for("window.framed");
        browser.enter(Some(0));
        let shown = browser.run("return [location.protocol, Boolean(document.querySelector('#areas, #state'))]");
        assert_eq!(shown, json!(["chrome-error:", false]));
        browser.enter(None);
        // What a form sends needs no permission. Its text is a question, with one field more.
        browser.run(&format!(
            "const form = document.createElement('form');
         Object.assign(form, {{ method: 'POST', enctype: 'text/plain', action: 'http://{address}/ask' }});
         const field = document.createElement('input');
         Object.assign(field, {{ name: '{{\"do\":\"server\",\"more\":\"', value: '\"}}' }});
         form.append(field); document.body.append(form); form.submit()"
        ));
        browser.wait_for(&format!("location.href == 'http://{address}/ask' && document.readyState == 'complete'"));
        let seen = browser
            .run("return [performance.getEntriesByType('navigation')[0].responseStatus, document.body.innerText]");
        assert_eq!(seen[0], json!(403), "{seen}");
        assert!(!seen[1].as_str().unwrap().contains('{'), "{seen}");
        // A wrong token is said, and does not flood the server.
        browser.open(&format!("http://{address}/#{}", "0".repeat(32)));
        browser.wait_for("document.querySelector('#state').innerText.includes('wrong token')");
        // No other connection than that of this question has proven the token.
        assert_eq!(counts(&page)["viewers"], json!(1));
    }

    /// A page of another site stays open while its name is made to lead to the server. Its
    /// questions have the name of that site, and are refused also with the right token.
    #[test]
    fn a_site_whose_name_is_rebound_gets_nothing() {
        if farside_testbed::is_left_out(BED) {
            return;
        }
        let site = Site::start();
        let (address, browser) = (site.address, Browser::start(800, 600));
        let rebound = format!("http://rebound.example:{}", address.port());
        browser.open(&rebound);
        drop(site);
        let page = Page::start(address, "no such job", &[]).unwrap();
        // For the browser, this is one site.
        let lines = ["send('read', '/', {});".to_owned(), ask("ask", "same-origin", &token(&page))];
        let refused = |name: &str| (name.to_owned(), "basic421".to_owned());
        assert_eq!(fetched(&browser, &rebound, &lines), [refused("ask"), refused("read")]);
    }
}
