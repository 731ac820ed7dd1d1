from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.foundation.jobs import NOON, pending, placed, seconds
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.placement import Demand, Lack, Room
from trainyard.foundation.jobs import SecondaryStatus, Share, TrainingJob
from trainyard.foundation.transitions import advance, ask_to_stop, interrupt
from trainyard.server.control.preemption import NodePlace, Place, chosen, is_leaving, outplaced
from trainyard.server.records.contract import ResourceId

NOW = NOON + timedelta(hours=1)


def place(name: str, *, slots: int = 1, gpus: int = 0, ran_s: float = 60) -> Place:
    return Place(ResourceId(name), slots, gpus, NOW - timedelta(seconds=ran_s))


def names(lack: Lack, *places: Place) -> list[str]:
    return sorted(each.id for each in chosen(lack, places, now=NOW))


def test_nobody_goes_where_nothing_is_lacking() -> None:
    assert names(Lack(0, 0), place("a"), place("b", gpus=1)) == []


def test_of_several_who_would_do_the_youngest_goes() -> None:
    assert names(Lack(1, 0), place("old", ran_s=900), place("young", ran_s=10), place("older", ran_s=950)) == ["young"]


def test_one_large_job_goes_rather_than_two_small_young_ones() -> None:
    assert names(Lack(2, 0), place("a", ran_s=1), place("b", ran_s=2), place("wide", slots=2, ran_s=5000)) == ["wide"]


def test_as_many_go_as_it_takes_and_those_that_lose_least() -> None:
    places = [place("a", ran_s=30), place("b", ran_s=20), place("c", ran_s=10), place("d", ran_s=40)]
    assert names(Lack(2, 0), *places) == ["b", "c"]


def test_nobody_goes_in_vain() -> None:
    assert names(Lack(3, 0), place("a"), place("b")) == []
    assert names(Lack(1, 2), place("a", gpus=1), place("b", slots=4)) == []


def test_who_has_no_gpu_stays_where_gpus_are_lacking() -> None:
    assert names(Lack(0, 1), place("cpu", ran_s=1), place("gpu", gpus=2, ran_s=5000)) == ["gpu"]


def test_slots_and_gpus_may_come_from_different_jobs() -> None:
    places = [place("gpus", gpus=4), place("slots", slots=3), place("neither", ran_s=1)]
    assert names(Lack(4, 3), *places) == ["gpus", "slots"]


def test_the_choice_is_quick_for_a_machine_full_of_small_jobs() -> None:
    places = [place(f"job-{number:03}", gpus=number % 2, ran_s=number) for number in range(256)]
    assert len(names(Lack(64, 8), *places)) == 64


GIB = 1024**3
LARGE = Catalog.read(Path("no such file"))["ml.m5.4xlarge"]  # 16 cores
NODES = Capacity(tuple(Node(name, 16, 16.0, 64 * GIB, reserves=True) for name in ("a", "b")))


def on(node: str, name: str, *, cpus: float, ran_s: float = 60) -> NodePlace:
    return NodePlace(ResourceId(name), [Share(cpus, GIB, node=node)], NOW - timedelta(seconds=ran_s))


def gone(*places: NodePlace, others: Sequence[Share] = ()) -> list[str]:
    return [each.id for each in outplaced(Demand((LARGE,)), Room(NODES, others), places)]


def test_on_nodes_only_those_go_whose_nodes_are_needed() -> None:
    full = [Share(16.0, GIB, node="b")]
    assert sorted(gone(on("a", "x", cpus=4), on("a", "y", cpus=4), others=full)) == ["x", "y"]
    assert gone(on("a", "x", cpus=4)) == []  # b is free


def test_on_nodes_who_has_run_longest_stays() -> None:
    assert gone(on("a", "old", cpus=4, ran_s=900), on("b", "young", cpus=16, ran_s=10)) == ["young"]


def test_on_nodes_nobody_goes_in_vain() -> None:
    taken = [Share(2.0, GIB, node="a"), Share(2.0, GIB, node="b")]
    assert gone(on("a", "x", cpus=4), on("b", "y", cpus=4), others=taken) == []


@pytest.mark.parametrize(
    ("job", "leaves"),
    [
        (placed(), False),
        (pending(), True),
        (interrupt(placed(), "because"), True),
        (ask_to_stop(placed(), "user", at=seconds(1)), True),
        (advance(placed(), SecondaryStatus.TRAINING, at=seconds(1)), False),
        (advance(placed(), SecondaryStatus.UPLOADING, at=seconds(1)), True),
    ],
    ids=["placed", "waiting", "interrupted", "stopping", "training", "uploading"],
)
def test_whose_place_will_soon_be_free_anyway(job: TrainingJob, leaves: bool) -> None:
    assert is_leaving(job) is leaves


def test_a_job_is_interrupted_once_and_not_while_it_ends() -> None:
    once = interrupt(placed(), "first")
    assert once.attempts[-1].interruption == "first"
    assert interrupt(once, "second") == once
    stopping = ask_to_stop(placed(), "user", at=seconds(1))
    assert interrupt(stopping, "late") == stopping
    ended = replace(placed(), attempts=(replace(placed().attempts[0], ended_at=seconds(1)),))
    assert interrupt(ended, "late") == ended
