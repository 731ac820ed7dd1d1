"""The program that stores and runs container images: podman or docker, and what it can do on this machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.link.containers import is_podman, run_tool

TOOLS = ("podman", "docker")
LIMITS = ("cpu", "memory", "pids")

_CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_CDI_KIND = re.compile(r"nvidia\.com/gpu")
_INIT_FOLDERS = ("/usr/libexec/podman", "/usr/local/libexec/podman", "/usr/lib/podman", "/usr/local/lib/podman")
_DOCKER_LIMITS = {"cpu": "CpuCfsQuota", "memory": "MemoryLimit", "pids": "PidsLimit"}


def find_tool(named: str = "") -> str:
    """Return the path of the named tool, by default of podman or else of docker. Raises InvalidRequest if missing."""
    for name in (named,) if named else TOOLS:
        found = shutil.which(name)
        if found is not None:
            return found
    if named:
        raise InvalidRequest(f"There is no program {named} here; name podman or docker, or a path of one of them.")
    raise InvalidRequest("Neither podman nor docker is installed here; container images need one of them.")


def run_visibly(tool: str, *arguments: str) -> int:
    """Run the tool for a person, who sees everything that it prints on stderr, and return its exit status."""
    try:
        return subprocess.run([tool, *arguments], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    except OSError as error:
        raise Unavailable(f"{tool} cannot be run: {error}.") from error


@dataclass(frozen=True, slots=True)
class ContainerTool:
    """What a tool says about itself.

    `limits` are those of LIMITS that it enforces. `has_init` says whether it can run an init process, which forwards
    signals to programs that would ignore them as pid 1. `no_gpus` is a clause that says why containers get no GPUs;
    empty if they do.
    """

    tool: str
    is_podman: bool
    version: str
    is_rootless: bool
    limits: tuple[str, ...]
    has_init: bool
    no_gpus: str = ""

    @property
    def name(self) -> str:
        return "podman" if self.is_podman else "docker"

    @property
    def no_limits(self) -> str:
        """A clause that says why some limits are not enforced; empty if all are."""
        missing = [name for name in LIMITS if name not in self.limits]
        if not missing:
            return ""
        because = ", which has no root and too few control groups of its own" if self.is_rootless else ""
        return f"{', '.join(missing)} cannot be limited by {self.name} here{because}"

    def options(self, gpus: Sequence[int]) -> list[str]:
        """Return the options that `run` needs on this machine for a container with these GPUs."""
        words = ["--init"] if self.has_init else []
        if not self.is_podman and not self.is_rootless and os.geteuid() != 0:
            # Files of the container's root would belong to the machine's root, and could not be packed or removed.
            words += ["--user", f"{os.geteuid()}:{os.getegid()}"]
        if gpus and self.is_podman:
            return words + [word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
        if gpus:
            return [*words, "--gpus", f'"device={",".join(map(str, gpus))}"']
        return words


def inspect_tool(tool: str) -> ContainerTool:
    """Ask a tool about itself. Raises Unavailable if it does not answer, such as docker without its daemon."""
    has_podman = is_podman(tool)
    info = _read_info(tool, "{{json .}}") if not has_podman else _read_info(tool, "json")
    return _parse_podman(tool, info) if has_podman else _parse_docker(tool, info)


def _read_info(tool: str, form: str) -> Mapping[str, Any]:
    try:
        return dict(json.loads(run_tool(tool, "info", "--format", form)))
    except (ValueError, TypeError) as error:
        raise Unavailable(f"The output of `{tool} info` cannot be read: {error}.") from error


def _parse_podman(tool: str, info: Mapping[str, Any]) -> ContainerTool:
    host = info.get("host", {})
    is_rootless = bool(host.get("security", {}).get("rootless"))
    # Without root, cgroups of version 1 cannot be used, whatever is listed.
    has_groups = not is_rootless or host.get("cgroupVersion") == "v2"
    listed = host.get("cgroupControllers") or ()
    has_catatonit = any(Path(folder, "catatonit").exists() for folder in _INIT_FOLDERS)
    return ContainerTool(
        tool,
        is_podman=True,
        version=str(info.get("version", {}).get("Version", "")),
        is_rootless=is_rootless,
        limits=tuple(name for name in LIMITS if has_groups and name in listed),
        has_init=has_catatonit or shutil.which("catatonit") is not None,
        no_gpus="" if _has_cdi_gpus(_CDI_FOLDERS) else _no_cdi_gpus(tool),
    )


def _parse_docker(tool: str, info: Mapping[str, Any]) -> ContainerTool:
    if not info.get("ServerVersion"):
        errors = info.get("ServerErrors") or ["its daemon does not answer"]
        raise Unavailable(f"{tool} cannot run anything: {errors[0]}.")
    has_gpus = "nvidia" in (info.get("Runtimes") or {}) or shutil.which("nvidia-container-runtime-hook") is not None
    return ContainerTool(
        tool,
        is_podman=False,
        version=str(info["ServerVersion"]),
        is_rootless=any("rootless" in option for option in info.get("SecurityOptions") or ()),
        limits=tuple(name for name in LIMITS if info.get(_DOCKER_LIMITS[name])),
        has_init=bool(info.get("InitBinary")),
        no_gpus="" if has_gpus else "docker has no NVIDIA runtime (`nvidia-ctk runtime configure` adds it)",
    )


def _has_cdi_gpus(folders: Sequence[Path]) -> bool:
    files = [file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file()]
    return any(_CDI_KIND.search(file.read_text(errors="replace")) for file in files)


def _no_cdi_gpus(tool: str) -> str:
    return (
        f"{Path(tool).name} finds no CDI description of them (`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` "
        "makes one)"
    )
