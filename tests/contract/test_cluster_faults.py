"""The promises of a cluster engine when its nodes, runners and proxy fail. The nodes are folders."""

import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from trainyard.engines.cluster import mirror
from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.contract import AttemptRef, InstanceRef
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef
from trainyard.link.contract import CommandKind, InstanceSpec
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.engines.contract import reports_to_the_end, wait_for_training
from trainyard.testing.engines.loopback import Loopback
from trainyard.testing.engines.samples import ACCOUNT, BUCKET, ENDLESS, REGION, SampleEnvironment, attempt_specs
from trainyard.testing.eventually import eventually

JOB_USER = 20001  # of the jobs, when root runs the tests
LEASE_S = 5
LINES = 10_000
COUNTING = f"""
import time
for number in range({LINES}):
    print(f"line {{number}}", flush=number % 10 == 0)
    if number % 250 == 0:
        time.sleep(PAUSE)
"""
FAST, SLOW = COUNTING.replace("PAUSE", "0.04"), COUNTING.replace("PAUSE", "0.1")


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agents")


@pytest.fixture
def loopback(tmp_path: Path, agents: Path) -> Loopback:
    return Loopback(tmp_path / "nodes", tmp_path / "jobs", tmp_path / "engine", agents)


@pytest.fixture
def engine(loopback: Loopback) -> Iterator[ClusterEngine]:
    yield from opened(loopback, as_process=False)


@pytest.fixture
def engine_with_process(loopback: Loopback) -> Iterator[ClusterEngine]:
    yield from opened(loopback, as_process=True)


def opened(loopback: Loopback, *, as_process: bool) -> Iterator[ClusterEngine]:
    engine = loopback.engine(as_process=as_process)
    engine.make_ready()
    yield engine
    engine.close()
    for node in loopback.nodes:
        loopback.node(node.name).join_again()
    with closing(loopback.engine()) as last:
        last.make_ready()
        for attempt in loopback.jobs.glob("*/*"):
            ref = AttemptRef(attempt.parent.name, int(attempt.name))
            eventually(partial(ends, last, ref))


Placed = Callable[..., list[InstanceSpec]]


@pytest.fixture
def specs(tmp_path: Path) -> Placed:
    """Make the instances of an attempt at a new job, one on each named node."""
    with closing(FilesystemObjects(tmp_path / "objects")) as objects:
        objects.create_bucket(BucketRef(ACCOUNT, BUCKET), region=REGION, now=utc_now())
    environment = SampleEnvironment(tmp_path / "objects", uid=JOB_USER if os.geteuid() == 0 else None)

    def placed(code: str, *nodes: str, lease_s: int = 0) -> list[InstanceSpec]:
        each = attempt_specs(environment, code, count=len(nodes))
        return [replace(spec, node=node, grace_s=1, lease_s=lease_s) for spec, node in zip(each, nodes, strict=True)]

    return placed


