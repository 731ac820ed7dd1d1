"""Which job starts next, on a whole yard: queues, fair share, reservations, backfill and preemption."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, next_placements, open_bench, with_changes
from tests.unit.server.control.scheduling.samples import CATALOG
from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.instances.demand import PREEMPTED
from trainyard.server.control.scheduling.backfill import BACKFILL_DEPTH
from trainyard.server.control.scheduling.contract import Allocation, Allocations, ResourceRequest
from trainyard.server.control.scheduling.queue_order import MAX_TURN_DELAY, TURN_DELAY_PER_INSTANCE
from trainyard.server.control.scheduling.reservation import AGED_AFTER
from trainyard.server.control.scheduling.scheduler import AllocationTable
from trainyard.server.jobs.queues import queue_name
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import Draft, Priority, QueueState, Resource, ResourceId, ResourceKey
from trainyard.testing.engines import SimulatedEngine, complete, run

GIB = 1024**3
SMALL, LARGE = "ml.m5.large", "ml.m5.4xlarge"  # 2 and 16 cores


def nodes(*names: str, spot: tuple[str, ...] = ()) -> Capacity:
    """Nodes of 16 cores each."""
    return Capacity(tuple(Node(name, 16, 16.0, 64 * GIB, reserves=True, is_spot=name in spot) for name in names))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Bench]:
    """A bench with two nodes."""
    with open_bench(tmp_path, capacity=nodes("a", "b")) as opened:
        yield opened


def of(instance_type: str, count: int = 1, **changed: Any) -> dict[str, Any]:
    resources = {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 1}
    return {"ResourceConfig": resources, **changed}


def spot(**changed: Any) -> dict[str, Any]:
    times = {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}
    return {"EnableManagedSpotTraining": True, "StoppingCondition": times, **changed}


def tagged(key: str, value: str) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value}]}


def started(bench: Bench, name: str, **changed: Any) -> list[str]:
    """Create a job that starts at once, a second after the last one; return its nodes."""
    bench.watch.forward(1)
    bench.start(name, **changed)
    return placed_on(bench, name)


def placed_on(bench: Bench, name: str) -> list[str]:
    return [instance.share.node for instance in bench.job(name).attempts[-1].instances]


def queue(bench: Bench, name: str, **changed: Any) -> None:
    bench.watch.forward(1)
    bench.create(name, **changed)


def place_all(bench: Bench) -> list[str]:
    """Place all jobs that can start now; return their names in order."""
    found = []
    while (placement := bench.next_placement()) is not None:
        claim = bench.work.place(placement)
        assert claim is not None
        found.append(claim.resource.key.name)
    return found


def finish(bench: Bench, name: str) -> None:
    """Let a job complete, an hour later."""
    bench.watch.forward(3600)
    while (held := bench.work.claim()) is not None:
        claim = bench.turn(held, times=2)
        if held.resource.key.name == name and claim is not None:
            attempt = bench.job(name).attempts[-1]
            for instance in attempt.instances:
                bench.agent(name, instance.name, attempt=attempt.number).end()
            bench.turn(claim, times=2)
    assert bench.job(name).attempt is None


def second_user(bench: Bench) -> As:
    return requests.prepare(replace(bench.accounts.ben, yard=bench.anna.yard))


def test_the_spec_of_an_instance_names_its_node(cluster: Bench) -> None:
    assert started(cluster, "wide", **of(LARGE, 2)) == ["a", "b"]
    assert [cluster.agent("wide", f"algo-{number}").spec.node for number in (1, 2)] == ["a", "b"]


def test_a_tag_spreads_the_instances_of_a_job(cluster: Bench) -> None:
    assert started(cluster, "packed", **of(SMALL, 2)) == ["a", "a"]
    assert sorted(started(cluster, "spread", **of(SMALL, 2), **tagged("trainyard:spread", "strict"))) == ["a", "b"]


def test_another_value_of_that_tag_is_refused(cluster: Bench) -> None:
    with pytest.raises(Exception, match='its only value is "strict"'):
        cluster.create(**tagged("trainyard:spread", "soft"))


def test_backfill_does_not_delay_a_job_that_does_not_fit(cluster: Bench) -> None:
    started(cluster, "long", **of("ml.m5.2xlarge"))  # half of a
    started(cluster, "longer", **of(LARGE))  # all of b
    queue(cluster, "large", **of(LARGE))
    for number in range(9):
        queue(cluster, f"small-{number}", **of(SMALL))

    # Capacity for the large job is reserved on a, where less has to end. b is full.
    assert place_all(cluster) == []
    cluster.engine.offered = nodes("a", "b", "c")
    assert place_all(cluster)[0] == "large"  # which was first
    assert placed_on(cluster, "large") == ["c"]
    assert {placed_on(cluster, f"small-{number}")[0] for number in range(4)} == {"a"}


def test_capacity_is_reserved_for_the_first_job_however_many_small_jobs_come(cluster: Bench) -> None:
    started(cluster, "first", **of("ml.m5.2xlarge"))
    started(cluster, "second", **of("ml.m5.2xlarge"), **tagged("trainyard:spread", "strict"))
    queue(cluster, "large", **of(LARGE, 2))
    queue(cluster, "small", **of(SMALL))
    assert {*placed_on(cluster, "first"), *placed_on(cluster, "second")} == {"a"}
    assert cluster.next_placement() is None  # both nodes are reserved

    finish(cluster, "first")
    assert cluster.next_placement() is None
    finish(cluster, "second")
    assert place_all(cluster) == ["large"]


def test_jobs_that_fit_beside_a_reservation_start_at_once(cluster: Bench) -> None:
    started(cluster, "long", **of("ml.m5.2xlarge"))  # half of a
    started(
        cluster, "wide", **of("ml.m5.2xlarge", 2), **tagged("trainyard:spread", "strict")
    )  # the rest, and half of b
    queue(cluster, "large", **of(LARGE))
    queue(cluster, "small", **of(SMALL))
    assert place_all(cluster) == []
    cluster.engine.offered = Capacity((*nodes("a", "b").nodes, Node("tiny", 1, 2.0, 8 * GIB, reserves=True)))

    assert place_all(cluster) == ["small"]
    assert placed_on(cluster, "small") == ["tiny"]


def test_there_is_no_backfill_on_a_machine_whose_cores_instances_share(bench: Bench) -> None:
    bench.start("one")
    queue(bench, "wide", **of(SMALL, 2))
    queue(bench, "narrow")
    assert bench.next_placement() is None


def test_only_a_few_dozen_jobs_are_candidates_for_backfill(cluster: Bench) -> None:
    started(cluster, "long", **of(LARGE))
    queue(cluster, "wide", **of(LARGE, 2))
    cluster.watch.forward(1)
    for number in range(BACKFILL_DEPTH):
        cluster.create(f"large-{number:02}", **of(LARGE))
    queue(cluster, "small", **of(SMALL))
    cluster.engine.offered = Capacity((*nodes("a", "b").nodes, Node("tiny", 1, 2.0, 8 * GIB, reserves=True)))
    assert cluster.next_placement() is None
    cluster.stop("large-00")
    assert cluster.next_placement() is None
    cluster.stop("large-01")
    assert place_all(cluster) == ["small"]


def test_one_account_with_many_jobs_does_not_keep_another_out(cluster: Bench) -> None:
    ben = second_user(cluster)
    for number in range(20):
        queue(cluster, f"annas-{number:02}", **of(LARGE))
    assert place_all(cluster) == ["annas-00", "annas-01"]
    cluster.watch.forward(1)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == []
    finish(cluster, "annas-00")
    assert place_all(cluster) == ["bens"]


def test_accounts_take_turns_and_start_their_jobs_in_the_order_of_creation(tmp_path: Path) -> None:
    with open_bench(tmp_path, capacity=nodes("a")) as bench:
        bench.engine.role = complete
        ben = second_user(bench)
        for number in range(3):
            queue(bench, f"annas-{number}", **of(LARGE))
        for number in range(3):
            bench.watch.forward(1)
            bench.create(f"bens-{number}", by=ben, **of(LARGE))
        order = []
        while (placement := bench.next_placement()) is not None:
            claim = bench.work.place(placement)
            assert claim is not None
            order.append(claim.resource.key.name)
            bench.watch.forward(1)
            assert bench.turn(claim, times=5) is None
        assert order == ["annas-0", "bens-0", "annas-1", "bens-1", "annas-2", "bens-2"]


@pytest.mark.parametrize(("later_s", "first"), [(-1, "bens"), (1, "annas-next")])
def test_each_running_instance_delays_the_next_turn_by_a_minute(cluster: Bench, later_s: float, first: str) -> None:
    ben = second_user(cluster)
    cluster.engine.offered = nodes("a", "b", "c", "d")
    started(cluster, "annas", **of(LARGE, 3))
    cluster.create("annas-next", **of(LARGE))
    cluster.watch.forward((3 * TURN_DELAY_PER_INSTANCE).total_seconds() + later_s)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == [first]  # one fits


@pytest.mark.parametrize(("later_s", "first"), [(-1, "bens"), (1, "annas-next")])
def test_no_turn_is_delayed_by_more_than_an_hour(cluster: Bench, later_s: float, first: str) -> None:
    ben = second_user(cluster)
    cluster.engine.offered = nodes(*"abcdefghij")
    started(cluster, "annas", **of(SMALL, 70))
    cluster.create("annas-next", **of(LARGE))
    cluster.watch.forward(MAX_TURN_DELAY.total_seconds() + later_s)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == [first]  # one fits


@pytest.mark.parametrize(("waited", "starts"), [(AGED_AFTER / 2, ["narrow"]), (AGED_AFTER * 2, [])])
def test_backfill_does_not_take_the_capacity_of_an_aged_job(
    cluster: Bench, waited: timedelta, starts: list[str]
) -> None:
    with_gpus = Node("g", 16, 12.0, 64 * GIB, (0, 1), reserves=True)  # too small for a large instance
    cluster.engine.offered = Capacity((*nodes("a", "b").nodes, with_gpus))
    started(cluster, "long", **of(LARGE))
    started(cluster, "busy", **of("ml.g4dn.xlarge"))  # a GPU
    queue(cluster, "first", **of(LARGE, 2))
    queue(cluster, "wide", **of("ml.g4dn.xlarge", 2))
    cluster.watch.forward(waited.total_seconds())
    queue(cluster, "narrow", **of("ml.g4dn.xlarge"))
    assert place_all(cluster) == starts

    finish(cluster, "busy")
    if not starts:
        assert place_all(cluster) == ["wide"]  # before the first, which needs what it does not have


def test_capacity_is_reserved_for_an_aged_job_behind_one_with_an_unknown_type(tmp_path: Path) -> None:
    (tmp_path / "catalog.toml").write_text('["ml.my-box"]\ncpus = 2\nmemory_gib = 4\n')
    with_gpus = Node("g", 16, 12.0, 64 * GIB, (0, 1), reserves=True)
    with open_bench(tmp_path, capacity=Capacity((*nodes("a", "b").nodes, with_gpus))) as bench:
        started(bench, "long", **of(LARGE))
        started(bench, "busy", **of("ml.g4dn.xlarge"))
        queue(bench, "first", **of(LARGE, 2))
        queue(bench, "strange", **of("ml.my-box"))
        queue(bench, "wide", **of("ml.g4dn.xlarge", 2))
        bench.watch.forward((AGED_AFTER * 2).total_seconds())
        queue(bench, "narrow", **of("ml.g4dn.xlarge"))
        bench.work = with_changes(bench.work, catalog=Catalog.read(tmp_path / "no such file"))
        assert place_all(bench) == []


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Demand]:
    """The demands for which the scheduler looked for capacity."""
    found: list[Demand] = []
    place = FreeResources.place

    def record(
        free: FreeResources, demand: Demand, *, current: FreeResources | None = None
    ) -> tuple[Share, ...] | None:
        found.append(demand)
        return place(free, demand, current=current)

    monkeypatch.setattr(FreeResources, "place", record)
    return found


def test_a_pass_over_a_queue_in_which_nothing_changed_tries_no_job_again(cluster: Bench, tried: list[Demand]) -> None:
    started(cluster, "long", **of("ml.m5.2xlarge", 2), **tagged("trainyard:spread", "strict"))
    queue(cluster, "large", **of(LARGE, 2))
    queue(cluster, "small", **of(SMALL))
    assert cluster.next_placement() is None
    assert tried
    tried.clear()
    assert cluster.next_placement() is None
    assert not tried

    queue(cluster, "other", **of("ml.m5.xlarge"))
    assert cluster.next_placement() is None
    assert len(tried) == 1  # for the one that is new
    cluster.engine.offered = nodes("a", "b", "c")
    assert place_all(cluster) == ["small", "other"]  # beside the reservation
    finish(cluster, "long")
    assert place_all(cluster) == ["large"]


def test_after_a_backfill_the_jobs_that_did_not_fit_are_not_tried_again(cluster: Bench, tried: list[Demand]) -> None:
    cluster.engine.offered = nodes("a", "b", "c")
    started(cluster, "long", **of("ml.m5.2xlarge", 2), **tagged("trainyard:spread", "strict"))
    queue(cluster, "large", **of(LARGE, 2))  # reserves c and the rest of a or b
    queue(cluster, "other", **of(LARGE))
    for number in range(3):
        queue(cluster, f"small-{number}", **of("ml.m5.xlarge"))
    first = cluster.next_placement()
    assert first is not None
    assert cluster.work.place(first) is not None
    tried.clear()
    second = cluster.next_placement()
    assert second is not None
    assert [demand.types[0].name for demand in tried] == ["ml.m5.xlarge"]
    assert {share.node for share in second.shares} == {share.node for share in first.shares}

    assert cluster.work.place(second) is not None
    assert cluster.next_placement() is None  # what was left of that node is full


def test_a_large_job_stays_first_however_many_come_after_its_turn(cluster: Bench) -> None:
    ben = second_user(cluster)
    started(cluster, "long", **of(LARGE))
    queue(cluster, "large", **of(LARGE, 2))
    for number in range(10):
        cluster.watch.forward(600)
        cluster.create(f"bens-{number}", by=ben, **of(LARGE))
        assert cluster.next_placement() is None  # though a node is free
    finish(cluster, "long")
    assert place_all(cluster) == ["large"]


def test_on_demand_jobs_come_first_whoever_has_the_turn(cluster: Bench) -> None:
    ben = second_user(cluster)
    queue(cluster, "cheap", **spot(), **of(LARGE))
    cluster.watch.forward(1)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == ["bens", "cheap"]


def test_only_spot_jobs_on_the_nodes_that_the_first_job_needs_are_preempted(cluster: Bench) -> None:
    started(cluster, "cheap-0", **spot(), **of("ml.m5.2xlarge"))
    started(cluster, "cheap-1", **spot(), **of("ml.m5.2xlarge"))  # both on a
    started(cluster, "cheap-2", **spot(), **of("ml.m5.xlarge"))  # on b
    queue(cluster, "urgent", **of(LARGE))
    queue(cluster, "more", **spot(), **of(SMALL))

    assert cluster.next_placement() is None  # nor does another spot job start
    interrupted = [name for name in ("cheap-0", "cheap-1", "cheap-2") if cluster.job(name).attempts[-1].interruption]
    assert interrupted == ["cheap-2"]
    assert cluster.job("cheap-2").attempts[-1].interruption == PREEMPTED
    assert cluster.next_placement() is None
    finish(cluster, "cheap-2")
    assert place_all(cluster) == ["urgent"]
    assert placed_on(cluster, "urgent") == ["b"]


def test_a_job_that_no_node_can_run_delays_no_other(cluster: Bench) -> None:
    cluster.engine.offered = nodes("passing", spot=("passing",))
    queue(cluster, "lasting", **of(SMALL))
    queue(cluster, "cheap", **spot(), **of(SMALL))
    assert place_all(cluster) == ["cheap"]
    cluster.engine.offered = nodes("passing", "new", spot=("passing",))
    assert place_all(cluster) == ["lasting"]


def test_a_job_that_waits_for_one_engine_delays_none_of_another(tmp_path: Path) -> None:
    elsewhere = SimulatedEngine(tmp_path / "jobs", name="elsewhere", is_here=False, role=run, capacity=nodes())
    with open_bench(tmp_path, more=[elsewhere]) as bench:
        queue(bench, "there", **tagged("trainyard:engine", "elsewhere"))
        queue(bench, "here")
        assert place_all(bench) == ["here"]
        queue(bench, "also-here")
        elsewhere.offered = nodes("x")
        offers = next_placements(bench.work)
        assert [placement.id for placement in offers] == [bench.resource("also-here").id, bench.resource("there").id]
        assert [placement.shares[0].node for placement in offers] == ["", "x"]


def test_engines_on_the_yards_own_machine_share_a_queue(tmp_path: Path) -> None:
    beside = SimulatedEngine(tmp_path / "jobs", name="beside", role=run)
    with open_bench(tmp_path, more=[beside]) as bench:
        for number in range(4):
            where = tagged("trainyard:engine", "beside") if number % 2 else {}
            queue(bench, f"job-{number}", **where)
        assert place_all(bench) == ["job-0", "job-1"]  # of two slots


def test_jobs_of_an_engine_that_the_yard_was_started_without_wait(tmp_path: Path) -> None:
    elsewhere = SimulatedEngine(tmp_path / "jobs", name="elsewhere", is_here=False, role=run)
    with open_bench(tmp_path, more=[elsewhere]) as bench:
        started(bench, "placed", **tagged("trainyard:engine", "elsewhere"))
        queue(bench, "waits", **tagged("trainyard:engine", "elsewhere"))
        bench.watch.forward(3600)
        alone = with_changes(bench.work, engines=type(bench.work.engines)([bench.engine]))
        assert alone.claim() is None
        assert next_placements(alone) == []
        assert bench.work.claim() is not None


def test_a_job_whose_type_left_the_catalog_fails_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "catalog.toml").write_text('["ml.my-box"]\ncpus = 2\nmemory_gib = 4\n')
    with open_bench(tmp_path) as bench:
        bench.create(**of("ml.my-box"))
        forgetful = with_changes(bench.work, catalog=Catalog.read(tmp_path / "no such file"))
        (placement,) = forgetful.scheduler.next_placements({})
        assert forgetful.place(placement) is None
        assert '"ml.my-box" is not an instance type' in bench.job().failure


class ProcessingJobs:
    """The jobs of another kind, each with one small instance."""

    def __init__(self) -> None:
        self.preempted: list[ResourceId] = []

    def request_of(self, resource: Resource) -> ResourceRequest:
        return ResourceRequest(resource.id, resource.key.kind, "", Demand((CATALOG[SMALL],)))

    def read_allocations(self) -> Allocations:
        return {}

    def lasting_allocation(self, resource: Resource) -> Allocation:
        return Allocation([Share()], True, "", resource.key.account, resource.created_at)

    def preempt(self, job_id: ResourceId) -> None:
        self.preempted.append(job_id)


def create_processing_job(bench: Bench, name: str, *, priority: Priority = Priority.ON_DEMAND) -> Resource:
    bench.watch.forward(1)
    key = ResourceKey(bench.anna.account, "processing-job", name)
    draft = Draft(
        key,
        "eu-west-3",
        {},
        due_at=bench.watch(),
        state=QueueState.WAITING,
        queue=queue_name("", site=""),
        priority=priority,
    )
    return bench.work.records.create(draft, now=bench.watch())


def test_jobs_of_several_kinds_share_a_queue(bench: Bench) -> None:
    scheduler = replace(bench.work.scheduler, jobs={**bench.work.scheduler.jobs, "processing-job": ProcessingJobs()})
    first = create_processing_job(bench, "first")
    queue(bench, "second")
    (placement,) = scheduler.next_placements({})
    assert (placement.id, placement.kind) == (first.id, "processing-job")

    bench.work.records.delete(first, now=bench.watch())
    (placement,) = scheduler.next_placements({})
    assert (placement.id, placement.kind) == (bench.resource("second").id, KIND)


def test_a_job_of_one_kind_preempts_a_spot_job_of_another(bench: Bench) -> None:
    processing = ProcessingJobs()
    scheduler = replace(bench.work.scheduler, jobs={**bench.work.scheduler.jobs, "processing-job": processing})
    spot_job = create_processing_job(bench, "cheap", priority=Priority.SPOT)
    bench.start("busy")
    queue(bench, "urgent")
    running = {**scheduler.read_allocations(), spot_job.id: processing.lasting_allocation(spot_job)}
    assert scheduler.next_placements(running) == []
    assert processing.preempted == [spot_job.id]


def test_the_table_is_loaded_once_and_keeps_a_job_that_was_placed_again() -> None:
    table, job_id = AllocationTable(), ResourceId("job")
    before, after = (Allocation([Share()], False, "", "anna", NOON) for _ in range(2))
    table.load(lambda: {job_id: before})
    table.load(dict)
    assert table.snapshot() == {job_id: before}

    table.add(job_id, after)
    table.remove(job_id, before)
    assert table.snapshot()[job_id] is after
    table.remove(job_id, after)
    assert table.snapshot() == {}
    table.remove(job_id)
