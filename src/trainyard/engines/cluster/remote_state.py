"""The state of an instance on a node, as far as the yard knows it: a small file in its mirror.

The proxy writes it, and the engine reads it whether the proxy runs or not. The file exists from just before the
instance is asked to start: without it, nothing of the instance can be running.
"""

import json
from enum import StrEnum

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import replace_file
from trainyard.link.folders import InstanceFolder

_NAME = "standing.json"


class RemoteState(StrEnum):
    """STARTING: asked to start, and may run or not. NODE_LOST: dead because its node went away."""

    STARTING = "starting"
    ALIVE = "alive"
    DEAD = "dead"
    NODE_LOST = "taken"

    @property
    def may_run(self) -> bool:
        return self in (RemoteState.STARTING, RemoteState.ALIVE)


def read_remote_state(folder: InstanceFolder) -> RemoteState | None:
    """Return the state of an instance; None if it was never asked to start."""
    file = folder.root / _NAME
    try:
        return RemoteState(json.loads(file.read_bytes())["standing"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{file} holds no valid state of an instance: {error}.") from error


def write_remote_state(folder: InstanceFolder, state: RemoteState) -> None:
    replace_file(folder.root / _NAME, json.dumps({"standing": state.value}).encode())
