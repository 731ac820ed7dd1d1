"""The parameter server's program."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import NoReturn

from trainyard.instance.parameter_server.config import ParameterServerConfig
from trainyard.instance.parameter_server.server import ParameterServer
from trainyard.instance.parameter_server.state import ParameterState

log = logging.getLogger(__name__)


def main() -> None:
    """Serve until all workers are done, as configured by the environment."""
    logging.basicConfig(level=logging.INFO, format="parameter server: %(message)s")
    signal.signal(signal.SIGTERM, _end)
    serve(ParameterServerConfig.of_server(os.environ))


def serve(config: ParameterServerConfig) -> None:
    """Serve until all workers are done. The state is saved at the end, however that comes about."""
    assert config.index is not None, "a server has an index"
    state = ParameterState()
    path = checkpoint_path(config)
    if path is not None and path.exists():
        state.load(path)
        log.info("restored version %d from %s", state.version, path)
    save = _CheckpointWriter(state, path)
    server = ParameterServer(state, token=config.token, save=save)
    with server.listening(config.servers[config.index]) as address:
        log.info("listening at %s", address)
        try:
            while not server.wait(config.checkpoint_s if path else None):
                save()
        finally:
            save()
    log.info("all workers are done after %d steps", state.version)


def checkpoint_path(config: ParameterServerConfig) -> Path | None:
    """Return the checkpoint file. It has the number of servers in its name, since that decides what each one holds."""
    if config.checkpoints is None:
        return None
    return config.checkpoints / f"parameters-{config.index}-of-{len(config.servers)}.pt"


class _CheckpointWriter:
    """Saves the state when it has changed, if there is a checkpoint file."""

    def __init__(self, state: ParameterState, path: Path | None) -> None:
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
