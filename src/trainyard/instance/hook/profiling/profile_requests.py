"""Reads which profiles are wanted: the profiler's configuration, and requests that come while the program runs.

The agent replaces both files at any time. They are looked at, at most once a second, by their status.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.formats.profiles.parameters import DEFAULT_PATH, ProfilingParameters, parse_parameters
from trainyard.foundation.errors import InvalidRequest
from trainyard.link.event_protocol import PROFILE_WANTED, PROFILER_CONFIG

_MAX_BYTES = 256 * 1024
_ML = "/opt/ml"

Note = Callable[[str], None]
_Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What has changed since the last look: new parameters, and the steps of each new request."""

    parameters: ProfilingParameters | None = None
    requests: tuple[int, ...] = field(default=())


class ProfileRequests:
    """The two files below the process's /opt/ml. What cannot be understood is noted and changes nothing.

    Requests from before the Unix time `since_s` were for an earlier process of the program.
    """

    def __init__(self, ml: Path, *, note: Note, since_s: float = 0.0) -> None:
        self._ml, self._note, self._since_s = ml, note, since_s
        self._config, self._wanted = ml / PROFILER_CONFIG, ml / PROFILE_WANTED
        self._versions: dict[Path, _Version | None] = {}
        self._last = 0

    def look(self) -> Wanted:
        parameters = self._parse_config() if self._has_changed(self._config) else None
        steps = self._parse_request() if self._has_changed(self._wanted, self._since_s) else None
        return Wanted(parameters, () if steps is None else (steps,))

    def folder(self, parameters: ProfilingParameters) -> Path:
        """Return where the folder of profiles is for a process whose /opt/ml lies elsewhere."""
        path = Path(parameters.path or DEFAULT_PATH)
        return self._ml / path.relative_to(_ML) if path.is_relative_to(_ML) else path

    def _has_changed(self, path: Path, since_s: float = 0.0) -> bool:
        try:
            found = os.stat(path)  # noqa: PTH116 - once a second in every training
            version = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            version = None
        is_recent = version is not None and version[0] >= since_s * 1e9
        has_changed = is_recent and self._versions.get(path) != version
        self._versions[path] = version
        return has_changed

    def _parse_config(self) -> ProfilingParameters | None:
        content = self._read(self._config)
        if content is None:
            return None
        if content.get("DisableProfiler") is True:
            return ProfilingParameters()
        given = content.get("ProfilingParameters")
        try:
            return parse_parameters({str(name): str(value) for name, value in _members(given)})
        except InvalidRequest as error:
            self._note(f"The profiles of the program stay as they were: {error.message}")
            return None

    def _parse_request(self) -> int | None:
        content = self._read(self._wanted)
        if content is None:
            return None
        number, steps = content.get("number"), content.get("steps")
        if type(number) is not int or type(steps) is not int or number <= self._last:
            return None
        self._last = number
        if steps < 1:
            self._note(f"No step is profiled: {steps} steps were asked for. Ask for at least one.")
            return None
        return steps

    def _read(self, path: Path) -> Mapping[str, Any] | None:
        try:
            with path.open("rb") as file:
                content = json.loads(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError) as error:
            self._note(f"{path.name} cannot be read, so the profiles of the program stay as they were: {error}.")
            return None
        if isinstance(content, dict):
            return content
        self._note(f"{path.name} is not a JSON object, so the profiles of the program stay as they were.")
        return None


def _members(given: object) -> list[tuple[Any, Any]]:
    return list(given.items()) if isinstance(given, dict) else []
