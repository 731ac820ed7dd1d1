"""Quotas, limits to waiting, retries and warm pools hold on both databases, with many callers at once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import PostgresServer
from tests.unit.server.control.bench import Bench, end_overdue, open_bench
from tests.unit.server.services.sagemaker.requests import create, describe
from trainyard.foundation.jobs.attempts import Share
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.link.contract import FrameKind
from trainyard.server.control.scheduling.contract import Placement
from trainyard.server.jobs.quotas import CapacityKind, Quota, Quotas
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import Query
from trainyard.testing.engines import complete
from trainyard.testing.records.samples import in_threads
from trainyard.wire.fault import Fault

ON_DEMAND = CapacityKind.ON_DEMAND


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        url = ""
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            url = stack.enter_context(server.database())
        yield stack.enter_context(open_bench(tmp_path, records_url=url))


def resources(**changed: Any) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, **changed}


def use(bench: Bench) -> dict[str, int]:
    return {each.name: each.value for each in bench.work.records.counters(bench.anna.account)}


def test_a_thousand_concurrent_creates_never_exceed_a_quota(bench: Bench) -> None:
    quotas = Quotas(bench.work.records)
    quotas.put(Quota("*", "ml.m5.large", ON_DEMAND, 7), now=bench.watch())
    quotas.put(Quota("anna", "*", ON_DEMAND, 10), now=bench.watch())

    def ask(number: int) -> str:
        kind = ("ml.m5.large", "ml.c5.xlarge")[number % 2]
        try:
            create(bench.anna, f"job-{number}", ResourceConfig=resources(InstanceType=kind))
        except Fault as fault:
            return fault.code
        return kind

    answers = Counter(in_threads(16, ask, times=1000))
    assert answers["ResourceLimitExceeded"] == 990
    assert answers["ml.m5.large"] <= 7
    assert use(bench) == {
        "training-instances/on-demand": 10,
        **{f"training-instances/on-demand/{kind}": answers[kind] for kind in ("ml.m5.large", "ml.c5.xlarge")},
    }


def test_usage_after_many_concurrent_creates_and_stops_equals_the_running_jobs(bench: Bench) -> None:
    def come_and_go(number: int) -> None:
        create(bench.anna, f"job-{number}", ResourceConfig=resources(InstanceCount=2))
        if number % 3:
            bench.stop(f"job-{number}")

    in_threads(8, come_and_go, times=60)
    assert use(bench) == {"training-instances/on-demand": 40, "training-instances/on-demand/ml.m5.large": 40}


def test_each_job_that_ends_by_itself_frees_its_quota(bench: Bench) -> None:
    bench.engine.role = complete
    for number in range(3):
        bench.create(f"job-{number}")
        assert bench.turn(bench.place(), times=3) is None
    assert set(use(bench).values()) == {0}


def test_a_job_that_waits_too_long_is_stopped_once_however_many_yards_watch(bench: Bench) -> None:
    stopping = {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 1800}
    for number in range(5):
        bench.create(f"job-{number}", StoppingCondition=stopping)
    bench.create("patient")
    bench.watch.forward(1800)
    in_threads(2, lambda number: end_overdue(bench, worker=("one", "other")[number]))
    states = Counter(each.status for each in bench.work.records.find(Query(KIND)).resources)
    assert states == {"Stopped": 5, "InProgress": 1}
    ends = [event for event in bench.work.records.events() if event.body.get("status") == "Stopped"]
    assert len(ends) == 5


def test_a_lost_job_is_retried(bench: Bench) -> None:
    claim = bench.start(RetryStrategy={"MaximumRetryAttempts": 1})
    bench.agent().die()
    claim_after = bench.turn(claim)
    assert bench.job().secondary is SecondaryStatus.RESTARTING
    bench.watch.forward(3)
    bench.turn(claim_after, times=3)
    bench.agent(attempt=2).end()
    bench.turn(claim_after)
    assert bench.job().status is Status.COMPLETED


def test_a_warm_pool_is_reused_by_exactly_one_of_several_jobs(bench: Bench) -> None:
    bench.engine.role = complete
    kept: dict[str, Any] = {"ResourceConfig": resources(KeepAlivePeriodInSeconds=60)}
    bench.create("first", **kept)
    bench.turn(bench.place(), times=3)
    for name in ("second", "third"):
        bench.create(name, **kept)
    placements = [Placement(bench.resource(name).id, KIND, (Share(),)) for name in ("second", "third")]
    placed = in_threads(2, lambda number: bench.work.place(placements[number]))
    assert all(claim is not None for claim in placed)
    told = describe(bench.anna.at(bench.watch()), "first")["WarmPoolStatus"]
    assert told["Status"] == "Reused"
    assert told["ReusedByJob"] in ("second", "third")


def test_metrics_do_not_count_as_modifications(bench: Bench) -> None:
    claim = bench.start()
    before = bench.resource().modified_at
    bench.watch.forward(1)
    bench.agent().report(FrameKind.METRIC, name="loss", value=0.5, at_us=1, count=1)
    bench.turn(claim)
    assert bench.job().metrics["loss"].value == 0.5
    assert bench.resource().modified_at == before
