"""Looks into running jobs of Farside: their data as numpy arrays.

    import farside

    job = farside.connect("heat")
    frame = job.area("temperature")[10:20, ::4]
    print(frame.step, frame.mean())

All questions go through the command `farside inspect session`, which this module starts.
"""

import json
import math
import mmap
import os
import subprocess
import threading
import time

import numpy as np

__all__ = ["Area", "Error", "Frame", "Job", "Locked", "MappedFrame", "Missing", "Paused", "connect", "jobs"]

_DTYPES = {
    "bool": "?", "u8": "u1", "i8": "i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4",
    "u64": "<u8", "i64": "<i8", "f32": "<f4", "f64": "<f8", "c64": "<c8", "c128": "<c16",
}


def _dtype(described):
    """The type of elements. Structs have fields."""
    if described["type"] != "struct":
        return np.dtype(_DTYPES[described["type"]])
    fields = described["fields"]
    return np.dtype({
        "names": [field["name"] for field in fields],
        "formats": [(_DTYPES[field["type"]], tuple(field["shape"])) for field in fields],
        "offsets": [field["offset"] for field in fields],
        "itemsize": described["bytes_each"],
    })


class Error(Exception):
    """Why a question has no answer."""


class Missing:
    """A part of a frame that is not there, because its process is gone: `frame[missing.places]`.

    `worker` and `process` are None if they are not known. The elements there are NaN or 0.
    """

    def __init__(self, described):
        self.worker = described["worker"]
        self.process = described["process"]
        places = zip(described["origin"], described["shape"])
        self.places = tuple(slice(first, first + count) for first, count in places)

    def __repr__(self):
        return f"<farside.Missing worker {self.worker} of process {self.process}: {self.places}>"


class Frame(np.ndarray):
    """Elements of one step of all processes. `step` is its number; memory as it is now has none.

    If a process is gone, `missing` lists its parts, a `Missing` each, and `masked()` hides them.
    What is computed from a frame has no list.
    """

    step = None
    missing = ()

    def __array_finalize__(self, other):
        self.step = getattr(other, "step", None)

    def masked(self):
        """The frame as a masked array."""
        mask = np.zeros(self.shape, bool)
        for missing in self.missing:
            mask[missing.places] = True
        return np.ma.masked_array(np.asarray(self), mask)


class MappedFrame(Frame):
    """Elements of one step in the memory of the program's process, which this process maps.

    Nothing was copied, and nothing can be written. The program does not change the memory while the
    frame is valid. A frame that is kept for longer than 2 s ends when other readers need its memory:
    then there are elements of a later step. So read or copy first, and then look whether it `valid()`.
    """

    _pin = None

    def __array_finalize__(self, other):
        super().__array_finalize__(other)
        # What was computed is no part of the memory.
        self._pin = None if self.flags.owndata else getattr(other, "_pin", None)

    def valid(self):
        """Whether the memory has been this step's up to now."""
        return self._pin is None or self._pin.is_valid()

    def release(self):
        """Gives the memory back to the program. The frame is not valid afterwards."""
        if self._pin is not None:
            self._pin.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


class _Pin:
    """A step that is pinned, until no array refers to it."""

    def __init__(self, session, number):
        self._session = session
        self._number = number

    def is_valid(self):
        if self._number is None:
            return False
        return self._session.ask(do="valid", pin=self._number)[0]["valid"]

    def release(self):
        if self._number is not None:
            self._number, number = None, self._number
            self._session.ask(do="unpin", unpin=[number])

    def __del__(self):
        if self._number is not None:
            # A finalizer asks nothing. The next question takes it along.
            self._session.unpinned.append(self._number)


