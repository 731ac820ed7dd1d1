"""What podman or docker can do for jobs on this machine, as far as the tool itself tells."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

from trainyard.foundation.errors import Unavailable
from trainyard.link.containers import ask, is_podman

LIMITS = ("cpu", "memory", "pids")

_CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_CDI_KIND = re.compile(r"nvidia\.com/gpu")
_INIT_FOLDERS = ("/usr/libexec/podman", "/usr/local/libexec/podman", "/usr/lib/podman", "/usr/local/lib/podman")
_DOCKER_LIMITS = {"cpu": "CpuCfsQuota", "memory": "MemoryLimit", "pids": "PidsLimit"}


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found out about a tool. `no_gpus` is why it gives containers no GPUs, and empty where it does."""

    tool: str
    is_podman: bool
    version: str
    is_rootless: bool
    limits: tuple[str, ...]  # of LIMITS, that it enforces
    has_init: bool  # which passes signals on to programs that would ignore them as the first process
    no_gpus: str = ""

    @property
    def name(self) -> str:
        return "podman" if self.is_podman else "docker"

    @property
    def no_limits(self) -> str:
        """Why some limits are not enforced, as a clause."""
        missing = [name for name in LIMITS if name not in self.limits]
        if not missing:
            return ""
        because = ", which has no root and too few control groups of its own" if self.is_rootless else ""
        return f"{', '.join(missing)} cannot be limited by {self.name} here{because}"

    def options(self, gpus: Sequence[int]) -> list[str]:
        """What `run` needs on this machine for a container with these GPUs."""
        words = ["--init"] if self.has_init else []
        if not self.is_podman and not self.is_rootless and os.geteuid() != 0:
            # What root of the container wrote would be root's of the machine, and could not be packed or removed.
            words += ["--user", f"{os.geteuid()}:{os.getegid()}"]
        if gpus and self.is_podman:
            return words + [word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
        if gpus:
            return [*words, "--gpus", f'"device={",".join(map(str, gpus))}"']
        return words


def survey(tool: str) -> Survey:
    """Ask a tool; Unavailable when it does not answer, such as a docker without its daemon."""
    has_podman = is_podman(tool)
    told = _json(tool, "{{json .}}") if not has_podman else _json(tool, "json")
    return _of_podman(tool, told) if has_podman else _of_docker(tool, told)


def _json(tool: str, form: str) -> Mapping[str, Any]:
    try:
        return dict(json.loads(ask(tool, "info", "--format", form)))
    except (ValueError, TypeError) as error:
        raise Unavailable(f"`{tool} info` tells nothing that can be read: {error}.") from error


def _of_podman(tool: str, told: Mapping[str, Any]) -> Survey:
    host = told.get("host", {})
    is_rootless = bool(host.get("security", {}).get("rootless"))
    # Without root, control groups of version 1 cannot be had, whatever is listed.
    has_groups = not is_rootless or host.get("cgroupVersion") == "v2"
    listed = host.get("cgroupControllers") or ()
    return Survey(
        tool,
        is_podman=True,
        version=str(told.get("version", {}).get("Version", "")),
        is_rootless=is_rootless,
        limits=tuple(name for name in LIMITS if has_groups and name in listed),
        has_init=any(Path(folder, "catatonit").exists() for folder in _INIT_FOLDERS) or which("catatonit") is not None,
        no_gpus="" if _describes_gpus(_CDI_FOLDERS) else _no_description(tool),
    )


def _of_docker(tool: str, told: Mapping[str, Any]) -> Survey:
    if not told.get("ServerVersion"):
        errors = told.get("ServerErrors") or ["its daemon does not answer"]
        raise Unavailable(f"{tool} cannot run anything: {errors[0]}.")
    has_gpus = "nvidia" in (told.get("Runtimes") or {}) or which("nvidia-container-runtime-hook") is not None
    return Survey(
        tool,
        is_podman=False,
        version=str(told["ServerVersion"]),
        is_rootless=any("rootless" in option for option in told.get("SecurityOptions") or ()),
        limits=tuple(name for name in LIMITS if told.get(_DOCKER_LIMITS[name])),
        has_init=bool(told.get("InitBinary")),
        no_gpus="" if has_gpus else "docker has no runtime of NVIDIA (`nvidia-ctk runtime configure` adds it)",
    )


def _describes_gpus(folders: Sequence[Path]) -> bool:
    files = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file()]
    return any(_CDI_KIND.search(file.read_text(errors="replace")) for file in files)


def _no_description(tool: str) -> str:
    return (
        f"{Path(tool).name} finds no description of them (`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` "
        "makes one)"
    )
