//! The two demonstrations, as a person uses them in a browser: the heat plate, whose source the
//! mouse moves, and the search of Hex. `cargo xtask pictures` keeps pictures of both.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use farside_testbed::browser::{BED, Browser};
use farside_testbed::{ended_with_us, is_left_out, wait_until};
use serde_json::json;

use crate::inspect::INSPECT;

/// The sides of the window, and of a phone.
const WINDOW: (u32, u32) = (900, 760);
const PHONE: (u32, u32) = (390, 440);

/// A command that serves the page of a job, until this is dropped.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.find_map(|line| Some(line.unwrap().split_once("farside: ")?.1.to_owned()));
        // The command must not wait for a reader of what it prints.
        std::thread::spawn(move || lines.count());
        Self { child, url: said.filter(|said| said.starts_with("http://")).expect("the command prints the address") }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn card(area: &str) -> String {
    format!("article[data-area=\"{area}\"]")
}

/// Watches an area, unless it is watched.
fn watch(browser: &Browser, area: &str) {
    browser.wait_for(&format!("document.querySelector('#areas button[data-area=\"{area}\"]')"));
    if browser.run(&format!("return !document.querySelector('{}')", card(area))) == json!(true) {
        browser.click(&format!("#areas button[data-area=\"{area}\"]"));
    }
}

/// Closes the card of an area, if it is watched.
fn close(browser: &Browser, area: &str) {
    browser.run(&format!("document.querySelector('{} header button')?.click()", card(area)));
}

/// Has a card be in the middle of the window.
fn show(browser: &Browser, area: &str) {
    browser.run(&format!("document.querySelector('{}').scrollIntoView({{ block: 'center' }})", card(area)));
}

