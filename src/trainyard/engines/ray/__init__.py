"""Runs instances on the nodes of a Ray cluster.

Only `connection`, `cluster` and `actor` import Ray, and only the process of `main` imports them.
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

from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.cluster.proxy_supervisor import ProcessLauncher, RunningProxy
from trainyard.engines.ray.code_bundle import CodeBundle, ensure_code_bundle
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER

_FIND_TIMEOUT_S = 30.0
_FIND_RAY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"

# The variables of the yard that the proxy inherits: what any program needs, and Ray's own.
_INHERITED_VARIABLES = re.compile(r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|RAY_\w+")

# For how many seconds Ray tries to reach a head that is gone before it ends the process. A restarted process finds a
# new head. By default Ray tries for a minute, during which no call succeeds.
_RECONNECT_TIMEOUT = "RAY_gcs_rpc_server_reconnect_timeout_s"


def open_ray_engine(
    jobs: Path, *, work: Path, address: str, token: str = "", python: str = "", folder: str = "", lease: timedelta
) -> ClusterEngine:
    """Open the engine of the cluster at `address`. Raises InvalidRequest if `python` has no Ray.

    `work` is the engine's folder in the yard, `folder` the one for the yard's files on each node.
    """
    python = python or sys.executable
    require_ray(python)
    work.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    options = {
        "address": address,
        "yard": _yard_id(work),
        "node_folder": folder,
        "jobs": str(jobs),
        "folder": str(work),
    }
    return ClusterEngine("ray", _RayProxyLauncher(python, token, work, options), jobs=jobs, folder=work, lease=lease)


def require_ray(python: str = "") -> None:
    """Raise InvalidRequest, which says what to do, if `python`, by default the yard's own, has no Ray."""
    why = _why_no_ray(python or sys.executable)
    if why:
        raise InvalidRequest(
            f"The engine ray cannot be used, because {why}. Install trainyard[ray] into the yard's environment, or "
            "set ray_python to a Python that has it."
        )


def _why_no_ray(python: str) -> str:
    """Return a clause that says why Ray cannot be imported, or ""."""
    try:
        found = subprocess.run([python, "-c", _FIND_RAY], capture_output=True, timeout=_FIND_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run ({error})"
    return f"{python} has no ray" if found.returncode else ""


class _RayProxyLauncher:
    """Starts the process that talks to Ray, from the same code that is sent to nodes."""

    def __init__(self, python: str, token: str, work: Path, options: Mapping[str, str]) -> None:
        self._python = python
        self._token = token
        self._work = work
        self._options = options

    def __call__(self, theirs: socket.socket) -> RunningProxy:
        bundle = ensure_code_bundle(self._work / "parcels")
        options = json.dumps({**self._options, "bundle": str(bundle.folder)})
        launch = ProcessLauncher(
            [self._python, "-P", "-m", "trainyard.engines.ray.main", options],
            environment=self._environment(bundle),
            output=self._work / "ferry.log",
        )
        return launch(theirs)

    def _environment(self, bundle: CodeBundle) -> dict[str, str]:
        environment = {_RECONNECT_TIMEOUT: "10"}
        environment |= {name: value for name, value in os.environ.items() if _INHERITED_VARIABLES.fullmatch(name)}
        environment |= {"PYTHONPATH": str(bundle.source), "RAY_USAGE_STATS_ENABLED": "0"}
        if self._token:
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        elif "RAY_AUTH_TOKEN" in environment or Path(environment.get("HOME", "/"), ".ray", "auth_token").exists():
            # Given the address of a cluster, Ray does not use a token that it finds unless this is set.
            environment.setdefault("RAY_AUTH_MODE", "token")
        return environment


def _yard_id(work: Path) -> str:
    """The id by which the cluster knows this yard; created once."""
    file = work / "id"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    except FileExistsError:
        return file.read_text()
    with os.fdopen(descriptor, "w") as opened:
        opened.write(name := secrets.token_hex(6))
    return name
