"""The way to one instance, over a keeper that answers as the test says, on a clock that the test moves."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainyard.engines.cluster.contract import ClusterNode, Piece, Prepared, Pulled, RemoteKeeper, Seat, Unreachable
from trainyard.engines.cluster.register import Entry
from trainyard.engines.cluster.route import Patience, Route, Silences
from trainyard.engines.cluster.standing import Standing, standing_of, write_standing
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import CommandKind, LimitSpec
from trainyard.link.doorbell import Doorbell
from trainyard.link.mailbox import Mailbox
from trainyard.testing.engines.samples import Surroundings, attempt_specs

LEASE_S, MARGIN_S = 10, 5
PATIENCE = Patience(poll=0, margin=MARGIN_S, soonest=0, latest=0)
ATTEMPT = AttemptRef("job", 1)
INSTANCE = InstanceRef(ATTEMPT, "algo-1")
SILENT = Unreachable("Node north does not answer.")

Answer = Pulled | Exception


class ScriptedKeeper:
    """Gives the next answer to every pull, and the last one ever after; remembers what it was called with."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        await asyncio.sleep(0)
        assert timeout_s > 0
        self.calls.append((method, arguments, options))
        if method == "prepare":
            return Prepared(4000, "prepared")
        if method != "pull" and isinstance(self.answers[0], Exception):
            raise self.answers[0]
        if method != "pull":
            return None
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def heard(self) -> list[str]:
        return [options["heard"] for method, _, options in self.calls if method in ("start", "pull")]


class OneNode:
    """A `Cluster` whose only keeper is the scripted one."""

    def __init__(self, keeper: ScriptedKeeper) -> None:
        self.keeper = keeper

    async def nodes(self) -> Sequence[ClusterNode]:
        return ()

    async def reserve(self, attempt: AttemptRef, seats: Sequence[Seat]) -> None: ...

    async def keepers(self, attempt: AttemptRef, seats: Sequence[Seat]) -> Mapping[InstanceRef, RemoteKeeper]:
        return {seat.instance: self.keeper for seat in seats}

    async def release(self, attempt: AttemptRef) -> None: ...

    async def close(self) -> None: ...


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Make = Callable[..., Route]


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    def route(*answers: Answer, standing: Standing | None = Standing.ALIVE, doorbell: str = "") -> Route:
        folder = INSTANCE.folder(tmp_path)
        folder.root.mkdir(parents=True, exist_ok=True)
        if standing is not None:
            write_standing(folder, standing)
        seat = Seat(INSTANCE, "north", LimitSpec())
        entry = Entry(ATTEMPT, (seat,), LEASE_S, doorbell)
        cluster = OneNode(ScriptedKeeper(*answers))
        return Route(seat, entry, cluster=cluster, jobs=tmp_path, patience=PATIENCE, clock=clock)

    return route


def alive(*pieces: Piece, stamp: str = "") -> Pulled:
    return Pulled(pieces, is_alive=True, is_all=True, stamp=stamp)


def dead(*pieces: Piece, was_taken: bool = False) -> Pulled:
    return Pulled(pieces, is_alive=False, is_all=True, was_taken=was_taken)


def keeper_of(route: Route) -> ScriptedKeeper:
    cluster = route._cluster
    assert isinstance(cluster, OneNode)
    return cluster.keeper


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_what_was_heard_last_is_handed_back_with_the_next_call(make: Make, tmp_path: Path) -> None:
    route = make(alive(stamp="one"), alive(stamp="two"), dead(), standing=None)
    (spec,) = attempt_specs(Surroundings(tmp_path), job_id="job")

    async def scenario() -> None:
        assert await route.prepare(spec) == 4000
        await route.start(spec)
        route.follow()
        await until(lambda: route.standing is Standing.DEAD)

    play(scenario())

    assert keeper_of(route).heard() == ["prepared", "prepared", "one", "two"]


def test_a_route_made_anew_renews_nothing_before_it_has_heard_something(make: Make) -> None:
    route = make(alive(stamp="one"), dead())

    async def scenario() -> None:
        route.follow()
        await until(lambda: route.standing is Standing.DEAD)

    play(scenario())

    assert keeper_of(route).heard() == ["", "one"]


def test_what_comes_is_in_the_mirror_before_the_instance_is_said_to_be_dead(make: Make, tmp_path: Path) -> None:
    route = make(alive(Piece("spool", 0, b"one ")), dead(Piece("spool", 4, b"two")))

    async def scenario() -> None:
        route.follow()
        await until(lambda: standing_of(route.folder) is Standing.DEAD)
        assert route.folder.spool.read_bytes() == b"one two"

    play(scenario())

    assert [call[1][0] for call in keeper_of(route).calls] == [{}, {"spool": 4}]


def test_the_yard_hears_of_frames_and_of_the_end(make: Make, tmp_path: Path) -> None:
    doorbell = Doorbell(tmp_path / "doorbell")
    route = make(alive(), alive(Piece("spool", 0, b"frame")), alive(), doorbell=str(tmp_path / "doorbell"))

    async def scenario() -> None:
        route.follow()
        await until(lambda: doorbell.read() == {"job"})
        keeper_of(route).answers[:] = [dead()]
        await until(lambda: doorbell.read() == {"job"})
        await route.leave()

    play(scenario())
    doorbell.close()

    assert route.standing is Standing.DEAD


