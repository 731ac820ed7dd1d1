"""Which spot jobs are preempted for an on-demand job."""

from collections.abc import Sequence
from datetime import timedelta

from tests.unit.foundation.sample_jobs import NOON
from tests.unit.server.control.scheduling.samples import GIB, LARGE, nodes
from trainyard.engines.placement import Demand, FreeResources, MissingResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import Allocation
from trainyard.server.control.scheduling.preemption import select_on_machine, select_on_nodes
from trainyard.server.records.contract import ResourceId

NOW = NOON + timedelta(hours=1)

Job = tuple[ResourceId, Allocation]


def job(name: str, *, slots: int = 1, gpus: int = 0, ran_s: float = 60) -> Job:
    """A spot job; all its GPUs are in its first share."""
    shares = [Share(gpus=tuple(range(gpus)) if number == 0 else ()) for number in range(slots)]
    return ResourceId(name), Allocation(shares, True, "", "anna", NOW - timedelta(seconds=ran_s))


def names(missing: MissingResources, *jobs: Job) -> list[str]:
    return sorted(select_on_machine(missing, dict(jobs), now=NOW))


def test_no_job_is_preempted_if_nothing_is_missing() -> None:
    assert names(MissingResources(0, 0), job("a"), job("b", gpus=1)) == []


def test_of_several_jobs_that_would_do_the_youngest_is_preempted() -> None:
    jobs = [job("old", ran_s=900), job("young", ran_s=10), job("older", ran_s=950)]
    assert names(MissingResources(1, 0), *jobs) == ["young"]


def test_one_large_job_is_preempted_rather_than_two_small_young_ones() -> None:
    jobs = [job("a", ran_s=1), job("b", ran_s=2), job("wide", slots=2, ran_s=5000)]
    assert names(MissingResources(2, 0), *jobs) == ["wide"]


def test_as_many_are_preempted_as_needed_and_those_that_lose_least() -> None:
    jobs = [job("a", ran_s=30), job("b", ran_s=20), job("c", ran_s=10), job("d", ran_s=40)]
    assert names(MissingResources(2, 0), *jobs) == ["b", "c"]


def test_no_job_is_preempted_in_vain() -> None:
    assert names(MissingResources(3, 0), job("a"), job("b")) == []
    assert names(MissingResources(1, 2), job("a", gpus=1), job("b", slots=4)) == []


def test_a_job_without_gpus_stays_if_gpus_are_missing() -> None:
    assert names(MissingResources(0, 1), job("cpu", ran_s=1), job("gpu", gpus=2, ran_s=5000)) == ["gpu"]


def test_slots_and_gpus_may_come_from_different_jobs() -> None:
    jobs = [job("gpus", gpus=4), job("slots", slots=3), job("neither", ran_s=1)]
    assert names(MissingResources(4, 3), *jobs) == ["gpus", "slots"]


def test_the_choice_is_quick_for_a_machine_full_of_small_jobs() -> None:
    jobs = [job(f"job-{number:03}", gpus=number % 2, ran_s=number) for number in range(256)]
    assert len(names(MissingResources(64, 8), *jobs)) == 64


def on(node: str, name: str, *, cpus: float, ran_s: float = 60) -> Job:
    since = NOW - timedelta(seconds=ran_s)
    return ResourceId(name), Allocation([Share(cpus, GIB, node=node)], True, "", "anna", since)


def preempted(*jobs: Job, others: Sequence[Share] = ()) -> list[str]:
    return list(select_on_nodes(Demand((LARGE,)), FreeResources(nodes("a", "b"), others), dict(jobs)))


def test_on_nodes_only_jobs_whose_nodes_are_needed_are_preempted() -> None:
    full = [Share(16.0, GIB, node="b")]
    assert sorted(preempted(on("a", "x", cpus=4), on("a", "y", cpus=4), others=full)) == ["x", "y"]
    assert preempted(on("a", "x", cpus=4)) == []  # b is free


def test_on_nodes_the_job_that_has_run_longest_stays() -> None:
    assert preempted(on("a", "old", cpus=4, ran_s=900), on("b", "young", cpus=16, ran_s=10)) == ["young"]


def test_on_nodes_no_job_is_preempted_in_vain() -> None:
    taken = [Share(2.0, GIB, node="a"), Share(2.0, GIB, node="b")]
    assert preempted(on("a", "x", cpus=4), on("b", "y", cpus=4), others=taken) == []
