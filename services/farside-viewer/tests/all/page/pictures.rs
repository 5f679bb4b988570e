//! The page as a person uses it.

use farside_testbed::browser::{BED, Browser};
use farside_testbed::wait_until;
use farside_viewer::page::Page;
use farside_viewer::{At, Inspector, Selection};
use serde_json::json;

use crate::page::client::serve;
use crate::targets::{BOARD, COLUMNS, ROWS, Target};

const PATTERN: &str = "article[data-area=\"pattern\"]";

/// The colour of a place of the colour map from 0 to 255, as `draw.js` has it.
fn colour(place: f64) -> [u8; 3] {
    const ANCHORS: [[u8; 3]; 10] = [
        [0x00, 0x00, 0x04],
        [0x1b, 0x0c, 0x41],
        [0x4a, 0x0c, 0x6b],
        [0x78, 0x1c, 0x6d],
        [0xa5, 0x2c, 0x60],
        [0xcf, 0x44, 0x46],
        [0xed, 0x69, 0x25],
        [0xfb, 0x9b, 0x06],
        [0xf7, 0xd1, 0x3d],
        [0xfc, 0xff, 0xa4],
    ];
    let place = place / 255.0 * 9.0;
    let low = (place as usize).min(8);
    let mix = |channel: usize| {
        let (from, to) = (f64::from(ANCHORS[low][channel]), f64::from(ANCHORS[low + 1][channel]));
        (from + (to - from) * (place - low as f64)).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

fn watch(browser: &Browser, area: &str) {
    browser.wait_for(&format!("document.querySelector('#areas button[data-area={area:?}]')"));
    if browser.run(&format!("return !document.querySelector('article[data-area={area:?}]')")) == json!(true) {
        browser.click(&format!("#areas button[data-area={area:?}]"));
    }
    browser
        .wait_for(&format!("document.querySelector('article[data-area={area:?}] .facts').innerText.includes('step')"));
}

/// A job, and a browser that shows its page.
struct Shown {
    target: Target,
    job: Inspector,
    page: Page,
    browser: Browser,
}

impl Shown {
    /// Returns `None` where there is no browser.
    fn start(part: &str) -> Option<Self> {
        if farside_testbed::is_left_out(BED) {
            return None;
        }
        let (target, job) = Target::inspected(part, 2);
        let (page, browser) = (serve(&target.name), Browser::start(1200, 900));
        browser.open(&page.url());
        Some(Self { target, job, page, browser })
    }
}

mod deep {
    use super::*;

    #[test]
    fn the_pixels_of_a_heat_map_are_the_values() {
        let Some(Shown { target: _target, job: _job, page: _page, browser }) = Shown::start("pattern") else { return };
        watch(&browser, "pattern");
        browser.wait_for(&format!("document.querySelector('{PATTERN} canvas.cells')?.width == {COLUMNS}"));
        let pixels = browser.run(&format!(
            "const canvas = document.querySelector('{PATTERN} canvas.cells');
         return [canvas.width, canvas.height,
           Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)]"
        ));
        assert_eq!((&pixels[0], &pixels[1]), (&json!(COLUMNS), &json!(2 * ROWS)));
        let data: Vec<u8> = pixels[2].as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect();
        // The values of both processes, from the least to the greatest of the step.
        let most = (2 * ROWS - 1) * 1000 + COLUMNS - 1;
        for row in 0..2 * ROWS {
            for column in 0..COLUMNS {
                let place = ((row * 1000 + column) as f64 * 255.0 / most as f64).round();
                let at = 4 * (row * COLUMNS + column);
                assert_eq!(data[at..at + 3], colour(place), "row {row}, column {column}");
            }
        }
        // The cursor says which value of which process is below it.
        let place = browser.run(&format!(
            "const canvas = document.querySelector('{PATTERN} canvas.cells');
         canvas.scrollIntoView({{ block: 'center' }});
         const box = canvas.getBoundingClientRect();
         return [box.x + box.width * 7.5 / {COLUMNS}, box.y + box.height * 4.5 / {}]",
            2 * ROWS
        ));
        browser.mouse(place[0].as_f64().unwrap(), place[1].as_f64().unwrap(), true);
        browser.wait_for(&format!("document.querySelector('{PATTERN} output').innerText.startsWith('[4, 7] = ')"));
        let said = browser.run(&format!("return document.querySelector('{PATTERN} output').innerText"));
        let said = said.as_str().unwrap();
        assert!(said.contains("4007 · worker 1, process 1"), "{said}");
        // By keys, too.
        browser.press(&["\u{e014}", "\u{e015}"]);
        browser.wait_for(&format!("document.querySelector('{PATTERN} output').innerText.startsWith('[5, 8] = ')"));
        browser.picture("pattern");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }

    #[test]
    fn areas_are_chosen_selected_and_closed() {
        let Some(Shown { target, job: _job, page: _page, browser }) = Shown::start("pattern") else { return };
        for area in ["pattern", "flags", "own 1", "side"] {
            watch(&browser, area);
        }
        browser.wait_for("document.querySelector('article[data-area=\"own 1\"] .big').innerText > 0");
        // A selection of one row is a line, and a wrong one says why.
        let select = |text: &str| {
            browser.run(&format!(
                "const input = document.querySelector('{PATTERN} input[type=text]'); input.value = {text:?};
             input.dispatchEvent(new Event('change'))"
            ));
        };
        select("[3, 10:20]");
        browser.wait_for(&format!("document.querySelector('{PATTERN} canvas.lines')"));
        select("[99]");
        browser.wait_for(&format!("document.querySelector('{PATTERN} [role=alert]').innerText.includes('outside')"));
        select("[1:6:2, ::50]");
        browser.wait_for(&format!("document.querySelector('{PATTERN} canvas.cells')?.width == 4"));
        browser.wait_for(&format!("!document.querySelector('{PATTERN} [role=alert]').innerText"));
        browser.picture("areas");
        // The filter finds an area, and the keyboard closes and watches it: some are watched at
        // first.
        browser.press(&["/", "o", "w", "n", " ", "0", "\u{e004}", "\u{e007}"]);
        browser.wait_for("!document.querySelector('article[data-area=\"own 0\"]')");
        browser.press(&["\u{e007}"]);
        browser.wait_for("document.querySelector('article[data-area=\"own 0\"]')");
        assert_eq!(browser.run("return document.querySelectorAll('#areas button').length"), json!(1));
        browser.click("article[data-area=\"side\"] header button");
        browser.wait_for("!document.querySelector('article[data-area=\"side\"]')");
        // Dark and light.
        let ground = || browser.run("return getComputedStyle(document.body).backgroundColor");
        let before = ground();
        browser.click("#theme");
        assert_ne!(ground(), before);
        browser.picture("other-theme");
        // The job ends: the page says so and keeps the last frames.
        drop(target);
        browser.wait_for("document.querySelector('#job').innerText.includes('ended')");
        browser.wait_for(&format!("document.querySelector('{PATTERN} [role=alert]').innerText"));
        assert_eq!(browser.run(&format!("return document.querySelector('{PATTERN} canvas').width")), json!(4));
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }

    #[test]
    fn a_phone_shows_everything() {
        if farside_testbed::is_left_out(BED) {
            return;
        }
        let (target, _) = Target::inspected("pattern", 2);
        let page = serve(&target.name);
        let browser = Browser::start(500, 800);
        // No window is that narrow.
        browser.narrow(360, 740);
        browser.open(&page.url());
        watch(&browser, "pattern");
        browser.wait_for("window.innerWidth == 360");
        // Nothing is cut off at the right.
        let wide = browser.run(
            "return [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > 361)
           .map((one) => one.outerHTML.slice(0, 100))",
        );
        assert_eq!(wide, json!([]));
        assert_eq!(browser.run("return document.documentElement.scrollWidth <= 360"), json!(true));
        browser.picture("phone");
    }

    /// A person's changes on the page are made in the job.
    #[test]
    fn a_job_is_steered_from_the_page() {
        let Some(Shown { target: _target, job, page: _page, browser }) = Shown::start("steered") else { return };
        for area in ["dt", "board", "seen", "echo", "residual"] {
            browser.wait_for(&format!("document.querySelector('#areas button[data-area={area:?}]')"));
            if browser.run(&format!("return !document.querySelector('article[data-area={area:?}]')")) == json!(true) {
                browser.click(&format!("#areas button[data-area={area:?}]"));
            }
        }
        let value = |area: &str| job.open::<f64>(area).unwrap().get(&Selection::all(), At::Next).unwrap().values;
        // A slider sets a parameter, and the program sees it.
        browser.wait_for("document.querySelector('article[data-area=dt] .big').innerText == '0.5'");
        browser.run(
            "const slider = document.querySelector('article[data-area=dt] input[type=range]'); slider.value = 250;
         slider.dispatchEvent(new Event('input'))",
        );
        browser.wait_for("document.querySelector('article[data-area=dt] .big').innerText == '250'");
        assert_eq!(value("seen"), [250.0, 250.0]);
        // A value out of bounds is refused, and the reason is shown.
        browser.run(
            "const exact = document.querySelector('article[data-area=dt] input[type=number]'); exact.value = -1;
         exact.dispatchEvent(new Event('change'))",
        );
        browser.wait_for("document.querySelector('article[data-area=dt] [role=alert]').innerText.includes('1000')");
        // The mouse writes elements of both processes.
        let board = "article[data-area=board]";
        browser.wait_for(&format!("document.querySelector('{board} canvas.cells')?.width == {BOARD}"));
        browser.click(&format!("{board} button[aria-pressed]"));
        browser.run(&format!("document.querySelector('{board} input[type=number]').value = 7"));
        for row in [0.25, 0.75] {
            let place = browser.run(&format!(
                "const box = document.querySelector('{board} canvas').getBoundingClientRect();
             return [box.x + box.width * 3.5 / {BOARD}, box.y + box.height * {row}]"
            ));
            browser.mouse(place[0].as_f64().unwrap(), place[1].as_f64().unwrap(), true);
        }
        let mut expected = vec![0_u32; 2 * BOARD];
        (expected[3], expected[BOARD + 3]) = (7, 7);
        wait_until("the elements are written", || {
            job.open::<u32>("board").unwrap().get(&Selection::all(), At::Next).unwrap().values == expected
        });
        // An action runs once.
        let count = || job.open::<u64>("acted").unwrap().get(&Selection::all(), At::Next).unwrap().values;
        let before = count();
        browser.click("#areas button[data-area=count]");
        browser.wait_for("document.querySelector('#state').innerText.includes('started')");
        wait_until("the action runs", || count() != before);
        assert_eq!(count(), [before[0] + 1, before[1] + 1]);
        // A probe answers.
        browser.run(
            "const form = document.querySelector('article[data-area=echo] form');
         form.querySelector('input').value = '<b>hello</b>'; form.requestSubmit()",
        );
        browser.wait_for(
            "document.querySelector('article[data-area=echo] pre').innerText
           == 'worker 0: <b>hello</b> to 0\\nworker 1: <b>hello</b> to 1'",
        );
        // A pause, a step, and on.
        let is_paused = "document.querySelector('#pause').getAttribute('aria-pressed') == 'true'";
        wait_until("the job is paused", || {
            browser.click("#pause");
            // On a machine that is busy, the workers may not come to one step in the page's time.
            browser.wait_for(&format!("{is_paused} || document.querySelector('#state').classList.contains('wrong')"));
            browser.run(&format!("return {is_paused}")) == json!(true)
        });
        // While the job moves on to the next step, it is paused after none.
        let paused = || job.is_paused().unwrap().flatten();
        let step = paused().unwrap();
        browser.press(&["n"]);
        wait_until("the next step is over", || paused() == Some(step + 1));
        browser.picture("steered");
        browser.click("#pause");
        wait_until("the job goes on", || job.is_paused().unwrap().is_none());
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }

    /// A tree and a board that a program describes are drawn.
    #[test]
    fn trees_and_boards_are_drawn() {
        let Some(Shown { target: _target, job: _job, page: _page, browser }) = Shown::start("probes") else { return };
        // Both workers' nodes make one tree.
        let tree = "article[data-area=tree]";
        browser.wait_for(&format!(
            "document.querySelector('{tree} .facts').innerText == '4 nodes shown · 10 visits · owners 0, 1'"
        ));
        let point_at = |selector: &str, x: f64, y: f64| {
            let place = browser.run(&format!(
            "const canvas = document.querySelector('{selector} canvas'); canvas.scrollIntoView({{ block: 'center' }});
             const box = canvas.getBoundingClientRect(); return [box.x + box.width * {x}, box.y + box.height * {y}]"
        ));
            (place[0].as_f64().unwrap(), place[1].as_f64().unwrap())
        };
        let says = |selector: &str, text: &str| {
            browser.wait_for(&format!("document.querySelector('{selector} output').innerText.startsWith({text:?})"));
        };
        // The third level: the child of the second node, which has six tenths of the width.
        let (x, y) = point_at(tree, 0.1, 0.9);
        browser.mouse(x, y, false);
        says(tree, "<i>c</i>: 5 visits, value 0.25, worker 1");
        let (x, y) = point_at(tree, 0.8, 0.5);
        browser.mouse(x, y, true);
        says(tree, "b: 4 visits");
        // A click shows the part below it.
        browser.wait_for(&format!("document.querySelector('{tree} .facts').innerText.includes('4 visits')"));
        // By keys: to the whole tree, and from the root to the left and down, to the right and up.
        let press = |selector: &str, keys: &[&str]| {
            browser.run(&format!("document.querySelector('{selector} canvas').focus()"));
            browser.press(keys);
        };
        let (left, up, right, down) = ("\u{e012}", "\u{e013}", "\u{e014}", "\u{e015}");
        press(tree, &["\u{e003}"]);
        browser.wait_for(&format!("document.querySelector('{tree} .facts').innerText.includes('10 visits')"));
        for (key, said) in [(left, "a: 6"), (down, "<i>c</i>: 5"), (down, "<i>c</i>: 5"), (up, "a: 6"), (right, "b: 4")]
        {
            press(tree, &[key]);
            says(tree, said);
        }
        press(tree, &[up]);
        says(tree, ": 10 visits");
        // The board: an empty cell in the middle, with its rate.
        let board = "article[data-area=board]";
        browser.wait_for(&format!(
            "document.querySelector('{board} .facts').innerText == 'white to move · expected b2 c1'"
        ));
        let (x, y) = point_at(board, 0.5, 0.5);
        browser.mouse(x, y, false);
        says(board, "b2: wins 62.5 %, 30 visits");
        for (key, said) in [(up, "b1: wins"), (left, "a1: black"), (left, "a1: black"), (down, "a2: wins")] {
            press(board, &[key]);
            says(board, said);
        }
        browser.picture("probes");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}
