import sys
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from trainyard.foundation.errors import Unavailable
from trainyard.server.control.worker_process import AnswerTimeout, WorkerProcess, WorkerWasIdle

LIMIT = timedelta(seconds=60)
MODULE = "from trainyard.server.control.worker_process import *"

Start = Callable[[str], WorkerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process whose function `answer` is given."""
    made = []

    def start(answer: str, *, idle_s: float = 60.0) -> WorkerProcess:
        program = f"{MODULE}\nimport os, sys, time\n{answer}\nserve_questions(answer, niceness=3, idle_s={idle_s})"
        process = WorkerProcess([sys.executable, "-c", program], role="worker")
        made.append(process)
        process.begin()
        return process

    yield start
    for process in made:
        process.retire()
        process.end()


def test_questions_are_answered_by_one_process_that_prints_what_it_likes(start: Start) -> None:
    process = start("def answer(line): print('loading'); return {'pid': os.getpid(), 'seen': line}")
    assert process.ask({"a": [1]}, LIMIT) == {"pid": process.pid, "seen": {"a": [1]}}
    process.begin()
    assert process.ask({}, LIMIT)["pid"] == process.pid
    assert process.generation == 1


def test_it_has_a_low_priority_one_thread_and_none_of_the_secrets(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden value")
    monkeypatch.setenv("TRAINYARD_SERVER_RECORDS", "postgresql://hidden value")
    told = start("def answer(line): return {'nice': os.nice(0), **os.environ}").ask({}, LIMIT)
    assert told["nice"] >= 3
    assert told["OMP_NUM_THREADS"] == "1"
    assert not [name for name, value in told.items() if "hidden value" in str(value)]


def test_a_late_answer_ends_the_process_and_the_next_question_starts_another(start: Start) -> None:
    process = start("def answer(line): time.sleep(line.get('s', 0)); return {}")
    assert process.ask({}, LIMIT) == {}
    with pytest.raises(AnswerTimeout, match=r"The worker took longer than 0.2 s"):
        process.ask({"s": 60}, timedelta(seconds=0.2))
    process.begin()
    assert process.ask({}, LIMIT) == {}
    assert process.generation == 2


def test_a_process_that_dies_is_told_from_one_that_was_idle(start: Start) -> None:
    dying = start("def answer(line): os.kill(os.getpid(), 9)")
    with pytest.raises(Unavailable, match="ended without an answer") as raised:
        dying.ask({}, LIMIT)
    assert not isinstance(raised.value, WorkerWasIdle)
    leaving = start("def answer(line): os._exit(0)")
    with pytest.raises(WorkerWasIdle):
        leaving.ask({}, LIMIT)


def test_a_retired_process_starts_no_more(start: Start) -> None:
    process = start("def answer(line): return {}")
    process.retire()
    process.end()
    with pytest.raises(Unavailable, match="closing"):
        process.begin()
    assert process.is_retired


def test_a_program_that_cannot_be_started_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="/nowhere cannot be started"):
        WorkerProcess(["/nowhere"], role="worker").begin()
