//! A wrong area of a program is refused by a typed error that names the fault, and nothing of it
//! is shown.

use std::fmt::Debug;

use farside::{MakeArrays, Worker};
use farside_inspect::{Expose, ExposeError, PublishError, Standalone};
use farside_testbed::{wait_for, wait_until};
use farside_viewer::{At, InspectError, Inspector, Selection};

use crate::targets::{Target, breathe, connect, say_shown};

/// A name that would be markup in a page. It is an ordinary one.
const MARKUP: &str = "<img src=x onerror=\"alert(1)\">&amp;";

macro_rules! assert_refused {
    ($result:expr, $error:pat) => {{
        let error = refusal($result);
        assert!(matches!(error, $error), "{error:?}");
        error.to_string()
    }};
}

#[track_caller]
fn refusal<T, E: Debug>(result: Result<T, E>) -> E {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}

/// Shows much that is wrong, and little that is right.
pub(crate) fn play_refused(me: &Worker) -> farside::Result<()> {
    names(me)?;
    shapes_and_units(me)?;
    memory(me)?;
    steps(me)?;
    for (default, least, most) in
        [(2.0, 0.0, 1.0), (0.5, 1.0, 0.0), (f64::NAN, 0.0, 1.0), (0.0, f64::NAN, 1.0), (0.0, 0.0, f64::INFINITY)]
    {
        let said = assert_refused!(me.parameter("dt", default, least..=most), ExposeError::Bounds { .. });
        assert!(said.contains("\"dt\""), "{said}");
    }
    let _right = (me.gauge(MARKUP)?, me.parameter("dt", 0.0, 0.0..=1.0)?);
    me.barrier()?;
    if me.is_first() {
        let job = connect(&std::env::var("FARSIDE_JOB").unwrap());
        let shown: Vec<String> = job.list().unwrap().into_iter().map(|area| area.name).collect();
        assert_eq!(shown, [MARKUP, "dt"]);
    }
    me.barrier()
}

fn names(me: &Worker) -> farside::Result<()> {
    let long = "n".repeat(201);
    for name in ["", "a[0]", "line\nbreak", "\u{1b}[2J", "\u{7f}", &long] {
        assert_refused!(me.gauge(name), ExposeError::Name { .. });
        assert_refused!(me.parameter(name, 0.0, 0.0..=1.0), ExposeError::Name { .. });
        assert_refused!(me.view::<f64>(name).open(), ExposeError::Name { .. });
        assert_refused!(me.action(name, |_| Ok(())), ExposeError::Name { .. });
    }
    let first = me.gauge("double")?;
    let worker = me.id().number();
    let said = assert_refused!(me.gauge("double"), ExposeError::Taken { .. });
    assert_eq!(
        said,
        format!("worker {worker} has an area \"double\" already: drop that first, or choose another name")
    );
    assert_refused!(me.view::<u8>("double").open(), ExposeError::Taken { .. });
    assert_refused!(me.parameter("double", 0.0, 0.0..=1.0), ExposeError::Taken { .. });
    drop(first);
    me.gauge("double").map(drop)?;
    Ok(())
}

fn shapes_and_units(me: &Worker) -> farside::Result<()> {
    let view = || me.view::<f64>("view");
    for (wrong, what) in [
        (view().shape([1; 9]), "8 dimensions"),
        (view().shape([2, 0]), "length 0"),
        (view().shape([2]).part_of([2, 2], [0, 0]), "numbers of dimensions"),
        (view().shape([2]).part_of([4], [3]), "inside the whole"),
        (view().shape([2]).part_of([4], [usize::MAX]), "inside the whole"),
        (view().shape([2]).origin([0.0; 3]), "coordinates"),
        (view().shape([usize::MAX, 4]), "address space"),
    ] {
        let said = assert_refused!(wrong.open(), ExposeError::Shape { .. });
        assert!(said.contains("\"view\"") && said.contains(what), "{said}");
    }
    for units in ["\t", "\u{1b}]0;m\u{7}", &"m".repeat(41)] {
        assert_refused!(view().units(units).open(), ExposeError::Units { .. });
    }
    view().units(&"m".repeat(40)).open().map(drop)?;
    Ok(())
}

