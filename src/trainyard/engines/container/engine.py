"""The container engine: the local engine, for programs that run in their own images.

Agents, reports, commands and clean-up are those of the local engine. Only the agent's last step differs: it runs the
image with podman or docker, and watches the container.
"""

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainyard.engines.container.tool import ContainerTool, find_tool, inspect_tool
from trainyard.engines.contract import Capabilities, InstanceRef, refs_of
from trainyard.engines.local.engine import LocalEngine
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.link.contract import ContainerSpec, InstanceSpec

log = logging.getLogger(__name__)


def open_container_engine(
    jobs: Path, agents: Path, *, tool: str = "", options: str = "", slots: int | None = None
) -> "ContainerEngine":
    """Open the engine with a tool, given by name or path; by default podman, or else docker.

    `options` are options for its `run`, as in a shell. Raises InvalidRequest if there is no such tool.
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
        self._inspected: ContainerTool | None = None

    def make_ready(self) -> None:
        super().make_ready()
        found = self._inspect()
        log.info(
            "images can be run", extra={"tool": found.tool, "version": found.version, "root": not found.is_rootless}
        )

    def why_not_isolated(self, instances: int) -> str:
        if instances <= 1:
            return ""
        try:
            found = self._inspect()
        except Unavailable as error:
            return _unavailable_clause(error)
        if not found.is_podman:
            return "docker connects every network to this machine, so it can isolate only a single instance"
        if found.is_rootless:
            return "podman without root cannot give several containers a network of their own"
        return super().why_not_isolated(instances)

    def capabilities(self) -> Capabilities:
        try:
            found = self._inspect()
        except Unavailable as error:
            limits = gpus = _unavailable_clause(error)
        else:
            limits, gpus = found.no_limits, found.no_gpus if self.capacity().gpus else ""
        return Capabilities(
            limits=limits,
            gpus=gpus,
            warm_workers="each program starts in a container of its own",
            several_nodes="the engine has only this machine",
            images="",
        )

    def start(self, specs: Sequence[InstanceSpec]) -> tuple[InstanceRef, ...]:
        refs = refs_of(specs)
        try:
            found = self._inspect()
        except Unavailable:
            self.end(refs[0].attempt)
            raise
        return super().start([self._complete_spec(spec, found) for spec in specs])

    def _complete_spec(self, spec: InstanceSpec, found: ContainerTool) -> InstanceSpec:
        if spec.container is None:
            raise InvalidRequest(f"{spec.job_name} has no container image to run.")
        container: ContainerSpec = replace(
            spec.container,
            tool=self._tool,
            options=[*found.options(spec.limits.gpus), *self._options],
            limits=found.limits,
        )
        return replace(spec, container=container, warm=None)

    def _inspect(self) -> ContainerTool:
        """Inspect the tool once. While it does not answer, each call tries again."""
        if self._inspected is None:
            self._inspected = inspect_tool(self._tool)
        return self._inspected


def _unavailable_clause(error: Unavailable) -> str:
    return f"the tool that runs images does not answer ({error.message.rstrip('.')})"
