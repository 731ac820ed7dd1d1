import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import ProgramFacts
from trainyard.insight.profiling.loading import read_program_facts
from trainyard.instance.hook.profiling import timed_calls
from trainyard.instance.hook.profiling.stack_sampler import StackSampler

_SAMPLES = 8


@pytest.fixture
def sampler() -> Iterator[StackSampler]:
    made = StackSampler(lambda: (StepPhase.OTHER, 0))
    yield made
    made.stop()


def sample(sampler: StackSampler, work: Callable[[], object]) -> ProgramFacts:
    """Repeat some work until there are enough samples of it, and return them as a reader sees them."""
    sampler.start(threading.get_ident())
    while sampler.samples < _SAMPLES:
        work()
    sampler.stop()
    facts: dict[str, Any] = json.loads(json.dumps(sampler.facts()))
    faults: list[str] = []
    found = read_program_facts(facts, faults)
    assert faults == []
    return found


def add_numbers() -> int:
    total = 0
    for number in range(20_000):
        total += number * number
    return total


def encode_list() -> None:
    json.dumps(list(range(20_000)), default=str, indent=1)


def test_the_line_that_computes_is_the_hot_one(sampler: StackSampler) -> None:
    facts = sample(sampler, add_numbers)
    hottest = facts.hot_lines[0]
    assert (hottest.function, Path(hottest.file)) == ("add_numbers", Path(__file__))
    assert hottest.phase is StepPhase.OTHER
    assert Path(__file__).read_text().splitlines()[hottest.line - 1].strip() == hottest.called
    assert facts.stack_samples >= _SAMPLES


def test_time_in_a_library_belongs_to_the_line_that_calls_it(sampler: StackSampler) -> None:
    facts = sample(sampler, encode_list)
    lines = [each for each in facts.hot_lines if each.function == "encode_list"]
    assert sum(each.samples for each in lines) > _SAMPLES / 2
    assert any("json/encoder.py" in each.called for each in lines)


def test_time_in_a_timed_call_belongs_to_the_line_that_makes_it(sampler: StackSampler) -> None:
    timed_sum = timed_calls._timed(sum, int(StepPhase.OTHER))

    def work() -> None:
        timed_sum(range(500_000))

    (hottest, *_) = sample(sampler, work).hot_lines
    assert hottest.called == "timed_sum(range(500_000))"


def test_python_code_is_seen_beside_calls_that_release_the_interpreter(sampler: StackSampler) -> None:
    def work() -> None:
        for _ in range(20):
            add_numbers()
        time.sleep(0)

    facts = sample(sampler, work)
    in_python = sum(each.samples for each in facts.hot_lines if each.function == "add_numbers")
    assert in_python > facts.stack_samples / 2


def test_a_thread_that_only_waits_is_seldom_looked_at(sampler: StackSampler) -> None:
    released = threading.Event()
    waiting = threading.Thread(target=released.wait)
    waiting.start()
    assert waiting.ident is not None
    sampler.start(waiting.ident)
    while sampler.samples < _SAMPLES:
        released.wait(0.05)
    released.set()
    waiting.join()
    sampler.stop()
    (line,) = sampler.facts()["hot_lines"]
    # It stands for the time that the thread waited, however often it was looked at.
    assert line["samples"] == sampler.samples


def test_the_facts_are_bounded_however_much_code_there_is(sampler: StackSampler) -> None:
    functions = []
    for number in range(3000):
        scope: dict[str, Any] = {}
        exec(compile(f"def f{number}(frame): return frame()", f"f{number}.py", "exec"), scope)
        functions.append(scope[f"f{number}"])
    for function in functions:
        sampler._count(sampler._place(function(lambda: sys._getframe(1)), StepPhase.OTHER), 1)
    facts = sampler.facts()
    assert len(facts["hot_lines"]) <= 50
    assert facts["stack_samples"] == 3000


def test_a_forked_child_has_no_thread_and_stops_at_once(sampler: StackSampler) -> None:
    sample(sampler, add_numbers)
    running = StackSampler(lambda: (StepPhase.OTHER, 0))
    running.start(threading.get_ident())
    child = os.fork()
    if not child:
        running.forget()
        running.start(threading.get_ident())
        os._exit(threading.active_count() - 1)
    running.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
