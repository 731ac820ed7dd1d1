import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.profiling.profiles import Profiled, rule, waiting_rule
from tests.unit.server.control.profiling.test_trace_copies import TRACE, put_trace
from trainyard.engines.catalog import Catalog
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.server.control.profiling import conclusions
from trainyard.server.control.profiling.conclusions import MAX_WAITING, EvaluationFailed
from trainyard.server.control.profiling.contract import ProfileConclusion
from trainyard.server.control.worker_process import AnswerTimeout
from trainyard.server.jobs.training import job_of
from trainyard.testing.eventually import eventually


def read(profiled: Profiled, name: str = "mnist") -> ProfileConclusion:
    resource = profiled.bench.resource(name)
    return profiled.kind.conclusions.read(resource, job_of(resource))


def asked(profiled: Profiled, kind: str = "profile") -> list[Any]:
    return [line[kind] for line in profiled.process.questions if kind in line]


def test_a_running_job_is_judged_now_and_again_only_when_that_costs_little(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled.start()
    assert read(profiled).phases
    assert read(profiled).phases
    assert len(asked(profiled)) == 1
    monkeypatch.setattr(conclusions, "FRESH_S", 0.0)
    monkeypatch.setattr(conclusions, "FRESH_PER_CPU_S", 0.0)
    read(profiled)
    assert len(asked(profiled)) == 2


def test_the_conclusion_about_an_ended_job_is_kept(profiled: Profiled) -> None:
    profiled.end(profiled.start())
    first = read(profiled)
    assert first.is_final
    # A yard that has just started.
    profiled.kind = profiled.new_kind("another")
    assert read(profiled) == first
    assert len(asked(profiled)) == 1


def test_a_question_has_what_each_instance_of_each_attempt_offers(profiled: Profiled) -> None:
    profiled.start(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1})
    read(profiled)
    (question,) = asked(profiled)
    assert [each["host"] for each in question["sources"]] == ["algo-1", "algo-2"]
    source = question["sources"][0]
    assert source["instance_type"] == "ml.m5.large"
    assert source["hardware"] == str(profiled.bench.agent().folder.hardware)
    assert source["cores"] > 0
    assert source["price_per_hour"] > 0
    assert "ended_us" in question


def test_types_whose_prices_are_set_are_offered_in_their_place(profiled: Profiled, tmp_path: Path) -> None:
    prices = tmp_path / "catalog.toml"
    prices.write_text('["ml.m5.large"]\non_demand_usd = 0.5\n["ml.t3.medium"]\non_demand_usd = 0.1\n')
    profiled.start(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1})
    read(profiled)
    profiled.bench.work = replace(profiled.bench.work, catalog=Catalog.read(prices))
    profiled.kind = profiled.new_kind("another")
    read(profiled)
    without, with_prices = asked(profiled)
    assert "instance_types" not in without
    offered = {each["name"]: each for each in with_prices["instance_types"]}
    assert offered.keys() == {"ml.m5.large", "ml.t3.medium"}
    assert (offered["ml.t3.medium"]["price_per_hour"], offered["ml.t3.medium"]["cores"]) == (0.1, 2)
    assert with_prices["sources"][0]["price_per_hour"] == 0.5


def test_a_job_that_has_not_run_says_so(profiled: Profiled) -> None:
    profiled.bench.create()
    assert read(profiled).verdict == {"summary": "The job has not run yet."}
    assert asked(profiled) == []


def test_a_job_whose_files_were_removed_says_so(profiled: Profiled) -> None:
    profiled.end(profiled.start())
    remove_tree(profiled.bench.anna.yard.compute.jobs / profiled.bench.resource().id)
    folder = profiled.bench.anna.yard.compute.jobs / profiled.bench.resource().id
    with pytest.raises(Unavailable, match="files of the job are not here"):
        read(profiled)
    with pytest.raises(EvaluationFailed):
        profiled.kind.conclusions.write_report(profiled.bench.resource(), profiled.bench.job())
    assert not folder.exists()


def test_a_damaged_conclusion_is_drawn_again(profiled: Profiled) -> None:
    profiled.end(profiled.start())
    known = read(profiled)
    file = profiled.bench.anna.yard.compute.jobs / profiled.bench.resource().id / "profile" / "conclusion.json"
    for content in (b"", b"{}", b"[1]", b'{"verdict": 3, "unknown": 1}'):
        file.write_bytes(content)
        profiled.kind = profiled.new_kind("another")
        assert read(profiled).verdict == known.verdict


