"""One worker: it pulls parameters from all servers and pushes gradients to them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import torch

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.instance.parameter_server.connecting import connected
from trainyard.instance.parameter_server.frames import Frame, receive_frame, send_frame
from trainyard.instance.parameter_server.shares import shares
from trainyard.instance.parameter_server.surroundings import Address, Surroundings


class Worker:
    """The connection of a worker with all servers; used with `with`, at the end of which the worker is done.

    `parameters` are those of a model by name. The worker with rank 0 brings the first values and says how the servers
    step: `optimizer` is SGD, Adam, AdamW or Adagrad of torch.optim, `options` are its own, such as lr. Where
    `max_staleness` is given, a server drops gradients that are older by more steps than that. `surroundings` come from
    the environment. For one thread.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, torch.Tensor]] | Mapping[str, torch.Tensor],
        *,
        optimizer: str = "SGD",
        max_staleness: int | None = None,
        timeout_s: float = 120.0,
        surroundings: Surroundings | None = None,
        **options: Any,
    ) -> None:
        around = surroundings or Surroundings.of_worker(os.environ)
        self.rank, self.size = around.rank, around.size
        self.staleness = 0  # of the last gradients that were applied or dropped, at the server where it was most
        self.dropped = 0  # how many times a server has dropped gradients
        self._max_staleness = max_staleness
        self._parameters = dict(parameters)
        self._servers: list[_Server] = []
        self._pushes: Sequence[Future[Frame]] = ()
        try:
            self._connect(around, timeout_s)
            self._begin(optimizer, options)
        except BaseException:
            self._disconnect()
            raise

    def pull(self) -> None:
        """Make the parameters what the servers have now, with all that this worker has pushed."""
        self._settle()
        self._take(server.ask(Frame({"do": "pull"})) for server in self._servers)

    def push(self, gradients: Mapping[str, torch.Tensor] | None = None, **options: Any) -> None:
        """Send gradients, by default those of the parameters, and go on; those of the last push have arrived then.

        `options`, such as lr, are those of the servers' optimizers from this step on, for all workers.
        """
        self._settle()
        given = gradients if gradients is not None else self._own_gradients()
        if unknown := given.keys() - self._parameters.keys():
            raise InvalidRequest(f"There are gradients of {', '.join(sorted(unknown))}, which are no parameters.")
        self._pushes = [
            server.ask(
                Frame(
                    {"do": "push", "since": server.version, "options": options, "max_staleness": self._max_staleness},
                    {name: _sendable(given[name], copy=True) for name in server.names if name in given},
                )
            )
            for server in self._servers
        ]

    def save(self) -> None:
        """Have every server write its checkpoint now, where it has a folder for that."""
        self._settle()
        for answer in [server.ask(Frame({"do": "save"})) for server in self._servers]:
            answer.result()

    def finish(self) -> None:
        """Be done, wait until all other workers are, and pull the parameters that come out of it."""
        self._settle()
        self._take(server.ask(Frame({"do": "finish"})) for server in self._servers)

    def close(self) -> None:
        """Be done. Without this, a server waits until the launcher says that the process has ended well."""
        self._settle()
        for answer in [server.ask(Frame({"do": "done"})) for server in self._servers]:
            answer.result()
        self._disconnect()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._disconnect()

    def _connect(self, around: Surroundings, timeout_s: float) -> None:
        sizes = {name: p.numel() * p.element_size() for name, p in self._parameters.items()}
        for address, names in zip(around.servers, shares(sizes, len(around.servers)), strict=True):
            self._servers.append(_Server(address, names, around, timeout_s))

    def _begin(self, optimizer: str, options: Mapping[str, Any]) -> None:
        answers = [
            server.ask(
                Frame(
                    {"do": "begin", "optimizer": optimizer, "options": options},
                    {name: _sendable(self._parameters[name]) for name in server.names} if self.rank == 0 else {},
                )
            )
            for server in self._servers
        ]
        if not all(answer.result().words["is_begun"] for answer in answers):
            raise Unavailable("The worker with rank 0 has brought no parameters; see its log.")
        self.pull()

    def _take(self, answers: Iterable[Future[Frame]]) -> None:
        for server, answer in zip(self._servers, list(answers), strict=True):
            frame = answer.result()
            server.version = frame.words["version"]
            with torch.no_grad():
                for name, value in frame.tensors.items():
                    self._parameters[name].copy_(value)

    def _settle(self) -> None:
        """Wait for the last push."""
        pushes, self._pushes = self._pushes, ()
        if not pushes:
            return
        answers = [push.result().words for push in pushes]
        self.staleness = max(answer["staleness"] for answer in answers)
        self.dropped += sum(not answer["is_applied"] for answer in answers)

    def _own_gradients(self) -> dict[str, torch.Tensor]:
        return {name: p.grad for name, p in self._parameters.items() if p.grad is not None}

    def _disconnect(self) -> None:
        for server in self._servers:
            server.close()


class _Server:
    """The connection with one server, whose answers come in the order of the questions."""

    def __init__(self, address: Address, names: Sequence[str], around: Surroundings, timeout_s: float) -> None:
        self.names = names
        self.version = 0
        self._address = address
        self._connection = connected(address, around, timeout_s)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"server {address}")

    def ask(self, frame: Frame) -> "Future[Frame]":
        return self._thread.submit(self._exchange, frame)

    def close(self) -> None:
        self._connection.close()
        self._thread.shutdown()

    def _exchange(self, frame: Frame) -> Frame:
        try:
            send_frame(self._connection, frame)
            answer = receive_frame(self._connection)
        except Unavailable as error:
            raise Unavailable(f"The parameter server at {self._address} has gone away; see its log.") from error
        if "error" in answer.words:
            raise InvalidRequest(str(answer.words["error"]))
        return answer


def _sendable(tensor: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    moved = dense.to("cpu", copy=copy)
    return moved.contiguous()
