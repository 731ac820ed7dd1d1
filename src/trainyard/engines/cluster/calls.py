"""How an engine and its ferry speak: JSON, one object a line, over a pair of sockets.

    {"id": 7, "method": "start", "arguments": {…}}      from the engine, any number at once
    {"id": 7, "result": …}                              from the ferry, in any order
    {"id": 7, "error": {"kind": …, "arguments": […]}}   or this

The ferry may run on a thread of the same process or in one of its own. Either side knows by the end of the stream that
the other is gone.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from trainyard.engines.cluster.contract import ClusterNode
from trainyard.engines.cluster.ferry import Ferry
from trainyard.engines.contract import AttemptRef, InstanceRef, Node
from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, TrainyardError, Unavailable

log = logging.getLogger(__name__)

_SENT_WITHIN = struct.pack("@ll", 5, 0)  # a struct timeval: a ferry that reads nothing for so long is given up
_LONGEST_LINE = 16 * 1024**2  # the nodes of a large cluster

_ERRORS: Mapping[str, type[TrainyardError]] = {
    each.__name__: each for each in (Conflict, InvalidRequest, NotFound, Unavailable)
}


# What a call is for, in messages.
_WISHES: Mapping[str, str] = {
    "nodes": "when it was asked for its nodes",
    "start": "when it was to start instances",
    "end": "when it was to end instances",
    "tell": "when it was to pass a command on",
    "ping": "at all",
}


class Caller:
    """The engine's side of one ferry. Safe to share between threads."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SENT_WITHIN)
        self._connection = connection
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._awaited: dict[int, Future[Any]] = {}
        self._is_gone = threading.Event()
        threading.Thread(target=self._receive, name="ferry-answers", daemon=True).start()

    def nodes(self, *, timeout_s: float) -> tuple[ClusterNode, ...]:
        return tuple(map(_node, self._call("nodes", {}, timeout_s=timeout_s)))

    def start(self, attempt: AttemptRef, names: Sequence[str], *, timeout_s: float) -> None:
        self._call("start", {**_values(attempt), "names": list(names)}, timeout_s=timeout_s)

    def end(self, attempt: AttemptRef, *, patience_s: float, timeout_s: float) -> None:
        self._call("end", {**_values(attempt), "patience_s": patience_s}, timeout_s=timeout_s)

    def tell(self, instance: InstanceRef, *, timeout_s: float) -> None:
        self._call("tell", {**_values(instance.attempt), "name": instance.name}, timeout_s=timeout_s)

    def ping(self, *, timeout_s: float) -> None:
        """Unavailable when the ferry does not answer at all."""
        self._call("ping", {}, timeout_s=timeout_s)

    def wait_until_gone(self, timeout_s: float) -> bool:
        """Whether the ferry is gone before the time is over."""
        return self._is_gone.wait(timeout_s)

    def close(self) -> None:
        """Let go of the ferry, which ends then."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _call(self, method: str, arguments: Mapping[str, Any], *, timeout_s: float) -> Any:
        number, answer = next(self._ids), Future[Any]()
        self._awaited[number] = answer
        line = json.dumps({"id": number, "method": method, "arguments": arguments}).encode() + b"\n"
        try:
            self._send(line)
            if self._is_gone.is_set():  # and may have been before this call was among those awaited
                raise _gone()
            return answer.result(timeout_s)
        except TimeoutError as error:
            raise Unavailable(f"The cluster has not answered within {timeout_s:g} s {_WISHES[method]}.") from error
        finally:
            self._awaited.pop(number, None)

    def _send(self, line: bytes) -> None:
        try:
            with self._sending:
                self._connection.sendall(line)
        except OSError as error:  # part of the line may be on its way, so that nothing can follow it
            self.close()
            raise _gone() from error

    def _receive(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    self._settle(json.loads(line))
        except (OSError, ValueError) as error:
            log.warning("a ferry cannot be heard any more", extra={"why": str(error)})
        self._is_gone.set()
        for answer in list(self._awaited.values()):
            with contextlib.suppress(Exception):  # it has come just now
                answer.set_exception(_gone())
        self._connection.close()

    def _settle(self, message: Mapping[str, Any]) -> None:
        answer = self._awaited.get(message["id"])
        if answer is None:  # nobody waits for it any more
            return
        if "error" in message:
            answer.set_exception(raised(message["error"]))
        else:
            answer.set_result(message["result"])


async def serve(connection: socket.socket, ferry: Ferry) -> None:
    """Answer the calls of an engine until it is gone."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=_LONGEST_LINE)
    tasks: set[asyncio.Task[None]] = set()
    try:
        while line := await reader.readline():
            task = asyncio.create_task(_answer(json.loads(line), ferry, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    except ConnectionError:
        pass
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()


async def _answer(request: Mapping[str, Any], ferry: Ferry, writer: asyncio.StreamWriter) -> None:
    answer: dict[str, Any] = {"id": request["id"]}
    try:
        answer["result"] = await _METHODS[request["method"]](ferry, **request["arguments"])
    except TrainyardError as error:
        answer["error"] = told(error)
    except Exception as error:
        log.exception("a call to the ferry failed", extra={"method": request["method"]})
        answer["error"] = {"kind": "Unavailable", "arguments": [f"The ferry failed: {error!r}."]}
    with contextlib.suppress(ConnectionError):
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


async def _ping(ferry: Ferry) -> None:
    """Nothing: that there is an answer is all."""


async def _nodes(ferry: Ferry) -> list[dict[str, Any]]:
    return [dataclasses.asdict(each) for each in await ferry.nodes()]


async def _start(ferry: Ferry, *, job_id: str, attempt: int, names: Sequence[str]) -> None:
    await ferry.start(AttemptRef(job_id, attempt), names)


async def _end(ferry: Ferry, *, job_id: str, attempt: int, patience_s: float) -> None:
    await ferry.end(AttemptRef(job_id, attempt), patience_s=patience_s)


async def _tell(ferry: Ferry, *, job_id: str, attempt: int, name: str) -> None:
    ferry.tell(InstanceRef(AttemptRef(job_id, attempt), name))


_METHODS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "ping": _ping,
    "nodes": _nodes,
    "start": _start,
    "end": _end,
    "tell": _tell,
}


def _values(attempt: AttemptRef) -> dict[str, Any]:
    return {"job_id": attempt.job_id, "attempt": attempt.attempt}


def _node(values: Mapping[str, Any]) -> ClusterNode:
    node = Node(**{**values["node"], "gpus": tuple(values["node"]["gpus"])})
    return ClusterNode(**{**values, "node": node})


def told(error: TrainyardError) -> dict[str, Any]:
    """An error as it is sent to another process."""
    if isinstance(error, Conflict):
        return {"kind": "Conflict", "arguments": [error.kind, error.name, error.why]}
    if isinstance(error, NotFound):
        return {"kind": "NotFound", "arguments": [error.kind, error.name]}
    kind = "InvalidRequest" if isinstance(error, InvalidRequest) else "Unavailable"
    return {"kind": kind, "arguments": [error.message]}


def raised(values: Mapping[str, Any]) -> TrainyardError:
    """The error that another process has sent."""
    return _ERRORS[values["kind"]](*values["arguments"])


def _gone() -> Unavailable:
    return Unavailable("What goes between this yard and its cluster has ended; it is started again.")
