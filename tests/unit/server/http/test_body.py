import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest

from trainyard.server.http.body import (
    ACCOUNT_LIMIT_BYTES,
    GRACE_S,
    MIN_RATE_BYTES_PER_S,
    STALL_TIMEOUT_S,
    BodyIntake,
    ParserThread,
    RequestBody,
    read_whole,
)
from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers


class Client:
    """A client that sends the pieces of a body on demand."""

    def __init__(self, intake: BodyIntake) -> None:
        self._pieces: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self.body = RequestBody(
            self._pieces.get, Headers([("content-length", "9000000")]), intake=intake, wake=lambda: self.send(b"")
        )

    def send(self, data: bytes, *, is_last: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": data, "more_body": not is_last})

    def read(self, intake: BodyIntake, address: str = "here") -> "asyncio.Task[bytes]":
        self.body.hold = lambda size_bytes: intake.hold(self.body, address, size_bytes)
        return asyncio.create_task(read_whole(self.body, 10_000_000, route=None))


async def _until_waiting(*clients: Client) -> None:
    while any(client.body.waiting_since is None for client in clients):
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def _fault(task: "asyncio.Task[bytes]") -> Fault:
    with pytest.raises(Fault) as caught:
        await task
    return caught.value


def test_a_stalled_body_is_aborted_with_a_reason() -> None:
    async def scenario() -> Fault:
        intake = BodyIntake()
        client = Client(intake)
        reading = client.read(intake)
        client.send(bytes(1_000_000))
        await _until_waiting(client)
        since = client.body.waiting_since
        assert since is not None
        intake.abort_slow(since + STALL_TIMEOUT_S - 1)
        assert not client.body.is_aborted
        intake.abort_slow(since + STALL_TIMEOUT_S + 1)
        return await _fault(reading)

    fault = asyncio.run(scenario())
    assert fault.code == "RequestTimeout"
    assert "1000000 bytes in 31 s" in fault.message
    assert "Send it again" in fault.message


def test_a_trickling_body_is_aborted_and_a_slow_one_is_not() -> None:
    async def scenario(rate: float) -> bool:
        intake = BodyIntake()
        client = Client(intake)
        reading = client.read(intake)
        client.send(bytes(int(rate * 100)))
        await _until_waiting(client)
        client.body.waited_s = 100 + GRACE_S - 2
        since = client.body.waiting_since
        assert since is not None
        intake.abort_slow(since + 1)
        reading.cancel()
        return client.body.is_aborted

    assert asyncio.run(scenario(MIN_RATE_BYTES_PER_S * 0.9))
    assert not asyncio.run(scenario(MIN_RATE_BYTES_PER_S * 1.1))


def test_unauthenticated_bodies_have_a_memory_limit_and_the_oldest_makes_room() -> None:
    async def scenario() -> None:
        intake = BodyIntake(limit_bytes=1000)
        first, second, good = Client(intake), Client(intake), Client(intake)
        tasks = [client.read(intake) for client in (first, second)]
        for client in (first, second):
            client.send(bytes(450))
            await _until_waiting(client)
        assert intake.held_bytes == 900
        reading = good.read(intake)
        good.send(bytes(199))
        good.send(b"0", is_last=True)
        assert await reading == bytes(199) + b"0"
        intake.release(good.body)
        fault = await _fault(tasks[0])
        assert (fault.code, fault.status) == ("SlowDown", 503)
        assert not second.body.is_aborted
        assert intake.held_bytes == 450
        tasks[1].cancel()

    asyncio.run(scenario())


def test_the_address_that_holds_most_makes_room_for_others() -> None:
    async def scenario() -> None:
        intake = BodyIntake(limit_bytes=1000)
        small, greedy, other = Client(intake), Client(intake), Client(intake)
        tasks = [small.read(intake, "small"), greedy.read(intake, "greedy")]
        small.send(bytes(100))
        await _until_waiting(small)
        greedy.send(bytes(800))
        await _until_waiting(greedy)
        reading = other.read(intake, "other")
        other.send(bytes(300))
        other.send(b"0", is_last=True)
        await reading
        assert greedy.body.is_aborted
        assert not small.body.is_aborted
        await _fault(tasks[1])
        tasks[0].cancel()

    asyncio.run(scenario())


def test_a_body_larger_than_the_limit_is_refused() -> None:
    async def scenario() -> Fault:
        intake = BodyIntake(limit_bytes=1000)
        client = Client(intake)
        reading = client.read(intake)
        client.send(bytes(900))
        await _until_waiting(client)
        client.send(bytes(900))
        return await _fault(reading)

    assert asyncio.run(scenario()).status == 503


def test_an_account_at_its_limit_is_refused_further_bodies_and_others_are_not() -> None:
    intake = BodyIntake()

    def begin(account: str) -> RequestBody:
        body = Client(intake).body
        intake.hold_for_account(body, account, 900_000)
        return body

    async def scenario() -> None:
        many = [begin("many") for _ in range(ACCOUNT_LIMIT_BYTES // 900_000 + 1)]
        with pytest.raises(Fault, match="this account hold 128 MiB") as caught:
            begin("many")
        assert caught.value.status == 503
        # A body that has started continues, and only its buffer counts.
        intake.hold_for_account(many[0], "many", 10**9)
        begin("other")
        for body in many[:3]:
            intake.release(body)
        begin("many")

    asyncio.run(scenario())


def test_an_account_that_sends_many_bodies_does_not_delay_another() -> None:
    done: list[str] = []
    gate = threading.Event()

    async def scenario() -> None:
        parsing = ParserThread()
        many = [asyncio.create_task(parsing.run("many", lambda: _work("many"))) for _ in range(10)]
        await asyncio.sleep(0)
        one = asyncio.create_task(parsing.run("one", lambda: _work("one")))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*many, one)

    def _work(account: str) -> None:
        assert gate.wait(30)
        done.append(account)

    asyncio.run(scenario())
    assert done == ["many", "one", *["many"] * 9]
