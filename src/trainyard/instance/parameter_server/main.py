"""The program that is a server."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import NoReturn

from trainyard.instance.parameter_server.server import Server
from trainyard.instance.parameter_server.state import State
from trainyard.instance.parameter_server.surroundings import Surroundings

log = logging.getLogger(__name__)


def main() -> None:
    """Serve until all workers are done, with what the environment says."""
    logging.basicConfig(level=logging.INFO, format="parameter server: %(message)s")
    signal.signal(signal.SIGTERM, _end)
    serve(Surroundings.of_server(os.environ))


def serve(surroundings: Surroundings) -> None:
    """Serve until all workers are done. What is kept is saved at the end, however it comes."""
    assert surroundings.index is not None, "a server knows its number"
    state = State()
    path = checkpoint_path(surroundings)
    if path is not None and path.exists():
        state.load(path)
        log.info("begins with version %d of %s", state.version, path)
    save = _Saving(state, path)
    server = Server(state, token=surroundings.token, save=save)
    with server.listening(surroundings.servers[surroundings.index]) as address:
        log.info("listens at %s", address)
        try:
            while not server.wait(surroundings.checkpoint_s if path else None):
                save()
        finally:
            save()
    log.info("all workers are done after %d steps", state.version)


def checkpoint_path(surroundings: Surroundings) -> Path | None:
    """Where the server keeps its state. The number of servers is part of it, because it decides what each keeps."""
    if surroundings.checkpoints is None:
        return None
    return surroundings.checkpoints / f"parameters-{surroundings.index}-of-{len(surroundings.servers)}.pt"


class _Saving:
    """Writes the state into its file, if there is to be one, when it has changed."""

    def __init__(self, state: State, path: Path | None) -> None:
        self._state = state
        self._path = path
        self._saved = -1
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            if self._path is None or self._saved == self._state.version:
                return
            version = self._state.version
            self._state.save(self._path)
            self._saved = version


def _end(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
