"""The containers of instances, through podman or docker: what the agent and the clean-up after it share.

A container is found by its label, the folder of its instance. So it can be ended whichever process made it or died
since, and nobody has to remember an id.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import Unavailable
from trainyard.link.agent_process import find_agent_process
from trainyard.link.file_locks import is_held
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind

# The labels with the folder of the instance, and with the folder of all jobs of the yard.
INSTANCE = "trainyard.instance"
JOBS = "trainyard.jobs"

_ANSWER_TIMEOUT_S = 60.0
_POLL_INTERVAL_S = 0.05


def run_tool(tool: str, *arguments: str, timeout_s: float = _ANSWER_TIMEOUT_S) -> str:
    """Return the tool's output. Raises Unavailable, with its last line, if it fails or does not answer."""
    try:
        done = subprocess.run(
            [tool, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{tool} does not answer: {error}.") from error
    if done.returncode:
        last_line = done.stderr.strip().splitlines()[-1:] or [f"it exited with {done.returncode}"]
        raise Unavailable(f"`{tool} {arguments[0]}` failed: {last_line[0]}")
    return done.stdout


def is_podman(tool: str) -> bool:
    """Whether the tool is podman, whatever the name of its program."""
    return "podman" in run_tool(tool, "--version").lower()


def container_labels(instance: Path) -> Sequence[str]:
    """Return the labels of every container of an instance."""
    return (f"{INSTANCE}={instance}", f"{JOBS}={instance.parents[2]}")


def containers_of(tool: str, instance: Path) -> list[str]:
    """Return the ids of an instance's containers, running or not."""
    return run_tool(tool, "ps", "--all", "--quiet", "--filter", f"label={INSTANCE}={instance}").split()


def instances_with_containers(tool: str, jobs: Path) -> list[Path]:
    """Return the folders of all instances of a yard that have a container."""
    ids = run_tool(tool, "ps", "--all", "--quiet", "--filter", f"label={JOBS}={jobs}").split()
    found = [run_tool(tool, "inspect", "--format", f'{{{{index .Config.Labels "{INSTANCE}"}}}}', each) for each in ids]
    return sorted({Path(each.strip()) for each in found})


def abandoned_containers(jobs: Path) -> list[tuple[str, Path]]:
    """Return the instances of a yard that have a container but no agent any more, each with its tool.

    A tool that does not answer is skipped.
    """
    found: list[tuple[str, Path]] = []
    for tool in _tools(jobs):
        with suppress(Unavailable):
            found += [(tool, instance) for instance in instances_with_containers(tool, jobs)]
    return [(tool, instance) for tool, instance in found if not _has_agent(instance)]


def has_program(tool: str, image: str, program: str, *, folders: Sequence[str], instance: Path) -> bool:
    """Whether an image has a program in one of these folders, without running anything of it.

    The container that this takes has the label of the instance, and is gone when this returns.
    """
    if program.startswith("/"):
        places = [program]
    else:
        places = [f"{folder}/{program}" for folder in folders]
    words = [word for label in container_labels(instance) for word in ("--label", label)]
    container = run_tool(tool, "create", "--pull", "never", "--network", "none", *words, image, program).strip()
    try:
        return any(_has_file(tool, container, place) for place in places)
    finally:
        _remove(tool, container)


def written_folders(tool: str, container: str) -> list[Path]:
    """Return the tool's folders for what a program writes to its image and its channels; empty if the tool has none.

    Only podman reports more than the layer of the container.
    """
    for form in ("{{.GraphDriver.Data.UpperDir}}\n{{.StaticDir}}", "{{.GraphDriver.Data.UpperDir}}"):
        with suppress(Unavailable):
            lines = run_tool(tool, "inspect", "--format", form, container).splitlines()
            return [Path(line) for line in lines if line.startswith("/")]
    return []


def remove_containers(tool: str, instance: Path, *, within_s: float) -> None:
    """Kill and remove all containers of an instance. Raises Unavailable if one is still there after `within_s`."""
    deadline = time.monotonic() + within_s
    while ids := containers_of(tool, instance):
        for each in ids:
            _remove(tool, each)
        if time.monotonic() > deadline and containers_of(tool, instance):
            raise Unavailable(f"The container {ids[0]} of {instance} cannot be removed.")
        time.sleep(_POLL_INTERVAL_S)


def reclaim_files(tool: str, folder: Path) -> None:
    """Take back the ownership of files that a container left to other users.

    Only an unprivileged user needs this: the users inside rootless containers map to subordinate ids, not to the user.
    """
    if os.geteuid() != 0 and _has_foreign_files(folder) and is_podman(tool):
        run_tool(tool, "unshare", "chown", "-R", "0:0", str(folder))


def _tools(jobs: Path) -> list[str]:
    """The tools that instances of a yard have used, according to their ledgers."""
    entries = [entry for file in jobs.glob("*/*/*/ledger.jsonl") for entry in Ledger(file).entries()]
    return sorted({str(entry.details["tool"]) for entry in entries if entry.kind is LedgerKind.CONTAINER})


def _has_agent(instance: Path) -> bool:
    presence = find_agent_process(instance) if instance.is_dir() else None
    return (presence is not None and presence.is_alive) or is_held(InstanceFolder(instance).lock)


def _has_file(tool: str, container: str, place: str) -> bool:
    try:
        run_tool(tool, "cp", f"{container}:{place}", "-")
    except Unavailable:
        return False
    return True


def _remove(tool: str, container: str) -> None:
    """Remove without force first, which is enough if it has ended. With force, podman would wait ten seconds."""
    with suppress(Unavailable):
        run_tool(tool, "rm", container)
        return
    for words in (("kill", container), ("rm", "--force", container)):
        # It may have ended just now, or have been removed; the caller checks again.
        with suppress(Unavailable):
            run_tool(tool, *words)


def _has_foreign_files(folder: Path) -> bool:
    own = os.geteuid()
    with suppress(FileNotFoundError), ConfinedFolder.open(folder) as opened:
        return any(entry.status.st_uid != own for entry in opened.walk())
    return False
