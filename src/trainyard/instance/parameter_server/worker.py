"""A worker, which pulls parameters from all servers and pushes gradients to them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import torch

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.instance.parameter_server.config import Address, ParameterServerConfig
from trainyard.instance.parameter_server.connection import connect
from trainyard.instance.parameter_server.frames import TensorFrame, receive_frame, send_frame


class Worker:
    """A worker's connection to all servers. Use it in a `with` statement; the worker is done when the block ends.

    `parameters` are those of a model, by name. The worker with rank 0 sets the initial values and the optimizer of the
    servers: `optimizer` is SGD, Adam, AdamW or Adagrad of torch.optim, and `options` are its own, such as lr. With
    `max_staleness`, a server drops gradients that are more steps old than that. `config` is read from the environment
    by default. Not thread-safe.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, torch.Tensor]] | Mapping[str, torch.Tensor],
        *,
        optimizer: str = "SGD",
        max_staleness: int | None = None,
        timeout_s: float = 120.0,
        config: ParameterServerConfig | None = None,
        **options: Any,
    ) -> None:
        config = config or ParameterServerConfig.of_worker(os.environ)
        self.rank, self.size = config.rank, config.size
        # The maximum over all servers for the last push.
        self.staleness = 0
        # How often a server has dropped gradients.
        self.dropped = 0
        self._max_staleness = max_staleness
        self._parameters = dict(parameters)
        self._servers: list[_ServerConnection] = []
        self._pushes: Sequence[Future[TensorFrame]] = ()
        try:
            self._connect(config, timeout_s)
            self._begin(optimizer, options)
        except BaseException:
            self._disconnect()
            raise

    def pull(self) -> None:
        """Copy the current parameters of the servers, which include all that this worker has pushed."""
        self._await_pushes()
        self._store_parameters(server.ask(TensorFrame({"do": "pull"})) for server in self._servers)

    def push(self, gradients: Mapping[str, torch.Tensor] | None = None, **options: Any) -> None:
        """Send gradients, by default those of the parameters; waits for the previous push, but not for this one.

        From this step on, `options`, such as lr, apply to the servers' optimizers for all workers.
        """
        self._await_pushes()
        sent = gradients if gradients is not None else self._own_gradients()
        if unknown := sent.keys() - self._parameters.keys():
            raise InvalidRequest(f"There are gradients for unknown parameters: {', '.join(sorted(unknown))}.")
        self._pushes = [
            server.ask(
                TensorFrame(
                    {"do": "push", "since": server.version, "options": options, "max_staleness": self._max_staleness},
                    {name: _sendable(sent[name], copy=True) for name in server.names if name in sent},
                )
            )
            for server in self._servers
        ]

    def save(self) -> None:
        """Make every server that has a checkpoint folder save its state now."""
        self._await_pushes()
        for answer in [server.ask(TensorFrame({"do": "save"})) for server in self._servers]:
            answer.result()

    def finish(self) -> None:
        """Report that this worker is done, wait until all others are, and pull the final parameters."""
        self._await_pushes()
        self._store_parameters(server.ask(TensorFrame({"do": "finish"})) for server in self._servers)

    def close(self) -> None:
        """Report that this worker is done. Without this, servers wait until the launcher reports that it succeeded."""
        self._await_pushes()
        for answer in [server.ask(TensorFrame({"do": "done"})) for server in self._servers]:
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

    def _connect(self, config: ParameterServerConfig, timeout_s: float) -> None:
        sizes = {name: p.numel() * p.element_size() for name, p in self._parameters.items()}
        for address, names in zip(config.servers, shard_parameters(sizes, len(config.servers)), strict=True):
            self._servers.append(_ServerConnection(address, names, config, timeout_s))

    def _begin(self, optimizer: str, options: Mapping[str, Any]) -> None:
        answers = [
            server.ask(
                TensorFrame(
                    {"do": "begin", "optimizer": optimizer, "options": options},
                    {name: _sendable(self._parameters[name]) for name in server.names} if self.rank == 0 else {},
                )
            )
            for server in self._servers
        ]
        if not all(answer.result().message["is_begun"] for answer in answers):
            raise Unavailable("The worker with rank 0 has not sent its parameters; see its log.")
        self.pull()

    def _store_parameters(self, answers: Iterable[Future[TensorFrame]]) -> None:
        for server, answer in zip(self._servers, list(answers), strict=True):
            frame = answer.result()
            server.version = frame.message["version"]
            with torch.no_grad():
                for name, value in frame.tensors.items():
                    self._parameters[name].copy_(value)

    def _await_pushes(self) -> None:
        """Wait for the answers to the last push."""
        pushes, self._pushes = self._pushes, ()
        if not pushes:
            return
        answers = [push.result().message for push in pushes]
        self.staleness = max(answer["staleness"] for answer in answers)
        self.dropped += sum(not answer["is_applied"] for answer in answers)

    def _own_gradients(self) -> dict[str, torch.Tensor]:
        return {name: p.grad for name, p in self._parameters.items() if p.grad is not None}

    def _disconnect(self) -> None:
        for server in self._servers:
            server.close()


class _ServerConnection:
    """The connection to one server, which answers requests in their order."""

    def __init__(self, address: Address, names: Sequence[str], config: ParameterServerConfig, timeout_s: float) -> None:
        self.names = names
        self.version = 0
        self._address = address
        self._connection = connect(address, config, timeout_s)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"server {address}")

    def ask(self, frame: TensorFrame) -> "Future[TensorFrame]":
        return self._thread.submit(self._exchange, frame)

    def close(self) -> None:
        self._connection.close()
        self._thread.shutdown()

    def _exchange(self, frame: TensorFrame) -> TensorFrame:
        try:
            send_frame(self._connection, frame)
            answer = receive_frame(self._connection)
        except Unavailable as error:
            raise Unavailable(
                f"Lost the connection to the parameter server at {self._address}; see its log."
            ) from error
        if "error" in answer.message:
            raise InvalidRequest(str(answer.message["error"]))
        return answer


def _sendable(tensor: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    dense = tensor.detach() if tensor.layout == torch.strided else tensor.detach().to_dense()
    moved = dense.to("cpu", copy=copy)
    return moved.contiguous()


def shard_parameters(sizes: Mapping[str, int], servers: int) -> list[list[str]]:
    """Assign parameters to servers so that all hold about as many bytes; deterministic for the same sizes."""
    shards: list[list[str]] = [[] for _ in range(servers)]
    loads = [0] * servers
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        least = min(range(servers), key=lambda number: (loads[number], number))
        shards[least].append(name)
        loads[least] += sizes[name]
    return shards
