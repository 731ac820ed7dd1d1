"""A parameter server: answers workers, each on its own thread, until all of them are done."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotPermitted, TrainyardError, Unavailable
from trainyard.instance.parameter_server.config import Address
from trainyard.instance.parameter_server.connection import Peer, authenticate_worker
from trainyard.instance.parameter_server.frames import TensorFrame, receive_frame, send_frame
from trainyard.instance.parameter_server.state import ParameterState

log = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT_S = 10.0
# For the worker that sends the initial values.
_BEGIN_TIMEOUT_S = 600.0


class ParameterServer:
    """Serves the values of a state at one address.

    If a worker disappears, its complete requests are applied and an incomplete one is dropped.
    """

    def __init__(self, state: ParameterState, *, token: str, save: Callable[[], None]) -> None:
        self._state = state
        self._token = token
        self._save = save
        self._changed = threading.Condition()
        self._size: int | None = None
        self._done: set[int] = set()
        self._open = 0
        self._answers: Mapping[str, Callable[[TensorFrame, Peer], TensorFrame]] = {
            "begin": self._begin,
            "pull": self._pull,
            "push": self._push,
            "save": self._save_now,
            "done": self._mark_done,
            "finish": self._finish,
        }

    @contextmanager
    def listening(self, address: Address) -> Iterator[Address]:
        """Listen at this address only, and yield it with its real port if the port was 0."""
        with socket.create_server((address.host, address.port), backlog=128) as listener:
            thread = threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True)
            thread.start()
            try:
                yield Address(address.host, listener.getsockname()[1])
            finally:
                # A closed socket would keep listening as long as a thread accepts from it.
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every worker is done and disconnected; return False if time runs out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._all_done() and not self._open, timeout_s)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                # The listener was shut down.
                return
            threading.Thread(target=self._serve_worker, args=(connection,), daemon=True).start()

    def _serve_worker(self, connection: socket.socket) -> None:
        """Answer one worker until it disconnects."""
        with connection:
            try:
                connection.settimeout(_HANDSHAKE_TIMEOUT_S)
                peer = authenticate_worker(connection, self._token)
            except TrainyardError as error:
                if isinstance(error, NotPermitted):
                    log.warning("worker refused: %s", error)
                return
            connection.settimeout(None)
            _enable_keepalive(connection)
            self._add_worker(peer)
            try:
                while True:
                    send_frame(connection, self._answer(receive_frame(connection), peer))
            except Unavailable:
                return
            except TrainyardError as error:
                log.warning("connection of worker %d closed: %s", peer.rank, error)
            finally:
                self._remove_worker()

    def _answer(self, frame: TensorFrame, peer: Peer) -> TensorFrame:
        try:
            answer = self._answers.get(str(frame.message.get("do")))
            if answer is None:
                raise InvalidRequest(f'A parameter server has no request "{frame.message.get("do")}".')
            return answer(frame, peer)
        except TrainyardError as error:
            return TensorFrame({"error": str(error)})
        except (KeyError, TypeError, ValueError) as error:
            return TensorFrame(
                {"error": f'A parameter server cannot read this "{frame.message.get("do")}": {error!r}.'}
            )

    def _begin(self, frame: TensorFrame, peer: Peer) -> TensorFrame:
        """Set the initial values if this is the worker with rank 0; the others wait for them."""
        if peer.rank == 0:
            self._state.begin(frame.tensors, str(frame.message["optimizer"]), frame.message["options"])
        return TensorFrame({"is_begun": self._state.wait(_BEGIN_TIMEOUT_S)})

    def _pull(self, _frame: TensorFrame, _peer: Peer) -> TensorFrame:
        version, tensors = self._state.pull()
        return TensorFrame({"version": version}, tensors)

    def _push(self, frame: TensorFrame, _peer: Peer) -> TensorFrame:
        message = frame.message
        pushed = self._state.push(
            frame.tensors, since=message["since"], options=message["options"], max_staleness=message["max_staleness"]
        )
        return TensorFrame({"version": pushed.version, "staleness": pushed.staleness, "is_applied": pushed.is_applied})

    def _save_now(self, _frame: TensorFrame, _peer: Peer) -> TensorFrame:
        self._save()
        return TensorFrame({})

    def _mark_done(self, _frame: TensorFrame, peer: Peer) -> TensorFrame:
        with self._changed:
            self._done.add(peer.rank)
            self._changed.notify_all()
        return TensorFrame({})

    def _finish(self, frame: TensorFrame, peer: Peer) -> TensorFrame:
        """Return the values after the last gradient of all workers."""
        self._mark_done(frame, peer)
        with self._changed:
            self._changed.wait_for(self._all_done)
        return self._pull(frame, peer)

    def _all_done(self) -> bool:
        return self._size is not None and len(self._done) == self._size

    def _add_worker(self, peer: Peer) -> None:
        with self._changed:
            self._size = peer.size
            self._open += 1
            # The worker may have been restarted.
            self._done.discard(peer.rank)

    def _remove_worker(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()


def _enable_keepalive(connection: socket.socket) -> None:
    """Notice within two minutes that the machine at the other end has disappeared without closing the connection."""
    options: Any = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in options:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