class _Session:
    """The process that answers questions."""

    # The memories that are kept mapped.
    _MAPPED_MAX = 64

    def __init__(self, job, timeout):
        command = os.environ.get("FARSIDE_COMMAND", "farside")
        arguments = [command, "inspect", "session", "--job", job, "--timeout", str(timeout)]
        try:
            self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise Error(
                f"cannot start {command!r}: {error}; build it with `cargo build --release "
                "-p farside-cli -p farside-inspect-cli`, and put it "
                "into the search path or name it with FARSIDE_COMMAND"
            ) from error
        self.lock = threading.Lock()
        self.unpinned = []
        self.mapped = {}

    def map(self, path):
        """The memory of a file."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Error(f"cannot open the memory of the program: {error}; use get") from error
        try:
            status = os.fstat(file)
            key = (status.st_dev, status.st_ino)
            memory = self.mapped.get(key)
            if memory is None:
                while len(self.mapped) >= self._MAPPED_MAX:
                    # Arrays that refer to it keep it.
                    self.mapped.pop(next(iter(self.mapped)))
                memory = mmap.mmap(file, status.st_size, access=mmap.ACCESS_READ)
                self.mapped[key] = memory
            return memory
        except (OSError, ValueError) as error:
            raise Error(f"cannot map the memory of the program: {error}; use get") from error
        finally:
            os.close(file)

    def ask(self, elements=None, **question):
        """Asks a question, with an array behind it or without. Returns the answer and, if it has
        elements, their array."""
        question = {name: value for name, value in question.items() if value is not None}
        if elements is not None:
            question["bytes"] = elements.nbytes
        with self.lock:
            if self.unpinned:
                unpinned = [self.unpinned.pop() for _ in range(len(self.unpinned))]
                question["unpin"] = question.get("unpin", []) + unpinned
            try:
                self.process.stdin.write(json.dumps(question).encode() + b"\n")
                if elements is not None:
                    self.process.stdin.write(elements.reshape(-1).view(np.uint8).data)
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except (OSError, ValueError) as error:
                raise Error(f"the command that answers has ended: {error}; connect again") from error
            if not line:
                raise Error("the command that answers has ended: connect again")
            answer = json.loads(line)
            elements = self._elements(answer) if "bytes" in answer else None
        if "error" in answer:
            raise Error(answer["error"])
        return answer, elements

    def _elements(self, answer):
        array = np.empty(answer["shape"], _dtype(answer))
        if array.nbytes != answer["bytes"]:
            self.close()
            raise Error("the command that answers is of another version: install this package anew")
        rest = memoryview(array.reshape(-1).view(np.uint8))
        while rest:
            count = self.process.stdout.readinto(rest)
            if not count:
                raise Error("the command that answers has ended: connect again")
            rest = rest[count:]
        return array

    def close(self):
        """Ends the process."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Job:
    """A running job. It can be used in a `with` statement, which ends the connection."""

    def __init__(self, job, timeout):
        self._session = _Session(job, timeout)

    def list(self):
        """What the job shows: an `Area` for each."""
        answer, _ = self._session.ask(do="list")
        return [Area(self._session, area) for area in answer["areas"]]

    def area(self, name):
        """The area of a name."""
        areas = [area for area in self.list() if area.name == name]
        if not areas:
            # The command's own words say what there is.
            self._session.ask(do="get", area=name)
            raise Error(f"{name!r} has just come: ask again")
        return areas[0]

    def set(self, parameter, value):
        """Sets a parameter at one step of all workers. Returns the last step before the change."""
        return self._session.ask(do="set", parameter=parameter, value=float(value))[0]["step"]

    def act(self, action):
        """Has all workers run an action at one step. Returns the last step before it."""
        return self._session.ask(do="act", action=action)[0]["step"]

    def ask(self, probe, question="", worker=None):
        """Asks a probe. Returns the answers by worker: what their JSON means, or their texts."""
        answer, _ = self._session.ask(do="ask", probe=probe, question=question, worker=worker)
        return {found["worker"]: found["answer"] for found in answer["answers"]}

    def pause(self, step=None):
        """Has the job pause after the next step, or after the one of this number."""
        return Paused(self._session, self._session.ask(do="pause", step=step)[0]["step"])

    def resume(self):
        """Ends the pause of the job, whoever has made it."""
        self._session.ask(do="resume")

    def lock(self, name):
        """Locks exposed memory, for 10 s at most."""
        self._session.ask(do="lock", area=name)
        return Locked(self._session, name)

    def close(self):
        """Ends the connection, and with it pauses and locks."""
        self._session.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Paused:
    """A job that is paused after `step`. It goes on at the end of a `with` statement, or by `resume`."""

    def __init__(self, session, step):
        self._session = session
        self.step = step

    def next(self):
        """Lets the job go on until it has completed the next step. Returns that."""
        self.step = self._session.ask(do="next")[0]["step"]
        return self.step

    def resume(self):
        """Lets the job go on."""
        self._session.ask(do="resume")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.resume()


