"""The containers of instances, through podman or docker: what an agent and whoever clears up after it both know.

A container is found by its label, which is the folder of its instance. So it can be ended whoever made it and whoever
died meanwhile, and nobody has to remember an id.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import Unavailable
from trainyard.link.folders import InstanceFolder
from trainyard.link.holds import is_held
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.link.presence import presence_of

INSTANCE = "trainyard.instance"  # the label with the folder of the instance
JOBS = "trainyard.jobs"  # the label with the folder of all jobs of the yard

_ANSWER_S = 60.0
_PAUSE_S = 0.05


def ask(tool: str, *arguments: str, timeout_s: float = _ANSWER_S) -> str:
    """What the tool writes; Unavailable with its last line when it fails or does not answer."""
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
        said = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise Unavailable(f"`{tool} {arguments[0]}` failed: {said[0]}")
    return done.stdout


def is_podman(tool: str) -> bool:
    """Whether the tool is podman, by whatever name it is called."""
    return "podman" in ask(tool, "--version").lower()


def labels(instance: Path) -> Sequence[str]:
    """The labels of every container of an instance."""
    return (f"{INSTANCE}={instance}", f"{JOBS}={instance.parents[2]}")


def containers_of(tool: str, instance: Path) -> list[str]:
    """The ids of what is there of an instance, running or not."""
    return ask(tool, "ps", "--all", "--quiet", "--filter", f"label={INSTANCE}={instance}").split()


def instances_with_containers(tool: str, jobs: Path) -> list[Path]:
    """The folders of all instances of a yard of which a container is there."""
    ids = ask(tool, "ps", "--all", "--quiet", "--filter", f"label={JOBS}={jobs}").split()
    told = [ask(tool, "inspect", "--format", f'{{{{index .Config.Labels "{INSTANCE}"}}}}', each) for each in ids]
    return sorted({Path(each.strip()) for each in told})


def abandoned(jobs: Path) -> list[tuple[str, Path]]:
    """The instances of a yard of which a container is there but no agent any more, each with its tool.

    A tool that does not answer tells of none.
    """
    found: list[tuple[str, Path]] = []
    for tool in _tools(jobs):
        with suppress(Unavailable):
            found += [(tool, instance) for instance in instances_with_containers(tool, jobs)]
    return [(tool, instance) for tool, instance in found if not _has_agent(instance)]


def has_program(tool: str, image: str, program: str, *, folders: Sequence[str], instance: Path) -> bool:
    """Whether an image has a program in one of these folders; found out without running anything of it.

    What is made for that, and is gone again when this returns, has the label of the instance.
    """
    if program.startswith("/"):
        places = [program]
    else:
        places = [f"{folder}/{program}" for folder in folders]
    words = [word for label in labels(instance) for word in ("--label", label)]
    container = ask(tool, "create", "--pull", "never", "--network", "none", *words, image, program).strip()
    try:
        return any(_has_file(tool, container, place) for place in places)
    finally:
        _remove(tool, container)


def written_folders(tool: str, container: str) -> list[Path]:
    """The folders of the tool that take what a program writes to its image and its channels; none if that is not told.

    Only podman tells of what it has besides the layer of the container.
    """
    for form in ("{{.GraphDriver.Data.UpperDir}}\n{{.StaticDir}}", "{{.GraphDriver.Data.UpperDir}}"):
        with suppress(Unavailable):
            told = ask(tool, "inspect", "--format", form, container).splitlines()
            return [Path(line) for line in told if line.startswith("/")]
    return []


def remove_containers(tool: str, instance: Path, *, within_s: float) -> None:
    """Kill and remove what is there of an instance, and see it gone; Unavailable when something resists so long."""
    deadline = time.monotonic() + within_s
    while ids := containers_of(tool, instance):
        for each in ids:
            _remove(tool, each)
        if time.monotonic() > deadline and containers_of(tool, instance):
            raise Unavailable(f"The container {ids[0]} of {instance} cannot be removed.")
        time.sleep(_PAUSE_S)


def take_back(tool: str, folder: Path) -> None:
    """Make files that a container of ours left to other users our own again.

    Only a user without privileges needs it: the other users of his containers are his, but not he himself.
    """
    if os.geteuid() != 0 and _has_foreign_files(folder) and is_podman(tool):
        ask(tool, "unshare", "chown", "-R", "0:0", str(folder))


def _tools(jobs: Path) -> list[str]:
    """Those that instances of a yard have used, as their ledgers tell."""
    entries = [entry for file in jobs.glob("*/*/*/ledger.jsonl") for entry in Ledger(file).entries()]
    return sorted({str(entry.details["tool"]) for entry in entries if entry.kind is LedgerKind.CONTAINER})


def _has_agent(instance: Path) -> bool:
    presence = presence_of(instance) if instance.is_dir() else None
    return (presence is not None and presence.is_alive) or is_held(InstanceFolder(instance).lock)


def _has_file(tool: str, container: str, place: str) -> bool:
    try:
        ask(tool, "cp", f"{container}:{place}", "-")
    except Unavailable:
        return False
    return True


def _remove(tool: str, container: str) -> None:
    """Without force first, which is enough for one that has ended; podman would give any other ten seconds to stop."""
    with suppress(Unavailable):
        ask(tool, "rm", container)
        return
    for words in (("kill", container), ("rm", "--force", container)):
        with suppress(Unavailable):  # it has just ended, or somebody else has removed it; the caller looks again
            ask(tool, *words)


def _has_foreign_files(folder: Path) -> bool:
    own = os.geteuid()
    with suppress(FileNotFoundError), ConfinedFolder.open(folder) as opened:
        return any(entry.status.st_uid != own for entry in opened.walk())
    return False
