"""One server: it answers workers, each in a thread of its own, until all of them are done."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotPermitted, TrainyardError, Unavailable
from trainyard.instance.parameter_server.frames import Frame, receive_frame, send_frame
from trainyard.instance.parameter_server.state import State
from trainyard.instance.parameter_server.surroundings import Address
from trainyard.instance.parameter_server.trust import Peer, greet_worker

log = logging.getLogger(__name__)

_GREETING_S = 10.0
_WAIT_S = 600.0  # for the worker that brings the first values


class Server:
    """Answers at one address with the values of a state.

    A worker that goes away takes nothing with it: what it had sent whole is applied, the rest was never there.
    """

    def __init__(self, state: State, *, token: str, save: Callable[[], None]) -> None:
        self._state = state
        self._token = token
        self._save = save
        self._changed = threading.Condition()
        self._size: int | None = None
        self._done: set[int] = set()
        self._open = 0
        self._answers: Mapping[str, Callable[[Frame, Peer], Frame]] = {
            "begin": self._begin,
            "pull": self._pull,
            "push": self._push,
            "save": self._save_now,
            "done": self._mark_done,
            "finish": self._finish,
        }

    @contextmanager
    def listening(self, address: Address) -> Iterator[Address]:
        """Answer at the address, and at no other one of this machine; what it is where its port was 0."""
        with socket.create_server((address.host, address.port), backlog=128) as listener:
            accepting = threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True)
            accepting.start()
            try:
                yield Address(address.host, listener.getsockname()[1])
            finally:
                listener.shutdown(socket.SHUT_RDWR)  # a closed one would go on as long as a thread accepts from it
                accepting.join()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every worker is done and gone; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._all_done() and not self._open, timeout_s)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was shut down, at the end
                return
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: socket.socket) -> None:
        """Answer one worker until it goes."""
        with connection:
            try:
                connection.settimeout(_GREETING_S)
                peer = greet_worker(connection, self._token)
            except TrainyardError as error:
                if isinstance(error, NotPermitted):
                    log.warning("worker refused: %s", error)
                return
            connection.settimeout(None)
            _watch_for_silence(connection)
            self._came(peer)
            try:
                while True:
                    send_frame(connection, self._answer(receive_frame(connection), peer))
            except Unavailable:
                return
            except TrainyardError as error:
                log.warning("connection of worker %d closed: %s", peer.rank, error)
            finally:
                self._went()

    def _answer(self, frame: Frame, peer: Peer) -> Frame:
        try:
            answer = self._answers.get(str(frame.words.get("do")))
            if answer is None:
                raise InvalidRequest(f'A parameter server does not know "{frame.words.get("do")}".')
            return answer(frame, peer)
        except TrainyardError as error:
            return Frame({"error": str(error)})
        except (KeyError, TypeError, ValueError) as error:
            return Frame({"error": f'A parameter server cannot read this "{frame.words.get("do")}": {error!r}.'})

    def _begin(self, frame: Frame, peer: Peer) -> Frame:
        """Only the worker with rank 0 brings values; the others wait for them."""
        if peer.rank == 0:
            self._state.begin(frame.tensors, str(frame.words["optimizer"]), frame.words["options"])
        return Frame({"is_begun": self._state.wait(_WAIT_S)})

    def _pull(self, _frame: Frame, _peer: Peer) -> Frame:
        version, tensors = self._state.pull()
        return Frame({"version": version}, tensors)

    def _push(self, frame: Frame, _peer: Peer) -> Frame:
        words = frame.words
        pushed = self._state.push(
            frame.tensors, since=words["since"], options=words["options"], max_staleness=words["max_staleness"]
        )
        return Frame({"version": pushed.version, "staleness": pushed.staleness, "is_applied": pushed.is_applied})

    def _save_now(self, _frame: Frame, _peer: Peer) -> Frame:
        self._save()
        return Frame({})

    def _mark_done(self, _frame: Frame, peer: Peer) -> Frame:
        with self._changed:
            self._done.add(peer.rank)
            self._changed.notify_all()
        return Frame({})

    def _finish(self, frame: Frame, peer: Peer) -> Frame:
        """Give the values after the last gradient of all."""
        self._mark_done(frame, peer)
        with self._changed:
            self._changed.wait_for(self._all_done)
        return self._pull(frame, peer)

    def _all_done(self) -> bool:
        return self._size is not None and len(self._done) == self._size

    def _came(self, peer: Peer) -> None:
        with self._changed:
            self._size = peer.size
            self._open += 1
            self._done.discard(peer.rank)  # it was started again

    def _went(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()


def _watch_for_silence(connection: socket.socket) -> None:
    """Notice within two minutes that the machine at the other end is gone, which sends nothing any more."""
    options: Any = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in options:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
