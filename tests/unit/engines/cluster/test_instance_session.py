"""The way to one instance, over a runner that answers as the test says, on a clock that the test moves."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainyard.engines.cluster.attempt_register import RegisteredAttempt
from trainyard.engines.cluster.contract import (
    ClusterNode,
    FileChunk,
    InstancePlacement,
    PreparedInstance,
    PullResult,
    RemoteRunner,
    Unreachable,
)
from trainyard.engines.cluster.instance_session import InstanceSession, ProxyTimeouts, SilentNodes
from trainyard.engines.cluster.remote_state import RemoteState, read_remote_state, write_remote_state
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Unavailable
from trainyard.link.contract import CommandKind, LimitSpec
from trainyard.link.doorbell import Doorbell
from trainyard.link.mailbox import Mailbox
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs

LEASE_S, MARGIN_S = 10, 5
TIMEOUTS = ProxyTimeouts(poll_s=0, lease_margin_s=MARGIN_S, first_retry_s=0, max_retry_s=0)
ATTEMPT = AttemptRef("job", 1)
INSTANCE = InstanceRef(ATTEMPT, "algo-1")
SILENT = Unreachable("Node north does not answer.")

Answer = PullResult | Exception


class ScriptedRunner:
    """Gives the next answer to every pull, and the last one ever after; remembers what it was called with."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    async def call(self, method: str, /, *arguments: Any, timeout_s: float, **options: Any) -> Any:
        await asyncio.sleep(0)
        assert timeout_s > 0
        self.calls.append((method, arguments, options))
        if method == "prepare":
            return PreparedInstance(4000, "prepared")
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
    """A `ClusterBackend` whose only runner is the scripted one."""

    def __init__(self, runner: ScriptedRunner) -> None:
        self.runner = runner

    async def nodes(self) -> Sequence[ClusterNode]:
        return ()

    async def reserve(self, attempt: AttemptRef, placements: Sequence[InstancePlacement]) -> None: ...

    async def runners(
        self, attempt: AttemptRef, placements: Sequence[InstancePlacement]
    ) -> Mapping[InstanceRef, RemoteRunner]:
        return {placement.instance: self.runner for placement in placements}

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


Make = Callable[..., InstanceSession]


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    def session(*answers: Answer, state: RemoteState | None = RemoteState.ALIVE, doorbell: str = "") -> InstanceSession:
        folder = INSTANCE.folder(tmp_path)
        folder.root.mkdir(parents=True, exist_ok=True)
        if state is not None:
            write_remote_state(folder, state)
        placement = InstancePlacement(INSTANCE, "north", LimitSpec())
        entry = RegisteredAttempt(ATTEMPT, (placement,), LEASE_S, doorbell)
        cluster = OneNode(ScriptedRunner(*answers))
        return InstanceSession(placement, entry, cluster=cluster, jobs=tmp_path, timeouts=TIMEOUTS, clock=clock)

    return session


def alive(*chunks: FileChunk, stamp: str = "") -> PullResult:
    return PullResult(chunks, is_alive=True, is_all=True, stamp=stamp)


def dead(*chunks: FileChunk, has_lost_node: bool = False) -> PullResult:
    return PullResult(chunks, is_alive=False, is_all=True, has_lost_node=has_lost_node)


def runner_of(session: InstanceSession) -> ScriptedRunner:
    cluster = session._cluster
    assert isinstance(cluster, OneNode)
    return cluster.runner


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_the_last_stamp_is_returned_with_the_next_call(make: Make, tmp_path: Path) -> None:
    session = make(alive(stamp="one"), alive(stamp="two"), dead(), state=None)
    (spec,) = attempt_specs(SampleEnvironment(tmp_path), job_id="job")

    async def scenario() -> None:
        assert await session.prepare(spec) == 4000
        await session.start(spec)
        session.follow()
        await until(lambda: session.state is RemoteState.DEAD)

    play(scenario())

    assert runner_of(session).heard() == ["prepared", "prepared", "one", "two"]


def test_a_new_session_renews_nothing_before_the_first_answer(make: Make) -> None:
    session = make(alive(stamp="one"), dead())

    async def scenario() -> None:
        session.follow()
        await until(lambda: session.state is RemoteState.DEAD)

    play(scenario())

    assert runner_of(session).heard() == ["", "one"]


def test_everything_is_in_the_mirror_before_the_instance_is_dead(make: Make, tmp_path: Path) -> None:
    session = make(alive(FileChunk("spool", 0, b"one ")), dead(FileChunk("spool", 4, b"two")))

    async def scenario() -> None:
        session.follow()
        await until(lambda: read_remote_state(session.folder) is RemoteState.DEAD)
        assert session.folder.spool.read_bytes() == b"one two"

    play(scenario())

    assert [call[1][0] for call in runner_of(session).calls] == [{}, {"spool": 4}]


def test_the_yard_is_notified_of_frames_and_of_the_end(make: Make, tmp_path: Path) -> None:
    doorbell = Doorbell(tmp_path / "doorbell")
    session = make(alive(), alive(FileChunk("spool", 0, b"frame")), alive(), doorbell=str(tmp_path / "doorbell"))

    async def scenario() -> None:
        session.follow()
        await until(lambda: doorbell.read() == {"job"})
        runner_of(session).answers[:] = [dead()]
        await until(lambda: doorbell.read() == {"job"})
        await session.detach()

    play(scenario())
    doorbell.close()

    assert session.state is RemoteState.DEAD


