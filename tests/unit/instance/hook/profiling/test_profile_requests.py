import json
import os
import time
from pathlib import Path

import pytest

from trainyard.formats.profiles.parameters import ProfileKind, ProfilingParameters
from trainyard.instance.hook.profiling.profile_requests import ProfileRequests, Wanted
from trainyard.link.event_protocol import PROFILE_WANTED, PROFILER_CONFIG


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "input/config").mkdir(parents=True)
    (tmp_path / ".trainyard").mkdir()
    return tmp_path


def write(path: Path, content: object) -> None:
    new = path.with_name("new")
    new.write_text(json.dumps(content))
    new.replace(path)


def ask(ml: Path, number: object, steps: object) -> None:
    write(ml / PROFILE_WANTED, {"number": number, "steps": steps})


def test_parameters_are_returned_when_the_file_is_new(ml: Path) -> None:
    requests = ProfileRequests(ml, note=pytest.fail)
    assert requests.look() == Wanted()
    config = {"ProfilingParameters": {"DetailedProfilingConfig": '{"StartStep": 3}'}}
    write(ml / PROFILER_CONFIG, config)
    found = requests.look().parameters
    assert found is not None
    assert found.windows[ProfileKind.DETAILED].start_step == 3
    assert requests.look() == Wanted()
    write(ml / PROFILER_CONFIG, config)
    assert requests.look().parameters == found


def test_a_disabled_profiler_has_no_windows(ml: Path) -> None:
    parameters = {"DetailedProfilingConfig": "{}"}
    write(ml / PROFILER_CONFIG, {"DisableProfiler": True, "ProfilingParameters": parameters})
    assert ProfileRequests(ml, note=pytest.fail).look().parameters == ProfilingParameters()


def test_each_request_counts_once_and_old_ones_do_not_count_again(ml: Path) -> None:
    requests = ProfileRequests(ml, note=pytest.fail)
    ask(ml, 1, 5)
    assert requests.look().requests == (5,)
    ask(ml, 1, 9)
    assert requests.look().requests == ()
    ask(ml, 2, 7)
    assert requests.look().requests == (7,)


def test_a_request_for_an_earlier_process_is_not_for_this_one(ml: Path) -> None:
    ask(ml, 1, 5)
    requests = ProfileRequests(ml, note=pytest.fail, since_s=time.time() + 100)
    assert requests.look() == Wanted()
    ask(ml, 2, 7)
    os.utime(ml / PROFILE_WANTED, (time.time() + 200,) * 2)
    assert requests.look().requests == (7,)


@pytest.mark.parametrize(("number", "steps"), [(True, 5), (1, "5"), (1, 2.5), (None, None), (1, [5])])
def test_a_request_that_is_none_is_ignored(ml: Path, number: object, steps: object) -> None:
    ask(ml, number, steps)
    assert ProfileRequests(ml, note=pytest.fail).look() == Wanted()


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"x" * 300_000])
def test_garbage_is_noted_once(ml: Path, garbage: bytes) -> None:
    notes: list[str] = []
    requests = ProfileRequests(ml, note=notes.append)
    (ml / PROFILER_CONFIG).write_bytes(garbage)
    assert requests.look() == Wanted()
    assert requests.look() == Wanted()
    (note,) = notes
    assert note.startswith("profilerconfig.json ")


def test_the_folder_is_below_the_opt_ml_of_the_process(ml: Path) -> None:
    requests = ProfileRequests(ml, note=pytest.fail)
    assert requests.folder(ProfilingParameters()) == ml / "output/profiler"
    assert requests.folder(ProfilingParameters("/elsewhere/profiles")) == Path("/elsewhere/profiles")
