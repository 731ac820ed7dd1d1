"""How jobs are fitted to the nodes of a cluster, which hand out cores and memory."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.engines.placements import place
from trainyard.engines.catalog import Catalog, InstanceType
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.placement import Demand, FreeResources, check_promised_resources, fit_types
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.attempts import Share

GIB = 1024**3
CATALOG = Catalog.read(Path("no such file"))

M5_LARGE = CATALOG["ml.m5.large"]  # 2 cores, 8 GiB
M5_4X = CATALOG["ml.m5.4xlarge"]  # 16 cores, 64 GiB
P3 = CATALOG["ml.p3.2xlarge"]  # 8 cores, 61 GiB, a GPU
P4D = CATALOG["ml.p4d.24xlarge"]  # 96 cores, 1152 GiB, 8 GPUs


def node(name: str, *, cpus: float = 16, gib: int = 64, gpus: int = 0, slots: int = 16, is_spot: bool = False) -> Node:
    return Node(name, slots, cpus, gib * GIB, tuple(range(gpus)), reserves=True, is_spot=is_spot)


def cluster(*nodes: Node) -> Capacity:
    return Capacity(nodes)


TWO = cluster(node("a"), node("b"))
MIXED = cluster(node("gpu", cpus=64, gib=512, gpus=8), node("a"), node("b"))


def where(shares: Sequence[Share] | None) -> list[str]:
    assert shares is not None, "there is room"
    return [share.node for share in shares]


def test_cores_and_memory_of_a_node_are_handed_out_once() -> None:
    running = place([M5_LARGE] * 8, TWO, running=[]) or ()
    assert where(running) == ["a"] * 8

    assert where(place([M5_LARGE] * 8, TWO, running=running)) == ["b"] * 8
    assert place([M5_LARGE] * 9, TWO, running=running) is None


def test_a_node_that_does_not_reserve_hands_out_slots_and_gpus_alone() -> None:
    shared = Capacity(tuple(replace(each, reserves=False, slots=2) for each in TWO.nodes))

    first = place([M5_4X], shared, running=[]) or ()
    second = place([M5_4X], shared, running=first) or ()

    assert where([*first, *second]) == ["a", "a"]  # below the same ceilings
    assert where(place([M5_4X], shared, running=[*first, *second])) == ["b"]


def test_small_jobs_fill_one_node_so_that_a_large_one_finds_another_whole() -> None:
    running: list[Share] = []
    for _ in range(4):
        running += place([M5_LARGE], TWO, running=running) or ()

    assert {share.node for share in running} == {"a"}
    assert where(place([M5_4X], TWO, running=running)) == ["b"]


def test_a_job_runs_on_one_node_if_one_has_enough_free() -> None:
    running = [Share(13.0, 8 * GIB, node="a")]  # which has room for one

    assert where(place([M5_LARGE] * 3, TWO, running=running)) == ["b"] * 3
    assert where(place([M5_LARGE] * 9, TWO, running=running)) == ["a", *["b"] * 8]


def test_jobs_without_gpus_leave_the_nodes_that_have_some_to_others() -> None:
    running = list(place([M5_4X, M5_4X], MIXED, running=[]) or ())
    assert sorted(where(running)) == ["a", "b"]

    assert where(place([M5_LARGE], MIXED, running=running)) == ["gpu"]  # when there is no room elsewhere


def test_gpus_come_from_one_node_and_no_two_instances_have_the_same() -> None:
    first = place([P3, P3], MIXED, running=[])
    second = place([P3] * 4, MIXED, running=first or ())

    assert first is not None
    assert second is not None
    assert [share.gpus for share in (*first, *second)] == [(0,), (1,), (2,), (3,), (4,), (5,)]
    assert {share.node for share in (*first, *second)} == {"gpu"}


def test_a_gpu_job_takes_what_is_left_of_a_node_before_it_breaks_into_another() -> None:
    twins = cluster(node("x", cpus=64, gib=512, gpus=8), node("y", cpus=64, gib=512, gpus=8))

    assert where(place([P3], twins, running=[Share(8.0, 61 * GIB, (0,), "y")])) == ["y"]


def test_a_gang_that_wants_more_gpus_than_there_are_gets_the_same_number_for_each() -> None:
    uneven = cluster(node("big", cpus=64, gib=512, gpus=8), node("small", cpus=64, gib=512, gpus=2), node("none"))

    fitted = fit_types([P4D] * 3, uneven)

    assert {size.gpus for size in fitted.sizes} == {2}
    assert "gets" in fitted.shortfalls[0]
    assert "2 of 8 GPUs on the available nodes." in fitted.shortfalls[0]
    shares = place([P4D] * 3, uneven, running=[])
    assert shares is not None
    assert "none" not in where(shares)


def test_a_job_larger_than_every_node_starts_when_the_cluster_is_empty() -> None:
    shares = place([P4D] * 5, TWO, running=[])

    assert shares is not None
    assert {(share.cpus, share.gpus) for share in shares} == {(5.33, ())}
    assert place([P4D] * 5, TWO, running=[Share(6.0, GIB, node="b")]) is None


def test_spread_instances_lie_on_nodes_of_their_own() -> None:
    three = cluster(node("a"), node("b"), node("c"))

    assert sorted(where(place([M5_LARGE] * 3, three, running=[], is_spread=True))) == ["a", "b", "c"]
    full = [Share(16.0, GIB, node="b")]
    assert sorted(where(place([M5_LARGE] * 2, three, running=full, is_spread=True))) == ["a", "c"]
    assert place([M5_LARGE] * 3, three, running=full, is_spread=True) is None


def test_more_instances_than_nodes_are_spread_as_far_as_possible_with_a_shortfall() -> None:
    assert sorted(where(place([M5_LARGE] * 4, TWO, running=[], is_spread=True))) == ["a", "a", "b", "b"]
    assert fit_types([M5_LARGE] * 4, TWO, is_spread=True).shortfalls == (
        "Its 4 instances run on 2 nodes, because no more are available.",
    )
    with pytest.raises(InvalidRequest, match="run on 2 nodes"):
        check_promised_resources([M5_LARGE] * 4, TWO, is_spread=True)


def test_spot_nodes_are_for_spot_jobs_which_take_them_first() -> None:
    mixed = cluster(node("lasting"), node("passing", is_spot=True))

    assert where(place([M5_4X], mixed, running=[])) == ["lasting"]
    assert place([M5_4X], mixed, running=[Share(16.0, GIB, node="lasting")]) is None
    assert where(place([M5_4X], mixed, running=[], is_spot=True)) == ["passing"]
    assert where(place([M5_4X], mixed, running=[Share(16.0, GIB, node="passing")], is_spot=True)) == ["lasting"]


def test_without_an_eligible_node_a_job_waits_and_has_no_shortfall() -> None:
    for nothing in (cluster(), cluster(node("passing", is_spot=True))):
        assert place([M5_LARGE], nothing, running=[]) is None
        assert (fit_types([M5_LARGE], nothing).nodes, fit_types([M5_LARGE], nothing).shortfalls) == ((), ())


def test_instances_on_a_lost_node_use_no_capacity() -> None:
    assert where(place([M5_4X] * 2, TWO, running=[Share(16.0, GIB, node="gone")])) in (["a", "b"], ["b", "a"])


def test_places_are_kept_where_least_is_in_the_way() -> None:
    demand = Demand((M5_4X,))
    busy = FreeResources(TWO, [Share(14.0, GIB, node="a"), Share(2.0, GIB, node="b"), Share(2.0, GIB, node="b")])

    assert busy.place(demand) is None
    kept = FreeResources(TWO).place(demand, current=busy)

    assert where(kept) == ["b"]
    busy.allocate(kept or ())
    assert where(busy.place(Demand((M5_LARGE,)))) == ["a"]
    assert busy.place(Demand((M5_LARGE,) * 2)) is None


def test_gpus_are_kept_from_those_that_nobody_uses() -> None:
    one = cluster(node("x", cpus=64, gib=512, gpus=4))
    busy = FreeResources(one, [Share(8.0, 61 * GIB, (0,), "x"), Share(50.0, 61 * GIB, (1,), "x")])

    kept = FreeResources(one).place(Demand((P3, P3)), current=busy)

    assert kept is not None
    assert [share.gpus for share in kept] == [(2,), (3,)]


def random_cluster(chance: random.Random) -> Capacity:
    nodes = [
        node(
            f"n{number}",
            cpus=chance.choice([1, 2, 7.5, 64, 96]),
            gib=chance.choice([2, 8, 61, 512]),
            gpus=chance.choice([0, 0, 1, 8]),
            slots=chance.randrange(1, 20),
            is_spot=chance.random() < 0.2,
        )
        for number in range(chance.randrange(1, 12))
    ]
    return cluster(replace(nodes[0], is_spot=False), *nodes[1:])


def assert_nothing_is_exceeded(machine: Capacity, shares: Iterable[Share]) -> None:
    for each in machine.nodes:
        there = [share for share in shares if share.node == each.name]
        gpus = [gpu for share in there for gpu in share.gpus]
        assert sum(share.cpus or 0 for share in there) <= each.cpus + 1e-6
        assert sum(share.memory_bytes or 0 for share in there) <= each.memory_bytes
        assert len(gpus) == len(set(gpus))
        assert set(gpus) <= set(each.gpus)


def test_every_job_can_start_on_every_empty_cluster_and_exceeds_no_node() -> None:
    chance = random.Random(7)
    types = list(CATALOG)
    for _ in range(300):
        machine = random_cluster(chance)
        kinds = chance.choices(types, k=chance.randrange(1, 4))
        job = chance.choices(kinds, k=chance.randrange(1, 30))
        options = {"is_spot": chance.random() < 0.3, "is_spread": chance.random() < 0.3}

        shares = place(job, machine, running=[], **options)

        assert shares is not None
        assert len(shares) == len(job)
        assert_nothing_is_exceeded(machine, shares)
        spot_nodes = {each.name for each in machine.nodes if each.is_spot}
        assert options["is_spot"] or not spot_nodes & {share.node for share in shares}
        by_type = {(each.name, len(share.gpus), share.cpus) for each, share in zip(job, shares, strict=True)}
        assert len(by_type) == len({each.name for each in job})


def test_however_many_jobs_come_and_go_no_node_gives_more_than_it_has() -> None:
    chance = random.Random(11)
    for _ in range(20):
        machine = random_cluster(chance)
        jobs: list[tuple[Share, ...]] = []
        for _ in range(60):
            if jobs and chance.random() < 0.4:
                jobs.pop(chance.randrange(len(jobs)))
            job = [chance.choice([M5_LARGE, M5_4X, P3])] * chance.randrange(1, 4)
            shares = place(job, machine, running=[share for placed in jobs for share in placed])
            jobs += [shares] if shares is not None else []
            running = [share for placed in jobs for share in placed]
            assert_nothing_is_exceeded(machine, running)
            assert all(
                len([share for share in running if share.node == each.name]) <= max(each.slots, len(jobs[0]))
                for each in machine.nodes
            )


def test_allocating_from_a_copy_does_not_change_the_original() -> None:
    room = FreeResources(MIXED, [Share(60, 8 * GIB, (0, 1), "gpu")])
    other, demand = room.copy(), Demand((P3,) * 6, is_spread=False)
    assert other.place(demand) == room.place(demand)
    other.allocate([Share(2, 8 * GIB, (2, 3), "gpu"), Share(16, 64 * GIB, (), "a")])
    assert where(other.place(Demand((M5_4X,)))) == ["b"]
    assert where(room.place(Demand((M5_4X,)))) == ["a"]


def test_a_node_is_reset_to_what_runs_there_now() -> None:
    room = FreeResources(TWO, [Share(16, 64 * GIB, (), "a"), Share(16, 64 * GIB, (), "b")])
    assert room.place(Demand((M5_LARGE,))) is None
    room.reset_node("b", [Share(14, 8 * GIB, (), "b")])
    room.reset_node("gone", [Share(1, 1, (), "gone")])
    assert where(room.place(Demand((M5_LARGE,)))) == ["b"]
    assert room.place(Demand((M5_LARGE, M5_LARGE))) is None


def test_an_emptied_room_has_all_that_there_is_and_leaves_the_other_as_it_was() -> None:
    room = FreeResources(TWO, [Share(16, 64 * GIB, (), "a"), Share(16, 64 * GIB, (), "b")])
    empty = room.without_running()
    assert sorted(where(empty.place(Demand((M5_4X, M5_4X))))) == ["a", "b"]
    empty.allocate([Share(16, 64 * GIB, (), "b")])
    assert where(empty.place(Demand((M5_4X,)))) == ["a"]
    assert room.place(Demand((M5_LARGE,))) is None
    assert room.machine == empty.machine == TWO


def of_cores(cpus: float, *, gib: float = 1, gpus: int = 0) -> InstanceType:
    return InstanceType(f"ml.test.{cpus:g}-{gib:g}-{gpus}", cpus, gib, gpus, 1.0, 0.5)


@pytest.mark.parametrize("order", [(8, 8, 16), (8, 16, 8), (16, 8, 8)])
def test_instances_that_want_too_much_are_laid_out_so_that_no_node_bears_more_than_it_must(
    order: tuple[int, ...],
) -> None:
    two = cluster(node("a", cpus=12), node("b", cpus=12))
    fitted = fit_types([of_cores(cpus) for cpus in order], two)
    assert [size.cpus for size in fitted.sizes] == [{8: 6.0, 16: 12.0}[cpus] for cpus in order]


def test_instances_that_want_too_much_memory_share_that_of_their_node() -> None:
    two = cluster(node("a", gib=12), node("b", gib=12))
    fitted = fit_types([of_cores(1, gib=16), of_cores(1, gib=8), of_cores(1, gib=8)], two)
    assert [size.memory_bytes / GIB for size in fitted.sizes] == [12, 6, 6]
    assert [size.cpus for size in fitted.sizes] == [1.0, 1.0, 1.0]
    assert fitted.shortfalls == (
        "Each ml.test.1-16-0 gets 12.0 of 16 GiB of memory on the available nodes.",
        "Each ml.test.1-8-0 gets 6.0 of 8 GiB of memory on the available nodes.",
    )


def test_more_instances_than_slots_are_laid_out_by_the_slots_of_the_nodes() -> None:
    uneven = cluster(node("one", slots=1), node("three", slots=3))
    assert sorted(fit_types([of_cores(1)] * 4, uneven).nodes) == ["one", "three", "three", "three"]
    crowded = fit_types([of_cores(1)] * 8, uneven)
    assert sorted(crowded.nodes) == [*["one"] * 2, *["three"] * 6]
    assert (crowded.slots, crowded.shortfalls) == (4, ("Its 8 instances share 4 slots.",))


def test_instances_that_want_gpus_are_laid_out_by_those_of_the_nodes() -> None:
    uneven = cluster(node("one", gpus=1), node("four", gpus=4), node("none", cpus=96, gib=512))
    fitted = fit_types([of_cores(1, gpus=2)] * 3, uneven)
    assert (fitted.nodes, {size.gpus for size in fitted.sizes}) == (("four",) * 3, {1})
    wider = cluster(node("three", gpus=3), *uneven.nodes)
    assert sorted(fit_types([of_cores(1, gpus=2)] * 4, wider).nodes) == ["four", "four", "three", "three"]


def test_hundredths_of_a_core_are_handed_out_to_the_last() -> None:
    one = cluster(node("a", cpus=0.87))
    small = of_cores(0.29)
    running: list[Share] = []
    for _ in range(3):
        running += place([small], one, running=running) or ()
    assert [share.cpus for share in running] == [0.29] * 3
    assert place([of_cores(0.01)], one, running=running) is None


def test_a_share_of_a_core_is_rounded_down_but_never_to_none() -> None:
    one = cluster(node("a", cpus=1, slots=16))
    assert {size.cpus for size in fit_types([of_cores(1)] * 3, one).sizes} == {0.33}
    assert {size.cpus for size in fit_types([of_cores(1), of_cores(0.001)], one).sizes} == {0.99, 0.01}


@pytest.mark.parametrize(
    ("wanted", "on_a", "on_b"),
    [
        (of_cores(4, gib=64), Share(1, 60 * GIB), Share(1, 10 * GIB)),
        (of_cores(16, gib=1), Share(12, GIB), Share(4, GIB)),
        (of_cores(1, gib=1, gpus=4), Share(1, GIB, (0, 1, 2)), Share(1, GIB, (3,))),
    ],
)
def test_places_are_kept_where_least_of_what_a_job_needs_most_is_in_the_way(
    wanted: InstanceType, on_a: Share, on_b: Share
) -> None:
    both = cluster(node("a", gpus=4), node("b", gpus=4))
    busy = FreeResources(both, [replace(on_a, node="a"), replace(on_b, node="b")])
    assert where(FreeResources(both).place(Demand((wanted,)), current=busy)) == ["b"]
    other = FreeResources(both, [replace(on_b, node="a"), replace(on_a, node="b")])
    assert where(FreeResources(both).place(Demand((wanted,)), current=other)) == ["a"]


def test_places_are_kept_where_fewest_slots_are_in_the_way() -> None:
    both = cluster(node("a", slots=4), node("b", slots=4))
    tiny = [Share(0.1, 1, (), "a")] * 4 + [Share(0.1, 1, (), "b")] * 2
    kept = FreeResources(both).place(Demand((of_cores(0.1),) * 4), current=FreeResources(both, tiny))
    assert where(kept) == ["b"] * 4


def test_the_fullest_fitting_node_is_chosen() -> None:
    three = cluster(node("a"), node("b"), node("c"))
    for fuller, emptier in (
        (Share(8, GIB), Share(4, GIB)),
        (Share(4, 32 * GIB), Share(4, GIB)),
    ):
        running = [replace(emptier, node="a"), replace(fuller, node="b")]
        assert where(place([M5_LARGE], three, running=running)) == ["b"]
    slots = [Share(1, GIB, (), "a"), Share(0.5, GIB // 2, (), "b"), Share(0.5, GIB // 2, (), "b")]
    assert where(place([M5_LARGE], three, running=slots)) == ["b"]


def test_a_job_that_was_laid_out_over_shared_machines_waits_for_its_slots_and_gpus_alone() -> None:
    shared = Capacity((replace(node("a", cpus=4, gpus=2, slots=2), reserves=False),))
    large = of_cores(64, gib=1024, gpus=1)
    assert place([large], shared, running=[Share(4, 64 * GIB, (0,), "a")]) is not None
    assert place([large] * 3, shared, running=[Share(1, GIB, (), "a")]) is None
    assert place([large], shared, running=[Share(1, GIB, (0, 1), "a")]) is None