def test_an_instance_is_lost_when_lease_and_margin_have_passed_and_not_before(make: Make, clock: Clock) -> None:
    session = make(alive(stamp="one"), SILENT)

    async def scenario() -> None:
        session.follow()
        await until(lambda: len(runner_of(session).calls) > 3)
        clock.now += LEASE_S + MARGIN_S - 0.001
        asked = len(runner_of(session).calls)
        await until(lambda: len(runner_of(session).calls) > asked + 3)
        assert session.state is RemoteState.ALIVE
        clock.now += 0.001
        await until(lambda: session.state is RemoteState.NODE_LOST)

    play(scenario())


def test_an_instance_is_lost_on_time_even_when_its_node_takes_longer_to_time_out(make: Make, clock: Clock) -> None:
    session = make(alive(stamp="one"), SILENT)

    async def never(*_: object, **__: object) -> None:
        clock.now += LEASE_S + MARGIN_S
        await asyncio.Event().wait()

    async def scenario() -> None:
        clock.now += LEASE_S + MARGIN_S - 0.001
        runner_of(session).call = never  # type: ignore[method-assign]  # a runner that hangs
        session.follow()
        await until(lambda: session.state is RemoteState.NODE_LOST)

    play(scenario())


def test_a_node_that_let_a_lease_expire_is_silent_until_it_answers_joins_again_or_a_minute_passed() -> None:
    clock = Clock()
    silent_nodes = SilentNodes(clock)
    node = ClusterNode(Node("north", 1, 1.0, 1024), "10.0.0.1", joined="once")
    assert not silent_nodes.is_silent(node)

    silent_nodes.mark_silent("north")
    assert silent_nodes.is_silent(node)
    assert not silent_nodes.is_silent(replace(node, node=replace(node.node, name="south")))
    assert not silent_nodes.is_silent(replace(node, joined="twice"))

    silent_nodes.mark_answering("north")
    assert not silent_nodes.is_silent(node)

    silent_nodes.mark_silent("north")
    clock.now += 60
    assert not silent_nodes.is_silent(node)


def test_an_answer_before_the_lease_expires_renews_it(make: Make, clock: Clock) -> None:
    session = make(SILENT)

    async def scenario() -> None:
        session.follow()
        clock.now += LEASE_S
        runner_of(session).answers[:] = [alive(stamp="back"), SILENT]
        await until(lambda: "back" in runner_of(session).heard())
        clock.now += LEASE_S
        asked = len(runner_of(session).calls)
        await until(lambda: len(runner_of(session).calls) > asked + 3)
        await session.detach()

    play(scenario())

    assert session.state is RemoteState.ALIVE


def test_a_node_that_does_not_know_the_instance_renews_nothing(make: Make, clock: Clock) -> None:
    session = make(PullResult((), is_alive=False, is_all=True, is_known=False, stamp="another machine"))

    async def scenario() -> None:
        session.follow()
        await until(lambda: len(runner_of(session).calls) > 3)
        assert session.state is RemoteState.ALIVE
        clock.now += LEASE_S + MARGIN_S
        await until(lambda: session.state is RemoteState.NODE_LOST)

    play(scenario())

    assert set(runner_of(session).heard()) == {""}


def test_a_runner_may_prove_that_an_instance_lost_its_node(make: Make) -> None:
    session = make(dead(has_lost_node=True))

    async def scenario() -> None:
        session.follow()
        await until(lambda: session.state is RemoteState.NODE_LOST)

    play(scenario())


def test_the_end_of_an_instance_out_of_reach_is_refused_until_its_lease_has_ended(make: Make, clock: Clock) -> None:
    session = make(SILENT)

    async def scenario() -> None:
        clock.now += LEASE_S + MARGIN_S - 1
        with pytest.raises(Unavailable, match="within 1 s"):
            await session.end(patience_s=1)
        assert session.state is RemoteState.ALIVE
        clock.now += 1
        await session.end(patience_s=1)

    play(scenario())

    assert read_remote_state(session.folder) is RemoteState.NODE_LOST


def test_an_end_brings_the_last_bytes_before_the_node_forgets_them(make: Make) -> None:
    some = PullResult([FileChunk("spool", 0, b"first ")], is_alive=False, is_all=False)
    session = make(some, dead(FileChunk("spool", 6, b"last")))

    play(session.end(patience_s=1))

    assert [method for method, _, _ in runner_of(session).calls] == ["end", "pull", "pull", "forget"]
    assert session.folder.spool.read_bytes() == b"first last"
    assert read_remote_state(session.folder) is RemoteState.DEAD


def test_a_command_is_sent_until_it_has_arrived(make: Make) -> None:
    session = make(SILENT, alive(), dead())
    command = Mailbox(session.folder.mailbox).put(CommandKind.STOP, {"reason": "user"})

    async def scenario() -> None:
        session.follow()
        await until(lambda: session.state is RemoteState.DEAD)

    play(scenario())

    assert [call[1][1] for call in runner_of(session).calls] == [[command], [command], []]


def test_the_end_of_an_instance_does_not_depend_on_the_runner_that_it_had(make: Make) -> None:
    session = make(alive(), SILENT)

    async def scenario() -> None:
        session.follow()
        await until(lambda: session.is_out_of_reach)
        await session.detach()
        await session.connect()
        runner_of(session).answers[:] = [SILENT]
        cluster = session._cluster
        assert isinstance(cluster, OneNode)
        cluster.runner = ScriptedRunner(dead())
        await session.end(patience_s=1)

    play(scenario())

    assert session.state is RemoteState.DEAD
    assert [method for method, _, _ in runner_of(session).calls] == ["end", "pull", "forget"]


def test_an_instance_that_was_never_started_has_nothing_to_end(make: Make) -> None:
    session = make(SILENT, state=None)

    play(session.end(patience_s=1))

    assert runner_of(session).calls == []
