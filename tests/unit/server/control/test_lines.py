"""Who starts next: lines of engines, turns of accounts, and those who may start before a job that has no room."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity, Node
from trainyard.engines.placement import Demand, Room
from trainyard.foundation.jobs import Share
from trainyard.server.control.lines import LATEST_TURN, LONG, LOOKED_AT, TURN, Floor, Seat, is_shared
from trainyard.server.control.training import GIVE_WAY
from trainyard.server.records.contract import ResourceId
from trainyard.testing.engines import SimulatedEngine, complete, run

GIB = 1024**3
SMALL, LARGE = "ml.m5.large", "ml.m5.4xlarge"  # 2 and 16 cores


def nodes(*names: str, spot: tuple[str, ...] = ()) -> Capacity:
    """Of 16 cores each."""
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
    """Create a job that starts at once, a second after the last one; and tell its nodes."""
    bench.watch.forward(1)
    bench.start(name, **changed)
    return placed_on(bench, name)


def placed_on(bench: Bench, name: str) -> list[str]:
    return [instance.share.node for instance in bench.job(name).attempts[-1].instances]


def queue(bench: Bench, name: str, **changed: Any) -> None:
    bench.watch.forward(1)
    bench.create(name, **changed)


def place_all(bench: Bench) -> list[str]:
    """The names of those that can start now, in the order in which they do."""
    found = []
    while (offer := bench.offer()) is not None:
        claim = bench.work.place(offer)
        assert claim is not None
        found.append(claim.resource.key.name)
    return found


def finish(bench: Bench, name: str) -> None:
    """A job ends well, an hour later."""
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
    with pytest.raises(Exception, match='it can only be "strict"'):
        cluster.create(**tagged("trainyard:spread", "soft"))


def test_jobs_behind_one_without_room_start_where_they_cannot_delay_it(cluster: Bench) -> None:
    started(cluster, "long", **of("ml.m5.2xlarge"))  # half of a
    started(cluster, "longer", **of(LARGE))  # all of b
    queue(cluster, "large", **of(LARGE))
    for number in range(9):
        queue(cluster, f"small-{number}", **of(SMALL))

    # The place of the large job is kept on a, which lacks less, and b is full.
    assert place_all(cluster) == []
    cluster.engine.offered = nodes("a", "b", "c")
    assert place_all(cluster)[0] == "large"  # which was first
    assert placed_on(cluster, "large") == ["c"]
    assert {placed_on(cluster, f"small-{number}")[0] for number in range(4)} == {"a"}


def test_a_place_is_kept_for_the_first_however_many_small_jobs_come(cluster: Bench) -> None:
    started(cluster, "first", **of("ml.m5.2xlarge"))
    started(cluster, "second", **of("ml.m5.2xlarge"), **tagged("trainyard:spread", "strict"))
    queue(cluster, "large", **of(LARGE, 2))
    queue(cluster, "small", **of(SMALL))
    assert {*placed_on(cluster, "first"), *placed_on(cluster, "second")} == {"a"}
    assert cluster.offer() is None  # both nodes are kept for the large one

    finish(cluster, "first")
    assert cluster.offer() is None
    finish(cluster, "second")
    assert place_all(cluster) == ["large"]


def test_those_who_fit_beside_what_is_kept_start_at_once(cluster: Bench) -> None:
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


def test_nobody_overtakes_on_a_machine_whose_cores_instances_share(bench: Bench) -> None:
    bench.start("one")
    queue(bench, "wide", **of(SMALL, 2))
    queue(bench, "narrow")
    assert bench.offer() is None


def test_no_more_are_looked_at_behind_the_first_than_a_few_dozen(cluster: Bench) -> None:
    started(cluster, "long", **of(LARGE))
    queue(cluster, "wide", **of(LARGE, 2))
    cluster.watch.forward(1)
    for number in range(LOOKED_AT):
        cluster.create(f"large-{number:02}", **of(LARGE))
    queue(cluster, "small", **of(SMALL))
    cluster.engine.offered = Capacity((*nodes("a", "b").nodes, Node("tiny", 1, 2.0, 8 * GIB, reserves=True)))
    assert cluster.offer() is None
    cluster.stop("large-00")
    assert cluster.offer() is None
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


def test_accounts_take_turns_and_each_ones_jobs_start_as_they_came(tmp_path: Path) -> None:
    with open_bench(tmp_path, capacity=nodes("a")) as bench:
        bench.engine.role = complete
        ben = second_user(bench)
        for number in range(3):
            queue(bench, f"annas-{number}", **of(LARGE))
        for number in range(3):
            bench.watch.forward(1)
            bench.create(f"bens-{number}", by=ben, **of(LARGE))
        order = []
        while (offer := bench.offer()) is not None:
            claim = bench.work.place(offer)
            assert claim is not None
            order.append(claim.resource.key.name)
            bench.watch.forward(1)
            assert bench.turn(claim, times=5) is None
        assert order == ["annas-0", "bens-0", "annas-1", "bens-1", "annas-2", "bens-2"]


@pytest.mark.parametrize(("later_s", "first"), [(-1, "bens"), (1, "annas-next")])
def test_every_instance_that_runs_makes_the_next_turn_a_minute_later(
    cluster: Bench, later_s: float, first: str
) -> None:
    ben = second_user(cluster)
    cluster.engine.offered = nodes("a", "b", "c", "d")
    started(cluster, "annas", **of(LARGE, 3))
    cluster.create("annas-next", **of(LARGE))
    cluster.watch.forward((3 * TURN).total_seconds() + later_s)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == [first]  # there is room for one


@pytest.mark.parametrize(("later_s", "first"), [(-1, "bens"), (1, "annas-next")])
def test_no_turn_is_later_than_an_hour_however_many_instances_run(cluster: Bench, later_s: float, first: str) -> None:
    ben = second_user(cluster)
    cluster.engine.offered = nodes(*"abcdefghij")
    started(cluster, "annas", **of(SMALL, 70))
    cluster.create("annas-next", **of(LARGE))
    cluster.watch.forward(LATEST_TURN.total_seconds() + later_s)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == [first]  # there is room for one


@pytest.mark.parametrize(("waited", "starts"), [(LONG / 2, ["narrow"]), (LONG * 2, [])])
def test_who_has_waited_long_is_not_overtaken_by_those_that_take_its_place(
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


def test_places_are_kept_for_who_has_waited_long_behind_one_whose_type_the_catalog_has_lost(tmp_path: Path) -> None:
    (tmp_path / "catalog.toml").write_text('["ml.my-box"]\ncpus = 2\nmemory_gib = 4\n')
    with_gpus = Node("g", 16, 12.0, 64 * GIB, (0, 1), reserves=True)
    with open_bench(tmp_path, capacity=Capacity((*nodes("a", "b").nodes, with_gpus))) as bench:
        started(bench, "long", **of(LARGE))
        started(bench, "busy", **of("ml.g4dn.xlarge"))
        queue(bench, "first", **of(LARGE, 2))
        queue(bench, "strange", **of("ml.my-box"))
        queue(bench, "wide", **of("ml.g4dn.xlarge", 2))
        bench.watch.forward((LONG * 2).total_seconds())
        queue(bench, "narrow", **of("ml.g4dn.xlarge"))
        bench.work = replace(bench.work, catalog=Catalog.read(tmp_path / "no such file"))
        assert place_all(bench) == []


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Demand]:
    """For what places are looked for."""
    found: list[Demand] = []
    place = Room.place

    def noted(room: Room, demand: Demand, *, beside: Room | None = None) -> tuple[Share, ...] | None:
        found.append(demand)
        return place(room, demand, beside=beside)

    monkeypatch.setattr(Room, "place", noted)
    return found


def test_a_look_at_a_line_in_which_nothing_has_changed_tries_no_place_again(
    cluster: Bench, tried: list[Demand]
) -> None:
    started(cluster, "long", **of("ml.m5.2xlarge", 2), **tagged("trainyard:spread", "strict"))
    queue(cluster, "large", **of(LARGE, 2))
    queue(cluster, "small", **of(SMALL))
    assert cluster.offer() is None
    assert tried
    tried.clear()
    assert cluster.offer() is None
    assert not tried

    queue(cluster, "other", **of("ml.m5.xlarge"))
    assert cluster.offer() is None
    assert len(tried) == 1  # for the one that is new
    cluster.engine.offered = nodes("a", "b", "c")
    assert place_all(cluster) == ["small", "other"]  # beside what is kept for the large one
    finish(cluster, "long")
    assert place_all(cluster) == ["large"]


def test_after_one_has_overtaken_the_others_are_not_tried_again(cluster: Bench, tried: list[Demand]) -> None:
    cluster.engine.offered = nodes("a", "b", "c")
    started(cluster, "long", **of("ml.m5.2xlarge", 2), **tagged("trainyard:spread", "strict"))
    queue(cluster, "large", **of(LARGE, 2))  # for which c is kept, and what is left of a or b
    queue(cluster, "other", **of(LARGE))
    for number in range(3):
        queue(cluster, f"small-{number}", **of("ml.m5.xlarge"))
    first = cluster.offer()
    assert first is not None
    assert cluster.work.place(first) is not None
    tried.clear()
    second = cluster.offer()
    assert second is not None
    assert [demand.types[0].name for demand in tried] == ["ml.m5.xlarge"]
    assert {share.node for share in second.shares} == {share.node for share in first.shares}

    assert cluster.work.place(second) is not None
    assert cluster.offer() is None  # what was left of that node is full


def test_the_room_beside_seats_that_change_is_the_same_as_one_made_anew() -> None:
    chance = random.Random(3)
    machine, floor, seats = nodes("a", "b", "c"), Floor(), dict[ResourceId, Seat]()
    catalog = Catalog.read(Path("no such file"))
    demands = [Demand((catalog[name],) * count) for name in (SMALL, "ml.m5.2xlarge", LARGE) for count in (1, 2, 3)]
    for number in range(300):
        if number % 50 == 49:
            machine = nodes(*chance.sample("abcd", 3))
        fresh = Room(machine, [share for seat in seats.values() for share in seat.shares])
        floor.follow(machine, dict(seats))
        assert [floor.room.place(each) for each in demands] == [fresh.place(each) for each in demands]
        shares = fresh.place(chance.choice(demands))
        if shares is not None:
            seats[ResourceId(str(number))] = Seat(shares, False, "", "anna", NOON)
        if shares is None or chance.random() < 0.4:
            seats.pop(chance.choice(list(seats)))


def test_a_large_job_is_first_once_its_moment_has_passed_however_many_come_after(cluster: Bench) -> None:
    ben = second_user(cluster)
    started(cluster, "long", **of(LARGE))
    queue(cluster, "large", **of(LARGE, 2))
    for number in range(10):
        cluster.watch.forward(600)
        cluster.create(f"bens-{number}", by=ben, **of(LARGE))
        assert cluster.offer() is None  # though a node is free
    finish(cluster, "long")
    assert place_all(cluster) == ["large"]


def test_jobs_that_are_not_spot_come_first_whosever_turn_it_is(cluster: Bench) -> None:
    ben = second_user(cluster)
    queue(cluster, "cheap", **spot(), **of(LARGE))
    cluster.watch.forward(1)
    cluster.create("bens", by=ben, **of(LARGE))
    assert place_all(cluster) == ["bens", "cheap"]


def test_spot_jobs_go_from_the_nodes_that_the_first_in_line_needs_and_from_no_others(cluster: Bench) -> None:
    started(cluster, "cheap-0", **spot(), **of("ml.m5.2xlarge"))
    started(cluster, "cheap-1", **spot(), **of("ml.m5.2xlarge"))  # both on a
    started(cluster, "cheap-2", **spot(), **of("ml.m5.xlarge"))  # on b
    queue(cluster, "urgent", **of(LARGE))
    queue(cluster, "more", **spot(), **of(SMALL))

    assert cluster.offer() is None  # nor does another spot job take the room
    interrupted = [name for name in ("cheap-0", "cheap-1", "cheap-2") if cluster.job(name).attempts[-1].interruption]
    assert interrupted == ["cheap-2"]
    assert cluster.job("cheap-2").attempts[-1].interruption == GIVE_WAY
    assert cluster.offer() is None
    finish(cluster, "cheap-2")
    assert place_all(cluster) == ["urgent"]
    assert placed_on(cluster, "urgent") == ["b"]


def test_a_job_without_a_node_that_it_may_have_holds_up_nobody(cluster: Bench) -> None:
    cluster.engine.offered = nodes("passing", spot=("passing",))
    queue(cluster, "lasting", **of(SMALL))
    queue(cluster, "cheap", **spot(), **of(SMALL))
    assert place_all(cluster) == ["cheap"]
    cluster.engine.offered = nodes("passing", "new", spot=("passing",))
    assert place_all(cluster) == ["lasting"]


def test_a_job_that_waits_for_one_engine_holds_up_none_of_another(tmp_path: Path) -> None:
    elsewhere = SimulatedEngine(tmp_path / "jobs", name="elsewhere", is_here=False, role=run, capacity=nodes())
    with open_bench(tmp_path, more=[elsewhere]) as bench:
        queue(bench, "there", **tagged("trainyard:engine", "elsewhere"))
        queue(bench, "here")
        assert place_all(bench) == ["here"]
        queue(bench, "also-here")
        elsewhere.offered = nodes("x")
        offers = bench.work.offers(bench.work.running())
        assert [offer.id for offer in offers] == [bench.resource("also-here").id, bench.resource("there").id]
        assert [offer.shares[0].node for offer in offers] == ["", "x"]


def test_engines_on_the_yards_own_machine_share_a_line(tmp_path: Path) -> None:
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
        alone = replace(bench.work, engines=type(bench.work.engines)([bench.engine]))
        assert alone.claim() is None
        assert alone.offers(alone.running()) == []
        assert bench.work.claim() is not None


def test_a_type_that_the_catalog_has_lost_fails_the_job_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "catalog.toml").write_text('["ml.my-box"]\ncpus = 2\nmemory_gib = 4\n')
    with open_bench(tmp_path) as bench:
        bench.create(**of("ml.my-box"))
        forgetful = replace(bench.work, catalog=Catalog.read(tmp_path / "no such file"))
        (offer,) = forgetful.offers({})
        assert forgetful.place(offer) is None
        assert '"ml.my-box" is not an instance type' in bench.job().failure


def test_only_one_machine_that_does_not_reserve_is_shared() -> None:
    machine = Capacity.of_machine(slots=2, cpus=2.0, memory_bytes=8 * GIB)
    assert is_shared(machine)
    assert not is_shared(Capacity(machine.nodes * 2))
    assert not is_shared(nodes("a"))
    assert not is_shared(Capacity(()))
