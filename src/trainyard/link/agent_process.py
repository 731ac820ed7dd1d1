"""Which process the agent of an instance is. The agent writes it before anything else."""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.files import replace_file
from trainyard.foundation.home import process_start
from trainyard.link.folders import InstanceFolder


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process. `started` distinguishes it from a later one with the same pid."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return process_start(self.pid) == self.started


def announce_agent(folder: Path) -> ProcessIdentity:
    """Record that this process is the agent of the instance."""
    pid = os.getpid()
    presence = ProcessIdentity(pid, process_start(pid) or "")
    replace_file(InstanceFolder(folder).agent, json.dumps(dataclasses.asdict(presence)).encode())
    return presence


def find_agent_process(folder: Path) -> ProcessIdentity | None:
    """Return the process that announced itself as the agent, alive or not; None if none did."""
    file = InstanceFolder(folder).agent
    try:
        values = json.loads(file.read_bytes())
        return ProcessIdentity(values["pid"], values["started"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{file} does not say which process the agent is: {error}.") from error
