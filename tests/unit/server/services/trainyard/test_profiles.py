import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.control.profiling.profiles import STEP_US, WAITING_NS, Profiled, rule, waiting_rule
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import create
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.link.contract import CommandKind
from trainyard.link.mailbox import Mailbox
from trainyard.server.services.contract import Call
from trainyard.server.services.trainyard.profiles import read_hardware, read_profiler_report, read_steps
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, HttpRequest

STEPS = 300


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(tmp_path) as opened:
        yield opened


@pytest.fixture
def profiled(bench: Bench) -> Profiled:
    return Profiled(bench)


def stream(user: As, operation: Any, member: str, **asked: Any) -> list[dict[str, Any]]:
    async def read() -> bytes:
        call = Call(user.yard, user.caller, "eu-west-3", "REQUEST", user.now, HttpRequest("POST", "/", "", Headers()))
        answer = await operation(call, {"TrainingJobName": "mnist", **asked})
        return b"".join([line async for line in answer[member]])

    return [json.loads(line) for line in asyncio.run(read()).splitlines()]


def hardware(user: As, **asked: Any) -> list[dict[str, Any]]:
    *lines, end = stream(user, read_hardware, "Samples", **asked)
    assert end == {}
    return lines


def steps(user: As, **asked: Any) -> list[dict[str, Any]]:
    *lines, end = stream(user, read_steps, "Steps", **asked)
    assert end == {}
    return lines


def describe(user: As) -> dict[str, Any]:
    return user("trainyard", "DescribeProfile", TrainingJobName="mnist")


def test_a_profile_is_described_with_what_it_means_and_where_everything_is(profiled: Profiled) -> None:
    profiled.end(profiled.start(rule("report", "ProfilerReport"), waiting_rule("cpu", threshold="33")))
    profiled.bench.watch.forward(2)
    profiled.evaluate()
    told = describe(profiled.anna)
    assert told["Verdict"]["bottleneck"]["share"] == pytest.approx(0.75)
    report, cpu = told["Rules"]
    assert (cpu["Name"], cpu["Rule"], cpu["Status"]) == ("cpu", "CPUBottleneck", "IssuesFound")
    assert (cpu["Parameters"]["threshold"], cpu["Findings"][0]["Worker"]) == ("33.0", "worker_0")
    assert report["Findings"][0]["Message"].startswith("CPUBottleneck: ")
    (phases,) = told["Phases"]
    assert (phases["Worker"], phases["Instance"], phases["Steps"]) == ("worker_0", "algo-1", STEPS)
    assert phases["PhaseSeconds"]["data_wait"] == pytest.approx(0.3)
    (series,) = told["Hardware"]
    assert (series["Metric"], series["Device"], series["Value"], series["Mean"]) == ("cpu_percent", "total", 90, 90)
    prefix = "s3://data/output/mnist"
    assert told["Report"] == f"{prefix}/rule-output/report/profiler-output/profiler-report.html"
    assert told["ProfilerOutput"] == f"{prefix}/profiler-output"


def test_a_profile_is_described_without_rules_and_for_an_administrator(profiled: Profiled) -> None:
    profiled.start()
    told = describe(profiled.anna)
    assert told["Verdict"]["bottleneck"]
    assert (told["Rules"], told["Report"]) == ([], "")
    admin = profiled.bench.accounts.admin
    assert describe(As(profiled.anna.yard, admin.caller, admin.key, profiled.anna.now))["Verdict"] == told["Verdict"]


def test_profiles_of_others_are_not_found(profiled: Profiled) -> None:
    profiled.start()
    ben = profiled.bench.accounts.ben
    stranger = As(profiled.anna.yard, ben.caller, ben.key, profiled.anna.now)
    with pytest.raises(Fault, match="mnist"):
        describe(stranger)
    with pytest.raises(Fault, match="mnist"):
        stranger("trainyard", "ProfileJob", TrainingJobName="mnist", Steps=1)
    for operation, member in ((read_hardware, "Samples"), (read_steps, "Steps")):
        with pytest.raises(NotFound):
            stream(stranger, operation, member)