class Locked:
    """Exposed memory that is locked, until the end of a `with` statement or `unlock`."""

    def __init__(self, session, name):
        self._session = session
        self._name = name

    def unlock(self):
        """Unlocks the memory."""
        self._session.ask(do="unlock", area=self._name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.unlock()


class Area:
    """What all workers show under one name.

    `area[10:20, ::4]`, or with a text `area["10:20, ::4"]`, reads elements by numpy's rules, as far
    as the command has them: places, slices with steps above 0, and an ellipsis.
    """

    def __init__(self, session, described):
        self._session = session
        self.name = described["name"]
        self.dtype = _dtype(described)
        self.shape = tuple(described["shape"])
        self.units = described["units"]
        self.step = described["step"]
        self.parts = described["parts"]
        self.role = described["role"]
        self.kind = described["kind"]
        self.writable = described["writable"]
        self.bounds = described.get("bounds")
        self.origin = described.get("origin")
        self.spacing = described.get("spacing")

    def __repr__(self):
        return f"<farside.Area {self.name!r}: {self.dtype}{list(self.shape)} {self.units}>"

    def get(self, select="", step=None):
        """Reads elements of one step: the next that can be had, or the one of this number.

        Many elements of a view are copied once, from the memory of the program.
        """
        asked = {"area": self.name, "select": _text(select), "step": step}
        answer, array = self._session.ask(do="parts" if self.role == "view" else "get", **asked)
        if array is None:
            array = self._copy(answer)
        if array is None:
            # It took so long that others have the memory now.
            answer, array = self._session.ask(do="get", **asked)
        frame = array.view(Frame)
        frame.step = answer["step"]
        frame.missing = [Missing(part) for part in answer.get("missing", ())]
        return frame

    def _copy(self, answer):
        """The elements of pinned parts, if the parts have been the step's until they were copied."""
        array = np.empty(answer["shape"], self.dtype)
        pins = [part["pin"] for part in answer["parts"]]
        try:
            for part in answer["parts"]:
                block = tuple(slice(first, first + count) for first, count in part["block"])
                array[block + (...,)] = self._pinned(part)
            return array if self._session.ask(do="valid", pins=pins)[0]["valid"] else None
        finally:
            # The next question takes them along.
            self._session.unpinned.extend(pins)

    def _pinned(self, part):
        """The selected elements of a part that is pinned, in place."""
        memory = self._session.map(part["file"])
        elements = np.frombuffer(memory, self.dtype, math.prod(part["shape"]), part["offset"])
        return elements.reshape(part["shape"])[tuple(_places_of(places) for places in part["places"]) + (...,)]

    def __getitem__(self, select):
        return self.get(select)

    def map(self, select="", step=None):
        """Elements of one step of a view in place, as a `MappedFrame`: no element is copied.

        They must lie in the part of one worker, of more than 4 KiB; otherwise, and for other areas
        than views, there is an Error that says to use `get`.
        """
        answer, _ = self._session.ask(do="parts", area=self.name, select=_text(select), step=step, in_place=True)
        first, *others = [(_Pin(self._session, part["pin"]), part) for part in answer["parts"]]
        if others:
            raise Error(f"{self.name!r} is in the memories of several workers: use get")
        frame = self._pinned(first[1]).view(MappedFrame)
        frame.step, frame._pin = answer["step"], first[0]
        return frame

    def put(self, values, select=""):
        """Writes elements: an array of the shape that is selected, or one number for all places.

        Returns the last step before the change, or None if it was made at once.
        """
        text = _text(select)
        values = np.asarray(values)
        if not np.can_cast(values.dtype, self.dtype, "same_kind") and not _fits(values, self.dtype):
            raise Error(f"values of {values.dtype} do not fit {self.name!r}, which has {self.dtype}: convert them")
        # The shape that is selected is that of numpy, of an array that takes no memory.
        place = _places(text)
        try:
            shape = np.broadcast_to(np.empty((), self.dtype), self.shape)[place].shape
            elements = np.ascontiguousarray(np.broadcast_to(values, shape), self.dtype)
        except (IndexError, ValueError) as error:
            raise Error(f"cannot write {self.name!r}: {error}") from error
        return self._session.ask(elements, do="put", area=self.name, select=text)[0]["step"]

    def __setitem__(self, select, values):
        self.put(values, select)

    def watch(self, select="", rate=10.0):
        """Yields each new step, but looks at most `rate` times a second. It ends with the job's error."""
        due, last = time.monotonic(), None
        while True:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + 1.0 / rate, time.monotonic())
            frame = self.get(select)
            if frame.step is None or frame.step != last:
                last = frame.step
                yield frame


def _text(select):
    """A selection as the command reads it."""
    if isinstance(select, str):
        return select if not select or select.startswith("[") else f"[{select}]"
    parts = select if isinstance(select, tuple) else (select,)
    return "[" + ", ".join(map(_index, parts)) + "]"


def _places_of(places):
    """One place, or its start, step and number."""
    if isinstance(places, int):
        return places
    start, step, count = places
    return slice(start, start + step * (count - 1) + 1, step)


def _fits(values, dtype):
    """Whether whole numbers keep their values in another type."""
    if values.dtype.kind not in "iub" or dtype.kind not in "iub":
        return False
    return bool((values.astype(dtype) == values).all())


def _places(text):
    """A selection in the form of a text as numpy takes it."""
    inner = text.strip()[1:-1].strip().rstrip(",")
    return tuple(map(_place, inner.split(","))) if inner else ...


def _place(part):
    part = part.strip()
    try:
        if part == "...":
            return ...
        if ":" in part:
            return slice(*(int(end) if end.strip() else None for end in part.split(":")))
        return int(part)
    except (TypeError, ValueError):
        raise Error(f"cannot select with {part!r}: use places, slices and ...") from None


def _index(part):
    if part is Ellipsis:
        return "..."
    if isinstance(part, slice):
        ends = ["" if end is None else str(int(end)) for end in (part.start, part.stop)]
        return ":".join(ends + ([] if part.step is None else [str(int(part.step))]))
    try:
        return str(part.__index__())
    except AttributeError:
        raise Error(f"cannot select with {part!r}: use places, slices and ...") from None


def jobs():
    """The jobs of this user on this machine that show something, as dictionaries."""
    with Job("", 5) as session:
        answer, _ = session._session.ask(do="jobs")
    return answer["jobs"]


def connect(job="", timeout=5):
    """Connects to a job: its name, its number or both as NAME/NUMBER; without it, the only job.

    Each question has `timeout` seconds.
    """
    made = Job(job, timeout)
    try:
        made.list()
    except Error:
        made.close()
        raise
    return made