def test_a_node_that_returns_before_the_lease_expires_has_lost_nothing(
    engine: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    (instance,) = engine.start(specs(FAST, "south"))
    wait_for_training(engine, instance)

    loopback.node("south").cut_off()
    wait_for_silence(loopback, instance)
    assert engine.is_alive(instance)
    loopback.node("south").join_again()

    assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"
    eventually(lambda: not engine.is_alive(instance))
    assert not engine.has_lost_node(instance)
    assert_mirrored(loopback, instance, "south")


@pytest.mark.slow
def test_an_unreachable_attempt_ends_with_its_lease_and_never_before(
    engine: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    mark = uuid.uuid4().hex
    (instance,) = engine.start(specs(f"{ENDLESS}  # {mark}", "south", lease_s=LEASE_S))
    eventually(lambda: pids_running(mark))

    loopback.node("south").cut_off()
    cut_at = time.monotonic()
    with pytest.raises(Unavailable, match="south"):
        engine.end(instance.attempt)
    eventually(lambda: ends(engine, instance.attempt))

    assert pids_running(mark) == []
    assert time.monotonic() - cut_at >= LEASE_S - loopback.timeouts.poll_s
    assert engine.has_lost_node(instance)
    loopback.node("south").join_again()
    assert not engine.is_alive(instance)


@pytest.mark.slow
def test_an_instance_out_of_reach_beyond_its_lease_counts_as_lost_and_the_rest_of_the_cluster_continues(
    engine: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    mark = uuid.uuid4().hex
    (cut,) = engine.start(specs(f"{ENDLESS}  # {mark}", "spot", lease_s=LEASE_S))
    (gone,) = engine.start(specs(ENDLESS, "south", lease_s=LEASE_S))
    (other,) = engine.start(specs(ENDLESS, "north", lease_s=LEASE_S))
    eventually(lambda: pids_running(mark))
    wait_for_training(engine, gone)
    began = time.monotonic()

    loopback.node("spot").cut_off(hangs=True)
    loopback.node("south").leave()
    # The new machine proves nothing about the old one of that name.
    loopback.node("south").replace_machine()
    eventually(lambda: not engine.is_alive(cut) and not engine.is_alive(gone))

    assert pids_running(mark) == []
    assert time.monotonic() - began >= LEASE_S - loopback.timeouts.poll_s
    assert engine.has_lost_node(cut)
    assert engine.has_lost_node(gone)
    assert engine.is_alive(other)
    (late,) = engine.start(specs("print('done')", "north"))
    assert reports_to_the_end(engine, late)[-1].payload["outcome"] == "completed"
    engine.end(cut.attempt)
    engine.end(gone.attempt)


def test_a_runner_that_dies_is_replaced_and_the_job_continues(
    engine: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    instances = engine.start(specs(FAST, "south", "north", "south"))
    for instance in instances:
        wait_for_training(engine, instance)

    for name in ("south", "north"):
        loopback.node(name).kill_runners()

    for instance in instances:
        assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "completed"
    for instance, name in zip(instances, ("south", "north", "south"), strict=True):
        assert_mirrored(loopback, instance, name)
    engine.end(instances[0].attempt)
    assert loopback.node("south").instances() == loopback.node("north").instances() == []


@pytest.mark.slow
def test_an_attempt_with_an_unreachable_node_leaves_nothing_behind(
    engine: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    placed = specs(ENDLESS, "north", "south")
    loopback.node("south").cut_off()

    with pytest.raises(Unavailable, match="south"):
        engine.start(placed)

    engine.end(InstanceRef.of(placed[0]).attempt)
    assert loopback.node("north").instances() == []
    assert list((loopback.root / "reserved").glob("*")) == []


def test_a_command_reaches_its_instance_at_once(engine: ClusterEngine, specs: Placed) -> None:
    (instance,) = engine.start(specs(ENDLESS, "south"))
    wait_for_training(engine, instance)

    engine.command(instance, CommandKind.STOP, {"reason": "user"})

    assert reports_to_the_end(engine, instance)[-1].payload["outcome"] == "stopped"


@pytest.mark.slow
def test_a_proxy_that_is_killed_repeatedly_loses_and_duplicates_nothing(
    engine_with_process: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    instances = engine_with_process.start(specs(SLOW, "south", "north"))
    killed: set[int] = set()
    for _ in range(4):
        pid = eventually(lambda: sorted({*proxies(loopback)} - killed))[0]
        # At any moment of its life, starting at its birth.
        time.sleep(random.uniform(0.0, 1.5))
        killed.add(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    for instance in instances:
        assert reports_to_the_end(engine_with_process, instance)[-1].payload["outcome"] == "completed"
    eventually(lambda: not any(map(engine_with_process.is_alive, instances)))
    assert_mirrored(loopback, instances[0], "south")
    assert_mirrored(loopback, instances[1], "north")


def test_without_a_proxy_the_mirrors_answer_and_everything_else_is_unavailable(
    engine: ClusterEngine, loopback: Loopback, specs: Placed
) -> None:
    (instance,) = engine.start(specs(ENDLESS, "south"))
    wait_for_training(engine, instance)
    frames = engine.reports(instance, 0).frames

    engine.close()

    assert engine.is_alive(instance)
    assert engine.reports(instance, 0).frames[: len(frames)] == frames
    with pytest.raises(Unavailable):
        engine.end(instance.attempt)
    with pytest.raises(Unavailable):
        engine.start(specs(ENDLESS, "south"))
    with closing(loopback.engine()) as anew:
        anew.make_ready()
        anew.end(instance.attempt)
        assert not anew.is_alive(instance)


def test_the_process_of_a_proxy_ends_with_its_engine(engine_with_process: ClusterEngine, loopback: Loopback) -> None:
    assert len(proxies(loopback)) == 1

    engine_with_process.close()

    assert proxies(loopback) == []


def test_an_unreachable_cluster_has_no_capacity_and_says_why(engine: ClusterEngine, loopback: Loopback) -> None:
    for node in loopback.nodes:
        loopback.node(node.name).cut_off()

    eventually(lambda: engine.capacity().obstacle)

    capacity = engine.capacity()
    assert "answers" in capacity.obstacle
    assert capacity.slots == 0
    assert [node.name for node in capacity.nodes] == [node.name for node in loopback.nodes]
    for node in loopback.nodes:
        loopback.node(node.name).join_again()
    eventually(lambda: engine.capacity().slots)


def ends(engine: ClusterEngine, attempt: AttemptRef) -> bool:
    try:
        engine.end(attempt)
    except Unavailable:
        return False
    return True


def wait_for_silence(loopback: Loopback, instance: InstanceRef) -> None:
    """Wait until the node has more of the log than the yard."""
    node, yard = loopback.node("south").instance(instance), instance.folder(loopback.jobs)
    eventually(lambda: sum(mirror.mirrored_sizes(node).values()) > sum(mirror.mirrored_sizes(yard).values()) + 5000)


def assert_mirrored(loopback: Loopback, instance: InstanceRef, node: str) -> None:
    """Check that the yard has every byte of the node, and each line of the program once."""
    there, here = loopback.node(node).instance(instance), instance.folder(loopback.jobs)
    eventually(lambda: mirror.mirrored_sizes(here) == mirror.mirrored_sizes(there), within=timedelta(seconds=5))
    for path in mirror.mirrored_sizes(there):
        assert (here.root / path).read_bytes() == (there.root / path).read_bytes(), path
    log = b"".join(file.read_bytes() for file in sorted(here.logs.glob("*.log"))).splitlines()
    assert [line for line in log if line.startswith(b"line ")] == [b"line %d" % number for number in range(LINES)]


def proxies(loopback: Loopback) -> list[int]:
    return pids_running(f'"{loopback.folder}"')


def pids_running(mark: str) -> list[int]:
    """Return the processes whose command line contains a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found
