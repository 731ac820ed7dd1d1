"""Instances on the nodes of a Ray cluster.

Nothing here imports Ray but `connection`, `cluster` and `actor`, which only the process of `main` loads.
"""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from trainyard.engines.cluster.crew import AsProcess, Running
from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.ray.parcel import Parcel, ensure_parcel
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER

_ASK_S = 30.0
_FIND_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"

# Of the yard's environment: what programs need everywhere, and what Ray reads, such as its certificates.
_PASSED_ON = re.compile(r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|RAY_\w+")

# For how many seconds Ray looks for a head that is gone before it ends the process, which finds a new head when it is
# started again; by itself it looks for a minute, in which nothing can be asked.
_PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"


def open_ray_engine(
    jobs: Path, *, work: Path, address: str, token: str = "", python: str = "", folder: str = "", lease: timedelta
) -> ClusterEngine:
    """The engine of the cluster at `address`; InvalidRequest when `python` has no Ray.

    `work` is a folder of the yard's own, `folder` one that each node has for what is of this yard.
    """
    python = python or sys.executable
    require_ray(python)
    work.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    order = {"address": address, "yard": _yard_id(work), "node_folder": folder, "jobs": str(jobs), "folder": str(work)}
    return ClusterEngine("ray", _Launch(python, token, work, order), jobs=jobs, folder=work, lease=lease)


def require_ray(python: str = "") -> None:
    """InvalidRequest, saying what to do, when `python`, by default the yard's own, has no Ray."""
    why = _why_no_ray(python or sys.executable)
    if why:
        raise InvalidRequest(
            f"The engine ray cannot be used, because {why}. Install trainyard[ray] into the yard's environment, or "
            "name the Python of another one with the setting ray_python."
        )


def _why_no_ray(python: str) -> str:
    """Why Ray cannot be imported there, as a clause; empty when it can be."""
    try:
        found = subprocess.run([python, "-c", _FIND_RAY], capture_output=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run ({error})"
    return f"{python} has no ray" if found.returncode else ""


class _Launch:
    """Starts the process that speaks to Ray, from the same code that is sent to nodes."""

    def __init__(self, python: str, token: str, work: Path, order: Mapping[str, str]) -> None:
        self._python = python
        self._token = token
        self._work = work
        self._order = order

    def __call__(self, theirs: socket.socket) -> Running:
        parcel = ensure_parcel(self._work / "parcels")
        order = json.dumps({**self._order, "parcel": str(parcel.folder)})
        launch = AsProcess(
            [self._python, "-P", "-m", "trainyard.engines.ray.main", order],
            environment=self._environment(parcel),
            output=self._work / "ferry.log",
        )
        return launch(theirs)

    def _environment(self, parcel: Parcel) -> dict[str, str]:
        environment = {_PATIENCE: "10"}
        environment |= {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
        environment |= {"PYTHONPATH": str(parcel.source), "RAY_USAGE_STATS_ENABLED": "0"}
        if self._token:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        elif "RAY_AUTH_TOKEN" in environment or Path(environment.get("HOME", "/"), ".ray", "auth_token").exists():
            # Ray uses a token that it finds only where it is not told the address of the cluster.
            environment.setdefault("RAY_AUTH_MODE", "token")
        return environment


def _yard_id(work: Path) -> str:
    """By which the cluster knows this yard; made once."""
    file = work / "id"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    except FileExistsError:
        return file.read_text()
    with os.fdopen(descriptor, "w") as opened:
        opened.write(name := secrets.token_hex(6))
    return name
