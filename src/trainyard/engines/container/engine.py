"""The container engine: the local one, but for programs that run in their own images.

Agents, reports, commands and clearing up are those of the local engine. Only the agent's last step differs: it runs the
image by podman or docker, and stays beside the container.
"""

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainyard.engines.container.survey import Survey, survey
from trainyard.engines.container.tool import find_tool
from trainyard.engines.contract import Capabilities, InstanceRef, refs_of
from trainyard.engines.local.engine import LocalEngine
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.link.contract import ContainerSpec, InstanceSpec

log = logging.getLogger(__name__)


def open_container_engine(
    jobs: Path, agents: Path, *, tool: str = "", options: str = "", slots: int | None = None
) -> "ContainerEngine":
    """The engine with a tool by its name or path: podman, or else docker, where none is named.

    `options` are words for its `run`, as a shell reads them. InvalidRequest when there is no such tool.
    """
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise InvalidRequest(f'container_options is "{options}", which cannot be read: {error}.') from error
    return ContainerEngine(jobs, agents, tool=find_tool(tool), options=words, slots=slots)


class ContainerEngine(LocalEngine):
    """Runs instances under `jobs` in their images, with `tool`."""

    name = "container"

    def __init__(
        self,
        jobs: Path,
        agents: Path,
        *,
        tool: str,
        options: Sequence[str] = (),
        slots: int | None = None,
        python: str = sys.executable,
    ) -> None:
        super().__init__(jobs, agents, slots=slots, python=python)
        self._tool = tool
        self._options = tuple(options)
        self._surveyed: Survey | None = None

    def make_ready(self) -> None:
        super().make_ready()
        found = self._survey()
        log.info(
            "images can be run", extra={"tool": found.tool, "version": found.version, "root": not found.is_rootless}
        )

    def why_not_isolated(self, instances: int) -> str:
        if instances <= 1:
            return ""
        try:
            found = self._survey()
        except Unavailable as error:
            return _silence(error)
        if not found.is_podman:
            return "docker puts this machine itself into every network that it makes, so only one instance is cut off"
        if found.is_rootless:
            return "podman without root cannot put several containers into a network of their own"
        return super().why_not_isolated(instances)

    def capabilities(self) -> Capabilities:
        try:
            found = self._survey()
        except Unavailable as error:
            limits = gpus = _silence(error)
        else:
            limits, gpus = found.no_limits, found.no_gpus if self.capacity().gpus else ""
        return Capabilities(
            limits=limits,
            gpus=gpus,
            warm_workers="each program starts in a container of its own",
            several_nodes="the engine has this machine alone",
            images="",
        )

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        try:
            found = self._survey()
        except Unavailable:
            self.end(refs[0].attempt)
            raise
        return super().start([self._completed(spec, found) for spec in specs])

    def _completed(self, spec: InstanceSpec, found: Survey) -> InstanceSpec:
        if spec.container is None:
            raise InvalidRequest(f"{spec.job_name} has no image that could be run.")
        container: ContainerSpec = replace(
            spec.container,
            tool=self._tool,
            options=[*found.options(spec.limits.gpus), *self._options],
            limits=found.limits,
        )
        return replace(spec, container=container, warm=None)

    def _survey(self) -> Survey:
        """Made once; while the tool does not answer it is asked again each time."""
        if self._surveyed is None:
            self._surveyed = survey(self._tool)
        return self._surveyed


def _silence(error: Unavailable) -> str:
    return f"the tool that runs images does not answer ({error.message.rstrip('.')})"