def test_an_evaluation_that_fails_falls_back_to_the_one_before(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusions, "FRESH_S", -1.0)
    monkeypatch.setattr(conclusions, "FRESH_PER_CPU_S", 0.0)
    profiled.start()
    known = read(profiled)
    profiled.process.failures = [EvaluationFailed("It failed.")]
    again = read(profiled)
    assert (again.verdict, again.notes[-1]) == (known.verdict, "This is an earlier conclusion: It failed.")


def test_an_evaluation_that_failed_is_not_tried_again_at_once(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled.start()
    profiled.process.failures = [Unavailable("It died."), Unavailable("It died.")]
    for _ in range(3):
        with pytest.raises(Unavailable, match="It died"):
            read(profiled)
    assert len(asked(profiled)) == 1
    monkeypatch.setattr(conclusions, "FRESH_S", -1.0)
    monkeypatch.setattr(conclusions, "FRESH_PER_CPU_S", 0.0)
    profiled.process.failures = []
    assert read(profiled).phases


def test_a_job_that_has_just_ended_is_judged_again(profiled: Profiled) -> None:
    claim = profiled.start()
    assert not read(profiled).is_final
    profiled.end(claim)
    assert read(profiled).is_final


def test_a_missing_package_is_an_invalid_request(profiled: Profiled, monkeypatch: pytest.MonkeyPatch) -> None:
    profiled.start()
    # It cannot be uninstalled for a test.
    monkeypatch.setattr(conclusions, "missing_module", lambda _: "msgspec")
    with pytest.raises(InvalidRequest, match=r"trainyard\[profiler\]"):
        read(profiled)


def test_a_new_trace_is_tried_alone_and_one_that_kills_the_process_is_left_out_from_then_on(
    profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conclusions, "FRESH_S", -1.0)
    monkeypatch.setattr(conclusions, "FRESH_PER_CPU_S", 0.0)
    profiled.start()
    put_trace(profiled, "framework/pytorch/detailed_profiling/1/good.trace.json", TRACE)
    put_trace(profiled, "framework/pytorch/detailed_profiling/2/bad.trace.json", TRACE + b" ")
    profiled.process.failures = [AnswerTimeout("It took longer than 300 s.")]
    told = read(profiled)
    assert len(asked(profiled, "trace")) == 2
    assert [each["uri"].rpartition("/")[2] for each in asked(profiled)[-1]["traces"]] == ["good.trace.json"]
    assert [note for note in told.notes if "is left out" in note and "longer than 300 s" in note]
    read(profiled)
    assert len(asked(profiled, "trace")) == 2
    assert len(asked(profiled)[-1]["traces"]) == 1


def test_a_process_that_dies_of_known_traces_is_asked_without_them(profiled: Profiled) -> None:
    profiled.start()
    put_trace(profiled, "framework/pytorch/detailed_profiling/1/good.trace.json", TRACE)
    profiled.process.failures = []
    answer = profiled.process.ask

    def die_of_traces(line: Any, limit: Any) -> Any:
        if line.get("profile", {}).get("traces"):
            raise Unavailable("It died.")
        return answer(line, limit)

    profiled.process.ask = die_of_traces  # type: ignore[method-assign] # what no trace can be made to do at will
    assert any("1 traces were left out" in note for note in read(profiled).notes)


def test_few_callers_wait_and_the_others_are_told_to_try_again(profiled: Profiled) -> None:
    profiled.start()
    may_answer, answer = threading.Event(), profiled.process.ask
    waiting: list[int] = []

    def wait(line: Any, limit: Any) -> Any:
        waiting.append(1)
        may_answer.wait(30)
        return answer(line, limit)

    profiled.process.ask = wait  # type: ignore[method-assign] # holds the answer back for as long as the test wants
    callers = [threading.Thread(target=read, args=(profiled,)) for _ in range(MAX_WAITING)]
    try:
        for caller in callers:
            caller.start()
        eventually(lambda: bool(waiting))

        def is_refused() -> bool:
            with pytest.raises(Unavailable, match="evaluates other profiles"):
                read(profiled)
            return True

        eventually(lambda: profiled.kind.conclusions._queue._waiting._value == 0)
        assert is_refused()
    finally:
        may_answer.set()
        for caller in callers:
            caller.join()
    # One answer was enough for all of them.
    assert len(waiting) == 1


def test_a_yard_that_closes_blames_no_trace(profiled: Profiled) -> None:
    profiled.start(rule("report", "ProfilerReport"), waiting_rule())
    put_trace(profiled, "framework/pytorch/detailed_profiling/1/good.trace.json", TRACE)
    profiled.process.retire()
    profiled.process.failures = [Unavailable("It ended without an answer.")]
    with pytest.raises(Unavailable):
        read(profiled)
    profiled.process.failures = []
    profiled.kind = profiled.new_kind("another")
    assert not [note for note in read(profiled).notes if "left out" in note]
