//! Areas are listed and read.

use std::fs::File;
use std::os::unix::fs::FileExt;

use farside_testbed::wait_until;
use farside_viewer::{At, ElementType, InspectError, Kind, Number, Pinned, Places, Selection};

use crate::failures::stop;
use crate::steering::start_client;
use crate::targets::{COLUMNS, DEEP, MANY, ROWS, Target, pattern, patterns};

#[test]
fn what_a_job_shows_is_listed_and_read() {
    let (target, job) = Target::inspected("pattern", 2);
    assert_eq!(job.job().name, target.name);
    let areas = job.list().unwrap();
    let names: Vec<&str> = areas.iter().map(|area| area.name.as_str()).collect();
    assert_eq!(names, ["flags", "own 0", "own 1", "pattern", "side"]);
    let info = &areas[3];
    let whole = [2 * ROWS as u64, COLUMNS as u64];
    assert_eq!((info.element, &info.shape[..], info.units.as_str()), (ElementType::U64, &whole[..], "1"));
    let parts: Vec<_> =
        info.parts.iter().map(|part| (part.process, part.worker, part.origin[0], part.shape[0])).collect();
    assert_eq!(parts, [(0, 0, 0, 3), (1, 1, 3, 3)]);

    let area = job.open::<u64>("pattern").unwrap();
    for at in [At::Now, At::Next, At::Next] {
        let frame = area.get(&Selection::all(), at).unwrap();
        assert_eq!(frame.shape, whole);
        assert_eq!(frame.values, patterns(frame.step.unwrap(), 0..2 * ROWS, 0..COLUMNS));
    }
    let mut own = vec![0; 2 * ROWS * COLUMNS];
    let step = area.get_into(&Selection::all(), At::Next, &mut own).unwrap().unwrap();
    assert_eq!(own, patterns(step, 0..2 * ROWS, 0..COLUMNS));
    let error = area.get_into(&Selection::all(), At::Next, &mut own[1..]).unwrap_err();
    assert!(matches!(error, InspectError::Length { .. }), "{error}");
    let frame = area.get(&"[1:5:2, -3::2]".parse().unwrap(), At::Next).unwrap();
    assert_eq!(frame.shape, [2, 2]);
    let expected = [(1, 197), (1, 199), (3, 197), (3, 199)];
    assert_eq!(frame.values, expected.map(|(row, column)| pattern(frame.step.unwrap(), row, column)));
    // Of one process alone.
    let frame = area.get(&"[4, 5]".parse().unwrap(), At::Next).unwrap();
    assert_eq!((frame.shape.len(), frame.values), (0, vec![pattern(frame.step.unwrap(), 4, 5)]));

    // Parts side by side, so that no part's elements follow each other in the whole.
    let frame = job.open::<u64>("side").unwrap().get(&"[1:, 48:53]".parse().unwrap(), At::Next).unwrap();
    assert_eq!(frame.values, patterns(frame.step.unwrap(), 1..7, 48..53));
    let frame = job.open::<f32>("own 1").unwrap().get(&Selection::all(), At::Next).unwrap();
    assert_eq!((frame.shape.len(), frame.values), (0, vec![frame.step.unwrap() as f32]));
    let frame = job.open::<bool>("flags").unwrap().get(&Selection::all(), At::Next).unwrap();
    let even = frame.step.unwrap().is_multiple_of(2);
    assert_eq!(frame.values, [even, true, even, true]);
}

#[test]
fn a_step_is_read_in_place_while_it_is_pinned() {
    let (mut target, job) = Target::inspected("pattern", 2);
    let area = job.open::<u64>("pattern").unwrap();
    let selection = "[4, 1::2]".parse().unwrap();
    let part_of = |pinned: &Pinned| {
        let mut bytes = vec![0; ROWS * COLUMNS * 8];
        let is_whole = pinned.copy_to(0, &mut bytes);
        let mut by_file = vec![0; bytes.len()];
        File::open(pinned.file()).unwrap().read_exact_at(&mut by_file, pinned.offset() as u64).unwrap();
        (is_whole && by_file == bytes).then(|| bytemuck::pod_collect_to_vec::<u8, u64>(&bytes))
    };
    let expected = |step| patterns(step, 3..6, 0..COLUMNS);
    // A view has three copies.
    let pinned: Vec<Pinned> = (0..3).map(|_| area.pin(&selection, At::Next).unwrap()).collect();
    for one in &pinned {
        assert_eq!((one.shape(), one.places().len()), (&[3, COLUMNS as u64][..], 2));
        assert_eq!(one.places()[0], Places::One(1));
        assert_eq!(one.places()[1], Places::Many { start: 1, step: 2, count: COLUMNS as u64 / 2 });
    }
    // Whatever time has passed, what is still valid is the step's.
    let is_valid = |one: &&Pinned| match part_of(one) {
        Some(values) => {
            assert_eq!(values, expected(one.step()));
            true
        }
        None => {
            assert!(!one.is_valid(), "a copy that is valid can be read");
            false
        }
    };
    pinned.iter().filter(is_valid).count();
    // Others wait for 2 s at most: then the oldest copy is taken away.
    let frame = area.get(&"[4]".parse().unwrap(), At::Next).unwrap();
    assert_eq!(frame.values, expected(frame.step.unwrap())[COLUMNS..2 * COLUMNS]);
    assert!(!pinned[0].is_valid() && !pinned[0].copy_to(0, &mut [0]), "the oldest copy is gone");
    pinned.iter().filter(is_valid).count();
    assert!(pinned[0].step() < pinned[1].step() && pinned[1].step() < pinned[2].step());
    drop(pinned);
    for (name, selection, why) in [("pattern", "[:]", "several"), ("own 1", "[]", "small")] {
        let error = job.open_any(name).unwrap().pin(&selection.parse().unwrap(), At::Next).unwrap_err();
        assert!(matches!(error, InspectError::NotMapped { .. }) && error.to_string().contains(why), "{error}");
    }
    assert!(target.is_running());
}

