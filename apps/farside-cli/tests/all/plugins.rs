//! The programs that the command starts in its place.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use farside_testbed::CommandLine;

const FARSIDE: CommandLine = CommandLine(env!("CARGO_BIN_EXE_farside"));

/// Each command that another program carries out, that program, and the package that builds it.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("bench", "farside-bench", "farside-bench"),
    ("rpc", "farside-rpc", "farside-rpc-cli"),
    ("kv", "farside-kv", "farside-kv-cli"),
    ("inspect", "farside-inspect", "farside-inspect-cli"),
    ("top", "farside-inspect", "farside-inspect-cli"),
];

/// The command in a folder of its own, which is removed in the end.
struct Apart(PathBuf);

impl Apart {
    /// Links the command into a new folder, with a shell next to it under each of these names.
    fn new(test: &str, programs: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        let apart = Self(folder);
        std::fs::hard_link(env!("CARGO_BIN_EXE_farside"), apart.command()).expect("both are in the target folder");
        for name in programs {
            symlink("/bin/sh", apart.0.join(name)).expect("the folder is empty");
        }
        apart
    }

    fn command(&self) -> PathBuf {
        self.0.join("farside")
    }

    fn output(&self, arguments: &[&str]) -> Output {
        Command::new(self.command()).args(arguments).output().expect("the command can be started")
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_is_started_in_place_of_the_command() {
    let apart = Apart::new("with-programs", &["farside-bench", "farside-rpc", "farside-kv", "farside-inspect"]);
    let script = "echo $$ $VARIABLE \"$@\"; echo complaint >&2; exit 7";
    for command in ["bench", "rpc", "kv", "inspect"] {
        let arguments = [command, "-c", script, "zero", "--list", "--help", "a b", "-n", "1"];
        let mut command = Command::new(apart.command());
        command.args(arguments).env("VARIABLE", "value").stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the command can be started");
        let expected = format!("{} value --list --help a b -n 1\n", child.id());
        let output = child.wait_with_output().expect("the command ends");
        assert_eq!(text(&output.stdout), expected);
        assert_eq!((output.status.code(), &*output.stderr), (Some(7), &b"complaint\n"[..]));
    }
    // The process is the same, so signals reach the program.
    let output = apart.output(&["bench", "-c", "kill -TERM $$; sleep 60"]);
    assert_eq!(output.status.signal(), Some(15));
}

/// A shell that is given the name of a file says that it cannot open it.
#[test]
fn words_reach_the_program_of_a_command() {
    let apart = Apart::new("words", &["farside-kv", "farside-inspect"]);
    for (words, first) in [
        (&["top", "--once"][..], "top"),
        (&["help", "kv", "put"], "put"),
        (&["hex", "--inspect"], "hex"),
        (&["run", "-n", "1", "--inspect", "true"], "run"),
        // The program answers readers for the processes.
        (&["run", "-n", "1", "true"], "run"),
    ] {
        let output = apart.output(words);
        let complaints = text(&output.stderr);
        assert!(
            !output.status.success() && complaints.contains(&format!("{first}: No such file")),
            "{words:?}: {complaints}"
        );
    }
    // It cannot, if the user has turned that off.
    let mut command = Command::new(apart.command());
    let output = command.args(["run", "-n", "1", "./no-such-program"]).env("FARSIDE_INSPECT", "off").output();
    assert_eq!(output.expect("the command can be started").status.code(), Some(127));
}

#[test]
fn a_program_that_is_missing_can_be_built() {
    let apart = Apart::new("without-programs", &[]);
    let inspected = [
        ("hex", "farside-inspect", "farside-inspect-cli", &["hex", "--inspect"][..]),
        ("run", "farside-inspect", "farside-inspect-cli", &["run", "-n", "1", "--inspect", "true"]),
    ];
    let all = PROGRAMS.map(|(command, program, package)| (command, program, package, vec![command, "--list"]));
    let all =
        all.into_iter().chain(inspected.map(|(name, program, package, words)| (name, program, package, words.into())));
    for (command, program, package, words) in all {
        let output = apart.output(&words);
        let complaints = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {complaints}");
        assert!(output.stdout.is_empty() && complaints.starts_with("farside: error: "), "{complaints}");
        for words in [format!("/{program} failed: No such file"), format!("-p {package}`"), "cargo build".into()] {
            assert!(complaints.contains(&words), "{words}: {complaints}");
        }
    }
    // A job that is not shown needs none of them.
    assert_eq!(apart.output(&["run", "-n", "2", "./no-such-program"]).status.code(), Some(127));
    assert!(apart.output(&["hex", "-n", "2", "--size", "3", "--rollouts", "100"]).status.success());
}

#[test]
fn help_is_that_of_one_command() {
    let help = FARSIDE.printed(&["help"]);
    assert_eq!(help, FARSIDE.printed(&["--help"]));
    for (command, about) in [
        ("run", "Start a program"),
        ("hex", "Search for a move"),
        ("bench", "Measure"),
        ("info", "Describe"),
        ("rpc", "Look at a server"),
        ("kv", "Keep values"),
        ("inspect", "Look into a running job"),
        ("top", "Show where the time"),
        ("help", "Print this message"),
    ] {
        let has_line = |line: &str| {
            line.trim().split_once("  ").is_some_and(|(name, text)| name == command && text.trim().starts_with(about))
        };
        assert!(help.lines().any(has_line), "{command}: {help}");
    }
    assert_eq!(FARSIDE.printed(&["help", "hex", "htp"]), FARSIDE.printed(&["hex", "htp", "--help"]));
    FARSIDE.assert_refused(&["help", "kvs"], 2, &["'kvs'", "similar", "'kv'"]);
    FARSIDE.assert_refused(&["inspct"], 2, &["'inspct'", "similar", "'inspect'"]);
    // Where the programs have been built, they answer as the command would.
    for (command, program, _) in PROGRAMS {
        if !Path::new(FARSIDE.0).with_file_name(program).exists() {
            eprintln!("left out: the help of {program}, which has not been built");
            continue;
        }
        let about = help.lines().find_map(|line| line.trim().strip_prefix(command)?.strip_prefix(' ')).unwrap().trim();
        let own = FARSIDE.printed(&[command, "--help"]);
        assert!(own.starts_with(about) && own.contains(&format!("Usage: farside {command} ")), "{command}: {own}");
        assert_eq!(FARSIDE.printed(&["help", command]), own);
        FARSIDE.assert_refused(&[command, "--no-such-option"], 2, &["--no-such-option"]);
    }
}