/// The place of a cell of the plate in the window.
fn cell(browser: &Browser, area: &str, row: f64, column: f64) -> (f64, f64) {
    let place = browser.run(&format!(
        "const canvas = document.querySelector('{} canvas.cells'); canvas.scrollIntoView({{ block: 'center' }});
         const box = canvas.getBoundingClientRect();
         return [box.x + box.width * ({column} + 0.5) / 128, box.y + box.height * ({row} + 0.5) / 128]",
        card(area)
    ));
    (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
}

/// The value that the page says is at a cell.
fn value(browser: &Browser, area: &str, row: u32, column: u32) -> f64 {
    let (x, y) = cell(browser, area, row.into(), column.into());
    browser.mouse(x, y, false);
    let output = format!("document.querySelector('{} output').innerText", card(area));
    browser.wait_for(&format!("{output}.startsWith('[{row}, {column}] = ')"));
    let said = browser.run(&format!("return {output}"));
    let said = said.as_str().unwrap().split_once(" = ").unwrap().1;
    let number = said.split(|char: char| !(char.is_ascii_digit() || ".-e".contains(char))).next().unwrap();
    number.parse().unwrap_or_else(|_| panic!("{said}"))
}

/// Writes a value into cells with the mouse.
fn draw(browser: &Browser, value: u32, cells: &[(u32, u32)]) {
    let source = card("source");
    browser.run(&format!("document.querySelector('{source} input[type=number]').value = {value}"));
    for (row, column) in cells {
        let (x, y) = cell(browser, "source", f64::from(*row), f64::from(*column));
        browser.mouse(x, y, true);
    }
}

/// Waits until the plate has some temperature at a cell.
fn wait_for_heat(browser: &Browser, row: u32, column: u32, is_reached: impl Fn(f64) -> bool) {
    wait_until("the plate has this temperature", || is_reached(value(browser, "temperature", row, column)));
}

mod deep {
    use super::*;

    #[test]
    fn the_source_of_the_heat_plate_is_moved_by_mouse() {
        if is_left_out(BED) {
            return;
        }
        let heat = Path::new(INSPECT.0).with_file_name("examples").join("heat");
        assert!(
            heat.exists(),
            "{} is missing: build it with `cargo build -p farside-inspect --examples`",
            heat.display()
        );
        let browser = Browser::start(WINDOW.0, WINDOW.1);
        let mut command = ended_with_us(INSPECT.0);
        let served = Served::start(command.args(["run", "-n", "2", "--inspect"]).arg(heat).env("FARSIDE_JOB", "heat"));
        browser.open(&served.url);
        watch(&browser, "temperature");
        browser.wait_for(&format!("document.querySelector('{} canvas.cells')?.width == 128", card("temperature")));
        watch(&browser, "source");
        ["mean", "rate"].iter().for_each(|area| close(&browser, area));
        browser.wait_for(&format!("document.querySelector('{} canvas.cells')?.width == 128", card("source")));
        browser.click(&format!("{} button[aria-pressed]", card("source")));
        let square = |top: u32, left: u32| -> Vec<(u32, u32)> {
            (0..3).flat_map(|row| (0..3).map(move |column| (top + row, left + column))).collect()
        };
        draw(&browser, 255, &square(90, 30));
        wait_for_heat(&browser, 91, 31, |heat| heat == 255.0);
        wait_for_heat(&browser, 91, 36, |heat| heat > 100.0);
        // The source is taken away and set elsewhere: the plate cools down there, and warms up
        // here.
        draw(&browser, 0, &square(90, 30));
        draw(&browser, 255, &square(70, 95));
        wait_for_heat(&browser, 71, 96, |heat| heat == 255.0);
        wait_for_heat(&browser, 91, 31, |heat| heat < 100.0);
        show(&browser, "temperature");
        browser.picture("heat");
        browser.narrow(PHONE.0, PHONE.1);
        browser.wait_for(&format!("window.innerWidth == {}", PHONE.0));
        assert_eq!(browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), json!(true));
        wait_for_heat(&browser, 71, 96, |heat| heat == 255.0);
        show(&browser, "temperature");
        browser.picture("heat-phone");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_search_of_hex_is_looked_into() {
        if is_left_out(BED) {
            return;
        }
        let browser = Browser::start(WINDOW.0, WINDOW.1);
        let mut command = ended_with_us(INSPECT.0);
        // A board that is too large to be solved in this time.
        let words = ["hex", "--plain", "--size", "9", "--seconds", "3600", "--moves", "e5 d6 f4", "--inspect"];
        let served = Served::start(command.args(words).env("FARSIDE_JOB", "hex"));
        browser.open(&served.url);
        browser.wait_for("document.querySelector('#areas button[data-area=board]')");
        watch(&browser, "board");
        let facts = |area: &str| format!("document.querySelector('{} .facts').innerText", card(area));
        browser.wait_for(&format!("{}.includes('to move')", facts("board")));
        watch(&browser, "tree");
        // The rate of the search, and the constant that its slider sets.
        let rate = "rollouts a second";
        watch(&browser, rate);
        watch(&browser, "exploration");
        let number = |area: &str| format!("document.querySelector('{} .big').innerText", card(area));
        browser.wait_for(&format!("parseFloat({}) > 0", number(rate)));
        browser.wait_for(&format!("!['', '2'].includes({})", number("exploration")));
        let slider = format!("{} input[type=range]", card("exploration"));
        browser.run(&format!("document.querySelector('{slider}').focus()"));
        // The key End moves it to its highest value. What the page then shows comes from the job.
        browser.press(&["\u{e010}"]);
        browser.wait_for(&format!("{} == '2'", number("exploration")));
        let job = browser.run("return document.querySelector('#job').value");
        let taken = INSPECT.printed(&["get", "exploration", "--job", job.as_str().unwrap()]);
        assert_eq!(taken.lines().last(), Some("2"), "{taken}");
        // No step is published, so none can be stayed at.
        let pause = "document.querySelector('#pause')";
        browser.wait_for(&format!("{pause}.title.includes('cannot be paused')"));
        browser.click("#pause");
        browser.wait_for(
            "document.querySelector('#state.wrong')?.innerText.includes('none of its workers publishes steps')",
        );
        assert_eq!(browser.run(&format!("return {pause}.getAttribute('aria-pressed')")), json!("false"));
        let words = ["cannot be paused", "publish a view at each step"];
        INSPECT.assert_refused(&["pause", "--job", job.as_str().unwrap()], 1, &words);
        // Both have no room in the picture.
        ["exploration", rate].iter().for_each(|area| close(&browser, area));
        browser.wait_for(&format!("/owners 0, 1/.test({})", facts("tree")));
        // The expected line has some moves.
        browser.wait_for(&format!("/expected( [a-i][1-9])+/.test({})", facts("board")));
        browser.run("scrollTo(0, 0)");
        browser.picture("hex");
        browser.narrow(PHONE.0, PHONE.1);
        browser.wait_for(&format!("window.innerWidth == {}", PHONE.0));
        assert_eq!(browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), json!(true));
        browser.wait_for(&format!("{}.includes('to move')", facts("board")));
        show(&browser, "board");
        browser.picture("hex-phone");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}