def test_all_samples_are_streamed_at_full_rate(profiled: Profiled) -> None:
    profiled.start()
    started_us = to_micros(profiled.bench.watch())
    (line,) = hardware(profiled.anna)
    labels = {name: line[name] for name in ("instance", "attempt", "metric", "device")}
    assert labels == {"instance": "algo-1", "attempt": 1, "metric": "cpu_percent", "device": "total"}
    assert line["at_us"] == [started_us + second * 1_000_000 for second in range(STEPS * STEP_US // 1_000_000)]
    assert set(line["values"]) == {90.0}


def test_samples_are_selected_by_time_and_metric(profiled: Profiled) -> None:
    profiled.start()
    started_us = to_micros(profiled.bench.watch())
    times = {"StartTime": from_micros(started_us + 10_000_000), "EndTime": from_micros(started_us + 20_000_000)}
    (line,) = hardware(profiled.anna, **times)
    assert line["at_us"] == [started_us + second * 1_000_000 for second in range(10, 20)]
    assert hardware(profiled.anna, Metrics=["gpu_percent"]) == []
    with pytest.raises(InvalidRequest, match='"cpu" is not a metric of the hardware'):
        hardware(profiled.anna, Metrics=["cpu"])


def test_samples_are_summarized_into_few_periods(profiled: Profiled) -> None:
    profiled.start()
    (line,) = hardware(profiled.anna, MaxPoints=7)
    assert len(line["at_us"]) == len(line["values"]) == len(line["minima"]) == len(line["maxima"]) == 7
    assert hardware(profiled.anna, MaxPoints=7, EndTime=profiled.bench.watch() - timedelta(days=1)) == []


def test_steps_are_streamed_with_their_phases_and_the_facts_of_the_program(profiled: Profiled) -> None:
    profiled.start()
    folder = profiled.bench.agent().folder.steps
    (folder / "worker_0.json").write_text('{"framework": "torch", "threads": NaN}')
    *rows, facts = steps(profiled.anna)
    assert facts == {"instance": "algo-1", "attempt": 1, "worker": "worker_0"} | {
        "facts": {"framework": "torch", "threads": None}
    }
    assert [number for line in rows for number in line["numbers"]] == list(range(STEPS))
    assert {mode for line in rows for mode in line["modes"]} == {"TRAIN"}
    assert rows[0]["phases_ns"]["data_wait"][0] == WAITING_NS[0]
    assert rows[0]["ended_us"][0] - rows[0]["started_us"][0] == STEP_US


def test_only_the_last_rows_are_sent_if_few_are_asked_for(profiled: Profiled) -> None:
    profiled.start()
    rows, _ = steps(profiled.anna, MaxRows=5)
    assert rows["numbers"] == list(range(STEPS - 5, STEPS))


def test_rows_are_spread_evenly_from_the_first_to_the_last(profiled: Profiled) -> None:
    profiled.start()
    rows, _ = steps(profiled.anna, SpreadRows=3)
    assert rows["numbers"] == [0, (STEPS - 1) // 2, STEPS - 1]
    assert steps(profiled.anna, SpreadRows=STEPS) == steps(profiled.anna)


@pytest.mark.parametrize("most", [1, 7, 100, STEPS])
def test_rows_are_grouped_without_losing_a_step(most: int, profiled: Profiled) -> None:
    profiled.start()
    groups, facts = steps(profiled.anna, MaxGroups=most)
    assert "facts" in facts
    assert most / 2 <= len(groups["numbers"]) <= most
    assert sum(groups["counts"]) == STEPS
    assert groups["numbers"][0] == 0
    assert groups["numbers"] == sorted(groups["numbers"])
    assert sum(groups["phases_ns"]["data_wait"]) == STEPS * WAITING_NS[0]
    assert set(groups["slowest_us"]) == {STEP_US}


@pytest.mark.parametrize("content", [b"", b"x" * 1000, b"TYSTEPS\x01"], ids=["empty", "foreign", "torn"])
def test_what_a_program_wrote_instead_of_steps_is_left_out(content: bytes, profiled: Profiled) -> None:
    profiled.start()
    folder = profiled.bench.agent().folder.steps
    (folder / "worker_0.steps").write_bytes(content)
    (folder / "worker_0.json").write_bytes(content)
    (folder / "evil.steps").write_bytes(content)
    for name in ("worker_1.steps", "worker_1.json"):
        (folder / name).symlink_to("/etc/passwd")
    assert [each["facts"] for each in steps(profiled.anna)] == [{}, {}]


def test_a_job_without_a_profile_has_empty_streams(profiled: Profiled) -> None:
    profiled.bench.create()
    assert hardware(profiled.anna) == []
    assert steps(profiled.anna) == []


def commands(profiled: Profiled, instance: str = "algo-1") -> list[Any]:
    found = Mailbox(profiled.bench.agent(instance=instance).folder.mailbox).read(0)
    return [each.payload["steps"] for each in found if each.kind is CommandKind.PROFILE]


def test_steps_are_profiled_on_all_instances_and_a_repeated_call_changes_nothing(profiled: Profiled) -> None:
    profiled.start(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1})
    for _ in range(2):
        told = profiled.anna("trainyard", "ProfileJob", TrainingJobName="mnist", Steps=5, ClientToken="once")
    assert told == {"ProfilerOutput": "s3://data/output/mnist/profiler-output"}
    assert commands(profiled) == commands(profiled, "algo-2") == [5]
    for _ in range(2):
        profiled.anna("trainyard", "ProfileJob", TrainingJobName="mnist", Steps=7)
    assert commands(profiled) == [5, 7, 7]


def test_only_a_training_that_runs_and_has_its_profiler_can_be_profiled(profiled: Profiled) -> None:
    profiled.bench.create("waiting")
    with pytest.raises(Fault, match=r"waiting.*is Pending.*only the steps of a job in Training can be profiled"):
        profiled.anna("trainyard", "ProfileJob", TrainingJobName="waiting", Steps=5)
    profiled.bench.stop("waiting")
    profiled.end(profiled.start(ProfilerConfig={"DisableProfiler": True}), "mnist")
    with pytest.raises(Fault, match="is Completed"):
        profiled.anna("trainyard", "ProfileJob", TrainingJobName="mnist", Steps=5)
    profiled.bench.start("without", ProfilerConfig={"DisableProfiler": True})
    with pytest.raises(Fault, match="has its profiler disabled; enable it with UpdateTrainingJob"):
        profiled.anna("trainyard", "ProfileJob", TrainingJobName="without", Steps=5)


def report_of(user: As, name: str) -> bytes:
    async def read() -> bytes:
        call = Call(user.yard, user.caller, "eu-west-3", "REQUEST", user.now, HttpRequest("GET", "/", "", Headers()))
        answer = await read_profiler_report(call, {"TrainingJobName": name})
        return b"".join([part async for part in answer["Page"]])

    return asyncio.run(read())


def test_a_report_is_written_for_a_job_without_rules_and_leaves_no_files(profiled: Profiled) -> None:
    profiled.end(profiled.start())
    page = report_of(profiled.anna, "mnist")
    assert page.startswith(b"<!doctype html>")
    assert page.rstrip().endswith(b"</html>")
    assert describe(profiled.anna)["Rules"] == []
    (folder,) = profiled.anna.yard.compute.jobs.glob("*/profile")
    assert not (folder / "page").exists()


def test_a_job_that_has_not_run_has_no_report(profiled: Profiled) -> None:
    create(profiled.anna, "later")
    with pytest.raises(InvalidRequest, match="has not run yet"):
        report_of(profiled.anna, "later")
