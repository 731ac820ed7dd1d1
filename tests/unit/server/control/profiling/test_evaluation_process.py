"""The real process, with what hostile programs may leave; after each, the next question is answered."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.profiling.profiles import write_profile
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.plain import to_plain
from trainyard.link.folders import InstanceFolder
from trainyard.server.control.profiling import evaluation_process
from trainyard.server.control.profiling.conclusions import EvaluationProcess
from trainyard.server.control.profiling.contract import (
    EvaluationQuestion,
    RuleQuestion,
    RunQuestion,
    SourcePlace,
    TracePlace,
    TraceQuestion,
)

START_US = 1_800_000_000_000_000
LIMIT = timedelta(seconds=60)
SPAN = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.8e15, "dur": 5}


@pytest.fixture(scope="module")
def process() -> Iterator[EvaluationProcess]:
    made = EvaluationProcess()
    yield made
    made.retire()
    made.end()


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    folder = InstanceFolder(tmp_path)
    write_profile(folder, START_US)
    return folder


def question(folder: InstanceFolder, **changed: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "job": "mnist",
        "job_arn": "arn",
        "region": "eu-west-3",
        "now_us": START_US + 200_000_000,
        "started_us": START_US,
        "ended_us": START_US + 150_000_000,
        "sources": (SourcePlace("algo-1", str(folder.hardware), str(folder.steps), "ml.m5.large", 2.0),),
        "cache": str(folder.root / "cache"),
        **changed,
    }
    return {"profile": to_plain(EvaluationQuestion(**asked))}


def ask(process: EvaluationProcess, line: dict[str, Any]) -> dict[str, Any]:
    process.begin()
    return dict(process.ask(line, LIMIT))


def ask_trace(process: EvaluationProcess, path: Path) -> dict[str, Any]:
    return ask(process, {"trace": to_plain(TraceQuestion(str(path), str(path.parent / "cache")))})


def test_a_run_is_summarized_from_its_steps_alone(process: EvaluationProcess, folder: InstanceFolder) -> None:
    shutil.rmtree(folder.hardware)
    sources = (SourcePlace("algo-1", str(folder.hardware), str(folder.steps), "ml.m5.large", 2.0),)
    asked = {"run": to_plain(RunQuestion("mnist", START_US, START_US + 150_000_000, sources))}
    run = ask(process, asked)["run"]
    assert (run["job"], run["step_s"], run["setup"]["instance_type"]) == ("mnist", pytest.approx(0.4), "ml.m5.large")
    # As the whole evaluation would have it.
    assert ask(process, question(folder))["run"] == run
    shutil.rmtree(folder.steps)
    assert ask(process, asked)["run"] is None


def test_a_profile_is_judged_and_its_report_is_written(process: EvaluationProcess, folder: InstanceFolder) -> None:
    report = folder.root / "report"
    report.mkdir()
    rules = (RuleQuestion("all", "ProfilerReport"), RuleQuestion("gpus", "LowGPUUtilization", {"threshold_p95": "60"}))
    told = ask(process, question(folder, rules=rules, report=str(report)))
    assert told["verdict"]["bottleneck"]["kind"] in ("data_loading", "reading")
    assert [each["name"] for each in told["rules"]] == ["all", "gpus"]
    assert told["rules"][1]["parameters"]["threshold_p95"] == 60.0
    assert told["rules"][1]["files"] == ["profiler-reports/LowGPUUtilization.json"]
    assert (report / "0" / "profiler-report.html").stat().st_size > 1000
    assert (report / "1" / "profiler-reports" / "LowGPUUtilization.json").exists()
    assert told["phases"][0]["steps"] == 300
    assert told["phases"][0]["phases_s"]["data_wait"] == pytest.approx(0.3)
    (cpu,) = told["hardware"]
    assert (cpu["metric"], cpu["device"], cpu["mean"]) == ("cpu_percent", "total", 90.0)
    assert told["is_final"]
    assert told["cpu_s"] > 0


def test_a_job_that_recorded_nothing_has_a_conclusion_too(process: EvaluationProcess, tmp_path: Path) -> None:
    told = ask(process, question(InstanceFolder(tmp_path), rules=(RuleQuestion("all", "ProfilerReport"),)))
    assert told["verdict"]["summary"]
    assert told["rules"][0]["undecided"]


@pytest.mark.parametrize(
    "content",
    [b"", b"no steps", os.urandom(100_000), b"TYSTEPS\x01" + b"\xff" * 50_000],
    ids=["0", "text", "random", "ff"],
)
def test_step_files_of_any_content_are_survived(
    content: bytes, process: EvaluationProcess, folder: InstanceFolder
) -> None:
    for name in ("worker_0.steps", "worker_0.json", "worker_1.steps", "worker_99999999999.steps", "\udcff.steps"):
        (folder.steps / name).write_bytes(content)
    (folder.hardware / f"{7:020d}.samples").write_bytes(content)
    told = ask(process, question(folder))
    assert told["verdict"]["summary"]
    assert "error" not in told


def test_a_trace_that_is_none_gives_a_note(process: EvaluationProcess, folder: InstanceFolder) -> None:
    traces = []
    for number, content in enumerate((b"", b"{", os.urandom(1000), gzip.compress(b"x")[:-3])):
        path = folder.root / f"{number}.json"
        path.write_bytes(content)
        traces.append(TracePlace(f"s3://data/{number}", str(path)))
    told = ask(process, question(folder, traces=tuple(traces)))
    assert "error" not in told
    assert {f"s3://data/{number}" for number in range(4)} <= {note.split(": ")[0] for note in told["notes"]}


def test_a_rule_that_does_not_exist_any_more_is_an_error_of_that_rule(
    process: EvaluationProcess, folder: InstanceFolder
) -> None:
    rules = (RuleQuestion("old", "NoSuchRule"), RuleQuestion("gpus", "LowGPUUtilization", {"x": "1"}))
    told = ask(process, question(folder, rules=rules))
    assert "NoSuchRule" in told["rules"][0]["error"]
    assert '"x"' in told["rules"][1]["error"]


def test_a_trace_that_decompresses_to_more_than_the_memory_is_refused_and_the_next_question_answered(
    folder: InstanceFolder, tmp_path: Path
) -> None:
    # The tables of so many events need more than what this process has.
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        file.write(b'{"schemaVersion": 1, "traceEvents": [')
        span = (json.dumps(SPAN) + ",").encode()
        for _ in range(40):
            file.write(span * 50_000)
    program = (
        f"from {evaluation_process.__name__} import *\n"
        f"import {evaluation_process.__name__} as process\n"
        "process.MEMORY_LIMIT_BYTES = 400 * 1024**2\n"
        "raise SystemExit(main())"
    )
    small = EvaluationProcess([sys.executable, "-c", program])
    try:
        told = ask_trace(small, bomb)
        assert "memory" in told["error"]
        assert ask(small, question(folder))["verdict"]["summary"]
    finally:
        small.retire()
        small.end()


def test_a_question_that_takes_too_much_processor_time_ends_the_process_and_the_next_one_starts_another(
    folder: InstanceFolder,
) -> None:
    program = (
        f"import {evaluation_process.__name__} as process\n"
        "process.CPU_LIMIT_S = 1\n"
        "known = process.answer\n"
        "def answer(line):\n"
        "    while line.get('spin'): pass\n"
        "    return known(line)\n"
        "process.answer = answer\n"
        "raise SystemExit(process.main())"
    )
    made = EvaluationProcess([sys.executable, "-c", program])
    try:
        with pytest.raises(Unavailable, match="ended without an answer"):
            ask(made, {"spin": True})
        assert made.generation == 1
        assert ask(made, question(folder))["verdict"]["summary"]
        assert made.generation == 2
    finally:
        made.retire()
        made.end()


def test_a_killed_process_is_started_again(process: EvaluationProcess, folder: InstanceFolder) -> None:
    ask(process, question(folder))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(Unavailable):
        process.ask(question(folder), LIMIT)
    assert ask(process, question(folder))["verdict"]["summary"]


def test_no_library_that_computes_is_loaded_before_its_threads_are_limited() -> None:
    program = f"import sys, {evaluation_process.__name__}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"numpy", "msgspec"} & set(run.stdout.split())


def test_a_missing_package_is_an_answer(folder: InstanceFolder) -> None:
    program = (
        "import sys; sys.modules['msgspec'] = None\n"
        f"import {evaluation_process.__name__} as process\n"
        "raise SystemExit(process.main())"
    )
    made = EvaluationProcess([sys.executable, "-c", program])
    try:
        told = ask(made, question(folder))
        assert told["is_missing"]
        assert "trainyard[profiler]" in told["error"]
    finally:
        made.retire()
        made.end()
