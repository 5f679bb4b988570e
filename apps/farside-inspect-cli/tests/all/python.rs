//! The Python package: installed by pip, with a running job.

use std::path::Path;

use farside_testbed::{ended_with_us, limit, python, run};

use crate::inspect::{Job, STEERED, farside};

const SCRIPT: &str = r#"
import os
import subprocess
import sys
import tempfile
import numpy
import farside

name = sys.argv[1]
assert any(job["name"] == name and job["process_count"] == 2 for job in farside.jobs())
with farside.connect(name, timeout=60) as job:
    areas = {area.name: area for area in job.list()}
    assert sorted(areas) == ["acted", "board", "count", "cube", "dt", "echo", "heat", "memory", "particles", "wide"], areas
    heat = job.area("heat")
    assert (heat.shape, heat.dtype, heat.units) == ((4, 4), numpy.float64, "K"), heat
    expected = numpy.arange(16).reshape(4, 4) + 0.5
    whole = heat[...]
    assert isinstance(whole, numpy.ndarray) and whole.step > 0
    for select in [numpy.s_[...], numpy.s_[1:3, ::3], numpy.s_[-1], numpy.s_[:, 2], numpy.s_[3, 1], numpy.s_[2:, ...]]:
        frame = heat[select]
        assert frame.shape == expected[select].shape and (frame == expected[select]).all(), select
    assert (heat["1:3, ::3"] == expected[1:3, ::3]).all()
    assert (job.area("cube")[1] == [[4, 5], [6, -7]]).all()
    steps = [frame.step for _, frame in zip(range(3), heat.watch("[0]", rate=100))]
    assert steps == sorted(set(steps)), steps
    assert (heat.role, heat.kind, heat.writable) == ("view", "plain", False)
    particles = job.area("particles")
    struct = numpy.dtype([("position", "<f8", (3,)), ("mass", "<f4"), ("kind", "<u4")])
    assert particles.dtype == struct and particles.dtype.itemsize == 32, particles.dtype
    frame = particles[1:4:2]
    assert frame["kind"].tolist() == [11, 13] and frame["position"].tolist() == [[1, 1.25, 1.5], [3, 3.25, 3.5]]
    particles[2] = numpy.array(((7, 8, 9), 0.25, 99), struct)
    assert particles[2]["position"].tolist() == [7, 8, 9] and particles[3]["kind"] == 13
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "particles.npy")
        subprocess.run([os.environ["FARSIDE_COMMAND"], "inspect", "get", "--job", name, "particles", "--npy", file], check=True)
        loaded = numpy.load(file)
        assert loaded.dtype == struct and (loaded == particles[...]).all(), loaded
    # A frame that is mapped lies in the memory of the process that published it.
    wide = job.area("wide")
    whole = numpy.arange(128 * 64, dtype=numpy.uint64).reshape(128, 64)
    for select in [numpy.s_[64:], numpy.s_[70:80:3, 5::7], numpy.s_[3], numpy.s_[100, -1]]:
        frame = wide.map(select)
        expected = whole[select] + frame.step * 1_000_000
        assert isinstance(frame, farside.MappedFrame) and frame.shape == expected.shape, select
        assert (frame == expected).all() and frame.valid(), select
    # Many elements are copied from the memories of both processes, and none comes through the pipe.
    job._session._elements = None
    for select in [numpy.s_[...], numpy.s_[:, :64]]:
        frame = wide[select]
        assert frame.flags.owndata or frame.base.flags.owndata
        assert (frame == whole + frame.step * 1_000_000).all() and len(frame.missing) == 0, frame
    del job._session._elements
    def mapped(process):
        for line in open(f"/proc/{process}/maps"):
            span, _, _, _, inode, *_ = line.split()
            start, end = (int(place, 16) for place in span.split("-"))
            yield start, end, int(inode)
    frame = wide.map("[64:, ::2]")
    address = frame.__array_interface__["data"][0]
    place = next(place for place in mapped("self") if place[0] <= address < place[1])
    assert place[0] == address and place[2] != 0, place
    processes = [one["system_process"] for found in farside.jobs() if found["name"] == name for one in found["processes"]]
    owners = [any(one[2] == place[2] for one in mapped(process)) for process in processes]
    assert owners == [False, True], owners
    assert frame.strides == (64 * 8, 16) and not frame.flags.writeable and frame[3].step == frame.step
    with job.pause() as paused:
        first, second = wide.map("[64:]"), wide.map("[64:]")
        assert first.step == second.step == paused.step
        assert first.__array_interface__["data"] == second.__array_interface__["data"]
    del first, second
    # Others wait for 2 s at most: then the oldest frame ends.
    kept = [frame]
    while len(kept) < 3:
        another = wide.map("[64:]")
        if another.step != kept[-1].step:
            kept.append(another)
    del another
    while kept[0].valid():
        later = wide["64"]
        assert (later == whole[64] + later.step * 1_000_000).all()
    assert not kept[0][0].valid()
    kept[2].release()
    assert not kept[2].valid()
    for wrong, words in [(lambda: wide.map(), "several"), (lambda: heat.map("[0]"), "small"), (lambda: job.area("dt").map(), "views")]:
        try:
            wrong()
        except farside.Error as error:
            assert words in str(error) and "get" in str(error), error
        else:
            raise AssertionError(words)
    board = job.area("board")
    assert (board.role, board.writable, board.dtype) == ("view", True, numpy.dtype("u4"))
    board[0, 1:3] = [7, 8]
    board["1, ::2"] = 9
    expected = numpy.array([[0, 7, 8, 0], [9, 0, 9, 0]])
    assert (board[...] == expected).all(), board[...]
    dt = job.area("dt")
    assert (dt.role, dt.bounds, float(dt[...])) == ("parameter", [0.0, 10.0], 0.5), dt.bounds
    job.set("dt", 2)
    assert float(dt[...]) == 2.0
    assert job.act("count") > 0
    assert job.ask("echo", "hi") == {0: {"said": "hi", "by": 0}, 1: {"said": "hi", "by": 1}}
    assert job.ask("echo", "hi", worker=1) == {1: {"said": "hi", "by": 1}}
    with job.pause() as paused:
        step = paused.step
        assert heat[...].step == step
        assert paused.next() == step + 1
        assert heat[...].step == step + 1
    # The job goes on.
    next(frame for frame in heat.watch("[0]", rate=100) if frame.step > step + 1)
    for wrong, words in [
        (lambda: board.put([1, 2, 3], "[0, :2]"), "cannot write"),
        (lambda: board.put(-1), "do not fit"),
        (lambda: board.put(0.5), "do not fit"),
        (lambda: heat.put(1.0), "writable"),
        (lambda: job.set("dt", 11), "bounds"),
        (lambda: job.set("x", 1), "no process has"),
        (lambda: job.resume(), "not paused"),
        (lambda: heat[9], "outside"),
        (lambda: heat[::-1], "step"),
        (lambda: heat["x"], "number"),
        (lambda: heat[1.5], "cannot select"),
        (lambda: heat.get(step=0), "over"),
        (lambda: job.area("cold"), "cube, dt"),
        (lambda: farside.connect("no such job"), "no such job"),
    ]:
        try:
            wrong()
        except farside.Error as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
print("done")
"#;

mod deep {
    use super::*;

    #[test]
    fn frames_are_arrays_of_numpy() {
        farside_testbed::needs!("python");
        let python = python().expect("the bed is there");
        let mut job = Job::start_as(STEERED);
        job.wait();
        let folder = std::env::temp_dir().join(format!("farside-python-{}", std::process::id()));
        let installed = folder.join("installed");
        // pip writes into the folder of the sources.
        let sources = folder.join("sources");
        std::fs::create_dir_all(sources.join("farside")).unwrap();
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/farside-viewer/python");
        for file in ["pyproject.toml", "README.md", "farside/__init__.py"] {
            std::fs::copy(package.join(file), sources.join(file)).unwrap();
        }
        let mut pip = ended_with_us(python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--no-cache-dir",
        ]);
        pip.args(["--disable-pip-version-check", "--target"]).arg(&installed).arg(&sources);
        let pip = run("pip install", &mut pip, limit());
        let mut script = ended_with_us(python);
        script.args(["-c", SCRIPT, &job.name]).env("PYTHONPATH", &installed).env("FARSIDE_COMMAND", farside());
        let printed = pip.and_then(|_| run("the script", &mut script, limit()));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(printed.unwrap(), "done");
    }
}
