"""What a run records by itself: the state of the code, the packages, the arguments and the machine."""

import contextlib
import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_GIT_TIMEOUT_S = 5.0
# The limits of MetadataProperties and of parameters.
_METADATA_LENGTH, _VALUE_LENGTH = 1024, 2500


@dataclass(frozen=True, slots=True)
class GitState:
    """The commit that a program runs from, and whether files differ from it."""

    commit: str
    branch: str
    repository: str
    is_dirty: bool


def git_state(folder: Path) -> GitState | None:
    """Return the state of the repository that a folder is in; None if it is in none, or git is missing."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    return GitState(
        commit,
        _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        _git(folder, "config", "--get", "remote.origin.url"),
        is_dirty=bool(_git(folder, "status", "--porcelain")),
    )


def captured_metadata(state: GitState | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the MetadataProperties of a run: its commit and repository, and the user who started it."""
    found = {"GeneratedBy": environment.get("USER", "") or environment.get("TRAINING_JOB_NAME", "")}
    if state is not None:
        found |= {"CommitId": state.commit, "Repository": state.repository}
    return {name: value[:_METADATA_LENGTH] for name, value in found.items() if value}


def captured_parameters(state: GitState | None) -> dict[str, str]:
    """Return what a run records of its program and its machine, as parameters."""
    found = {
        "trainyard.command": shlex.join(sys.argv),
        "trainyard.python": platform.python_version(),
        "trainyard.host": socket.gethostname(),
        "trainyard.cpus": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "trainyard.system": platform.platform(),
    }
    if state is not None:
        found |= {"git.commit": state.commit, "git.branch": state.branch, "git.is_dirty": str(state.is_dirty).lower()}
    return {name: value[:_VALUE_LENGTH] for name, value in found.items() if value}


def installed_packages() -> str:
    """Return the installed packages as lines of a requirements file."""
    found = {f"{each.name}=={each.version}" for each in importlib.metadata.distributions() if each.name}
    return "".join(f"{line}\n" for line in sorted(found, key=str.lower))


def _git(folder: Path, *arguments: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        run = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return run.stdout.strip() if run.returncode == 0 else ""
    return ""
