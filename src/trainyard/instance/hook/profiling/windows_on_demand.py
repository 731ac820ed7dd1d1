"""Waits until a profile is wanted. Most programs are never profiled, and need not import what does it."""

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trainyard.formats.profiles.step_times import StepRow
from trainyard.link.event_protocol import PROFILE_WANTED, PROFILER_CONFIG

# Between two looks.
LOOK_S = 1.0
_MAX_BYTES = 256 * 1024
# No training has so many steps.
_NEVER = 2**62
# All parameters that ask for a profile have names that end so.
_PROFILE = b'config"'


class ProfiledSteps(Protocol):
    """Profiles of some of the steps of a training. One thread calls everything, and nothing raises."""

    def begin_step(self, number: int, ended: StepRow | None) -> int:
        """Do what is due before a step begins, and return before which step this is to be called again at the latest.

        Some steps are left out as long as nothing is due. `ended` is the step before this one.
        """

    def close(self) -> None:
        """End all profiles, and wait until they are written."""

    def forget(self) -> None:
        """Stop everything in a forked child."""


class WindowsOnDemand:
    """Makes the windows of a training when its configuration, or a request since `since_s`, first asks for any."""

    def __init__(
        self, ml: Path, make: Callable[[], ProfiledSteps], *, note: Callable[[str], None], since_s: float = 0.0
    ) -> None:
        self._since_s = since_s
        self._config, self._wanted = ml / PROFILER_CONFIG, ml / PROFILE_WANTED
        self._make, self._note = make, note
        self._windows: ProfiledSteps | None = None
        self._version: tuple[int, int] | None = None
        self._look_at = 0.0

    def begin_step(self, number: int, ended: StepRow | None) -> int:
        if self._windows is None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            if self._is_wanted():
                self._make_windows()
        return _NEVER if self._windows is None else self._windows.begin_step(number, ended)

    def close(self) -> None:
        self._look_at = math.inf
        if self._windows is not None:
            self._windows.close()

    def forget(self) -> None:
        self._look_at = math.inf
        if self._windows is not None:
            self._windows.forget()

    def _make_windows(self) -> None:
        try:
            self._windows = self._make()
        except Exception as error:
            self._look_at = math.inf
            self._note(f"The steps of the program cannot be profiled; training continues: {error!r}.")

    def _is_wanted(self) -> bool:
        with suppress(OSError):
            # Nobody asks for a profile of most programs.
            if os.stat(self._wanted).st_mtime >= self._since_s:  # noqa: PTH116 - once a second in every training
                return True
        try:
            found = os.stat(self._config)  # noqa: PTH116 - once a second in every training
            version = (found.st_mtime_ns, found.st_size)
            if version == self._version:
                return False
            self._version = version
            with self._config.open("rb") as file:
                return _PROFILE in file.read(_MAX_BYTES).lower()
        except OSError:
            return False
