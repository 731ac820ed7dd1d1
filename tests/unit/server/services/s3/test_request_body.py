import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

import pytest

from tests.unit.server.services.s3.front import NOON, Body
from trainyard.objects.contract import ANY_STATE, Checksum, ObjectWriter, Precondition, WriteResult
from trainyard.server.services.s3.request_body import BATCH_BYTES, receive_body
from trainyard.wire.fault import Fault


class Recorder:
    """A writer that records its calls, and checks that only one thread calls it at a time."""

    def __init__(self, *, slow: threading.Event | None = None, breaks: bool = False) -> None:
        self.batches: list[bytes] = []
        self.outcome = "open"
        self.slow, self.breaks = slow, breaks
        self.writing = threading.Event()
        self.lock = threading.Lock()
        self.threads: set[int] = set()

    def begin(self) -> ObjectWriter:
        return self

    def write(self, data: bytes) -> None:
        assert self.lock.acquire(blocking=False), "a writer is used by one thread at a time"
        self.threads.add(threading.get_ident())
        self.writing.set()
        if self.slow is not None:
            assert self.slow.wait(10), "the test lets the write go on"
        self.batches.append(data)
        self.lock.release()
        if self.breaks:
            raise OSError("disk full")

    def commit(
        self,
        *,
        now: datetime,
        expected: Sequence[Checksum] = (),
        md5: str | None = None,
        precondition: Precondition = ANY_STATE,
    ) -> WriteResult:
        assert not self.lock.locked(), "a writer is used by one thread at a time"
        self.outcome = "committed"
        return WriteResult("etag", sum(map(len, self.batches)), now)

    def abort(self) -> None:
        assert not self.lock.locked(), "a writer is used by one thread at a time"
        if self.outcome == "open":
            self.outcome = "aborted"

    def finish(self, writer: ObjectWriter) -> WriteResult:
        return writer.commit(now=NOON)


def received(recorder: Recorder, body: Body, size: int) -> WriteResult:
    return asyncio.run(receive_body(body, size, begin=recorder.begin, finish=recorder.finish))


def test_a_small_body_is_written_at_once() -> None:
    recorder = Recorder()
    assert received(recorder, Body([b"ab", b"cd"]), 4).size == 4
    assert (recorder.batches, recorder.outcome) == ([b"abcd"], "committed")
    assert threading.get_ident() not in recorder.threads


def test_a_large_body_is_written_in_batches() -> None:
    recorder = Recorder()
    pieces = [bytes([number]) * 400_000 for number in range(12)]
    assert received(recorder, Body(pieces), 4_800_000).size == 4_800_000
    assert b"".join(recorder.batches) == b"".join(pieces)
    assert all(BATCH_BYTES <= len(batch) < 2 * BATCH_BYTES for batch in recorder.batches[:-1])


def test_a_small_body_that_breaks_off_is_never_begun() -> None:
    recorder = Recorder()
    with pytest.raises(ConnectionError):
        received(recorder, Body([b"x" * 10], breaks_with=ConnectionError("gone")), 20)
    assert (recorder.outcome, recorder.batches) == ("open", [])


def test_a_large_body_that_breaks_off_is_aborted() -> None:
    recorder = Recorder()
    with pytest.raises(ConnectionError):
        received(recorder, Body([b"x" * BATCH_BYTES] * 2, breaks_with=ConnectionError("gone")), 3 * BATCH_BYTES)
    assert recorder.outcome == "aborted"


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_write_that_fails_is_aborted(pieces: int) -> None:
    recorder = Recorder(breaks=True)
    with pytest.raises(OSError, match="disk full"):
        received(recorder, Body([b"x" * BATCH_BYTES] * pieces), pieces * BATCH_BYTES)
    assert recorder.outcome == "aborted"


@pytest.mark.parametrize("announced", [2 * BATCH_BYTES - 1, 2 * BATCH_BYTES + 1])
def test_a_large_body_of_another_length_than_announced_is_aborted(announced: int) -> None:
    recorder = Recorder()
    with pytest.raises(Fault, match="announced"):
        received(recorder, Body([b"x" * BATCH_BYTES] * 2), announced)
    assert recorder.outcome == "aborted"


class Stalled:
    """A body that stalls after one batch."""

    trailers: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.is_stalled = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x" * BATCH_BYTES
        self.is_stalled.set()
        await asyncio.Event().wait()


def test_a_receiver_that_is_cancelled_waits_for_its_thread_and_aborts() -> None:
    recorder = Recorder(slow=threading.Event())

    async def scenario() -> None:
        body = Stalled()
        task = asyncio.create_task(receive_body(body, 10 * BATCH_BYTES, begin=recorder.begin, finish=recorder.finish))
        await body.is_stalled.wait()
        await asyncio.to_thread(recorder.writing.wait, 10)
        task.cancel()
        await asyncio.sleep(0)
        assert recorder.outcome == "open", "the thread still writes"
        assert recorder.slow is not None
        recorder.slow.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert recorder.outcome == "aborted"