fn memory(me: &Worker) -> farside::Result<()> {
    // Each worker has 12 elements.
    let count = 12 * me.worker_count() as usize;
    let array = me.global_array::<u64>(count)?;
    let show = || me.expose("memory", &array);
    for (shape, what) in [
        (&[count + 1][..], "another number of elements"),
        (&[count, 0], "another number of elements"),
        (&[usize::MAX, usize::MAX], "another number of elements"),
        (&[], "1 to 8 dimensions"),
        (&[1, 1, 1, 1, 1, 1, 1, 1, count], "1 to 8 dimensions"),
        (&[1, count], "whole rows"),
    ] {
        let said = assert_refused!(show()?.shape(shape), ExposeError::Shape { .. });
        assert!(said.contains("\"memory\"") && said.contains(what), "{said}");
    }
    assert_refused!(show()?.units("\n"), ExposeError::Units { .. });
    assert_refused!(show()?.origin([0.0, 0.0]), ExposeError::Shape { .. });
    assert_refused!(show()?.spacing([1.0])?.shape([count / 4, 4]), ExposeError::Shape { .. });
    for (whole, origin, what) in [
        (&[count / 4, 8][..], &[0, 5][..], "inside the whole"),
        (&[count / 4, 8], &[usize::MAX, 0], "inside the whole"),
        (&[count / 4], &[0], "numbers of dimensions"),
        (&[count / 4, 8], &[0], "numbers of dimensions"),
    ] {
        let said = assert_refused!(show()?.shape([count / 4, 4])?.part_of(whole, origin), ExposeError::Shape { .. });
        assert!(said.contains("\"memory\"") && said.contains(what), "{said}");
    }
    // A shape is that of the memory, wherever the part was before.
    show()?.part_of([2 * count], [0])?.shape([count / 4, 4]).map(drop)?;
    show()?.shape([count / 4, 4])?.spacing([1.0, 2.0])?.units("m").map(drop)?;
    Ok(())
}

fn steps(me: &Worker) -> farside::Result<()> {
    let view = me.view::<u8>("steps").shape([2]).open()?;
    view.publish(5, &[0; 2])?;
    for step in [0, 4, 5] {
        let error = refusal(view.publish(step, &[0; 2]));
        assert!(matches!(error, PublishError::Back { step: at, last: 5, .. } if at == step), "{error:?}");
    }
    assert_refused!(view.publish(u64::MAX, &[0; 2]), PublishError::Last { .. });
    assert_refused!(view.publish(6, &[0; 3]), PublishError::Length { given: 3, expected: 2, .. });
    assert_refused!(view.publish_mut(6, &mut [0]), PublishError::Length { given: 1, expected: 2, .. });
    // What was refused is not published.
    view.publish(6, &[0; 2])?;
    Ok(())
}

/// The same for a program without a job.
pub(crate) fn play_refused_alone() -> farside::Result<()> {
    let shown = Standalone::begin()?;
    let said = assert_refused!(shown.expose::<u64>("memory", 0), ExposeError::Shape { .. });
    assert!(said.contains("\"memory\"") && said.contains("at least one"), "{said}");
    assert_refused!(shown.expose::<u64>("memory", usize::MAX), ExposeError::Shape { .. });
    assert_refused!(shown.gauge("a\u{7}"), ExposeError::Name { .. });
    let _memory = shown.expose::<u64>("memory", 1)?;
    assert_refused!(shown.expose::<u64>("memory", 1), ExposeError::Taken { .. });
    let job = connect(&std::env::var("FARSIDE_JOB").unwrap());
    assert_eq!(job.list().unwrap().len(), 1);
    Ok(())
}

