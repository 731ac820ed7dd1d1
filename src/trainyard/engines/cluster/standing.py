"""How an instance on a node stands, as far as the yard knows: a small file beside its mirror.

The ferry writes it, and whoever asks the engine reads it, whether the ferry runs or not. The file is there from just
before the instance is asked to start: where there is none, nothing of it can run.
"""

import json
from enum import StrEnum

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import replace_file
from trainyard.link.folders import InstanceFolder

_NAME = "standing.json"


class Standing(StrEnum):
    STARTING = "starting"  # it was asked to start, and may run or not
    ALIVE = "alive"
    DEAD = "dead"
    TAKEN = "taken"  # dead, and not by a fault of its own

    @property
    def may_run(self) -> bool:
        return self in (Standing.STARTING, Standing.ALIVE)


def standing_of(folder: InstanceFolder) -> Standing | None:
    """How an instance stands; None when it was never asked to start."""
    file = folder.root / _NAME
    try:
        return Standing(json.loads(file.read_bytes())["standing"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{file} does not say how the instance stands: {error}.") from error


def write_standing(folder: InstanceFolder, standing: Standing) -> None:
    replace_file(folder.root / _NAME, json.dumps({"standing": standing.value}).encode())
