//! `farside inspect watch`, `plot`, `session` and `serve`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::json;

use crate::inspect::{INSPECT, Job, object};

#[test]
fn steps_are_watched_one_after_the_other() {
    let mut job = Job::start();
    job.wait();
    let watched = job.inspect("watch", &["heat[1:3, ::3]", "--count", "3", "--rate", "100"]);
    let lines: Vec<&str> = watched.lines().collect();
    let step = |line: &str| line.strip_prefix("# heat f64[2, 2] K, step ").unwrap().parse::<u64>().unwrap();
    let steps = [step(lines[0]), step(lines[3]), step(lines[6])];
    assert!(steps.is_sorted_by(|one, next| one < next), "{watched}");
    assert_eq!((lines.len(), &lines[1..3]), (9, &["4.5 7.5", "8.5 11.5"][..]));
    let watched = job.inspect("watch", &["heat[0]", "--count", "2", "--rate", "100", "--json"]);
    for line in watched.lines() {
        assert_eq!(object(line)["values"], json!([0.5, 1.5, 2.5, 3.5]));
    }
    assert_eq!(watched.lines().count(), 2);
    INSPECT.assert_refused(&["watch", "heat", "--rate", "0"], 2, &["0.001 to 1000"]);
}

#[test]
fn one_dimension_is_a_line_and_two_are_a_heat_map() {
    let mut job = Job::start();
    job.wait();
    let drawn = job.inspect("plot", &["heat", "--width", "8"]);
    let (head, rest) = drawn.split_once('\n').unwrap();
    assert!(head.starts_with("# heat f64[4, 4] K, step "), "{drawn}");
    assert_eq!(rest, "  .:\n:-==\n+**#\n%%@@\n# 0.5 to 15.5\n", "{drawn}");
    let drawn = job.inspect("plot", &["heat[:, 0]", "--width", "20"]);
    assert_eq!(drawn.lines().count(), 18, "{drawn}");
    let path = std::env::temp_dir().join(format!("farside-{}.svg", job.name));
    assert_eq!(job.inspect("plot", &["heat", "--svg", path.to_str().unwrap()]), "");
    let file = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(file.contains("heat f64[4, 4] K, step ") && file.contains("#fcffa4"), "{file}");
    INSPECT.assert_refused(&["plot", "cube", "--job", &job.name], 1, &["3 dimensions", "[0, :, :]"]);
}

#[test]
fn a_session_answers_until_its_input_ends() {
    let mut job = Job::start();
    job.wait();
    let mut command = INSPECT.command(&["session", "--job", &job.name, "--timeout", "60"]);
    let mut session = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let questions = [
        json!({ "do": "list", "id": 1 }),
        json!({ "do": "get", "area": "heat", "select": "[3, 2:]", "id": 2 }),
        json!({ "do": "get", "area": "cold" }),
        json!({ "do": "get", "area": "heat", "job": "another" }),
    ];
    let questions: String = questions.iter().map(|question| format!("{question}\n")).collect();
    session.stdin.take().unwrap().write_all(questions.as_bytes()).unwrap();
    let output = session.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut rest = output.stdout.as_slice();
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap();
        let answer = object(std::str::from_utf8(&rest[..end]).unwrap());
        rest = &rest[end + 1..];
        let elements = rest[..answer["bytes"].as_u64().unwrap_or(0) as usize].to_vec();
        rest = &rest[elements.len()..];
        (answer, elements)
    };
    let (listed, _) = line();
    assert_eq!((&listed["id"], &listed["areas"][1]["shape"]), (&json!(1), &json!([4, 4])));
    let (got, elements) = line();
    assert_eq!((&got["id"], &got["shape"], &got["type"]), (&json!(2), &json!([2]), &json!("f64")));
    assert_eq!(elements, [14.5_f64.to_ne_bytes(), 15.5_f64.to_ne_bytes()].concat());
    assert!(line().0["error"].as_str().unwrap().contains("cube, heat"));
    assert!(line().0["error"].as_str().unwrap().contains("another"));
    assert!(rest.is_empty());
}

#[test]
fn a_page_of_a_job_whose_doors_are_shut_is_refused() {
    for words in [&["run", "-n", "1", "--inspect", "true"][..], &["hex", "--size", "3", "--plain", "--inspect"]] {
        let output = INSPECT.command(words).env("FARSIDE_INSPECT", "off").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("unset it"), "{words:?}: {said}");
    }
}

/// The page of `farside run --inspect` shows the job that was started, and ends with it.
#[test]
fn a_job_is_started_with_its_page() {
    let name = format!("cli-seen-{}", std::process::id());
    let mut command = farside_testbed::ended_with_us(INSPECT.0);
    command.args(["run", "-n", "2", "--inspect"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "inspect::job", "--nocapture", "--quiet"]).env(crate::inspect::PART, "1");
    let mut launcher = command.env("FARSIDE_JOB", &name).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(launcher.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("farside: http://").unwrap();
    let (address, token) = url.split_once("/#").unwrap();
    let jobs = || {
        let mut stream = TcpStream::connect(address).unwrap();
        let question = "{\"do\":\"jobs\"}";
        write!(
            stream,
            "POST /ask HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{question}",
            question.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let told = format!("\"name\":\"{name}\",\"process_count\":2");
    farside_testbed::wait_until("the page has the job", || jobs().contains(&told));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn the_page_is_served_until_a_signal() {
    let mut command = farside_testbed::ended_with_us(INSPECT.0);
    command.args(["serve", "--json"]).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said = object(&line);
    let address = said["address"].as_str().unwrap();
    assert!(said["url"].as_str().unwrap().starts_with(&format!("http://{address}/#")), "{said}");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("<title>Farside</title>"), "{answer}");
    assert!(std::process::Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert!(server.wait().unwrap().success());
}