#[test]
fn wrong_areas_and_steps_are_refused() {
    assert!(Target::start("refused", &[]).wait(), "the job has failed");
}

#[test]
fn programs_without_a_job_are_refused_the_same() {
    assert!(Target::start("refused alone", &[]).wait(), "the program has failed");
}

/// The distance of the steps of `tens`.
const DISTANCE: u64 = 10;

/// Shows what cannot be one area, and steps that are not everywhere.
pub(crate) fn play_unequal(me: &Worker) -> farside::Result<()> {
    let own = me.id().index();
    // Dropped at the end.
    let _differ = if me.is_first() {
        (Some(me.view::<f64>("differ").open()?), None)
    } else {
        (None, Some(me.view::<u32>("differ").open()?))
    };
    let _overlap = me.view::<u8>("overlap").shape([4]).part_of([6], [2 * own]).open()?;
    let mixed = me.view::<u64>("mixed").shape([1]).part_of([2], [own]).open()?;
    let tens = me.view::<u64>("tens").shape([1]).part_of([2], [own]).open()?;
    say_shown(me)?;
    for round in 0.. {
        mixed.publish(2 * round + own as u64, &[round])?;
        tens.publish(DISTANCE * round, &[round])?;
        me.barrier()?;
        (0..5).for_each(|_| breathe());
    }
    Ok(())
}

#[test]
fn parts_and_steps_that_do_not_match_are_named() {
    let (_target, job) = Target::inspected("unequal", 2);
    let error = refusal(job.open::<f64>("differ"));
    assert!(
        matches!(&error, InspectError::Differ { kinds, .. } if kinds.contains("f64") && kinds.contains("u32")),
        "{error:?}"
    );
    let error = refusal(job.open::<u8>("overlap"));
    assert!(matches!(error, InspectError::Overlap { one: 0, other: 1, .. }), "{error:?}");
    let error = refusal(job.open::<u64>("tens").unwrap().expect_shape([3]));
    assert!(matches!(&error, InspectError::Shape { is, wanted, .. } if *is == [2] && *wanted == [3]), "{error:?}");
    let all = Selection::all();
    let mixed = job.open::<u64>("mixed").unwrap();
    let error = refusal(mixed.get(&all, At::Next));
    assert!(matches!(error, InspectError::Mixed { one, other, .. } if one % 2 != other % 2), "{error:?}");
    let tens = job.open::<u64>("tens").unwrap();
    // A step between two that are published. The program may pass it before it is asked.
    let mut ahead = 100;
    let (asked, error) = loop {
        let step = DISTANCE * (job.open::<u64>("tens").unwrap().info().step().unwrap_or(0) / DISTANCE + ahead) + 5;
        match refusal(tens.get(&all, At::Step(step))) {
            InspectError::Passed { .. } => ahead *= 2,
            error => break (step, error),
        }
    };
    assert!(
        matches!(error, InspectError::NoStep { step, next, .. } if step == asked && next == asked + 5),
        "{asked}: {error:?}"
    );
}

#[test]
fn jobs_of_one_name_are_told_apart_by_their_numbers() {
    let name = format!("twins-{}", std::process::id());
    let _twins = [(); 2].map(|()| Target::start("shy", &[("FARSIDE_JOB", &name)]));
    let found = wait_for("both jobs show something", || {
        let mut jobs = farside_viewer::jobs().unwrap();
        jobs.retain(|job| job.id.name == name);
        (jobs.len() == 2).then_some(jobs)
    });
    // A job of another test may take the time for answers.
    wait_until("both jobs are named", || match Inspector::connect(&*name) {
        Err(InspectError::Ambiguous { found: meant }) => {
            meant.len() == 2 && found.iter().all(|job| meant.contains(&job.id))
        }
        _ => false,
    });
    for job in found {
        assert_eq!(*connect(&job.id.to_string()).job(), job.id);
    }
}