#[test]
fn a_wrong_question_is_refused_with_what_there_is() {
    let (_target, job) = Target::inspected("pattern", 2);
    let error = job.open::<u64>("heat").unwrap_err();
    assert!(matches!(&error, InspectError::NoArea { name, areas } if name == "heat" && areas.len() == 5), "{error}");
    assert!(error.to_string().contains("pattern"), "{error}");
    let error = job.open::<f64>("pattern").unwrap_err();
    assert!(matches!(error, InspectError::Type { is: ElementType::U64, wanted: ElementType::F64, .. }), "{error}");
    let area = job.open::<u64>("pattern").unwrap();
    for (selection, word) in [("[9]", "outside"), ("[0, 0, 0]", "dimensions"), ("[2:2]", "no element")] {
        let error = area.get(&selection.parse().unwrap(), At::Next).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
    wait_until("step 0 is over", || area.get(&Selection::all(), At::Next).unwrap().step > Some(0));
    let error = area.get(&Selection::all(), At::Step(0)).unwrap_err();
    assert!(matches!(error, InspectError::Passed { step: 0, .. }), "{error}");
    let error = farside_viewer::Inspector::connect("no such job").unwrap_err();
    assert!(matches!(&error, InspectError::NoJob { found, .. } if found.contains(job.job())), "{error}");
}

/// A reader that is stopped keeps all copies of a view. Others wait for one of them, not for it.
#[test]
fn a_reader_that_is_stopped_keeps_nothing_from_others() {
    let (mut target, job) = Target::inspected("pattern", 2);
    let area = job.open::<u64>("pattern").unwrap();
    let mut client = start_client("client pins", &job);
    stop(client.id());
    let mut last = None;
    for _ in 0..5 {
        let frame = area.get(&"[4]".parse().unwrap(), At::Next).unwrap();
        assert!(frame.step > last, "the program goes on");
        last = frame.step;
    }
    assert!(target.is_running());
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn a_job_whose_doors_are_shut_runs_as_before() {
    let mut target = Target::start("brief", &[("FARSIDE_INSPECT", "off")]);
    while target.is_running() {
        assert!(!farside_viewer::jobs().unwrap().iter().any(|job| job.id.name == target.name));
    }
    assert!(target.wait());
    let mut target = Target::start("brief", &[("FARSIDE_INSPECT", "perhaps")]);
    assert!(!target.wait());
}

#[test]
fn complex_numbers_and_eight_dimensions_are_read() {
    let (mut target, job) = Target::inspected("rare", 2);
    let waves = job.open::<[f32; 2]>("waves").unwrap();
    let frame = waves.get(&Selection::all(), At::Next).unwrap();
    let step = frame.step.unwrap() as f32;
    assert_eq!(frame.values, [[step, -1.5], [step, 0.0], [step, -1.5], [step, 1.0]]);
    let raw = job.open_any("waves").unwrap().get_raw(&"[3]".parse().unwrap(), At::Next).unwrap();
    let step = raw.step.unwrap() as f64;
    assert_eq!(raw.numbers().unwrap(), [Number::Complex(step, 1.0)]);
    let mut file = Vec::new();
    raw.write_npy(&mut file).unwrap();
    assert!(String::from_utf8_lossy(&file).contains("'descr': '<c8'"));
    let deep = job.open::<u16>("deep").unwrap();
    assert_eq!((waves.info().kind, deep.info().kind), (Kind::Line, Kind::Table));
    let count = DEEP.iter().product::<usize>() as u16;
    assert_eq!(deep.get(&Selection::all(), At::Next).unwrap().values, (0..2 * count).collect::<Vec<_>>());
    let frame = deep.get(&"[:, 1, 0, :, 0, 0, 0, ::2]".parse().unwrap(), At::Next).unwrap();
    let first = |worker: u16, row: u16| worker * count + count / 2 + row * 6;
    let expected = [first(0, 0), first(0, 1), first(1, 0), first(1, 1)].map(|first| [first, first + 2]);
    assert_eq!((&frame.shape[..], frame.values), (&[2, 2, 2][..], expected.concat()));
    assert!(target.is_running());
}

#[test]
fn ten_thousand_areas_of_each_process_are_listed() {
    let (mut target, job) = Target::inspected("many", 2);
    let areas = job.list().unwrap();
    assert_eq!(areas.iter().filter(|area| area.name.starts_with("gauge")).count(), 2 * MANY);
    let gauge = job.open::<f64>("gauge 9999 of 1").unwrap();
    assert_eq!(gauge.get(&Selection::all(), At::Now).unwrap().values, [9999.0]);
    assert!(target.is_running());
}
