"""What every agent is born with, and the slow birth: a Python of its own."""

import os
import re
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard.engines.local.code import AgentCode
from trainyard.engines.local.start import ORPHANED

# What an agent may know of the yard's environment; the rest may hold the yard's secrets.
_PASSED_ON = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|SSL_CERT_(FILE|DIR)|(PIP|UV|CUDA|NVIDIA)_\w+|\w+_(proxy|PROXY)"
    # By which podman and docker find their own.
    r"|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS|(DOCKER|CONTAINERS?)_\w+"
)


@dataclass(frozen=True, slots=True)
class Birth:
    """One agent to be. `held` and `using` are the holds on its instance and on its code, `log` is for what it says."""

    folder: Path
    held: int
    using: int
    log: int

    @property
    def environment(self) -> Mapping[str, str]:
        return agent_environment()


def agent_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}


def spawn(birth: Birth, code: AgentCode, *, python: str, orphaned: bool = False) -> int:
    """Start the agent and return its pid; OSError when the machine refuses.

    One that is `orphaned` is no child of this process, but of one that ends at once, and whose pid this is.
    """
    process = subprocess.Popen(
        [
            *(python, "-I", str(code.start), *([ORPHANED] if orphaned else [])),
            *(str(birth.folder), str(birth.held), str(birth.using)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=birth.log,
        stderr=birth.log,
        cwd="/",
        env=birth.environment,
        pass_fds=(birth.held, birth.using),
        start_new_session=True,
    )
    if not orphaned:
        reap(process)
    elif process.wait():
        raise OSError(f"the process that starts an agent ended with {process.returncode}")
    return process.pid


def reap(process: "subprocess.Popen[bytes]") -> None:
    """Take note of its end whenever that is; or it would stay in the process table as long as this process lives."""
    threading.Thread(target=process.wait, name=f"reaper-{process.pid}", daemon=True).start()
