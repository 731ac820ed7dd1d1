"""What every agent starts with, and the slow way to start one: in a Python of its own."""

import os
import re
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.local.code import AgentCode
from trainyard.engines.local.start import ORPHANED

# The variables that an agent inherits. Others may hold the yard's secrets.
_INHERITED_VARIABLES = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|SSL_CERT_(FILE|DIR)|(PIP|UV|CUDA|NVIDIA)_\w+|\w+_(proxy|PROXY)"
    # podman and docker find their sockets and settings by these.
    r"|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS|(DOCKER|CONTAINERS?)_\w+"
)


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start one agent: its folder, and the descriptors of its locks and of its log."""

    folder: Path
    instance_lock: int
    code_lock: int
    log_descriptor: int

    @property
    def environment(self) -> Mapping[str, str]:
        return agent_environment()


def agent_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _INHERITED_VARIABLES.fullmatch(name)}


def spawn_agent(launch: AgentLaunch, code: AgentCode, *, python: str, orphaned: bool = False) -> int:
    """Start the agent and return its pid. Raises OSError if the machine refuses.

    An `orphaned` agent is not a child of this process. The pid is then that of its parent, which exits at once.
    """
    process = subprocess.Popen(
        [
            *(python, "-I", str(code.agent_program), *([ORPHANED] if orphaned else [])),
            *(str(launch.folder), str(launch.instance_lock), str(launch.code_lock)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=launch.log_descriptor,
        stderr=launch.log_descriptor,
        cwd="/",
        env=launch.environment,
        pass_fds=(launch.instance_lock, launch.code_lock),
        start_new_session=True,
    )
    if not orphaned:
        reap_in_background(process)
    elif process.wait():
        raise OSError(f"the process that starts an agent ended with {process.returncode}")
    return process.pid


def reap_in_background(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a child in a thread, or it would stay a zombie as long as this process lives."""
    threading.Thread(target=process.wait, name=f"reaper-{process.pid}", daemon=True).start()
