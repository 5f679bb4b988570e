//! The engine as front ends see it: a program with pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use farside_testbed::{CommandLine, limit, wait_for};

const FARSIDE: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside"));

fn command(arguments: &[&str]) -> Command {
    let mut command = FARSIDE.command(&["hex", "htp"]);
    command.args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the engine with this input and returns its output.
fn told(arguments: &[&str], input: &[u8]) -> Output {
    let mut engine = command(arguments).spawn().expect("the command can be started");
    let mut stdin = engine.stdin.take().expect("it is piped");
    let input = input.to_vec();
    // A thread of its own, so that neither side blocks on the other's reads.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let output = engine.wait_with_output().expect("the command ends");
    // The engine may have quit before it read all input.
    let _ = writer.join();
    output
}

#[track_caller]
fn answered(arguments: &[&str], input: &str) -> String {
    let output = told(arguments, input.as_bytes());
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", output.status);
    String::from_utf8(output.stdout).expect("answers are text")
}

/// An engine that is sent one command at a time. It ends with this.
struct Conversation {
    engine: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Conversation {
    fn begin(arguments: &[&str]) -> Self {
        let mut engine = command(arguments).spawn().expect("the command can be started");
        let stdin = engine.stdin.take();
        let stdout = BufReader::new(engine.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { engine, stdin, lines }
    }

    fn send(&mut self, text: &str) {
        self.stdin.as_mut().expect("it was not closed").write_all(text.as_bytes()).expect("the engine reads");
    }

    /// Returns the next block of lines, up to an empty one.
    fn block(&mut self) -> String {
        let mut block = String::new();
        loop {
            match self.lines.recv_timeout(limit()).expect("the engine answers").as_str() {
                "" => return block,
                line => block = block + line + "\n",
            }
        }
    }

    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        self.send(&format!("{line}\n"));
        let block = self.block();
        block.strip_prefix("= ").unwrap_or_else(|| panic!("{line}: {block}")).trim_end().into()
    }

    /// Returns the next block that shows no search.
    fn answer(&mut self) -> String {
        loop {
            let block = self.block();
            if !block.starts_with("gogui-gfx:\n") {
                return block;
            }
        }
    }

    /// Returns the number of rollouts on which an analysis rests.
    fn rollouts(&mut self, color: &str) -> u64 {
        self.send(&format!("gogui-gfx-analyze {color}\n"));
        // A search that takes long is shown before its answer.
        let answer = self.answer();
        let count = answer.split(" rollouts").next().and_then(|text| text.rsplit(' ').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// Waits until the command has ended by itself.
    fn end(mut self) -> (ExitStatus, String) {
        let status = wait_for("the engine ends", || self.engine.try_wait().expect("it can be waited for"));
        let mut complaints = String::new();
        let _ = self.engine.stderr.take().expect("it is piped").read_to_string(&mut complaints);
        (status, complaints)
    }

    fn processes(&self, count: usize) -> Vec<u32> {
        wait_for("all processes run", || {
            let pid = self.engine.id().to_string();
            let listed = Command::new("ps").args(["-o", "pid=", "--ppid", &pid]).output().expect("there is a `ps`");
            let text = String::from_utf8_lossy(&listed.stdout);
            let found: Vec<u32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            (found.len() == count).then_some(found)
        })
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.engine.kill();
        let _ = self.engine.wait();
    }
}

#[test]
fn the_transcript_of_the_documents_is_true() {
    let document = include_str!("../../../../docs/hex-engine.md");
    let transcript = document.split("```htp\n").nth(1).and_then(|rest| rest.split("```").next());
    let transcript = transcript.expect("the document has a transcript");
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let commands: Vec<&str> = transcript.lines().filter_map(|line| line.strip_prefix("> ")).collect();
    let expected = transcript.lines().filter(|line| !line.starts_with("> ")).collect::<Vec<_>>().join("\n");
    for arguments in [["-n", "1"].as_slice(), &["--local"]] {
        let answers = answered(arguments, &(commands.join("\n") + "\n"));
        assert_eq!(
            lines(answers.trim_end()),
            lines(expected.trim_end()),
            "with {arguments:?} the engine says:\n{answers}"
        );
    }
}

#[test]
fn two_processes_play_a_game() {
    let mut talk = Conversation::begin(&["-n", "2", "-t", "1"]);
    talk.processes(2);
    talk.ask("boardsize 5 5");
    talk.ask("param_farside max_games 2000");
    talk.ask("param_farside max_time 1000");
    talk.ask("param_farside resign_threshold 0");
    assert!(talk.ask("param_farside").contains("[string] num_threads 2"));
    let mut moves = Vec::new();
    loop {
        match talk.ask(["genmove b", "genmove w"][moves.len() % 2]).as_str() {
            "resign" => break,
            cell => {
                assert!(!moves.contains(&cell.to_owned()), "{cell} after {moves:?}");
                moves.push(cell.into());
            }
        }
        assert!(moves.len() <= 25, "{moves:?}");
    }
    let score = talk.ask("final_score");
    // The player of the last move has won.
    assert_eq!(score, ["W+", "B+"][moves.len() % 2]);
    talk.ask("undo");
    assert_eq!(talk.ask("final_score"), "cannot score");
    talk.send("7 genmove x\n");
    assert!(talk.block().starts_with("?7 invalid color x"));
    assert_eq!(talk.ask("quit"), "");
    let (status, complaints) = talk.end();
    assert!(status.success() && complaints.is_empty(), "{complaints}");
}

#[test]
fn a_search_is_shown_and_interrupted() {
    for arguments in [["--local"].as_slice(), &["-n", "2"]] {
        let mut talk = Conversation::begin(arguments);
        for line in ["max_time 10000", "use_livegfx 1", "livegfx_interval 0.01"] {
            talk.ask(&format!("param_farside {line}"));
        }
        // An interrupt before any search has no effect.
        talk.send("# interrupt\n");
        talk.send("genmove b\n");
        for _ in 0..3 {
            let block = talk.block();
            assert!(block.starts_with("gogui-gfx:\nuct\nVAR B "), "{block}");
        }
        talk.send("# interrupt\n");
        let answer = talk.answer();
        assert!(answer.starts_with("= ") && answer.len() > 3, "{answer}");
        assert_eq!(talk.ask("name"), "Farside");
        // The end of the input ends the last command.
        talk.send("play w b");
        drop(talk.stdin.take());
        assert!(talk.block().starts_with("? illegal move: white b "));
        assert!(talk.end().0.success());
    }
}

#[test]
fn a_lost_process_ends_the_engine() {
    for (doomed, thinks) in [(1, false), (1, true), (0, false), (0, true)] {
        let mut talk = Conversation::begin(&["-n", "2"]);
        assert_eq!(talk.ask("name"), "Farside");
        if thinks {
            for line in ["max_time 10000", "use_livegfx 1", "livegfx_interval 0"] {
                talk.ask(&format!("param_farside {line}"));
            }
            talk.send("genmove b\n");
            talk.block();
        }
        let mut processes = talk.processes(2);
        processes.sort_unstable();
        let killed = Command::new("kill").args(["-KILL", &processes[doomed].to_string()]).status();
        assert!(killed.expect("there is a `kill`").success());
        let (status, complaints) = talk.end();
        assert_eq!(status.code(), Some(128 + 9), "{complaints}");
        assert!(complaints.contains(&format!("process {doomed} was killed by signal 9")), "{complaints}");
        assert_eq!(complaints.matches("farside: error").count(), 1, "{complaints}");
    }
}

#[test]
fn any_input_is_answered() {
    // The bytes of a simple random number generator, with commands among them.
    let mut state = 1_u64;
    let mut input = Vec::new();
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        input.extend_from_slice(&state.to_be_bytes()[..3]);
        if state >> 58 == 0 {
            input.extend_from_slice(b"\nplay b a1\n");
        }
    }
    input.extend_from_slice(&[b'y'; 200_000]);
    input.extend_from_slice(b"\n99 name\n");
    for arguments in [["--local"].as_slice(), &["-n", "2"]] {
        let output = told(arguments, &input);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("answers are text");
        assert!(
            text.ends_with("? the line is longer than 65536 bytes\n\n=99 Farside\n\n"),
            "{}",
            &text[text.len() - 200..]
        );
        for answer in text.trim_end().split("\n\n") {
            assert!(answer.starts_with(['=', '?']) && answer.lines().count() == 1, "{answer:?}");
        }
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for (arguments, word) in [
        (["--local", "-n", "2"].as_slice(), "leave out -n"),
        (&["-n", "0"], "at least one"),
        (&["--size", "5"], "--size"),
        (&["--seed", "x"], "--seed"),
    ] {
        let output = told(arguments, b"name\n");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {complaints}");
        assert!(complaints.contains(word), "{arguments:?}: {complaints}");
    }
    FARSIDE.assert_refused(&["hex", "--size", "5", "htp"], 2, &[]);
    assert!(FARSIDE.printed(&["hex", "htp", "--help"]).contains("HexGui"));
}

/// `FARSIDE_FABRIC` does not conflict with the subcommand.
#[test]
fn the_environment_chooses_the_fabric() {
    let mut engine = command(&["-n", "2"]);
    let output = engine.env("FARSIDE_FABRIC", "shm").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_tree_is_kept_for_the_next_move() {
    for arguments in [["--local"].as_slice(), &["-n", "2"]] {
        let mut talk = Conversation::begin(arguments);
        talk.ask("boardsize 6");
        talk.ask("param_farside max_games 3000");
        talk.ask("param_farside max_time 1000");
        talk.ask("param_farside use_connections 0");
        assert_eq!([talk.rollouts("b"), talk.rollouts("b")], [3000, 6000]);
        // The other player is to move, so this is another search.
        assert_eq!(talk.rollouts("w"), 3000);
        talk.ask("genmove b");
        talk.ask("genmove w");
        assert!(talk.rollouts("b") > 3000);
        talk.ask("param_farside reuse_subtree 0");
        assert_eq!(talk.rollouts("b"), 3000);
        talk.ask("quit");
        assert!(talk.end().0.success());
    }
}
