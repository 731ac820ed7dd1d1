"""A short day of a small simulated cluster, on which nodes fail: what the benchmark takes for granted."""

from dataclasses import replace
from pathlib import Path

from benchmarks.scale.living import live
from benchmarks.scale.promises import broken_promises
from benchmarks.scale.references import first_come, least_end_s, one_large_node
from benchmarks.scale.workload import Outage, nodes, outages, workload
from trainyard.engines.catalog import Catalog
from trainyard.foundation.jobs.status import Status

CATALOG = Catalog.read(Path("no such file"))
TYPES = {
    name: CATALOG[name] for name in ("ml.m5.large", "ml.m5.xlarge", "ml.c5.4xlarge", "ml.g4dn.xlarge", "ml.p3.8xlarge")
}
CLUSTER = nodes(10)
PLANNED = workload(30, cluster=CLUSTER, types=TYPES, load=0.1, seed=5)


def test_every_job_ends_once_and_no_node_gives_more_than_it_has_though_nodes_fail(tmp_path: Path) -> None:
    longest = max(PLANNED, key=lambda each: each.length_s)
    quarter_s = longest.length_s / 4
    back_in_time = [Outage(node.name, longest.at_s + quarter_s, longest.at_s + quarter_s + 60) for node in CLUSTER]
    lost = [Outage(node.name, longest.at_s + 2 * quarter_s, longest.at_s + 2 * quarter_s + 600) for node in CLUSTER]

    day = live(tmp_path, PLANNED, cluster=CLUSTER, outages=[*back_in_time, *lost])

    assert broken_promises(day.jobs, PLANNED, CLUSTER) == []
    assert len(day.jobs[longest.name].attempts) == 2
    assert len(day.placing) == sum(len(job.attempts) for job in day.jobs.values())
    assert {job.status for job in day.jobs.values()} <= {Status.COMPLETED, Status.FAILED}

    (name, job), *_ = day.jobs.items()
    twice = replace(job, attempts=(job.attempts[0], replace(job.attempts[0], number=2)))
    told = broken_promises({**day.jobs, name: twice}, PLANNED, CLUSTER)
    assert f"{name} had two attempts at one time." in told


def test_a_day_is_the_same_for_one_seed_and_its_jobs_ask_for_the_load() -> None:
    assert workload(30, cluster=CLUSTER, types=TYPES, load=0.1, seed=5) == PLANNED
    assert workload(30, cluster=CLUSTER, types=TYPES, load=0.1, seed=6) != PLANNED
    assert outages(CLUSTER, seed=5) == outages(CLUSTER, seed=5)
    many = workload(2000, cluster=CLUSTER, types=TYPES, load=0.1, seed=5)
    gpus = sum(len(node.gpus) for node in CLUSTER)
    asked = sum(each.count * each.length_s * (TYPES[each.instance_type].gpus or 0) for each in many)
    assert 0.09 < asked / (gpus * 86_400) < 0.13


def test_jobs_wait_less_in_all_on_a_cluster_without_borders() -> None:
    in_order, without = first_come(PLANNED, CLUSTER, TYPES), one_large_node(PLANNED, CLUSTER, TYPES)

    assert in_order.waits_s.keys() == without.waits_s.keys() == {each.name for each in PLANNED}
    assert sum(without.waits_s.values()) <= sum(in_order.waits_s.values())
    assert least_end_s(PLANNED, CLUSTER, TYPES) <= min(in_order.ended_s, without.ended_s)