def test_an_instance_is_given_up_when_lease_and_margin_have_passed_and_not_before(make: Make, clock: Clock) -> None:
    route = make(alive(stamp="one"), SILENT)

    async def scenario() -> None:
        route.follow()
        await until(lambda: len(keeper_of(route).calls) > 3)
        clock.now += LEASE_S + MARGIN_S - 0.001
        asked = len(keeper_of(route).calls)
        await until(lambda: len(keeper_of(route).calls) > asked + 3)
        assert route.standing is Standing.ALIVE
        clock.now += 0.001
        await until(lambda: route.standing is Standing.TAKEN)

    play(scenario())


def test_an_instance_is_given_up_at_its_time_though_its_node_takes_longer_to_give_no_answer(
    make: Make, clock: Clock
) -> None:
    route = make(alive(stamp="one"), SILENT)

    async def never(*_: object, **__: object) -> None:
        clock.now += LEASE_S + MARGIN_S
        await asyncio.Event().wait()

    async def scenario() -> None:
        clock.now += LEASE_S + MARGIN_S - 0.001
        keeper_of(route).call = never  # type: ignore[method-assign]  # a keeper that hangs
        route.follow()
        await until(lambda: route.standing is Standing.TAKEN)

    play(scenario())


def test_a_node_that_let_a_lease_run_out_is_not_trusted_until_it_answers_joins_anew_or_a_minute_is_over() -> None:
    clock = Clock()
    silences = Silences(clock)
    node = ClusterNode(Node("north", 1, 1.0, 1024), "10.0.0.1", joined="once")
    assert not silences.holds(node)

    silences.begin("north")
    assert silences.holds(node)
    assert not silences.holds(replace(node, node=replace(node.node, name="south")))
    assert not silences.holds(replace(node, joined="twice"))

    silences.end("north")
    assert not silences.holds(node)

    silences.begin("north")
    clock.now += 60
    assert not silences.holds(node)


def test_an_answer_before_the_end_of_the_lease_begins_it_anew(make: Make, clock: Clock) -> None:
    route = make(SILENT)

    async def scenario() -> None:
        route.follow()
        clock.now += LEASE_S
        keeper_of(route).answers[:] = [alive(stamp="back"), SILENT]
        await until(lambda: "back" in keeper_of(route).heard())
        clock.now += LEASE_S
        asked = len(keeper_of(route).calls)
        await until(lambda: len(keeper_of(route).calls) > asked + 3)
        await route.leave()

    play(scenario())

    assert route.standing is Standing.ALIVE


def test_a_node_that_does_not_know_the_instance_renews_nothing(make: Make, clock: Clock) -> None:
    route = make(Pulled((), is_alive=False, is_all=True, is_known=False, stamp="another machine"))

    async def scenario() -> None:
        route.follow()
        await until(lambda: len(keeper_of(route).calls) > 3)
        assert route.standing is Standing.ALIVE
        clock.now += LEASE_S + MARGIN_S
        await until(lambda: route.standing is Standing.TAKEN)

    play(scenario())

    assert set(keeper_of(route).heard()) == {""}


def test_a_keeper_may_prove_that_an_instance_was_taken(make: Make) -> None:
    route = make(dead(was_taken=True))

    async def scenario() -> None:
        route.follow()
        await until(lambda: route.standing is Standing.TAKEN)

    play(scenario())


def test_the_end_of_an_instance_out_of_reach_is_refused_until_its_lease_has_ended(make: Make, clock: Clock) -> None:
    route = make(SILENT)

    async def scenario() -> None:
        clock.now += LEASE_S + MARGIN_S - 1
        with pytest.raises(Unavailable, match="in 1 s at the latest"):
            await route.end(patience_s=1)
        assert route.standing is Standing.ALIVE
        clock.now += 1
        await route.end(patience_s=1)

    play(scenario())

    assert standing_of(route.folder) is Standing.TAKEN


def test_an_end_brings_the_last_bytes_before_the_node_forgets_them(make: Make) -> None:
    some = Pulled([Piece("spool", 0, b"first ")], is_alive=False, is_all=False)
    route = make(some, dead(Piece("spool", 6, b"last")))

    play(route.end(patience_s=1))

    assert [method for method, _, _ in keeper_of(route).calls] == ["end", "pull", "pull", "forget"]
    assert route.folder.spool.read_bytes() == b"first last"
    assert standing_of(route.folder) is Standing.DEAD


def test_a_command_is_taken_along_until_it_has_arrived(make: Make) -> None:
    route = make(SILENT, alive(), dead())
    command = Mailbox(route.folder.mailbox).put(CommandKind.STOP, {"reason": "user"})

    async def scenario() -> None:
        route.follow()
        await until(lambda: route.standing is Standing.DEAD)

    play(scenario())

    assert [call[1][1] for call in keeper_of(route).calls] == [[command], [command], []]


def test_the_end_of_an_instance_does_not_depend_on_the_keeper_that_it_had(make: Make) -> None:
    route = make(alive(), SILENT)

    async def scenario() -> None:
        route.follow()
        await until(lambda: route.is_out_of_reach)
        await route.leave()
        await route.reach()
        keeper_of(route).answers[:] = [SILENT]
        cluster = route._cluster
        assert isinstance(cluster, OneNode)
        cluster.keeper = ScriptedKeeper(dead())
        await route.end(patience_s=1)

    play(scenario())

    assert route.standing is Standing.DEAD
    assert [method for method, _, _ in keeper_of(route).calls] == ["end", "pull", "forget"]


def test_what_was_never_asked_to_start_has_nothing_to_end(make: Make) -> None:
    route = make(SILENT, standing=None)

    play(route.end(patience_s=1))

    assert keeper_of(route).calls == []
